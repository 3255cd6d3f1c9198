package quant

import "github.com/smelt-ml/smelt/ir/dtype/half"

// The K-quants: super-blocks of 256 elements, in groups of 16 or 32, each group
// with its own integer scale.
const (
	superBlock = 256

	bytesQ2_K = 84  // scales [16] (low half: scale, high half: min), qs [64], d, dmin half
	bytesQ3_K = 110 // hmask [32], qs [64], scales [12] (16 of 6 bits), d half
	bytesQ4_K = 144 // d, dmin half, scales [12] (8 scales and 8 mins of 6 bits), qs [128]
	bytesQ5_K = 176 // d, dmin half, scales [12], qh [32], qs [128]
	bytesQ6_K = 210 // ql [128], qh [64], scales [16]int8, d half
)

// decodeQ2_K decodes 2-bit quants in groups of 16. Each half of 128 elements takes
// 32 bytes of qs, whose bit pairs 0 to 3 are four runs of 32 elements.
func decodeQ2_K(dst []float32, src []byte) {
	for ; len(dst) >= superBlock; dst, src = dst[superBlock:], src[bytesQ2_K:] {
		scales, qs := src[:16], src[16:80]
		d, dmin := half.F16ToF32(le.Uint16(src[80:])), half.F16ToF32(le.Uint16(src[82:]))
		for g, sc := range scales {
			scale, low := d*float32(sc&15), dmin*float32(sc>>4)
			out := dst[g*16:][:16]
			shift := g % 8 / 2 * 2
			q := qs[g/8*32+g%2*16:][:16]
			for j, v := range q {
				out[j] = float32(scale*float32(v>>shift&3)) - low
			}
		}
	}
}

// decodeQ3_K decodes 3-bit quants: the low two bits lie as in Q2_K, and a clear bit of
// hmask subtracts 4. The 16 scales have 6 bits: the low four in bytes 0 to 7, the high
// two in bytes 8 to 11.
func decodeQ3_K(dst []float32, src []byte) {
	for ; len(dst) >= superBlock; dst, src = dst[superBlock:], src[bytesQ3_K:] {
		hmask, qs, packed := src[:32], src[32:96], src[96:108]
		d := half.F16ToF32(le.Uint16(src[108:]))
		for g := range 16 {
			low := packed[g%8] >> (g / 8 * 4) & 15
			high := packed[8+g%4] >> (g / 4 * 2) & 3
			scale := d * float32(int32(low|high<<4)-32)
			out := dst[g*16:][:16]
			shift, bit := g%8/2*2, g/2
			q := qs[g/8*32+g%2*16:][:16]
			h := hmask[g%2*16:][:16]
			for j, v := range q {
				out[j] = scale * float32(int32(v>>shift&3)|int32(h[j]>>bit&1)<<2-4)
			}
		}
	}
}

// scaleMin unpacks the 6-bit scale and minimum of group g of Q4_K and Q5_K.
// Groups 0 to 3 lie in the low six bits of bytes 0 to 3 (scales) and 4 to 7 (minima);
// groups 4 to 7 have their low four bits in bytes 8 to 11 and their high two bits in
// the top bits of bytes 0 to 7.
func scaleMin(packed []byte, g int) (scale, low byte) {
	if g < 4 {
		return packed[g] & 63, packed[g+4] & 63
	}
	return packed[g+4]&15 | packed[g-4]>>6<<4, packed[g+4]>>4 | packed[g]>>6<<4
}

// decodeQ4_K decodes 4-bit quants. 32 bytes of qs hold two groups of 32 elements, one
// in the low and one in the high nibbles.
func decodeQ4_K(dst []float32, src []byte) {
	for ; len(dst) >= superBlock; dst, src = dst[superBlock:], src[bytesQ4_K:] {
		d, dmin := half.F16ToF32(le.Uint16(src)), half.F16ToF32(le.Uint16(src[2:]))
		packed, qs := src[4:16], src[16:144]
		for g := range 8 {
			sc, m := scaleMin(packed, g)
			scale, low := d*float32(sc), dmin*float32(m)
			out := dst[g*32:][:32]
			shift := g % 2 * 4
			for j, v := range qs[g/2*32:][:32] {
				out[j] = float32(scale*float32(v>>shift&15)) - low
			}
		}
	}
}

// decodeQ5_K decodes Q4_K with a fifth bit: bit g of qh belongs to group g.
func decodeQ5_K(dst []float32, src []byte) {
	for ; len(dst) >= superBlock; dst, src = dst[superBlock:], src[bytesQ5_K:] {
		d, dmin := half.F16ToF32(le.Uint16(src)), half.F16ToF32(le.Uint16(src[2:]))
		packed, qh, qs := src[4:16], src[16:48], src[48:176]
		for g := range 8 {
			sc, m := scaleMin(packed, g)
			scale, low := d*float32(sc), dmin*float32(m)
			out := dst[g*32:][:32]
			shift := g % 2 * 4
			for j, v := range qs[g/2*32:][:32] {
				out[j] = float32(scale*float32(v>>shift&15|qh[j]>>g&1<<4)) - low
			}
		}
	}
}

// decodeQ6_K decodes 6-bit quants with an offset of 32. Each half of 128 elements
// takes 64 bytes of ql (its first 64 elements in the low nibbles, the others in
// the high nibbles) and 32 bytes of qh (bit pair r: elements 32r to 32r+31).
func decodeQ6_K(dst []float32, src []byte) {
	for ; len(dst) >= superBlock; dst, src = dst[superBlock:], src[bytesQ6_K:] {
		ql, qh, scales := src[:128], src[128:192], src[192:208]
		d := half.F16ToF32(le.Uint16(src[208:]))
		for g, sc := range scales { // groups of 16
			scale := d * float32(int8(sc))
			out := dst[g*16:][:16]
			half, in := g/8, g%8*16 // in: first element within the half
			l := ql[half*64+in%64:][:16]
			h := qh[half*32+in%32:][:16]
			lshift, hshift := in/64*4, in/32*2
			for j, v := range l {
				out[j] = scale * float32(int32(v>>lshift&15|h[j]>>hshift&3<<4)-32)
			}
		}
	}
}
