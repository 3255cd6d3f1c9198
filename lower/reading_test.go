package lower_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/lower"
)

// TestReadingOrder wants weights in the order of dispatches, each once, and no table of which
// they read single rows.
func TestReadingOrder(t *testing.T) {
	plan := &lower.Plan{Buffers: []lower.Buffer{
		{Kind: lower.Weight, Name: "head"}, {Kind: lower.Arena}, {Kind: lower.Weight, Name: "table"},
		{Kind: lower.Weight, Name: "gain"}, {Kind: lower.Weight, Name: "up"}, {Kind: lower.Weight, Name: "tied"},
	}}
	dispatch := func(kernel string, buffers ...int32) lower.Dispatch {
		d := lower.Dispatch{Kernel: kernel}
		for i, b := range buffers {
			d.Bindings = append(d.Bindings, lower.Binding{Buffer: b, Index: uint32(i)})
		}
		return d
	}
	plan.Phases = []lower.Phase{
		{Dispatches: []lower.Dispatch{dispatch("embed", 2, 1), dispatch("embed", 5, 1), dispatch("linear_vec_f32_f32", 1, 3, 4)}},
		{Dispatches: []lower.Dispatch{dispatch("linear_mat_f32_f32", 1, 4, 5), dispatch("linear_vec_f32_f32", 0)}},
	}
	require.Equal(t, []int{3, 4, 5, 0}, plan.ReadingOrder())
}
