package host

import (
	"slices"

	"github.com/smelt-ml/smelt/device"
	"github.com/smelt-ml/smelt/device/provider"
)

// placesOf assigns threads to nodes, in proportion to the nodes' cores. Threads are pinned to a core
// each if there are as many threads as cores, else to their node's processors if there are several
// nodes, so that the system chooses the idle cores. It returns nil, any place, for fewer threads
// than nodes.
func placesOf(threads int, nodes []device.Node) []provider.Place {
	if threads < len(nodes) {
		return nil
	}
	cores, before := 0, 0
	for _, n := range nodes {
		cores += len(n.Cores)
	}
	var places []provider.Place
	for _, n := range nodes {
		before += len(n.Cores)
		all := slices.Concat(n.Cores...)
		for i := 0; len(places) < threads*before/cores; i++ {
			p := provider.Place{Node: n.ID}
			if threads == cores {
				p.CPUs = n.Cores[i]
			} else if len(nodes) > 1 {
				p.CPUs = all
			}
			places = append(places, p)
		}
	}
	return places
}
