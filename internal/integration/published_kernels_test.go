package integration_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/internal/batch"
	"github.com/smelt-ml/smelt/internal/compiler"
	"github.com/smelt-ml/smelt/internal/fixture"
	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/ir/sym"
	"github.com/smelt-ml/smelt/passes"
)

// xsplitOptions compile for caches of vLLM's layout.
func xsplitOptions(t *testing.T, act dtype.Type, block, context, sequences, prefill int) smelt.Options {
	debug, err := passes.ParseDebug("layout/xsplit")
	require.NoError(t, err)
	return fixture.With(smelt.Options{Target: "metal", Level: 1, Act: act, KV: act, Block: block, Context: context, Sequences: sequences, Prefill: prefill}, compiler.Knobs{Debug: debug})
}

// xsplitKernels are those that a program of the layout attends and writes by.
func xsplitKernels(t *testing.T, p *smelt.Program) (found []string) {
	for i := range p.Plan.Phases {
		for _, kernel := range strings.Fields(kernelsOf(&p.Plan.Phases[i])) {
			require.NotRegexp(t, "^(attention|cache|.*kv_write)", kernel)
			if strings.HasPrefix(kernel, "paged_attention") || strings.HasPrefix(kernel, "reshape_and_cache") {
				found = append(found, kernel)
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// TestXSplit runs mixtures over caches of vLLM's layout with that layout's kernels: logits
// are those of the interpreter, whose caches have ours, of trained models and of one whose
// attention has a window, a cap, sinks and slopes.
func TestXSplit(t *testing.T) {
	everything := featured{window: 9, softCap: 2, sinks: true, slopes: true, rope: true, headNorms: true, activation: ir.GELU}
	for _, name := range append(slices.Clone(fixture.Trained), "everything") {
		for act, bound := range map[dtype.Type]float64{dtype.F32: 1e-4, dtype.F16: fixture.Bounds["emu"]} {
			t.Run(name+"/"+act.String(), func(t *testing.T) {
				if testing.Short() || act == dtype.F32 && name != "everything" && !testfiles.Full("models") {
					t.Skip("it takes seconds")
				}
				m := newMixture(rand.New(rand.NewPCG(2, 11)), 6, featuredVocab, 8, 16, 32)
				if !testfiles.Full("models") {
					m.steps = m.steps[:min(len(m.steps), 7)]
				}
				model, weights := everything.model()
				data := weights.Data
				if name != "everything" {
					var err error
					model, err = smelt.Open(testfiles.Model(t, name+"/gguf/"+name+"-F16.gguf"), "")
					require.NoError(t, err)
					data = model.File().Data
				}
				defer model.Close()
				normal, err := model.Compile(smelt.Options{Target: "cpu", Level: 1, Block: m.block, Context: m.context, Sequences: len(m.ids), Prefill: mixedPrefill})
				require.NoError(t, err)
				p, err := model.Compile(xsplitOptions(t, act, m.block, m.context, len(m.ids), mixedPrefill))
				require.NoError(t, err)
				require.Equal(t, []string{"paged_attention_v1_" + act.String(), "reshape_and_cache_" + act.String()}, xsplitKernels(t, p))
				l, err := p.Load(smelt.Device{Name: "emu", Threads: 2})
				require.NoError(t, err)
				defer l.Close()
				alone := byInterpreterOf(normal, data, len(batch.Contiguous(m.block, m.context)))
				c, err := m.compare(alone, onDevice(t, l, m.blocks), bound, nil)
				require.NoError(t, err)
				t.Logf("%d rows at most %.2g off", c.close, c.largest)
				require.Greater(t, c.close, 20)

				_, err = m.compare(alone, onDevice(t, l, m.blocks), bound, func(s *batch.Step) {
					s.Inputs[sym.BlockTable][0] = s.Inputs[sym.BlockTable][len(s.Inputs[sym.BlockTable])-1]
				})
				require.Error(t, err, "a block of another sequence is noticed")
			})
		}
	}
}

// TestXSplitPartitions: over long contexts the layout's attention is in partitions.
func TestXSplitPartitions(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a model on the emulator")
	}
	const context = 1100
	model, weights := featured{softCap: 3, sinks: true, slopes: true, activation: ir.SiLU}.model()
	defer model.Close()
	normal, err := model.Compile(smelt.Options{Target: "cpu", Level: 1, Block: 16, Context: context})
	require.NoError(t, err)
	p, err := model.Compile(xsplitOptions(t, dtype.F32, 16, context, 1, 0))
	require.NoError(t, err)
	require.Equal(t, []string{"paged_attention_reduce_f32", "paged_attention_v1_f32", "paged_attention_v2_f32", "reshape_and_cache_f32"}, xsplitKernels(t, p))
	l, err := p.Load(smelt.Device{Name: "emu", Threads: 2})
	require.NoError(t, err)
	defer l.Close()
	blocks := batch.Contiguous(16, context)
	r := rand.New(rand.NewPCG(1, 1))
	ids := make([]int32, context)
	for i := range ids {
		ids[i] = int32(r.IntN(featuredVocab))
	}
	device, interpreter := onDevice(t, l, len(blocks)), byInterpreterOf(normal, weights.Data, len(blocks))
	for start, n := 0, 512; start < 1027; start += n {
		if start >= 1024 { // decode
			n = 1
		}
		piece := batch.Piece{Tokens: ids[start : start+n], Start: start, Blocks: blocks}
		want, _, err := interpreter(nil, piece)
		require.NoError(t, err)
		got, kernels, err := device(nil, piece)
		require.NoError(t, err)
		require.Contains(t, kernels, "paged_attention_reduce_f32")
		for i := range want[0] {
			require.InDelta(t, want[0][i], got[0][i], 1e-4, "token %d", start)
		}
	}
}

// TestXSplitRefuses: what the layout's kernels do not take is an error that says so.
func TestXSplitRefuses(t *testing.T) {
	model, _ := featured{}.model()
	for want, change := range map[string]func(*smelt.Options){
		"caches of the activations' type: f32 beside f16": func(o *smelt.Options) { o.KV = dtype.F32 },
		"blocks of 8, 16 or 32 slots, not 64":             func(o *smelt.Options) { o.Block = 64 },
		"-O 1":                                            func(o *smelt.Options) { o.Level = smelt.Unoptimised },
	} {
		o := xsplitOptions(t, dtype.F16, 0, 64, 1, 0)
		change(&o)
		_, err := model.Compile(o)
		require.ErrorContains(t, err, want)
	}
	p, err := model.Compile(xsplitOptions(t, dtype.F16, 0, 64, 1, 0))
	require.NoError(t, err)
	require.Equal(t, 16, p.Plan.Block())
}
