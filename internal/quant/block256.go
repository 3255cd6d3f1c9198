package quant

import "math"

// The K-quants: super-blocks of 256 elements, in groups of 16 or 32 that have
// their own integer scale.
const (
	superBlock = 256

	bytesQ2_K = 84  // scales [16] (low half: scale, high half: min), qs [64], d, dmin half
	bytesQ3_K = 110 // hmask [32], qs [64], scales [12] (16 of 6 bits), d half
	bytesQ4_K = 144 // d, dmin half, scales [12] (8 scales and 8 mins of 6 bits), qs [128]
	bytesQ5_K = 176 // d, dmin half, scales [12], qh [32], qs [128]
	bytesQ6_K = 210 // ql [128], qh [64], scales [16]int8, d half
)

// decodeQ2_K: 2-bit quants. Each half of 128 elements takes 32 bytes of qs,
// whose bit pairs 0 to 3 are four runs of 32 elements; groups are of 16.
func decodeQ2_K(dst []float32, src []byte) {
	for ; len(dst) >= superBlock; dst, src = dst[superBlock:], src[bytesQ2_K:] {
		scales, qs := src[:16], src[16:80]
		d, dmin := F16ToF32(le.Uint16(src[80:])), F16ToF32(le.Uint16(src[82:]))
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

// decodeQ3_K: 3-bit quants, the low two bits as in Q2_K; a clear bit of hmask
// subtracts 4. Scales are 6 bits: four low bits of all 16 in bytes 0 to 7, the
// high pairs in bytes 8 to 11.
func decodeQ3_K(dst []float32, src []byte) {
	for ; len(dst) >= superBlock; dst, src = dst[superBlock:], src[bytesQ3_K:] {
		hmask, qs, packed := src[:32], src[32:96], src[96:108]
		d := F16ToF32(le.Uint16(src[108:]))
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
// Groups 0 to 3 lie in the low six bits of bytes 0 to 3 and 4 to 7; groups 4 to
// 7 have their low halves in bytes 8 to 11 and their high pairs on top of the former.
func scaleMin(packed []byte, g int) (scale, low byte) {
	if g < 4 {
		return packed[g] & 63, packed[g+4] & 63
	}
	return packed[g+4]&15 | packed[g-4]>>6<<4, packed[g+4]>>4 | packed[g]>>6<<4
}

// decodeQ4_K: 4-bit quants. 32 bytes of qs hold two groups of 32 elements, one
// in the low and one in the high halves.
func decodeQ4_K(dst []float32, src []byte) {
	for ; len(dst) >= superBlock; dst, src = dst[superBlock:], src[bytesQ4_K:] {
		d, dmin := F16ToF32(le.Uint16(src)), F16ToF32(le.Uint16(src[2:]))
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

// decodeQ5_K: Q4_K with a fifth bit; bit g of qh belongs to group g.
func decodeQ5_K(dst []float32, src []byte) {
	for ; len(dst) >= superBlock; dst, src = dst[superBlock:], src[bytesQ5_K:] {
		d, dmin := F16ToF32(le.Uint16(src)), F16ToF32(le.Uint16(src[2:]))
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

// decodeQ6_K: 6-bit quants with an offset of 32. Each half of 128 elements
// takes 64 bytes of ql (its first 64 elements in the low halves, the others in
// the high halves) and 32 bytes of qh (bit pair r: elements 32r to 32r+31).
func decodeQ6_K(dst []float32, src []byte) {
	for ; len(dst) >= superBlock; dst, src = dst[superBlock:], src[bytesQ6_K:] {
		ql, qh, scales := src[:128], src[128:192], src[192:208]
		d := F16ToF32(le.Uint16(src[208:]))
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

// smallestScale is the magnitude below which GGML takes a group for zero.
const smallestScale = 1e-15

// encodeQ6_K searches a scale for each group of 16, quantises the scales to 8
// bits against the largest, and the elements against the scales so rounded.
func encodeQ6_K(dst []byte, src []float32) int {
	var scales [16]float32
	var quants [superBlock]uint8
	for block := 0; len(src) >= superBlock; block, src, dst = block+1, src[superBlock:], dst[bytesQ6_K:] {
		x, out := src[:superBlock], dst[:bytesQ6_K]
		var extreme, amax float32
		for g := range scales {
			s, ok := searchScale(x[g*16:][:16], quants[g*16:][:16])
			if !ok {
				return block
			}
			scales[g] = s
			if a := abs32(s); a > amax {
				amax, extreme = a, s
			}
		}
		if amax < smallestScale {
			clear(out)
			continue
		}
		inv := -128 / extreme
		d := 1 / inv
		if !fitsHalf(d) {
			return block
		}
		half := F32ToF16(d)
		le.PutUint16(out[208:], half)
		d = F16ToF32(half)
		for g, s := range scales {
			sc := min(127, roundEven(inv*s))
			out[192+g] = byte(int8(sc))
			step := d * float32(sc)
			if step == 0 { // the quants of the search stay
				continue
			}
			q := quants[g*16:][:16]
			for j, v := range x[g*16:][:16] {
				q[j] = uint8(max(-32, min(31, roundEven(v/step))) + 32)
			}
		}
		for half := range 2 {
			q, ql, qh := quants[half*128:][:128], out[half*64:][:64], out[128+half*32:][:32]
			for j := range 32 {
				a, b, c, d := q[j], q[j+32], q[j+64], q[j+96]
				ql[j] = a&15 | c<<4
				ql[j+32] = b&15 | d<<4
				qh[j] = a>>4 | b>>4<<2 | c>>4<<4 | d>>4<<6
			}
		}
	}
	return -1
}

// searchScale finds s and quants q in [-32, 31] such that s·q is close to x,
// each error weighted by x², and stores q+32. It starts from the scale that
// maps the element of largest magnitude to -32 and tries 18 neighbours of it,
// giving each set of quants its least-squares scale. It reports false when an
// element is out of range.
func searchScale(x []float32, q []uint8) (float32, bool) {
	x, q = x[:16], q[:16]
	var amax, extremeBits uint32
	for _, v := range x {
		b := math.Float32bits(v)
		if a := b & 0x7fffffff; a > amax {
			amax, extremeBits = a, b
		}
	}
	if amax >= math.Float32bits(1<<31) { // not finite, or more than d, scale and quant hold together
		return 0, false
	}
	extreme := math.Float32frombits(extremeBits)
	if abs32(extreme) < smallestScale {
		clear(q)
		return 0, true
	}
	var weight, wx [16]float32 // x², x³
	for j, v := range x {
		weight[j] = v * v
		wx[j] = weight[j] * v
	}
	store := func(inv float32) {
		for j, v := range x {
			q[j] = uint8(int32(quantum(inv*v)) + 32)
		}
	}
	inv := -32 / extreme
	store(inv)
	xl, ll, _, _ := fit(x, &weight, &wx, inv, 0)
	if ll == 0 { // the weights underflow
		return 0, true
	}
	scale := xl / ll
	best := scale * xl
	try := func(inv, xl, ll float32) {
		if ll > 0 && float32(xl*xl) > best*ll {
			store(inv)
			scale = xl / ll
			best = scale * xl
		}
	}
	for _, pair := range neighbours {
		inv0, inv1 := -pair[0]/extreme, -pair[1]/extreme
		xl0, ll0, xl1, ll1 := fit(x, &weight, &wx, inv0, inv1)
		try(inv0, xl0, ll0)
		try(inv1, xl1, ll1)
	}
	return scale, true
}

// neighbours are what the element of largest magnitude is mapped to, negated, in
// the order of the search: 32 and nine steps of a tenth to both sides, in pairs.
var neighbours = func() (out [9][2]float32) {
	for i := range 18 {
		step := i - 9
		if step >= 0 {
			step++ // 32 itself comes first
		}
		out[i/2][i%2] = 32 + float32(0.1*float32(step))
	}
	return
}()

// fit returns, for two inverse scales, the sums of weight·x·l and weight·l² over
// the quants l. Two at a time let the processor overlap the chains of additions,
// whose order is GGML's.
func fit(x []float32, weight, wx *[16]float32, inv0, inv1 float32) (xl0, ll0, xl1, ll1 float32) {
	for j, v := range x[:16] {
		l0, l1 := quantum(inv0*v), quantum(inv1*v)
		xl0 += float32(wx[j] * l0)
		ll0 += float32(float32(weight[j]*l0) * l0)
		xl1 += float32(wx[j] * l1)
		ll1 += float32(float32(weight[j]*l1) * l1)
	}
	return
}

// quantum is f rounded as by roundEven and kept in [-32, 31].
func quantum(f float32) float32 {
	f = float32(f) + magic - magic
	if f > 31 {
		return 31
	}
	if f < -32 {
		return -32
	}
	return f
}

// magic added to a float under 2^22 leaves no bits after the point, so that the
// addition itself rounds to the nearest integer, ties to even.
const magic = 0x1.8p23

// roundEven rounds to the nearest integer, ties to even; |f| must be under 2^22.
// The conversion keeps a product passed as f from being fused with the addition.
func roundEven(f float32) int32 {
	return int32(math.Float32bits(float32(f)+magic)&0x7fffff) - 0x400000
}

func abs32(f float32) float32 { return math.Float32frombits(math.Float32bits(f) &^ (1 << 31)) }
