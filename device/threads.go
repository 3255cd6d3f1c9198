package device

import (
	"fmt"
	"runtime"
)

// DefaultThreads returns the default number of threads of a device: one for each physical core
// that this process may use, and no more than the control group's CPU quota. A second thread on a
// core would share its vector units, which the kernels keep busy.
func DefaultThreads() int { return max(1, min(runtime.NumCPU(), availableCores())) }

// Workers describes the number of threads of a device and, if there are several, of memory nodes:
// "8 threads on 2 memory nodes".
func (i Info) Workers() string {
	switch {
	case i.Nodes > 1:
		return fmt.Sprintf("%d threads on %d memory nodes", i.Threads, i.Nodes)
	case i.Threads == 1:
		return "1 thread"
	}
	return fmt.Sprintf("%d threads", i.Threads)
}

// Node is a memory node (NUMA): processors that reach one part of the memory faster than the rest.
type Node struct {
	ID    int     // the system's number
	Cores [][]int // the logical processors of each core that this process may use
}

// Nodes returns the memory nodes whose processors this process may use; none if unknown.
func Nodes() []Node { return availableNodes() }
