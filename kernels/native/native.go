// Package native holds the kernels of device cpu: C++ with SIMD, behind the host
// names of the float instances of the Metal kernels. They take the same buffers,
// parameters and function constants as their twins in package emulated, by the names of
// kernels/abi/arguments.gen.h, and ignore the grid, but for the number of partitions that
// attention_vec writes.
//
//	src/             the kernels, written once over a small set of vector functions
//	src/simd_*.h     those functions for one instruction set each
//	src/unit_*.h     the kernels by family, each a source file of a set: they compile side by side
//	src/plain.h      products of quantized weights as plain loops, for the portable set
//	src/panel.h      how weights are laid out for products with many tokens, for the
//	                 sets whose instructions do not ask for a layout of their own
//	blas/            products that the system's BLAS computes, where a build has one
//
// A directory for each set compiles them, because cgo gives all files of a package the
// same flags. A set whose instructions multiply bytes faster, and nothing else, is laid over
// the one without them (src/unit_overlay.h): it compiles linear layers of quantized weights,
// and hands on all others, a layer that also has a float weight among them. The best that the processor has is chosen when the program starts; the
// environment variable SMELT_ISA names a lower one. From the best to the last:
//
//	x86-64  avx512    AVX-512 F, BW, CD, DQ, VL with VNNI; without VNNI it is avx2
//	        avxvnni   AVX2, FMA and F16C with AVX-VNNI: dot products of bytes
//	        avx2      AVX2, FMA and F16C
//	arm64   i8mm      NEON with FEAT_I8MM: products of matrices of bytes
//	        dotprod   NEON with FEAT_DotProd: dot products of bytes
//	        neon      NEON of Armv8.0, which every arm64 processor has
//	any     portable  no instruction set in particular
//
// What has no kernel here, such as activations in halves, the device runs from the Metal
// sources, which is slower by an order of magnitude.
//
// Laws:
//
//   - A kernel is one or two stages of independent units. The result has the same bits
//     however the units are shared out, and on however many threads.
//   - A set's code is in a namespace of its own name: the linker never merges what was compiled
//     for different instruction sets.
//   - A weight may come interleaved, as [Library.Interleave] makes it of groups of rows, with
//     the same bits of results.
//   - Linear layers treat each token alone: a token gives the same bits by itself, in a
//     batch, and in linear_vec or linear_mat.
//   - So does attention: a token gives the same bits in attention_vec and in attention_tile,
//     whoever stands beside it, wherever its prompt is cut and whatever the blocks of its cache.
//     Only where the launch says how keys are cut does that decide (fc_split).
//   - Sets with fused multiply-add (all but portable) agree bit for bit where weights
//     are quantized; otherwise they differ in the order of sums, and avx512 rounds half
//     weights and what they are multiplied with ([Library.HalfIntegers]).
//   - Nothing is read or written outside the buffers, whatever the tables of slots,
//     blocks and tokens hold: what lies outside counts as absent.
//   - Infinities and NaN travel as IEEE 754 has it, but that one among integers makes its
//     block, and what it is part of, NaN; nothing is compiled with fast maths.
//
// Package src puts its headers into Go's build graph: a change makes go build compile the sets
// again. Where kernels came or went, `go test ./kernels/native -run TestNames -update` tells package kernels.
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
	"github.com/smelt-ml/smelt/kernels/native/blas"
)

// Library is the kernels compiled for one instruction set.
type Library struct {
	set unsafe.Pointer // const smelt_native_set *
}

// Libraries lists what this processor can run, the best first.
func Libraries() []Library {
	sets := sets()
	out := make([]Library, len(sets))
	for i, s := range sets {
		out[i] = Library{s}
	}
	return out
}

// set is the kernels of one instruction set and whether the processor can run them.
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

// choose returns the library of that name, or the first where there is no name.
func choose(all []Library, isa string) (Library, error) {
	names := make([]string, len(all))
	for i, l := range all {
		if isa == "" || strings.EqualFold(isa, l.ISA()) {
			return l, nil
		}
		names[i] = l.ISA()
	}
	return Library{}, fmt.Errorf("SMELT_ISA=%s is not among the instruction sets at hand (%s)", isa, strings.Join(names, ", "))
}

// Provider returns the chosen library as a const smelt_native* of kernels/abi/abi.h.
func Provider() unsafe.Pointer { return best().set }

// ISA names the chosen instruction set.
func ISA() string { return best().ISA() }

// Names lists the host names of the kernels.
func Names() []string { return best().Names() }

// Run executes a launch with the chosen library.
func Run(l Launch, o Options) error { return best().Run(l, o) }

// BLAS returns the products that the system's BLAS computes, and whether there are any.
// They take float weights and several tokens, and scratch at [kernels.HostScratch].
func BLAS() (Library, bool) {
	set := blas.Set()
	return Library{set}, set != nil
}

// Provider returns the library as a const smelt_native*.
func (l Library) Provider() unsafe.Pointer { return l.set }

// ISA names the instruction set, in the words that SMELT_ISA takes.
func (l Library) ISA() string { return C.GoString(C.set_isa(l.set)) }

// Names lists the host names of the kernels.
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
	Grid      [3]uint32         // threadgroups; only attention_vec in partitions needs them

	// Hints are those of kernels/abi/abi.h, by number; 0 leaves it to the kernel.
	Hints [kernels.NumHints]uint32

	// Interleaved has bit i set where buffer i is what [Library.Interleave] made of a weight.
	Interleaved uint32
}

// Interleave rearranges a weight [rows, k] of a type of ir/dtype so that the library's
// kernels stream through it, which may take a few more bytes. It returns nil where there is
// nothing to gain for the type, or where the rows make no group of the library's.
func (l Library) Interleave(weightType uint32, rows, k int, weight []byte) []byte {
	group := int(C.set_interleave(l.set, C.uint32_t(weightType), C.uint64_t(k), nil, 0, nil))
	if group == 0 || rows < group {
		return nil
	}
	out := make([]byte, C.set_interleaved_bytes(l.set, C.uint32_t(weightType), C.uint64_t(k), C.uint64_t(rows)))
	C.set_interleave(l.set, C.uint32_t(weightType), C.uint64_t(k), unsafe.Pointer(unsafe.SliceData(weight)), C.uint64_t(rows), unsafe.Pointer(unsafe.SliceData(out)))
	return out
}

// HalfIntegers tells that F16 and BF16 weights, and activations beside them, become integers of
// 16 bits with a scale for 64 of them, and that embeddings are what these are.
func (l Library) HalfIntegers() bool { return C.set_half_integers(l.set) != 0 }

// Options share out a launch; no choice changes the result.
type Options struct {
	Threads int    // 0 is one
	Cut     uint64 // units handed out at a time; 0 gives each thread an equal share
}

// ErrUnsupported is wrapped by Run where there is no kernel of that name, or where it
// does not take these constants, sizes or buffers.
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

// call is a launch in the form that the kernels take.
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

// readers returns which units of the last stage read the rows of a buffer one after the other.
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
