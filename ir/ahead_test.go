package ir_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/ir/sym"
)

// TestGiven: positions ahead and stretches follow from positions; what a step has itself is taken as it is.
func TestGiven(t *testing.T) {
	inputs := map[string][]int32{sym.Positions: {0, 7, math.MaxInt32 - 1}, sym.Slots: {1, 2, 3}}
	for name, want := range map[string][]int32{
		sym.Slots:      {1, 2, 3},
		sym.Ahead(0):   {0, 7, math.MaxInt32 - 1},
		sym.Ahead(5):   {5, 12, math.MaxInt32 - 1},
		sym.Stretch(1): inputs[sym.Positions],
		sym.Stretch(4): {0, 1, (math.MaxInt32 - 1) / 4},
		sym.Ends:       nil, "positions/": nil, "positions+": nil, "positions+x": nil, "positions+-1": nil, "positions": inputs[sym.Positions],
	} {
		got, ok := sym.Given(inputs, name)
		require.Equal(t, want != nil, ok, name)
		require.Equal(t, want, got, name)
	}
	_, ok := sym.Given(nil, sym.Ahead(1))
	require.False(t, ok)
}

// TestWindowed: names of inputs of layers with a window; such layers have the blocks of the others where a
// step names none for them.
func TestWindowed(t *testing.T) {
	require.Equal(t, "slots", sym.Windowed(sym.Slots, 0))
	require.Equal(t, "block_table@512", sym.Windowed(sym.BlockTable, 512))
	for name, want := range map[string]int{
		"slots@512": 512, "block_table@1": 1, "slots": 0, "slots@0": 0, "slots@-1": 0, "slots@01": 0, "slots@+1": 0, "slots@": 0,
		"slots@2147483648": 0, "positions@4": 0, "slots@4@4": 0,
	} {
		base, window := sym.Window(name)
		require.Equal(t, want, window, name)
		if want == 0 {
			require.Equal(t, name, base)
		} else {
			require.Equal(t, name, sym.Windowed(base, window))
		}
	}
	inputs := map[string][]int32{sym.Slots: {1}, "slots@4": {2}}
	for name, want := range map[string][]int32{"slots": {1}, "slots@4": {2}, "slots@5": {1}, "block_table@4": nil, "slots@05": nil} {
		got, ok := sym.Given(inputs, name)
		require.Equal(t, want != nil, ok, name)
		require.Equal(t, want, got, name)
	}
}
