package fusion

import "github.com/smelt-ml/smelt/ir"

// GateUp merges the gate and up products of a gated MLP into one product with the
// gate as its epilogue:
//
//	gate(linear(x, wg, bg?), linear(x, wu, bu?))
//
// becomes
//
//	fused_linear(x, wg, wu, bg?, bu?) {Gated}
//
// Both have a bias or neither.
func GateUp() *Rule {
	x, gate, up, gateBias, upBias := Any(), Any(), Any(), Optional(), Optional()
	pair := Op(ir.OpGate, Op(ir.OpLinear, x, gate, gateBias), Op(ir.OpLinear, x, up, upBias))

	return &Rule{
		Name:   "gate_up",
		Doc:    "fuse an MLP's gate and up products with activation(gate)·up",
		Anchor: pair,
		Yields: []*Pat{pair},
		Needs:  func(t *ir.Target, _ ir.Steps) bool { return t.Gated },
		Where:  func(m Match) bool { return (m[gateBias] == nil) == (m[upBias] == nil) },
		Build: func(e *Emitter, m Match) []*ir.Value {
			attr := ir.LinearAttr{Weights: 2, Bias: m[gateBias] != nil, Gated: true,
				Activation: m[pair].Attr.(ir.ActivationAttr).Activation}
			return []*ir.Value{e.EmitAs(m[pair].Type.DType, ir.OpFusedLinear, attr, m[x], m[gate], m[up], m[gateBias], m[upBias])}
		},
	}
}
