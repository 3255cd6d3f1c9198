package kernels_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/smelt-ml/smelt/kernels"
)

func silu(v float64) float64 { return v / (1 + math.Exp(-v)) }

func TestElementwise(t *testing.T) {
	const value = -1.75
	for _, op := range []struct {
		family string
		f      func(a, b float64) float64
		binary bool
	}{
		{"silu", func(a, _ float64) float64 { return silu(a) }, false},
		{"scale", func(a, _ float64) float64 { return a * value }, false},
		{"cast", func(a, _ float64) float64 { return a }, false},
		{"mul", func(a, b float64) float64 { return a * b }, true},
		{"add", func(a, b float64) float64 { return a + b }, true},
		{"silu_mul", func(a, b float64) float64 { return silu(a) * b }, true},
	} {
		instances(t, op.family, func(t *testing.T, name string, types []kernels.Element) {
			for _, width := range few([]int{3, 300}, []int{1, 3, 256, 300, 1024}) {
				t.Run(fmt.Sprint(width), func(t *testing.T) {
					const rows = 3
					rng := newRand(t.Name())
					aStride, bStride := width+5, width+2
					a, b := random(rng, types[0], rows*aStride), random(rng, types[0], rows*bStride)
					a.put(0, 9) // far out on the sigmoid
					if types[0] == kernels.Float {
						a.put(1, -95)
					}
					out := 1
					l := launch{
						kernel:  name,
						buffers: map[int]tensor{0: a},
						params: kernels.ElementParams{Rows: rows, Width: uint32(width), AStride: uint32(aStride),
							BStride: uint32(bStride), Value: value},
						grid:  [3]int{ceil(width, 256), rows, 1},
						group: 256,
					}
					if op.binary {
						l.buffers[1], out = b, 2
					}
					l.buffers[out] = result(types[len(types)-1], rows*width)
					want := make([]float64, rows*width)
					for i := range want {
						want[i] = op.f(a.at(i/width*aStride+i%width), b.at(i/width*bStride+i%width))
					}
					compare(t, want, l.run(t)[out].values(), width, worst(types...))
				})
			}
		})
	}
}

func TestGatherRows(t *testing.T) {
	instances(t, "gather_rows", func(t *testing.T, name string, types []kernels.Element) {
		const tokens, width, stride = 5, 270, 271
		index := []int32{4, 0, -1, 4, 2}
		x := random(newRand(t.Name()), types[0], tokens*stride)
		got := launch{
			kernel:  name,
			buffers: map[int]tensor{0: x, 1: ints(index), 2: result(types[0], len(index)*width)},
			params:  kernels.ElementParams{Rows: uint32(len(index)), Width: width, AStride: stride},
			grid:    [3]int{ceil(width, 256), len(index), 1},
			group:   256,
		}.run(t)[2]
		want := make([]float64, len(index)*width)
		for i, row := range index {
			if row >= 0 {
				copy(want[i*width:], x.values()[int(row)*stride:][:width])
			}
		}
		compare(t, want, got.values(), width, 0)
	})
}
