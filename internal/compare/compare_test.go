package compare_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/compare"
)

func TestLargest(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, tt := range []struct {
		name      string
		want, got []float64
		largest   float64
	}{
		{"nothing", nil, nil, 0},
		{"same", []float64{1, -2}, []float64{1, -2}, 0},
		{"the first", []float64{1, 2, 3}, []float64{5, 2, 4}, 4},
		{"either sign", []float64{1, 2}, []float64{1, -2}, 4},
		{"NaN before a finite difference", []float64{1, 2, 3}, []float64{nan, 2.5, 3}, inf},
		{"NaN after one", []float64{1, 2, 3}, []float64{1.5, 2, nan}, inf},
		{"NaN is wanted", []float64{nan, 2}, []float64{1, 2}, inf},
		{"NaN in both", []float64{nan, 2}, []float64{nan, 2}, inf},
		{"same infinity", []float64{inf, -inf}, []float64{inf, -inf}, 0},
		{"other infinity", []float64{inf}, []float64{-inf}, inf},
		{"infinite", []float64{1}, []float64{inf}, inf},
		{"shorter", []float64{1, 2}, []float64{1}, inf},
		{"longer", nil, []float64{1}, inf},
		{"zeros", []float64{0}, []float64{math.Copysign(0, -1)}, 0},
	} {
		require.Equal(t, tt.largest, compare.Largest(tt.want, tt.got), tt.name)
	}
	require.Equal(t, 0x1p-25, compare.Largest([]float64{1 + 0x1p-25}, []float32{1}), "before float32 rounds it")
}

func ExampleApart() {
	fmt.Println(compare.Apart(1.5, 1.0), compare.Apart(1.5, math.NaN()))
	// Output: 0.5 +Inf
}
