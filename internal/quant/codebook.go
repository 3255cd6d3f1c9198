package quant

import (
	"math"

	"github.com/smelt-ml/smelt/internal/half"
)

// The formats whose four bits name one of sixteen values. Byte j of 16 holds element j in its
// low and element j+16 in its high half, as in the other formats of 32 elements; IQ4_XS has
// eight such groups.
const (
	bytesMXFP4  = 17  // e (2^(e−128) is the scale), qs [16]
	bytesIQ4_NL = 18  // d half, qs [16]
	bytesIQ4_XS = 136 // d half, scales: high pairs uint16, low halves [4], qs [128]
)

// book is what codes stand for.
type book [16]float32

// Table is a list of numbers that codes name. Kernels have it from here.
type Table struct {
	Name   string
	Values []int16
}

// Tables lists those of all types.
func Tables() []Table {
	return []Table{{"iq4", valuesIQ4.whole()}, {"e2m1", valuesMXFP4.whole()}}
}

// whole returns the values of a book whose values are whole.
func (b *book) whole() (values []int16) {
	for _, v := range b {
		values = append(values, int16(v))
	}
	return values
}

// valuesIQ4 ascend, closer to each other about zero: kvalues_iq4nl of ggml-common.h.
var valuesIQ4 = book{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}

// valuesMXFP4 are the numbers of E2M1 (two bits of exponent, one of mantissa), doubled, so that
// they are whole; the scale is half of what the format says. "OCP Microscaling Formats (MX)
// Specification" 1.0, 2023, 5.3.3.
var valuesMXFP4 = book{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}

func (b *book) decode(dst []float32, scale float32, qs []byte) {
	lo, hi := dst[:16], dst[16:32]
	for j, v := range qs[:16] {
		lo[j] = scale * b[v&15]
		hi[j] = scale * b[v>>4]
	}
}

// put stores the codes of 32 elements, of each what code gives.
func put(qs []byte, x []float32, code func(float32) byte) {
	for j := range qs[:16] {
		qs[j] = code(x[j]) | code(x[j+16])<<4
	}
}

// scaleMXFP4 is 2^(e−128), subnormal where e is below 2. What the specification has for NaN,
// 255, is a number, as it is to GGML.
func scaleMXFP4(e byte) float32 {
	if e < 2 {
		return math.Float32frombits(0x00200000 << e)
	}
	return math.Float32frombits(uint32(e-1) << 23)
}

func decodeMXFP4(dst []float32, src []byte) {
	for ; len(dst) >= 32; dst, src = dst[32:], src[bytesMXFP4:] {
		valuesMXFP4.decode(dst, scaleMXFP4(src[0]), src[1:])
	}
}

// encodeMXFP4 takes the scale from the exponent of the largest magnitude, as the specification
// does: what lies above 6/4 of that power of two becomes 6/4 of it. Of codes that are as close
// the first is taken. A block that is smaller than any scale allows has the least one, where
// GGML's exponent would wrap around.
func encodeMXFP4(dst []byte, src []float32) int {
	for block := 0; len(src) >= 32; block, src, dst = block+1, src[32:], dst[bytesMXFP4:] {
		amax := abs32(extreme(src[:32]))
		if !(amax <= math.MaxFloat32) {
			return block
		}
		dst[0] = exponentMXFP4(amax)
		scale := scaleMXFP4(dst[0])
		var all book
		for i, v := range valuesMXFP4 {
			all[i] = v * scale
		}
		put(dst[1:], src, all.nearest)
	}
	return -1
}

// exponentMXFP4 rounds the logarithm to a float32, as GGML does: what is a hair below a power
// of two has that one's exponent.
func exponentMXFP4(amax float32) byte {
	if amax == 0 {
		return 0
	}
	log := float32(math.Log2(float64(amax)))
	return byte(max(math.Floor(float64(log))-2+127, 0))
}

// nearest is the first of the closest values, in any order.
func (b *book) nearest(x float32) byte {
	best, least := 0, abs32(b[0]-x)
	for i, v := range b[1:] {
		if d := abs32(v - x); d < least {
			best, least = i+1, d
		}
	}
	return byte(best)
}

func decodeIQ4_NL(dst []float32, src []byte) {
	for ; len(dst) >= 32; dst, src = dst[32:], src[bytesIQ4_NL:] {
		valuesIQ4.decode(dst, half.F16ToF32(le.Uint16(src)), src[2:])
	}
}

// encodeIQ4_NL stores the scale of searchIQ4, and the codes that it gives as a float.
func encodeIQ4_NL(dst []byte, src []float32) int {
	for block := 0; len(src) >= 32; block, src, dst = block+1, src[32:], dst[bytesIQ4_NL:] {
		scale, ok := searchIQ4(src)
		if !ok || !fitsHalf(scale) {
			return block
		}
		le.PutUint16(dst, half.F32ToF16(scale))
		inv := ratio(1, scale)
		put(dst[2:], src, func(x float32) byte { return valuesIQ4.closest(inv * x) })
	}
	return -1
}

// scaleIQ4_XS is the scale of group g of eight, without d: four bits of it lie in a byte that
// two groups share, two in the word before.
func scaleIQ4_XS(block []byte, g int) int32 {
	return int32(block[4+g/2]>>(g%2*4)&15|byte(le.Uint16(block[2:])>>(2*g)&3)<<4) - 32
}

func decodeIQ4_XS(dst []float32, src []byte) {
	for ; len(dst) >= superBlock; dst, src = dst[superBlock:], src[bytesIQ4_XS:] {
		d := half.F16ToF32(le.Uint16(src))
		for g := range 8 {
			valuesIQ4.decode(dst[32*g:], d*float32(scaleIQ4_XS(src, g)), src[8+16*g:])
		}
	}
}

// encodeIQ4_XS rounds the scales of searchIQ4 to multiples of d, of which the one of largest
// magnitude is -32, and takes the codes that these give before d is rounded to a half.
func encodeIQ4_XS(dst []byte, src []float32) int {
	for block := 0; len(src) >= superBlock; block, src, dst = block+1, src[superBlock:], dst[bytesIQ4_XS:] {
		var scales [8]float32
		for g := range scales {
			var ok bool
			if scales[g], ok = searchIQ4(src[32*g:]); !ok {
				return block
			}
		}
		d := extreme(scales[:]) / -32
		if !fitsHalf(d) {
			return block
		}
		le.PutUint16(dst, half.F32ToF16(d))
		inv := ratio(1, d)
		var high uint16
		low := dst[4:8]
		clear(low)
		for g, s := range scales {
			l := min(max(roundEven(inv*s), -32), 31)
			each := ratio(1, d*float32(l))
			put(dst[8+16*g:], src[32*g:], func(x float32) byte { return valuesIQ4.closest(each * x) })
			low[g/2] |= byte((l+32)&15) << (g % 2 * 4)
			high |= uint16((l+32)>>4) << (2 * g)
		}
		le.PutUint16(dst[2:], high)
	}
	return -1
}

// searchIQ4 finds the scale with which values of the book are close to the first 32 elements of
// x, each error weighted by x². It starts from the scale that maps the element of largest
// magnitude to the book's first value, and then maps it to whole numbers up to seven from there,
// giving each set of codes its least-squares scale; the operations and their order are GGML's.
// It reports false where an element is out of range.
func searchIQ4(x []float32) (float32, bool) {
	x = x[:32]
	top := extreme(x)
	if !inRange(x) {
		return 0, false
	}
	if abs32(top) < smallestScale {
		return 0, true
	}
	var weights [32]float32
	for j, v := range x {
		weights[j] = v * v
	}
	sums := func(inv float32) (qx, qq float32) {
		for j, v := range x {
			q := valuesIQ4[valuesIQ4.closest(inv*v)]
			wq := float32(weights[j] * q)
			qx += float32(wq * v)
			qq += float32(wq * q)
		}
		return
	}
	first := valuesIQ4[0]
	qx, qq := sums(1 / (-top / first))
	scale := ratio(qx, qq)
	best := scale * qx
	for step := float32(-tries); step <= tries; step++ {
		qx, qq := sums((step + first) / top)
		if qq > 0 && float32(qx*qx) > best*qq {
			scale = qx / qq
			best = scale * qx
		}
	}
	return scale, true
}

// tries are to each side.
const tries = 7

// closest is the nearest value of a book that ascends, the upper one of two as close.
func (b *book) closest(x float32) byte {
	if x <= b[0] {
		return 0
	}
	if x >= b[15] {
		return 15
	}
	low, high := 0, 15
	for high-low > 1 {
		if middle := (low + high) / 2; x < b[middle] {
			high = middle
		} else {
			low = middle
		}
	}
	if x-b[low] < b[high]-x {
		return byte(low)
	}
	return byte(high)
}
