package metal

import (
	"slices"

	"github.com/samber/lo"
)

var CheckLaunches = checkLaunches

// OnNodes returns options for a machine that has memory nodes of so many cores each, as it seems:
// all are processors of this one.
func OnNodes(o Options, cores ...int) Options {
	var cpus []int
	for _, n := range availableNodes() {
		cpus = append(cpus, slices.Concat(n.cores...)...)
	}
	for id, n := range cores {
		o.nodes = append(o.nodes, node{id, lo.Times(n, func(int) []int { return cpus })})
		o.Threads += n
	}
	return o
}

// Nodes returns how many memory nodes this machine has.
func Nodes() int { return len(availableNodes()) }
