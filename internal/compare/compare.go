// Package compare measures how far numbers differ, for tests and for the checks of models. A NaN
// counts as an infinite difference, which no later element hides.
//
//	if d := compare.Largest(want, got); d > bound { … }
//
// Comparing two NaNs with <, or folding them with max or >, gives results that depend on the
// order of the operands, so only this package computes differences.
package compare

import "math"

// Float is an element type.
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

// Largest returns the largest difference between elements of the same index: +Inf where one
// slice is longer.
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
