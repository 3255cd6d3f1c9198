package ir_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/ir/sym"
)

// sizes are what the symbols stand for in tests: numbers without a common factor.
var sizes = sym.Sizes{sym.T: 7, sym.B: 3, sym.R: 5, sym.NB: 11, sym.Smax: 13}

func TestDim(t *testing.T) {
	times := func(a, b ir.Dim) ir.Dim {
		d, ok := a.Times(b)
		require.True(t, ok)
		return d
	}
	for _, c := range []struct {
		d    ir.Dim
		text string
		n    int64
	}{
		{ir.Const(2048), "2048", 2048},
		{ir.Var(sym.T), "T", 7},
		{ir.Var(sym.B).Plus(1), "B+1", 4},
		{ir.Var(sym.NB).Plus(-2), "NB-2", 9},
		{times(ir.Const(8), ir.Var(sym.T)), "8*T", 56},
		{times(ir.Var(sym.Smax), ir.Var(sym.B)), "B*Smax", 39},
		{times(ir.Var(sym.T), ir.Var(sym.T)), "T*T", 49},
		{times(ir.Var(sym.B).Plus(1), ir.Const(4)), "4*B+4", 16},
		{times(ir.Var(sym.R), ir.Const(0)), "0", 0},
		{times(ir.Const(6), ir.Const(7)), "42", 42},
	} {
		require.Equal(t, c.text, c.d.String())
		require.Equal(t, c.n, c.d.Eval(&sizes), c.text)
		parsed, err := ir.ParseDim(c.text)
		require.NoError(t, err)
		require.Equal(t, c.d, parsed)
	}
}

func TestDimTimesRefuses(t *testing.T) {
	cubed := ir.Var(sym.T)
	for range 2 {
		cubed, _ = cubed.Times(ir.Var(sym.T))
	}
	for name, pair := range map[string][2]ir.Dim{
		"a sum by a symbol":  {ir.Var(sym.B).Plus(1), ir.Var(sym.T)},
		"a symbol by a sum":  {ir.Var(sym.T), ir.Var(sym.B).Plus(1)},
		"too large":          {ir.Const(1 << 40), ir.Const(1 << 40)},
		"too large a factor": {ir.Const(1 << 62), ir.Var(sym.T)},
		"too high a power":   {cubed, ir.Var(sym.T)},
	} {
		_, ok := pair[0].Times(pair[1])
		require.False(t, ok, name)
	}
}

func TestParseDimRefuses(t *testing.T) {
	for _, text := range []string{"", "*", "T*", "*T", "X", "T+", "T+x", "-T", "T+0", "T*T*T*T", "1.5", "T T",
		"99999999999999999999", "999999999999999*999999999999999", "T+999999999999999999", "B+1*T", "T+1+1", strings.Repeat("T*", 300) + "T"} {
		_, err := ir.ParseDim(text)
		require.Error(t, err, text)
	}
}

// TestDimProducts checks the algebra on random extents: evaluation commutes with
// multiplication, and the text form with parsing.
func TestDimProducts(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	random := func() ir.Dim {
		d := ir.Const(1 + rng.IntN(9))
		for range rng.IntN(3) {
			d, _ = d.Times(ir.Var(sym.Sym(rng.IntN(sym.Count))))
		}
		if rng.IntN(4) == 0 {
			d = d.Plus(int64(rng.IntN(5)))
		}
		return d
	}
	products := 0
	for range 2000 {
		a, b := random(), random()
		back, err := ir.ParseDim(a.String())
		require.NoError(t, err, a)
		require.Equal(t, a, back)
		ab, ok := a.Times(b)
		ba, ok2 := b.Times(a)
		require.Equal(t, ok, ok2)
		if ok {
			products++
			require.Equal(t, ab, ba)
			require.Equal(t, a.Eval(&sizes)*b.Eval(&sizes), ab.Eval(&sizes), "%s by %s", a, b)
		}
	}
	require.Greater(t, products, 1000)
}

func TestShape(t *testing.T) {
	s := ir.Shape{ir.Var(sym.T), ir.Const(8), ir.Const(64)}
	require.Equal(t, "[T,8,64]", s.String())
	require.Equal(t, int64(64), s.Last())
	require.Zero(t, ir.Shape{ir.Var(sym.T)}.Last())
	require.Zero(t, ir.Shape{}.Last())
	rows, ok := s.Rows()
	require.True(t, ok)
	require.Equal(t, "8*T", rows.String())
	_, ok = ir.Shape{}.Rows()
	require.False(t, ok)
	require.Equal(t, int64(7*8*64*2), ir.TensorOf(dtype.F16, s...).Bytes(&sizes))
	require.Equal(t, int64(7*8*64/32*18), ir.TensorOf(dtype.Q4_0, s...).Bytes(&sizes))
}
