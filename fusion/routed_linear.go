package fusion

import (
	"slices"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
)

// RoutedGateUp merges the gate and up products of a mixture of experts into one op with the
// gate as its epilogue:
//
//	gate(expert_linear(x, wg, experts, bg?), expert_linear(x, wu, experts, bu?))
//
// becomes
//
//	routed_linear(x, wg, wu, bg?, bu?, experts) {Gated}
func RoutedGateUp() *Rule {
	x, experts, gate, up, gateBias, upBias := Any(), Any(), Any(), Any(), Optional(), Optional()
	pair := Op(ir.OpGate, Op(ir.OpExpertLinear, x, gate, experts, gateBias), Op(ir.OpExpertLinear, x, up, experts, upBias))

	return &Rule{
		Name:   "routed_gate_up",
		Doc:    "fuse the experts' gate and up products with activation(gate)·up",
		Anchor: pair,
		Yields: []*Pat{pair},
		Needs:  func(t *ir.Target, _ ir.Steps) bool { return t.Gated && t.Has(ir.OpRoutedLinear) },
		Where:  func(m Match) bool { return (m[gateBias] == nil) == (m[upBias] == nil) },
		Build: func(e *Emitter, m Match) []*ir.Value {
			attr := ir.RoutedAttr{Linear: ir.LinearAttr{Weights: 2, Bias: m[gateBias] != nil, Gated: true,
				Activation: m[pair].Attr.(ir.ActivationAttr).Activation}}
			return []*ir.Value{e.EmitAs(m[pair].Type.DType, ir.OpRoutedLinear, attr,
				m[x], m[gate], m[up], m[gateBias], m[upBias], m[experts])}
		},
	}
}

// RoutedSum makes the weighted sum over a token's experts the epilogue of their last product:
//
//	weighted_sum(expert_linear(x, w, experts, b?), weights)
//
// becomes
//
//	routed_linear(x, w, b?, experts, weights) {Mixed}
//
// It does not apply where kernels group tokens by expert to share weights, since the sum then
// needs a second pass by token.
func RoutedSum() *Rule {
	weights := Any()
	product := Op(ir.OpExpertLinear, Any(), Any(), Any(), Rest())
	sum := Op(ir.OpWeightedSum, product, weights)

	return &Rule{
		Name:   "routed_sum",
		Doc:    "fuse a product of experts with the weighted sum of its results",
		Anchor: sum,
		Yields: []*Pat{sum},
		Needs:  func(t *ir.Target, _ ir.Steps) bool { return t.Has(ir.OpRoutedLinear) },
		Pays:   func(t *ir.Target, s ir.Steps, m Match) bool { return !t.Costs.GroupsExperts(t, m[product], s.Tokens) },
		Build: func(e *Emitter, m Match) []*ir.Value {
			attr, operands := ir.AsRoutedLinear(m[product])
			attr.Mixed, operands.Mix = true, m[weights]
			return []*ir.Value{e.EmitAs(m[sum].Type.DType, ir.OpRoutedLinear, attr, operands.List()...)}
		},
	}
}

// RoutedResidual makes the addition to the residual stream part of the sum over experts:
//
//	add(residual, routed_linear(x, w, b?, experts, weights) {Mixed})
//
// becomes
//
//	routed_linear(x, w, b?, residual, experts, weights) {Mixed, Residual}
func RoutedResidual() *Rule {
	residual := Any()
	mixture := Op(ir.OpRoutedLinear, Any(), Rest())
	sum := Op(ir.OpAdd, residual, mixture)

	return &Rule{
		Name:   "routed_residual",
		Doc:    "fuse the weighted sum of experts with its addition to the residual stream",
		Anchor: sum,
		Yields: []*Pat{sum},
		Where: func(m Match) bool {
			attr := m[mixture].Attr.(ir.RoutedAttr)
			return attr.Mixed && !attr.Linear.Residual && m[residual].Type.DType == dtype.F32 && m[sum].Type.DType == dtype.F32
		},
		Build: func(e *Emitter, m Match) []*ir.Value {
			attr, operands := ir.AsRoutedLinear(m[mixture])
			attr.Linear.Residual, operands.Residual = true, m[residual]
			return []*ir.Value{e.Emit(ir.OpRoutedLinear, attr, operands.List()...)}
		},
	}
}

// RoutedNorm makes a norm the prologue of the experts' product:
//
//	routed_linear(rms_norm(x, g), w…, b…, experts)   becomes   routed_linear(x, w…, b…, g, experts) {Norm}
//
// and likewise for expert_linear and layer_norm. Every expert of a token repeats the norm, which
// is cheap beside reading the expert's weights for few tokens, as in [NormPrologue]. The norm
// remains for the router and other dense products, where [SharedNorm] and NormPrologue apply.
func RoutedNorm() *Rule {
	norm := Any()
	product := OneOf([]ir.Op{ir.OpExpertLinear, ir.OpRoutedLinear}, norm, Rest())

	return &Rule{
		Name:   "routed_norm",
		Doc:    "move the norm of the experts' input into their product",
		Anchor: product,
		Yields: []*Pat{product},
		Needs: func(t *ir.Target, s ir.Steps) bool {
			return len(t.Norms(s)) > 0 && s.Tokens <= t.FewTokens && t.Has(ir.OpRoutedLinear)
		},
		Pays: func(t *ir.Target, s ir.Steps, m Match) bool {
			return slices.Contains(t.Norms(s), normKinds[m[norm].Op])
		},
		Removes: norm,
		Removable: func(t *ir.Target, v *ir.Value, readers []*ir.Value) bool {
			dense := 0
			for _, r := range readers {
				if !takesNorm(r, v) {
					return false
				}
				if isDense(r) {
					dense++
				}
			}
			return dense < 2 || t == nil || t.NormsApart
		},
		Build: func(e *Emitter, m Match) []*ir.Value {
			attr, operands := ir.AsRoutedLinear(m[product])
			setNorm(&attr.Linear, &operands.LinearOperands, m[norm])
			return []*ir.Value{e.EmitAs(m[product].Type.DType, ir.OpRoutedLinear, attr, operands.List()...)}
		},
	}
}

// decomposeRouted decomposes a routed_linear into norm, expert_linear, gate, sum and residual.
func decomposeRouted(e *Emitter, v *ir.Value) []*ir.Value {
	routed, t := v.Attr.(ir.RoutedAttr), v.Type.DType
	a, o := routed.Linear, routed.Operands(v.Args)
	x := normed(e, a, o.LinearOperands, leading(e, a, o.LinearOperands, o.X))
	parts := make([]*ir.Value, a.Weights)
	for i, w := range o.Weights {
		var bias *ir.Value
		if a.Bias {
			bias = o.Biases[i]
		}
		parts[i] = e.EmitAs(t, ir.OpExpertLinear, nil, x, w, o.Experts, bias)
	}
	out := activated(e, a, t, parts)
	if routed.Mixed {
		out = e.EmitAs(t, ir.OpWeightedSum, nil, out, o.Mix)
	}
	if a.Residual {
		out = e.EmitAs(t, ir.OpAdd, nil, o.Residual, out)
	}
	return []*ir.Value{out}
}
