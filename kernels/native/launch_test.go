package native

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/kernels"
	"github.com/smelt-ml/smelt/kernels/emulated"
	"github.com/smelt-ml/smelt/models/quant"
)

// fences holds the memory that tests have released, by size, for reuse: the first touch of a page
// takes longer than most kernels, on some machines 28 µs.
var fences = struct {
	sync.Mutex
	free map[int][][]byte
}{free: map[int][][]byte{}}

// fenced returns n uninitialised bytes that end at an inaccessible page, so that an access
// past the end of a buffer faults.
func fenced(t testing.TB, n int) []byte {
	page := os.Getpagesize()
	size := (n + page - 1) / page * page
	fences.Lock()
	defer fences.Unlock()
	free := fences.free[size]
	if len(free) == 0 {
		memory, err := syscall.Mmap(-1, 0, size+page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
		require.NoError(t, err)
		require.NoError(t, syscall.Mprotect(memory[size:], syscall.PROT_NONE))
		free = append(free, memory)
	}
	last := len(free) - 1
	memory := free[last]
	fences.free[size] = free[:last]
	t.Cleanup(func() {
		fences.Lock()
		defer fences.Unlock()
		if size > 1<<20 { // too much to keep
			_ = syscall.Munmap(memory)
			return
		}
		fences.free[size] = append(fences.free[size], memory)
	})
	return memory[size-n : size : size]
}

func copied(t testing.TB, b []byte) []byte {
	if b == nil {
		return nil
	}
	m := fenced(t, len(b))
	copy(m, b)
	return m
}

func floatBytes(v []float32) []byte {
	b := make([]byte, 4*len(v))
	for i, x := range v {
		binary.LittleEndian.PutUint32(b[4*i:], math.Float32bits(x))
	}
	return b
}

func intBytes(v ...int32) []byte {
	b := make([]byte, 4*len(v))
	for i, x := range v {
		binary.LittleEndian.PutUint32(b[4*i:], uint32(x))
	}
	return b
}

func floats(b []byte) []float32 {
	v := make([]float32, len(b)/4)
	for i := range v {
		v[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return v
}

// elements reads a cache of halves or floats.
func elements(b []byte, elem dtype.Type) []float32 {
	v := make([]float32, len(b)/elem.BlockBytes()*elem.BlockElems())
	if err := quant.Dequantize(v, b, elem); err != nil {
		panic(err)
	}
	return v
}

func normals(rng *rand.Rand, n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(rng.NormFloat64())
	}
	return v
}

func newRand(name string) *rand.Rand {
	var seed [32]byte
	copy(seed[:], name)
	return rand.New(rand.NewChaCha8(seed))
}

// nan returns memory for n floats, filled with NaN to show unwritten elements.
func nan(n int) []byte {
	b := make([]byte, 4*n)
	for i := range b {
		b[i] = 0xff
	}
	return b
}

// randomBlocks returns blocks of random bits, in which every code and packed field occurs; only
// the scales are limited to about 0.001 to 0.004, of either sign.
func randomBlocks(rng *rand.Rand, elem dtype.Type, n int) []byte {
	raw := make([]byte, elem.Bytes(int64(n)))
	for i := range raw {
		raw[i] = byte(rng.Uint32())
	}
	for block := 0; block < len(raw); block += elem.BlockBytes() {
		if elem.Row().Halves == nil {
			raw[block] = 115 + raw[block]%4 // an exponent
		}
		for _, at := range elem.Row().Halves {
			raw[block+at+1] = 0x14 | raw[block+at+1]&0x83
		}
	}
	return raw
}

// stored returns the bytes and values of n random elements of a weight or cache type.
func stored(t testing.TB, rng *rand.Rand, n int, elem dtype.Type) ([]byte, []float32) {
	if elem.IsQuantized() {
		b := randomBlocks(rng, elem, n)
		return b, elements(b, elem)
	}
	b := make([]byte, elem.Bytes(int64(n)))
	require.NoError(t, quant.Quantize(b, normals(rng, n), elem))
	return b, elements(b, elem)
}

// dispatch is a launch with the emulator's additional inputs, and the names of its results.
type dispatch struct {
	kernel      string
	args        map[string][]byte
	params      kernels.Params
	constants   map[string]uint32
	grid, group [3]uint32
	writes      []string          // the arguments that are results, in the order in which run returns them
	shared      map[string]string // arguments that share the memory of others
	interleaved []string          // the arguments that are interleaved weights
	scratch     []byte            // of a BLAS
	hints       [kernels.NumHints]uint32
}

// index returns the buffer index of a kernel's argument.
func index(kernel, arg string) int {
	k, ok := kernels.Lookup(kernel)
	if !ok {
		panic("no kernel " + kernel)
	}
	a, ok := k.Named(arg)
	if !ok {
		panic(kernel + " has no argument " + arg)
	}
	return a.Index
}

// on returns the launch on other memory.
func (d dispatch) on(args map[string][]byte) Launch {
	buffers, constants, err := kernels.Bind(d.kernel, args, d.params, d.constants)
	if err != nil {
		panic(err)
	}
	if d.scratch != nil {
		buffers = append(buffers, make([][]byte, kernels.HostScratch+1-len(buffers))...)
		buffers[kernels.HostScratch] = d.scratch
	}
	l := Launch{Kernel: d.kernel, Buffers: buffers, Constants: constants, Grid: d.grid, Hints: d.hints}
	for _, name := range d.interleaved {
		l.Interleaved |= 1 << index(d.kernel, name)
	}
	return l
}

// alias binds the memory of shared arguments twice.
func (d dispatch) alias(args map[string][]byte) {
	for name, of := range d.shared {
		args[name] = args[of]
	}
}

func (d dispatch) launch() Launch { return d.on(d.args) }

// clone returns a copy of the dispatch on the same memory.
func (d dispatch) clone() dispatch {
	d.args, d.constants = maps.Clone(d.args), maps.Clone(d.constants)
	if d.constants == nil {
		d.constants = map[string]uint32{}
	}
	return d
}

var cuts = []Options{{Threads: 1}, {Threads: 1, Cut: 1}, {Threads: 1, Cut: 3}, {Threads: 2}}

// run executes the dispatch under an instruction set with several distributions of units,
// requires the same bits from all, and returns the results in the order of writes.
func (d dispatch) run(t testing.TB, l Library) [][]byte {
	t.Helper()
	var first [][]byte
	for _, o := range cuts {
		args := make(map[string][]byte, len(d.args))
		for name, b := range d.args {
			args[name] = copied(t, b)
		}
		d.alias(args)
		launch := d.on(args)
		k, _ := kernels.Lookup(d.kernel)
		params := copied(t, launch.Buffers[k.ParamsIndex])
		launch.Buffers[k.ParamsIndex] = params
		require.NoError(t, l.Run(launch, o))
		require.Equal(t, encode(d.params), params)
		var out [][]byte
		for _, name := range d.writes {
			out = append(out, append([]byte(nil), args[name]...))
		}
		for name, b := range args {
			if _, shared := d.shared[name]; !shared && !slices.Contains(d.writes, name) {
				require.Equal(t, d.args[name], b, "%s %s writes %s", l.ISA(), d.kernel, name)
			}
		}
		if first == nil {
			first = out
		}
		require.Equal(t, first, out, "%s %s depends on how units are cut", l.ISA(), d.kernel)
	}
	return first
}

// runWith executes the dispatch once, with one distribution of units, and returns the results
// in the order of writes.
func (d dispatch) runWith(t testing.TB, l Library, o Options) [][]byte {
	t.Helper()
	d = d.clone()
	var out [][]byte
	for _, name := range d.writes {
		d.args[name] = bytes.Clone(d.args[name])
		out = append(out, d.args[name])
	}
	require.NoError(t, l.Run(d.launch(), o))
	return out
}

// emulate runs the kernel from its Metal source.
func (d dispatch) emulate(t testing.TB) [][]byte {
	t.Helper()
	args := make(map[string][]byte, len(d.args))
	for name, b := range d.args {
		args[name] = append([]byte(nil), b...)
	}
	d.alias(args)
	l := d.on(args)
	require.NoError(t, emulated.Run(emulated.Launch{
		Kernel: d.kernel, Buffers: l.Buffers, Constants: l.Constants, Grid: d.grid, Group: d.group,
	}, emulated.Options{InPlace: d.shared != nil}))
	var out [][]byte
	for _, name := range d.writes {
		out = append(out, args[name])
	}
	return out
}

// near requires |got − want| ≤ bound·scale, and the same infinities; NaN in want marks
// memory that must stay unchanged.
func near(t testing.TB, want []float64, got []float32, scale, bound float64, what ...any) {
	t.Helper()
	require.Len(t, got, len(want), what...)
	for i, w := range want {
		g := float64(got[i])
		if w == g || math.IsNaN(w) && math.IsNaN(g) || math.Abs(g-w) <= bound*scale {
			continue
		}
		require.FailNow(t, fmt.Sprintf("element %d is %v, want %v within %v", i, g, w, bound*scale), what...)
	}
}

func widened(v []float32) []float64 {
	w := make([]float64, len(v))
	for i, x := range v {
		w[i] = float64(x)
	}
	return w
}

// each runs f as a subtest for every available instruction set.
func each(t *testing.T, f func(t *testing.T, l Library)) {
	for _, l := range Libraries() {
		t.Run(l.ISA(), func(t *testing.T) { f(t, l) })
	}
}

func ceil(a, b int) uint32 { return uint32((a + b - 1) / b) }

func encode(p kernels.Params) []byte { return kernels.Encode(p) }
