package device

import (
	"fmt"
	"runtime"
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

// Node is a memory node: processors that reach a part of the memory faster than the rest.
type Node struct {
	ID    int     // the system's number
	Cores [][]int // the logical processors of each core that this process may use
}

// Nodes returns the memory nodes whose processors this process may use; none where the
// system tells of none.
func Nodes() []Node { return availableNodes() }
