package ir

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"

	"github.com/smelt-ml/smelt/ir/sym"
)

// Dim is one extent of a shape: mul·(product of symbols) + add. The zero value
// is the constant 0, which no valid shape contains.
type Dim struct {
	mul int64
	pow [sym.Count]uint8
	add int64
}

// Const returns the extent n.
func Const(n int) Dim { return Dim{add: int64(n)} }

// Var returns the extent s.
func Var(s sym.Sym) Dim {
	d := Dim{mul: 1}
	d.pow[s] = 1
	return d
}

// IsConst returns the value of a d without symbols; ok is false for any other d.
func (d Dim) IsConst() (n int64, ok bool) { return d.add, d.mul == 0 }

// Plus returns d + n.
func (d Dim) Plus(n int64) Dim {
	d.add += n
	return d
}

// Times returns d·e; ok is false where no Dim represents it: a sum times a symbol, or a
// product beyond maxExtent or maxPower.
func (d Dim) Times(e Dim) (product Dim, ok bool) {
	if d.mul == 0 {
		d, e = e, d
	}
	if e.mul == 0 { // a constant factor
		if d.mul, ok = multiply(d.mul, e.add); !ok {
			return Dim{}, false
		}
		if d.add, ok = multiply(d.add, e.add); !ok {
			return Dim{}, false
		}
		if d.mul == 0 {
			d.pow = [sym.Count]uint8{}
		}
		return d, true
	}
	if d.add != 0 || e.add != 0 {
		return Dim{}, false
	}
	if d.mul, ok = multiply(d.mul, e.mul); !ok {
		return Dim{}, false
	}
	for s := range d.pow {
		if d.pow[s] += e.pow[s]; d.pow[s] > maxPower {
			return Dim{}, false
		}
	}
	return d, true
}

const (
	maxExtent = 1 << 48 // elements; no valid tensor has more
	maxPower  = 3
)

func multiply(a, b int64) (int64, bool) {
	hi, lo := bits.Mul64(uint64(max(a, -a)), uint64(max(b, -b)))
	if hi != 0 || lo > maxExtent {
		return 0, false
	}
	return a * b, true
}

// Eval returns the extent under the given sizes.
func (d Dim) Eval(sizes *sym.Sizes) int64 {
	if d.mul == 0 {
		return d.add
	}
	v := d.mul
	for s, p := range d.pow {
		for ; p > 0; p-- {
			v *= sizes[s]
		}
	}
	return v + d.add
}

// Term returns mul, pow and add of d = mul·Π symbol^pow + add, for serialisation.
func (d Dim) Term() (mul int64, pow [sym.Count]uint8, add int64) { return d.mul, d.pow, d.add }

// String returns the text form: "2048", "T", "B+1", "8*T", "B*Smax".
func (d Dim) String() string {
	if d.mul == 0 {
		return strconv.FormatInt(d.add, 10)
	}
	var factors []string
	if d.mul != 1 {
		factors = append(factors, strconv.FormatInt(d.mul, 10))
	}
	for s, p := range d.pow {
		for ; p > 0; p-- {
			factors = append(factors, sym.Sym(s).String())
		}
	}
	text := strings.Join(factors, "*")
	if d.add != 0 {
		text += fmt.Sprintf("%+d", d.add)
	}
	return text
}

// ParseDim is the inverse of String.
func ParseDim(text string) (Dim, error) {
	product, offset := text, int64(0)
	if i := strings.LastIndexAny(text, "+-"); i > 0 {
		n, err := strconv.ParseInt(text[i:], 10, 64)
		if err != nil || n == 0 || n > maxExtent || n < -maxExtent {
			return Dim{}, fmt.Errorf("bad extent %q", text)
		}
		product, offset = text[:i], n
	}
	d := Const(1)
	for _, factor := range strings.Split(product, "*") {
		f, err := parseFactor(factor)
		if err != nil {
			return Dim{}, fmt.Errorf("bad extent %q: %w", text, err)
		}
		var ok bool
		if d, ok = d.Times(f); !ok {
			return Dim{}, fmt.Errorf("bad extent %q", text)
		}
	}
	return d.Plus(offset), nil
}

func parseFactor(text string) (Dim, error) {
	if s, ok := sym.Parse(text); ok {
		return Var(s), nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > maxExtent {
		return Dim{}, fmt.Errorf("%q is neither a size nor a symbol", text)
	}
	return Dim{add: n}, nil
}
