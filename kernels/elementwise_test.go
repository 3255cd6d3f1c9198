package kernels_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/samber/lo"
	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/ref"
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/kernels"
)

func TestElementwise(t *testing.T) {
	const value = -1.75
	type op struct {
		family    string
		f         func(a, b float64) float64
		binary    bool
		constants map[string]uint32
	}
	ops := []op{
		{"scale", func(a, _ float64) float64 { return a * value }, false, nil},
		{"soft_cap", func(a, _ float64) float64 { return value * math.Tanh(a/value) }, false, nil},
		{"cast", func(a, _ float64) float64 { return a }, false, nil},
		{"mul", func(a, b float64) float64 { return a * b }, true, nil},
		{"add", func(a, b float64) float64 { return a + b }, true, nil},
	}
	for _, act := range ir.Activations() {
		constants := map[string]uint32{"fc_activation": uint32(act)}
		ops = append(ops, op{"gate", func(a, b float64) float64 { return ref.Gate(act, a, b) }, true, constants})
		if !act.OnlyGated() {
			ops = append(ops, op{"activate", func(a, _ float64) float64 { return ref.Activate(act, a) }, false, constants})
		}
	}
	for _, op := range ops {
		instances(t, op.family, func(t *testing.T, name string, types []kernels.Element) {
			for _, width := range few([]int{3, 300}, []int{1, 3, 256, 300, 1024}) {
				t.Run(fmt.Sprint(op.constants, width), func(t *testing.T) {
					const rows = 3
					rng := newRand(t.Name())
					aStride, bStride := width+5, width+2
					a, b := random(rng, types[0], rows*aStride), random(rng, types[0], rows*bStride)
					a.put(0, 9) // far out on the sigmoid
					if types[0] == kernels.Float {
						a.put(1, -95)
					}
					k, _ := kernels.Lookup(name)
					l := launch{
						kernel:    name,
						constants: op.constants,
						buffers:   map[string]tensor{k.Args[0].Name: a, "out": result(types[len(types)-1], rows*width)},
						params: kernels.ElementParams{Rows: rows, Width: uint32(width), AStride: uint32(aStride),
							BStride: uint32(bStride), Value: value},
						grid:  [3]int{ceil(width, 256), rows, 1},
						group: 256,
					}
					if op.binary {
						l.buffers["b"] = b
					}
					want := make([]float64, rows*width)
					for i := range want {
						want[i] = op.f(a.at(i/width*aStride+i%width), b.at(i/width*bStride+i%width))
					}
					compare(t, want, l.run(t)["out"].values(), width, worst(types...))
				})
			}
		})
	}
}

// ends are arguments at which formulas may overflow, underflow or lose precision.
var ends = []float64{math.Inf(-1), -3e38, -1e4, -20.5, -19.5, -1e-30, math.Copysign(0, -1), 0, 1e-30, 19.5, 3e38, math.Inf(1), math.NaN()}

// TestActivations runs a dense grid over the curved part of the functions, where the error is
// bounded by the effect of 1e-6 in erf, tanh or a sigmoid, and then the ends.
func TestActivations(t *testing.T) {
	instances(t, "activate", func(t *testing.T, name string, types []kernels.Element) {
		for _, act := range ir.Activations() {
			if act.OnlyGated() {
				continue
			}
			t.Run(act.String(), func(t *testing.T) {
				const n = 24*2048 + 1
				x := filled(types[0], n+len(ends), func(i int) float64 {
					if i < n {
						return float64(i)/2048 - 12
					}
					return ends[i-n]
				})
				got := launch{
					kernel: name, constants: map[string]uint32{"fc_activation": uint32(act)},
					buffers: map[string]tensor{"a": x, "out": result(types[0], x.length)},
					params:  kernels.ElementParams{Rows: 1, Width: uint32(x.length), AStride: uint32(x.length)},
					grid:    [3]int{ceil(x.length, 256), 1, 1}, group: 256,
				}.run(t)["out"]
				for i, v := range x.values() {
					requireNear(t, types[0], ref.Activate(act, v), got.at(i), 1e-6*math.Abs(v)/2, "%s(%v)", act, v)
				}
			})
		}
	})
}

// TestGates pairs every end with every other, and with numbers around the bounds of the
// clamped SwiGLU.
func TestGates(t *testing.T) {
	values := append([]float64{-8, -7, -6.5, -1, 0.5, 6.9, 7, 7.1, 30}, ends...)
	n := len(values) * len(values)
	instances(t, "gate", func(t *testing.T, name string, types []kernels.Element) {
		a := filled(types[0], n, func(i int) float64 { return values[i/len(values)] })
		b := filled(types[0], n, func(i int) float64 { return values[i%len(values)] })
		for _, act := range ir.Activations() {
			t.Run(act.String(), func(t *testing.T) {
				got := launch{
					kernel: name, constants: map[string]uint32{"fc_activation": uint32(act)},
					buffers: map[string]tensor{"a": a, "b": b, "out": result(types[0], n)},
					params:  kernels.ElementParams{Rows: 1, Width: uint32(n), AStride: uint32(n), BStride: uint32(n)},
					grid:    [3]int{ceil(n, 256), 1, 1}, group: 256,
				}.run(t)["out"]
				for i := range n {
					v, w := a.at(i), b.at(i)
					// A tiny gate may underflow to 0 in floats, a large one overflow.
					if math.IsInf(w, 0) || w == 0 && math.Abs(ref.Gate(act, v, 1)) > math.MaxFloat32 {
						continue
					}
					off := 1e-6 * math.Abs(v) / 2 * math.Max(math.Abs(w), 1)
					requireNear(t, types[0], ref.Gate(act, v, w), got.at(i), off, "%s of %v and %v", act, v, w)
				}
			})
		}
	})
}

// requireNear compares an element with its formula, within its rounding and the error `off` of
// the kernel's approximation. Values beyond the type's range must be infinite.
func requireNear(t *testing.T, e kernels.Element, want, got, off float64, message string, args ...any) {
	t.Helper()
	one := filled(e, 1, func(int) float64 { return want })
	if rounded := one.at(0); got == rounded || math.IsNaN(want) && math.IsNaN(got) {
		return
	}
	rounding := map[kernels.Element]float64{kernels.Float: 0x1p-22, kernels.Half: 0x1p-11, kernels.Bfloat: 0x1p-8}[e]
	bound := off + rounding*math.Abs(want) + steps[e]
	require.LessOrEqual(t, math.Abs(got-want), bound, "%s is %v, want %v", fmt.Sprintf(message, args...), got, want)
}

func TestGatherRows(t *testing.T) {
	instances(t, "gather_rows", func(t *testing.T, name string, types []kernels.Element) {
		const tokens = 5
		index := []int32{4, 0, -1, 4, 2}
		for _, s := range [][2]int{{1, 1}, {270, 271}, {516, 516}, {1024, 1028}} {
			width, stride := s[0], s[1]
			x := random(newRand(t.Name()), types[0], tokens*stride)
			got := launch{
				kernel:  name,
				buffers: map[string]tensor{"x": x, "index": ints(index), "out": result(types[0], len(index)*width)},
				params:  kernels.ElementParams{Rows: uint32(len(index)), Width: uint32(width), AStride: uint32(stride)},
				grid:    [3]int{ceil(width, 512), len(index), 1},
				group:   32,
			}.run(t)["out"]
			want := make([]float64, len(index)*width)
			for i, row := range index {
				if row >= 0 {
					copy(want[i*width:], x.values()[int(row)*stride:][:width])
				}
			}
			compare(t, want, got.values(), width, 0)
		}
	})
}

func TestConcat(t *testing.T) {
	instances(t, "concat", func(t *testing.T, name string, types []kernels.Element) {
		for _, widths := range [][]int{{1, 1}, {300, 40}, {257, 1, 70}, {3, 300, 5, 2}} {
			const rows = 3
			rng, width := newRand(fmt.Sprint(widths)), lo.Sum(widths)
			want, at := make([]float64, rows*width), 0
			columns := [4]uint32{}
			buffers := map[string]tensor{"out": result(types[0], rows*width)}
			for i, n := range widths {
				x := random(rng, types[0], rows*n)
				for r := range rows {
					copy(want[r*width+at:][:n], x.values()[r*n:])
				}
				buffers[fmt.Sprint("x", i)], columns[i], at = x, uint32(n), at+n
			}
			got := launch{
				kernel: name, buffers: buffers, constants: map[string]uint32{"fc_parts": uint32(len(widths))},
				params: kernels.ConcatParams{Rows: rows, Width: uint32(width), N0: columns[0], N1: columns[1], N2: columns[2], N3: columns[3]},
				grid:   [3]int{ceil(width, 256), rows, 1}, group: 256,
			}.run(t)["out"]
			compare(t, want, got.values(), width, 0)
		}
	})
}

func TestWeightedSum(t *testing.T) {
	instances(t, "weighted_sum", func(t *testing.T, name string, types []kernels.Element) {
		for _, shape := range [][3]int{{1, 1, 1}, {3, 300, 1}, {5, 64, 8}, {2, 257, 3}} {
			rows, width, each := shape[0], shape[1], shape[2]
			rng := newRand(fmt.Sprint(shape))
			x, weights := random(rng, types[0], rows*each*width), random(rng, kernels.Float, rows*each)
			want := make([]float64, rows*width)
			for i := range x.length {
				pair := i / width
				want[pair/each*width+i%width] += weights.at(pair) * x.at(i)
			}
			got := launch{
				kernel:  name,
				buffers: map[string]tensor{"x": x, "weights": weights, "out": result(types[0], rows*width)},
				params:  kernels.WeightedSumParams{Rows: uint32(rows), Width: uint32(width), Each: uint32(each)},
				grid:    [3]int{(width + 255) / 256, rows, 1}, group: 256,
			}.run(t)["out"]
			compare(t, want, got.values(), width, 1e-6)
		}
	})
}
