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
