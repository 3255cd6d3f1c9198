package native

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/samber/lo"
	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/kernels"
	"github.com/smelt-ml/smelt/models/quant"
)

var weightTypes = dtype.Weights()

// linear is a case of linear_vec and linear_mat.
type linear struct {
	tokens, k            int
	rows                 []int
	types                []dtype.Type
	residual, pair, norm bool
	padding              int // elements between rows of x and of out
	activation           ir.Activation
	bias                 bool
	rowGate              ir.Activation
	columnGate           bool
	layer, gain, shift   bool // the norm is LayerNorm, with a gain and a shift
}

// epilogue returns a name of the case's epilogue.
func (c linear) epilogue() string {
	return fmt.Sprintf("%v/bias=%t/gate=%v,%t/layer=%t,%t,%t", c.activation, c.bias, c.rowGate, c.columnGate, c.layer, c.gain, c.shift)
}

func (c linear) String() string {
	return fmt.Sprintf("%dx%d→%v%v/residual=%t/pair=%t/norm=%t/padding=%d/%s", c.tokens, c.k, c.rows, c.types, c.residual, c.pair, c.norm, c.padding, c.epilogue())
}

// built is the dispatch of a case and its expected results.
type built struct {
	dispatch
	// expect returns results in float64 arithmetic: exact, from the weights' values; rounded,
	// with activations rounded as for quantized weights; and short, with half weights and their
	// activations rounded to 16-bit integers, too.
	expect func() (exact, rounded, short []float64)
	scale  float64 // of a sum: its terms, added in quadrature
}

// roundActivations returns x as the kernels round it for quantized weights.
func roundActivations(x []float32) []float64 {
	out := make([]float64, len(x))
	for b := 0; b < len(x); b += 32 {
		most := float32(0)
		for _, v := range x[b : b+32] {
			most = max(most, float32(math.Abs(float64(v))))
		}
		if most == 0 {
			continue
		}
		inverse := 127 / most
		for i := b; i < b+32; i++ {
			out[i] = math.RoundToEven(float64(x[i]*inverse)) * float64(most/127)
		}
	}
	return out
}

func isHalf(w dtype.Type) bool { return w == dtype.F16 || w == dtype.BF16 }

// shortBound bounds the error of 16-bit integers relative to a sum's size: the root mean square is
// 1.3e-4, the maximum several times as much, and more after a gate.
const shortBound = 2e-3

// shortActivations returns x as the kernels of [Library.HalfIntegers] round it.
func shortActivations(x []float32) []float64 {
	out := make([]float64, len(x))
	for b := 0; b < len(x); b += 64 {
		block := x[b:min(b+64, len(x))]
		var sums [16]float32 // in the order in which a vector's lanes are added up
		most := float32(0)
		for i, v := range block {
			size := float32(math.Abs(float64(v)))
			sums[i%16] += size
			most = max(most, size)
		}
		for n := 8; n > 0; n /= 2 {
			for i := range n {
				sums[i] += sums[i+n]
			}
		}
		scale := max(sums[0]/131000, most/32767)
		if scale == 0 {
			continue
		}
		inverse := 1 / scale
		for i, v := range block {
			out[b+i] = math.RoundToEven(float64(v*inverse)) * float64(scale)
		}
	}
	return out
}

// shortWeights returns a row of weights as these kernels round it.
func shortWeights(w []float32) []float64 {
	out := make([]float64, len(w))
	for b := 0; b < len(w); b += 64 {
		block, most := w[b:min(b+64, len(w))], 0.0
		for _, v := range block {
			most = max(most, math.Abs(float64(v)))
		}
		_, exponent := math.Frexp(most)
		step := math.Ldexp(1, exponent-14)
		for i, v := range block {
			out[b+i] = math.RoundToEven(float64(v)/step) * step
		}
	}
	return out
}

const eps = 1e-6

func (c linear) build(t testing.TB, vec bool) built {
	rng := newRand(c.String())
	c.norm = c.norm && vec // linear_mat has none
	p := kernels.LinearParams{Tokens: uint32(c.tokens), K: uint32(c.k), XStride: uint32(c.k + c.padding), Eps: eps}
	args := map[string][]byte{}
	constants := map[string]uint32{}
	values, biases := make([][]float32, 4), make([][]float32, 4)
	n := 0
	for i, rows := range c.rows {
		args[fmt.Sprintf("w%d", i)], values[i] = stored(t, rng, rows*c.k, c.types[i])
		constants[fmt.Sprintf("fc_type%d", i)] = uint32(c.types[i])
		*[]*uint32{&p.N0, &p.N1, &p.N2, &p.N3}[i] = uint32(rows)
		n += rows
		if biases[i] = normals(rng, rows); c.bias {
			args[fmt.Sprintf("bias%d", i)], constants["fc_bias"] = floatBytes(biases[i]), 1
		}
	}
	if c.pair {
		n = c.rows[0]
		constants["fc_gated"] = 1
	}
	if c.activation != ir.NoActivation {
		constants["fc_activation"] = uint32(c.activation)
	}
	p.OutStride = uint32(n + c.padding)
	x := normals(rng, c.tokens*(c.k+c.padding))
	residual := normals(rng, c.tokens*(n+c.padding))
	weight, shift := normals(rng, c.k), normals(rng, c.k)
	args["x"], args["out"] = floatBytes(x), nan(c.tokens*(n+c.padding))
	if c.residual {
		args["residual"] = floatBytes(residual)
		constants["fc_residual"] = 1
	}
	const gateFrom = 3
	gateStride := 5
	if c.columnGate {
		gateStride += n
	}
	gates := normals(rng, c.tokens*gateStride)
	if c.rowGate != ir.NoActivation {
		args["gate"], constants["fc_row_gate"] = floatBytes(gates[:max(0, len(gates)-gateStride+gateFrom+1)]), uint32(c.rowGate)
		p.GateStride, p.GateFrom = uint32(gateStride), gateFrom
	}
	if c.columnGate {
		args["gate"], constants["fc_column_gate"] = floatBytes(gates[:max(0, len(gates)-gateStride+gateFrom+n)]), 1
		p.GateStride, p.GateFrom = uint32(gateStride), gateFrom
	}
	switch {
	case c.norm && c.layer:
		constants["fc_norm"] = uint32(ir.LayerNorm)
		if c.gain {
			args["gain"], constants["fc_gain"] = floatBytes(weight), 1
		}
		if c.shift {
			args["shift"], constants["fc_shift"] = floatBytes(shift), 1
		}
	case c.norm:
		args["gain"] = floatBytes(weight)
		constants["fc_norm"] = uint32(ir.RMSNorm)
	}
	b := built{}
	for _, v := range values {
		sum := 0.0
		for _, w := range v {
			sum += float64(w) * float64(w)
		}
		b.scale = max(b.scale, math.Sqrt(sum/float64(max(len(v), 1))*float64(c.k)))
	}
	b.dispatch = dispatch{kernel: "linear_mat_f32_f32", args: args, params: p, constants: constants, writes: []string{"out"},
		grid: [3]uint32{ceil(c.tokens, 32), ceil(n, 32), 1}, group: [3]uint32{128, 1, 1}}
	if vec {
		b.kernel, b.grid, b.group = "linear_vec_f32_f32", [3]uint32{ceil(n, 8), uint32(c.tokens), 1}, [3]uint32{64, 1, 1}
	}
	end := c.tokens * (n + c.padding)
	if c.tokens > 0 && c.padding > 0 { // the last row ends with its last element
		end -= c.padding
		args["out"] = args["out"][:4*end]
		if c.residual {
			args["residual"] = args["residual"][:4*end]
		}
		args["x"] = args["x"][:len(args["x"])-4*c.padding]
	}
	b.expect = func() (exact, rounded, short []float64) {
		for token := range c.tokens {
			row := append([]float32(nil), x[token*(c.k+c.padding):][:c.k]...)
			if c.norm {
				mean, sum := 0.0, 0.0
				for _, v := range row {
					if c.layer {
						mean += float64(v) / float64(c.k)
					}
				}
				for _, v := range row {
					sum += (float64(v) - mean) * (float64(v) - mean)
				}
				for i := range row {
					v := (float64(row[i]) - mean) / math.Sqrt(sum/float64(c.k)+eps)
					if !c.layer || c.gain {
						v *= float64(weight[i])
					}
					if c.layer && c.shift {
						v += float64(shift[i])
					}
					row[i] = float32(v)
				}
			}
			plain := widened(row)
			for _, results := range []*[]float64{&exact, &rounded, &short} {
				var sums []float64
				for i, rows := range c.rows {
					x, weights := plain, widened
					switch {
					case results != &exact && c.types[i].IsQuantized():
						x = roundActivations(row)
					case results == &short && isHalf(c.types[i]):
						x, weights = shortActivations(row), shortWeights
					}
					for r := range rows {
						sum := 0.0
						w := weights(values[i][r*c.k:][:c.k])
						for j, v := range x {
							sum += v * w[j]
						}
						if c.bias {
							sum += float64(biases[i][r])
						}
						sums = append(sums, sum)
					}
				}
				for i := range n {
					if c.pair {
						sums[i] = gate(c.activation, sums[i], sums[n+i])
					} else {
						sums[i] = activation(c.activation, sums[i])
					}
				}
				sums = sums[:n]
				for i := range sums {
					if c.rowGate != ir.NoActivation {
						sums[i] *= activation(c.rowGate, float64(gates[token*gateStride+gateFrom]))
					}
					if c.columnGate {
						sums[i] *= float64(gates[token*gateStride+gateFrom+i])
					}
					if c.residual {
						sums[i] += float64(residual[token*(n+c.padding)+i])
					}
				}
				for range c.padding {
					sums = append(sums, math.NaN())
				}
				*results = append(*results, sums...)
			}
		}
		return exact[:end], rounded[:end], short[:end]
	}
	return b
}

func linearCases() []linear {
	var cases []linear
	for _, w := range weightTypes {
		k := []int{32, 288, 1056}
		switch w.BlockElems() {
		case 1:
			k = []int{1, 20, 172, 515}
		case 64:
			k = []int{64, 320, 1088}
		case 256:
			k = []int{256, 1280}
		}
		for _, k := range k {
			for _, shape := range [][2]int{{1, 33}, {2, 16}, {3, 7}, {5, 1}, {9, 40}, {37, 19}} {
				cases = append(cases, linear{tokens: shape[0], k: k, rows: []int{shape[1]}, types: []dtype.Type{w}})
			}
		}
	}
	mixed := []dtype.Type{dtype.Q4_0, dtype.Q6_K, dtype.F16, dtype.Q4_K} // each with a correction of its own, or none
	for _, tokens := range []int{1, 6, 33, 101} {
		for _, norm := range []bool{false, true} {
			cases = append(cases,
				linear{tokens: tokens, k: 256, rows: []int{24, 17, 5, 9}, types: mixed, norm: norm, padding: 3},
				linear{tokens: tokens, k: 256, rows: []int{40, 8, 8}, types: []dtype.Type{dtype.Q4_K, dtype.Q4_K, dtype.Q6_K}, residual: true, norm: norm},
				linear{tokens: tokens, k: 320, rows: []int{35, 35}, types: []dtype.Type{dtype.Q8_0, dtype.Q4_1}, pair: true, activation: ir.SiLU, norm: norm},
				linear{tokens: tokens, k: 256, rows: []int{40, 9, 33}, types: []dtype.Type{dtype.MXFP4, dtype.Q4_1, dtype.IQ4_XS}, residual: true, norm: norm},
				linear{tokens: tokens, k: 320, rows: []int{37, 37}, types: []dtype.Type{dtype.MLX4, dtype.MLX8}, pair: true, activation: ir.SiLU, residual: true, norm: norm},
				linear{tokens: tokens, k: 68, rows: []int{18, 18}, types: []dtype.Type{dtype.BF16, dtype.F32}, pair: true, activation: ir.SiLU, residual: true, norm: norm, padding: 1},
				linear{tokens: tokens, k: 64, rows: []int{16, 3}, types: []dtype.Type{dtype.F16, dtype.Q5_0}, residual: true, norm: norm},
				linear{tokens: tokens, k: 256, rows: []int{49}, types: mixed[1:2], rowGate: ir.Sigmoid, residual: true, norm: norm, padding: 3},
				linear{tokens: tokens, k: 172, rows: []int{37}, types: mixed[2:3], rowGate: ir.Softplus, norm: norm},
				linear{tokens: tokens, k: 256, rows: []int{49, 37}, types: mixed[1:3], activation: ir.GELUTanh, columnGate: true, norm: norm, padding: 3},
				linear{tokens: tokens, k: 172, rows: []int{37}, types: []dtype.Type{dtype.F32}, bias: true, columnGate: true, residual: true, norm: norm})
		}
	}
	// Every epilogue with float weights, quantized weights and both.
	for i, a := range ir.Activations() {
		for _, tokens := range []int{1, 5} {
			more := linear{tokens: tokens, k: 256, activation: a, bias: i%2 == 0 || tokens == 5, residual: i%2 == 1}
			gated, beside := more, more
			gated.pair, gated.rows, gated.types = true, []int{35, 35}, []dtype.Type{dtype.F16, dtype.F16}
			mixed := gated
			mixed.rows, mixed.types = []int{7, 7}, []dtype.Type{dtype.Q4_K, dtype.Q8_0}
			cases = append(cases, gated, mixed)
			if !a.OnlyGated() {
				beside.rows, beside.types, beside.padding = []int{40, 33, 5, 18}, []dtype.Type{dtype.Q8_0, dtype.F32, dtype.Q6_K, dtype.Q4_K}, 3
				cases = append(cases, beside)
			}
		}
	}
	for _, gain := range []bool{false, true} {
		for _, shift := range []bool{false, true} {
			cases = append(cases,
				linear{tokens: 3, k: 172, rows: []int{40}, types: []dtype.Type{dtype.F16}, norm: true, layer: true, gain: gain, shift: shift, bias: true},
				linear{tokens: 1, k: 288, rows: []int{24, 17}, types: []dtype.Type{dtype.Q8_0, dtype.Q4_0}, norm: true, layer: true, gain: gain, shift: shift, padding: 2})
		}
	}
	// Prompts of several blocks of tokens and rows, with k of several pieces and a remainder.
	for _, w := range []dtype.Type{dtype.F32, dtype.F16, dtype.BF16} {
		cases = append(cases, linear{tokens: 29, k: 2091, rows: []int{150}, types: []dtype.Type{w}, residual: true},
			linear{tokens: 29, k: 1091, rows: []int{150, 150}, types: []dtype.Type{w, w}, pair: true, activation: ir.SiLU})
	}
	// The same with several groups of quantized rows, which share a panel's activations.
	for _, w := range weightTypes {
		if w.IsQuantized() {
			cases = append(cases, linear{tokens: 7, k: 1280, rows: []int{150}, types: []dtype.Type{w}, residual: true})
		}
	}
	return append(cases, linear{tokens: 520, k: 1088, rows: []int{17}, types: []dtype.Type{dtype.Q8_0}},
		linear{tokens: 521, k: 272, rows: []int{37}, types: []dtype.Type{dtype.F16}, residual: true},
		linear{tokens: 530, k: 288, rows: []int{70, 70}, types: []dtype.Type{dtype.Q4_0, dtype.Q4_0}, pair: true, activation: ir.SiLU},
		linear{tokens: 0, k: 64, rows: []int{17}, types: []dtype.Type{dtype.Q8_0}},
		linear{tokens: 4, k: 4096, rows: []int{16, 16}, types: []dtype.Type{dtype.Q4_0, dtype.F16}})
}

// scale returns the size of a result: that of products of two or more sums, with norm weights up
// to 3.
func (c linear) scale(b built) float64 {
	scale, sums := b.scale, b.scale
	if c.bias {
		sums += 4
	}
	if c.pair || c.norm {
		scale *= sums
	}
	if c.activation == ir.ReLU2 {
		scale *= sums
	}
	return scale
}

func TestLinear(t *testing.T) {
	for _, c := range linearCases() {
		for _, vec := range []bool{true, false} {
			t.Run(fmt.Sprintf("vec=%t/%v", vec, c), func(t *testing.T) {
				b := c.build(t, vec)
				scale := c.scale(b)
				exact, rounded, short := b.expect()
				var fused []byte
				for _, l := range Libraries() {
					out, want := b.run(t, l)[0], rounded
					if l.HalfIntegers() {
						want = short
					}
					// The norm's rounding can move an activation to the next integer.
					bound := 4e-6
					if c.norm {
						bound = 1e-3
					}
					near(t, want, floats(out), scale, bound, l.ISA())
					allQuantized, farthest := true, shortBound
					for _, w := range c.types {
						if allQuantized = allQuantized && w.IsQuantized(); w.IsQuantized() {
							farthest = 0.04
						}
					}
					near(t, exact, floats(out), scale, farthest, l.ISA())
					if l.ISA() == "portable" || !allQuantized || c.norm {
						continue
					}
					if fused == nil {
						fused = out
					}
					require.Equal(t, fused, out, "%s differs from %s", l.ISA(), Libraries()[0].ISA())
				}
			})
		}
	}
}

// A token's result does not depend on the batch.
func TestLinearTokensAlone(t *testing.T) {
	each(t, func(t *testing.T, l Library) {
		cases := []linear{{tokens: 29, k: 2091, rows: []int{150}, types: []dtype.Type{dtype.F16}}}
		for _, w := range weightTypes {
			cases = append(cases, linear{tokens: 13, k: 256 + 256, rows: []int{21}, types: []dtype.Type{w}})
		}
		for _, c := range cases {
			n := c.rows[0]
			all := c.build(t, false)
			want := all.run(t, l)[0]
			for _, name := range []string{"linear_vec_f32_f32", "linear_mat_f32_f32"} {
				for token := range c.tokens {
					one := all.clone()
					one.kernel = name
					one.args["x"] = one.args["x"][4*token*c.k:][:4*c.k]
					one.args["out"] = one.args["out"][:4*n]
					one.params = kernels.LinearParams{Tokens: 1, K: uint32(c.k), N0: uint32(n), XStride: uint32(c.k), OutStride: uint32(n)}
					require.Equal(t, want[4*n*token:][:4*n], one.run(t, l)[0], "%v token %d", c, token)
				}
			}
		}
	})
}

func TestLinearEmulated(t *testing.T) {
	for _, w := range weightTypes {
		k := 288
		switch w.BlockElems() {
		case 1:
			k = 172
		case 64:
			k = 320
		case 256:
			k = 512
		}
		for _, vec := range []bool{true, false} {
			tokens := map[bool]int{true: 2, false: 33}[vec]
			b := linear{tokens: tokens, k: k, rows: []int{24, 24}, types: []dtype.Type{w, w}, residual: true}.build(t, vec)
			// The emulated kernel keeps float activations.
			l, bound := Libraries()[0], 1e-5
			if w.IsQuantized() {
				bound = 0.04
			} else if isHalf(w) && l.HalfIntegers() {
				bound = shortBound
			}
			want := widened(floats(b.emulate(t)[0]))
			near(t, want, floats(b.run(t, l)[0]), b.scale, bound, w)
		}
	}
}

// TestEpiloguesEmulated compares biases, activations, gates and norms with the emulation.
func TestEpiloguesEmulated(t *testing.T) {
	for _, a := range ir.Activations() {
		for _, vec := range []bool{true, false} {
			tokens := map[bool]int{true: 2, false: 33}[vec]
			c := linear{tokens: tokens, k: 172, rows: []int{24, 24}, types: []dtype.Type{dtype.F16, dtype.F32}, activation: a, bias: true, residual: true}
			c.norm, c.layer, c.gain, c.shift = vec, a != ir.GELU, a != ir.ReLU2, a != ir.SiLU
			for _, c.pair = range []bool{true, false} {
				if a.OnlyGated() && !c.pair {
					continue
				}
				b := c.build(t, vec)
				l, bound := Libraries()[0], 1e-5
				if l.HalfIntegers() {
					bound = shortBound
				}
				want := widened(floats(b.emulate(t)[0]))
				near(t, want, floats(b.run(t, l)[0]), c.scale(b), bound, b.kernel, c)
			}
		}
	}
}

func TestLinearNonFinite(t *testing.T) {
	inf := float32(math.Inf(1))
	each(t, func(t *testing.T, l Library) {
		for _, w := range []dtype.Type{dtype.F16, dtype.Q8_0, dtype.Q4_0, dtype.Q4_K, dtype.Q2_K, dtype.Q3_K} {
			for _, bad := range []float32{inf, -inf, float32(math.NaN())} {
				b := linear{tokens: 2, k: 256, rows: []int{16}, types: []dtype.Type{w}}.build(t, true)
				x := floats(b.args["x"])
				x[40] = bad
				b.args["x"] = floatBytes(x)
				for i, v := range floats(b.run(t, l)[0]) {
					finite := !math.IsNaN(float64(v)) && !math.IsInf(float64(v), 0)
					require.Equal(t, i >= 16, finite, "%v with %v: element %d is %v", w, bad, i, v)
				}
			}
		}
	})
}

// Products of extreme quants and the largest activations are whole numbers: every set must
// compute them exactly, for few tokens and for many.
func TestBytesAtTheEnds(t *testing.T) {
	each(t, func(t *testing.T, l Library) {
		rng := rand.New(rand.NewPCG(3, 5))
		ends := []func(i int) int{
			func(int) int { return -128 }, func(int) int { return 127 },
			func(i int) int { return 127 - 255*(i%2) }, func(i int) int { return 127 - 255*(i/2%2) },
			func(int) int { return rng.IntN(256) - 128 },
		}
		for _, tokens := range []int{1, 4, 7, 15, 16, 33} {
			c := linear{tokens: tokens, k: 288, rows: []int{40}, types: []dtype.Type{dtype.Q8_0}}
			b := c.build(t, false)
			weights, x := make([]int, 40*c.k), make([]float32, tokens*c.k)
			for i := range weights {
				weights[i] = ends[i/c.k%len(ends)](i % c.k)
				block := b.args["w0"][i/32*34:]
				binary.LittleEndian.PutUint16(block, 0x3c00) // one
				block[2+i%32] = byte(weights[i])
			}
			for i := range x {
				x[i] = max(-127, float32(ends[i/c.k%len(ends)](i)))
				if i%32 == 31 {
					x[i] = 127 // so that an activation's integer is its value
				}
			}
			b.args["x"] = floatBytes(x)
			want := make([]float32, tokens*40)
			for i := range want {
				for j := range c.k {
					want[i] += x[i/40*c.k+j] * float32(weights[i%40*c.k+j])
				}
			}
			require.Equal(t, want, floats(b.run(t, l)[0]), "%d tokens", tokens)
			moved := b.clone()
			if moved.args["w0"] = l.Interleave(uint32(dtype.Q8_0), 40, c.k, b.args["w0"]); moved.args["w0"] != nil {
				moved.interleaved = []string{"w0"}
				require.Equal(t, want, floats(moved.run(t, l)[0]), "%d tokens, interleaved", tokens)
			}
		}
	})
}

// Products with the largest and smallest codes and whole scales are whole numbers: every set must
// compute them exactly, for few tokens and for many.
func TestWholeScales(t *testing.T) {
	each(t, func(t *testing.T, l Library) {
		rng := newRand("ends")
		ends := []func(i int) float32{
			func(int) float32 { return -127 }, func(int) float32 { return 127 },
			func(i int) float32 { return 127 - 254*float32(i%2) }, func(i int) float32 { return 127 - 254*float32(i/16%2) },
			func(int) float32 { return float32(rng.IntN(255) - 127) },
		}
		for _, elem := range []dtype.Type{dtype.Q2_K, dtype.Q3_K} {
			for _, tokens := range []int{1, 2, 4, 7, 33} {
				c := linear{tokens: tokens, k: 512, rows: []int{40}, types: []dtype.Type{elem}}
				b := c.build(t, false)
				size := elem.BlockBytes()
				for i := range b.args["w0"] {
					switch row := i / size / 2 % 4; {
					case row < 2:
						b.args["w0"][i] = byte(-row) // no bits, or all
					case row == 2 && i%size/4%2 == 0:
						b.args["w0"][i] = byte(-rng.IntN(2))
					}
				}
				for i := 0; i < len(b.args["w0"]); i += size {
					for _, at := range elem.Row().Halves {
						binary.LittleEndian.PutUint16(b.args["w0"][i+at:], 0x3c00) // one
					}
				}
				weights, x := elements(b.args["w0"], elem), make([]float32, tokens*c.k)
				for i := range x {
					if x[i] = ends[i/c.k%len(ends)](i); i%32 == 31 {
						x[i] = 127 // so that an activation's integer is its value
					}
				}
				b.args["x"] = floatBytes(x)
				want := make([]float32, tokens*40)
				for i := range want {
					sum, _ := exactProduct(weights[i%40*c.k:][:c.k], x[i/40*c.k:][:c.k])
					want[i] = float32(sum)
				}
				require.Equal(t, want, floats(b.run(t, l)[0]), "%v, %d tokens", elem, tokens)
				moved := b.clone()
				if moved.args["w0"] = l.Interleave(uint32(elem), 40, c.k, b.args["w0"]); moved.args["w0"] != nil {
					moved.interleaved = []string{"w0"}
					require.Equal(t, want, floats(moved.run(t, l)[0]), "%v, %d tokens, interleaved", elem, tokens)
				}
			}
		}
	})
}

// exactProduct returns the product of a row of weights and x in float64 arithmetic, and the sum of
// its terms' magnitudes.
func exactProduct(weights, x []float32) (sum, size float64) {
	for i, v := range weights {
		term := float64(v) * float64(x[i])
		sum, size = sum+term, size+math.Abs(term)
	}
	return sum, size
}

// Half weights that are not finite change the results of their rows only; the smallest and the
// largest halves are exact.
func TestHalfWeightsAtTheEnds(t *testing.T) {
	each(t, func(t *testing.T, l Library) {
		for w, bits := range map[dtype.Type]struct{ inf, largest, smallest, one uint16 }{
			dtype.F16: {0x7c00, 0x7bff, 0x0001, 0x3c00}, dtype.BF16: {0x7f80, 0x7f7f, 0x0100, 0x3f80},
		} {
			for _, tokens := range []int{1, 2, 4, 9} {
				c := linear{tokens: tokens, k: 192, rows: []int{32}, types: []dtype.Type{w}}
				b := c.build(t, false)
				put := func(row, column int, bits uint16) {
					binary.LittleEndian.PutUint16(b.args["w0"][2*(row*c.k+column):], bits)
				}
				for row, v := range map[int]uint16{0: bits.inf, 1: bits.inf | 1<<15, 2: bits.inf + 1, 3: bits.inf | 0x7f} {
					put(row, 70+row, v)
				}
				put(5, 100, bits.largest|1<<15)
				for row, v := range map[int]uint16{6: bits.smallest, 7: 0} {
					for column := range c.k {
						put(row, column, v)
					}
					put(row, 100, v|1<<15)
				}
				put(8, 3, bits.smallest)
				put(8, 4, bits.one)
				x, values := floats(b.args["x"]), elements(b.args["w0"], w)
				for i := range x {
					x[i] = float32(1+i%3) / 4
				}
				b.args["x"] = floatBytes(x)
				rows := b.run(t, l)
				for token := range tokens {
					for row := range 32 {
						got := float64(floats(rows[0])[token*32+row])
						finite := !math.IsNaN(got) && !math.IsInf(got, 0)
						require.Equal(t, row >= 4, finite, "%v, %d tokens: row %d is %v", w, tokens, row, got)
						if !finite {
							continue
						}
						sum, size := exactProduct(values[row*c.k:][:c.k], x[token*c.k:])
						require.InDelta(t, sum, got, shortBound*size, "%v, %d tokens: row %d", w, tokens, row)
					}
				}
				moved := b.clone()
				if moved.args["w0"] = l.Interleave(uint32(w), 32, c.k, b.args["w0"]); moved.args["w0"] != nil {
					moved.interleaved = []string{"w0"}
					again := floats(moved.run(t, l)[0])
					for i, v := range floats(rows[0]) {
						require.True(t, v == again[i] || i%32 < 4, "%v, %d tokens: element %d interleaved", w, tokens, i)
					}
				}
			}
		}
	})
}

// With half weights and activations of any magnitude, and some that are not finite, a token's
// result is the same alone and in a batch.
func TestHalfActivationsAtTheEnds(t *testing.T) {
	inf := float32(math.Inf(1))
	sizes := []float32{1, 1e-25, 1e20, 0, 1e-19, inf, -inf, float32(math.NaN()), 1e-12}
	each(t, func(t *testing.T, l Library) {
		for _, c := range []struct {
			w     dtype.Type
			size  float32 // of weights
			sizes []float32
		}{
			{dtype.F16, 1, sizes}, {dtype.F16, 0x1p-18, sizes}, {dtype.BF16, 1, sizes}, {dtype.BF16, 0x1p-30, sizes}, {dtype.BF16, 0x1p40, sizes[:2]},
			{dtype.F16, 1, []float32{1}}, {dtype.F16, 1, []float32{inf, 1}}, {dtype.F16, 0x1p-18, []float32{1e-25}},
		} {
			together := linear{tokens: 9, k: 576, rows: []int{40}, types: []dtype.Type{c.w}}
			b := together.build(t, false)
			values := elements(b.args["w0"], c.w)
			for i := range values {
				values[i] *= c.size
			}
			require.NoError(t, quant.Quantize(b.args["w0"], values, c.w))
			values = elements(b.args["w0"], c.w)
			x := floats(b.args["x"])
			for i := range x {
				if by := c.sizes[i/together.k%len(c.sizes)]; i%together.k == 130 || by-by == 0 {
					x[i] *= by
				}
			}
			b.args["x"] = floatBytes(x)
			got := floats(b.run(t, l)[0])
			alone := together
			alone.tokens = 1
			one := alone.build(t, false)
			one.args["w0"] = b.args["w0"]
			for token := range together.tokens {
				row := x[token*together.k:][:together.k]
				one.args["x"] = floatBytes(row)
				for r, want := range floats(one.run(t, l)[0]) {
					of := got[token*40+r]
					if by := c.sizes[token%len(c.sizes)]; by-by != 0 {
						require.True(t, of-of != 0, "%+v, token %d, row %d is %v", c, token, r, of)
						continue
					}
					require.Equal(t, want, of, "%+v, token %d, row %d", c, token, r)
					sum, most := exactProduct(values[r*together.k:][:together.k], row)
					require.InDelta(t, sum, of, shortBound*most, "%+v, token %d, row %d", c, token, r)
				}
			}
		}
	})
}

func TestLinearUnsupported(t *testing.T) {
	good := linear{tokens: 2, k: 64, rows: []int{16}, types: []dtype.Type{dtype.Q8_0}}.build(t, true)
	params := kernels.LinearParams{Tokens: 2, K: 64, N0: 16, XStride: 64, OutStride: 16}
	for name, change := range map[string]func(d *dispatch){
		"unknown type":     func(d *dispatch) { d.constants["fc_type0"] = 99 },
		"no type":          func(d *dispatch) { delete(d.constants, "fc_type0") },
		"short weight":     func(d *dispatch) { d.args["w0"] = d.args["w0"][1:] },
		"short x":          func(d *dispatch) { d.args["x"] = d.args["x"][4:] },
		"short out":        func(d *dispatch) { d.args["out"] = d.args["out"][4:] },
		"part of a block":  func(d *dispatch) { p := params; p.K = 48; d.params = p },
		"unbound residual": func(d *dispatch) { d.constants["fc_residual"] = 1 },
		"unbound norm":     func(d *dispatch) { d.constants["fc_norm"] = uint32(ir.RMSNorm) },
		"unbound gain":     func(d *dispatch) { d.constants["fc_norm"], d.constants["fc_gain"] = uint32(ir.LayerNorm), 1 },
		"unbound shift":    func(d *dispatch) { d.constants["fc_norm"], d.constants["fc_shift"] = uint32(ir.LayerNorm), 1 },
		"unknown norm":     func(d *dispatch) { d.constants["fc_norm"] = uint32(ir.LayerNorm) + 1 },
		"unbound bias":     func(d *dispatch) { d.constants["fc_bias"] = 1 },
		"short bias":       func(d *dispatch) { d.constants["fc_bias"], d.args["bias0"] = 1, make([]byte, 4*15) },
		"no gate":          func(d *dispatch) { d.constants["fc_activation"] = uint32(ir.ClampedSwiGLU) },
		"no parameters":    func(d *dispatch) { d.params = nil },
		"unequal pair":     func(d *dispatch) { d.constants["fc_gated"] = 1 },
	} {
		bad := good.clone()
		require.NoError(t, Run(bad.launch(), Options{}), name)
		change(&bad)
		require.ErrorIs(t, Run(bad.launch(), Options{}), ErrUnsupported, name)
	}
	require.ErrorIs(t, Run(Launch{Kernel: "no_such"}, Options{}), ErrUnsupported)
}

// Interleaved weights give the same bits as rows, in linear layers and as embeddings.
func TestInterleaved(t *testing.T) {
	each(t, func(t *testing.T, l Library) {
		for n, w := range weightTypes {
			for i, tokens := range []int{1, 2, 4, 5, 101, 29, 1, 3, 4, 101, 29} {
				if (n+i)%3 != 0 && tokens > 1 && !testfiles.Full("kernels") {
					continue
				}
				// 9 and 5 groups of 32 rows, 18 and 10 of 16: single and several streams, and a remainder;
				// a last group that overlaps the one before it, and one that does not.
				c := linear{tokens: tokens, k: 768, rows: []int{291, 160}, types: []dtype.Type{w, w}}
				if tokens == 29 {
					c.k = 2304 // pieces and panels
				}
				if c.pair = i < 6; c.pair {
					c.rows[1], c.activation = c.rows[0], ir.SiLU
				}
				rows := c.build(t, tokens < 4)
				want := rows.run(t, l)
				for _, which := range [][]int{{1}, {0, 1}} {
					moved := rows.clone()
					for _, i := range which {
						name := fmt.Sprintf("w%d", i)
						moved.args[name] = l.Interleave(uint32(w), c.rows[i], c.k, rows.args[name])
						moved.interleaved = append(moved.interleaved, name)
					}
					if moved.args["w1"] != nil {
						require.Equal(t, want, moved.run(t, l), "%v, %d tokens, weights %v", w, tokens, which)
					}
				}
			}
			const width, vocab = 512, 99
			weight, _ := stored(t, newRand("embedding"), width*vocab, w)
			moved := l.Interleave(uint32(w), vocab, width, weight)
			if moved == nil {
				continue
			}
			ids := []int32{0, 31, 32, 77, 95, 96, 98}
			d := dispatch{kernel: "embed", constants: map[string]uint32{"fc_type": uint32(w)}, writes: []string{"out"},
				args:   map[string][]byte{"tokens": intBytes(ids...), "table": weight, "out": nan(len(ids) * width)},
				params: kernels.EmbedParams{Tokens: uint32(len(ids)), Vocab: vocab, Width: width}}
			want := d.run(t, l)
			d.args["table"], d.interleaved = moved, []string{"table"}
			require.Equal(t, want, d.run(t, l), "%v: embeddings", w)
		}
	})
}

// hints has values of each hint: small, usual, and beyond the range of every kernel.
var hints = [][kernels.NumHints]uint32{
	{1, 1, 1, 1}, {2, 4096, 256, 2}, {3, 8192, 700, 3}, {math.MaxUint32, math.MaxUint32, math.MaxUint32, math.MaxUint32},
}

// Hints do not change a bit of a result.
func TestHints(t *testing.T) {
	each(t, func(t *testing.T, l Library) {
		for _, w := range []dtype.Type{dtype.F16, dtype.Q8_0, dtype.Q4_0, dtype.Q5_0, dtype.Q4_K, dtype.Q6_K} {
			for _, tokens := range []int{1, 2, 29} {
				c := linear{tokens: tokens, k: 2304, rows: []int{288}, types: []dtype.Type{w}}
				rows := c.build(t, tokens < 4)
				want := rows.run(t, l)
				moved := rows.clone()
				if b := l.Interleave(uint32(w), c.rows[0], c.k, rows.args["w0"]); b != nil {
					moved.args["w0"], moved.interleaved = b, []string{"w0"}
				}
				for _, h := range hints {
					moved.hints = h
					require.Equal(t, want, moved.run(t, l), "%v, %d tokens, hints %v", w, tokens, h)
				}
			}
		}
	})
}

// TestReaders runs units one by one, and checks that each reads the rows that readers returns.
func TestReaders(t *testing.T) {
	each(t, func(t *testing.T, l Library) {
		for _, c := range []linear{
			{tokens: 1, k: 64, rows: []int{96}, types: []dtype.Type{dtype.F32}},
			{tokens: 3, k: 64, rows: []int{291, 33, 160}, types: []dtype.Type{dtype.Q4_0, dtype.F16, dtype.Q8_0}},
			{tokens: 40, k: 256, rows: []int{64, 7, 65}, types: []dtype.Type{dtype.Q4_K, dtype.Q4_K, dtype.Q6_K}},
			{tokens: 2, k: 64, rows: []int{100, 100}, types: []dtype.Type{dtype.Q8_0, dtype.Q4_0}, pair: true, activation: ir.SiLU},
		} {
			for _, vec := range []bool{true, false} {
				d := c.build(t, vec)
				out := bytes.Clone(d.args["out"])
				d.args["out"] = out
				call, err := l.prepare(d.launch())
				require.NoError(t, err)
				call.run(Options{})
				column := 0
				for i, rows := range c.rows {
					what := fmt.Sprintf("%v: weight %d", c, i)
					first, count := call.readers(index(d.kernel, fmt.Sprintf("w%d", i)))
					next, each := 0, 0
					for unit := range call.units(1) {
						copy(out, nan(len(out)/4))
						call.runUnits(1, unit, unit+1)
						written := lo.FilterMap(floats(out)[column:column+rows], func(v float32, row int) (int, bool) { return row, v == v })
						if unit < first || unit >= first+count {
							require.Empty(t, written, what)
							continue
						}
						if unit == first {
							each = len(written)
						}
						require.Equal(t, lo.RangeFrom(next, min(each, rows-next)), written, what)
						next += len(written)
					}
					require.Equal(t, rows, next, what)
					if !c.pair {
						column += rows
					}
				}
				_, count := call.readers(index(d.kernel, "x"))
				require.Zero(t, count, "no matrix")
				call.free()
			}
		}
	})
}

func TestInterleaveRefuses(t *testing.T) {
	each(t, func(t *testing.T, l Library) {
		require.Nil(t, l.Interleave(uint32(dtype.Q4_0), 64, 48, make([]byte, dtype.Q4_0.Bytes(64*64))), "part of a block")
		require.Nil(t, l.Interleave(uint32(dtype.F16), 64, 46, make([]byte, dtype.F16.Bytes(64*46))), "part of a vector")
		require.Nil(t, l.Interleave(uint32(dtype.Q4_0), 7, 64, make([]byte, dtype.Q4_0.Bytes(64*7))), "part of a group")
		require.Nil(t, l.Interleave(99, 64, 64, nil), "unknown type")
	})
}
