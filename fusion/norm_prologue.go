package fusion

import (
	"slices"

	"github.com/smelt-ml/smelt/ir"
)

// NormPrologue normalises the input of a product as the product reads it:
//
//	linear(rms_norm(x, g), w)                 becomes   fused_linear(x, w, g) {Norm}
//	linear(layer_norm(x, g?, s?), w)          becomes   fused_linear(x, w, g?, s?) {Norm}
//	fused_linear(rms_norm(x, g), w…, b…, r?)  becomes   fused_linear(x, w…, b…, g, r?) {Norm}
//
// Every row of x is then normalised once for each group of rows of the weights.
// That is cheap beside reading the weights for the few tokens of a decode step,
// and a waste for a prompt: the target says which it is compiled for, and where its rates
// say which products are too wide ([ir.Target.NormRepeats]).
func NormPrologue() *Rule {
	kinds := map[ir.Op]ir.NormKind{ir.OpRMSNorm: ir.RMSNorm, ir.OpLayerNorm: ir.LayerNorm}
	x := Any()
	norm := OneOf([]ir.Op{ir.OpRMSNorm, ir.OpLayerNorm}, x, Rest())
	product := OneOf([]ir.Op{ir.OpLinear, ir.OpFusedLinear}, norm, Rest())

	return &Rule{
		Name:   "norm_prologue",
		Doc:    "the norm of a product's input inside the product",
		Anchor: product,
		Yields: []*Pat{product},
		Needs:  func(t *ir.Target) bool { return len(t.NormPrologue) > 0 },
		Pays: func(t *ir.Target, m Match) bool {
			longer, spared := t.NormRepeats(m[norm], m[product], t.Tokens, t.Rows)
			return slices.Contains(t.NormPrologue, kinds[m[norm].Op]) && longer <= spared
		},
		Where: func(m Match) bool { // what is the residual too must stay
			attr, _ := ir.AsFusedLinear(m[product])
			return attr.Norm == ir.NoNorm && !slices.Contains(m[product].Args[1:], m[norm])
		},
		Build: func(e *Emitter, m Match) []*ir.Value {
			attr, operands := ir.AsFusedLinear(m[product])
			attr.Norm, attr.Eps = kinds[m[norm].Op], m[norm].Attr.(ir.NormAttr).Eps
			operands.X = m[x]
			if vectors := m[norm].Args[1:]; len(vectors) > 0 {
				attr.Gain, operands.Gain = true, vectors[0]
				if len(vectors) > 1 {
					attr.Shift, operands.Shift = true, vectors[1]
				}
			}
			return []*ir.Value{e.EmitAs(m[product].Type.DType, ir.OpFusedLinear, attr, operands.List()...)}
		},
	}
}
