// Package host calls a library of emulated kernels from Go: it looks up kernels,
// copies buffers into memory of their exact size (so that AddressSanitizer detects
// overruns) and distributes a launch's threadgroups to goroutines.
package host

/*
#include <stdlib.h>
#include <string.h>
#include "../../../abi/library.h"

static const char *library_isa(const void *l) { return ((const smelt_emulated_library *)l)->isa; }
static const char *library_name(const void *l, uint32_t i) { return ((const smelt_emulated_library *)l)->name(i); }
static const void *library_find(const void *l, const char *name) {
    return ((const smelt_emulated_library *)l)->emulator.find(name);
}
static int library_run(const void *l, const void *kernel, const smelt_launch *launch, const smelt_emulation *options,
                       uint64_t begin, uint64_t end, char *error, size_t size) {
    return ((const smelt_emulated_library *)l)->emulator.run(kernel, launch, options, begin, end, error, size);
}
*/
import "C"

import (
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	_ "github.com/smelt-ml/smelt/kernels/abi" // whose headers are included above
)

// Library holds the kernels of one build, for one instruction set.
type Library struct {
	table unsafe.Pointer
}

// Open returns the library of a smelt_emulated_library pointer, which a package of kernels
// exports.
func Open(table unsafe.Pointer) Library { return Library{table} }

// Provider returns the library as a const smelt_emulator* of kernels/abi/abi.h.
func (l Library) Provider() unsafe.Pointer { return l.table }

// ISA returns the name of the instruction set that the kernels were compiled for.
func (l Library) ISA() string { return C.GoString(C.library_isa(l.table)) }

// Names returns the host names of the kernels, in the order of the sources.
func (l Library) Names() []string {
	var out []string
	for i := C.uint32_t(0); ; i++ {
		p := C.library_name(l.table, i)
		if p == nil {
			return out
		}
		out = append(out, C.GoString(p))
	}
}

// Launch is one dispatch.
type Launch struct {
	Kernel           string
	Buffers          [][]byte          // by [[buffer(i)]]; nil is unbound. Run copies the kernel's writes back.
	Constants        map[uint32]uint32 // bits by [[function_constant(i)]]
	Grid             [3]uint32         // threadgroups; a zero counts as one
	Group            [3]uint32         // threads in a threadgroup; a zero counts as one
	ThreadgroupBytes []uint32          // by [[threadgroup(i)]]
	Only             [2]uint64         // run only threadgroups [Only[0], Only[1]), x fastest; zero runs all
}

// Order is the order in which the threads of a threadgroup run between two synchronisations.
type Order uint32

const (
	Ascending  Order = C.SMELT_ORDER_ASCENDING
	Descending Order = C.SMELT_ORDER_DESCENDING
	Shuffled   Order = C.SMELT_ORDER_SHUFFLED
)

func (o Order) String() string {
	if o > Shuffled {
		return fmt.Sprintf("Order(%d)", uint32(o))
	}
	return [...]string{"ascending", "descending", "shuffled"}[o]
}

// Options change how a launch is executed, never what a right kernel computes.
type Options struct {
	Order   Order
	Seed    uint32 // of Shuffled
	Poison  bool   // fill threadgroup memory with NaN before each threadgroup
	Threads int    // OS threads that run the threadgroups; 0 means one
	InPlace bool   // work on the buffers without copying; AddressSanitizer does not check them
}

// ErrUnknownKernel is wrapped by Run's error if no kernel has the launch's name.
var ErrUnknownKernel = errors.New("no such kernel")

const maxConstants = 32

// Run executes a launch. An error names the mistake of the kernel or the launch; the contents
// of the buffers are then undefined.
func (l Library) Run(launch Launch, o Options) error {
	name := C.CString(launch.Kernel)
	defer C.free(unsafe.Pointer(name))
	kernel := C.library_find(l.table, name)
	if kernel == nil {
		return fmt.Errorf("kernel %q: %w", launch.Kernel, ErrUnknownKernel)
	}
	var memory []unsafe.Pointer
	var pinned runtime.Pinner
	defer pinned.Unpin()
	defer func() {
		for _, p := range memory {
			C.free(p)
		}
	}()
	// The memory is zeroed: Go's write barrier records the pointer that a store overwrites,
	// and reused memory has stale pointers of an earlier launch.
	alloc := func(n int) unsafe.Pointer {
		p := C.calloc(1, C.size_t(max(n, 1)))
		memory = append(memory, p)
		return p
	}

	c := (*C.smelt_launch)(alloc(int(unsafe.Sizeof(C.smelt_launch{}))))
	*c = C.smelt_launch{kernel: name, buffer_count: C.uint32_t(len(launch.Buffers))}
	n := max(len(launch.Buffers), 1)
	pointers := unsafe.Slice((*unsafe.Pointer)(alloc(n*8)), n)
	sizes := unsafe.Slice((*C.uint64_t)(alloc(n*8)), n)
	for i, b := range launch.Buffers {
		pointers[i], sizes[i] = nil, C.uint64_t(len(b))
		switch p := unsafe.SliceData(b); {
		case p == nil:
		case o.InPlace:
			pinned.Pin(p)
			pointers[i] = unsafe.Pointer(p)
		default:
			pointers[i] = alloc(len(b))
			copy(unsafe.Slice((*byte)(pointers[i]), len(b)), b)
		}
	}
	c.buffers, c.buffer_bytes = &pointers[0], &sizes[0]
	constants := unsafe.Slice((*C.uint32_t)(alloc(maxConstants*4)), maxConstants)
	clear(constants)
	for _, i := range slices.Sorted(maps.Keys(launch.Constants)) {
		if i >= maxConstants {
			return fmt.Errorf("kernel %s: function constant index %d, at most %d", launch.Kernel, i, maxConstants-1)
		}
		constants[i] = C.uint32_t(launch.Constants[i])
		c.constants_set |= 1 << i
	}
	c.constants = &constants[0]
	groups := uint64(1)
	for i := range 3 {
		c.grid[i], c.group[i] = C.uint32_t(max(launch.Grid[i], 1)), C.uint32_t(max(launch.Group[i], 1))
		hi, lo := bits.Mul64(groups, uint64(c.grid[i]))
		if hi != 0 {
			return fmt.Errorf("kernel %s: grid %v has more than 2^64 threadgroups", launch.Kernel, launch.Grid)
		}
		groups = lo
	}
	if len(launch.ThreadgroupBytes) > len(c.threadgroup_bytes) {
		return fmt.Errorf("kernel %s: %d threadgroup arguments, at most %d", launch.Kernel, len(launch.ThreadgroupBytes), len(c.threadgroup_bytes))
	}
	for i, b := range launch.ThreadgroupBytes {
		c.threadgroup_bytes[i] = C.uint32_t(b)
	}
	e := (*C.smelt_emulation)(alloc(int(unsafe.Sizeof(C.smelt_emulation{}))))
	*e = C.smelt_emulation{order: C.uint32_t(o.Order), seed: C.uint32_t(o.Seed)}
	if o.Poison {
		e.poison = 1
	}

	threads := max(o.Threads, 1)
	first := uint64(0)
	if launch.Only != [2]uint64{} {
		if first = launch.Only[0]; first > launch.Only[1] || launch.Only[1] > groups {
			return fmt.Errorf("kernel %s: threadgroups %v of %d", launch.Kernel, launch.Only, groups)
		}
		groups = launch.Only[1]
	}
	chunk := max((groups-first)/uint64(threads)/8, 1)
	var next atomic.Uint64
	next.Store(first)
	var failed atomic.Bool
	run := func() error {
		const size = 1024
		message := (*C.char)(C.malloc(size))
		defer C.free(unsafe.Pointer(message))
		for !failed.Load() {
			end := next.Add(chunk)
			begin := end - chunk
			if begin >= groups {
				break
			}
			if C.library_run(l.table, kernel, c, e, C.uint64_t(begin), C.uint64_t(min(end, groups)), message, size) != 0 {
				failed.Store(true)
				return errors.New(C.GoString(message))
			}
		}
		return nil
	}
	errs := make([]error, threads)
	var wg sync.WaitGroup
	for i := 1; i < threads; i++ {
		wg.Go(func() { errs[i] = run() })
	}
	errs[0] = run()
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	for i, b := range launch.Buffers {
		if len(b) > 0 && !o.InPlace {
			copy(b, unsafe.Slice((*byte)(pointers[i]), len(b)))
		}
	}
	return nil
}
