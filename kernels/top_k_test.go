package kernels_test

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/kernels"
)

// ranked returns the indices of the k largest elements, equals by index; -1 where the
// row has none left, and throughout where it holds a NaN.
func ranked(row []float64, k int) []int32 {
	order := make([]int32, len(row), len(row)+k)
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortStableFunc(order, func(a, b int32) int { return cmp.Compare(row[b], row[a]) })
	order = append(order, slices.Repeat([]int32{-1}, k)...)[:k]
	if slices.ContainsFunc(row, math.IsNaN) {
		for i := range order {
			order[i] = -1
		}
	}
	return order
}

// TestTopK has rows in every order, rows of equals and of infinities, and a NaN.
func TestTopK(t *testing.T) {
	inf := math.Inf(1)
	instances(t, "top_k", func(t *testing.T, name string, types []kernels.Element) {
		for _, width := range few([]int{1, 63, 5000}, []int{1, 5, 63, 64, 255, 256, 257, 1023, 1024, 1025, 5000, 33003}) {
			for _, k := range few([]int{1, 64, kernels.MaxTopK}, []int{1, 2, 3, 40, 64, 65, 255, kernels.MaxTopK}) {
				t.Run(fmt.Sprintf("%d of %d", k, width), func(t *testing.T) {
					rng := newRand(t.Name())
					stride := width + 3
					cases := []func(i int) float64{
						func(int) float64 { return rng.NormFloat64() },
						func(int) float64 { return float64(rng.IntN(5)) - 2 }, // many equals
						func(int) float64 { return -1.5 },
						func(i int) float64 { return float64(i) }, // a sort for each tile
						func(i int) float64 { return -float64(i) },
						func(i int) float64 { return []float64{-inf, inf, -6e4, 0, math.Copysign(0, -1)}[rng.IntN(5)] },
						func(int) float64 { return -inf },
						func(i int) float64 { return []float64{rng.NormFloat64(), math.NaN()}[min(1, (i+1)/width)] }, // the last
					}
					rows := len(cases)
					x := filled(types[0], rows*stride, func(i int) float64 {
						if i%stride >= width {
							return inf // between the rows
						}
						return cases[i/stride](i % stride)
					})
					got := launch{
						kernel:  name,
						buffers: map[string]tensor{"x": x, "values": result(types[0], rows*k), "indices": result(kernels.Int, rows*k)},
						params:  kernels.TopKParams{Rows: uint32(rows), Width: uint32(width), XStride: uint32(stride), K: uint32(k)},
						grid:    [3]int{rows, 1, 1}, group: 256,
					}.run(t)
					checkTopK(t, x, got["values"], got["indices"], stride, width, k)
				})
			}
		}
	})
}

func checkTopK(t *testing.T, x, values, indices tensor, stride, width, k int) {
	t.Helper()
	for at := 0; at < indices.length; at += k {
		row := x.values()[at/k*stride:][:width]
		hasNaN := slices.ContainsFunc(row, math.IsNaN)
		for i, want := range ranked(row, k) {
			require.Equal(t, want, int32(binary.LittleEndian.Uint32(indices.bytes[4*(at+i):])), "row %d, place %d", at/k, i)
			switch v := values.at(at + i); {
			case hasNaN:
				require.True(t, math.IsNaN(v), "row %d, place %d: %v", at/k, i, v)
			case want < 0:
				require.Equal(t, math.Inf(-1), v)
			default:
				require.Equal(t, math.Float64bits(row[want]), math.Float64bits(v), "row %d, place %d", at/k, i)
			}
		}
	}
	exact(t)
}

// TestTopKOfVocabulary takes the widest row that models have.
func TestTopKOfVocabulary(t *testing.T) {
	const width, k = 151936, 64
	x := random(newRand(t.Name()), kernels.Float, width)
	got := launch{
		kernel:  "top_k_f32",
		buffers: map[string]tensor{"x": x, "values": result(kernels.Float, k), "indices": result(kernels.Int, k)},
		params:  kernels.TopKParams{Rows: 1, Width: width, XStride: width, K: k},
		grid:    [3]int{1, 1, 1}, group: 256,
	}.run(t)
	checkTopK(t, x, got["values"], got["indices"], width, width, k)
}
