package quant

import "github.com/smelt-ml/smelt/ir/dtype/half"

// The encoders of the K-quants. A search for the least weighted error gives each group
// of a super-block a scale, and a minimum where the format has one. Scales and minima
// are quantized relative to the largest of the super-block, then the elements with the
// scales and minima that the decoder will read.

func encodeQ4_K(dst []byte, src []float32) int { return encodeGroups(dst, src, bytesQ4_K, &searchQ4_K) }

func encodeQ5_K(dst []byte, src []float32) int { return encodeGroups(dst, src, bytesQ5_K, &searchQ5_K) }

// packHalves stores the low four bits of each quant: those of groups 2k in the low
// nibbles of 32 bytes, those of groups 2k+1 in the high nibbles.
func packHalves(qs []byte, quants *[superBlock]uint8) {
	for k := range superBlock / 64 {
		low, high, out := quants[k*64:][:32], quants[k*64+32:][:32], qs[k*32:][:32]
		for j := range out {
			out[j] = low[j]&15 | high[j]<<4
		}
	}
}

// packFifth stores the fifth bits of Q5_K.
func packFifth(qh []byte, quants *[superBlock]uint8) {
	clear(qh)
	for i, q := range quants {
		qh[i%32] |= q >> 4 << (i / 32)
	}
}

// encodeGroups encodes Q4_K or Q5_K, whose blocks have `size` bytes: eight groups of 32
// with scales and minima of 6 bits. The weight of an element's error is its magnitude
// plus the group's root mean square.
func encodeGroups(dst []byte, src []float32, size int, s *minSearch) int {
	const groups, levels = 8, 63
	var scales, lows [groups]float32
	var weight [32]float32
	var quants [superBlock]uint8
	for block := 0; len(src) >= superBlock; block, src, dst = block+1, src[superBlock:], dst[size:] {
		x, out := src[:superBlock], dst[:size]
		if !inRange(x) {
			return block
		}
		var maxScale, maxLow float32
		for g := range groups {
			in := x[g*32:][:32]
			var squares float32
			for _, v := range in {
				squares += float32(v * v)
			}
			rms := sqrt32(squares / 32)
			for j, v := range in {
				weight[j] = rms + abs32(v)
			}
			scales[g], lows[g] = s.find(in, weight[:], quants[g*32:][:32])
			maxScale, maxLow = max(maxScale, scales[g]), max(maxLow, lows[g])
		}
		d, dmin := maxScale/levels, maxLow/levels
		if !fitsHalf(d) || !fitsHalf(dmin) {
			return block
		}
		halfD, halfMin := half.F32ToF16(d), half.F32ToF16(dmin)
		le.PutUint16(out, halfD)
		le.PutUint16(out[2:], halfMin)
		d, dmin = half.F16ToF32(halfD), half.F16ToF32(halfMin)
		invScale, invLow := ratio(levels, maxScale), ratio(levels, maxLow)
		packed := out[4:16]
		clear(packed)
		for g := range groups {
			sc := byte(min(levels, roundEven(invScale*scales[g])))
			m := byte(min(levels, roundEven(invLow*lows[g])))
			putScaleMin(packed, g, sc, m)
			requantize(quants[g*32:][:32], x[g*32:][:32], d*float32(sc), dmin*float32(m), s.top)
		}
		if size == bytesQ5_K {
			packFifth(out[16:48], &quants)
		}
		packHalves(out[size-128:], &quants)
	}
	return -1
}

// putScaleMin is the inverse of scaleMin. The bytes must be zero before group 0 is put.
func putScaleMin(packed []byte, g int, scale, low byte) {
	if g < 4 {
		packed[g] |= scale
		packed[g+4] |= low
		return
	}
	packed[g+4] = scale&15 | low<<4
	packed[g-4] |= scale >> 4 << 6
	packed[g] |= low >> 4 << 6
}

// requantize stores the quants in [0, top] for the rounded scale and minimum that the
// decoder reads. If that scale is zero, the quants of the search stay.
func requantize(q []uint8, x []float32, scale, low, top float32) {
	if scale == 0 {
		return
	}
	for j, v := range x {
		q[j] = uint8(nearest((v+low)/scale, 0, top))
	}
}

// encodeQ2_K encodes sixteen groups of 16 with scales and minima of 4 bits. The search
// minimises absolute errors, each weighted by the element's magnitude.
func encodeQ2_K(dst []byte, src []float32) int {
	const groups, levels = 16, 15
	var scales, lows [groups]float32
	var weight [16]float32
	var quants [superBlock]uint8
	for block := 0; len(src) >= superBlock; block, src, dst = block+1, src[superBlock:], dst[bytesQ2_K:] {
		x, out := src[:superBlock], dst[:bytesQ2_K]
		if !inRange(x) {
			return block
		}
		var maxScale, maxLow float32
		for g := range groups {
			in := x[g*16:][:16]
			for j, v := range in {
				weight[j] = abs32(v)
			}
			scales[g], lows[g] = searchQ2_K.find(in, weight[:], quants[g*16:][:16])
			maxScale, maxLow = max(maxScale, scales[g]), max(maxLow, lows[g])
		}
		d, dmin := maxScale/levels, maxLow/levels
		if !fitsHalf(d) || !fitsHalf(dmin) {
			return block
		}
		halfD, halfMin := half.F32ToF16(d), half.F32ToF16(dmin)
		le.PutUint16(out[80:], halfD)
		le.PutUint16(out[82:], halfMin)
		d, dmin = half.F16ToF32(halfD), half.F16ToF32(halfMin)
		invScale, invLow := ratio(levels, maxScale), ratio(levels, maxLow)
		for g := range groups {
			sc := byte(min(levels, roundEven(invScale*scales[g])))
			m := byte(min(levels, roundEven(invLow*lows[g])))
			out[g] = sc | m<<4
			requantize(quants[g*16:][:16], x[g*16:][:16], d*float32(sc), dmin*float32(m), searchQ2_K.top)
		}
		packPairs(out[16:80], &quants)
	}
	return -1
}

// packPairs stores the low two bits of the quants of Q2_K and Q3_K: 32 bytes hold four
// runs of 32 elements, from the lowest bits up.
func packPairs(qs []byte, quants *[superBlock]uint8) {
	for half := range 2 {
		q, out := quants[half*128:][:128], qs[half*32:][:32]
		for j := range out {
			out[j] = q[j]&3 | q[j+32]&3<<2 | q[j+64]&3<<4 | q[j+96]&3<<6
		}
	}
}

// encodeQ3_K encodes sixteen groups of 16 with signed scales of 6 bits and no minimum.
func encodeQ3_K(dst []byte, src []float32) int {
	var scales [16]float32
	var quants [superBlock]uint8 // plus 4
	for block := 0; len(src) >= superBlock; block, src, dst = block+1, src[superBlock:], dst[bytesQ3_K:] {
		x, out := src[:superBlock], dst[:bytesQ3_K]
		if !inRange(x) {
			return block
		}
		var extreme, amax float32
		for g := range scales {
			scales[g] = refineScale(x[g*16:][:16], quants[g*16:][:16])
			if a := abs32(scales[g]); a > amax {
				amax, extreme = a, scales[g]
			}
		}
		clear(out)
		inv := ratio(-32, extreme)
		d := ratio(1, inv)
		if !fitsHalf(d) {
			return block
		}
		stored := half.F32ToF16(d)
		le.PutUint16(out[108:], stored)
		d = half.F16ToF32(stored)
		packed := out[96:108]
		for g, s := range scales {
			var sc int32
			if inv != 0 {
				sc = nearest(inv*s, -32, 31)
				biased := byte(sc + 32)
				packed[g%8] |= biased & 15 << (g / 8 * 4)
				packed[8+g%4] |= biased >> 4 << (g / 4 * 2)
			}
			step := d * float32(sc)
			if step == 0 { // the quants of the search stay
				continue
			}
			q := quants[g*16:][:16]
			for j, v := range x[g*16:][:16] {
				q[j] = uint8(nearest(v/step, -4, 3) + 4)
			}
		}
		for i, q := range quants {
			out[i%32] |= q >> 2 << (i / 32)
		}
		packPairs(out[32:96], &quants)
	}
	return -1
}

// encodeQ6_K searches a scale for each group of 16, quantizes the scales to 8 bits
// relative to the largest, and the elements with the scales that the decoder will read.
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
		stored := half.F32ToF16(d)
		le.PutUint16(out[208:], stored)
		d = half.F16ToF32(stored)
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
