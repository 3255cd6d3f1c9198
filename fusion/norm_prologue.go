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
// say which products are too wide ([ir.Costs]).
func NormPrologue() *Rule {
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
			longer, spared := t.Costs.NormRepeats(t, m[norm], m[product], t.Tokens, t.Rows)
			return slices.Contains(t.NormPrologue, normKinds[m[norm].Op]) && longer <= spared
		},
		Where: func(m Match) bool { return takesNorm(m[product], m[norm]) },
		Build: func(e *Emitter, m Match) []*ir.Value { return []*ir.Value{normInside(e, m[product], m[norm])} },
	}
}

// SharedNorm normalises in all but the last of several products what they read, which then is
// NormPrologue's, such as those of a layer whose attention and feed-forward network see the
// same, or the router and the expert that all tokens go to:
//
//	linear(n, w)           becomes   fused_linear(x, w, g) {Norm}
//	fused_linear(n, w…)    becomes   fused_linear(x, w…, g) {Norm}
//
// where n = rms_norm(x, g) or layer_norm(x, g?, s?) and another product reads it too. That is for
// threadgroups, which wait for weights meanwhile: a processor whose threads normalise once for
// all would have a stage for it before each product in place of one.
func SharedNorm() *Rule {
	norm := Any()
	product := OneOf([]ir.Op{ir.OpLinear, ir.OpFusedLinear}, norm, Rest())

	return &Rule{
		Name:   "shared_norm",
		Doc:    "the norm of several products' input inside all but the last",
		Anchor: product,
		Yields: []*Pat{product},
		Frees:  norm,
		Takes: func(_ *ir.Target, v *ir.Value, readers []*ir.Value) bool {
			return len(readers) > 1 && !slices.ContainsFunc(readers, func(r *ir.Value) bool { return !isDense(r) || !takesNorm(r, v) })
		},
		Needs: func(t *ir.Target) bool { return t.Launches && t.Tokens <= t.FewTokens },
		Pays:  func(t *ir.Target, m Match) bool { return slices.Contains(t.NormPrologue, normKinds[m[norm].Op]) },
		Build: func(e *Emitter, m Match) []*ir.Value { return []*ir.Value{normInside(e, m[product], m[norm])} },
	}
}

// normKinds are the norms that a product may apply to its input.
var normKinds = map[ir.Op]ir.NormKind{ir.OpRMSNorm: ir.RMSNorm, ir.OpLayerNorm: ir.LayerNorm}

// takesNorm tells whether what reads a norm is a product that may normalise its input itself: it
// does not yet, and the norm is not its residual too.
func takesNorm(reader, norm *ir.Value) bool {
	var attr ir.LinearAttr
	switch reader.Op {
	case ir.OpLinear, ir.OpFusedLinear:
		attr, _ = ir.AsFusedLinear(reader)
	case ir.OpExpertLinear, ir.OpRoutedLinear:
		routed, _ := ir.AsRoutedLinear(reader)
		attr = routed.Linear
	default:
		return false
	}
	return normKinds[norm.Op] != ir.NoNorm && attr.Norm == ir.NoNorm && !slices.Contains(reader.Args[1:], norm)
}

// isDense tells of a product whether all tokens have the same weights.
func isDense(v *ir.Value) bool { return v.Op == ir.OpLinear || v.Op == ir.OpFusedLinear }

// normInside emits a product of the norm's input that normalises it.
func normInside(e *Emitter, product, norm *ir.Value) *ir.Value {
	attr, operands := ir.AsFusedLinear(product)
	setNorm(&attr, &operands, norm)
	return e.EmitAs(product.Type.DType, ir.OpFusedLinear, attr, operands.List()...)
}

// setNorm makes a product normalise the norm's input in place of reading the norm.
func setNorm(attr *ir.LinearAttr, operands *ir.LinearOperands, norm *ir.Value) {
	attr.Norm, attr.Eps = normKinds[norm.Op], norm.Attr.(ir.NormAttr).Eps
	operands.X = norm.Args[0]
	if vectors := norm.Args[1:]; len(vectors) > 0 {
		attr.Gain, operands.Gain = true, vectors[0]
		if len(vectors) > 1 {
			attr.Shift, operands.Shift = true, vectors[1]
		}
	}
}
