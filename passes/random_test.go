package passes_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/ir/sym"
	"github.com/smelt-ml/smelt/passes"
)

// scribble writes a graph without sense: ops on whatever fits, few widths so that
// much does, and any of it returned.
func scribble(r *rand.Rand, n int) *ir.Func {
	f := ir.NewFunc("scribble", ir.Fused)
	input := func(name string, shape ...ir.Dim) *ir.Value {
		return f.Append(ir.OpInput, ir.TensorOf(dtype.I32, shape...), ir.NameAttr{Name: name}, ir.NoLayer)
	}
	weight := func(shape ...ir.Dim) *ir.Value {
		return f.Append(ir.OpWeight, ir.TensorOf(dtype.F32, shape...), ir.NameAttr{Name: fmt.Sprint("w", len(f.Values))}, ir.NoLayer)
	}
	T := ir.Var(sym.T)
	tokens, positions, slots := input(sym.Tokens, T), input(sym.Positions, T), input(sym.Slots, T)
	lens, table := input(sym.ContextLens, ir.Var(sym.B)), input(sym.BlockTable, ir.Var(sym.B), ir.Var(sym.NB))
	starts := input(sym.CuSeqlens, ir.Var(sym.B).Plus(1))

	widths := []int{8, 8, 16, 24, 4}
	width := func() ir.Dim { return ir.Const(widths[r.IntN(len(widths))]) }
	pool := []*ir.Value{f.Append(ir.OpEmbed, ir.TensorOf(dtype.F32, T, ir.Const(8)), nil, ir.NoLayer, tokens, weight(ir.Const(7), ir.Const(8)))}
	pick := func() *ir.Value { return pool[max(r.IntN(len(pool)), r.IntN(len(pool)))] } // rather a late one
	cache := f.Append(ir.OpCache, ir.StateOf(ir.Cache{DType: dtype.F32, KVHeads: 2, Head: 4, Block: blockSlots}), ir.CacheAttr{}, 0)
	readable := true // the version has not been read, so that it may be replaced

	for range n {
		x, y := pick(), pick()
		last := x.Type.Shape[len(x.Type.Shape)-1]
		columns := int(x.Type.Shape.Last())
		axes := [][3]int{{0, 1, 2}, {1, 0, 2}, {1, 0, 2}, {0, 2, 1}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}}[r.IntN(7)]
		rope := rotation(min(max(columns&^1, 2), 4), false)
		try := func(op ir.Op, attr any, args ...*ir.Value) *ir.Value {
			v, err := f.Emit(op, attr, ir.NoLayer, args...)
			if err == nil && v.Type.Kind == ir.Tensor {
				pool = append(pool, v)
			}
			return v
		}
		act := ir.Activation(r.IntN(len(ir.Activations())))
		what := r.IntN(24)
		if columns == 0 { // the innermost axis is T: no weight has that
			what = 3 + r.IntN(6)
		}
		switch what {
		case 0, 1, 2:
			n := width()
			try(ir.OpLinear, nil, append([]*ir.Value{x, weight(n, last)}, []*ir.Value{weight(n)}[:r.IntN(2)]...)...)
		case 3:
			try(ir.OpActivate, ir.ActivationAttr{Activation: act}, x)
		case 4, 5:
			try(ir.OpMul, nil, x, y)
		case 6, 7:
			try(ir.OpAdd, nil, x, y)
		case 8:
			try([]ir.Op{ir.OpScale, ir.OpSoftCap}[r.IntN(2)], ir.ScaleAttr{Value: r.Float64()}, x)
		case 9:
			try(ir.OpRMSNorm, ir.NormAttr{Eps: 1e-3}, x, weight(last))
		case 10:
			if rows, ok := x.Type.Shape.Rows(); ok && columns%2 == 0 {
				f.Append(ir.OpReshape, ir.TensorOf(dtype.F32, rows, ir.Const(2), ir.Const(columns/2)), nil, ir.NoLayer, x)
				pool = append(pool, f.Values[len(f.Values)-1])
			}
		case 11:
			if n, ok := x.Type.Shape[1:].Elements(); ok {
				f.Append(ir.OpReshape, ir.TensorOf(dtype.F32, x.Type.Shape[0], n), nil, ir.NoLayer, x)
				pool = append(pool, f.Values[len(f.Values)-1])
			}
		case 12:
			try(ir.OpTranspose, ir.TransposeAttr{A: axes[0], B: axes[1], C: axes[2]}, x)
		case 13:
			if columns > 1 {
				start := r.IntN(columns / 2)
				try(ir.OpSlice, ir.SliceAttr{Start: start, End: start + columns/2}, x)
			}
		case 14:
			try(ir.OpConcat, nil, x, y)
		case 15:
			try(ir.OpRope, rope, x, positions)
		case 16:
			try(ir.OpGate, ir.ActivationAttr{Activation: act}, x, y)
		case 17:
			a := ir.LinearAttr{Weights: 1 + r.IntN(3), Bias: r.IntN(4) == 0, Residual: r.IntN(4) == 0}
			if r.IntN(3) == 0 {
				a.Activation, a.Gated = act, r.IntN(2) == 0
			}
			o := ir.LinearOperands{X: x}
			for range a.Weights {
				n := width()
				o.Weights = append(o.Weights, weight(n, last))
				if a.Bias {
					o.Biases = append(o.Biases, weight(n))
				}
			}
			switch r.IntN(8) {
			case 0:
				a.Norm, a.Gain, o.Gain = ir.RMSNorm, true, weight(last)
			case 1:
				a.Norm = ir.LayerNorm
				if a.Gain = r.IntN(2) == 0; a.Gain {
					o.Gain = weight(last)
				}
				if a.Shift = a.Gain && r.IntN(2) == 0; a.Shift {
					o.Shift = weight(last)
				}
			}
			if a.Residual {
				o.Residual = y
			}
			try(ir.OpFusedLinear, a, o.List()...)
		case 21:
			try(ir.OpActivate, ir.ActivationAttr{Activation: ir.GELU}, x)
		case 22:
			try(ir.OpLayerNorm, ir.NormAttr{Eps: 1e-3}, append([]*ir.Value{x}, []*ir.Value{weight(last), weight(last)}[:r.IntN(3)]...)...)
		case 23:
			if v := try(ir.OpRouter, ir.RouterAttr{Chosen: 1 + r.IntN(8), Score: ir.RouterScores()[r.IntN(4)], Normalised: r.IntN(2) == 0}, x); v != nil {
				try(ir.OpSelect, ir.SelectAttr{}, v)
			}
		case 20:
			n := width()
			gate, up := try(ir.OpLinear, nil, x, weight(n, last)), try(ir.OpLinear, nil, x, weight(n, last))
			if a := try(ir.OpActivate, ir.ActivationAttr{Activation: ir.SiLU}, gate); r.IntN(2) == 0 {
				try(ir.OpMul, nil, up, a)
			}
		case 18:
			if v := try(ir.OpCacheWrite, nil, cache, x, y, slots); v != nil && readable {
				cache = v
			} else if v != nil {
				f.Values = f.Values[:len(f.Values)-1]
			}
		case 19:
			if r.IntN(3) == 0 {
				args := []*ir.Value{x, cache, positions, starts, lens, table}
				slopes := false
				if s := x.Type.Shape; r.IntN(2) == 0 && len(s) == 3 {
					if _, ok := s[1].IsConst(); ok { // sinks, slopes or both
						args = append(args, weight(s[1]))
						if slopes = r.IntN(2) == 0; slopes && r.IntN(2) == 0 {
							args = append(args, weight(s[1]))
						}
					}
				}
				try(ir.OpAttention, ir.AttentionAttr{Scale: 0.5, Window: r.IntN(4), SoftCap: float64(r.IntN(2)), Slopes: slopes}, args...)
				readable = readable && f.Values[len(f.Values)-1].Op != ir.OpAttention
			}
		}
	}
	f.Results = append(f.Results, ir.Result{Name: "cache.0", Value: cache})
	for i := range 1 + r.IntN(4) {
		f.Results = append(f.Results, ir.Result{Name: fmt.Sprint("r", i), Value: pick()})
	}
	rows := input(sym.LogitRows, ir.Var(sym.R))
	if x := pick(); x.Type.Shape[0] == T && len(x.Type.Shape) == 2 && r.IntN(2) == 0 {
		f.Results = append(f.Results[:1], ir.Result{Name: "rows", Value: f.Append(ir.OpGatherRows, ir.TensorOf(dtype.F32, ir.Var(sym.R), x.Type.Shape[1]), nil, ir.NoLayer, x, rows)})
	}
	return f
}

// TestScribbles compiles graphs without sense for targets of all kinds. Nothing may
// break, and results stay.
func TestScribbles(t *testing.T) {
	total := make(map[string]int)
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 8))
		f := scribble(r, 10+r.IntN(60))
		require.NoError(t, f.Verify())
		in := steps(7)[:1]
		want := execute(t, f, in)
		tgt, step := target(t, dtype.F16), decoding
		if seed%3 == 0 {
			tgt = sourceTarget(t, dtype.F16)
		}
		if seed%2 == 0 {
			step.Tokens = 512
		}
		g := shuffled(f, r)
		report, err := passes.Compile(g, tgt, step, passes.Options{Level: 1, Observer: func(pass string, _ *ir.Func) {
			requireSame(t, want, execute(t, g, in), func() string { return pass + "\n" + g.String() })
		}})
		require.NoError(t, err, "seed %d\n%s", seed, f)
		requireKernels(t, g)
		for _, row := range report.Rows {
			total[row.Name] += row.Changes
		}
	}
	for _, name := range []string{"views", "wanted_rows", "gated_activation", "gate_up", "linear_activation", "linear_residual", "norm_prologue", "narrow", "legalise"} {
		require.Positive(t, total[name], name)
	}
}

// TestChangesAreCounted runs the passes one by one: the graph is verified only after those
// that counted a change, so what counts none leaves it as it was.
func TestChangesAreCounted(t *testing.T) {
	idle := make(map[string]int)
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 11))
		f := scribble(r, 10+r.IntN(60))
		tgt, step := target(t, dtype.F16), []ir.Steps{decoding, prompts}[seed%2]
		f.Stage = ir.Fused
		for _, p := range passes.Passes() {
			before := f.String()
			n, err := passes.RunOne(p.Name, f, tgt, step)
			require.NoError(t, err)
			require.NoError(t, f.Verify())
			if n == 0 {
				require.Equal(t, before, f.String(), p.Name)
				idle[p.Name]++
			}
		}
	}
	for _, name := range []string{"views", "cse", "rope_tables", "wanted_rows", "gate_up", "late_dead_code", "legalise"} {
		require.Positive(t, idle[name], name)
	}
}
