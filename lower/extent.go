package lower

import (
	"fmt"
	"math"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/lower/plan"
)

// Extent returns d as an expression.
func Extent(d ir.Dim) plan.Expr { return CeilDiv(d, 1) }

// CeilDiv returns ⌈d / div⌉.
func CeilDiv(d ir.Dim, div int64) plan.Expr {
	mul, pow, add := d.Term()
	if mul == 0 {
		return plan.Number((add + div - 1) / div)
	}
	if div == 1 { // keep the constant outside, so that equal expressions are equal
		return plan.Expr{Constant: add, Terms: []plan.Term{{Mul: mul, Div: 1, Pow: pow}}}
	}
	return plan.Expr{Terms: []plan.Term{{Mul: mul, Add: add, Div: div, Pow: pow}}}
}

func one() plan.Expr { return plan.Number(1) }

func size(n int64) plan.Expr { return plan.Number(n) }

func float(x float64) plan.Expr { return plan.Number(int64(math.Float32bits(float32(x)))) }

// over returns the number of groups of n that cover the extent.
func over(d ir.Dim, n int64) plan.Expr { return CeilDiv(d, n) }

// number returns the value of a constant extent.
func number(d ir.Dim) int64 {
	n, _ := d.IsConst()
	return n
}

func last(v *ir.Value) int64 { return v.Type.Shape.Last() }

func lastDim(v *ir.Value) ir.Dim { return v.Type.Shape[len(v.Type.Shape)-1] }

// rowsOf returns the product of all extents except the innermost.
func rowsOf(v *ir.Value) (ir.Dim, error) {
	d, ok := v.Type.Shape.Rows()
	if !ok {
		return d, fmt.Errorf("%s: the rows of %s are no simple size", v, v.Type)
	}
	return d, nil
}

func roundUp(n, to int64) int64 { return (n + to - 1) / to * to }

func bit(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}

// words are the parameters of a kernel by the names in kernels/abi/params.h: numbers,
// expressions of the sizes, or the bits of floats.
type words map[string]plan.Expr

// elements returns the parameters of kernels on dense rows.
func elements(rows, width ir.Dim) words {
	w := Extent(width)
	return words{"rows": Extent(rows), "width": w, "a_stride": w, "b_stride": w, "value": plan.Number(0)}
}

func ceilDiv(n, d int64) int64 { return (n + d - 1) / d }

// block returns the extents of a cache block as parameters.
func block(c ir.Cache) words {
	return words{"kv_heads": size(int64(c.KVHeads)), "head": size(int64(c.Head)), "block": size(int64(c.Block))}
}
