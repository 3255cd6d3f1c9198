package integration_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"math"
	"os/exec"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/batch"
	"github.com/smelt-ml/smelt/internal/ref"
	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
)

// outsideRun is what testdata/outside/classic prints of a model.
type outsideRun struct {
	Name    string
	Graph   string
	Fused   map[string]string
	Fusions map[string]map[string]int
	Kernels map[string]map[string]int
	Native  map[string]bool
	Weights map[string]struct {
		Type string
		Data []byte
	}
	Tokens []int32
	Steps  []int
	Logits [][]float32
}

// TestOutside runs models that another module defines, with biases, LayerNorm, GELU,
// learned positions and ALiBi, and interprets the graphs that it printed: the logits
// agree, on native and on emulated kernels, and the models take part in fusion.
func TestOutside(t *testing.T) {
	if testing.Short() {
		t.Skip("it links a program")
	}
	binary := t.TempDir() + "/classic"
	build := exec.Command("go", "build", "-o", binary, "./classic")
	build.Dir = testfiles.Path(t, "testdata/outside")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)

	// By rule: in a layer of a prefill, in a layer of a decode, and outside the layers of
	// a decode, where the head's norm goes into the head.
	ungated := map[string][3]int{"kv_replication_elimination": {1, 1, 0}, "qkv_write": {1, 1, 0}, "linear_activation": {1, 1, 0},
		"linear_residual": {2, 2, 0}, "norm_prologue": {0, 2, 1}}
	gated := map[string][3]int{"kv_replication_elimination": {1, 1, 0}, "qkv_write": {1, 1, 0}, "gated_activation": {1, 1, 0},
		"gate_up": {1, 1, 0}, "linear_residual": {2, 2, 0}, "norm_prologue": {0, 2, 1}}
	want := map[string]map[string][3]int{"gpt2": ungated, "bloom": ungated, "mpt": ungated, "everything": gated}

	for _, device := range []string{"cpu", "emu"} {
		var printed, complaints bytes.Buffer
		run := program(binary, "-device", device)
		run.Stdout, run.Stderr = &printed, &complaints
		require.NoError(t, run.Run(), "%s", complaints.String())
		var runs []outsideRun
		require.NoError(t, json.Unmarshal(printed.Bytes(), &runs))
		require.Len(t, runs, len(want))
		for _, r := range runs {
			t.Run(r.Name+"/"+device, func(t *testing.T) {
				r.interpret(t)
				const layers = 2
				for phase, column := range map[string]int{"prefill": 0, "decode": 1} {
					counts := map[string]int{}
					for rule, n := range want[r.Name] {
						if all := n[column]*layers + n[2]*column; all > 0 {
							counts[rule] = all
						}
					}
					if device == "emu" && phase == "decode" {
						counts["gather_prologue"] = 1 // the head's, of target Metal
					}
					maps.DeleteFunc(r.Fusions[phase], func(_ string, n int) bool { return n == 0 })
					require.Equal(t, counts, r.Fusions[phase], phase)
				}
				if device == "cpu" {
					for kernel, native := range r.Native {
						require.True(t, native, "%s is emulated", kernel)
					}
				}
			})
		}
	}
}

// interpret computes the logits of every step from the source graph, in float64.
func (r *outsideRun) interpret(t *testing.T) {
	f, err := ir.Parse(r.Graph)
	require.NoError(t, err)
	weights := ref.NewWeights(func(name string) (dtype.Type, []byte, bool) {
		w := r.Weights[name]
		typ, err := dtype.Parse(w.Type)
		return typ, w.Data, err == nil
	})
	const block = 64
	caches := ref.CachesFor(f, 1)
	// Native kernels round activations beside quantized weights to eight bits.
	bound := 1e-3
	if slices.ContainsFunc(f.Values, func(v *ir.Value) bool { return v.Op == ir.OpWeight && v.Type.DType.IsQuantized() }) {
		bound = 5e-2
	}
	start := 0
	for i, n := range r.Steps {
		step := batch.Pack(block, block, batch.Piece{Tokens: r.Tokens[start : start+n], Start: start, Blocks: []int32{0}})
		start += n
		out, err := ref.Run(f, ref.Env{Sizes: step.Sizes, Inputs: step.Inputs, Caches: caches, Weight: weights.Load})
		require.NoError(t, err)
		logits := out.Tensors["logits"].Data
		require.Len(t, r.Logits[i], len(logits))
		most := 0.0
		for _, x := range logits {
			most = math.Max(most, math.Abs(x))
		}
		for j, x := range logits {
			require.InDelta(t, x, float64(r.Logits[i][j]), bound*most, "step %d, logit %d", i, j)
		}
	}
}
