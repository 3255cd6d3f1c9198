package host

import (
	"slices"

	"github.com/smelt-ml/smelt/device"
	"github.com/smelt-ml/smelt/device/provider"
)

// placesOf places threads: on each node a part of them as its part of the cores. They keep to the
// processors of their node if there are several, and to a core each where there are as many
// threads as cores. Where fewer run, which of the cores are idle is for the system to find; fewer
// than nodes may run anywhere.
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
