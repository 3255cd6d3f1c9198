package kernels_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/kernels"
)

func silu(v float64) float64 { return v / (1 + math.Exp(-v)) }

// gelu is v·Φ(v); Erfc keeps its precision where 1 + erf(v/√2) would lose it.
func gelu(v float64) float64 {
	if math.IsInf(v, -1) {
		return 0
	}
	return v * math.Erfc(-v/math.Sqrt2) / 2
}

func geluTanh(v float64) float64 {
	if math.IsInf(v, -1) {
		return 0
	}
	return v / (1 + math.Exp(-2*math.Sqrt(2/math.Pi)*(v+0.044715*v*v*v)))
}

// formOfGELU are the function constants of each form.
var formOfGELU = []struct {
	name      string
	constants map[string]uint32
	f         func(v float64) float64
}{
	{"erf by default", nil, gelu},
	{"erf", map[string]uint32{"fc_tanh": 0}, gelu},
	{"tanh", map[string]uint32{"fc_tanh": 1}, geluTanh},
}

func TestElementwise(t *testing.T) {
	const value = -1.75
	type op struct {
		family    string
		f         func(a, b float64) float64
		binary    bool
		constants map[string]uint32
	}
	ops := []op{
		{"silu", func(a, _ float64) float64 { return silu(a) }, false, nil},
		{"scale", func(a, _ float64) float64 { return a * value }, false, nil},
		{"soft_cap", func(a, _ float64) float64 { return value * math.Tanh(a/value) }, false, nil},
		{"cast", func(a, _ float64) float64 { return a }, false, nil},
		{"mul", func(a, b float64) float64 { return a * b }, true, nil},
		{"add", func(a, b float64) float64 { return a + b }, true, nil},
		{"silu_mul", func(a, b float64) float64 { return silu(a) * b }, true, nil},
	}
	for _, form := range formOfGELU {
		ops = append(ops,
			op{"gelu", func(a, _ float64) float64 { return form.f(a) }, false, form.constants},
			op{"gelu_mul", func(a, b float64) float64 { return form.f(a) * b }, true, form.constants})
	}
	for _, op := range ops {
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

// TestGELU walks densely through where the function bends: the error is bounded by what
// 1e-6 in erf or tanh makes of it. Then the ends.
func TestGELU(t *testing.T) {
	inf := math.Inf(1)
	ends := []float64{-inf, -3e38, -1e4, -20.5, -19.5, -1e-30, math.Copysign(0, -1), 0, 1e-30, 19.5, 3e38, inf, math.NaN()}
	instances(t, "gelu", func(t *testing.T, name string, types []kernels.Element) {
		for _, form := range formOfGELU {
			t.Run(form.name, func(t *testing.T) {
				const n = 24*2048 + 1
				x := filled(types[0], n+len(ends), func(i int) float64 {
					if i < n {
						return float64(i)/2048 - 12
					}
					return ends[i-n]
				})
				got := launch{
					kernel: name, constants: form.constants,
					buffers: map[string]tensor{"a": x, "out": result(types[0], x.length)},
					params:  kernels.ElementParams{Rows: 1, Width: uint32(x.length), AStride: uint32(x.length)},
					grid:    [3]int{ceil(x.length, 256), 1, 1}, group: 256,
				}.run(t)["out"]
				rounding := map[kernels.Element]float64{kernels.Float: 0, kernels.Half: 0x1p-11, kernels.Bfloat: 0x1p-8}[types[0]]
				for i, v := range x.values() {
					want := form.f(v)
					if same := got.at(i) == want || math.IsNaN(want) && math.IsNaN(got.at(i)); same {
						continue
					}
					bound := 1e-6*math.Abs(v)/2 + rounding*math.Abs(want) + steps[types[0]]
					require.LessOrEqual(t, math.Abs(got.at(i)-want), bound, "gelu(%v) is %v, want %v", v, got.at(i), want)
				}
			})
		}
	})
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
