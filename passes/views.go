package passes

import (
	"slices"

	"github.com/smelt-ml/smelt/ir"
)

// views rewrites rearrangements into a normal form:
//
//	reshape(reshape(x))          → reshape(x)
//	transpose(transpose(x))      → transpose(x), the axes composed
//	slice(slice(x))              → slice(x)
//	slice(concat(…, x, …))       → slice(x), where one part covers the columns
//	slice(fused_linear(x, w…))   → linear(x, w), where every reader takes the
//	                               columns of one weight
//
// and drops those that change nothing. An op that also changes the element type
// stays.
func views(f *ir.Func, _ *ir.Target, _ ir.Steps) (int, error) {
	changes := 0
	apart := readApart(f)
	same := make(map[*ir.Value]*ir.Value)
	for _, v := range f.Values {
		for i, a := range v.Args {
			if x := same[a]; x != nil {
				v.Args[i] = x
			}
		}
		for simplify(v, apart) {
			changes++
		}
		if isCopy(v) {
			same[v] = v.Args[0]
			changes++
		}
	}
	for i, r := range f.Results {
		if x := same[r.Value]; x != nil {
			f.Results[i].Value = x
		}
	}
	if changes > 0 {
		f.Sweep()
	}
	return changes, nil
}

// isCopy reports whether v equals its operand.
func isCopy(v *ir.Value) bool {
	switch v.Op {
	case ir.OpReshape, ir.OpCast, ir.OpSlice, ir.OpConcat:
		return len(v.Args) == 1 && v.Type.Equal(v.Args[0].Type)
	case ir.OpTranspose:
		return v.Attr == ir.TransposeAttr{A: 0, B: 1, C: 2} && v.Type.Equal(v.Args[0].Type)
	}
	return false
}

// simplify applies one of these rewrites to v in place, and reports whether one applied.
func simplify(v *ir.Value, apart map[*ir.Value]bool) bool {
	if len(v.Args) == 0 || v.Args[0].Type.DType != v.Type.DType {
		return false
	}
	x := v.Args[0]
	switch {
	case v.Op == ir.OpReshape && x.Op == ir.OpReshape && keepsType(x):
		v.Args[0] = x.Args[0]
	case v.Op == ir.OpTranspose && x.Op == ir.OpTranspose && keepsType(x):
		inner, outer := axes(x), axes(v)
		v.Attr = ir.TransposeAttr{A: inner[outer[0]], B: inner[outer[1]], C: inner[outer[2]]}
		v.Args[0] = x.Args[0]
	case v.Op == ir.OpSlice:
		return simplifySlice(v, x, apart)
	default:
		return false
	}
	return true
}

func keepsType(v *ir.Value) bool { return v.Type.DType == v.Args[0].Type.DType }

func axes(v *ir.Value) [3]int {
	a := v.Attr.(ir.TransposeAttr)
	return [3]int{a.A, a.B, a.C}
}

func simplifySlice(v, x *ir.Value, apart map[*ir.Value]bool) bool {
	a := v.Attr.(ir.SliceAttr)
	switch {
	case x.Op == ir.OpSlice && keepsType(x):
		start := x.Attr.(ir.SliceAttr).Start
		v.Args[0], v.Attr = x.Args[0], ir.SliceAttr{Start: start + a.Start, End: start + a.End}
	case x.Op == ir.OpConcat:
		start := 0
		for _, part := range x.Args {
			end := start + int(part.Type.Shape.Last())
			if start <= a.Start && a.End <= end && part.Type.DType == v.Type.DType {
				v.Args[0], v.Attr = part, ir.SliceAttr{Start: a.Start - start, End: a.End - start}
				return true
			}
			start = end
		}
		return false
	case apart[x]:
		v.Op, v.Attr, v.Args = ir.OpLinear, nil, append([]*ir.Value{x.Args[0]}, columnsOf(v, x)...)
	default:
		return false
	}
	return true
}

// readApart returns the merged products whose readers each slice the columns of one weight.
// Separate products are cheaper than such a product and its slices.
func readApart(f *ir.Func) map[*ir.Value]bool {
	apart := make(map[*ir.Value]bool)
	for _, v := range f.Values {
		if a, ok := v.Attr.(ir.LinearAttr); ok && a == (ir.LinearAttr{Weights: a.Weights, Bias: a.Bias}) {
			apart[v] = true
		}
		for _, x := range v.Args {
			if apart[x] && (v.Op != ir.OpSlice || columnsOf(v, x) == nil) {
				apart[x] = false
			}
		}
	}
	for _, r := range f.Results {
		apart[r.Value] = false
	}
	return apart
}

// columnsOf returns the weight of a merged product whose columns a slice selects, and its
// bias if it has one.
func columnsOf(slice, product *ir.Value) []*ir.Value {
	a, start := slice.Attr.(ir.SliceAttr), 0
	attr, operands := ir.AsFusedLinear(product)
	i := slices.IndexFunc(operands.Weights, func(w *ir.Value) bool {
		n, _ := w.Type.Shape[0].IsConst()
		end := start + int(n)
		if a == (ir.SliceAttr{Start: start, End: end}) {
			return true
		}
		start = end
		return false
	})
	if i < 0 {
		return nil
	}
	if attr.Bias {
		return []*ir.Value{operands.Weights[i], operands.Biases[i]}
	}
	return operands.Weights[i : i+1]
}
