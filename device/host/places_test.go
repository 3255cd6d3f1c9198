package host

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/device"
	"github.com/smelt-ml/smelt/device/provider"
)

func TestPlaces(t *testing.T) {
	one := []device.Node{{ID: 0, Cores: [][]int{{0, 4}, {1, 5}, {2, 6}, {3, 7}}}}
	two := []device.Node{{ID: 0, Cores: [][]int{{0}, {1}, {2}}}, {ID: 7, Cores: [][]int{{65}}}}
	for _, c := range []struct {
		threads int
		nodes   []device.Node
		want    []provider.Place
	}{
		{2, nil, nil},
		{4, one, []provider.Place{{Node: 0, CPUs: []int{0, 4}}, {Node: 0, CPUs: []int{1, 5}}, {Node: 0, CPUs: []int{2, 6}}, {Node: 0, CPUs: []int{3, 7}}}},
		{3, one, []provider.Place{{Node: 0, CPUs: nil}, {Node: 0, CPUs: nil}, {Node: 0, CPUs: nil}}},
		{5, one, []provider.Place{{Node: 0, CPUs: nil}, {Node: 0, CPUs: nil}, {Node: 0, CPUs: nil}, {Node: 0, CPUs: nil}, {Node: 0, CPUs: nil}}},
		{4, two, []provider.Place{{Node: 0, CPUs: []int{0}}, {Node: 0, CPUs: []int{1}}, {Node: 0, CPUs: []int{2}}, {Node: 7, CPUs: []int{65}}}},
		{1, two, nil},
		{2, two, []provider.Place{{Node: 0, CPUs: []int{0, 1, 2}}, {Node: 7, CPUs: []int{65}}}},
		{6, two, []provider.Place{{Node: 0, CPUs: []int{0, 1, 2}}, {Node: 0, CPUs: []int{0, 1, 2}}, {Node: 0, CPUs: []int{0, 1, 2}}, {Node: 0, CPUs: []int{0, 1, 2}}, {Node: 7, CPUs: []int{65}}, {Node: 7, CPUs: []int{65}}}},
	} {
		require.Equal(t, c.want, placesOf(c.threads, c.nodes), "%d threads on %v", c.threads, c.nodes)
	}
}
