package kernels_test

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/internal/tools/lint"
	"github.com/smelt-ml/smelt/ir/sym"
	"github.com/smelt-ml/smelt/kernels"
	"github.com/smelt-ml/smelt/lower/plan"
)

// TestSingleSources checks that macros replace every function constant and choose every
// instance of the table.
func TestSingleSources(t *testing.T) {
	for _, file := range kernels.Files() {
		text := kernels.Single(file)
		require.NotContains(t, text, "function_constant", file)
		instances := 0
		for _, k := range kernels.All() {
			if k.File != file {
				continue
			}
			for i := range k.Constants {
				require.Contains(t, text, "#ifdef "+k.Constants[i].Macro()+"\n", k.Name)
			}
			if k.InstanceMacro() != "" {
				instances++
				require.Contains(t, text, "#ifdef "+k.InstanceMacro()+"\n", k.Name)
			}
		}
		require.Equal(t, instances, strings.Count(text, "host_name"), file)
	}
	k, _ := kernels.Lookup("layer_norm_f32_f16")
	require.Equal(t, []string{"SMELT_KERNEL_layer_norm_f32_f16=1", "SMELT_FC_BIAS=false"}, k.Macros(map[uint32]uint32{constant(t, k, "fc_bias"): 0, 9: 1}))
	k, _ = kernels.Lookup("embed")
	require.Equal(t, []string{"SMELT_FC_TYPE=13u"}, k.Macros(map[uint32]uint32{constant(t, k, "fc_type"): 13}))
}

// constant is the number of a function constant.
func constant(t *testing.T, k *kernels.Kernel, name string) uint32 {
	i := slices.IndexFunc(k.Constants, func(c kernels.Constant) bool { return c.Name == name })
	require.GreaterOrEqual(t, i, 0, name)
	return uint32(k.Constants[i].Index)
}

// TestSingleKernels runs the lint over a kernel of each family as a GPU compiles it, with as
// few function constants as it takes and with all of them.
func TestSingleKernels(t *testing.T) {
	if !lint.Available() {
		t.Skip("clang-19 is not installed")
	}
	families := map[string]bool{}
	for _, k := range kernels.All() {
		if families[k.Family] {
			continue
		}
		families[k.Family] = true
		t.Run(k.Family, func(t *testing.T) {
			few, all := map[uint32]uint32{}, map[uint32]uint32{}
			for _, c := range k.Constants {
				all[uint32(c.Index)] = 8 // a type of weights, too
				if !c.Optional {
					few[uint32(c.Index)] = 8
				}
			}
			for i, constants := range []map[uint32]uint32{few, all} {
				if i == 1 && len(all) == len(few) {
					continue
				}
				complaints, err := lint.Check(k.File, kernels.Single(k.File), k.Macros(constants)...)
				require.NoError(t, err)
				require.Empty(t, complaints, k.Macros(constants))
			}
		})
	}
}

// variant is a kernel with its function constants, as a GPU compiles it.
type variant struct {
	*kernels.Kernel
	macros []string
}

// variants lists what the phases' dispatches are made of, each once.
func variants(t *testing.T, phases ...plan.Phase) []variant {
	t.Helper()
	found := map[string]variant{}
	for _, ph := range phases {
		for _, d := range ph.Dispatches {
			k, ok := kernels.Lookup(d.Kernel)
			require.True(t, ok, d.Kernel)
			constants := map[uint32]uint32{}
			for _, c := range d.Constants {
				constants[c.Index] = c.Bits
			}
			macros := k.Macros(constants)
			found[fmt.Sprint(d.Kernel, macros)] = variant{k, macros}
		}
	}
	var out []variant
	for _, name := range slices.Sorted(maps.Keys(found)) {
		out = append(out, found[name])
	}
	return out
}

// decoders are what quant.h has of each type.
var decoders = regexp.MustCompile(`^_Z1[12]decode_(q|plain)`)

// TestDecodePlansCompileLittle counts what a Mac compiles before a first token: the variants
// of a decode plan, and the decoders that the front end meets in them, beside those of the
// files as they are, with every instance and type. Each variant passes the lint.
func TestDecodePlansCompileLittle(t *testing.T) {
	if !lint.Available() {
		t.Skip("clang-19 is not installed")
	}
	known := map[string]int{} // decoders of variants and of files, many of which the models share
	for _, name := range []string{"qwen3-0.6b", "llama3.1-8b"} {
		t.Run(name, func(t *testing.T) {
			model, err := smelt.Open("arch:"+name, "q4_k_m")
			require.NoError(t, err)
			defer model.Close()
			program, err := model.Compile(smelt.Options{Target: "metal", Level: 1})
			require.NoError(t, err)
			i := slices.IndexFunc(program.Plan.Phases, func(ph plan.Phase) bool { return ph.Bounds[sym.T] == 1 })
			require.GreaterOrEqual(t, i, 0)
			list := variants(t, program.Plan.Phases[i])
			count := func(key, file, text string, macros ...string) int {
				if _, ok := known[key]; !ok {
					n, err := lint.Paths(file, text, decoders, macros...)
					require.NoError(t, err)
					known[key] = n
				}
				return known[key]
			}
			alone, whole, files := 0, 0, map[string]bool{}
			for _, v := range list {
				key, text := fmt.Sprint(v.Name, v.macros), kernels.Single(v.File)
				if _, ok := known[key]; !ok {
					complaints, err := lint.Check(v.File, text, v.macros...)
					require.NoError(t, err)
					require.Empty(t, complaints, v.macros)
				}
				n := count(key, v.File, text, v.macros...)
				t.Logf("%s %s: %d decoders", v.Name, v.macros, n)
				alone += n
				if !files[v.File] {
					files[v.File] = true
					whole += count(v.File, v.File, kernels.Source(v.File))
				}
			}
			t.Logf("%d variants with %d decoders; %d in their files; %d variants in all phases", len(list), alone, whole, len(variants(t, program.Plan.Phases...)))
			require.LessOrEqual(t, len(list), 15)
			require.Positive(t, alone)
			require.LessOrEqual(t, 20*alone, whole)
		})
	}
}
