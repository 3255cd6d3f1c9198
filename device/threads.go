package device

import (
	"fmt"
	"math/bits"
	"runtime"
	"slices"
)

// DefaultThreads returns how many threads a device starts unless told otherwise:
// one for each physical core that this process may use, and no more than the
// control group's CPU quota. A second thread on a core shares its vector units,
// which the kernels keep busy.
func DefaultThreads() int { return max(1, min(runtime.NumCPU(), availableCores())) }

// Workers tells how many threads a device has, and how many memory nodes they are on where
// these are several.
func (i Info) Workers() string {
	switch {
	case i.Nodes > 1:
		return fmt.Sprintf("%d threads on %d memory nodes", i.Threads, i.Nodes)
	case i.Threads == 1:
		return "1 thread"
	}
	return fmt.Sprintf("%d threads", i.Threads)
}

// node is a memory node: processors that reach a part of the memory faster than the rest.
type node struct {
	id    int     // the system's number
	cores [][]int // the logical processors of each core that this process may use
}

// place is where a thread works.
type place struct {
	node int   // the system's number
	cpus []int // logical processors; any if nil
}

// placesOf places threads: on each node a part of them as its part of the cores. They keep to the
// processors of their node if there are several, and to a core each where there are as many
// threads as cores. Where fewer run, which of the cores are idle is for the system to find; fewer
// than nodes may run anywhere.
func placesOf(threads int, nodes []node) []place {
	if threads < len(nodes) {
		return nil
	}
	cores, before := 0, 0
	for _, n := range nodes {
		cores += len(n.cores)
	}
	var places []place
	for _, n := range nodes {
		before += len(n.cores)
		all := slices.Concat(n.cores...)
		for i := 0; len(places) < threads*before/cores; i++ {
			p := place{node: n.id}
			if threads == cores {
				p.cpus = n.cores[i]
			} else if len(nodes) > 1 {
				p.cpus = all
			}
			places = append(places, p)
		}
	}
	return places
}

// maskOf has a bit for each processor, in words as C has them.
func maskOf(cpus []int) []uint {
	var mask []uint
	for _, cpu := range cpus {
		for len(mask) <= cpu/bits.UintSize {
			mask = append(mask, 0)
		}
		mask[cpu/bits.UintSize] |= 1 << (cpu % bits.UintSize)
	}
	return mask
}
