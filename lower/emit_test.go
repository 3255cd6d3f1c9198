package lower

import (
	"maps"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/sym"
	"github.com/smelt-ml/smelt/lower/plan"
)

// A name that the kernel lacks, and a missing argument or parameter, is an error rather than an
// incomplete Plan.
func TestEmitterKnowsNames(t *testing.T) {
	x := &ir.Value{Op: ir.OpAdd, Layer: ir.NoLayer}
	given := elements(ir.Var(sym.T), ir.Const(64))
	without := func(name string) words {
		w := maps.Clone(given)
		delete(w, name)
		return w
	}
	for want, emit := range map[string]func(e emitter){
		"":                                   func(e emitter) { e.params(given); e.cover() },
		`has no argument "c"`:                func(e emitter) { e.bind("c", place{slot: -1}, plan.Binding{}) },
		`has no function constant "fc_c"`:    func(e emitter) { e.constant("fc_c", 1) },
		`has no parameter "c"`:               func(e emitter) { w := maps.Clone(given); w["c"] = one(); e.params(w) },
		`is not given its parameter "width"`: func(e emitter) { e.params(without("width")) },
	} {
		p := &phase{tables: &tables{plan: &plan.Plan{}}}
		emit(p.dispatch("add_f32", x))
		if want == "" {
			require.NoError(t, p.err)
			require.Equal(t, [3]plan.Expr{plan.Number(1), Extent(ir.Var(sym.T)), plan.Number(1)}, p.out.Dispatches[0].Grid)
			require.Equal(t, [3]uint32{256, 1, 1}, p.out.Dispatches[0].Group)
			continue
		}
		require.ErrorContains(t, p.err, "kernel add_f32 "+want)
	}

	p := &phase{tables: &tables{plan: &plan.Plan{}}}
	p.dispatch("add_f8", x).constant("fc_c", 1)
	require.ErrorIs(t, p.err, ErrUnsupported)
	require.ErrorContains(t, p.err, "add_f8")

	p = &phase{tables: &tables{plan: &plan.Plan{}}}
	p.dispatch("repeat_kv_f32", x).cover()
	require.ErrorContains(t, p.err, "repeat_kv_f32")
}

// Expr.Over and Multiply give the same expressions as CeilDiv and Dim.Times.
func TestExtentArithmetic(t *testing.T) {
	tokens, seqs := ir.Var(sym.T), ir.Var(sym.B)
	require.Equal(t, CeilDiv(tokens, 32), Extent(tokens).Over(32))
	require.Equal(t, plan.Number(3), plan.Number(65).Over(32))
	require.Equal(t, Extent(tokens), Extent(tokens).Over(1))
	product, ok := tokens.Times(seqs)
	require.True(t, ok)
	for _, c := range []struct{ a, b, want plan.Expr }{
		{plan.Number(3), plan.Number(4), plan.Number(12)},
		{plan.Number(1), Extent(tokens), Extent(tokens)},
		{Extent(tokens), plan.Number(4), Extent(tokens).Times(4)},
		{Extent(tokens), Extent(seqs), Extent(product)},
	} {
		got, err := plan.Multiply(c.a, c.b)
		require.NoError(t, err)
		require.Equal(t, c.want, got)
	}
	for _, bad := range []plan.Expr{Extent(tokens).Over(2), Extent(tokens).Plus(Extent(seqs)), Extent(tokens).Plus(plan.Number(1))} {
		_, err := plan.Multiply(Extent(tokens), bad)
		require.ErrorContains(t, err, "no simple size", "%s", bad)
	}
}
