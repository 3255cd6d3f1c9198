package fusion

import (
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
)

// LinearResidual makes the addition to the residual stream the epilogue of a
// product:
//
//	add(residual, linear(x, w, b?))       becomes   fused_linear(x, w, b?, residual) {Residual}
//	add(residual, fused_linear(x, w…))    becomes   fused_linear(x, w…, residual) {Residual}
//
// It applies to sums in float only, the type of the residual stream.
func LinearResidual() *Rule {
	residual := Any()
	product := OneOf([]ir.Op{ir.OpLinear, ir.OpFusedLinear}, Any(), Rest())
	sum := Op(ir.OpAdd, residual, product)

	return &Rule{
		Name:   "linear_residual",
		Doc:    "fuse a product with the addition of its result to the residual stream",
		Anchor: sum,
		Yields: []*Pat{sum},
		Where: func(m Match) bool {
			attr, _ := ir.AsFusedLinear(m[product])
			return !attr.Residual && m[residual].Type.DType == dtype.F32 && m[sum].Type.DType == dtype.F32
		},
		Build: func(e *Emitter, m Match) []*ir.Value {
			attr, operands := ir.AsFusedLinear(m[product])
			attr.Residual, operands.Residual = true, m[residual]
			return []*ir.Value{e.Emit(ir.OpFusedLinear, attr, operands.List()...)}
		},
	}
}
