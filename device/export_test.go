package device

import (
	"slices"

	"github.com/samber/lo"
)

var CheckLaunches = checkLaunches

// OnNodes returns options for a machine that has memory nodes of so many cores each, as it seems:
// all are processors of this one.
func OnNodes(o Options, cores ...int) Options {
	for id, n := range cores {
		o.nodes = append(o.nodes, node{id, lo.Times(n, func(int) []int { return CPUs() })})
		o.Threads += n
	}
	return o
}

// CPUs returns the logical processors that this process may use.
func CPUs() []int {
	return lo.FlatMap(availableNodes(), func(n node, _ int) []int { return slices.Concat(n.cores...) })
}

// Nodes returns how many memory nodes this machine has.
func Nodes() int { return len(availableNodes()) }
