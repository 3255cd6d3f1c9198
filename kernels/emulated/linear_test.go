package emulated_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/kernels/emulated"
)

// BenchmarkLinear measures linear layers, which dominate a model's time: single tokens through
// a 1024×1024 weight, and 32 together.
func BenchmarkLinear(b *testing.B) {
	const n, k, tokens = 1024, 1024, 32
	r := rand.New(rand.NewPCG(1, 2))
	q4, values := q4_0(r, n, k)
	x := floats(uniform(r, tokens*k)...)
	for _, c := range []struct {
		name   string
		kernel string
		weight []byte
		typ    uint32
		group  uint32
		grid   [3]uint32
		macs   float64
	}{
		{"vec/q4_0", "linear_vec_f32_f32", q4, 7, 64, [3]uint32{n / 8, 8}, 8 * n * k},
		{"vec/f16", "linear_vec_f32_f32", halves(values...), 2, 64, [3]uint32{n / 8, 8}, 8 * n * k},
		{"vec/f32", "linear_vec_f32_f32", floats(values...), 1, 64, [3]uint32{n / 8, 8}, 8 * n * k},
		{"mat/q4_0", "linear_mat_f32_f32", q4, 7, 128, [3]uint32{tokens / 32, n / 64}, n * k * tokens},
		{"mat/f16", "linear_mat_f32_f32", halves(values...), 2, 128, [3]uint32{tokens / 32, n / 64}, n * k * tokens},
	} {
		b.Run(c.name, func(b *testing.B) {
			l := emulated.Launch{
				Kernel:    c.kernel,
				Buffers:   [][]byte{x, c.weight, nil, nil, make([]byte, n*tokens*4), words(tokens, k, n, 0, 0, k, n, float32(0)), nil, nil},
				Constants: map[uint32]uint32{0: c.typ, 1: 0, 2: 0, 3: 0, 4: 0, 5: 0},
				Grid:      c.grid, Group: [3]uint32{c.group},
			}
			for b.Loop() {
				require.NoError(b, emulated.Run(l, emulated.Options{}))
			}
			b.ReportMetric(c.macs*float64(b.N)/float64(b.Elapsed().Nanoseconds()), "GMAC/s")
		})
	}
}
