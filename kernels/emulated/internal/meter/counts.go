// Package meter adds up the traces of emulated kernels (kernels/emulated/counted) and passes
// their memory accesses through a model of a GPU's cache.
package meter

import (
	"errors"
	"math"
	"slices"
)

// Line is the size of a memory line in bytes.
const Line = 128

// Launch is one dispatch. Buffers in the launch's Memory are device memory; others are
// constant memory, whose reads are not counted.
type Launch struct {
	Kernel           string
	Buffers          [][]byte          // by [[buffer(i)]]; nil is unbound
	Constants        map[uint32]uint32 // bits by [[function_constant(i)]]
	Grid             [3]uint32         // threadgroups; a zero counts as one
	Group            [3]uint32         // threads in a threadgroup; a zero counts as one
	ThreadgroupBytes []uint32          // by [[threadgroup(i)]]
}

// Machine holds the parameters of the traffic model.
type Machine struct {
	CacheBytes int64 // of the last cache before memory
	Cores      int   // threadgroups that run at a time
	// Budget is a number of accesses to device memory after which the launch ends, at the end
	// of a wave and after at least two. The counts of the rest are extrapolated from the later
	// half of the waves. 0 runs everything.
	Budget int64
	// Apart makes access to memory that another threadgroup writes an error ([ErrMeet]).
	Apart bool
}

// Counts holds the counts of a launch. If Ran is below Groups, they are extrapolated.
type Counts struct {
	Groups, Ran int64 // threadgroups of the grid, and those that were run

	Accesses      int64 // loads and stores of device memory, by thread
	Read, Written int64 // bytes between cache and memory
	Used, Touched int64 // bytes that intervals touch, and bytes of the lines that hold them

	// DistinctRead and DistinctWritten are the distinct bytes that the threadgroups that ran
	// read and wrote, not extrapolated. Tile is the sum over threadgroups of the distinct
	// bytes that each reads and writes, extrapolated.
	DistinctRead, DistinctWritten int64
	Tile                          int64

	GroupAccesses int64 // accesses to threadgroup memory, by simdgroup
	GroupCycles   int64 // that its banks need for them
	GroupLeast    int64 // that they would need without conflicts

	Barriers int64 // of a threadgroup, on average: the sum over threadgroups
	Meetings int64 // simdgroup barriers and operations, by simdgroup

	// ShiftCycles is the lanes' time on the pipe that shifts, extracts bits and converts
	// between integers and floats, in cycles of a lane's multiply-add.
	ShiftCycles int64

	Branches  int64 // that simdgroups reached
	Divergent int64 // of them, those at which lanes diverged
	Sites     []Site
}

// Site is a branch in the sources at which lanes diverged.
type Site struct {
	Where     string `json:"where"` // file:line
	Branches  int64  `json:"branches"`
	Divergent int64  `json:"divergent"`
}

// Traffic returns the bytes between cache and memory.
func (c *Counts) Traffic() int64 { return c.Read + c.Written }

// Coalescing returns the share of the touched lines' bytes that is used; 1 if there are none.
func (c *Counts) Coalescing() float64 {
	if c.Touched == 0 {
		return 1
	}
	return float64(c.Used) / float64(c.Touched)
}

// Conflicts returns the cycles of threadgroup memory relative to those without bank
// conflicts; 1 if it is not used.
func (c *Counts) Conflicts() float64 {
	if c.GroupLeast == 0 {
		return 1
	}
	return float64(c.GroupCycles) / float64(c.GroupLeast)
}

// ErrUnknownKernel is wrapped by the error for a launch of an unknown kernel.
var ErrUnknownKernel = errors.New("no such kernel")

// tally holds the counts up to the end of a wave.
type tally struct {
	groups int64
	counts [16]int64
	sites  []Site
}

// scale extrapolates the counts of the waves that ran to all threadgroups.
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
