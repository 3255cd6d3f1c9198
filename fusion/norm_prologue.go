package fusion

import (
	"slices"

	"github.com/smelt-ml/smelt/ir"
)

// NormPrologue makes a norm the prologue of the product that reads it:
//
//	linear(rms_norm(x, g), w)                 becomes   fused_linear(x, w, g) {Norm}
//	linear(layer_norm(x, g?, s?), w)          becomes   fused_linear(x, w, g?, s?) {Norm}
//	fused_linear(rms_norm(x, g), w…, b…, r?)  becomes   fused_linear(x, w…, b…, g, r?) {Norm}
//
// Every threadgroup then normalises the rows of x for its group of weight rows. That is
// cheap beside reading the weights in a decode step of few tokens, and wasteful in
// prefill; the target's NormPrologue and costs ([ir.Costs]) decide by step and width.
func NormPrologue() *Rule {
	x := Any()
	norm := OneOf([]ir.Op{ir.OpRMSNorm, ir.OpLayerNorm}, x, Rest())
	product := OneOf([]ir.Op{ir.OpLinear, ir.OpFusedLinear}, norm, Rest())

	return &Rule{
		Name:   "norm_prologue",
		Doc:    "move the norm of a product's input into the product",
		Anchor: product,
		Yields: []*Pat{product},
		Needs:  func(t *ir.Target, s ir.Steps) bool { return len(t.Norms(s)) > 0 },
		Pays: func(t *ir.Target, s ir.Steps, m Match) bool {
			longer, spared := t.Costs.NormRepeats(t, m[norm], m[product], s.Tokens, s.Rows)
			return slices.Contains(t.Norms(s), normKinds[m[norm].Op]) && longer <= spared
		},
		Where: func(m Match) bool { return takesNorm(m[product], m[norm]) },
		Build: func(e *Emitter, m Match) []*ir.Value { return []*ir.Value{normInside(e, m[product], m[norm])} },
	}
}

// SharedNorm makes a norm that several products read the prologue of all but the last, which
// NormPrologue then handles. Examples are layers whose attention and MLP run in parallel, and
// a router beside a shared expert:
//
//	linear(n, w)           becomes   fused_linear(x, w, g) {Norm}
//	fused_linear(n, w…)    becomes   fused_linear(x, w…, g) {Norm}
//
// where n = rms_norm(x, g) or layer_norm(x, g?, s?) and another product reads it too. On a GPU,
// memory latency of the weights hides the repeated norm; on a CPU, whose threads normalise once
// per product, each product would gain a stage.
func SharedNorm() *Rule {
	norm := Any()
	product := OneOf([]ir.Op{ir.OpLinear, ir.OpFusedLinear}, norm, Rest())

	return &Rule{
		Name:    "shared_norm",
		Doc:     "move a norm that several products read into all of them but the last",
		Anchor:  product,
		Yields:  []*Pat{product},
		Removes: norm,
		Removable: func(_ *ir.Target, v *ir.Value, readers []*ir.Value) bool {
			return len(readers) > 1 && !slices.ContainsFunc(readers, func(r *ir.Value) bool { return !isDense(r) || !takesNorm(r, v) })
		},
		Needs: func(t *ir.Target, s ir.Steps) bool { return t.NormsApart && s.Tokens <= t.FewTokens },
		Pays: func(t *ir.Target, s ir.Steps, m Match) bool {
			return slices.Contains(t.Norms(s), normKinds[m[norm].Op])
		},
		Build: func(e *Emitter, m Match) []*ir.Value { return []*ir.Value{normInside(e, m[product], m[norm])} },
	}
}

// normKinds are the norms that a product may apply to its input.
var normKinds = map[ir.Op]ir.NormKind{ir.OpRMSNorm: ir.RMSNorm, ir.OpLayerNorm: ir.LayerNorm}

// takesNorm reports whether reader is a product that can take the norm as its prologue: it has
// none, and the norm is not its residual too.
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

// isDense reports whether a product applies the same weights to all tokens.
func isDense(v *ir.Value) bool { return v.Op == ir.OpLinear || v.Op == ir.OpFusedLinear }

// normInside emits the product over the norm's input, with the norm as its prologue.
func normInside(e *Emitter, product, norm *ir.Value) *ir.Value {
	attr, operands := ir.AsFusedLinear(product)
	setNorm(&attr, &operands, norm)
	return e.EmitAs(product.Type.DType, ir.OpFusedLinear, attr, operands.List()...)
}

// setNorm makes a norm the prologue of the product that reads it.
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
