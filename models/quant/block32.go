package quant

import (
	"math"

	"github.com/smelt-ml/smelt/ir/dtype/half"
)

// The formats with blocks of 32 elements. In the 4-bit and 5-bit formats, byte j
// of the 16 bytes qs holds element j in its low and element j+16 in its high
// nibble.
const (
	bytesQ8_0 = 34 // d half, q [32]int8
	bytesQ4_0 = 18 // d half, qs [16]
	bytesQ4_1 = 20 // d, m half, qs [16]
	bytesQ5_0 = 22 // d half, qh uint32 (bit j: fifth bit of element j), qs [16]
	bytesQ5_1 = 24 // d, m half, qh uint32, qs [16]
)

// fitsHalf reports whether a scale rounds to a finite half.
func fitsHalf(d float32) bool { return math.Abs(float64(d)) < 65520 }

func decodeQ8_0(dst []float32, src []byte) {
	for ; len(dst) >= 32; dst, src = dst[32:], src[bytesQ8_0:] {
		d := half.F16ToF32(le.Uint16(src))
		out, q := dst[:32], src[2:34]
		for j, v := range q {
			out[j] = d * float32(int8(v))
		}
	}
}

// encodeQ8_0 stores d = max|x|/127 and q = round(x/d), ties away from zero.
func encodeQ8_0(dst []byte, src []float32) int {
	for block := 0; len(src) >= 32; block, src, dst = block+1, src[32:], dst[bytesQ8_0:] {
		in, q := src[:32], dst[2:34]
		// The bits of absolute values, compared as integers, order like the values;
		// infinities and NaNs are the largest.
		var a, b uint32
		for j := 0; j < 32; j += 2 {
			a = max(a, math.Float32bits(in[j])&0x7fffffff)
			b = max(b, math.Float32bits(in[j+1])&0x7fffffff)
		}
		d := math.Float32frombits(max(a, b)) / 127
		if !fitsHalf(d) {
			return block
		}
		le.PutUint16(dst, half.F32ToF16(d))
		id := ratio(1, d)
		for j, v := range in {
			// The sum is exact in float64: a fraction just under a half does not round up.
			y := float64(v * id)
			q[j] = byte(int32(y + math.Copysign(0.5, y)))
		}
	}
	return -1
}

func decodeQ4_0(dst []float32, src []byte) {
	for ; len(dst) >= 32; dst, src = dst[32:], src[bytesQ4_0:] {
		d := half.F16ToF32(le.Uint16(src))
		lo, hi, qs := dst[:16], dst[16:32], src[2:18]
		for j, v := range qs {
			lo[j] = d * float32(int(v&15)-8)
			hi[j] = d * float32(int(v>>4)-8)
		}
	}
}

// encodeQ4_0 stores d = x/-8 for the x of largest magnitude (the first of
// several) and q = min(15, trunc(x/d + 8.5)).
func encodeQ4_0(dst []byte, src []float32) int {
	for block := 0; len(src) >= 32; block, src, dst = block+1, src[32:], dst[bytesQ4_0:] {
		lo, hi, qs := src[:16], src[16:32], dst[2:18]
		d := extreme(src[:32]) / -8
		if !fitsHalf(d) {
			return block
		}
		le.PutUint16(dst, half.F32ToF16(d))
		id := ratio(1, d)
		for j := range qs {
			// The conversions forbid a fused multiply-add.
			x0 := int32(float32(lo[j]*id) + 8.5)
			x1 := int32(float32(hi[j]*id) + 8.5)
			qs[j] = byte(min(x0, 15) | min(x1, 15)<<4)
		}
	}
	return -1
}

// extreme returns the element of largest magnitude, the first of several; a NaN
// counts as the largest.
func extreme(x []float32) float32 {
	var amax, bits uint32
	for _, v := range x {
		b := math.Float32bits(v)
		if a := b & 0x7fffffff; a > amax {
			amax, bits = a, b
		}
	}
	return math.Float32frombits(bits)
}

func decodeQ4_1(dst []float32, src []byte) {
	for ; len(dst) >= 32; dst, src = dst[32:], src[bytesQ4_1:] {
		d, m := half.F16ToF32(le.Uint16(src)), half.F16ToF32(le.Uint16(src[2:]))
		lo, hi, qs := dst[:16], dst[16:32], src[4:20]
		for j, v := range qs {
			lo[j] = float32(d*float32(v&15)) + m
			hi[j] = float32(d*float32(v>>4)) + m
		}
	}
}

// encodeQ4_1 stores d = (max − min)/15, m = min and q = min(15, trunc((x − m)/d + 0.5)).
func encodeQ4_1(dst []byte, src []float32) int {
	for block := 0; len(src) >= 32; block, src, dst = block+1, src[32:], dst[bytesQ4_1:] {
		d, m, ok := putRange(dst, src[:32], 15)
		if !ok {
			return block
		}
		lo, hi, qs, id := src[:16], src[16:32], dst[4:20], ratio(1, d)
		for j := range qs {
			x0 := int32(float32((lo[j]-m)*id) + 0.5)
			x1 := int32(float32((hi[j]-m)*id) + 0.5)
			qs[j] = byte(min(x0, 15) | min(x1, 15)<<4)
		}
	}
	return -1
}

// putRange stores d and m of a block whose quants are 0 to top, and returns them
// unrounded; ok is false if a half cannot hold them.
func putRange(dst []byte, x []float32, top float32) (d, m float32, ok bool) {
	least, most := x[0], x[0]
	for _, v := range x {
		// A NaN replaces any number, and the first of several zeros stays.
		if v < least || v != v {
			least = v
		}
		if v > most || v != v {
			most = v
		}
	}
	d = (most - least) / top
	if !fitsHalf(d) || !fitsHalf(least) {
		return 0, 0, false
	}
	le.PutUint16(dst, half.F32ToF16(d))
	le.PutUint16(dst[2:], half.F32ToF16(least))
	return d, least, true
}

func decodeQ5_0(dst []float32, src []byte) {
	for ; len(dst) >= 32; dst, src = dst[32:], src[bytesQ5_0:] {
		d, qh := half.F16ToF32(le.Uint16(src)), le.Uint32(src[2:])
		lo, hi, qs := dst[:16], dst[16:32], src[6:22]
		for j, v := range qs {
			lo[j] = d * float32(int32(uint32(v&15)|qh>>j&1<<4)-16)
			hi[j] = d * float32(int32(uint32(v>>4)|qh>>(j+16)&1<<4)-16)
		}
	}
}

// encodeQ5_0 stores d = x/-16 for the x of largest magnitude (the first of
// several) and q = min(31, trunc(x/d + 16.5)).
func encodeQ5_0(dst []byte, src []float32) int {
	for block := 0; len(src) >= 32; block, src, dst = block+1, src[32:], dst[bytesQ5_0:] {
		lo, hi, qs := src[:16], src[16:32], dst[6:22]
		d := extreme(src[:32]) / -16
		if !fitsHalf(d) {
			return block
		}
		le.PutUint16(dst, half.F32ToF16(d))
		id := ratio(1, d)
		var high uint32
		for j := range qs {
			x0 := min(int32(float32(lo[j]*id)+16.5), 31)
			x1 := min(int32(float32(hi[j]*id)+16.5), 31)
			qs[j] = byte(x0&15 | x1<<4)
			high |= uint32(x0>>4)<<j | uint32(x1>>4)<<(j+16)
		}
		le.PutUint32(dst[2:], high)
	}
	return -1
}

func decodeQ5_1(dst []float32, src []byte) {
	for ; len(dst) >= 32; dst, src = dst[32:], src[bytesQ5_1:] {
		d, m, qh := half.F16ToF32(le.Uint16(src)), half.F16ToF32(le.Uint16(src[2:])), le.Uint32(src[4:])
		lo, hi, qs := dst[:16], dst[16:32], src[8:24]
		for j, v := range qs {
			lo[j] = float32(d*float32(uint32(v&15)|qh>>j&1<<4)) + m
			hi[j] = float32(d*float32(uint32(v>>4)|qh>>(j+16)&1<<4)) + m
		}
	}
}

// encodeQ5_1 stores d = (max − min)/31, m = min and q = trunc((x − m)/d + 0.5).
func encodeQ5_1(dst []byte, src []float32) int {
	for block := 0; len(src) >= 32; block, src, dst = block+1, src[32:], dst[bytesQ5_1:] {
		d, m, ok := putRange(dst, src[:32], 31)
		if !ok {
			return block
		}
		lo, hi, qs, id := src[:16], src[16:32], dst[8:24], ratio(1, d)
		var high uint32
		for j := range qs {
			x0 := uint32(float32((lo[j]-m)*id) + 0.5)
			x1 := uint32(float32((hi[j]-m)*id) + 0.5)
			qs[j] = byte(x0&15 | x1<<4)
			high |= x0>>4<<j | x1>>4<<(j+16)
		}
		le.PutUint32(dst[4:], high)
	}
	return -1
}
