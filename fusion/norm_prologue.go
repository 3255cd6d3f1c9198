package fusion

import (
	"slices"

	"github.com/smelt-ml/smelt/ir"
)

// NormPrologue normalises the input of a product as the product reads it:
//
//	linear(rms_norm(x, n), w)             becomes   fused_linear(x, w, n) {Norm}
//	fused_linear(rms_norm(x, n), w…, r?)  becomes   fused_linear(x, w…, n, r?) {Norm}
//
// Every row of x is then normalised once for each group of rows of the weights.
// That is cheap beside reading the weights for the few tokens of a decode step,
// and a waste for a prompt: the target says which it is compiled for.
func NormPrologue() *Rule {
	x, n := Any(), Any()
	norm := Op(ir.OpRMSNorm, x, n)
	product := OneOf([]ir.Op{ir.OpLinear, ir.OpFusedLinear}, norm, Rest())

	attrOf := func(v *ir.Value) ir.LinearAttr {
		if a, ok := v.Attr.(ir.LinearAttr); ok {
			return a
		}
		return ir.LinearAttr{Weights: 1}
	}

	return &Rule{
		Name:   "norm_prologue",
		Doc:    "the RMSNorm of a product's input inside the product",
		Anchor: product,
		Yields: []*Pat{product},
		Needs:  func(t *ir.Target) bool { return t.NormPrologue },
		Where: func(m Match) bool { // what is the residual too must stay
			return !attrOf(m[product]).Norm && !slices.Contains(m[product].Args[1:], m[norm])
		},
		Build: func(e *Emitter, m Match) []*ir.Value {
			attr := attrOf(m[product])
			attr.Norm, attr.Eps = true, m[norm].Attr.(ir.NormAttr).Eps
			args := slices.Clone(m[product].Args)
			args[0] = m[x]
			args = slices.Insert(args, 1+attr.Weights, m[n])
			return []*ir.Value{e.EmitAs(m[product].Type.DType, ir.OpFusedLinear, attr, args...)}
		},
	}
}
