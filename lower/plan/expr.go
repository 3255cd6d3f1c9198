package plan

import (
	"fmt"
	"strings"

	"github.com/smelt-ml/smelt/ir/sym"
)

// Expr is a number as a function of a step's sizes: Constant + Σ Terms. Grids, parameters and
// buffer sizes are such expressions. The zero value is 0.
type Expr struct {
	Constant int64
	Terms    []Term
}

// Term is ⌈(Mul·Π symbol^Pow + Add) / Div⌉.
type Term struct {
	Mul, Add, Div int64
	Pow           [sym.Count]uint8
}

// Number returns the expression that is always n.
func Number(n int64) Expr { return Expr{Constant: n} }

// Size returns the expression that is a symbol's value.
func Size(s sym.Sym) Expr {
	t := Term{Mul: 1, Div: 1}
	t.Pow[s] = 1
	return Expr{Terms: []Term{t}}
}

// Plus returns e + x.
func (e Expr) Plus(x Expr) Expr {
	return Expr{Constant: e.Constant + x.Constant, Terms: append(append([]Term(nil), e.Terms...), x.Terms...)}
}

// Times returns e · n for an expression without division.
func (e Expr) Times(n int64) Expr {
	out := Expr{Constant: e.Constant * n}
	for _, t := range e.Terms {
		if t.Div != 1 {
			panic("plan: multiple of a quotient")
		}
		t.Mul, t.Add = t.Mul*n, t.Add*n
		out.Terms = append(out.Terms, t)
	}
	return out
}

// Over returns ⌈e / n⌉ for an expression of one term at most, without division.
func (e Expr) Over(n int64) Expr {
	switch {
	case n == 1:
		return e
	case len(e.Terms) == 0:
		return Number((e.Constant + n - 1) / n)
	case len(e.Terms) > 1 || e.Terms[0].Div != 1:
		panic("plan: quotient of a sum or of a quotient")
	}
	t := e.Terms[0]
	t.Add, t.Div = t.Add+e.Constant, n
	return Expr{Terms: []Term{t}}
}

// Multiply returns a · b for numbers and multiples of symbols.
func Multiply(a, b Expr) (Expr, error) {
	if n, ok := a.IsConst(); ok && simple(b) {
		return b.Times(n), nil
	}
	if n, ok := b.IsConst(); ok && simple(a) {
		return a.Times(n), nil
	}
	if !simple(a) || !simple(b) || a.Constant != 0 || b.Constant != 0 {
		return Expr{}, fmt.Errorf("the product of %s and %s is no simple size", a, b)
	}
	t, u := a.Terms[0], b.Terms[0]
	t.Mul *= u.Mul
	for s, p := range u.Pow {
		t.Pow[s] += p
	}
	return Expr{Terms: []Term{t}}, nil
}

// simple reports whether e has one term at most, and no division.
func simple(e Expr) bool {
	return len(e.Terms) == 0 || len(e.Terms) == 1 && e.Terms[0].Div == 1 && e.Terms[0].Add == 0
}

// IsConst reports whether e depends on no symbol, and its value.
func (e Expr) IsConst() (int64, bool) { return e.Constant, len(e.Terms) == 0 }

// Eval returns the number for the given sizes.
func (e Expr) Eval(sizes *sym.Sizes) int64 {
	sum := e.Constant
	for i := range e.Terms {
		t := &e.Terms[i]
		v := t.Mul
		for s, p := range t.Pow {
			for ; p > 0; p-- {
				v *= sizes[s]
			}
		}
		sum += (v + t.Add + t.Div - 1) / t.Div
	}
	return sum
}

// String returns a readable form: "ceil(T/32)+1".
func (e Expr) String() string {
	var parts []string
	for _, t := range e.Terms {
		var f []string
		if t.Mul != 1 {
			f = append(f, fmt.Sprint(t.Mul))
		}
		for s, p := range t.Pow {
			for ; p > 0; p-- {
				f = append(f, sym.Sym(s).String())
			}
		}
		text := strings.Join(f, "*")
		if t.Add != 0 {
			text = fmt.Sprintf("%s%+d", text, t.Add)
		}
		if t.Div != 1 {
			text = fmt.Sprintf("ceil(%s/%d)", text, t.Div)
		}
		parts = append(parts, text)
	}
	if e.Constant != 0 || len(parts) == 0 {
		parts = append(parts, fmt.Sprint(e.Constant))
	}
	return strings.Join(parts, "+")
}
