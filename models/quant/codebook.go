package quant

import (
	"math"

	"github.com/smelt-ml/smelt/ir/dtype/half"
)

// The formats whose 4-bit codes index a codebook of sixteen values. Byte j of 16 holds element
// j in its low and element j+16 in its high nibble, as in the other formats of 32 elements; a
// block of IQ4_XS has eight such groups.
const (
	bytesMXFP4  = 17  // e (2^(e−128) is the scale), qs [16]
	bytesIQ4_NL = 18  // d half, qs [16]
	bytesIQ4_XS = 136 // d half, scales: high pairs uint16, low halves [4], qs [128]
)

// book is a codebook: the values of the codes 0 to 15.
type book [16]float32

// Table is a codebook of whole numbers. The codebooks of the kernels are generated from it.
type Table struct {
	Name   string
	Values []int16
}

// Tables returns the codebooks of all types.
func Tables() []Table {
	return []Table{{"iq4", valuesIQ4.whole()}, {"e2m1", valuesMXFP4.whole()}}
}

// whole returns the values of a book of whole numbers as integers.
func (b *book) whole() (values []int16) {
	for _, v := range b {
		values = append(values, int16(v))
	}
	return values
}

// valuesIQ4 is the codebook of IQ4_NL and IQ4_XS, in ascending order and denser around zero:
// kvalues_iq4nl of ggml-common.h.
var valuesIQ4 = book{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}

// valuesMXFP4 holds the numbers of E2M1 (two bits of exponent, one of mantissa), doubled to make
// them whole; the scale is half of the format's. "OCP Microscaling Formats (MX)
// Specification" 1.0, 2023, 5.3.3.
var valuesMXFP4 = book{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}

func (b *book) decode(dst []float32, scale float32, qs []byte) {
	lo, hi := dst[:16], dst[16:32]
	for j, v := range qs[:16] {
		lo[j] = scale * b[v&15]
		hi[j] = scale * b[v>>4]
	}
}

// put stores the codes of 32 elements, computed by code.
func put(qs []byte, x []float32, code func(float32) byte) {
	for j := range qs[:16] {
		qs[j] = code(x[j]) | code(x[j+16])<<4
	}
}

// scaleMXFP4 returns 2^(e−128), which is subnormal for e < 2. The exponent 255, NaN in the
// specification, is an ordinary exponent here as in GGML.
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
// does: magnitudes above 6/4 of that power of two are clamped to 6/4 of it. Of equally close
// codes it takes the first. A block below the range of scales gets the smallest scale, where
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

// exponentMXFP4 returns the exponent of a block's scale. It rounds the logarithm to a float32,
// as GGML does: a magnitude one ulp or so below a power of two gets that power's exponent.
func exponentMXFP4(amax float32) byte {
	if amax == 0 {
		return 0
	}
	log := float32(math.Log2(float64(amax)))
	return byte(max(math.Floor(float64(log))-2+127, 0))
}

// nearest returns the code of the closest value, the first of several. The book need not ascend.
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

// encodeIQ4_NL stores the scale of searchIQ4, and the codes for that scale before it is rounded
// to a half.
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

// scaleIQ4_XS returns the integer scale of group g of eight: its low four bits lie in a byte
// that two groups share, its high two bits in the word before.
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

// encodeIQ4_XS rounds the scales of searchIQ4 to multiples of d, where the scale of largest
// magnitude is -32·d, and computes the codes for these scales before d is rounded to a half.
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

// searchIQ4 returns the scale that brings values of the book close to the first 32 elements of
// x, each error weighted by x²; false if an element is out of range. It maps the element of
// largest magnitude to the book's first value, then to each whole number within seven of it, and
// gives each set of codes its least-squares scale. The operations and their order are GGML's.
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

// tries is the number of targets of searchIQ4 on each side of the first.
const tries = 7

// closest returns the code of the nearest value of an ascending book, the upper of two equally
// near.
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
