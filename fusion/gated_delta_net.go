package fusion

import "github.com/smelt-ml/smelt/ir"

// GatedDeltaNet merges the products of a layer with the gated delta rule, and fuses the convolution
// with its activation, and the rule with the norm and the gate of its result:
//
//	x, conv'   = short_conv(linear(n, wqkv), taps, conv, …)
//	y, state'  = delta_net(silu(x), linear(n, wα), linear(n, wβ), decay, bias, state, …)
//	out        = rms_norm(y, gain) ∘ silu(reshape(linear(n, wz)))
//
// becomes
//
//	all         = fused_linear(n, wqkv, wz)                 [T, (2·KeyHeads+2·H)·D]
//	x, conv'    = silu_short_conv(all, taps, conv, …)
//	gates       = fused_linear(n, wα, wβ)                   [T, 2·H]
//	out, state' = gated_delta_net(x, gates, decay, bias, gain, all, state, …)
//
// A head of the rule's result lies in one threadgroup, which can normalise it. The arithmetic is the
// same, except that results in between are not rounded.
func GatedDeltaNet() *Rule {
	n, wqkv, wz, wa, wb := Any(), Any(), Any(), Any(), Any()
	taps, past, decay, bias, state, gain := Any(), Any(), Any(), Any(), Any(), Any()
	conv := Op(ir.OpShortConv, Op(ir.OpLinear, n, wqkv), taps, past, Rest())
	x, newPast := Op(ir.OpSelect, conv), Op(ir.OpSelect, conv)
	qkv := Op(ir.OpActivate, x)
	delta := Op(ir.OpDeltaNet, qkv, Op(ir.OpLinear, n, wa), Op(ir.OpLinear, n, wb), decay, bias, state, Rest())
	y, newState := Op(ir.OpSelect, delta), Op(ir.OpSelect, delta)
	norm := Op(ir.OpRMSNorm, y, gain)
	gate := Op(ir.OpActivate, Op(ir.OpReshape, Op(ir.OpLinear, n, wz)))
	out := Op(ir.OpMul, norm, gate)

	return &Rule{
		Name:   "gated_delta_net",
		Doc:    "merge the products of a layer with the gated delta rule, and fuse what follows its convolution and the rule",
		Anchor: out,
		Joins:  []*Pat{newState, newPast},
		Yields: []*Pat{out, newState, newPast},
		Where: func(m Match) bool {
			silu := ir.ActivationAttr{Activation: ir.SiLU}
			first, second := ir.SelectAttr{Index: 0}, ir.SelectAttr{Index: 1}
			return m[qkv].Attr == silu && m[gate].Attr == silu && m[x].Attr == first && m[y].Attr == first && m[newPast].Attr == second && m[newState].Attr == second
		},
		Build: func(e *Emitter, m Match) []*ir.Value {
			two := ir.LinearAttr{Weights: 2}
			all := e.Emit(ir.OpFusedLinear, two, m[n], m[wqkv], m[wz])
			convolved := e.Emit(ir.OpSiLUShortConv, ir.ConvAttr{}, append([]*ir.Value{all}, m[conv].Args[1:]...)...)
			attr := ir.GatedDeltaNetAttr{Delta: m[delta].Attr.(ir.DeltaNetAttr), NormEps: m[norm].Attr.(ir.NormAttr).Eps}
			both := e.Emit(ir.OpGatedDeltaNet, attr, append([]*ir.Value{
				e.Select(convolved, 0), e.Emit(ir.OpFusedLinear, two, m[n], m[wa], m[wb]), m[decay], m[bias], m[gain], all}, m[delta].Args[5:]...)...)
			return []*ir.Value{e.Select(both, 0), e.Select(both, 1), e.Select(convolved, 1)}
		},
	}
}
