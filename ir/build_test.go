package ir_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/ir"
)

// anyWeights holds every tensor that is asked for, as F32.
type anyWeights struct{}

func (anyWeights) Weight(_ string, want []int) (ir.DType, []int, bool) { return ir.F32, want, true }

// layer builds one transformer layer's attention as a paper would write it.
func layer(b *ir.Builder) {
	const heads, kv, head = 4, 2, 8
	x := b.Embed(b.Input(ir.Tokens), b.Weight("embd", 16, 32))
	b.Layer(0, func() {
		rope := ir.RopeAttr{Rotated: head, Theta: 1e4, FreqScale: 1, Magnitude: 1}
		q := b.Rope(b.SplitHeads(b.Linear(x, b.Weight("q", 32, 32)), heads), rope, nil)
		k := b.Rope(b.SplitHeads(b.Linear(x, b.Weight("k", 16, 32)), kv), rope, b.Const([]float32{1, 2, 3, 4}))
		v := b.SplitHeads(b.Linear(x, b.Weight("v", 16, 32)), kv)
		keys, values := b.CacheRead(b.CacheWrite(b.Cache(kv, head), k, v))
		heads0 := [3]int{1, 0, 2}
		keys = b.Transpose(b.RepeatKV(keys, heads/kv), heads0)
		values = b.Transpose(b.RepeatKV(values, heads/kv), heads0)
		scores := b.Scale(b.MatmulT(b.Transpose(q, heads0), keys), 0.5)
		out := b.Matmul(b.Softmax(b.Mask(scores)), values)
		x = b.Add(x, b.MergeHeads(b.Transpose(out, heads0)))
	})
	b.Return("logits", b.GatherRows(x))
}

func TestTextRoundTrip(t *testing.T) {
	f, err := ir.Build("tiny", anyWeights{}, ir.Options{Block: 64}, layer)
	require.NoError(t, err)
	g, err := ir.Parse(f.String())
	require.NoError(t, err, f.String())
	require.Equal(t, f.String(), g.String())
}
