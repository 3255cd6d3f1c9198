package fusion

import (
	"slices"

	"github.com/smelt-ml/smelt/ir"
)

// RowGate moves a gate of a product's input, one element for each row, behind the product:
//
//	linear(weighted_sum(reshape(x), activate(z)), w)                     x [T,K], z [T,1], sums of one row
//
// becomes
//
//	fused_linear(x, w, z) {RowGate}
//
// The product is linear, so that its result may be multiplied as well as its input. An expert
// that all tokens go to has such a gate.
func RowGate() *Rule {
	x, z, weight := Any(), Any(), Any()
	rows, activation := Op(ir.OpReshape, x), Op(ir.OpActivate, z)
	product := Op(ir.OpLinear, Op(ir.OpWeightedSum, rows, activation), weight)

	return &Rule{
		Name:   "row_gate",
		Doc:    "fuse a product with the gate of its input's rows",
		Anchor: product,
		Yields: []*Pat{product},
		Where: func(m Match) bool {
			shape := m[x].Type.Shape
			return len(shape) == 2 && slices.Equal(m[rows].Type.Shape, ir.Shape{shape[0], ir.Const(1), shape[1]})
		},
		Build: func(e *Emitter, m Match) []*ir.Value {
			attr := ir.LinearAttr{Weights: 1, RowGate: m[activation].Attr.(ir.ActivationAttr).Activation}
			return []*ir.Value{e.EmitAs(m[product].Type.DType, ir.OpFusedLinear, attr, m[x], m[weight], m[z])}
		},
	}
}

// RouterGate merges the product with the gate of an expert that all tokens go to into that of the
// router's logits, whose input is the same:
//
//	weights, experts = router(linear(n, wr), …)
//	y                = fused_linear(x, w, linear(n, ws)) {RowGate}
//
// becomes
//
//	all              = fused_linear(n, wr, ws)
//	weights, experts = router(all, …) {Others: 1}
//	y                = fused_linear(x, w, all) {RowGate, GateColumn: E}
//
// Both products have a bias, or none has.
func RouterGate() *Rule {
	n, wr, ws, br, bs := Any(), Any(), Any(), Optional(), Optional()
	logits := Op(ir.OpLinear, n, wr, br)
	router := Op(ir.OpRouter, logits, Rest())
	weights, experts := Op(ir.OpSelect, router), Op(ir.OpSelect, router)
	product := Op(ir.OpFusedLinear, Any(), Any(), Op(ir.OpLinear, n, ws, bs))

	return &Rule{
		Name:   "router_gate",
		Doc:    "merge the product with the gate of a shared expert into that of the router",
		Anchor: product,
		Joins:  []*Pat{weights, experts},
		Needs:  func(t *ir.Target, _ ir.Steps) bool { return t.Has(ir.OpFusedLinear) }, // the router is a source op, which nothing would give its columns
		Yields: []*Pat{product, weights, experts},
		Where: func(m Match) bool {
			return m[product].Attr.(ir.LinearAttr).RowGate != ir.NoActivation && (m[br] == nil) == (m[bs] == nil) &&
				m[weights].Attr == ir.SelectAttr{Index: 0} && m[experts].Attr == ir.SelectAttr{Index: 1}
		},
		Build: func(e *Emitter, m Match) []*ir.Value {
			all := e.EmitAs(m[logits].Type.DType, ir.OpFusedLinear, ir.LinearAttr{Weights: 2, Bias: m[br] != nil}, m[n], m[wr], m[ws], m[br], m[bs])
			route := m[router].Attr.(ir.RouterAttr)
			route.Others++
			both := e.Emit(ir.OpRouter, route, slices.Concat([]*ir.Value{all}, m[router].Args[1:])...)
			attr := m[product].Attr.(ir.LinearAttr)
			attr.GateColumn = int(m[logits].Type.Shape.Last())
			y := e.EmitAs(m[product].Type.DType, ir.OpFusedLinear, attr, m[product].Args[0], m[product].Args[1], all)
			return []*ir.Value{y, e.Select(both, 0), e.Select(both, 1)}
		},
	}
}
