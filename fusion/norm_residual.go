package fusion

import (
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
)

// NormResidual fuses a norm of a sublayer's output with its addition to the residual stream, in
// models with post-norm:
//
//	add(residual, rms_norm(x, w))   becomes   norm_residual(x, w, residual)
//
// It applies to sums in float only, the type of the residual stream.
func NormResidual() *Rule {
	residual, x, w := Any(), Any(), Any()
	norm := Op(ir.OpRMSNorm, x, w)
	sum := Op(ir.OpAdd, residual, norm)

	return &Rule{
		Name:   "norm_residual",
		Doc:    "fuse a norm with the addition of its result to the residual stream",
		Anchor: sum,
		Yields: []*Pat{sum},
		Needs:  func(t *ir.Target, _ ir.Steps) bool { return t.Has(ir.OpNormResidual) },
		Where: func(m Match) bool {
			return m[x].Type.DType == dtype.F32 && m[residual].Type.DType == dtype.F32 && m[sum].Type.DType == dtype.F32
		},
		Build: func(e *Emitter, m Match) []*ir.Value {
			return []*ir.Value{e.Emit(ir.OpNormResidual, m[norm].Attr, m[x], m[w], m[residual])}
		},
	}
}
