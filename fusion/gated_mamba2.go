package fusion

import "github.com/smelt-ml/smelt/ir"

// GatedMamba2 fuses the convolution of a Mamba-2 layer with its bias and activation, and the state
// space with the gate of its result. All three read columns of one projection, z, xbc and dt:
//
//	x, conv'  = short_conv(slice(all), taps, conv, …)
//	y, state' = mamba2(silu(x + bias), slice(all), …, state, …)
//	out       = reshape(y) ∘ silu(slice(all))
//
// becomes
//
//	x, conv'    = silu_short_conv(all, taps, conv, …, bias)
//	out, state' = gated_mamba2(x, all, …, state, …)
//
// The arithmetic is the same, except that results in between are not rounded.
func GatedMamba2() *Rule {
	all, taps, past, bias, decay, dtBias, skip, state := Any(), Any(), Any(), Any(), Any(), Any(), Any(), Any()
	z, xbc, dt := Op(ir.OpSlice, all), Op(ir.OpSlice, all), Op(ir.OpSlice, all)
	conv := Op(ir.OpShortConv, xbc, taps, past, Rest())
	x, newPast := Op(ir.OpSelect, conv), Op(ir.OpSelect, conv)
	convolved := Op(ir.OpActivate, Op(ir.OpShift, x, bias))
	scan := Op(ir.OpMamba2, convolved, dt, decay, dtBias, skip, state, Rest())
	y, newState := Op(ir.OpSelect, scan), Op(ir.OpSelect, scan)
	gate := Op(ir.OpActivate, z)
	out := Op(ir.OpMul, Op(ir.OpReshape, y), gate)

	return &Rule{
		Name:   "gated_mamba2",
		Doc:    "fuse the convolution of a Mamba-2 layer with what follows it, and the state space with its gate",
		Early:  true,
		Anchor: out,
		Joins:  []*Pat{newState, newPast},
		Yields: []*Pat{out, newState, newPast},
		Where: func(m Match) bool {
			silu := ir.ActivationAttr{Activation: ir.SiLU}
			first, second := ir.SelectAttr{Index: 0}, ir.SelectAttr{Index: 1}
			width, inner, heads := int(m[all].Type.Shape.Last()), int(m[out].Type.Shape.Last()), int(m[dtBias].Type.Shape.Last())
			return m[convolved].Attr == silu && m[gate].Attr == silu && m[x].Attr == first && m[y].Attr == first && m[newPast].Attr == second && m[newState].Attr == second &&
				m[z].Attr == (ir.SliceAttr{End: inner}) && m[dt].Attr == (ir.SliceAttr{Start: width - heads, End: width})
		},
		Build: func(e *Emitter, m Match) []*ir.Value {
			in := m[conv].Args
			both := e.Emit(ir.OpSiLUShortConv, ir.ConvAttr{From: m[xbc].Attr.(ir.SliceAttr).Start}, m[all], in[1], in[2], in[3], in[4], m[bias])
			scanned := e.Emit(ir.OpGatedMamba2, m[scan].Attr, append([]*ir.Value{e.Select(both, 0), m[all]}, m[scan].Args[2:]...)...)
			return []*ir.Value{e.Reshape(e.Select(scanned, 0), m[out].Type.Shape...), e.Select(scanned, 1), e.Select(both, 1)}
		},
	}
}
