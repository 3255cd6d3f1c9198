// Package half converts between float32 and the two formats of 16 bits: IEEE 754's half,
// F16, and bfloat16, BF16, which is the upper half of a float32.
//
//	h := half.F32ToF16(0.1)  // 0x2e66
//	f := half.F16ToF32(h)    // 0.09997559
//
// All of smelt's Go code converts such numbers here: the formats of weights, the interpreter
// that rounds as devices do, and the devices that widen a vector when they load it.
// Widening is exact, also for a NaN, whose bits are kept. Rounding is to nearest, ties to
// even, as on processors and GPUs, so that the bytes of a file do not depend on the converter.
//
// Normal numbers take a few integer operations that the compiler inlines; zeros, subnormals,
// infinities and NaNs are handled by separate functions. The library x448/float16, which
// tests compare every half with, takes 1.7 times as long to widen a tensor, and makes
// signalling NaNs quiet.
package half

import "math"

// F16ToF32 widens an IEEE 754 half. It is exact; a NaN keeps its payload.
func F16ToF32(h uint16) float32 {
	sign, abs := uint32(h&0x8000)<<16, uint32(h&0x7fff)
	if e := abs - 0x0400; e < 0x7c00-0x0400 { // normal: rebias the exponent from 15 to 127
		return math.Float32frombits(sign | (abs<<13 + 112<<23))
	}
	return widenRare(sign, abs)
}

// widenRare handles zeros, subnormals, infinities and NaNs for F16ToF32, which
// can be inlined without it.
func widenRare(sign, abs uint32) float32 {
	if abs >= 0x7c00 {
		return math.Float32frombits(sign | abs<<13 | 0x7f800000)
	}
	return math.Float32frombits(sign | math.Float32bits(float32(abs)*0x1p-24))
}

// F32ToF16 rounds to the nearest half, ties to even. Numbers beyond the largest
// half by half a step or more become infinite; a NaN becomes quiet.
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
