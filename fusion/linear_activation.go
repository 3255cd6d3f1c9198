package fusion

import "github.com/smelt-ml/smelt/ir"

// LinearActivation makes an activation the epilogue of the product before it:
//
//	activate(linear(x, w, b?))   becomes   fused_linear(x, w, b?) {Activation}
func LinearActivation() *Rule {
	x, w, bias := Any(), Any(), Optional()
	activation := Op(ir.OpActivate, Op(ir.OpLinear, x, w, bias))

	return &Rule{
		Name:   "linear_activation",
		Doc:    "fuse a product with the activation of its result",
		Anchor: activation,
		Yields: []*Pat{activation},
		Build: func(e *Emitter, m Match) []*ir.Value {
			attr := ir.LinearAttr{Weights: 1, Bias: m[bias] != nil, Activation: m[activation].Attr.(ir.ActivationAttr).Activation}
			return []*ir.Value{e.EmitAs(m[activation].Type.DType, ir.OpFusedLinear, attr, m[x], m[w], m[bias])}
		},
	}
}
