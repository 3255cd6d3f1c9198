package meter

/*
#include <stdlib.h>
#include <string.h>
#include "../../runtime/trace/trace.h"

static const void *counted_find(const void *l, const char *name) {
    return ((const smelt_counted *)l)->library->emulator.find(name);
}
static smelt_trace *counted_open(const void *l, const void *from, uint64_t bytes) {
    return ((const smelt_counted *)l)->open(from, bytes);
}
static void counted_close(const void *l, smelt_trace *t) { ((const smelt_counted *)l)->close(t); }
static int counted_run(const void *l, smelt_trace *t, const void *kernel, const smelt_launch *launch, uint64_t group,
                       char *error, size_t size) {
    return ((const smelt_counted *)l)->run(t, kernel, launch, group, error, size);
}
*/
import "C"

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/bits"
	"runtime"
	"slices"
	"strings"
	"unsafe"

	_ "github.com/smelt-ml/smelt/kernels/abi"              // whose headers are included above
	_ "github.com/smelt-ml/smelt/kernels/emulated/runtime" // whose header is included above
)

// Library is a set of kernels compiled with instrumentation.
type Library struct{ table unsafe.Pointer }

// Symbol is the function of a shared library that returns the argument of Open.
const Symbol = "smelt_counted_kernels"

// Open returns the library of a smelt_counted pointer.
func Open(table unsafe.Pointer) Library { return Library{table} }

// group is the trace of a threadgroup.
type group struct {
	lines []line
	ends  []uint64
}

const maxConstants = 32

var _ [Line]struct{} = [C.SMELT_LINE]struct{}{}

// Count executes a launch on buffers in m and returns its counts.
func (l Library) Count(m *Memory, launch Launch, on Machine) (*Counts, error) {
	if on.Cores < 1 || on.CacheBytes < Line || on.CacheBytes/Line > math.MaxInt32-1 {
		return nil, fmt.Errorf("kernel %s: a machine of %d cores and %d bytes of cache", launch.Kernel, on.Cores, on.CacheBytes)
	}
	var c C.smelt_launch
	var pin runtime.Pinner
	defer pin.Unpin()
	free, err := l.fill(&c, &pin, m, launch)
	defer free()
	if err != nil {
		return nil, err
	}
	kernel := C.counted_find(l.table, c.kernel)
	if kernel == nil {
		return nil, fmt.Errorf("kernel %q: %w", launch.Kernel, ErrUnknownKernel)
	}
	groups := int64(1)
	for i := range 3 {
		hi, lo := bits.Mul64(uint64(groups), uint64(c.grid[i]))
		if hi != 0 || lo > math.MaxInt64 {
			return nil, fmt.Errorf("kernel %s: grid %v has more than 2^63 threadgroups", launch.Kernel, launch.Grid)
		}
		groups = int64(lo)
	}
	trace := C.counted_open(l.table, unsafe.Pointer(unsafe.SliceData(m.bytes)), C.uint64_t(m.used))
	if trace == nil {
		return nil, fmt.Errorf("kernel %s: no memory for a trace", launch.Kernel)
	}
	defer C.counted_close(l.table, trace)

	const size = 1024
	message := (*C.char)(C.malloc(size))
	defer C.free(unsafe.Pointer(message))
	lru, once := newCache(int(on.CacheBytes/Line)), &distinct{}
	var waves []tally
	for begin := int64(0); begin < groups; {
		end := min(begin+int64(on.Cores), groups)
		wave := make([]group, 0, on.Cores)
		for g := begin; g < end; g++ {
			if C.counted_run(l.table, trace, kernel, &c, C.uint64_t(g), message, size) != 0 {
				return nil, errors.New(C.GoString(message))
			}
			once.group++
			lines := unsafe.Slice((*line)(unsafe.Pointer(trace.lines)), int(trace.line_count))
			for i := range lines {
				once.touch(&lines[i])
			}
			if on.Apart && once.met != 0 {
				return nil, fmt.Errorf("kernel %s: %w: threadgroup %d at %s", launch.Kernel, ErrMeet, g, where(m, launch.Buffers, once.met-1))
			}
			ends := unsafe.Slice((*uint64)(unsafe.Pointer(trace.ends)), int(trace.end_count))
			wave = append(wave, group{slices.Clone(lines), slices.Clone(ends)})
		}
		pass(lru, wave)
		waves = append(waves, sum(trace, lru, once, end))
		begin = end
		if on.Budget > 0 && len(waves) >= 2 && int64(trace.counts.accesses) >= on.Budget {
			break
		}
	}
	runtime.KeepAlive(m)
	return scale(waves, groups), nil
}

// ErrMeet is wrapped by the error for a threadgroup that reads memory which another writes, or
// writes memory which another reads or writes: their order is undefined.
var ErrMeet = errors.New("threadgroups meet in device memory")

// where describes a byte of the memory by the buffers that hold it.
func where(m *Memory, buffers [][]byte, at uint64) string {
	var names []string
	base := uintptr(unsafe.Pointer(unsafe.SliceData(m.bytes))) + uintptr(at)
	for i, b := range buffers {
		if from := uintptr(unsafe.Pointer(unsafe.SliceData(b))); b != nil && base >= from && base < from+uintptr(len(b)) {
			names = append(names, fmt.Sprintf("byte %d of buffer %d", base-from, i))
		}
	}
	return strings.Join(names, ", ")
}

// pass runs a wave's intervals through the cache, one of each threadgroup in turn.
func pass(lru *cache, wave []group) {
	for i, more := 0, true; more; i++ {
		more = false
		for _, g := range wave {
			if i >= len(g.ends) {
				continue
			}
			more = true
			from := uint64(0)
			if i > 0 {
				from = g.ends[i-1]
			}
			for _, l := range g.lines[from:g.ends[i]] {
				lru.touch(l.Number, l.Read != mask{}, l.Written != mask{})
			}
		}
	}
}

func sum(trace *C.smelt_trace, lru *cache, once *distinct, groups int64) tally {
	n := &trace.counts
	t := tally{groups: groups}
	var branches, divergent int64
	for _, s := range unsafe.Slice(trace.sites, int(trace.site_count)) {
		branches += int64(s.met)
		divergent += int64(s.divergent)
		if s.divergent == 0 {
			continue
		}
		where := C.GoString(s.where)
		k := slices.IndexFunc(t.sites, func(s Site) bool { return s.Where == where })
		if k < 0 {
			k, t.sites = len(t.sites), append(t.sites, Site{Where: where})
		}
		t.sites[k].Branches += int64(s.met)
		t.sites[k].Divergent += int64(s.divergent)
	}
	t.counts = [...]int64{
		int64(n.accesses), lru.read * Line, (lru.written + lru.dirty) * Line, int64(n.used), int64(n.lines) * Line,
		once.read, once.written, once.tile, int64(n.group_accesses), int64(n.group_cycles), int64(n.group_least),
		int64(n.threadgroup_barriers), int64(n.simdgroup_meetings), branches, divergent, int64(n.shift_cycles),
	}
	return t
}

// fill converts a launch to its C struct, and copies constant memory.
func (l Library) fill(c *C.smelt_launch, pin *runtime.Pinner, m *Memory, launch Launch) (free func(), err error) {
	var memory []unsafe.Pointer
	free = func() {
		for _, p := range memory {
			C.free(p)
		}
	}
	alloc := func(n int) unsafe.Pointer {
		p := C.calloc(1, C.size_t(max(n, 1)))
		memory = append(memory, p)
		return p
	}
	name := C.CString(launch.Kernel)
	memory = append(memory, unsafe.Pointer(name))
	c.kernel, c.buffer_count = name, C.uint32_t(len(launch.Buffers))
	n := max(len(launch.Buffers), 1)
	pointers := unsafe.Slice((*unsafe.Pointer)(alloc(n*8)), n)
	sizes := unsafe.Slice((*C.uint64_t)(alloc(n*8)), n)
	for i, b := range launch.Buffers {
		switch {
		case b == nil:
		case m.holds(b):
			pointers[i] = unsafe.Pointer(unsafe.SliceData(b))
		default:
			pointers[i] = alloc(len(b))
			copy(unsafe.Slice((*byte)(pointers[i]), len(b)), b)
		}
		sizes[i] = C.uint64_t(len(b))
	}
	c.buffers, c.buffer_bytes = &pointers[0], &sizes[0]
	constants := unsafe.Slice((*C.uint32_t)(alloc(maxConstants*4)), maxConstants)
	for _, i := range slices.Sorted(maps.Keys(launch.Constants)) {
		if i >= maxConstants {
			return free, fmt.Errorf("kernel %s: function constant index %d, at most %d", launch.Kernel, i, maxConstants-1)
		}
		constants[i] = C.uint32_t(launch.Constants[i])
		c.constants_set |= 1 << i
	}
	c.constants = &constants[0]
	for i := range 3 {
		c.grid[i], c.group[i] = C.uint32_t(max(launch.Grid[i], 1)), C.uint32_t(max(launch.Group[i], 1))
	}
	if len(launch.ThreadgroupBytes) > len(c.threadgroup_bytes) {
		return free, fmt.Errorf("kernel %s: %d threadgroup arguments, at most %d", launch.Kernel, len(launch.ThreadgroupBytes), len(c.threadgroup_bytes))
	}
	for i, b := range launch.ThreadgroupBytes {
		c.threadgroup_bytes[i] = C.uint32_t(b)
	}
	pin.Pin(c)
	return free, nil
}
