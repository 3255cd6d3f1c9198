package quant

import (
	"math"
	"slices"

	"github.com/smelt-ml/smelt/ir/dtype/half"
)

// The groups of 64 elements that MLX packs, as blocks: a scale, a bias and the codes. Codes of
// four bits lie as in Q4_1, 32 elements at a time.
const (
	elemsMLX  = 64
	bytesMLX4 = 36 // d, m half, qs [2][16]
	bytesMLX8 = 68 // d, m half, q [64]
)

func decodeMLX4(dst []float32, src []byte) {
	for ; len(dst) >= elemsMLX; dst, src = dst[elemsMLX:], src[bytesMLX4:] {
		d, m := half.F16ToF32(le.Uint16(src)), half.F16ToF32(le.Uint16(src[2:]))
		for i := range elemsMLX {
			q := src[4+i/32*16+i%16] >> (i % 32 / 16 * 4) & 15
			dst[i] = float32(d*float32(q)) + m
		}
	}
}

func decodeMLX8(dst []float32, src []byte) {
	for ; len(dst) >= elemsMLX; dst, src = dst[elemsMLX:], src[bytesMLX8:] {
		d, m := half.F16ToF32(le.Uint16(src)), half.F16ToF32(le.Uint16(src[2:]))
		for i, q := range src[4:bytesMLX8] {
			dst[i] = float32(d*float32(q)) + m
		}
	}
}

func encodeMLX4(dst []byte, src []float32) int {
	for block := 0; len(src) >= elemsMLX; block, src, dst = block+1, src[elemsMLX:], dst[bytesMLX4:] {
		codes, ok := putAffine(dst, src[:elemsMLX], 15)
		if !ok {
			return block
		}
		for j := range 16 {
			dst[4+j] = codes[j] | codes[j+16]<<4
			dst[20+j] = codes[j+32] | codes[j+48]<<4
		}
	}
	return -1
}

func encodeMLX8(dst []byte, src []float32) int {
	for block := 0; len(src) >= elemsMLX; block, src, dst = block+1, src[elemsMLX:], dst[bytesMLX8:] {
		codes, ok := putAffine(dst, src[:elemsMLX], 255)
		if !ok {
			return block
		}
		copy(dst[4:], codes[:])
	}
	return -1
}

// putAffine stores d and m of a group whose codes are 0 to top, and returns the codes; ok is
// false if a half cannot hold d or m. As in MLX, m is the end of the range of larger magnitude and
// d divides it, so that zero has a code; d is negative if m is the upper end.
func putAffine(dst []byte, x []float32, top float32) (codes [elemsMLX]byte, ok bool) {
	least, most := slices.Min(x), slices.Max(x)
	d, m := max((most-least)/top, 1e-7), least
	if math.Abs(float64(most)) > math.Abs(float64(least)) {
		d, m = -d, most
	}
	if steps := float32(math.RoundToEven(float64(m / d))); steps != 0 {
		d = m / steps
	} else {
		m = 0
	}
	if !fitsHalf(d) || !fitsHalf(m) {
		return codes, false
	}
	le.PutUint16(dst, half.F32ToF16(d))
	le.PutUint16(dst[2:], half.F32ToF16(m))
	for i, v := range x {
		codes[i] = byte(min(max(math.RoundToEven(float64((v-m)/d)), 0), float64(top)))
	}
	return codes, true
}
