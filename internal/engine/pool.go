package engine

import (
	"math"
	"slices"
)

// Poolings are the ways to pool the hidden states of a text's tokens into one embedding: none,
// their mean, or the state of the first or the last token; rank is that token's scores.
var Poolings = []string{"none", "mean", "cls", "last", "rank"}

// Pool pools rows of states, each width elements wide, by one of [Poolings] but rank. It does not
// keep the states.
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

// Softmax makes probabilities of scores, in place.
func Softmax(v []float32) {
	largest, sum := slices.Max(v), 0.0
	for _, x := range v {
		sum += math.Exp(float64(x) - float64(largest))
	}
	for i, x := range v {
		v[i] = float32(math.Exp(float64(x)-float64(largest)) / sum)
	}
}

// Normalize scales a vector to Euclidean length one; a zero vector stays.
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
