package fusion

import "github.com/smelt-ml/smelt/ir"

// LinearResidual adds the residual stream where the product that joins it is
// stored:
//
//	add(residual, linear(x, w))   becomes   fused_linear(x, w, residual) {Residual}
//
// The residual stream is float; other sums stay as they are.
func LinearResidual() *Rule {
	residual, x, w := Any(), Any(), Any()
	sum := Op(ir.OpAdd, residual, Op(ir.OpLinear, x, w))

	return &Rule{
		Name:   "linear_residual",
		Doc:    "a product and its addition to the residual stream in one op",
		Anchor: sum,
		Yields: []*Pat{sum},
		Where: func(m Match) bool {
			return m[residual].Type.DType == ir.F32 && m[sum].Type.DType == ir.F32
		},
		Build: func(e *Emitter, m Match) []*ir.Value {
			attr := ir.LinearAttr{Weights: 1, Residual: true}
			return []*ir.Value{e.Emit(ir.OpFusedLinear, attr, m[x], m[w], m[residual])}
		},
	}
}
