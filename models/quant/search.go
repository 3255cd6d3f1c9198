package quant

import "math"

// The searches for the scales of the K-quants, in GGML's order of operations: the order
// decides the last bit of a sum, and with it the bytes of a file.

// smallestScale is the magnitude below which GGML stores a group as zeros.
const smallestScale = 1e-15

// searchScale returns s and stores q+32 for quants q in [-32, 31] such that s·q is
// close to x, each error weighted by x²; false if an element is out of range. It starts
// from the scale that maps the element of largest magnitude to -32, tries 18 scales
// around it, and gives each set of quants its least-squares scale.
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

// neighbours holds the values that searchScale maps the element of largest magnitude
// to, negated and in the order of the search: nine steps of a tenth to both sides of
// 32, in pairs.
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
// the quants l. Two scales at a time let the processor overlap the two dependency
// chains of additions, whose order is GGML's.
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

// quantum returns f rounded to even as by roundEven and clamped to [-32, 31].
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

// magic added to a float under 2^22 leaves no bits for a fraction: the addition
// itself rounds to the nearest integer, ties to even.
const magic = 0x1.8p23

// roundEven rounds to the nearest integer, ties to even; |f| must be under 2^22.
// The conversion keeps a product passed as f from being fused with the addition.
func roundEven(f float32) int32 {
	return int32(math.Float32bits(float32(f)+magic)&0x7fffff) - 0x400000
}

func abs32(f float32) float32 { return math.Float32frombits(math.Float32bits(f) &^ (1 << 31)) }

// inRange reports whether every element is finite and within what a super-block's d,
// scale and quant can represent; below that bound the sums of products stay finite.
func inRange(x []float32) bool {
	var amax uint32
	for _, v := range x {
		amax = max(amax, math.Float32bits(v)&0x7fffffff)
	}
	return amax < math.Float32bits(1<<31)
}

// minSearch searches the scale and the minimum of a group.
type minSearch struct {
	top      float32   // quants are 0 to top
	spans    []float32 // numbers of steps to divide the range of a group into, tried in order
	absolute bool      // the cost sums absolute errors, not squares
}

var (
	searchQ2_K = newMinSearch(3, -0.5, 15, true)
	searchQ4_K = newMinSearch(15, -1, 20, false)
	searchQ5_K = newMinSearch(31, -0.5, 15, false)
)

// newMinSearch returns a search over the n+1 spans top+first, top+first+0.1 and so on.
func newMinSearch(top, first float32, n int, absolute bool) minSearch {
	s := minSearch{top: top, absolute: absolute}
	for i := range n + 1 {
		s.spans = append(s.spans, float32(first+float32(0.1*float32(i)))+top)
	}
	return s
}

// find returns scale ≥ 0 and low ≥ 0 and stores quants q such that scale·q − low is
// close to x, which has at most 32 elements. It starts from the scale that maps the
// range of x, widened to hold zero, to [0, top]. Each span then divides the range above
// the best minimum so far into other quants with their own least-squares scale and
// minimum; find keeps the best.
func (s *minSearch) find(x, weight []float32, q []uint8) (scale, low float32) {
	var room [32]float32
	weight, q, levels := weight[:len(x)], q[:len(x)], room[:len(x)]
	least, most := x[0], x[0]
	var sumW, sumX float32
	for j, v := range x {
		least, most = min(least, v), max(most, v)
		sumW += weight[j]
		sumX += float32(weight[j] * v)
	}
	least = min(least, 0)
	inv := ratio(s.top, most-least)
	if inv == 0 { // all elements are equal, or too close for a scale
		clear(q)
		return 0, -least
	}
	scale = 1 / inv
	for j, v := range x {
		levels[j] = level(inv*(v-least), s.top)
		q[j] = uint8(int32(levels[j]))
	}
	best := s.cost(x, weight, levels, scale, least)
	for _, span := range s.spans {
		inv := span / (most - least)
		sumL, sumL2, sumXL := s.sums(x, weight, levels, inv, least)
		det := float32(sumW*sumL2) - float32(sumL*sumL)
		if !(det > 0) {
			continue
		}
		tryScale := (float32(sumW*sumXL) - float32(sumX*sumL)) / det
		tryLeast := (float32(sumL2*sumX) - float32(sumL*sumXL)) / det
		if tryLeast > 0 {
			tryLeast, tryScale = 0, sumXL/sumL2
		}
		if cost := s.cost(x, weight, levels, tryScale, tryLeast); cost < best {
			for j, l := range levels {
				q[j] = uint8(int32(l))
			}
			best, scale, least = cost, tryScale, tryLeast
		}
	}
	return scale, -least
}

// sums stores the levels of x above least and returns the sums of the least-squares fit.
func (s *minSearch) sums(x, weight, levels []float32, inv, least float32) (sumL, sumL2, sumXL float32) {
	weight, levels = weight[:len(x)], levels[:len(x)]
	top := s.top
	for j, v := range x {
		l := level(inv*(v-least), top)
		levels[j] = l
		wl := float32(weight[j] * l) // not fused with the sum below
		sumL += wl
		sumL2 += float32(wl * l)
		sumXL += float32(wl * v)
	}
	return
}

// cost returns the weighted error of scale·levels + least.
func (s *minSearch) cost(x, weight, levels []float32, scale, least float32) (sum float32) {
	weight, levels = weight[:len(x)], levels[:len(x)]
	if s.absolute {
		for j, v := range x {
			sum += float32(weight[j] * abs32(float32(scale*levels[j])+least-v))
		}
		return sum
	}
	for j, v := range x {
		diff := float32(scale*levels[j]) + least - v
		sum += float32(weight[j] * float32(diff*diff))
	}
	return sum
}

// level returns f rounded as by roundEven and clamped to [0, top].
func level(f, top float32) float32 {
	f = float32(f) + magic - magic
	if f > top {
		return top
	}
	if f < 0 {
		return 0
	}
	return f
}

// refineScale returns s and stores q+4 for quants q in [-4, 3] such that s·q is close
// to x, each error weighted by x². It starts from the scale that maps the element of
// largest magnitude to -4, then gives one element at a time the quant that fits the
// least-squares scale of the others, as long as that lowers the error.
func refineScale(x []float32, q []uint8) float32 {
	x, q = x[:16], q[:16]
	var extreme float32
	for _, v := range x {
		if abs32(v) > abs32(extreme) {
			extreme = v
		}
	}
	if abs32(extreme) < smallestScale {
		clear(q)
		return 0
	}
	var l, weight [16]float32
	var xl, ll float32
	inv := -4 / extreme
	for j, v := range x {
		l[j] = float32(nearest(inv*v, -4, 3))
		weight[j] = v * v
		xl += float32(float32(weight[j]*v) * l[j])
		ll += float32(float32(weight[j]*l[j]) * l[j])
	}
	for range 5 {
		changed := false
		for j, v := range x {
			w := weight[j]
			wx := w * v
			restXL := xl - float32(wx*l[j])
			if !(restXL > 0) {
				continue
			}
			restLL := ll - float32(float32(w*l[j])*l[j])
			n := float32(nearest(float32(v*restLL)/restXL, -4, 3))
			if n == l[j] {
				continue
			}
			restXL += float32(wx * n)
			restLL += float32(float32(w*n) * n)
			if restLL > 0 && float32(float32(restXL*restXL)*ll) > float32(float32(xl*xl)*restLL) {
				l[j], xl, ll, changed = n, restXL, restLL, true
			}
		}
		if !changed {
			break
		}
	}
	for j, n := range l {
		q[j] = uint8(int32(n) + 4)
	}
	if !(ll > 0) {
		return 0
	}
	return xl / ll
}

// nearest returns f clamped to [low, high] and rounded to the nearest integer, ties to even.
func nearest(f float32, low, high float32) int32 {
	if f > high {
		f = high
	}
	if f < low {
		f = low
	}
	return roundEven(f)
}

// ratio returns a/b, or 0 if a/b is infinite or NaN. Scales b that small underflow in half
// precision, so the elements divided by them become zero.
func ratio(a, b float32) float32 {
	if r := a / b; !math.IsInf(float64(r), 0) && r == r {
		return r
	}
	return 0
}

func sqrt32(f float32) float32 { return float32(math.Sqrt(float64(f))) }
