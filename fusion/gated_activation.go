package fusion

import "github.com/smelt-ml/smelt/ir"

// GatedActivation fuses the activation of a gated MLP with the multiplication by up:
//
//	mul(activate(a), b)   becomes   gate(a, b)
func GatedActivation() *Rule {
	a, b := Any(), Any()
	activation := Op(ir.OpActivate, a)
	product := Op(ir.OpMul, activation, b)

	return &Rule{
		Name:   "gated_activation",
		Doc:    "fuse activation(a)·b",
		Anchor: product,
		Yields: []*Pat{product},
		Needs:  func(t *ir.Target, _ ir.Steps) bool { return t.Has(ir.OpGate) },
		Build: func(e *Emitter, m Match) []*ir.Value {
			return []*ir.Value{e.EmitAs(m[product].Type.DType, ir.OpGate, m[activation].Attr, m[a], m[b])}
		},
	}
}
