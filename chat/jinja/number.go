package jinja

import (
	"cmp"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
)

// large is an integer beyond 64 bits.
type large struct{ *big.Int }

func (large) kind() string { return "integer" }

// maxDigits is the maximum length of an integer, as in Python.
const (
	maxDigits = 4300
	maxBits   = 14285
)

// integer64 returns the value of a whole number.
func integer64(i *big.Int) Value {
	switch {
	case i.IsInt64():
		return Int(i.Int64())
	case i.BitLen() > maxBits:
		fail("%w: an integer of more than %d digits", ErrLimit, maxDigits)
	}
	return large{i}
}

// integerOf parses an integer; nil means that the text is none.
func integerOf(digits string) (Value, error) {
	if i, err := strconv.ParseInt(digits, 10, 64); err == nil {
		return Int(i), nil
	}
	if strings.Trim(strings.TrimLeft(digits, "+-"), "0123456789") != "" {
		return nil, nil
	}
	if len(digits) > maxDigits {
		return nil, fmt.Errorf("%w: an integer of more than %d digits", ErrLimit, maxDigits)
	}
	i, ok := new(big.Int).SetString(digits, 10)
	if !ok {
		return nil, nil
	}
	return large{i}, nil
}

// number returns a number's value; booleans are 0 and 1.
func number(v Value) (float64, bool) {
	switch v := v.(type) {
	case Float:
		return float64(v), true
	case large:
		f, _ := v.Float64()
		return f, true
	}
	i, ok := integer(v)
	return float64(i), ok
}

// integer returns the value of an integer of 64 bits; booleans are 0 and 1.
func integer(v Value) (int64, bool) {
	switch v := v.(type) {
	case Int:
		return int64(v), true
	case Bool:
		if v {
			return 1, true
		}
		return 0, true
	}
	return 0, false
}

// whole returns the value of an integer of any size; nil for other values.
func whole(v Value) *big.Int {
	if v, ok := v.(large); ok {
		return v.Int
	}
	if i, ok := integer(v); ok {
		return big.NewInt(i)
	}
	return nil
}

// exact returns a number's value without rounding; nil for other values and for NaN.
func exact(v Value) *big.Float {
	if f, ok := v.(Float); ok && !math.IsNaN(float64(f)) {
		return big.NewFloat(float64(f))
	}
	if i := whole(v); i != nil {
		return new(big.Float).SetInt(i)
	}
	return nil
}

// compareNumbers compares two numbers; ok is false if one is none, or NaN.
func compareNumbers(a, b Value) (order int, ok bool) {
	x, okX := a.(Int)
	y, okY := b.(Int)
	if okX && okY {
		return cmp.Compare(x, y), true
	}
	f, g := exact(a), exact(b)
	if f == nil || g == nil {
		return 0, false
	}
	return f.Cmp(g), true
}

func arithmetic(ints func(z, a, b *big.Int) *big.Int, floats func(a, b float64) float64) func(*run, Value, Value) Value {
	return func(r *run, a, b Value) Value {
		if x, y := whole(a), whole(b); x != nil && y != nil {
			r.step(len(x.Bits()) * len(y.Bits()) >> 4)
			return integer64(ints(new(big.Int), x, y))
		}
		x, okX := number(a)
		y, okY := number(b)
		if !okX || !okY {
			return nil
		}
		return Float(floats(x, y))
	}
}

var (
	plus  = arithmetic((*big.Int).Add, func(a, b float64) float64 { return a + b })
	minus = arithmetic((*big.Int).Sub, func(a, b float64) float64 { return a - b })
	times = arithmetic((*big.Int).Mul, func(a, b float64) float64 { return a * b })
	// The quotient is rounded down, and the remainder has the divisor's sign, as in Python.
	quotient = arithmetic(func(z, a, b *big.Int) *big.Int {
		z, _ = floored(z, a, b)
		return z
	}, func(a, b float64) float64 { return math.Floor(a / nonzero(b)) })
	remainder = arithmetic(func(z, a, b *big.Int) *big.Int {
		_, z = floored(z, a, b)
		return z
	}, func(a, b float64) float64 {
		m := math.Mod(a, nonzero(b))
		if m != 0 && (m < 0) != (b < 0) {
			m += b
		}
		return m
	})
)

func floored(z, a, b *big.Int) (q, m *big.Int) {
	nonzero(float64(b.Sign()))
	q, m = z.QuoRem(a, b, new(big.Int))
	if m.Sign() != 0 && m.Sign() != b.Sign() {
		q.Sub(q, big.NewInt(1))
		m.Add(m, b)
	}
	return q, m
}

func nonzero(x float64) float64 {
	if x == 0 {
		fail("division by zero")
	}
	return x
}

func power(r *run, a, b Value) Value {
	x, okX := number(a)
	y, okY := number(b)
	if !okX || !okY {
		return nil
	}
	if i, j := whole(a), whole(b); i != nil && j != nil && j.Sign() >= 0 {
		if bits := float64(i.BitLen()-1) * y; bits > maxBits {
			fail("%w: an integer of more than %d digits", ErrLimit, maxDigits)
		} else if bits > 0 {
			r.step(int(bits) >> 3)
		}
		return integer64(new(big.Int).Exp(i, j, nil))
	}
	f := math.Pow(x, y)
	if math.IsInf(f, 0) || math.IsNaN(f) {
		fail("the result of ** is not a number")
	}
	return Float(f)
}

// formatFloat formats a number like Python: the shortest digits that identify it, with a point or
// an exponent.
func formatFloat(f float64) string {
	switch {
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	case math.IsNaN(f):
		return "nan"
	}
	if size := math.Abs(f); f != 0 && (size < 1e-4 || size >= 1e16) {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// truncated returns the integer part of a number that is finite, otherwise the number.
func truncated(f Float) Value {
	if math.IsInf(float64(f), 0) || math.IsNaN(float64(f)) {
		return f
	}
	i, _ := exact(f).Int(nil)
	return integer64(i)
}
