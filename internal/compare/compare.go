// Package compare says how far numbers are apart, for tests and for the checks of
// models: a NaN is as far off as can be, and nothing that follows it makes up for it.
//
//	if d := compare.Largest(want, got); d > bound { … }
//
// Comparing two NaNs with <, or folding them with max or >, gives answers that depend
// on the order of the operands; so differences are formed here only.
package compare

import "math"

// Float is a type of elements.
type Float interface{ ~float32 | ~float64 }

// Apart returns |a − b|: 0 for equal infinities, +Inf where either is NaN.
func Apart[A, B Float](a A, b B) float64 {
	x, y := float64(a), float64(b)
	d := math.Abs(x - y)
	switch {
	case x == y:
		return 0
	case math.IsNaN(d):
		return math.Inf(1)
	}
	return d
}

// Largest returns the largest difference between elements of the same index. What only
// one of the two has is infinitely far off.
func Largest[A, B Float](want []A, got []B) float64 {
	if len(want) != len(got) {
		return math.Inf(1)
	}
	most := 0.0
	for i, w := range want {
		most = max(most, Apart(w, got[i]))
	}
	return most
}
