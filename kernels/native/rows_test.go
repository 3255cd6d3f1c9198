package native

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/kernels"
	"github.com/smelt-ml/smelt/models/quant"
)

// check runs d on every instruction set and its emulation, and compares each with want.
func check(t *testing.T, d dispatch, want []float64, bound float64) {
	t.Helper()
	near(t, want, floats(d.emulate(t)[0]), 1, max(bound, 1e-5), "emulated")
	for _, l := range Libraries() {
		near(t, want, floats(d.run(t, l)[0]), 1, bound, l.ISA())
	}
}

func TestEmbed(t *testing.T) {
	for _, w := range weightTypes {
		t.Run(w.String(), func(t *testing.T) {
			const vocab, width = 9, 512
			rng := newRand(w.String())
			raw, values := stored(t, rng, vocab*width, w)
			ids := []int32{8, 0, 3, -1, vocab, 3, math.MinInt32}
			want := func(of func(row []float32) []float64) []float64 {
				out := make([]float64, len(ids)*width)
				for i, id := range ids {
					if id >= 0 && id < vocab {
						copy(out[i*width:], of(values[int(id)*width:][:width]))
					}
				}
				return out
			}
			d := dispatch{
				kernel:    "embed",
				args:      map[string][]byte{"tokens": intBytes(ids...), "table": raw, "out": nan(len(ids) * width)},
				params:    kernels.EmbedParams{Tokens: uint32(len(ids)), Width: width, Vocab: vocab},
				constants: map[string]uint32{"fc_type": uint32(w)},
				grid:      [3]uint32{1, uint32(len(ids)), 1}, group: [3]uint32{32, 1, 1}, writes: []string{"out"},
			}
			near(t, want(widened), floats(d.emulate(t)[0]), 1, 1e-5, "emulated")
			for _, l := range Libraries() {
				of := widened
				if l.HalfIntegers() && isHalf(w) {
					of = shortWeights
				}
				near(t, want(of), floats(d.run(t, l)[0]), 1, 1e-6, l.ISA())
			}
		})
	}
}

func TestNorm(t *testing.T) {
	for _, width := range []int{1, 8, 17, 64, 172, 1024} {
		rng := newRand(fmt.Sprint(width))
		const rows, stride, groups = 3, 1100, 2
		x, w := normals(rng, (rows-1)*stride+width), normals(rng, groups*width)
		var want, one []float64 // with both rows of the weight by turns, and with the first
		for r := range rows {
			sum := 0.0
			for _, v := range x[r*stride:][:width] {
				sum += float64(v) * float64(v)
			}
			for i, v := range x[r*stride:][:width] {
				v := float64(v) / math.Sqrt(sum/float64(width)+eps)
				want, one = append(want, v*float64(w[r%groups*width+i])), append(one, v*float64(w[i]))
			}
		}
		check(t, dispatch{
			kernel: "rms_norm_f32_f32",
			args:   map[string][]byte{"x": floatBytes(x), "weight": floatBytes(w), "out": nan(rows * width)},
			params: kernels.NormParams{Rows: rows, Width: uint32(width), XStride: stride, Eps: eps, Groups: groups},
			grid:   [3]uint32{rows, 1, 1}, group: [3]uint32{64, 1, 1}, writes: []string{"out"},
		}, want, 3e-6)

		residual := normals(rng, rows*width)
		for i, v := range residual {
			one[i] += float64(v)
		}
		d := dispatch{
			kernel: "norm_residual_f32",
			args:   map[string][]byte{"x": floatBytes(x), "weight": floatBytes(w), "residual": floatBytes(residual), "out": nan(rows * width)},
			params: kernels.NormParams{Rows: rows, Width: uint32(width), XStride: stride, Eps: eps, Groups: 1},
			grid:   [3]uint32{rows, 1, 1}, group: [3]uint32{64, 1, 1}, writes: []string{"out"},
		}
		check(t, d, one, 3e-6)
		for i := range one {
			one[i] *= 0.375
		}
		d.args["gain"], d.constants = floatBytes([]float32{0.375}), map[string]uint32{"fc_gain": 1}
		check(t, d, one, 3e-6)
	}
}

func TestLayerNorm(t *testing.T) {
	for _, width := range []int{1, 8, 17, 64, 172, 1024} {
		for _, c := range []struct {
			weight, bias bool
			from         float32 // the centre of the rows' values
		}{{true, true, 0}, {true, false, 3}, {false, true, -1000}, {false, false, 0}} {
			t.Run(fmt.Sprintf("%d/%+v", width, c), func(t *testing.T) {
				rng := newRand(fmt.Sprint(width))
				const rows, stride = 3, 1100
				x, w, b := normals(rng, (rows-1)*stride+width), normals(rng, width), normals(rng, width)
				for i := range x {
					x[i] += c.from
				}
				var want []float64
				for r := range rows {
					row := widened(x[r*stride:][:width])
					mean, variance := 0.0, 0.0
					for _, v := range row {
						mean += v / float64(width)
					}
					for _, v := range row {
						variance += (v - mean) * (v - mean) / float64(width)
					}
					for i, v := range row {
						v = (v - mean) / math.Sqrt(variance+eps)
						if c.weight {
							v *= float64(w[i])
						}
						if c.bias {
							v += float64(b[i])
						}
						want = append(want, v)
					}
				}
				d := dispatch{
					kernel:    "layer_norm_f32_f32",
					args:      map[string][]byte{"x": floatBytes(x), "out": nan(rows * width)},
					params:    kernels.NormParams{Rows: rows, Width: uint32(width), XStride: stride, Eps: eps, Groups: 1},
					constants: map[string]uint32{},
					grid:      [3]uint32{rows, 1, 1}, group: [3]uint32{64, 1, 1}, writes: []string{"out"},
				}
				if c.weight {
					d.args["weight"], d.constants["fc_weight"] = floatBytes(w), 1
				}
				if c.bias {
					d.args["bias"], d.constants["fc_bias"] = floatBytes(b), 1
				}
				check(t, d, want, 3e-6)
			})
		}
	}
}

func TestElementwise(t *testing.T) {
	for _, k := range []struct {
		name string
		two  bool
		f    func(a, b float64) float64
	}{
		{"soft_cap_f32", false, func(a, _ float64) float64 { return 0.25 * math.Tanh(a/0.25) }},
		{"scale_f32", false, func(a, _ float64) float64 { return a * 0.25 }},
		{"add_f32", true, func(a, b float64) float64 { return a + b }},
		{"mul_f32", true, func(a, b float64) float64 { return a * b }},
	} {
		for _, width := range []int{1, 5, 33, 300} {
			t.Run(fmt.Sprintf("%s/%d", k.name, width), func(t *testing.T) {
				rng := newRand(k.name)
				a, b := normals(rng, 2*(width+7)+width), normals(rng, 2*(width+2)+width)
				d, want := elementwise(k.name, width, a, b, k.f)
				if !k.two {
					delete(d.args, "b")
				}
				check(t, d, want, 1e-6)
			})
		}
	}
}

// elementwise returns the dispatch of an elementwise kernel on three rows, with 7 elements of
// padding in a and 2 in b, and its result.
func elementwise(kernel string, width int, a, b []float32, f func(a, b float64) float64) (dispatch, []float64) {
	const rows = 3
	var want []float64
	for r := range rows {
		for i := range width {
			want = append(want, f(float64(a[r*(width+7)+i]), float64(b[r*(width+2)+i])))
		}
	}
	return dispatch{
		kernel: kernel,
		args:   map[string][]byte{"a": floatBytes(a), "b": floatBytes(b), "out": nan(len(want))},
		params: kernels.ElementParams{Rows: rows, Width: uint32(width), AStride: uint32(width + 7), BStride: uint32(width + 2), Value: 0.25},
		writes: []string{"out"},
		grid:   [3]uint32{ceil(width, 256), rows, 1}, group: [3]uint32{256, 1, 1},
	}, want
}

// activation returns the value of an activation that is no gate. In both forms of GELU the
// kernels clamp arguments below -20 to -20, where GELU is nearly 0.
func activation(a ir.Activation, x float64) float64 {
	switch a {
	case ir.SiLU:
		return x / (1 + math.Exp(-x))
	case ir.GELU:
		x = math.Max(x, -20)
		return x / 2 * math.Erfc(-x/math.Sqrt2)
	case ir.GELUTanh:
		x = math.Max(x, -20)
		return x / 2 * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x)))
	case ir.ReLU2:
		x = math.Max(x, 0)
		return x * x
	case ir.Sigmoid:
		return 1 / (1 + math.Exp(-x))
	case ir.Softplus:
		return max(x, 0) + math.Log1p(math.Exp(-math.Abs(x)))
	}
	return x
}

func gate(a ir.Activation, x, y float64) float64 {
	if a == ir.ClampedSwiGLU {
		g, u := math.Min(x, 7), math.Max(-7, math.Min(y, 7))
		return (u + 1) * (g / (1 + math.Exp(-1.702*g)))
	}
	return activation(a, x) * y
}

// TestActivations runs every activation, alone and as a gate: on normal numbers, compared with
// the emulation, and on overflowing exponents and infinities, where the emulation's Metal
// functions may return other values.
func TestActivations(t *testing.T) {
	inf, nan32 := float32(math.Inf(1)), float32(math.NaN())
	extremes := []float32{0, -100, 100, -3e38, 3e38, -inf, inf, nan32, 7, 7.5, -7, -20, 1e-30, -1e-30, 5.5, -5.5}
	factors := []float32{0, -8, 8, nan32}
	relative := func(t *testing.T, want []float64, got []float32, bound float64, what ...any) {
		t.Helper()
		require.Len(t, got, len(want))
		for i, w := range want {
			if math.Abs(w) > math.MaxFloat32 {
				w = math.Copysign(math.Inf(1), w)
			}
			g := float64(got[i])
			if w != g && !(math.IsNaN(w) && math.IsNaN(g)) && !(math.Abs(w-g) <= bound*math.Max(1, math.Abs(w))) {
				require.FailNow(t, fmt.Sprintf("element %d is %v, want %v", i, g, w), what...)
			}
		}
	}
	for _, a := range ir.Activations() {
		for _, width := range []int{1, 5, 33, 300} {
			for _, kernel := range []string{"activate_f32", "gate_f32"} {
				gated := kernel == "gate_f32"
				if a.OnlyGated() && !gated {
					continue
				}
				t.Run(fmt.Sprintf("%s/%v/%d", kernel, a, width), func(t *testing.T) {
					f := func(x, _ float64) float64 { return activation(a, x) }
					if gated {
						f = func(x, y float64) float64 { return gate(a, x, y) }
					}
					rng := newRand(kernel)
					x, y := normals(rng, 2*(width+7)+width), normals(rng, 2*(width+2)+width)
					for i := range x {
						x[i] *= 3
					}
					run := func() (dispatch, []float64) {
						d, want := elementwise(kernel, width, x, y, f)
						d.constants = map[string]uint32{"fc_activation": uint32(a)}
						if !gated {
							delete(d.args, "b")
						}
						return d, want
					}
					d, want := run()
					relative(t, want, floats(d.emulate(t)[0]), 1e-5, "emulated")
					bound := 1e-6
					if gated {
						bound = 1e-5 // times the other factor
					}
					for _, l := range Libraries() {
						relative(t, want, floats(d.run(t, l)[0]), bound, l.ISA())
					}
					for i := range min(width, len(extremes)) {
						x[i] = extremes[i]
					}
					for i := range min(width, len(factors)) {
						y[width+2+i] = factors[i]
					}
					d, want = run()
					for _, l := range Libraries() {
						relative(t, want, floats(d.run(t, l)[0]), bound, l.ISA())
					}
				})
			}
		}
	}
}

// TestGELUPrecision bounds the error of GELU by ulps of its argument, because GELU multiplies
// the error of erf by the argument.
func TestGELUPrecision(t *testing.T) {
	const n = 20000
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(i-n/2) / (n / 2) * 6
		if i%2 == 1 {
			x[i] = x[i-1] * 1e-3
		}
	}
	d := dispatch{
		kernel:    "activate_f32",
		args:      map[string][]byte{"a": floatBytes(x), "out": nan(n)},
		params:    kernels.ElementParams{Rows: 1, Width: n, AStride: n},
		constants: map[string]uint32{"fc_activation": uint32(ir.GELU)}, writes: []string{"out"},
	}
	each(t, func(t *testing.T, l Library) {
		for i, got := range floats(d.run(t, l)[0]) {
			want := activation(ir.GELU, float64(x[i]))
			require.LessOrEqual(t, math.Abs(want-float64(got)), 2.5e-7*math.Abs(float64(x[i])), "GELU(%v) is %v, want %v", x[i], got, want)
		}
	})
}

func TestActivationsUnsupported(t *testing.T) {
	last := ir.Activations()[len(ir.Activations())-1]
	for kernel, most := range map[string]ir.Activation{"activate_f32": ir.ReLU2, "gate_f32": last} { // the next number is for gates only, or unused
		d, _ := elementwise(kernel, 1, make([]float32, 17), make([]float32, 7), func(a, b float64) float64 { return 0 })
		if kernel == "activate_f32" {
			delete(d.args, "b")
		}
		d.constants = map[string]uint32{"fc_activation": uint32(most)}
		require.NoError(t, Run(d.launch(), Options{}), kernel)
		d.constants["fc_activation"]++
		require.ErrorIs(t, Run(d.launch(), Options{}), ErrUnsupported, kernel)
	}
}

func TestSoftmax(t *testing.T) {
	inf := math.Inf(-1)
	for _, width := range []int{1, 3, 16, 100} {
		rng := newRand("softmax")
		x := normals(rng, 4*width)
		for i := range width {
			x[width+i] = float32(inf)
			if i%3 != 0 {
				x[2*width+i] = float32(inf)
			}
			x[3*width+i] *= 1e4
		}
		var want []float64
		for r := range 4 {
			row, most, total := x[r*width:][:width], inf, 0.0
			for _, v := range row {
				most = max(most, float64(v))
			}
			if r == 1 {
				most = 0
			}
			for _, v := range row {
				total += math.Exp(float64(v) - most)
			}
			for _, v := range row {
				want = append(want, math.Exp(float64(v)-most)/max(total, 1e-300))
			}
		}
		check(t, dispatch{
			kernel: "softmax_f32",
			args:   map[string][]byte{"x": floatBytes(x), "out": nan(4 * width)},
			params: kernels.ElementParams{Rows: 4, Width: uint32(width), AStride: uint32(width)},
			grid:   [3]uint32{4, 1, 1}, group: [3]uint32{256, 1, 1}, writes: []string{"out"},
		}, want, 1e-6)
	}
}

// TestSoftmaxSinks gives pairs of rows a sink: below, among and above their scores, and
// −∞, which is none; every second row has no score.
func TestSoftmaxSinks(t *testing.T) {
	const rows, perSink = 8, 2
	sinks := []float32{-5, 1, 8, float32(math.Inf(-1))}
	for _, width := range []int{1, 3, 16, 100} {
		x := normals(newRand("sinks"), rows*width)
		var want []float64
		for r := range rows {
			row, total := x[r*width:][:width], math.Exp(float64(sinks[r/perSink]))
			for i := range row {
				if r%2 == 1 {
					row[i] = float32(math.Inf(-1))
				}
				total += math.Exp(float64(row[i]))
			}
			for _, v := range row {
				want = append(want, math.Exp(float64(v))/max(total, 1e-300))
			}
		}
		check(t, dispatch{
			kernel:    "softmax_f32",
			args:      map[string][]byte{"x": floatBytes(x), "out": nan(rows * width), "sinks": floatBytes(sinks)},
			params:    kernels.ElementParams{Rows: rows, Width: uint32(width), AStride: uint32(width), BStride: perSink},
			constants: map[string]uint32{"fc_sinks": 1},
			grid:      [3]uint32{rows, 1, 1}, group: [3]uint32{256, 1, 1}, writes: []string{"out"},
		}, want, 1e-6)
	}
}

// TestArgmax puts the largest element, its equals and a NaN at every position that vectors,
// their tails and blocks treat differently.
func TestArgmax(t *testing.T) {
	inf, nan32 := float32(math.Inf(1)), float32(math.NaN())
	for _, width := range []int{1, 3, 16, 67, 300, 4096, 4097, 13000} {
		rng := newRand(fmt.Sprint(width))
		var x []float32
		var want []int32
		add := func(fill func(i int) float32, index int) {
			for i := range width {
				x = append(x, fill(i))
			}
			x = append(x, inf, nan32) // between the rows
			want = append(want, int32(index))
		}
		for range 24 {
			at, again := rng.IntN(width), rng.IntN(width)
			peak := func(v float32) func(i int) float32 {
				return func(i int) float32 {
					if i == at || i == again {
						return v
					}
					return -float32(i%7) - 1
				}
			}
			add(peak(0), min(at, again))
			add(peak(inf), min(at, again))
			add(peak(nan32), -1)
		}
		add(func(int) float32 { return -inf }, 0)
		add(func(int) float32 { return inf }, 0)
		add(func(i int) float32 { return float32(math.Copysign(0, float64(i%2)-0.5)) }, 0)
		add(func(i int) float32 { return float32(i) }, width-1)
		add(func(i int) float32 {
			if i == 0 {
				return nan32
			}
			return inf
		}, -1)
		rows := uint32(len(want))
		d := dispatch{
			kernel: "argmax_f32",
			args:   map[string][]byte{"x": floatBytes(x), "out": nan(len(want))},
			params: kernels.ElementParams{Rows: rows, Width: uint32(width), AStride: uint32(width + 2)},
			grid:   [3]uint32{rows, 1, 1}, group: [3]uint32{256, 1, 1}, writes: []string{"out"},
		}
		require.Equal(t, intBytes(want...), d.emulate(t)[0], "emulated, %d wide", width)
		each(t, func(t *testing.T, l Library) { require.Equal(t, intBytes(want...), d.run(t, l)[0], "%d wide", width) })
	}
}

func TestGatherRows(t *testing.T) {
	const width = 21
	x := normals(newRand("gather"), 5*width)
	index := []int32{4, 0, 0, 2}
	var want []float64
	for _, i := range index {
		want = append(want, widened(x[int(i)*width:][:width])...)
	}
	d := dispatch{
		kernel: "gather_rows_f32",
		args:   map[string][]byte{"x": floatBytes(x), "index": intBytes(index...), "out": nan(len(want))},
		params: kernels.ElementParams{Rows: 4, Width: width, AStride: width},
		grid:   [3]uint32{1, 4, 1}, group: [3]uint32{32, 1, 1}, writes: []string{"out"},
	}
	check(t, d, want, 0)
	d.args["index"] = intBytes(-1, 5, math.MaxInt32, math.MinInt32)
	each(t, func(t *testing.T, l Library) { near(t, make([]float64, len(want)), floats(d.run(t, l)[0]), 1, 0) })
}

// ropeCase is a case of the three families with RoPE.
type ropeCase struct {
	head, rotated        int
	interleaved, factors bool
	table                bool // the factors are the complete divisors of positions
	counted              bool // positions and slots follow from the token's index
	separate             bool // K and V lie in buffers of their own
}

var ropeCases = []ropeCase{
	{head: 8, rotated: 8}, {head: 64, rotated: 64, interleaved: true}, {head: 128, rotated: 128, factors: true},
	{head: 72, rotated: 40}, {head: 96, rotated: 24, interleaved: true, factors: true}, {head: 256, rotated: 256}, {head: 512, rotated: 128},
	{head: 64, rotated: 64, table: true, counted: true, separate: true}, {head: 96, rotated: 96, interleaved: true, table: true, factors: true},
	{head: 80, rotated: 40, counted: true}, {head: 32, rotated: 32, separate: true},
}

func (c ropeCase) constants() map[string]uint32 {
	m := map[string]uint32{"fc_interleaved": 0}
	for name, set := range map[string]bool{"fc_interleaved": c.interleaved, "fc_factors": c.factors, "fc_table": c.table} {
		if set {
			m[name] = 1
		}
	}
	if c.counted {
		m["fc_positions"] = 0
	}
	return m
}

func (c ropeCase) writeConstants() map[string]uint32 {
	m := c.constants()
	if c.counted {
		m["fc_slots"] = 0
	}
	if c.separate {
		m["fc_separate"] = 1
	}
	return m
}

// first is the position of token 0 if positions are counted.
const first = 5

const (
	log2Theta = 16.6
	freqScale = 0.5
	magnitude = 1.25
)

func (c ropeCase) rotate(x []float64, position int32, factors []float32) []float64 {
	out := append([]float64(nil), x...)
	for i := range c.rotated / 2 {
		angle := float64(position) * freqScale * math.Exp2(-float64(float32(log2Theta))*2*float64(i)/float64(c.rotated))
		if c.table {
			angle = float64(position) * freqScale
		}
		if c.table || c.factors {
			angle /= float64(factors[i])
		}
		a, b := i, i+c.rotated/2
		if c.interleaved {
			a, b = 2*i, 2*i+1
		}
		sin, cos := math.Sincos(angle)
		out[a] = (x[a]*cos - x[b]*sin) * magnitude
		out[b] = (x[a]*sin + x[b]*cos) * magnitude
	}
	return out
}

func TestRope(t *testing.T) {
	for _, c := range ropeCases {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			rng := newRand(fmt.Sprint(c))
			const heads, pad = 3, 5
			positions := []int32{0, 1, 77, 500, 131071, -3}
			if c.counted {
				positions = []int32{first, first + 1, first + 2, first + 3}
			}
			stride := heads*c.head + pad
			x := normals(rng, len(positions)*stride)
			factors := make([]float32, c.rotated/2)
			for i := range factors {
				factors[i] = 1 + rng.Float32()*7
			}
			var want []float64
			for i, p := range positions {
				for h := range heads {
					want = append(want, c.rotate(widened(x[i*stride+h*c.head:][:c.head]), p, factors)...)
				}
			}
			d := dispatch{
				kernel: "rope_f32",
				args:   map[string][]byte{"x": floatBytes(x[:len(x)-pad]), "positions": intBytes(positions...), "factors": floatBytes(factors), "out": nan(len(want))},
				params: kernels.RopeParams{Tokens: uint32(len(positions)), Heads: heads, Head: uint32(c.head), Rotated: uint32(c.rotated),
					XStride: uint32(stride), First: first, Log2Theta: log2Theta, FreqScale: freqScale, Magnitude: magnitude},
				constants: c.constants(), writes: []string{"out"},
				grid: [3]uint32{ceil(c.head, 64), heads, uint32(len(positions))}, group: [3]uint32{32, 1, 1},
			}
			if c.counted {
				delete(d.args, "positions")
			}
			for _, l := range Libraries() {
				near(t, want, floats(d.run(t, l)[0]), 1, 2e-6, l.ISA())
			}
			// The Metal kernel computes angles in float: at position 500 their error is 3e-5.
			short := 4 * heads * c.head
			near(t, want[:short], floats(d.emulate(t)[0])[:short], 1, 1e-3)
		})
	}
}

func TestRopeWrite(t *testing.T) {
	for _, c := range ropeCases {
		for _, cache := range []dtype.Type{dtype.F16, dtype.F32, dtype.Q8_0} {
			if c.head%cache.BlockElems() != 0 {
				continue
			}
			for _, over := range []string{"nothing", "a head", "all heads", "values"} {
				t.Run(fmt.Sprintf("%+v/%v/norm over %s", c, cache, over), func(t *testing.T) {
					norm, allHeads, values := over != "nothing", over == "all heads", over == "values"
					rng := newRand(fmt.Sprint(c))
					const heads, kvHeads, block, blocks, pad = 6, 2, 4, 3, 3
					positions := []int32{0, 3, 90, 91, 92, 93}
					slots := []int32{5, -1, 0, 11, 12, math.MaxInt32} // 12 and the last are out of range
					if c.counted {
						positions = []int32{first, first + 1, first + 2, first + 3, first + 4}
						slots = positions
					}
					stride := (heads+2*kvHeads)*c.head + pad
					x := normals(rng, len(positions)*stride)
					factors, qNorm, kNorm := make([]float32, c.rotated/2), normals(rng, c.head), normals(rng, c.head)
					if allHeads {
						qNorm, kNorm = normals(rng, heads*c.head), normals(rng, kvHeads*c.head)
					}
					for i := range factors {
						factors[i] = 1 + rng.Float32()*7
					}
					k := make([]float64, blocks*kvHeads*block*c.head)
					for i := range k {
						k[i] = math.NaN()
					}
					v := append([]float64(nil), k...)
					normed := func(x []float32, w []float32) []float64 {
						sum, out := 0.0, widened(x)
						for _, v := range out {
							sum += v * v
						}
						for i := range out {
							if norm {
								out[i] *= float64(w[i]) / math.Sqrt(sum/float64(len(x))+eps)
							}
						}
						return out
					}
					// head returns head h of a row of n heads.
					head := func(row []float32, h, n int, w []float32) []float64 {
						if allHeads {
							return normed(row[:n*c.head], w)[h*c.head:][:c.head]
						}
						return normed(row[h*c.head:][:c.head], w)
					}
					var q []float64
					for i, p := range positions {
						row := x[i*stride:]
						for h := range heads {
							q = append(q, c.rotate(head(row, h, heads, qNorm), p, factors)...)
						}
						for h := range kvHeads {
							if s := slots[i]; s >= 0 && s < block*blocks {
								at := ((int(s)/block*kvHeads+h)*block + int(s)%block) * c.head
								copy(k[at:], c.rotate(head(row[heads*c.head:], h, kvHeads, kNorm), p, factors))
								value := row[(heads+kvHeads+h)*c.head:][:c.head]
								if copy(v[at:], widened(value)); values {
									copy(v[at:], normed(value, slices.Repeat([]float32{1}, c.head)))
								}
							}
						}
					}
					unwritten := make([]byte, cache.Bytes(int64(len(k))))
					for i := range unwritten {
						unwritten[i] = 0xff
					}
					d := dispatch{
						kernel: "rope_qkv_write_f32_" + cache.String(),
						args:   map[string][]byte{"qkv": floatBytes(x[:len(x)-pad]), "positions": intBytes(positions...), "slots": intBytes(slots...), "factors": floatBytes(factors), "q_out": nan(len(q)), "k_cache": unwritten, "v_cache": unwritten},
						params: kernels.RopeWriteParams{Tokens: uint32(len(positions)), Heads: heads, KvHeads: kvHeads,
							Head: uint32(c.head), Rotated: uint32(c.rotated), QStride: uint32(stride), KStride: uint32(stride), VStride: uint32(stride), Block: block,
							First: first, Log2Theta: log2Theta, FreqScale: freqScale, Magnitude: magnitude, Eps: eps},
						constants: c.writeConstants(), writes: []string{"q_out", "k_cache", "v_cache"},
						grid: [3]uint32{ceil(heads+2*kvHeads, kernels.RopeWriteRows(c.head)), uint32(len(positions)), 1}, group: [3]uint32{32, 1, 1},
					}
					if norm {
						d.kernel = "head_norm_rope_kv_write_f32_" + cache.String()
						d.args["q_norm"], d.args["k_norm"] = floatBytes(qNorm), floatBytes(kNorm)
						if allHeads {
							d.constants["fc_all_heads"] = 1
						}
						if values {
							d.constants["fc_norm_values"] = 1
						}
					}
					if c.separate {
						d.args["k"], d.args["v"] = floatBytes(x[heads*c.head:len(x)-pad]), floatBytes(x[(heads+kvHeads)*c.head:len(x)-pad])
					}
					if c.counted {
						delete(d.args, "positions")
						delete(d.args, "slots")
					}
					// A half near 10 has an error of 4e-3; elements of its Q8_0 block have 0.04.
					bound := map[dtype.Type]float64{dtype.F32: 3e-6, dtype.F16: 8e-3, dtype.Q8_0: 0.06}[cache]
					compare := func(out [][]byte, bound float64, what string) {
						near(t, q, floats(out[0]), 1, min(bound, 1e-3), what)
						near(t, k, elements(out[1], cache), 1, bound, what)
						near(t, v, elements(out[2], cache), 1, bound, what)
					}
					for _, l := range Libraries() {
						out := d.run(t, l)
						compare(out, bound, l.ISA())
						near(t, q, floats(out[0]), 1, 4e-6, l.ISA())
					}
					// The Metal kernel does not check slots.
					if !c.counted {
						d.args["slots"] = intBytes(5, -1, 0, 11, -1, -1)
					}
					compare(d.emulate(t), max(bound, 3e-4), "emulated")
				})
			}
		}
	}
}

// TestLatentWrite writes rows of a latent cache, some of them nowhere, and makes queries whole.
func TestLatentWrite(t *testing.T) {
	const heads, latent, qHead, from, block, blocks, eps, freqScale, magnitude = 3, 64, 80, 5, 4, 3, 1e-5, 0.5, 1.25
	for _, c := range []ropeCase{{rotated: 64, head: 64, interleaved: true}, {rotated: 32, head: 32, factors: true}, {rotated: 32, head: 32, table: true}} {
		for _, cache := range []dtype.Type{dtype.F16, dtype.F32, dtype.Q8_0} {
			rng := newRand(fmt.Sprint("latent", c, cache))
			row := latent + c.rotated
			stride := row + from + 3
			positions, slots := []int32{3, 0, 4000, 77, 5, 6}, []int32{5, -1, 0, 11, 12, math.MaxInt32}
			absorbed, q, all := normals(rng, len(positions)*heads*latent), normals(rng, len(positions)*heads*qHead), normals(rng, len(positions)*stride)
			gain, factors := normals(rng, latent), make([]float32, c.rotated/2)
			for i := range factors {
				factors[i] = 1 + float32(i)/8
				if c.table {
					factors[i] = float32(math.Pow(1e4, 2*float64(i)/float64(c.rotated)))
				}
			}
			var want []float64
			rows := slices.Repeat([]float64{math.NaN()}, block*blocks*row)
			for i, p := range positions {
				for h := i * heads; h < (i+1)*heads; h++ {
					want = append(want, widened(absorbed[h*latent:][:latent])...)
					want = append(want, c.rotate(widened(q[(h+1)*qHead-c.rotated:][:c.rotated]), p, factors)...)
				}
				if s := slots[i]; s >= 0 && s < block*blocks {
					x := widened(all[i*stride+from:][:row])
					sum := 0.0
					for _, v := range x[:latent] {
						sum += v * v
					}
					for d := range latent {
						x[d] *= float64(gain[d]) / math.Sqrt(sum/latent+eps)
					}
					copy(rows[int(s)*row:], append(x[:latent:latent], c.rotate(x[latent:], p, factors)...))
				}
			}
			unwritten := make([]byte, cache.Bytes(int64(len(rows))))
			for i := range unwritten {
				unwritten[i] = 0xff
			}
			d := dispatch{
				kernel: "latent_write_f32_" + cache.String(),
				args: map[string][]byte{"absorbed": floatBytes(absorbed), "q": floatBytes(q), "all": floatBytes(all), "gain": floatBytes(gain), "positions": intBytes(positions...), "slots": intBytes(slots...),
					"factors": floatBytes(factors), "q_out": nan(len(want)), "k_cache": unwritten},
				params: kernels.LatentWriteParams{Tokens: uint32(len(positions)), Heads: heads, KvHeads: 1, Head: uint32(row), Block: block, QHead: qHead, AllStride: uint32(stride), AllFrom: from,
					Rotated: uint32(c.rotated), Rows: heads + 1, Log2Theta: log2Theta, FreqScale: freqScale, Magnitude: magnitude, Eps: eps},
				constants: c.constants(), writes: []string{"q_out", "k_cache"}, grid: [3]uint32{heads + 1, uint32(len(positions)), 1}, group: [3]uint32{32, 1, 1},
			}
			bound := map[dtype.Type]float64{dtype.F32: 3e-6, dtype.F16: 8e-3, dtype.Q8_0: 0.06}[cache]
			compare := func(out [][]byte, least float64, what string) {
				near(t, want, floats(out[0]), 1, max(4e-6, least), what)
				near(t, rows, elements(out[1], cache), 1, max(bound, least), what)
			}
			for _, l := range Libraries() {
				compare(d.run(t, l), 0, l.ISA())
			}
			d.args["slots"] = intBytes(5, -1, 0, 11, -1, -1) // the Metal kernel does not check slots
			compare(d.emulate(t), 3e-4, "emulated")
		}
	}
}

func TestIndices(t *testing.T) {
	const width = 5
	d := dispatch{
		kernel: "indices", args: map[string][]byte{"positions": intBytes(7, -1, 0), "out": nan(3 * width)},
		params: kernels.IndicesParams{Rows: 3, Width: width}, writes: []string{"out"}, grid: [3]uint32{1, 3, 1}, group: [3]uint32{256, 1, 1},
	}
	want := intBytes(0, 1, 2, 3, 4, -1, -1, -1, -1, -1, 0, 1, 2, 3, 4)
	for _, l := range Libraries() {
		require.Equal(t, want, d.run(t, l)[0], l.ISA())
	}
	require.Equal(t, want, d.emulate(t)[0])
}

func TestCacheWriteAndRead(t *testing.T) {
	for _, cache := range []dtype.Type{dtype.F16, dtype.F32, dtype.Q8_0} {
		const kvHeads, block, blocks = 3, 4, 5
		head := map[dtype.Type]int{dtype.F16: 40, dtype.F32: 40, dtype.Q8_0: 64}[cache]
		rng := newRand("cache")
		slots := []int32{0, 19, -1, 7, 20, 6, math.MinInt32, math.MaxInt32}
		kStride, vStride := kvHeads*head+4, kvHeads*head+1
		k, v := normals(rng, len(slots)*kStride), normals(rng, len(slots)*vStride)
		empty := make([]byte, cache.Bytes(int64(kvHeads*head*block*blocks)))
		d := dispatch{
			kernel: "cache_write_f32_" + cache.String(),
			args:   map[string][]byte{"k": floatBytes(k), "v": floatBytes(v), "slots": intBytes(slots...), "k_cache": empty, "v_cache": empty},
			params: kernels.CacheWriteParams{Tokens: uint32(len(slots)), KvHeads: kvHeads, Head: uint32(head), Block: block, KStride: uint32(kStride), VStride: uint32(vStride)},
			writes: []string{"k_cache", "v_cache"}, grid: [3]uint32{ceil(kvHeads*head, 64), uint32(len(slots)), 1}, group: [3]uint32{64, 1, 1},
		}
		want := [][]float32{make([]float32, kvHeads*head*block*blocks), make([]float32, kvHeads*head*block*blocks)}
		for i, s := range slots {
			if s < 0 || s >= block*blocks {
				continue
			}
			for h := range kvHeads {
				at := ((int(s)/block*kvHeads+h)*block + int(s)%block) * head
				copy(want[0][at:][:head], k[i*kStride+h*head:])
				copy(want[1][at:][:head], v[i*vStride+h*head:])
			}
		}
		round := func(v []float32) []float32 {
			b := make([]byte, cache.Bytes(int64(len(v))))
			require.NoError(t, quant.Quantize(b, v, cache))
			return elements(b, cache)
		}
		for _, l := range Libraries() {
			for i, out := range d.run(t, l) {
				require.Equal(t, round(want[i]), elements(out, cache), l.ISA())
			}
		}

		read := dispatch{
			kernel: "cache_read_" + cache.String(),
			args:   map[string][]byte{"cache": d.run(t, Libraries()[0])[0], "context_lens": intBytes(7, 2), "block_table": intBytes(4, 1, 0, 2), "out": nan(2 * 10 * kvHeads * head)},
			params: kernels.CacheReadParams{Seqs: 2, Context: 10, KvHeads: kvHeads, Head: uint32(head), Block: block, TableStride: 2},
			writes: []string{"out"}, grid: [3]uint32{ceil(kvHeads*head, 64), 20, 1}, group: [3]uint32{64, 1, 1},
		}
		var rows []float64
		for seq, length := range []int{7, 2} {
			for j := range 10 {
				row := make([]float64, kvHeads*head)
				if j < length {
					s := []int{4, 1, 0, 2}[seq*2+j/block]*block + j%block
					for h := range kvHeads {
						copy(row[h*head:], widened(round(want[0])[((s/block*kvHeads+h)*block+s%block)*head:][:head]))
					}
				}
				rows = append(rows, row...)
			}
		}
		check(t, read, rows, 0)
		read.args["block_table"] = intBytes(-1, 5, math.MaxInt32, math.MinInt32)
		each(t, func(t *testing.T, l Library) { near(t, make([]float64, len(rows)), floats(read.run(t, l)[0]), 1, 0) })
	}
}

// TestCopyBlocks compares bytes; pairs with a block outside the cache are skipped.
func TestCopyBlocks(t *testing.T) {
	for _, cache := range []dtype.Type{dtype.F16, dtype.F32, dtype.Q8_0} {
		const width, stride, blocks = 96, 128, 6
		rng, bytes := newRand("copy"), func(elements int) int { return int(cache.Bytes(int64(elements))) }
		pairs, outside := []int32{2, 0, 2, 5, 4, 3}, []int32{-1, 1, 1, 6, math.MinInt32, 1, 0, math.MaxInt32}
		d := dispatch{
			kernel: "copy_blocks_" + cache.String(), args: map[string][]byte{},
			params: kernels.CopyBlocksParams{Pairs: uint32(len(pairs)+len(outside)) / 2, Width: width, BlockStride: stride},
			writes: []string{"k_cache", "v_cache"}, grid: [3]uint32{1, uint32(len(pairs)+len(outside)) / 2, 1}, group: [3]uint32{256, 1, 1},
		}
		var want [2][]byte
		for i, name := range []string{"k", "v"} {
			from := make([]byte, bytes(stride*blocks))
			for j := range from {
				from[j] = byte(rng.Uint32())
			}
			want[i] = make([]byte, len(from))
			for j := 0; j < len(pairs); j += 2 {
				copy(want[i][bytes(stride)*int(pairs[j+1]):], from[bytes(stride)*int(pairs[j]):][:bytes(width)])
			}
			d.args[name+"_from"], d.args[name+"_cache"] = from, make([]byte, len(from))
		}
		d.args["pairs"] = intBytes(append(outside, pairs...)...)
		for _, l := range Libraries() {
			require.Equal(t, want[:], d.run(t, l), "%s %s", cache, l.ISA())
		}
		d.args["pairs"], d.params, d.grid[1] = intBytes(pairs...), kernels.CopyBlocksParams{Pairs: uint32(len(pairs)) / 2, Width: width, BlockStride: stride}, uint32(len(pairs))/2
		require.Equal(t, want[:], d.emulate(t), "%s emulated", cache)
	}
}

func TestRepeatKV(t *testing.T) {
	const tokens, kvHeads, head, repeats = 3, 2, 5, 4
	rng := newRand("repeat")
	repeated := func() (x []float32, want []float64) {
		x = normals(rng, tokens*kvHeads*head)
		for i := range tokens * kvHeads {
			for range repeats {
				want = append(want, widened(x[i*head:][:head])...)
			}
		}
		return x, want
	}
	k, wantK := repeated()
	v, wantV := repeated()
	params := kernels.RepeatParams{Tokens: tokens, KvHeads: kvHeads, Head: head, Repeats: repeats}
	check(t, dispatch{
		kernel: "repeat_kv_f32",
		args:   map[string][]byte{"x": floatBytes(k), "out": nan(len(wantK))},
		params: params,
		grid:   [3]uint32{1, 1, 1}, group: [3]uint32{256, 1, 1}, writes: []string{"out"},
	}, wantK, 0)
	pair := dispatch{
		kernel: "repeat_kv_pair_f32",
		args:   map[string][]byte{"k": floatBytes(k), "v": floatBytes(v), "k_out": nan(len(wantK)), "v_out": nan(len(wantV))},
		params: params,
		grid:   [3]uint32{1, 1, 1}, group: [3]uint32{256, 1, 1}, writes: []string{"k_out", "v_out"},
	}
	results := [][][]byte{pair.emulate(t)}
	for _, l := range Libraries() {
		results = append(results, pair.run(t, l))
	}
	for _, out := range results {
		near(t, wantK, floats(out[0]), 1, 0)
		near(t, wantV, floats(out[1]), 1, 0)
	}
}

func TestTranspose(t *testing.T) {
	x := normals(newRand("transpose"), 3*4*70)
	var want []float64
	for a := range 4 {
		for b := range 3 {
			for c := range 70 {
				want = append(want, float64(x[b*4*70+a*70+c]))
			}
		}
	}
	check(t, dispatch{
		kernel: "transpose_f32",
		args:   map[string][]byte{"x": floatBytes(x), "out": nan(len(want))},
		params: kernels.TransposeParams{Size: [3]uint32{4, 3, 70}, Stride: [3]uint32{70, 280, 1}},
		grid:   [3]uint32{2, 3, 4}, group: [3]uint32{64, 1, 1}, writes: []string{"out"},
	}, want, 0)
}

func TestConcat(t *testing.T) {
	const rows, first, second, third = 3, 40, 17, 5
	rng := newRand("concat")
	a, b, c := normals(rng, rows*first), normals(rng, rows*second), normals(rng, rows*third)
	var want []float64
	for r := range rows {
		want = append(want, widened(slices.Concat(a[r*first:][:first], b[r*second:][:second], c[r*third:][:third]))...)
	}
	check(t, dispatch{
		kernel:    "concat_f32",
		args:      map[string][]byte{"x0": floatBytes(a), "x1": floatBytes(b), "x2": floatBytes(c), "out": nan(len(want))},
		params:    kernels.ConcatParams{Rows: rows, Width: first + second + third, N0: first, N1: second, N2: third},
		constants: map[string]uint32{"fc_parts": 3},
		grid:      [3]uint32{1, rows, 1}, group: [3]uint32{256, 1, 1}, writes: []string{"out"},
	}, want, 0)
}

func TestMatmul(t *testing.T) {
	for _, transposed := range []bool{false, true} {
		for _, s := range [][4]int{{1, 1, 1, 1}, {2, 7, 33, 40}, {3, 70, 65, 300}, {1, 0, 5, 5}} {
			batch, m, n, k := s[0], s[1], s[2], s[3]
			rng := newRand("matmul")
			a, b := normals(rng, batch*m*k), normals(rng, batch*n*k)
			var want []float64
			for i := range batch {
				for r := range m {
					for c := range n {
						sum := 0.0
						for j := range k {
							at := j*n + c
							if transposed {
								at = c*k + j
							}
							sum += float64(a[(i*m+r)*k+j]) * float64(b[i*n*k+at])
						}
						want = append(want, sum)
					}
				}
			}
			flag := map[bool]uint32{true: 1}[transposed]
			d := dispatch{
				kernel:    "matmul_f32",
				args:      map[string][]byte{"a": floatBytes(a), "b": floatBytes(b), "out": nan(len(want))},
				params:    kernels.MatmulParams{Batch: uint32(batch), M: uint32(m), N: uint32(n), K: uint32(k)},
				constants: map[string]uint32{"fc_transposed": flag}, writes: []string{"out"},
				grid: [3]uint32{ceil(n, 32), ceil(m, 32), uint32(batch)}, group: [3]uint32{128, 1, 1},
			}
			if m == 0 {
				d.run(t, Libraries()[0])
				continue
			}
			check(t, d, want, 1e-4)
		}
	}
}

func TestMask(t *testing.T) {
	for _, window := range []int{0, 2, 50} {
		testMask(t, window, nil)
		testMask(t, window, []float32{0.5, -0.125})
	}
}

func testMask(t *testing.T, window int, slopes []float32) {
	const heads, context = 2, 9
	positions, starts, lengths := []int32{3, 4, 0, 8}, []int32{0, 2, 4}, []int32{5, 4}
	tokens := len(positions)
	scores := normals(newRand("mask"), heads*tokens*2*context)
	want := widened(scores)
	for i := range want {
		seq, j, token := i/context%2, i%context, i/(2*context)%tokens
		mine := int(starts[seq]) <= token && token < int(starts[seq+1])
		old := window != 0 && int(positions[token])-j >= window
		if !mine || old || j > int(positions[token]) || j >= int(lengths[seq]) {
			want[i] = math.Inf(-1)
		} else if slopes != nil {
			want[i] += float64(slopes[i/(2*context)/tokens]) * float64(j-int(positions[token]))
		}
	}
	d := dispatch{
		kernel: "mask_f32",
		args:   map[string][]byte{"scores": floatBytes(scores), "positions": intBytes(positions...), "cu_seqlens": intBytes(starts...), "context_lens": intBytes(lengths...), "out": nan(len(want))},
		params: kernels.MaskParams{Heads: heads, Tokens: uint32(tokens), Seqs: 2, Context: context, Window: uint32(window)},
		grid:   [3]uint32{1, uint32(tokens), heads}, group: [3]uint32{64, 1, 1}, writes: []string{"out"},
	}
	if slopes != nil {
		d.args["slopes"], d.constants = floatBytes(slopes), map[string]uint32{"fc_slopes": 1}
	}
	check(t, d, want, 1e-6)
}

// Every half survives a write to the cache and a read.
func TestHalves(t *testing.T) {
	const n = 1 << 16
	raw := make([]byte, 2*n)
	for i := range n {
		binary.LittleEndian.PutUint16(raw[2*i:], uint16(i))
	}
	want := elements(raw, dtype.F16)
	each(t, func(t *testing.T, l Library) {
		d := dispatch{
			kernel: "cache_read_f16",
			args:   map[string][]byte{"cache": raw, "context_lens": intBytes(n / 256), "block_table": intBytes(0), "out": nan(n)},
			params: kernels.CacheReadParams{Seqs: 1, Context: n / 256, KvHeads: 1, Head: 256, Block: n / 256, TableStride: 1},
			writes: []string{"out"},
		}
		got := d.run(t, l)[0]
		near(t, widened(want), floats(got), 1, 0)
		write := dispatch{
			kernel: "cache_write_f32_f16",
			args:   map[string][]byte{"k": got, "v": got, "slots": intBytes(0), "k_cache": make([]byte, 2*n), "v_cache": make([]byte, 2*n)},
			params: kernels.CacheWriteParams{Tokens: 1, KvHeads: 1, Head: n, Block: 1},
			writes: []string{"k_cache", "v_cache"},
		}
		for i, x := range elements(write.run(t, l)[0], dtype.F16) {
			if x == x {
				require.Equal(t, want[i], x)
			} else {
				require.True(t, want[i] != want[i])
			}
		}
	})
}

func TestChoose(t *testing.T) {
	all := Libraries()
	require.Equal(t, "portable", all[len(all)-1].ISA())
	for _, l := range all {
		got, err := choose(all, l.ISA())
		require.NoError(t, err)
		require.Equal(t, l, got)
	}
	got, err := choose(all, "")
	require.NoError(t, err)
	require.Equal(t, all[0], got)
	_, err = choose(all, "sse9")
	require.ErrorContains(t, err, "SMELT_ISA=sse9")
	for _, name := range Names() {
		_, ok := kernels.Lookup(name)
		require.True(t, ok, "%s is not in the kernel table", name)
	}
}

// TestRouterEmulated compares router and weighted_sum with the emulation.
func TestRouterEmulated(t *testing.T) {
	inf, nan32 := float32(math.Inf(1)), float32(math.NaN())
	for i, p := range []kernels.RouterParams{{Rows: 5, Experts: 1, Chosen: 1}, {Rows: 6, Experts: 17, Chosen: 4}, {Rows: 4, Experts: 130, Chosen: 8},
		{Rows: 4, Experts: 256, Chosen: 8, Groups: 8, UsedGroups: 4}, {Rows: 3, Experts: 32, Chosen: 5, Groups: 32, UsedGroups: 7}, {Rows: 3, Experts: 1024, Chosen: 32}} {
		for score := uint32(1); score <= 4; score++ {
			rows, width, k := int(p.Rows), int(p.Experts), int(p.Chosen)
			p.Scale, p.Floor, p.Stride, p.Sharpness = 1.5, 1e-4, p.Experts+score%2, 1/float32(score)
			rng, stride := newRand(fmt.Sprint(p, score)), int(p.Stride)
			x := normals(rng, (rows-1)*stride+width)
			for i := range width {
				x[i] = float32(rng.IntN(3)) // equals
			}
			x[stride+width/2], x[len(x)-1] = -inf, nan32
			route := dispatch{kernel: "router_f32", writes: []string{"weights", "experts"}, grid: [3]uint32{p.Rows, 1, 1}, group: [3]uint32{32, 1, 1}, params: p,
				args: map[string][]byte{"logits": floatBytes(x), "weights": nan(rows * k), "experts": nan(rows * k),
					"bias": floatBytes(normals(rng, width)), "gains": floatBytes(normals(rng, width))},
				constants: map[string]uint32{"fc_score": score, "fc_bias": uint32(i % 2), "fc_gains": uint32(i / 2 % 2), "fc_normalised": score % 2}}
			want := route.emulate(t)
			sum := dispatch{kernel: "weighted_sum_f32", writes: []string{"out"}, grid: [3]uint32{ceil(width, 256), p.Rows, 1}, group: [3]uint32{256, 1, 1},
				args:   map[string][]byte{"x": floatBytes(normals(rng, rows*k*width)), "weights": floatBytes(normals(rng, rows*k)), "out": nan(rows * width)},
				params: kernels.WeightedSumParams{Rows: p.Rows, Width: uint32(width), Each: uint32(k)}}
			wantSum := widened(floats(sum.emulate(t)[0]))
			for _, l := range Libraries() {
				got := route.run(t, l)
				require.Equal(t, want[1], got[1], "%s: %+v", l.ISA(), p)
				for i, v := range floats(want[0]) {
					have := floats(got[0])[i]
					require.True(t, v != v && have != have || math.Abs(float64(v-have)) <= 1e-5*max(1, math.Abs(float64(v))), "%s: %+v: %v, %v", l.ISA(), p, v, have)
				}
				near(t, wantSum, floats(sum.run(t, l)[0]), math.Sqrt(float64(k)), 1e-5, p)
			}
		}
	}
}
