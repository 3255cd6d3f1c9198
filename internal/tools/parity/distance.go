package parity

import (
	"bufio"
	"fmt"
	"math"
	"os"

	"github.com/smelt-ml/smelt/internal/compare"
)

// deviation returns the standard deviation of logits.
func deviation(logits []float32) float64 {
	var sum, squares float64
	for _, x := range logits {
		sum += float64(x)
	}
	mean := sum / float64(len(logits))
	for _, x := range logits {
		squares += (float64(x) - mean) * (float64(x) - mean)
	}
	return math.Sqrt(squares / float64(len(logits)))
}

// Largest returns the largest difference between two sets of logits, in standard deviations of
// the first.
func Largest(want, got []float32) float64 { return compare.Largest(want, got) / deviation(want) }

// Spread returns the root mean square of the differences, in standard deviations of the first.
func Spread(want, got []float32) float64 {
	if len(want) != len(got) {
		return math.Inf(1)
	}
	sum := 0.0
	for i, w := range want {
		d := compare.Apart(w, got[i])
		sum += d * d
	}
	return math.Sqrt(sum/float64(len(want))) / deviation(want)
}

// Cosine returns the cosine of the angle between two vectors.
func Cosine(a, b []float32) float64 {
	var dot, aa, bb float64
	for i, x := range a {
		y := float64(b[i])
		dot, aa, bb = dot+float64(x)*y, aa+float64(x)*float64(x), bb+y*y
	}
	return dot / math.Sqrt(aa*bb)
}

// Distance is the [Spread] between llama.cpp's logits of a case with weights of a type and its
// logits in F32.
type Distance struct {
	Case, Type string
	Far        float64
}

// WriteDistances writes one line per distance.
func WriteDistances(path string, list []Distance) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	for _, d := range list {
		fmt.Fprintf(f, "%s %s %.5f\n", d.Case, d.Type, d.Far)
	}
	return f.Close()
}

// ReadDistances reads the output of WriteDistances, by case and type.
func ReadDistances(path string) (map[[2]string]float64, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	far := make(map[[2]string]float64)
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var d Distance
		if _, err := fmt.Sscan(lines.Text(), &d.Case, &d.Type, &d.Far); err != nil {
			return nil, fmt.Errorf("%s: %q: %w", path, lines.Text(), err)
		}
		far[[2]string{d.Case, d.Type}] = d.Far
	}
	return far, lines.Err()
}
