package constrain

import (
	"fmt"
	"math/big"
)

// numbers builds expressions for JSON numbers. Numbers with a bound, a multiple or a fixed value
// are written without an exponent, since with one the leading digits would not determine which
// values are allowed.
type numbers struct {
	*pool
	any     re // any notation
	plain   re // without an exponent
	integer re // without a fraction
	whole   re // with a zero fraction
	digits  re // plain, without the sign
	zeros   re // an optional fraction of zeros
	// Each number's shortest notation, and also that with one zero behind the point.
	shortest, short re
	parsed          map[string]re
}

func newNumbers(p *pool) *numbers {
	n := &numbers{pool: p, parsed: map[string]re{}}
	n.zeros = n.must(`(\.0+)?`)
	n.any = n.must(`-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?`)
	n.digits = n.must(`(0|[1-9][0-9]*)(\.[0-9]+)?`)
	n.plain = p.cat(p.optional(p.byte('-')), n.digits)
	n.integer = n.must(`-?(0|[1-9][0-9]*)`)
	n.whole = p.cat(n.integer, n.zeros)
	n.shortest = n.must(`0|-?[1-9][0-9]*|-?(0|[1-9][0-9]*)\.[0-9]*[1-9]`)
	n.short = n.must(`-?(0|[1-9][0-9]*)(\.0|\.[0-9]*[1-9])?`)
	return n
}

// must parses an expression of this file and panics if it is invalid.
func (n *numbers) must(expr string) re {
	if r, ok := n.parsed[expr]; ok {
		return r
	}
	e, err := parseExpression(expr)
	if err != nil {
		panic(fmt.Sprintf("constrain: %v", err))
	}
	r, err := n.pool.whole(e)
	if err != nil {
		panic(fmt.Sprintf("constrain: %v", err))
	}
	n.parsed[expr] = r
	return r
}

func (n *numbers) both(a, b re) re {
	switch {
	case a == reNone || b == reNone:
		return reNone
	case a == n.any:
		return b
	case b == n.any:
		return a
	}
	return n.and(a, b)
}

func (n *numbers) except(a re) re {
	switch a {
	case n.any:
		return reNone
	case reNone:
		return n.any
	}
	return n.and(n.plain, n.not(a))
}

// written returns the notations of d as a constant; a whole number may have one zero behind the
// point. Unlimited zeros would let a model write them without end.
func (n *numbers) written(d decimal) re {
	text := d.whole
	if text == "" {
		text = "0"
	}
	if d.negative && !d.zero() {
		text = "-" + text
	}
	if d.fraction != "" {
		return n.literal(text + "." + d.fraction)
	}
	return n.cat(n.literal(text), n.optional(n.literal(".0")))
}

// equal returns all plain notations of d.
func (n *numbers) equal(d decimal) re {
	whole := d.whole
	if whole == "" {
		whole = "0"
	}
	sign := reEps
	if d.zero() {
		sign = n.optional(n.byte('-'))
	} else if d.negative {
		sign = n.byte('-')
	}
	fraction := n.zeros
	if d.fraction != "" {
		fraction = n.cat(n.literal("."+d.fraction), n.repeat(n.byte('0'), 0, unlimited))
	}
	return n.cat(sign, n.literal(whole), fraction)
}

// atLeast returns the numbers >= d, or > d if beyond is set; atMost those <= d, or < d.
func (n *numbers) atLeast(d decimal, beyond bool) re {
	minus := n.byte('-')
	if d.zero() {
		// The sign decides for every exponent, except for -0.
		positive := n.must(`(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?`)
		zero := n.must(`-?0(\.0+)?([eE][+-]?[0-9]+)?`)
		if beyond {
			return n.and(positive, n.not(zero))
		}
		return n.or(positive, zero)
	}
	if !d.negative {
		return n.compared(d, false, !beyond, true)
	}
	return n.or(n.digits, n.cat(minus, n.compared(d, true, !beyond, false)))
}

func (n *numbers) atMost(d decimal, beyond bool) re {
	minus := n.byte('-')
	if d.zero() {
		zero := n.must(`-?0(\.0+)?([eE][+-]?[0-9]+)?`)
		negative := n.must(`-(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?`)
		if beyond {
			return n.and(negative, n.not(zero))
		}
		return n.or(negative, zero)
	}
	if d.negative {
		return n.cat(minus, n.compared(d, false, !beyond, true))
	}
	return n.or(n.cat(minus, n.digits), n.compared(d, true, !beyond, false))
}

// compared returns the unsigned digits of numbers less than, equal to or greater than |d|, as
// selected.
func (n *numbers) compared(d decimal, less, equal, greater bool) re {
	m := &comparison{whole: d.whole, fraction: d.fraction, less: less, equal: equal, greater: greater}
	m.name = fmt.Sprintf("compare %s.%s %v %v %v", d.whole, d.fraction, less, equal, greater)
	return n.automaton(m, 0)
}

// comparison is a machine that compares unsigned plain digits with a number as they arrive.
type comparison struct {
	whole, fraction      string
	less, equal, greater bool
	name                 string
}

func (m *comparison) key() string { return m.name }

// A state is phase·2^20 + count·4 + order; order is 0 for equal so far, 1 for less, 2 for greater.
const (
	phaseWhole = iota // in the whole part, count digits read
	phaseZero         // behind a leading zero
	phasePoint        // behind the point, no digit yet
	phaseFraction
)

func packState(phase, count, order int) int32 { return int32(phase<<20 | count<<2 | order) }

func (m *comparison) step(s int32, b byte) int32 {
	phase, count, order := int(s>>20), int(s>>2)&(1<<18-1), int(s&3)
	digit := b >= '0' && b <= '9'
	orderOf := func(b, with byte) int {
		switch {
		case order != 0 || b == with:
			return order
		case b < with:
			return 1
		}
		return 2
	}
	switch {
	case b == '.' && (phase == phaseWhole && count > 0 || phase == phaseZero):
		return packState(phasePoint, 0, m.settled(phase, count, order))
	case !digit || phase == phaseZero:
		return -1
	case phase == phaseWhole && count == 0 && b == '0':
		return packState(phaseZero, 0, 0)
	case phase == phaseWhole:
		if count >= len(m.whole) {
			return packState(phase, len(m.whole)+1, 2)
		}
		return packState(phase, count+1, orderOf(b, m.whole[count]))
	}
	with := byte('0')
	if count < len(m.fraction) {
		with = m.fraction[count]
	}
	return packState(phaseFraction, min(count+1, len(m.fraction)+1), orderOf(b, with))
}

// settled returns the order of the whole parts when the whole part ends.
func (m *comparison) settled(phase, count, order int) int {
	if phase == phaseZero {
		count = 0
	}
	switch {
	case count < len(m.whole):
		return 1
	case count > len(m.whole):
		return 2
	}
	return order
}

func (m *comparison) accepts(s int32) bool {
	phase, count, order := int(s>>20), int(s>>2)&(1<<18-1), int(s&3)
	switch phase {
	case phaseWhole:
		if count == 0 {
			return false
		}
		fallthrough
	case phaseZero:
		order = m.settled(phase, count, order)
		count = 0
	case phasePoint:
		return false
	}
	if order == 0 && count < len(m.fraction) {
		order = 1
	}
	return [3]bool{m.equal, m.less, m.greater}[order]
}

// multiples returns the multiples of d.
func (n *numbers) multiples(d decimal) (re, error) {
	if d.negative || d.zero() {
		return reNone, fmt.Errorf("want a number greater than 0")
	}
	// d = divisor / 10^places
	divisor, ok := new(big.Int).SetString("0"+d.whole+d.fraction, 10)
	if !ok || divisor.BitLen() > 16 {
		return reNone, fmt.Errorf("multiples of a number of so many digits are not supported")
	}
	m := &multiple{divisor: int32(divisor.Int64()), places: len(d.fraction), name: "multiple " + d.whole + "." + d.fraction}
	return n.cat(n.optional(n.byte('-')), n.automaton(m, 0)), nil
}

// multiple is a machine that accepts unsigned plain digits of the multiples of divisor/10^places. A
// state combines the remainder with a phase: 0 no digit, 1 whole digits, 2 a leading zero, 3+n
// behind the point with n decimals read; decimals beyond places must be zeros.
type multiple struct {
	divisor int32
	places  int
	name    string
}

func (m *multiple) key() string { return m.name }

func (m *multiple) step(s int32, b byte) int32 {
	phase, rest := int(s>>17), s&(1<<17-1)
	if b == '.' {
		if phase == 1 || phase == 2 {
			return 3<<17 | rest
		}
		return -1
	}
	if b < '0' || b > '9' || phase == 2 {
		return -1
	}
	next := (rest*10 + int32(b-'0')) % m.divisor
	switch {
	case phase == 0 && b == '0':
		return 2 << 17
	case phase <= 1:
		return 1<<17 | next
	case phase-3 < m.places:
		return int32(phase+1)<<17 | next
	case b != '0':
		return -1
	}
	return int32(m.places+4)<<17 | rest
}

func (m *multiple) accepts(s int32) bool {
	phase, rest := int(s>>17), int64(s&(1<<17-1))
	if phase == 0 || phase == 3 {
		return false
	}
	decimals := 0
	if phase > 3 {
		decimals = min(phase-3, m.places)
	}
	for ; decimals < m.places; decimals++ {
		rest = rest * 10 % int64(m.divisor)
	}
	return rest == 0
}
