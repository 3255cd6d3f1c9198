package parity

import (
	"crypto/sha256"
	"fmt"
	"math"
	"math/rand/v2"
)

// Weights returns the weights from which blocks of all types are made to compare them with
// GGML's: ordinary rows, some with few large elements, some of one sign, some zero, of
// magnitudes that every scale can represent.
func Weights() []float32 {
	r := rand.New(rand.NewPCG(9, 10))
	x := make([]float32, 64*256)
	for i := range x {
		group := i / 32
		v := r.NormFloat64() * math.Exp2(float64(group%16-10))
		switch group % 7 {
		case 1:
			v *= math.Exp(2 * r.NormFloat64())
		case 3:
			v = math.Abs(v)
		case 5:
			v *= float64(r.IntN(10) / 9)
		}
		if group%61 == 60 {
			v = 0
		}
		x[i] = float32(v)
	}
	return x
}

// Hash returns a short hash, long enough to tell results apart.
func Hash(b []byte) string { return fmt.Sprintf("%x", sha256.Sum256(b))[:16] }
