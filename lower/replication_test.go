package lower

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/ir/sym"
	"github.com/smelt-ml/smelt/lower/plan"
	"github.com/smelt-ml/smelt/lower/predict"
	"github.com/smelt-ml/smelt/passes"
)

// TestSavingsOfElimination predicts attention of one token over 2,048 keys, 32 query
// heads over 2 KV heads of 128 elements: with an index map, with copies that the same
// attention kernel reads, and as the source stage has it, copies and scores in memory.
// With -v it prints the table.
func TestSavingsOfElimination(t *testing.T) {
	const heads, kv, head, keys = 32, 2, 128, 2048
	attention := func(kv int, off ...string) *plan.Plan {
		f, err := ir.Build("attention", anyWeights{}, ir.Options{Block: keys, KV: dtype.F16}, func(b *ir.Builder) {
			b.Layer(0, func() {
				q := b.SplitHeads(b.Embed(b.Input(sym.Tokens), b.Weight("embd", 16, heads*head)), heads)
				k, v := b.CacheRead(b.Cache(kv, head))
				byHead := [3]int{1, 0, 2}
				k, v = b.Transpose(b.RepeatKV(k, heads/kv), byHead), b.Transpose(b.RepeatKV(v, heads/kv), byHead)
				scores := b.Scale(b.MatmulT(b.Transpose(q, byHead), k), 0.1)
				b.Return("out", b.MergeHeads(b.Transpose(b.Matmul(b.Softmax(b.Mask(scores)), v), byHead)))
			})
		})
		require.NoError(t, err)
		target, err := NewTarget("metal")
		require.NoError(t, err)
		_, err = passes.Compile(f, &target.Target, ir.StepsOf(1), passes.Options{Level: 1, Disabled: off})
		require.NoError(t, err)
		plan, err := Lower("attention", []Range{{Name: "decode", Func: f, MinT: 1, MaxT: 1}}, target, Options{Context: keys})
		require.NoError(t, err)
		return plan
	}
	bytes := func(n int64) plan.Expr { return plan.Number(n) }
	const small, large = 2 * keys * kv * head, 2 * keys * heads * head
	copying := &plan.Plan{Buffers: []plan.Buffer{{Kind: plan.Arena}}, Phases: []plan.Phase{{Bounds: sym.Sizes{sym.T: 1, sym.B: 1, sym.R: 1, sym.NB: 1, sym.Smax: keys}, CommandBuffers: []int{0},
		Dispatches: []plan.Dispatch{{
			Kernel: "repeat_kv_pair_f16", Params: []plan.Expr{plan.Number(keys), plan.Number(kv), plan.Number(head), plan.Number(heads / kv)},
			Grid: [3]plan.Expr{plan.Number(keys * heads * head / 256), one(), one()}, Group: [3]uint32{256, 1, 1},
			Bindings: []plan.Binding{
				{Index: 0, Bytes: bytes(small), Read: true}, {Index: 1, Offset: small, Bytes: bytes(small), Read: true},
				{Index: 2, Offset: 2 * small, Bytes: bytes(large), Write: true}, {Index: 3, Offset: 2*small + large, Bytes: bytes(large), Write: true},
			},
		}}}}}
	mapped, copied, source := attention(kv), attention(heads), attention(kv, "kv_replication_elimination")
	require.Equal(t, 1, count(source, "repeat_kv_pair_f32"))
	require.Zero(t, count(mapped, "repeat_kv_pair_f32"))

	for _, name := range []string{"m1", "m4-max"} {
		chip, err := predict.FindChip(name)
		require.NoError(t, err)
		// predict returns the bytes moved and the µs that the GPU takes.
		prediction := func(p *plan.Plan) (predict.Cost, float64) {
			timeline, err := predict.Simulate(p, &p.Phases[0], &sym.Sizes{sym.T: 1, sym.B: 1, sym.R: 1, sym.NB: 1, sym.Smax: keys}, chip)
			require.NoError(t, err)
			last := timeline.Buffers[len(timeline.Buffers)-1]
			return timeline.Cost, last.End - timeline.Buffers[0].Start
		}
		mappedCost, mappedTime := prediction(mapped)
		copyCost, copyTime := prediction(copying)
		copiedCost, copiedTime := prediction(copied)
		sourceCost, sourceTime := prediction(source)
		t.Logf("%-7s map %5.1f MB %6.1f µs; copies %5.1f MB %6.1f µs, read %5.1f MB %6.1f µs; source %5.1f MB %6.1f µs", name,
			mb(mappedCost), mappedTime, mb(copyCost), copyTime, mb(copiedCost), copiedTime, mb(sourceCost), sourceTime)

		require.Equal(t, predict.Cost{Read: 2 * small, Written: 2 * large}, copyCost)
		require.Equal(t, int64(2*(1+heads/kv)*keys*kv*head*2), copyCost.Bytes(), "as ROCmForge's design counts")
		require.Equal(t, int64(2*(large-small)), copiedCost.Read-mappedCost.Read)
		require.Greater(t, copyTime+copiedTime, 5*mappedTime)
		require.Greater(t, sourceTime, copyTime+copiedTime)
	}
}

func mb(c predict.Cost) float64 { return float64(c.Bytes()) / 1e6 }

func count(p *plan.Plan, kernel string) (n int) {
	for i := range p.Phases[0].Dispatches {
		if p.Phases[0].Dispatches[i].Kernel == kernel {
			n++
		}
	}
	return n
}
