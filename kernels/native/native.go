// Package native holds the kernels of device cpu: C++ with SIMD, under the host names of
// the float instances of the Metal kernels. They have the buffers, parameters and function
// constants of the emulated kernels, by the names of kernels/abi/arguments.gen.h, and ignore
// the grid, except for the number of partitions that attention_vec writes.
//
//	src/             the kernels, written once over a small set of vector functions
//	src/simd_*.h     the vector functions, one file per instruction set
//	src/unit_*.h     the kernels by family; each is a source file of a set, so they compile in parallel
//	src/plain.h      products of quantized weights as plain loops, for the portable set
//	src/panel.h      the weight layout for products with many tokens, for sets whose
//	                 instructions do not need a layout of their own
//	blas/            products that the system's BLAS computes, in builds that have one
//
// Each set is compiled in its own folder, because cgo gives all files of a package the same
// flags. A set whose instructions only speed up byte products is an overlay of the set
// without them (src/unit_overlay.h): it compiles the linear layers whose weights are all
// quantized, and uses the other set's kernels for the rest. The program chooses the best set
// of its processor at start; the environment variable SMELT_ISA names another. From the best
// to the last:
//
//	x86-64  avx512    AVX-512 F, BW, CD, DQ, VL with VNNI; without VNNI it is avx2
//	        avxvnni   AVX2, FMA and F16C with AVX-VNNI: dot products of bytes
//	        avx2      AVX2, FMA and F16C
//	arm64   i8mm      NEON with FEAT_I8MM: products of matrices of bytes
//	        dotprod   NEON with FEAT_DotProd: dot products of bytes
//	        neon      NEON of Armv8.0, which every arm64 processor has
//	any     portable  no instruction set in particular
//
// Dispatches without a native kernel, such as those with half activations, fall back to the
// emulated Metal sources, which are slower by an order of magnitude.
//
// Laws:
//
//   - A kernel is one or two stages of independent units of work. Its result is
//     bit-identical for any distribution of units to any number of threads.
//   - A set's code is in a namespace with the set's name, so that the linker never merges
//     functions compiled for different instruction sets.
//   - A weight may be interleaved by [Library.Interleave], which does not change a bit of a
//     result.
//   - The result of a linear layer for a token is bit-identical alone, in a batch, in
//     linear_vec and in linear_mat.
//   - The result of attention for a token is bit-identical in attention_vec and
//     attention_tile, in any batch, for any chunks of its prompt and any blocks of its cache.
//     Only the partitions of split-KV, if the launch sets fc_split, can change bits.
//   - Sets with fused multiply-add (all but portable) agree bit for bit on quantized weights;
//     on float weights they differ in the order of sums, and avx512 rounds half weights and
//     their activations ([Library.HalfIntegers]).
//   - A kernel never reads or writes outside the buffers, whatever the tables of slots,
//     blocks and tokens hold: indices outside count as absent.
//   - Infinities and NaN propagate as in IEEE 754, except that one among values that are
//     rounded to integers makes its block, and all results that use the block, NaN. Nothing
//     is compiled with fast maths.
//
// Package src puts its headers into Go's build graph: a change makes go build compile the sets
// again. After adding or removing a kernel, `go test ./kernels/native -run TestNames -update`
// updates the list in package kernels.
package native

/*
#include <stdlib.h>
#include "src/set.h"

static const char *set_isa(const void *s) { return ((const smelt_native *)s)->isa; }
static const char *set_name(const void *s, uint32_t i) {
    const smelt_native_kernel *k = ((const smelt_native_set *)s)->at(i);
    return k == NULL ? NULL : k->name;
}
static const smelt_native_kernel *set_find(const void *s, const char *name) {
    return ((const smelt_native *)s)->find(name);
}
static uint32_t set_interleave(const void *s, uint32_t type, uint64_t k, const void *from, uint64_t rows, void *to) {
    return ((const smelt_native *)s)->interleave(type, k, from, rows, to);
}
static uint32_t set_half_integers(const void *s) { return ((const smelt_native *)s)->half_integers; }
static uint64_t set_interleaved_bytes(const void *s, uint32_t type, uint64_t k, uint64_t rows) {
    return ((const smelt_native *)s)->interleaved_bytes(type, k, rows);
}
static int kernel_supports(const smelt_native_kernel *k, const smelt_launch *l) { return k->supports(l); }
static size_t kernel_shared(const smelt_native_kernel *k, const smelt_launch *l) {
    return k->shared_bytes == NULL ? 0 : k->shared_bytes(l);
}
static uint64_t stage_units(const smelt_native_kernel *k, uint32_t stage, const smelt_launch *l) {
    return k->stages[stage].units(l);
}
static void stage_run(const smelt_native_kernel *k, uint32_t stage, const smelt_launch *l, void *shared,
                      uint64_t begin, uint64_t end) {
    k->stages[stage].run(l, shared, begin, end);
}
static smelt_units kernel_readers(const smelt_native_kernel *k, const smelt_launch *l, uint32_t argument) {
    smelt_units none = {0, 0};
    return k->readers == NULL ? none : k->readers(l, argument);
}
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/smelt-ml/smelt/kernels"
	_ "github.com/smelt-ml/smelt/kernels/abi" // whose headers are included above
	"github.com/smelt-ml/smelt/kernels/native/blas"
	_ "github.com/smelt-ml/smelt/kernels/native/src" // whose headers are included above
)

// Library holds the kernels compiled for one instruction set.
type Library struct {
	set unsafe.Pointer // const smelt_native_set *
}

// Libraries returns the libraries that this processor can run, the best first.
func Libraries() []Library {
	sets := sets()
	out := make([]Library, len(sets))
	for i, s := range sets {
		out[i] = Library{s}
	}
	return out
}

// set is the kernels of one instruction set, and whether the processor can run them.
type set struct {
	here    bool
	kernels func() unsafe.Pointer // const smelt_native_set *
}

func having(all ...set) []unsafe.Pointer {
	var out []unsafe.Pointer
	for _, s := range all {
		if s.here {
			out = append(out, s.kernels())
		}
	}
	return out
}

var best = sync.OnceValue(func() Library {
	all := Libraries()
	l, err := choose(all, os.Getenv("SMELT_ISA"))
	if err != nil {
		fmt.Fprintf(os.Stderr, "smelt: %v; using %s\n", err, all[0].ISA())
		return all[0]
	}
	return l
})

// choose returns the library with the name, or the first if the name is "".
func choose(all []Library, isa string) (Library, error) {
	names := make([]string, len(all))
	for i, l := range all {
		if isa == "" || strings.EqualFold(isa, l.ISA()) {
			return l, nil
		}
		names[i] = l.ISA()
	}
	return Library{}, fmt.Errorf("SMELT_ISA=%s is not an available instruction set (%s)", isa, strings.Join(names, ", "))
}

// Provider returns the chosen library as a const smelt_native* of kernels/abi/abi.h.
func Provider() unsafe.Pointer { return best().set }

// ISA returns the name of the chosen instruction set.
func ISA() string { return best().ISA() }

// Names returns the host names of the kernels.
func Names() []string { return best().Names() }

// Run executes a launch with the chosen library.
func Run(l Launch, o Options) error { return best().Run(l, o) }

// BLAS returns the kernels that use the system's BLAS, and whether the build has one. They
// multiply float weights with several tokens, and need scratch at [kernels.HostScratch].
func BLAS() (Library, bool) {
	set := blas.Set()
	return Library{set}, set != nil
}

// Provider returns the library as a const smelt_native*.
func (l Library) Provider() unsafe.Pointer { return l.set }

// ISA returns the name of the instruction set, a value of SMELT_ISA.
func (l Library) ISA() string { return C.GoString(C.set_isa(l.set)) }

// Names returns the host names of the kernels.
func (l Library) Names() []string {
	var out []string
	for i := C.uint32_t(0); ; i++ {
		name := C.set_name(l.set, i)
		if name == nil {
			return out
		}
		out = append(out, C.GoString(name))
	}
}

// Launch is one dispatch, as in package emulated.
type Launch struct {
	Kernel    string
	Buffers   [][]byte          // by [[buffer(i)]]; nil is unbound
	Constants map[uint32]uint32 // bits by [[function_constant(i)]]
	Grid      [3]uint32         // threadgroups; only attention_vec with fc_split reads it

	// Hints holds the hints of kernels/abi/abi.h, by number; 0 is the kernel's default.
	Hints [kernels.NumHints]uint32

	// Interleaved has bit i set if buffer i is a weight interleaved by [Library.Interleave].
	Interleaved uint32
}

// Interleave returns a weight [rows, k] of a type of ir/dtype with groups of rows interleaved,
// so that the library's kernels read it sequentially; it may be a few bytes longer. It returns
// nil if the type does not profit, or there are fewer rows than in a group.
func (l Library) Interleave(weightType uint32, rows, k int, weight []byte) []byte {
	group := int(C.set_interleave(l.set, C.uint32_t(weightType), C.uint64_t(k), nil, 0, nil))
	if group == 0 || rows < group {
		return nil
	}
	out := make([]byte, C.set_interleaved_bytes(l.set, C.uint32_t(weightType), C.uint64_t(k), C.uint64_t(rows)))
	C.set_interleave(l.set, C.uint32_t(weightType), C.uint64_t(k), unsafe.Pointer(unsafe.SliceData(weight)), C.uint64_t(rows), unsafe.Pointer(unsafe.SliceData(out)))
	return out
}

// HalfIntegers reports whether the kernels convert F16 and BF16 weights, and their activations,
// to 16-bit integers with one scale per 64. Embeddings then have the converted values, too.
func (l Library) HalfIntegers() bool { return C.set_half_integers(l.set) != 0 }

// Options distribute a launch to threads; they do not change the result.
type Options struct {
	Threads int    // 0 means one
	Cut     uint64 // units that a thread takes at a time; 0 gives each thread an equal share
}

// ErrUnsupported is wrapped by Run's error if there is no kernel with the launch's name, or it
// does not support the constants, sizes or buffers.
var ErrUnsupported = errors.New("no native kernel")

// Run executes a launch. It is for tests and measurements: devices call the kernels
// through Provider.
func (l Library) Run(launch Launch, o Options) error {
	c, err := l.prepare(launch)
	if err != nil {
		return err
	}
	defer c.free()
	c.run(o)
	return nil
}

// call is a launch converted to the C structs of abi.h.
type call struct {
	kernel *C.smelt_native_kernel
	launch *C.smelt_launch
	shared unsafe.Pointer
	stages int
	memory []unsafe.Pointer
	pinned runtime.Pinner
}

func (l Library) prepare(launch Launch) (*call, error) {
	c := &call{}
	alloc := func(n int) unsafe.Pointer {
		p := C.calloc(1, C.size_t(max(n, 1)))
		c.memory = append(c.memory, p)
		return p
	}
	name := C.CString(launch.Kernel)
	c.memory = append(c.memory, unsafe.Pointer(name))
	if c.kernel = C.set_find(l.set, name); c.kernel == nil {
		c.free()
		return nil, fmt.Errorf("kernel %q: %w", launch.Kernel, ErrUnsupported)
	}
	n := len(launch.Buffers)
	pointers := unsafe.Slice((*unsafe.Pointer)(alloc(n*int(unsafe.Sizeof(uintptr(0))))), n)
	sizes := unsafe.Slice((*C.uint64_t)(alloc(8*n)), n)
	constants := unsafe.Slice((*C.uint32_t)(alloc(4*32)), 32)
	for i, b := range launch.Buffers {
		sizes[i] = C.uint64_t(len(b))
		if p := unsafe.SliceData(b); p != nil {
			c.pinned.Pin(p)
			pointers[i] = unsafe.Pointer(p)
		}
	}
	c.launch = (*C.smelt_launch)(alloc(int(unsafe.Sizeof(C.smelt_launch{}))))
	c.launch.kernel = name
	c.launch.buffers = unsafe.SliceData(pointers)
	c.launch.buffer_bytes = unsafe.SliceData(sizes)
	c.launch.buffer_count = C.uint32_t(n)
	c.launch.interleaved = C.uint32_t(launch.Interleaved)
	for i, v := range launch.Hints {
		c.launch.hints[i] = C.uint32_t(v)
	}
	c.launch.constants = unsafe.SliceData(constants)
	for i, n := range launch.Grid {
		c.launch.grid[i] = C.uint32_t(n)
	}
	for i, v := range launch.Constants {
		constants[i] = C.uint32_t(v)
		c.launch.constants_set |= 1 << i
	}
	if C.kernel_supports(c.kernel, c.launch) == 0 {
		c.free()
		return nil, fmt.Errorf("kernel %q: %w for these constants, sizes or buffers", launch.Kernel, ErrUnsupported)
	}
	if n := C.kernel_shared(c.kernel, c.launch); n > 0 {
		c.shared = C.aligned_alloc(64, (n+63)/64*64)
		c.memory = append(c.memory, c.shared)
	}
	c.stages = int(c.kernel.stage_count)
	return c, nil
}

func (c *call) units(stage int) uint64 {
	return uint64(C.stage_units(c.kernel, C.uint32_t(stage), c.launch))
}

func (c *call) runUnits(stage int, begin, end uint64) {
	C.stage_run(c.kernel, C.uint32_t(stage), c.launch, c.shared, C.uint64_t(begin), C.uint64_t(end))
}

// readers returns the units of the last stage that read the rows of a buffer in order.
func (c *call) readers(buffer int) (first, count uint64) {
	u := C.kernel_readers(c.kernel, c.launch, C.uint32_t(buffer))
	return uint64(u.first), uint64(u.count)
}

func (c *call) run(o Options) {
	threads := uint64(max(o.Threads, 1))
	for stage := range c.stages {
		units := c.units(stage)
		cut := o.Cut
		if cut == 0 {
			cut = (units + threads - 1) / threads
		}
		if threads == 1 || units <= cut {
			for begin := uint64(0); begin < units; begin += cut {
				c.runUnits(stage, begin, min(begin+cut, units))
			}
			continue
		}
		var next atomic.Uint64
		var wait sync.WaitGroup
		for range threads {
			wait.Go(func() {
				for {
					end := next.Add(cut)
					if end-cut >= units {
						return
					}
					c.runUnits(stage, end-cut, min(end, units))
				}
			})
		}
		wait.Wait()
	}
}

func (c *call) free() {
	c.pinned.Unpin()
	for _, p := range c.memory {
		C.free(p)
	}
	c.memory = nil
}
