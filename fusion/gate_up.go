package fusion

import "github.com/smelt-ml/smelt/ir"

// GateUp computes both halves of a gated MLP's input in one product, which
// applies the activation as it stores:
//
//	silu_mul(linear(x, wg), linear(x, wu))
//
// becomes
//
//	fused_linear(x, wg, wu) {SiLUPair}
func GateUp() *Rule {
	x, gate, up := Any(), Any(), Any()
	pair := Op(ir.OpSiLUMul, Op(ir.OpLinear, x, gate), Op(ir.OpLinear, x, up))

	return &Rule{
		Name:   "gate_up",
		Doc:    "the gate and up products of an MLP and silu(gate)·up in one op",
		Anchor: pair,
		Yields: []*Pat{pair},
		Needs:  func(t *ir.Target) bool { return t.SiLUPair },
		Build: func(e *Emitter, m Match) []*ir.Value {
			attr := ir.LinearAttr{Weights: 2, SiLUPair: true}
			return []*ir.Value{e.EmitAs(m[pair].Type.DType, ir.OpFusedLinear, attr, m[x], m[gate], m[up])}
		},
	}
}
