package ir_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/ir"
)

// TestGiven: positions ahead and stretches follow from positions; what a step has itself is taken as it is.
func TestGiven(t *testing.T) {
	inputs := map[string][]int32{ir.Positions: {0, 7, math.MaxInt32 - 1}, ir.Slots: {1, 2, 3}}
	for name, want := range map[string][]int32{
		ir.Slots:      {1, 2, 3},
		ir.Ahead(0):   {0, 7, math.MaxInt32 - 1},
		ir.Ahead(5):   {5, 12, math.MaxInt32 - 1},
		ir.Stretch(1): inputs[ir.Positions],
		ir.Stretch(4): {0, 1, (math.MaxInt32 - 1) / 4},
		ir.Ends:       nil, "positions/": nil, "positions+": nil, "positions+x": nil, "positions+-1": nil, "positions": inputs[ir.Positions],
	} {
		got, ok := ir.Given(inputs, name)
		require.Equal(t, want != nil, ok, name)
		require.Equal(t, want, got, name)
	}
	_, ok := ir.Given(nil, ir.Ahead(1))
	require.False(t, ok)
}
