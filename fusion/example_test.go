package fusion_test

import (
	"fmt"

	. "github.com/smelt-ml/smelt/fusion"
	"github.com/smelt-ml/smelt/ir"
)

// ScaleIntoRope is the rule that docs/guides/add-a-rule.md adds from scratch: a rotation
// multiplies cosine and sine by its magnitude anyway.
//
//	scale(rope(x, positions) {Magnitude: m}) {Value: s}
//
// becomes
//
//	rope(x, positions) {Magnitude: m·s}
func ScaleIntoRope() *Rule {
	x, positions, factors := Any(), Any(), Optional()
	rope := Op(ir.OpRope, x, positions, factors)
	scale := Op(ir.OpScale, rope)

	return &Rule{
		Name:   "scale_into_rope",
		Doc:    "a scale after RoPE as part of the rotation",
		Anchor: scale,
		Yields: []*Pat{scale},
		Where: func(m Match) bool {
			// Elements that do not rotate would miss the scale.
			whole := int64(m[rope].Attr.(ir.RopeAttr).Rotated) == m[rope].Type.Shape.Last()
			return whole && m[scale].Attr.(ir.ScaleAttr).Value > 0
		},
		Build: func(e *Emitter, m Match) []*ir.Value {
			attr := m[rope].Attr.(ir.RopeAttr)
			attr.Magnitude *= m[scale].Attr.(ir.ScaleAttr).Value
			return []*ir.Value{e.EmitAs(m[scale].Type.DType, ir.OpRope, attr, m[x], m[positions], m[factors])}
		},
	}
}

// Two rotations are scaled, but the second is a result itself.
func ExampleApply() {
	f, err := ir.Parse(`
func example source {
  v1 = input {name="tokens"} : i32[T]
  v2 = weight {name="embd"} : f32[16,8]
  v3 = embed v1 v2 : f32[T,8]
  v4 = reshape v3 : f32[T,2,4]
  v5 = input {name="positions"} : i32[T]
  v6 = rope v4 v5 {rotated=4 theta=10000 freqscale=1 magnitude=1} : f32[T,2,4]
  v7 = scale v6 {value=0.5} : f32[T,2,4]
  v8 = rope v7 v5 {rotated=4 theta=10000 freqscale=1 magnitude=1} : f32[T,2,4]
  v9 = scale v8 {value=0.5} : f32[T,2,4]
  return "y" v8
  return "z" v9
}`)
	if err != nil {
		panic(err)
	}
	counts, err := Apply(f, ScaleIntoRope())
	if err != nil {
		panic(err)
	}
	fmt.Println(counts)
	fmt.Print(f)
	// Output:
	// [1]
	// func example source {
	//   v1 = input {name="tokens"} : i32[T]
	//   v2 = weight {name="embd"} : f32[16,8]
	//   v3 = embed v1 v2 : f32[T,8]
	//   v4 = reshape v3 : f32[T,2,4]
	//   v5 = input {name="positions"} : i32[T]
	//   v10 = rope v4 v5 {rotated=4 theta=10000 freqscale=1 magnitude=0.5} : f32[T,2,4]
	//   v8 = rope v10 v5 {rotated=4 theta=10000 freqscale=1 magnitude=1} : f32[T,2,4]
	//   v9 = scale v8 {value=0.5} : f32[T,2,4]
	//   return "y" v8
	//   return "z" v9
	// }
}
