package lower

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/fusion"
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/ir/sym"
	"github.com/smelt-ml/smelt/kernels"
	"github.com/smelt-ml/smelt/lower/plan"
)

type anyWeights struct{}

func (anyWeights) Weight(_ string, want []int) (dtype.Type, []int, bool) {
	return dtype.F16, want, true
}

// layer returns one transformer layer at the source stage.
func layer(b *ir.Builder) {
	const heads, kv, head = 4, 2, 8
	x := b.Embed(b.Input(sym.Tokens), b.Weight("embd", 16, 32))
	b.Layer(0, func() {
		rope := ir.RopeAttr{Rotated: head, Theta: 1e4, FreqScale: 1, Magnitude: 1}
		n := b.RMSNorm(x, b.Weight("norm", 32), 1e-6)
		q := b.Rope(b.SplitHeads(b.Linear(n, b.Weight("q", 32, 32)), heads), rope, nil)
		k := b.Rope(b.SplitHeads(b.Linear(n, b.Weight("k", 16, 32)), kv), rope, b.Const([]float32{1, 2, 3, 4}))
		v := b.SplitHeads(b.Linear(n, b.Weight("v", 16, 32)), kv)
		keys, values := b.CacheRead(b.CacheWrite(b.Cache(kv, head), k, v))
		byHead := [3]int{1, 0, 2}
		keys = b.Transpose(b.RepeatKV(keys, heads/kv), byHead)
		values = b.Transpose(b.RepeatKV(values, heads/kv), byHead)
		scores := b.Scale(b.MatmulT(b.Transpose(q, byHead), keys), 0.5)
		out := b.Matmul(b.Softmax(b.Mask(scores)), values)
		x = b.Add(x, b.Linear(b.MergeHeads(b.Transpose(out, byHead)), b.Weight("o", 32, 32)))
	})
	b.Return("logits", b.Linear(b.GatherRows(x), b.Weight("head", 16, 32)))
}

func lowered(t testing.TB) *plan.Plan {
	f, err := ir.Build("tiny", anyWeights{}, ir.Options{Block: 64, KV: dtype.F32}, layer)
	require.NoError(t, err)
	target, err := NewTarget("cpu")
	require.NoError(t, err)
	plan, err := Lower("tiny", []Range{
		{Name: "prefill", Func: f, MinT: 2, MaxT: 64},
		{Name: "decode", Func: f, MinT: 1, MaxT: 1},
	}, target, Options{Context: 64})
	require.NoError(t, err)
	return plan
}

// TestRotations checks where the rotary kernels get their frequencies, and that heads too large for
// a fused write are not lowered to one.
func TestRotations(t *testing.T) {
	const width = 32
	build := func(head int, theta float64, factors bool) (*ir.Func, error) {
		return ir.Build("rope", anyWeights{}, ir.Options{Block: 64, KV: dtype.F16}, func(b *ir.Builder) {
			var f *ir.Value
			if factors {
				f = b.Const(make([]float32, head/2))
			}
			x := b.Embed(b.Input(sym.Tokens), b.Weight("embd", 16, width))
			rope := ir.RopeAttr{Rotated: head, Theta: theta, FreqScale: 1, Magnitude: 1}
			b.Layer(0, func() {
				project := func(name string) *ir.Value { return b.SplitHeads(b.Linear(x, b.Weight(name, head, width)), 1) }
				cache := b.CacheWrite(b.Cache(1, head), b.Rope(project("k"), rope, f), project("v"))
				keys, _ := b.CacheRead(cache)
				b.Return("k", b.MergeHeads(keys))
			})
			b.Return("q", b.Scale(b.MergeHeads(b.Rope(b.SplitHeads(b.Linear(x, b.Weight("q", head, width)), 1), rope, f)), 2))
		})
	}
	target, err := NewTarget("metal")
	require.NoError(t, err)
	lower := func(f *ir.Func) (*plan.Plan, error) {
		return Lower("rope", []Range{{Name: "decode", Func: f, MinT: 1, MaxT: 1}}, target, Options{Context: 64})
	}
	for _, c := range []struct {
		theta          float64
		given          bool
		factors, table uint32
	}{{1e4, false, 0, 0}, {1e4, true, 1, 0}, {1, true, 0, 1}, {1, false, 0, 0}} {
		for _, fused := range []bool{false, true} {
			f, err := build(64, c.theta, c.given)
			require.NoError(t, err)
			f.Stage = ir.Fused
			if fused {
				n, err := fusion.Apply(f, fusion.RopeQKVWrite())
				require.NoError(t, err)
				require.Equal(t, []int{1}, n)
			}
			compiled, err := lower(f)
			require.NoError(t, err)
			found := 0
			for _, d := range compiled.Phases[0].Dispatches {
				if k, ok := kernels.Lookup(d.Kernel); ok && strings.HasPrefix(k.Family, "rope") {
					found++
					for name, bits := range map[string]uint32{"fc_interleaved": 0, "fc_factors": c.factors, "fc_table": c.table} {
						constant, ok := k.Constant(name)
						require.True(t, ok, name)
						require.Contains(t, d.Constants, plan.Constant{Index: uint32(constant.Index), Bits: bits}, "%+v", c)
					}
				}
			}
			require.Equal(t, map[bool]int{false: 2, true: 1}[fused], found)
		}
	}

	f, err := build(520, 1e4, false)
	require.NoError(t, err)
	f.Stage = ir.Fused
	_, err = fusion.Apply(f, fusion.RopeQKVWrite())
	require.NoError(t, err)
	_, err = lower(f)
	require.ErrorContains(t, err, "heads of 520 elements; the fused writes take multiples of 8 up to 512")
}

func TestSameBytes(t *testing.T) {
	var a, b bytes.Buffer
	require.NoError(t, (&plan.File{Plan: lowered(t)}).Write(&a))
	require.NoError(t, (&plan.File{Plan: lowered(t)}).Write(&b))
	require.Equal(t, a.Bytes(), b.Bytes())
	f, err := plan.Read(&a)
	require.NoError(t, err)
	var c bytes.Buffer
	require.NoError(t, f.Write(&c))
	require.Equal(t, b.Bytes(), c.Bytes())
}

// TestArenaNeverShared checks that no two slots that live at the same time overlap.
func TestArenaPlan(t *testing.T) {
	for _, p := range lowered(t).Phases {
		require.LessOrEqual(t, p.MinArenaBytes, p.ArenaBytes)
		require.LessOrEqual(t, p.ArenaBytes, p.UnplannedBytes)
		require.LessOrEqual(t, float64(p.ArenaBytes), 1.1*float64(p.MinArenaBytes), p.Name)
	}
}
