package kernels_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/ir/dtype/half"
	"github.com/smelt-ml/smelt/kernels"
	"github.com/smelt-ml/smelt/kernels/emulated"
	"github.com/smelt-ml/smelt/kernels/emulated/plugin"
	"github.com/smelt-ml/smelt/models/quant"
)

// The conformance tests run every kernel from its source on the CPU and compare it with
// its formula in float64. The plain run has a small grid of shapes; SMELT_FULL=kernels runs
// all.

// everything reports whether all shapes run. It reads the environment while a test runs: the
// go command caches results by the variables that tests read, but not by those that packages
// read at initialisation.
func everything() bool { return testfiles.Full("kernels") }

// few returns the short list in the plain run and the long list in the full run.
func few[T any](short, long []T) []T {
	if everything() {
		return long
	}
	return short
}

// guard is the number of bytes after a result that must stay unchanged.
const guard = 64

// tensor is memory bound to a kernel, in the element type of one of its arguments.
type tensor struct {
	element kernels.Element
	bytes   []byte
	length  int // elements, without the guard of a result
}

func (t tensor) put(i int, v float64) {
	switch t.element {
	case kernels.Half:
		binary.LittleEndian.PutUint16(t.bytes[2*i:], half.F32ToF16(float32(v)))
	case kernels.Bfloat:
		binary.LittleEndian.PutUint16(t.bytes[2*i:], half.F32ToBF16(float32(v)))
	case kernels.Float:
		binary.LittleEndian.PutUint32(t.bytes[4*i:], math.Float32bits(float32(v)))
	case kernels.Blocks: // an element has no scale of its own: put can only store NaN
		if math.IsNaN(v) || math.IsInf(v, 0) {
			binary.LittleEndian.PutUint16(t.bytes[i/32*34:], 0x7e00)
		} else if !math.IsNaN(t.at(i)) {
			panic("put: a number into a block")
		}
	default:
		panic("put: " + t.element)
	}
}

func (t tensor) at(i int) float64 {
	switch t.element {
	case kernels.Half:
		return float64(half.F16ToF32(binary.LittleEndian.Uint16(t.bytes[2*i:])))
	case kernels.Bfloat:
		return float64(half.BF16ToF32(binary.LittleEndian.Uint16(t.bytes[2*i:])))
	case kernels.Int:
		return float64(int32(binary.LittleEndian.Uint32(t.bytes[4*i:])))
	case kernels.Blocks:
		block := t.bytes[i/32*34:]
		return float64(half.F16ToF32(binary.LittleEndian.Uint16(block))) * float64(int8(block[2+i%32]))
	}
	return float64(math.Float32frombits(binary.LittleEndian.Uint32(t.bytes[4*i:])))
}

func (t tensor) values() []float64 {
	out := make([]float64, t.length)
	for i := range out {
		out[i] = t.at(i)
	}
	return out
}

func (t tensor) clone() tensor {
	t.bytes = append([]byte(nil), t.bytes...)
	return t
}

// filled returns a tensor of f(i), rounded to the element type.
func filled(e kernels.Element, n int, f func(i int) float64) tensor {
	t := tensor{e, make([]byte, sizeOf(e, n)), n}
	if e == kernels.Blocks {
		for i := 0; i < n; i += 32 {
			var x [32]float64
			for j := range x {
				x[j] = f(i + j)
			}
			fillBlock(t.bytes[i/32*34:], &x)
		}
		return t
	}
	for i := range n {
		t.put(i, f(i))
	}
	return t
}

// sizeOf returns the size of n elements in bytes.
func sizeOf(e kernels.Element, n int) int {
	if e == kernels.Blocks {
		n /= 32
	}
	return n * e.Size()
}

// fillBlock rounds 32 numbers to a Q8_0 block, of NaNs if their scale is out of range.
func fillBlock(to []byte, x *[32]float64) {
	var single [32]float32
	for i, v := range x {
		single[i] = float32(v)
	}
	if err := quant.Quantize(to[:34], single[:], dtype.Q8_0); err != nil {
		clear(to[:34])
		binary.LittleEndian.PutUint16(to, 0x7e00)
	}
}

// headFor returns a head size that the types allow, at least n.
func headFor(types []kernels.Element, n int) int {
	if slices.Contains(types, kernels.Blocks) {
		return ceil(n, 32) * 32
	}
	return n
}

// random returns normally distributed values.
func random(rng *rand.Rand, e kernels.Element, n int) tensor {
	return filled(e, n, func(int) float64 { return rng.NormFloat64() })
}

func ints(values []int32) tensor {
	t := tensor{kernels.Int, make([]byte, 4*len(values)), len(values)}
	for i, v := range values {
		binary.LittleEndian.PutUint32(t.bytes[4*i:], uint32(v))
	}
	return t
}

// result returns memory for n elements, filled with NaN to show unwritten elements, and a
// guard after it.
func result(e kernels.Element, n int) tensor {
	t := tensor{e, make([]byte, sizeOf(e, n)+guard), n}
	for i := range t.bytes {
		t.bytes[i] = 0xff
	}
	return t
}

// launch is one dispatch; results are the tensors among its buffers that it writes.
type launch struct {
	kernel    string
	constants map[string]uint32
	buffers   map[string]tensor // by the names of the table
	params    kernels.Params
	grid      [3]int
	group     int
}

// replacement returns libraries that replace emulated kernels by name: internal/mutants uses
// it to run the tests on kernels with deliberate faults.
var replacement = sync.OnceValue(func() map[string]emulated.Library {
	path := os.Getenv("SMELT_KERNELS_LIBRARY")
	if path == "" {
		return nil
	}
	library, err := plugin.Open(path)
	if err != nil {
		panic(err)
	}
	replaced := map[string]emulated.Library{}
	for _, name := range library.Names() {
		replaced[name] = library
	}
	return replaced
})

// execute runs a launch on the emulator, or on the device under test. Launches with InPlace
// always run on the emulator, because no device has their memory.
func execute(l emulated.Launch, o emulated.Options) error {
	if run := onDevice(); run != nil && !o.InPlace {
		return run(l)
	}
	if library, ok := replacement()[l.Kernel]; ok {
		return library.Run(l, o)
	}
	return emulated.Run(l, o)
}

// orders are the orders of lanes in which the emulator runs each launch.
var orders = []emulated.Options{
	{Order: emulated.Ascending, Poison: true},
	{Order: emulated.Descending, Poison: true},
	{Order: emulated.Shuffled, Seed: 7, Poison: true},
}

// turns returns the orders in which a launch runs; a device has only its own.
func turns() []emulated.Options {
	if onDevice() != nil {
		return orders[:1]
	}
	return orders
}

// host converts the launch for kernels.Check.
func (l launch) host() *kernels.Launch {
	buffers := slices.Repeat([]int64{kernels.Unbound}, 20)
	k, _ := kernels.Lookup(l.kernel)
	for name, b := range l.buffers {
		a, _ := k.Named(name)
		buffers[a.Index] = int64(sizeOf(b.element, b.length))
	}
	return &kernels.Launch{
		Kernel:    l.kernel,
		Constants: l.bits(),
		Buffers:   buffers,
		Params:    kernels.Words(l.params),
		Grid:      [3]uint32{uint32(l.grid[0]), uint32(l.grid[1]), uint32(l.grid[2])},
		Group:     [3]uint32{uint32(l.group), 1, 1},
	}
}

// bits returns the function constants by index.
func (l launch) bits() map[uint32]uint32 {
	_, bits, err := kernels.Bind(l.kernel, nil, l.params, l.constants)
	if err != nil {
		panic(err)
	}
	return bits
}

// run executes the launch in every order of lanes, with poisoned threadgroup memory,
// on fresh copies of what it writes. All must agree bit for bit. It returns the
// written tensors.
func (l launch) run(t *testing.T) map[string]tensor {
	t.Helper()
	k, ok := kernels.Lookup(l.kernel)
	require.True(t, ok, l.kernel)
	require.LessOrEqual(t, l.group, k.MaxThreads)
	for name, b := range l.buffers {
		arg, ok := k.Named(name)
		require.True(t, ok, "%s has no buffer %s", l.kernel, name)
		require.Equal(t, arg.Element, b.element, "%s: %s", l.kernel, name)
	}
	for _, a := range k.Args {
		if _, bound := l.buffers[a.Name]; !bound {
			require.True(t, a.Optional, "%s: %s is unbound", l.kernel, a.Name)
		}
	}
	require.NoError(t, kernels.Check(l.host()))
	var first map[string]tensor
	for _, order := range turns() {
		written, memory := map[string]tensor{}, map[string][]byte{}
		for name, b := range l.buffers {
			if a, _ := k.Named(name); a.Access == kernels.Write {
				b = b.clone()
				written[name] = b
			}
			memory[name] = b.bytes
		}
		buffers, constants, err := kernels.Bind(l.kernel, memory, l.params, l.constants)
		require.NoError(t, err)
		require.NoError(t, execute(emulated.Launch{
			Kernel:    l.kernel,
			Buffers:   buffers,
			Constants: constants,
			Grid:      [3]uint32{uint32(l.grid[0]), uint32(l.grid[1]), uint32(l.grid[2])},
			Group:     [3]uint32{uint32(l.group), 1, 1},
		}, order), "%+v", order)
		for name, b := range written {
			end := sizeOf(b.element, b.length)
			require.Equal(t, l.buffers[name].bytes[end:], b.bytes[end:], "%s writes past %s", l.kernel, name)
			if first != nil {
				require.Equal(t, first[name].bytes, b.bytes, "%s: %s depends on the order of lanes", l.kernel, name)
			}
		}
		if first == nil {
			first = written
		}
	}
	seen.launch(t, k, l.constants)
	return first
}

// bounds are the largest errors allowed, relative to the largest magnitude in a row of
// the result, by the least precise type that a value passes through. Q8_0 rounds to
// half a step of 1/127 of it, and rounds the step to a half.
var bounds = map[kernels.Element]float64{kernels.Float: 1e-5, kernels.Half: 2e-3, kernels.Bfloat: 8e-3, kernels.Blocks: 1. / 220}

// steps are the smallest distances between numbers of a type: an error of half a step is
// unavoidable.
var steps = map[kernels.Element]float64{kernels.Half: 0x1p-24}

func worst(elements ...kernels.Element) float64 {
	bound := 0.0
	for _, e := range elements {
		bound = max(bound, bounds[e])
	}
	return bound
}

// compare checks got against want in rows of `width`.
func compare(t *testing.T, want, got []float64, width int, bound float64) {
	t.Helper()
	require.Equal(t, len(want), len(got))
	var off deviation
	for start := 0; start < len(want); start += width {
		largest := 0.0
		for _, v := range want[start : start+width] {
			if !math.IsInf(v, 0) && !math.IsNaN(v) {
				largest = max(largest, math.Abs(v))
			}
		}
		for i := start; i < start+width; i++ {
			if want[i] == got[i] || math.IsNaN(want[i]) && math.IsNaN(got[i]) {
				continue
			}
			err := math.Abs(want[i] - got[i])
			if !(err <= bound*largest) {
				require.FailNow(t, "out of bounds", "row %d, column %d: %v, want %v (largest in the row %v)",
					start/width, i-start, got[i], want[i], largest)
			}
			off.add(err, largest, bound*largest)
		}
	}
	seen.compare(t, off)
}

// product is a sum and its scale, the sum of its terms' magnitudes. Errors are relative to
// the scale, because terms may cancel while their rounding errors do not.
type product struct{ value, scale float64 }

func compareProducts(t *testing.T, want []product, got tensor, types []kernels.Element) {
	t.Helper()
	require.Equal(t, len(want), got.length)
	types = slices.DeleteFunc(slices.Clone(types), func(e kernels.Element) bool { return e == kernels.Blocks }) // floats hold what is in one
	bound, step := worst(types...), steps[got.element]
	var off deviation
	for i, p := range want {
		v := got.at(i)
		err := math.Abs(v - p.value)
		if !(err <= bound*p.scale+step) {
			require.FailNow(t, "out of bounds", "element %d: %v, want %v (its terms sum to %v)", i, v, p.value, p.scale)
		}
		off.add(err, p.scale, bound*p.scale+step)
	}
	seen.compare(t, off)
}

// agree compares results of one computation by launches that differ in tiles, grids or
// constants. The emulator gives the same bits; a GPU's compiler may contract each variant
// in its own way, so there the bounds hold.
func agree(t *testing.T, want, got tensor, message ...any) {
	t.Helper()
	if onDevice() == nil {
		require.Equal(t, want.bytes, got.bytes, message...)
		return
	}
	compare(t, want.values(), got.values(), want.length, worst(want.element))
}

func ceil(n, d int) int { return (n + d - 1) / d }

func newRand(name string) *rand.Rand {
	seed := uint64(14695981039346656037)
	for _, c := range []byte(name) {
		seed = (seed ^ uint64(c)) * 1099511628211
	}
	return rand.New(rand.NewPCG(seed, 1))
}

// instances calls f for every instance of a family, with the types of its suffix.
func instances(t *testing.T, family string, f func(t *testing.T, name string, types []kernels.Element)) {
	t.Helper()
	found := false
	for _, k := range kernels.All() {
		if k.Family != family {
			continue
		}
		found = true
		t.Run(k.Name, func(t *testing.T) { f(t, k.Name, typesOf(k.Name[len(family):])) })
	}
	require.True(t, found, family)
}

func typesOf(suffix string) []kernels.Element {
	var out []kernels.Element
	for part := range strings.SplitSeq(strings.Trim(strings.Replace(suffix, "q8_0", "q8", 1), "_"), "_") {
		if part == "" {
			continue
		}
		e, ok := map[string]kernels.Element{"f32": kernels.Float, "f16": kernels.Half, "bf16": kernels.Bfloat, "q8": kernels.Blocks}[part]
		if !ok {
			panic(fmt.Sprintf("suffix %q", suffix))
		}
		out = append(out, e)
	}
	return out
}

// exact records that the results of the test's launches are exact.
func exact(t *testing.T) { seen.compare(t, deviation{}) }
