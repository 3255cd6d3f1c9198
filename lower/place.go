package lower

import (
	"fmt"
	"strconv"

	"github.com/smelt-ml/smelt/lower/predict"
)

// Product holds what a placement knows of a matrix product x[Tokens, K]·Wᵀ.
type Product struct {
	Phase  string
	Layer  int   // ir.NoLayer outside the layers
	Tokens int64 // maximum
	K, N   int64
	Bytes  int64 // of the weights
}

// Work returns the multiply-adds of the product.
func (p Product) Work() float64 { return float64(p.Tokens) * float64(p.K) * float64(p.N) }

// Placement reports whether the CPU of a target with a GPU runs a product; nil: it runs none.
type Placement func(Product) bool

// AtLeast places products of at least work multiply-adds on the CPU, as Minerva's ADR-003 does with
// 1,000,000. Since that includes products of a single token, it is for measurements.
func AtLeast(work float64) Placement {
	return func(p Product) bool { return p.Work() >= work }
}

// The assumed speed of the CPU of Apple silicon beside its GPU: the share of the memory's bandwidth
// that its cores reach, and the rate of its matrix units per GB/s of that bandwidth. A handover
// drains the GPU and takes two events. The figures are estimates from publications about M1 to M4;
// none was measured here.
const (
	cpuReach     = 0.5  // of the chip's bandwidth
	cpuFlops     = 15e9 // float operations a second for each GB/s
	handoverTime = 100  // µs, there and back
)

// Cheaper places on the CPU the products that a chip's CPU is predicted to finish sooner than its
// GPU, handover included. On every chip of the table the GPU wins at every size, since it has the
// whole memory bandwidth and no handover.
func Cheaper(c *predict.Chip) Placement {
	return func(p Product) bool {
		gpu := c.Time(float64(p.Bytes), 2*p.Work())
		read := float64(p.Bytes) / (c.Bandwidth * cpuReach * 1e3)
		compute := 2 * p.Work() / (cpuFlops * c.Bandwidth) * 1e6
		return handoverTime+max(read, compute) < gpu
	}
}

// ParsePlacement parses "gpu", "cpu", "auto" (by predicted time on the named chip, or the slowest if
// chip is empty), or the minimum number of multiply-adds of a product for the CPU.
func ParsePlacement(text, chip string) (Placement, error) {
	switch text {
	case "", "gpu":
		return nil, nil
	case "cpu":
		return AtLeast(0), nil
	case "auto":
		c := predict.Slowest
		if chip != "" {
			var err error
			if c, err = predict.FindChip(chip); err != nil {
				return nil, err
			}
		}
		return Cheaper(c), nil
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || !(n >= 0) {
		return nil, fmt.Errorf("products on %q: want gpu, cpu, auto or a number of multiply-adds", text)
	}
	return AtLeast(n), nil
}
