package fusion

import (
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
)

// ResidualGain multiplies the residual stream by a layer's number where the stream is computed:
//
//	gain(norm_residual(x, w, residual), g)   becomes   norm_residual(x, w, residual, g)
//
// g has one element.
func ResidualGain() *Rule {
	x, w, residual, g := Any(), Any(), Any(), Any()
	sum := Op(ir.OpNormResidual, x, w, residual)
	gain := Op(ir.OpGain, sum, g)

	return &Rule{
		Name:   "residual_gain",
		Doc:    "multiply the residual stream by a number where a norm joins it",
		Anchor: gain,
		Yields: []*Pat{gain},
		Where: func(m Match) bool {
			return m[g].Type.Shape.Last() == 1 && m[g].Type.DType == dtype.F32
		},
		Build: func(e *Emitter, m Match) []*ir.Value {
			return []*ir.Value{e.Emit(ir.OpNormResidual, m[sum].Attr, m[x], m[w], m[residual], m[g])}
		},
	}
}
