package engine

import (
	"math"
	"slices"
)

// Poolings are the ways of making one embedding of the hidden states of a text's tokens: none
// at all, their mean, those of the first token or of the last.
var Poolings = []string{"none", "mean", "cls", "last"}

// Pool makes an embedding of rows of states, each as wide as width, in one of the ways of
// [Poolings]. It does not keep them.
func Pool(pooling string, width int, states []float32) []float32 {
	switch pooling {
	case "mean":
		sums := make([]float64, width)
		for row := range slices.Chunk(states, width) {
			for i, x := range row {
				sums[i] += float64(x)
			}
		}
		mean := make([]float32, width)
		for i, sum := range sums {
			mean[i] = float32(sum / float64(len(states)/width))
		}
		return mean
	case "cls":
		return slices.Clone(states[:width])
	}
	return slices.Clone(states)
}

// Normalize scales a vector to the Euclidean length of one; one of zeros stays.
func Normalize(v []float32) {
	sum := 0.0
	for _, x := range v {
		sum += float64(x) * float64(x)
	}
	if sum == 0 {
		return
	}
	by := 1 / math.Sqrt(sum)
	for i, x := range v {
		v[i] = float32(float64(x) * by)
	}
}
