package emulated_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/kernels/emulated"
	"github.com/smelt-ml/smelt/kernels/emulated/internal/testkernels"
)

// BenchmarkCost reports the cost of one operation per lane (of a tile product per simdgroup).
func BenchmarkCost(b *testing.B) {
	x := halves(make([]float32, 128)...)
	library := testkernels.Library()
	for _, c := range []struct {
		kernel  string
		threads uint32
		rounds  int
		ops     float64 // in one launch
	}{
		{"cost_sum", 64, 1000, 64 * 1000},
		{"cost_shuffle", 64, 1000, 64 * 1000},
		{"cost_barrier", 256, 1000, 256 * 1000},
		{"cost_matrix", 32, 1000, 4 * 1000},
		{"cost_thread", 256, 1, 256 * 64},
		{"cost_convert", 32, 1000, 32 * 1000},
	} {
		b.Run(c.kernel, func(b *testing.B) {
			l := emulated.Launch{
				Kernel: c.kernel, Buffers: [][]byte{make([]byte, 64*256*4), words(c.rounds), x}, Group: [3]uint32{c.threads},
			}
			if c.kernel == "cost_thread" {
				l.Grid[0] = 64
			}
			for b.Loop() {
				require.NoError(b, library.Run(l, emulated.Options{}))
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/c.ops, "ns/each")
		})
	}
}
