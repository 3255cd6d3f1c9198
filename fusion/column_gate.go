package fusion

import "github.com/smelt-ml/smelt/ir"

// ColumnGate multiplies the results of a product with an activation by columns of another value:
//
//	gate(linear(x, w, b?), slice(y))   becomes   fused_linear(x, w, b?, y) {Activation, ColumnGate, GateColumn}
//
// The activation is of the product alone. Values of several layers that lie side by side are not copied
// apart.
func ColumnGate() *Rule {
	x, w, bias, y := Any(), Any(), Optional(), Any()
	product, slice := Op(ir.OpLinear, x, w, bias), Op(ir.OpSlice, y)
	gate := Op(ir.OpGate, product, slice)

	return &Rule{
		Name:   "column_gate",
		Doc:    "fuse a product and its activation with the multiplication by columns of another value",
		Anchor: gate,
		Yields: []*Pat{gate},
		Needs:  func(t *ir.Target, _ ir.Steps) bool { return t.Has(ir.OpFusedLinear) },
		Where: func(m Match) bool {
			return !m[gate].Attr.(ir.ActivationAttr).Activation.OnlyGated() && len(m[y].Type.Shape) == 2
		},
		Build: func(e *Emitter, m Match) []*ir.Value {
			attr := ir.LinearAttr{Weights: 1, Bias: m[bias] != nil, Activation: m[gate].Attr.(ir.ActivationAttr).Activation,
				ColumnGate: true, GateColumn: m[slice].Attr.(ir.SliceAttr).Start}
			return []*ir.Value{e.EmitAs(m[gate].Type.DType, ir.OpFusedLinear, attr, m[x], m[w], m[bias], m[y])}
		},
	}
}
