// Package meter adds up what the traces of emulated kernels tell (kernels/emulated/counted),
// behind a model of a GPU's cache.
package meter

import (
	"errors"
	"math"
	"slices"
)

// Line is the bytes of a line of memory.
const Line = 128

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
	// Apart makes it an error ([ErrMeet]) that a threadgroup touches what another writes.
	Apart bool
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

	// ShiftCycles is what lanes take of the pipe that shifts, extracts bits and converts
	// between integers and floats, in cycles of a lane's multiply-add.
	ShiftCycles int64

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

// ErrUnknownKernel is wrapped where no kernel has the launch's name.
var ErrUnknownKernel = errors.New("no such kernel")

// tally is what has been counted up to the end of a wave.
type tally struct {
	groups int64
	counts [16]int64
	sites  []Site
}

// scale adds to what was run what the rest would do.
func scale(waves []tally, groups int64) *Counts {
	last := waves[len(waves)-1]
	c := &Counts{Groups: groups, Ran: last.groups, DistinctRead: last.counts[5], DistinctWritten: last.counts[6]}
	if last.groups < groups {
		half := waves[len(waves)/2-1]
		times := float64(groups-last.groups) / float64(last.groups-half.groups)
		more := func(at, before int64) int64 { return at + int64(math.Round(float64(at-before)*times)) }
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
	c.Barriers, c.Meetings, c.Branches, c.Divergent, c.ShiftCycles = n[11], n[12], n[13], n[14], n[15]
	slices.SortStableFunc(last.sites, func(a, b Site) int { return int(min(max(b.Divergent-a.Divergent, -1), 1)) })
	c.Sites = last.sites
	return c
}
