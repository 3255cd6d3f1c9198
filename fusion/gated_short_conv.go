package fusion

import "github.com/smelt-ml/smelt/ir"

// GatedShortConv fuses the gates of a short convolution's input and output, both column ranges
// of one projection, into the convolution:
//
//	y, state' = short_conv(slice₀(all) ∘ slice₂(all), w, state, …)
//	z         = slice₁(all) ∘ y
//
// becomes
//
//	z, state' = gated_short_conv(all, w, state, …)
//
// The arithmetic is the same, except that the gated input is not rounded before it is summed.
func GatedShortConv() *Rule {
	all, w, state := Any(), Any(), Any()
	before, after, x := Op(ir.OpSlice, all), Op(ir.OpSlice, all), Op(ir.OpSlice, all)
	in := Op(ir.OpMul, before, x)
	conv := Op(ir.OpShortConv, in, w, state, Rest())
	y, left := Op(ir.OpSelect, conv), Op(ir.OpSelect, conv)
	out := Op(ir.OpMul, after, y)

	return &Rule{
		Name:   "gated_short_conv",
		Doc:    "fuse a short convolution with the gates before and after it",
		Anchor: out,
		Joins:  []*Pat{left},
		Yields: []*Pat{out, left},
		Where: func(m Match) bool {
			width := int(m[out].Type.Shape.Last())
			third := func(i int) ir.SliceAttr { return ir.SliceAttr{Start: i * width, End: (i + 1) * width} }
			return m[all].Type.Shape.Last() == 3*int64(width) &&
				m[before].Attr == third(0) && m[after].Attr == third(1) && m[x].Attr == third(2) &&
				m[y].Attr == ir.SelectAttr{Index: 0} && m[left].Attr == ir.SelectAttr{Index: 1}
		},
		Build: func(e *Emitter, m Match) []*ir.Value {
			both := e.Emit(ir.OpGatedShortConv, nil, append([]*ir.Value{m[all]}, m[conv].Args[1:]...)...)
			return []*ir.Value{e.Select(both, 0), e.Select(both, 1)}
		},
	}
}
