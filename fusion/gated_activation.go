package fusion

import "github.com/smelt-ml/smelt/ir"

// SiLUMul joins the gate of a gated MLP with its product:
//
//	mul(silu(a), b)   becomes   silu_mul(a, b)
func SiLUMul() *Rule {
	a, b := Any(), Any()
	product := Op(ir.OpMul, Op(ir.OpSiLU, a), b)

	return &Rule{
		Name:   "silu_mul",
		Doc:    "silu(a)·b in one op",
		Anchor: product,
		Yields: []*Pat{product},
		Build: func(e *Emitter, m Match) []*ir.Value {
			return []*ir.Value{e.EmitAs(m[product].Type.DType, ir.OpSiLUMul, nil, m[a], m[b])}
		},
	}
}
