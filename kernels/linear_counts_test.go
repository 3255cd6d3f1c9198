package kernels_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/kernels"
	"github.com/smelt-ml/smelt/kernels/emulated/counted"
)

// linearCounts counts a product of one weight, in blocks or in lines, on a GPU of ten cores,
// as far as a few waves of threadgroups go.
func linearCounts(t *testing.T, name string, stored dtype.Type, lines uint32, tokens, k, n int, s linearShape) *counted.Counts {
	t.Helper()
	types := typesOf(name[len("linear_vec"):])
	weight, x, out := int(stored.Bytes(int64(n*k))), tokens*k*types[0].Size(), tokens*n*types[1].Size()
	m, err := counted.NewMemory(int64(weight + x + out + 1<<16))
	require.NoError(t, err)
	alloc := func(bytes int) []byte {
		b, err := m.Alloc(int64(bytes))
		require.NoError(t, err)
		return b
	}
	l := launch{constants: map[string]uint32{"fc_type0": uint32(stored) + lines}}
	s.launch(&l, name[:len("linear_vec")] == "linear_vec", types, tokens, n, false)
	buffers, constants, err := kernels.Bind(name, map[string][]byte{"x": alloc(x), "w0": alloc(weight), "out": alloc(out)}, kernels.LinearParams{
		Tokens: uint32(tokens), K: uint32(k), N0: uint32(n), XStride: uint32(k), OutStride: uint32(n)}, l.constants)
	require.NoError(t, err)
	c, err := counted.Run(m, counted.Launch{
		Kernel: name, Constants: constants, Group: [3]uint32{uint32(l.group)},
		Grid:    [3]uint32{uint32(l.grid[0]), uint32(l.grid[1]), uint32(l.grid[2])},
		Buffers: buffers,
	}, counted.Machine{CacheBytes: 8 << 20, Cores: 10, Budget: 2e6})
	require.NoError(t, err)
	return c
}

// TestLinearVecTraffic holds linear_vec to what decoding can be: memory gives each byte
// of the weights once, and little of the lines that a simdgroup asks for is not used.
// Its lanes part once, where those without a result return.
func TestLinearVecTraffic(t *testing.T) {
	shapes := few([][2]int{{3072, 1024}}, [][2]int{{1024, 3072}, {2048, 1024}, {3072, 1024}, {4096, 4096}, {14336, 4096}})
	launches := few([]linearShape{{rows: 4, simdgroups: 8}}, []linearShape{{rows: 4, simdgroups: 8}, {rows: 2, simdgroups: 2}, {together: 4, simdgroups: 2}})
	for _, w := range weightTypes {
		if !everything() && w != dtype.Q4_0 && w != dtype.Q3_K && w != dtype.Q6_K {
			continue
		}
		for _, shape := range shapes {
			k, n := shape[0], shape[1]
			for _, s := range launches {
				t.Run(fmt.Sprintf("%s/%dx%d/%+v", w, k, n, s), func(t *testing.T) {
					tokens := max(s.together, 1)
					c := linearCounts(t, "linear_vec_f32_f32", w, 0, tokens, k, n, s)
					least := w.Bytes(int64(k*n)) + int64(4*tokens*(k+n))
					require.GreaterOrEqual(t, c.Coalescing(), 0.9)
					require.LessOrEqual(t, float64(c.Traffic()), 1.15*float64(least))
					require.LessOrEqual(t, c.Divergent, c.Groups*int64(max(s.simdgroups, 1)))
				})
			}
		}
	}
}

// TestLinearVecShifts holds what decoding asks of the pipe that shifts and converts to what
// predictions take it for, and to what it can be: a conversion is 4 cycles a weight, and only
// what is not where the rest of its number is gets shifted. Scales of the K formats are a
// cycle or two.
func TestLinearVecShifts(t *testing.T) {
	most := map[dtype.Type]float64{
		dtype.F32: 0, dtype.F16: 0, dtype.BF16: 0, dtype.Q8_0: 4.1, dtype.Q4_0: 4.1, dtype.Q4_1: 4.1, dtype.Q5_0: 5, dtype.Q5_1: 5,
		dtype.Q2_K: 5.5, dtype.Q3_K: 7.5, dtype.Q4_K: 6, dtype.Q5_K: 7, dtype.Q6_K: 6,
		dtype.MXFP4: 0.6, dtype.IQ4_NL: 0.6, dtype.IQ4_XS: 2.3, // values are loaded, not converted
		dtype.MLX4: 4.1, dtype.MLX8: 4.1,
	}
	const k, n = 1024, 64
	for _, w := range weightTypes {
		c := linearCounts(t, "linear_vec_f32_f32", w, 0, 1, k, n, linearShape{rows: 4, simdgroups: 2})
		require.Contains(t, most, w)
		require.LessOrEqual(t, float64(c.ShiftCycles)/(k*n), most[w], w)
		require.InDelta(t, float64(kernels.ShiftCycles(uint32(w), k*n)), float64(c.ShiftCycles), 0.1*k*n, w)
	}
}

// TestLinesTraffic compares weights in lines with the file's blocks: memory gives the same
// bytes, the pipe that shifts does the same work, and lanes load what they need in as few
// pieces or, where blocks are no whole words, in fewer.
func TestLinesTraffic(t *testing.T) {
	const k, n = 4096, 256
	shape := linearShape{rows: 4, simdgroups: 8}
	for _, elem := range lined() {
		blocks := linearCounts(t, "linear_vec_f32_f32", elem, 0, 1, k, n, shape)
		lines := linearCounts(t, "linear_vec_f32_f32", elem, kernels.Lines, 1, k, n, shape)
		require.InEpsilon(t, blocks.Traffic(), lines.Traffic(), 0.01, elem)
		require.Equal(t, blocks.ShiftCycles, lines.ShiftCycles, elem)
		require.GreaterOrEqual(t, lines.Coalescing(), 0.9, elem)
		if elem.BlockBytes()%4 == 0 || elem == dtype.Q8_0 { // whose bytes are counted one by one
			require.LessOrEqual(t, lines.Accesses, blocks.Accesses, elem)
		} else {
			require.Less(t, float64(lines.Accesses), 0.8*float64(blocks.Accesses), elem)
		}
		t.Logf("%s: %.3f and %.3f of what is touched is used, in %d and %d loads", elem, blocks.Coalescing(), lines.Coalescing(), blocks.Accesses, lines.Accesses)
	}
}

// TestLinearMatTraffic holds linear_mat to what prefill can be: no more traffic than
// each tile reading its rows once, enough operations for each byte to keep any chip's
// arithmetic busy, no conflicts between banks, and no branch that lanes part at.
func TestLinearMatTraffic(t *testing.T) {
	const tokens, ridge = 512, 38 // of an M1, the highest
	shape := few([]int{1024, 1024}, []int{4096, 4096})
	k, n := shape[0], shape[1]
	for _, w := range weightTypes {
		if !everything() && w != dtype.Q4_0 && w != dtype.Q6_K {
			continue
		}
		for _, s := range matShapes {
			t.Run(fmt.Sprintf("%s/%+v", w, s), func(t *testing.T) {
				c := linearCounts(t, "linear_mat_f16_f32", w, 0, tokens, k, n, s)
				require.LessOrEqual(t, float64(c.Traffic()), 1.15*float64(c.Tile))
				require.Greater(t, float64(2*k*n*tokens)/float64(c.Traffic()), float64(ridge))
				require.Equal(t, c.GroupLeast, c.GroupCycles, "bank conflicts")
				require.Zero(t, c.Divergent, "%+v", c.Sites)
			})
		}
	}
}
