package passes_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/batch"
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/ir/sym"
)

// TestKeepsRows computes what ops make of embeddings for five tokens at once and for each by
// itself.
func TestKeepsRows(t *testing.T) {
	const width, experts = 8, 3
	type graph struct {
		*ir.Func
		x, y *ir.Value // [T, width]
	}
	weight := func(g graph, shape ...int) *ir.Value {
		dims := make([]ir.Dim, len(shape))
		for i, n := range shape {
			dims[i] = ir.Const(n)
		}
		return g.Append(ir.OpWeight, ir.TensorOf(dtype.F32, dims...), ir.NameAttr{Name: fmt.Sprint("w", len(g.Values))}, ir.NoLayer)
	}
	emit := func(g graph, op ir.Op, attr any, args ...*ir.Value) *ir.Value {
		v, err := g.Emit(op, attr, ir.NoLayer, args...)
		require.NoError(t, err)
		return v
	}
	given := func(g graph, op ir.Op, typ ir.Type) *ir.Value { return g.Append(op, typ, nil, ir.NoLayer, g.x) }
	chosen := func(g graph, part int) *ir.Value {
		both := emit(g, ir.OpRouter, ir.RouterAttr{Score: ir.SoftmaxScore, Chosen: 2}, emit(g, ir.OpLinear, nil, g.x, weight(g, experts, width)))
		return emit(g, ir.OpSelect, ir.SelectAttr{Index: part}, both)
	}
	expertLinear := func(g graph) *ir.Value {
		return emit(g, ir.OpExpertLinear, nil, g.x, weight(g, experts, 4, width), chosen(g, 1))
	}
	unary := func(op ir.Op, attr any) func(g graph) *ir.Value {
		return func(g graph) *ir.Value { return emit(g, op, attr, g.x) }
	}
	binary := func(op ir.Op, attr any) func(g graph) *ir.Value {
		return func(g graph) *ir.Value { return emit(g, op, attr, g.x, g.y) }
	}
	weighted := func(op ir.Op, attr any, shape ...int) func(g graph) *ir.Value {
		return func(g graph) *ir.Value { return emit(g, op, attr, g.x, weight(g, shape...)) }
	}
	makes := map[ir.Op]func(g graph) *ir.Value{
		ir.OpLinear:  weighted(ir.OpLinear, nil, 5, width),
		ir.OpRMSNorm: weighted(ir.OpRMSNorm, ir.NormAttr{Eps: 1e-3}, width),
		ir.OpGroupNorm: func(g graph) *ir.Value {
			groups := given(g, ir.OpReshape, ir.TensorOf(dtype.F32, ir.Var(sym.T), ir.Const(2), ir.Const(width/2)))
			return emit(g, ir.OpGroupNorm, ir.NormAttr{Eps: 1e-3}, groups, weight(g, 2, width/2))
		},
		ir.OpLayerNorm: weighted(ir.OpLayerNorm, ir.NormAttr{Eps: 1e-3}, width),
		ir.OpGain:      weighted(ir.OpGain, nil, width),
		ir.OpShift:     weighted(ir.OpShift, nil, width),
		ir.OpReshape: func(g graph) *ir.Value {
			return given(g, ir.OpReshape, ir.TensorOf(dtype.F32, ir.Var(sym.T), ir.Const(2), ir.Const(width/2)))
		},
		ir.OpCast: func(g graph) *ir.Value {
			return given(g, ir.OpCast, ir.TensorOf(dtype.F16, ir.Var(sym.T), ir.Const(width)))
		},
		ir.OpSlice:        unary(ir.OpSlice, ir.SliceAttr{Start: 2, End: 5}),
		ir.OpScale:        unary(ir.OpScale, ir.ScaleAttr{Value: 3}),
		ir.OpSoftCap:      unary(ir.OpSoftCap, ir.ScaleAttr{Value: 3}),
		ir.OpSoftmax:      unary(ir.OpSoftmax, nil),
		ir.OpActivate:     unary(ir.OpActivate, ir.ActivationAttr{Activation: ir.SiLU}),
		ir.OpConcat:       binary(ir.OpConcat, nil),
		ir.OpGate:         binary(ir.OpGate, ir.ActivationAttr{Activation: ir.SiLU}),
		ir.OpMul:          binary(ir.OpMul, nil),
		ir.OpAdd:          binary(ir.OpAdd, nil),
		ir.OpRouter:       func(g graph) *ir.Value { return chosen(g, 1) },
		ir.OpSelect:       func(g graph) *ir.Value { return chosen(g, 0) },
		ir.OpExpertLinear: expertLinear,
		ir.OpWeightedSum: func(g graph) *ir.Value {
			return emit(g, ir.OpWeightedSum, nil, expertLinear(g), chosen(g, 0))
		},
	}
	for op := range ir.Op(ir.NumOps) {
		if !op.KeepsRows(0) {
			continue
		}
		require.Contains(t, makes, op)
		g := graph{Func: ir.NewFunc("rows", ir.Source)}
		tokens := g.Append(ir.OpInput, ir.TensorOf(dtype.I32, ir.Var(sym.T)), ir.NameAttr{Name: sym.Tokens}, ir.NoLayer)
		g.x, g.y = emit(g, ir.OpEmbed, nil, tokens, weight(g, 9, width)), emit(g, ir.OpEmbed, nil, tokens, weight(g, 9, width))
		g.Results = []ir.Result{{Name: "y", Value: makes[op](g)}}
		require.NoError(t, g.Verify())
		ids := []int32{3, 1, 4, 1, 5}
		compute := func(ids []int32) []float64 {
			in := batch.Pack(8, 8, batch.Piece{Tokens: ids, Blocks: []int32{0}}).Inputs
			return execute(t, g.Func, []map[string][]int32{in}).tensors[0]["y"].Data
		}
		all := compute(ids)
		n := len(all) / len(ids)
		for i := range ids {
			require.Equal(t, compute(ids[i:i+1]), all[i*n:(i+1)*n], "%s of token %d", op, i)
		}
	}
}
