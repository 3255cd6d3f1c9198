package plan_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/lower/plan"
)

// TestReadingOrder checks that weights come in the order of dispatches, each once, without embedding
// tables.
func TestReadingOrder(t *testing.T) {
	compiled := &plan.Plan{Buffers: []plan.Buffer{
		{Kind: plan.Weight, Name: "head"}, {Kind: plan.Arena}, {Kind: plan.Weight, Name: "table"},
		{Kind: plan.Weight, Name: "gain"}, {Kind: plan.Weight, Name: "up"}, {Kind: plan.Weight, Name: "tied"},
	}}
	dispatch := func(kernel string, buffers ...int32) plan.Dispatch {
		d := plan.Dispatch{Kernel: kernel}
		for i, b := range buffers {
			d.Bindings = append(d.Bindings, plan.Binding{Buffer: b, Index: uint32(i)})
		}
		return d
	}
	compiled.Phases = []plan.Phase{
		{Dispatches: []plan.Dispatch{dispatch("embed", 2, 1), dispatch("embed", 5, 1), dispatch("linear_vec_f32_f32", 1, 3, 4)}},
		{Dispatches: []plan.Dispatch{dispatch("linear_mat_f32_f32", 1, 4, 5), dispatch("linear_vec_f32_f32", 0)}},
	}
	require.Equal(t, []int{3, 4, 5, 0}, compiled.ReadingOrder())
}
