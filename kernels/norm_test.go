package kernels_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/kernels"
)

// layerNorm is the formula; weight and bias may be empty.
func layerNorm(row, weight, bias []float64, eps float64) {
	pivot := row[0]
	mean, variance := pivot, 0.0
	for _, v := range row {
		mean += (v - pivot) / float64(len(row))
	}
	for _, v := range row {
		variance += (v - mean) * (v - mean) / float64(len(row))
	}
	for i := range row {
		row[i] = (row[i] - mean) / math.Sqrt(variance+eps)
		if len(weight) > 0 {
			row[i] *= weight[i]
		}
		if len(bias) > 0 {
			row[i] += bias[i]
		}
	}
}

// TestRMSNorm has rows apart, of which the first is so small that eps shows, and a residual
// for norm_residual, with a gain where rows are even.
func TestRMSNorm(t *testing.T) {
	const eps, rows = 1e-5, 3
	for _, family := range []string{"rms_norm", "norm_residual"} {
		instances(t, family, func(t *testing.T, name string, types []kernels.Element) {
			to := types[len(types)-1]
			for _, width := range few([]int{5, 172, 1030}, []int{1, 4, 5, 64, 80, 172, 1024, 1030, 4099}) {
				for _, group := range few([]int{32, 256}, []int{32, 64, 96, 256}) {
					t.Run(fmt.Sprintf("%d by %d", width, group), func(t *testing.T) {
						rng := newRand(t.Name())
						stride := width + 3
						groups := 1
						if family == "rms_norm" {
							groups += width % 2
						}
						x, gain := random(rng, types[0], rows*stride), random(rng, kernels.Float, groups*width)
						for i := range width {
							x.put(i, x.at(i)/1024)
						}
						buffers := map[string]tensor{"x": x, "weight": gain, "out": result(to, rows*width)}
						residual, factor, constants := make([]float64, rows*width), 1.0, map[string]uint32{}
						if family == "norm_residual" {
							buffers["residual"] = random(rng, to, rows*width)
							residual = buffers["residual"].values()
							if width%2 == 0 {
								constants["fc_gain"], buffers["gain"] = 1, random(rng, kernels.Float, 1)
								factor = buffers["gain"].at(0)
							}
						}
						got := launch{
							kernel: name, buffers: buffers, constants: constants,
							params: kernels.NormParams{Rows: rows, Width: uint32(width), XStride: uint32(stride), Eps: eps, Groups: uint32(groups)},
							grid:   [3]int{rows, 1, 1}, group: group,
						}.run(t)["out"]
						var want []float64
						for r := range rows {
							row := x.values()[r*stride:][:width]
							normalise(row, filled(kernels.Float, width, func(i int) float64 { return gain.at(r%groups*width + i) }), eps)
							for i := range row {
								row[i] = (row[i] + residual[r*width+i]) * factor
							}
							want = append(want, row...)
						}
						compare(t, want, got.values(), width, worst(types...))
					})
				}
			}
		})
	}
}

// TestLayerNorm has rows around zero, rows far from it, whose mean has fewer digits
// than their spread needs, and rows of equals.
func TestLayerNorm(t *testing.T) {
	const eps = 1e-5
	instances(t, "layer_norm", func(t *testing.T, name string, types []kernels.Element) {
		for i, width := range few([]int{5, 172, 1030}, []int{1, 2, 5, 64, 80, 172, 768, 1024, 1030, 4099}) {
			for j, group := range few([]int{32, 256}, []int{32, 64, 96, 256}) {
				t.Run(fmt.Sprintf("%d by %d", width, group), func(t *testing.T) {
					const rows = 4
					rng := newRand(t.Name())
					stride := width + 3
					x := random(rng, types[0], rows*stride)
					far := map[kernels.Element]float64{kernels.Float: 1e6, kernels.Half: -1e3, kernels.Bfloat: 128}[types[0]]
					for c := range width {
						x.put(stride+c, far+rng.NormFloat64())
						x.put(2*stride+c, far/3)
						x.put(3*stride+c, float64(rng.IntN(2))*far)
					}
					constants := map[string]uint32{}
					buffers := map[string]tensor{"x": x, "out": result(types[1], rows*width)}
					var weight, bias []float64
					if (i+j)%3 > 0 {
						buffers["weight"], constants["fc_weight"] = random(rng, kernels.Float, width), 1
						weight = buffers["weight"].values()
					}
					if (i+j)%3 > 1 {
						buffers["bias"], constants["fc_bias"] = random(rng, kernels.Float, width), 1
						bias = buffers["bias"].values()
					}
					got := launch{
						kernel: name, constants: constants, buffers: buffers,
						params: kernels.NormParams{Rows: rows, Width: uint32(width), XStride: uint32(stride), Eps: eps, Groups: 1},
						grid:   [3]int{rows, 1, 1}, group: group,
					}.run(t)["out"]
					var want []float64
					for r := range rows {
						row := x.values()[r*stride:][:width]
						layerNorm(row, weight, bias, eps)
						want = append(want, row...)
					}
					for c, v := range want[2*width : 3*width] { // equals: nothing but the bias is left
						require.InDelta(t, v, got.at(2*width+c), 1e-6+bounds[types[1]]*math.Abs(v))
					}
					want, values := append(want[:2*width:2*width], want[3*width:]...), got.values()
					compare(t, want, append(values[:2*width:2*width], values[3*width:]...), width, worst(types[1]))
				})
			}
		}
	})
}

// TestNormsShowNaN puts something not finite into one row of three.
func TestNormsShowNaN(t *testing.T) {
	for _, family := range []string{"rms_norm", "layer_norm"} {
		instances(t, family, func(t *testing.T, name string, types []kernels.Element) {
			const rows, width = 3, 70
			x := random(newRand(t.Name()), types[0], rows*width)
			x.put(width+67, math.NaN())
			constants := map[string]uint32{"fc_weight": 1}
			if family == "rms_norm" { // it has no choice
				constants = nil
			}
			got := launch{
				kernel: name, constants: constants,
				buffers: map[string]tensor{"x": x, "weight": random(newRand("gain"), kernels.Float, width), "out": result(types[1], rows*width)},
				params:  kernels.NormParams{Rows: rows, Width: width, XStride: width, Eps: 1e-5, Groups: 1},
				grid:    [3]int{rows, 1, 1}, group: 64,
			}.run(t)["out"]
			for i, v := range got.values() {
				require.Equal(t, i/width == 1, math.IsNaN(v), "element %d is %v", i, v)
			}
		})
	}
}
