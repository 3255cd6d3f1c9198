package lower

import (
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
