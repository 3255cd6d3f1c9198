// Package meter adds up what the traces of emulated kernels tell (kernels/emulated/counted),
// behind a model of a GPU's cache.
package meter

/*
#cgo CFLAGS: -I${SRCDIR}/../..
#include <stdlib.h>
#include <string.h>
#include "counted/trace.h"

static int counted_hooked(const void *l) { return ((const smelt_counted *)l)->hooked; }
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
	"math"
	"math/bits"
	"runtime"
	"slices"
	"unsafe"
)

// Line is the bytes of a line of memory.
const Line = C.SMELT_LINE

// Library is kernels that were compiled to be counted.
type Library struct{ table unsafe.Pointer }

// Open takes the pointer to a smelt_counted that a package of kernels exports.
func Open(table unsafe.Pointer) Library { return Library{table} }

// Launch is one dispatch. Buffers in the launch's Memory are device memory; others are
// constant memory, read and not counted.
type Launch struct {
	Kernel           string
	Buffers          [][]byte          // by [[buffer(i)]]; nil is unbound
	Constants        map[uint32]uint32 // bits by [[function_constant(i)]]
	Grid             [3]uint32         // threadgroups; a zero counts as one
	Group            [3]uint32         // threads in a threadgroup; a zero counts as one
	ThreadgroupBytes []uint32          // by [[threadgroup(i)]]
}

// Machine is what the model of traffic knows of a GPU.
type Machine struct {
	CacheBytes int64 // of the last cache before memory
	Cores      int   // threadgroups that run at a time
	// Budget ends the launch after the wave in which device memory has been accessed so
	// often, once two waves have run; what the rest does is taken to be what the later
	// half of these waves did, over and over. 0: everything is run.
	Budget int64
}

// Counts is what a launch did. Where Ran is below Groups, the counts are scaled.
type Counts struct {
	Groups, Ran int64 // threadgroups of the grid, and those that were run

	Accesses      int64 // loads and stores of device memory, each thread's for itself
	Read, Written int64 // bytes between cache and memory
	Used, Touched int64 // bytes that intervals touch, and of the lines that hold them

	// Of the threadgroups that were run, not scaled: bytes that they read and write, a
	// byte counting once, and the sum over threadgroups of the bytes that each of them
	// reads and writes, a byte counting once in each.
	DistinctRead, DistinctWritten int64
	Tile                          int64 // the latter, scaled

	GroupAccesses int64 // accesses to threadgroup memory, by simdgroup
	GroupCycles   int64 // that its banks take for them
	GroupLeast    int64 // that they would take without conflicts

	Barriers int64 // of a threadgroup, on average: the sum over threadgroups
	Meetings int64 // simdgroup barriers and operations, by simdgroup

	Branches  int64 // forks that simdgroups came to
	Divergent int64 // of them, those at which their lanes parted
	Sites     []Site
}

// Site is a branch in the sources at which lanes parted.
type Site struct {
	Where     string `json:"where"` // file:line
	Branches  int64  `json:"branches"`
	Divergent int64  `json:"divergent"`
}

// Traffic returns the bytes between cache and memory.
func (c *Counts) Traffic() int64 { return c.Read + c.Written }

// Coalescing returns the share of the lines' bytes that is used; 1 without any.
func (c *Counts) Coalescing() float64 {
	if c.Touched == 0 {
		return 1
	}
	return float64(c.Used) / float64(c.Touched)
}

// Conflicts returns how many cycles threadgroup memory takes for one that it would take
// without conflicts; 1 if it is not used.
func (c *Counts) Conflicts() float64 {
	if c.GroupLeast == 0 {
		return 1
	}
	return float64(c.GroupCycles) / float64(c.GroupLeast)
}

var (
	// ErrNotCounted is returned in a build for another sanitizer, whose hooks these
	// kernels cannot have.
	ErrNotCounted = errors.New("this build cannot count: it has another sanitizer")
	// ErrUnknownKernel is wrapped where no kernel has the launch's name.
	ErrUnknownKernel = errors.New("no such kernel")
)

// line is a smelt_line.
type line struct {
	Number        uint64
	Read, Written mask
}

// group is the trace of a threadgroup.
type group struct {
	lines []line
	ends  []uint64
}

// tally is what has been counted up to the end of a wave.
type tally struct {
	groups int64
	counts [15]int64
	sites  []Site
}

const maxConstants = 32

// Count executes a launch on buffers in m.
func (l Library) Count(m *Memory, launch Launch, on Machine) (*Counts, error) {
	if C.counted_hooked(l.table) == 0 {
		return nil, ErrNotCounted
	}
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

// pass gives a wave's intervals to the cache, one of each threadgroup in turn.
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
		int64(n.threadgroup_barriers), int64(n.simdgroup_meetings), branches, divergent,
	}
	return t
}

// scale adds to what was run what the rest would do.
func scale(waves []tally, groups int64) *Counts {
	last := waves[len(waves)-1]
	c := &Counts{Groups: groups, Ran: last.groups, DistinctRead: last.counts[5], DistinctWritten: last.counts[6]}
	more := func(at, before int64) int64 { return at }
	if last.groups < groups {
		half := waves[len(waves)/2-1]
		times := float64(groups-last.groups) / float64(last.groups-half.groups)
		more = func(at, before int64) int64 { return at + int64(math.Round(float64(at-before)*times)) }
		for i := range last.counts {
			last.counts[i] = more(last.counts[i], half.counts[i])
		}
		for i := range last.sites {
			var before Site
			if k := slices.IndexFunc(half.sites, func(s Site) bool { return s.Where == last.sites[i].Where }); k >= 0 {
				before = half.sites[k]
			}
			last.sites[i].Branches = more(last.sites[i].Branches, before.Branches)
			last.sites[i].Divergent = more(last.sites[i].Divergent, before.Divergent)
		}
	}
	n := &last.counts
	c.Accesses, c.Read, c.Written, c.Used, c.Touched, c.Tile = n[0], n[1], n[2], n[3], n[4], n[7]
	c.GroupAccesses, c.GroupCycles, c.GroupLeast = n[8], n[9], n[10]
	c.Barriers, c.Meetings, c.Branches, c.Divergent = n[11], n[12], n[13], n[14]
	slices.SortStableFunc(last.sites, func(a, b Site) int { return int(min(max(b.Divergent-a.Divergent, -1), 1)) })
	c.Sites = last.sites
	return c
}

// fill makes the C form of a launch. Constant memory is copied.
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
	for i, v := range launch.Constants {
		if i >= maxConstants {
			return free, fmt.Errorf("kernel %s: function constant index %d, at most %d", launch.Kernel, i, maxConstants-1)
		}
		constants[i] = C.uint32_t(v)
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
