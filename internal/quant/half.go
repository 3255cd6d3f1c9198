package quant

import (
	"encoding/binary"
	"math"
)

var le = binary.LittleEndian

// F16ToF32 widens an IEEE 754 half. It is exact; a NaN keeps its payload.
func F16ToF32(h uint16) float32 {
	sign, abs := uint32(h&0x8000)<<16, uint32(h&0x7fff)
	if e := abs - 0x0400; e < 0x7c00-0x0400 { // normal: rebias the exponent from 15 to 127
		return math.Float32frombits(sign | (abs<<13 + 112<<23))
	}
	return widenRare(sign, abs)
}

// widenRare is the part of F16ToF32 for zero, subnormal, infinite and NaN,
// apart so that the common case is inlined.
func widenRare(sign, abs uint32) float32 {
	if abs >= 0x7c00 {
		return math.Float32frombits(sign | abs<<13 | 0x7f800000)
	}
	return math.Float32frombits(sign | math.Float32bits(float32(abs)*0x1p-24))
}

// F32ToF16 rounds to the nearest half, ties to even. What lies beyond the
// largest half by half a step or more becomes infinite; a NaN becomes quiet.
func F32ToF16(f float32) uint16 {
	bits := math.Float32bits(f)
	sign, abs := uint16(bits>>16)&0x8000, bits&0x7fffffff
	if e := abs - 0x38800000; e < 0x47800000-0x38800000 { // 2^-14 ≤ |f| < 2^16
		// Rounding may carry into the exponent, up to infinity: that is the right result.
		return sign | uint16((abs+0xfff+abs>>13&1-112<<23)>>13)
	}
	return sign | narrowRare(abs)
}

func narrowRare(abs uint32) uint16 {
	switch {
	case abs > 0x7f800000:
		return 0x7e00 | uint16(abs>>13)&0x1ff
	case abs >= 0x47800000:
		return 0x7c00
	}
	// The unit in the last place of 0.5 is 2^-24, the step of subnormal halves:
	// the addition rounds to it, ties to even.
	return uint16(math.Float32bits(math.Float32frombits(abs)+0.5) - 0x3f000000)
}

// BF16ToF32 widens a bfloat16. It is exact.
func BF16ToF32(b uint16) float32 { return math.Float32frombits(uint32(b) << 16) }

// F32ToBF16 rounds to the nearest bfloat16, ties to even; a NaN becomes quiet.
func F32ToBF16(f float32) uint16 {
	bits := math.Float32bits(f)
	if bits&0x7fffffff > 0x7f800000 {
		return uint16(bits>>16) | 0x40
	}
	return uint16((bits + 0x7fff + bits>>16&1) >> 16)
}

func decodeF32(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = math.Float32frombits(le.Uint32(src[4*i:]))
	}
}

func encodeF32(dst []byte, src []float32) int {
	for i, v := range src {
		le.PutUint32(dst[4*i:], math.Float32bits(v))
	}
	return -1
}

func decodeF16(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = F16ToF32(le.Uint16(src[2*i:]))
	}
}

func encodeF16(dst []byte, src []float32) int {
	for i, v := range src {
		le.PutUint16(dst[2*i:], F32ToF16(v))
	}
	return -1
}

func decodeBF16(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = BF16ToF32(le.Uint16(src[2*i:]))
	}
}

func encodeBF16(dst []byte, src []float32) int {
	for i, v := range src {
		le.PutUint16(dst[2*i:], F32ToBF16(v))
	}
	return -1
}
