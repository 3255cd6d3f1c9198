package emulated_test

import (
	"fmt"
	"math"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/kernels/emulated"
	"github.com/smelt-ml/smelt/kernels/emulated/internal/testkernels"
)

// library is the test kernels.
var library = testkernels.Library()

func TestSimdOperationsOnPartialSimdgroups(t *testing.T) {
	for _, n := range []int{1, 4, 8, 31, 32, 33, 40, 48, 56, 64, 96, 1024} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			x := make([]float32, n)
			for i := range x {
				x[i] = float32((i*7 + 3) % 6)
			}
			out := everyway(t, emulated.Launch{
				Kernel:  "simd_operations",
				Buffers: [][]byte{floats(x...), make([]byte, n*24*4)},
				Group:   [3]uint32{uint32(n)},
			})
			got := toFloats(out[1])
			for i, v := range got {
				if v != v {
					got[i] = missing
				}
			}
			for i := range n {
				base := i &^ 31
				g := x[base:min(base+32, n)]
				require.Equal(t, simdReference(g, i-base), got[i*24:(i+1)*24], "thread %d", i)
			}
		})
	}
}

// simdReference returns the results of lane l of a simdgroup with values g. The value of an
// absent lane is NaN, represented by missing.
func simdReference(g []float32, l int) []float32 {
	n := len(g)
	sum, biggest, least, product := float32(0), g[0], g[0], float32(1)
	and, or, xor, ballot := ^uint32(0), uint32(0), uint32(0), uint64(0)
	for i, v := range g {
		sum += v
		biggest, least, product = max(biggest, v), min(least, v), product*v
		and, or, xor = and&uint32(v), or|uint32(v), xor^uint32(v)
		if v > 2 {
			ballot |= 1 << i
		}
	}
	exclusive := float32(0)
	for _, v := range g[:l] {
		exclusive += v
	}
	at := func(i int) float32 {
		if i < 0 || i >= n {
			return missing
		}
		return g[i]
	}
	down, up := g[l], g[l]
	if l < 31 {
		down = at(l + 1)
	}
	if l >= 2 {
		up = at(l - 2)
	}
	quad := float32(0)
	for i := l &^ 3; i < min(l&^3+4, n); i++ {
		quad += g[i]
	}
	truth := func(b bool) float32 {
		if b {
			return 1
		}
		return 0
	}
	want := []float32{
		sum, biggest, least, product, float32(and), float32(or), float32(xor), exclusive + g[l], exclusive,
		at(3), g[0], down, up, at(l ^ 1), float32(ballot), truth(biggest > 5), truth(biggest < 6),
		sum, sum + float32(n), sum, sum, quad, at(7 - l&7), at((l + 31) & 31),
	}
	return want
}

// missing represents NaN, which does not compare equal to itself.
var missing = float32(math.Inf(-1))

func TestEarlyReturn(t *testing.T) {
	const threads = 96
	x := make([]float32, threads)
	for i := range x {
		x[i] = float32(i % 5)
	}
	for _, n := range []int{0, 1, 2, 31, 32, 33, 40, 63, 95, 96} {
		want := make([]float32, threads)
		for base := 0; base < n; base += 32 {
			end := min(base+32, n)
			sum, odd, last := float32(0), float32(0), float32(0)
			for i := base; i < end; i++ {
				sum += x[i]
				if i%2 == 1 {
					odd++
					last = float32(i)
				}
			}
			for i := base; i < end; i++ {
				want[i] = sum
				if i%2 == 1 {
					want[i] += odd + last
				}
			}
		}
		out := everyway(t, emulated.Launch{
			Kernel:  "early_return",
			Buffers: [][]byte{floats(x...), make([]byte, threads*4), words(n)},
			Group:   [3]uint32{threads},
		})
		require.Equal(t, want, toFloats(out[1]), "n=%d", n)
	}
}

func TestThreadgroupMemory(t *testing.T) {
	for _, n := range []int{1, 5, 32, 40, 100, 1024} {
		const groups = 7
		x := make([]float32, groups*n)
		want := make([]float32, groups*n)
		for i := range x {
			x[i] = float32(i)
		}
		for g := range groups {
			for i := range n {
				j := n - 1 - i
				want[g*n+i] = x[g*n+j] + float32(j&1)
			}
		}
		out := everyway(t, emulated.Launch{
			Kernel:  "reverse",
			Buffers: [][]byte{floats(x...), make([]byte, len(x)*4)},
			Grid:    [3]uint32{groups}, Group: [3]uint32{uint32(n)},
		})
		require.Equal(t, want, toFloats(out[1]))
	}
	const n = 48
	want := make([]float32, n)
	for i := range want {
		want[i] = float32((i+1)%n) + float32(n-1-i)
	}
	out := everyway(t, emulated.Launch{
		Kernel: "dynamic_memory", Buffers: [][]byte{make([]byte, n*4)},
		Group: [3]uint32{n}, ThreadgroupBytes: []uint32{n * 4, n * 2},
	})
	require.Equal(t, want, toFloats(out[0]))
}

func TestThreadElements(t *testing.T) {
	var a [64]float32
	var b [16 * 16]float32
	for i := range a {
		a[i] = float32(i%7) - 3
	}
	for i := range b {
		b[i] = float32(i%5) - 2
	}
	var c [64]float32 // a·bᵀ + 1; b's tile begins at row 1, column 8 of rows of 16
	for i := range 8 {
		for j := range 8 {
			c[i*8+j] = 1
			for k := range 8 {
				c[i*8+j] += a[i*8+k] * b[(1+j)*16+8+k]
			}
		}
	}
	want := make([]float32, 128)
	raw := make([]float32, 64)
	for lane := range 32 {
		row, col := lane/4&4+lane/2%4, lane/4&2*2+lane%2*2
		raw[lane*2], raw[lane*2+1] = c[row*8+col], c[row*8+col+1]
		want[row*8+col] = c[row*8+col] * 2
		want[row*8+col+1] = c[row*8+col+1] + float32(lane)
	}
	for i := range 64 {
		want[64+i%8*8+i/8] = want[i]
	}
	for suffix, encode := range map[string]func(...float32) []byte{"half": halves, "bfloat": bfloats, "float": floats} {
		out := everyway(t, emulated.Launch{
			Kernel:  "elements_" + suffix,
			Buffers: [][]byte{encode(a[:]...), encode(b[:]...), make([]byte, 128*4), make([]byte, 64*4)},
			Group:   [3]uint32{32},
		})
		require.Equal(t, raw, toFloats(out[3]), suffix)
		require.Equal(t, want, toFloats(out[2]), suffix)
	}
}

func TestAtomics(t *testing.T) {
	out := everyway(t, emulated.Launch{
		Kernel: "atomics", Buffers: [][]byte{words(0), floats(0), words(0)},
		Grid: [3]uint32{40}, Group: [3]uint32{64},
	})
	require.Equal(t, [][]byte{words(40 * 64), floats(40 * 32), words(-(40*64 - 1))}, out)
}

func TestPositions(t *testing.T) {
	grid, group := [3]uint32{3, 2, 2}, [3]uint32{5, 4, 3}
	n := [3]uint32{15, 8, 6}
	out := everyway(t, emulated.Launch{
		Kernel: "positions", Buffers: [][]byte{make([]byte, 15*8*6*8*4)}, Grid: grid, Group: group,
	})
	var want []byte
	pack := func(v [3]uint32) uint32 { return v[0] | v[1]<<8 | v[2]<<16 }
	for z := range n[2] {
		for y := range n[1] {
			for x := range n[0] {
				p := [3]uint32{x % 5, y % 4, z % 3}
				i := (p[2]*4+p[1])*5 + p[0]
				want = append(want, words(pack([3]uint32{x, y, z}), pack(p), x/5|y/4<<8, i, i%32|i/32<<8, 2|32<<8, pack(n), pack(grid))...)
			}
		}
	}
	require.Equal(t, want, out[0])
}

// Two concurrent launches of one kernel have different constants.
func TestFunctionConstantsBelongToTheLaunch(t *testing.T) {
	run := func(scale, offset int, tripled *uint32) error {
		constants := map[uint32]uint32{0: uint32(scale), 1: math.Float32bits(float32(offset))}
		factor := scale
		if tripled != nil {
			constants[2] = *tripled
			if *tripled != 0 {
				factor *= 3
			}
		}
		want := make([]float32, 64)
		for i := range want {
			want[i] = float32(i*factor + offset)
		}
		l := emulated.Launch{
			Kernel: "constants", Buffers: [][]byte{make([]byte, 64*4), words(256)}, Constants: constants, Group: [3]uint32{64},
		}
		for range 50 {
			if err := library.Run(l, emulated.Options{}); err != nil {
				return err
			}
			if got := toFloats(l.Buffers[0]); !equal(want, got) {
				return fmt.Errorf("scale %d offset %d: %v", scale, offset, got)
			}
		}
		return nil
	}
	zero, one := uint32(0), uint32(1)
	errs := make([]error, 4)
	var wg sync.WaitGroup
	wg.Go(func() { errs[0] = run(1, 0, nil) })
	wg.Go(func() { errs[1] = run(2, 5, &zero) })
	wg.Go(func() { errs[2] = run(3, -1, &one) })
	wg.Go(func() { errs[3] = run(7, 2, &one) })
	wg.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	err := library.Run(emulated.Launch{Kernel: "constants", Buffers: [][]byte{nil, words(1)}, Constants: map[uint32]uint32{0: 1}}, emulated.Options{})
	require.ErrorContains(t, err, "kernel constants: function constant 1 is not set")
}

func equal(a, b []float32) bool {
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return len(a) == len(b)
}

// ---- kernels that are wrong

// A missing barrier gives a wrong or NaN result in at least one order.
func TestMissingBarrierShows(t *testing.T) {
	const n = 64
	for _, kernel := range []string{"missing_barrier", "weak_barrier"} {
		shown := map[emulated.Order]bool{}
		for _, order := range []emulated.Order{emulated.Ascending, emulated.Descending, emulated.Shuffled} {
			l := emulated.Launch{Kernel: kernel, Buffers: [][]byte{make([]byte, n*4)}, Group: [3]uint32{n}}
			require.NoError(t, library.Run(l, emulated.Options{Order: order, Seed: 3, Poison: true}))
			for i, v := range toFloats(l.Buffers[0]) {
				want := float32(i^1) + 1
				if kernel == "weak_barrier" {
					want = float32(n - i)
				}
				if v != want {
					shown[order] = true
				}
			}
		}
		require.NotEmpty(t, shown, kernel)
		require.True(t, shown[emulated.Shuffled], kernel)
	}
}

func TestWrongKernelsAreErrors(t *testing.T) {
	const n = 64
	buffer := make([]byte, n*4)
	for _, c := range []struct {
		kernel  string
		buffers [][]byte
		errors  []string // all are part of the message
	}{
		{"divergent", [][]byte{buffer}, []string{"kernel divergent: threads of a threadgroup diverge", "simd_sum at kernels/emulated/testdata/wrong.metal:", "simd_max at kernels/emulated/testdata/wrong.metal:", "threadgroup 0,0,0"}},
		{"divergent_line", [][]byte{buffer}, []string{"threads of a threadgroup diverge: simd_sum at"}},
		{"skipped", [][]byte{buffer}, []string{"simd_sum at", "threadgroup_barrier at"}},
		{"two_barriers", [][]byte{buffer}, []string{"threadgroup_barrier at kernels/emulated/testdata/wrong.metal:", "diverge"}},
		{"left_alone", [][]byte{buffer, words(0)}, []string{"wrong.metal:", "return"}},
		{"left_alone", [][]byte{buffer, words(40)}, []string{"wrong.metal:", "return"}},
		{"left_alone", [][]byte{buffer, words(63)}, []string{"wrong.metal:", "return"}},
		{"uneven", [][]byte{buffer}, []string{"simd_sum at", "simd_max at"}},
		{"spins", [][]byte{words(0)}, []string{"wrong.metal:", "atomic_load_explicit waits for a thread that cannot run"}},
	} {
		t.Run(c.kernel, func(t *testing.T) {
			for _, order := range []emulated.Order{emulated.Ascending, emulated.Descending, emulated.Shuffled} {
				if c.kernel == "spins" && order != emulated.Ascending {
					continue // another thread may come first
				}
				l := emulated.Launch{Kernel: c.kernel, Buffers: c.buffers, Group: [3]uint32{n}, Grid: [3]uint32{2}}
				err := library.Run(l, emulated.Options{Order: order, Seed: 5})
				require.Error(t, err, order)
				for _, part := range c.errors {
					require.ErrorContains(t, err, part, order)
				}
			}
			// The worker is usable afterwards.
			good := emulated.Launch{Kernel: "left_alone", Buffers: [][]byte{make([]byte, n*4), words(n)}, Group: [3]uint32{n}}
			require.NoError(t, library.Run(good, emulated.Options{}))
			require.Equal(t, float32(1), toFloats(good.Buffers[0])[n-1])
		})
	}
}

func TestRefusedLaunches(t *testing.T) {
	out := make([]byte, 4096)
	for _, c := range []struct {
		launch emulated.Launch
		want   string
	}{
		{emulated.Launch{Kernel: "no_such"}, `kernel "no_such": no such kernel`},
		{emulated.Launch{Kernel: "reverse", Group: [3]uint32{1025}}, "1025,1,1 threads in a threadgroup, at most 1024"},
		{emulated.Launch{Kernel: "reverse", Group: [3]uint32{1 << 16, 1 << 16, 1 << 16}}, "threads in a threadgroup, at most 1024"},
		{emulated.Launch{Kernel: "small_groups", Group: [3]uint32{65}}, "65,1,1 threads in a threadgroup, at most 64"},
		{emulated.Launch{Kernel: "early_return", Buffers: [][]byte{out, out}}, "buffer 2 (n) is not bound"},
		{emulated.Launch{Kernel: "early_return", Buffers: [][]byte{out, out, {1, 2}}}, "buffer 2 (n) has 2 bytes, the kernel reads 4"},
		{emulated.Launch{Kernel: "dynamic_memory", Buffers: [][]byte{out}}, "threadgroup memory 0 has no length"},
		{emulated.Launch{Kernel: "dynamic_memory", Buffers: [][]byte{out}, ThreadgroupBytes: []uint32{16, 20}}, "threadgroup memory 1 has 20 bytes, not a multiple of 16"},
		{emulated.Launch{Kernel: "dynamic_memory", Buffers: [][]byte{out}, ThreadgroupBytes: []uint32{32768, 16}}, "32784 bytes of threadgroup memory, at most 32768"},
		{emulated.Launch{Kernel: "dynamic_memory", ThreadgroupBytes: make([]uint32, 5)}, "5 threadgroup arguments, at most 4"},
		{emulated.Launch{Kernel: "reverse", Buffers: make([][]byte, 32)}, "32 buffers, at most 31"},
		{emulated.Launch{Kernel: "reverse", Constants: map[uint32]uint32{32: 1}}, "function constant index 32, at most 31"},
		{emulated.Launch{Kernel: "reverse", Grid: [3]uint32{1 << 31, 1 << 31, 1 << 31}}, "more than 2^64 threadgroups"},
	} {
		require.ErrorContains(t, library.Run(c.launch, emulated.Options{}), c.want)
	}
	require.ErrorIs(t, library.Run(emulated.Launch{Kernel: "no_such"}, emulated.Options{}), emulated.ErrUnknownKernel)
}
