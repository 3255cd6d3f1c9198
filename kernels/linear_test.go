package kernels_test

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/ref"
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/ir/dtype/half"
	"github.com/smelt-ml/smelt/kernels"
	"github.com/smelt-ml/smelt/models/quant"
)

// weightTypes are the types that the kernels decode.
var weightTypes = dtype.Weights()

// weight is a stored matrix and the values it stands for.
type weight struct {
	dtype  dtype.Type
	bytes  tensor
	values []float64 // [rows, width]
	rows   int
}

// newWeight returns random rows. Blocks are random bits but for their scales, so that
// every code and every packed field occurs.
func newWeight(t *testing.T, rng *rand.Rand, elem dtype.Type, rows, width int) weight {
	t.Helper()
	n := rows * width
	require.Zero(t, width%elem.BlockElems())
	raw := make([]byte, elem.Bytes(int64(n)))
	floats := make([]float32, n)
	if elem.IsFloat() {
		for i := range floats {
			floats[i] = float32(rng.NormFloat64())
		}
		require.NoError(t, quant.Quantize(raw, floats, elem))
	} else {
		for i := range raw {
			raw[i] = byte(rng.Uint32())
		}
		for block := 0; block < len(raw); block += elem.BlockBytes() {
			if elem.Row().Halves == nil {
				raw[block] = byte(117 + rng.IntN(6)) // an exponent
			}
			for _, at := range elem.Row().Halves {
				scale := half.F32ToF16(float32(0.001 + 0.01*rng.Float64()))
				binary.LittleEndian.PutUint16(raw[block+at:], scale)
			}
		}
	}
	require.NoError(t, quant.Dequantize(floats, raw, elem))
	w := weight{elem, tensor{kernels.Bytes, raw, len(raw)}, make([]float64, n), rows}
	for i, v := range floats {
		w.values[i] = float64(v)
	}
	return w
}

// lines is the weight with its scales apart from its codes.
func (w weight) lines() weight {
	from := w.bytes.bytes
	w.bytes.bytes = make([]byte, len(from))
	kernels.PutLines(uint32(w.dtype), w.bytes.bytes, from)
	return w
}

// lined are the types that kernels read in lines.
func lined() (types []dtype.Type) {
	for _, w := range weightTypes {
		if kernels.HasLines(uint32(w)) {
			types = append(types, w)
		}
	}
	return types
}

// widths returns row lengths that the type allows: the first few in the plain run.
func widths(elem dtype.Type) []int {
	switch elem.BlockElems() {
	case 1:
		return few([]int{172}, []int{1, 8, 20, 172, 256, 515, 1024})
	case 32:
		return few([]int{288}, []int{32, 64, 288, 1024, 1056})
	case 64:
		return few([]int{320}, []int{64, 320, 1024, 1088})
	}
	return few([]int{512}, []int{256, 512, 1280})
}

func TestEmbed(t *testing.T) {
	const vocab = 7
	for _, w := range weightTypes {
		for _, width := range append(widths(w), few(nil, []int{2048})...) {
			t.Run(fmt.Sprintf("%s/%d", w, width), func(t *testing.T) {
				table := newWeight(t, newRand(t.Name()), w, vocab, width)
				ids := []int32{3, 0, 6, 3, -1, vocab, 5}
				look := func(table weight, typ uint32) tensor {
					return launch{
						kernel:    "embed",
						constants: map[string]uint32{"fc_type": typ},
						buffers:   map[string]tensor{"tokens": ints(ids), "table": table.bytes, "out": result(kernels.Float, len(ids)*width)},
						params:    kernels.EmbedParams{Tokens: uint32(len(ids)), Width: uint32(width), Vocab: vocab},
						grid:      [3]int{ceil(width, 1024), len(ids), 1},
						group:     32,
					}.run(t)["out"]
				}
				got := look(table, uint32(w))
				want := make([]float64, len(ids)*width)
				for i, id := range ids {
					if id >= 0 && id < vocab {
						copy(want[i*width:], table.values[int(id)*width:(int(id)+1)*width])
					}
				}
				compare(t, want, got.values(), width, 1e-6)
				if kernels.HasLines(uint32(w)) {
					agree(t, got, look(table.lines(), uint32(w)+kernels.Lines))
				}
			})
		}
	}
}

// linearCase is one product.
type linearCase struct {
	tokens, k  int
	rows       []int // of each weight
	types      []dtype.Type
	residual   bool
	bias       bool
	act        ir.Activation
	gated      bool
	norm       ir.NormKind
	gain       bool // of a LayerNorm
	shift      bool
	rowGate    ir.Activation
	columnGate bool
	lines      bool // weights of types that have them are in lines
	xStride    int  // 0: dense
	outStride  int
	shape      linearShape
}

// linearShape is what of a product's launch its result does not depend on; zeros are
// the defaults.
type linearShape struct {
	rows, simdgroups, together int // linear_vec: of a simdgroup, of a threadgroup; tokens of a pass
	tile                       int // linear_mat: tokens
}

// vecShapes and matShapes are those that lower chooses from.
var (
	vecShapes = []linearShape{{rows: 4, simdgroups: 2}, {rows: 2, simdgroups: 1}, {rows: 4, simdgroups: 8}, {together: 2}, {together: 4, simdgroups: 4}, {together: 8}}
	matShapes = []linearShape{{tile: 32}, {tile: 64}}
)

// launch sets the constants, grid and group.
func (s linearShape) launch(l *launch, vec bool, types []kernels.Element, tokens, columns int, gated bool) {
	if !vec {
		tile := 32
		if s.tile != 0 {
			l.constants["fc_tile"] = uint32(s.tile)
			if tileOf(types) != kernels.Float {
				tile = s.tile
			}
		}
		width := 64
		if gated {
			width = 32
		}
		l.grid, l.group = [3]int{ceil(tokens, tile), ceil(columns, width), 1}, 128
		return
	}
	rows, together := 4, 1
	if s.rows != 0 {
		rows, l.constants["fc_rows"] = s.rows, uint32(s.rows)
	}
	if s.together != 0 {
		together, l.constants["fc_tokens"] = s.together, uint32(s.together)
	}
	if together > 1 {
		rows = 2
	}
	simdgroups := max(s.simdgroups, 1)
	l.grid, l.group = [3]int{ceil(columns, rows*simdgroups), ceil(tokens, together), 1}, 32*simdgroups
}

func (c linearCase) String() string {
	s := fmt.Sprintf("%dx%d→%v%v", c.tokens, c.k, c.rows, c.types)
	for _, o := range []struct {
		name string
		on   bool
	}{{"residual", c.residual}, {"gated", c.gated}, {"strided", c.xStride > 0}, {"columnGate", c.columnGate}, {"bias", c.bias}, {"gain", c.gain}, {"shift", c.shift}} {
		if o.on {
			s += "+" + o.name
		}
	}
	if c.act != ir.NoActivation {
		s += "+" + c.act.String()
	}
	if c.norm != ir.NoNorm {
		s += "+" + c.norm.String()
	}
	if c.rowGate != ir.NoActivation {
		s += "·" + c.rowGate.String()
	}
	return s
}

// tileOf is the type that linear_mat multiplies in, given the types of an instance.
func tileOf(types []kernels.Element) kernels.Element { return types[len(types)-2] }

func outOf(types []kernels.Element) kernels.Element { return types[len(types)-1] }

func linearCases(vec bool) []linearCase {
	var out []linearCase
	tokens := few([]int{1, 3}, []int{1, 2, 5})
	rows := few([]int{13}, []int{1, 7, 8, 33, 64})
	if !vec {
		tokens = few([]int{20, 33}, []int{1, 5, 20, 32, 33, 70})
		rows = few([]int{33}, []int{1, 31, 32, 65})
	}
	for _, w := range weightTypes {
		for _, k := range widths(w) {
			for _, n := range rows {
				for _, t := range tokens {
					out = append(out, linearCase{tokens: t, k: k, rows: []int{n}, types: []dtype.Type{w}})
				}
			}
		}
	}
	// Weights side by side, of types that differ, with borders inside a simdgroup's
	// columns; the epilogues; rows apart.
	mixed := []dtype.Type{dtype.Q4_0, dtype.F16, dtype.Q8_0, dtype.Q5_1}
	k := 288
	for _, rows := range few([][]int{{6, 3, 2, 5}, {8, 8}}, [][]int{{6, 3, 2, 5}, {33, 1, 30, 70}, {6, 3, 2}, {1, 1, 1}, {8, 8}, {48, 16, 16}, {33, 5, 64}, {2, 40}}) {
		out = append(out,
			linearCase{tokens: 2, k: k, rows: rows, types: mixed[:len(rows)]},
			linearCase{tokens: 2, k: k, rows: rows, types: mixed[:len(rows)], residual: true, xStride: 300, outStride: 131},
			linearCase{tokens: 3, k: k, rows: rows[:1], types: mixed[:1], residual: len(rows) > 2, rowGate: []ir.Activation{ir.Sigmoid, ir.Softplus}[len(rows)%2]},
			linearCase{tokens: 3, k: k, rows: rows, types: mixed[:len(rows)], act: ir.GELU, columnGate: true, residual: len(rows) > 2, outStride: 131},
		)
	}
	for _, n := range few([]int{10}, []int{1, 8, 10, 37, 64}) {
		pair := linearCase{tokens: 3, k: k, rows: []int{n, n}, types: []dtype.Type{dtype.Q8_0, dtype.Q4_0}, act: ir.SiLU, gated: true}
		out = append(out, pair)
		pair.residual, pair.types = true, []dtype.Type{dtype.F32, dtype.BF16}
		out = append(out, pair)
	}
	if vec {
		base := len(out)
		for _, i := range []int{0, 3, base - 1, base - 4, base - 5} {
			c := out[i]
			c.norm, c.gain = ir.RMSNorm, true
			out = append(out, c)
		}
	}
	// Biases of one weight, of a gate and of weights side by side; every activation; every
	// form of LayerNorm.
	for i, act := range ir.Activations() {
		n := []int{10, 33}[i%2]
		one := linearCase{tokens: 3, k: k, rows: []int{n}, types: mixed[i%3 : i%3+1], act: act, bias: i%2 == 0, residual: i%3 == 0}
		if !act.OnlyGated() {
			out = append(out, one)
		}
		one.rows, one.types, one.gated, one.bias = []int{n, n}, []dtype.Type{dtype.Q4_0, dtype.F16}, true, i%3 > 0
		out = append(out, one)
	}
	for i := range 4 {
		c := linearCase{tokens: 2 + i, k: k, rows: []int{6, 3, 2, 5}[:1+i], types: mixed[:1+i], bias: true}
		out = append(out, c)
		if vec {
			c.norm, c.gain, c.shift = ir.LayerNorm, i > 0, i > 1
			out = append(out, c)
		}
	}
	return out
}

func TestLinearVec(t *testing.T) { testLinear(t, "linear_vec") }

func TestLinearMat(t *testing.T) { testLinear(t, "linear_mat") }

func testLinear(t *testing.T, family string) {
	vec := family == "linear_vec"
	instances(t, family, func(t *testing.T, name string, types []kernels.Element) {
		for _, c := range linearCases(vec) {
			t.Run(c.String(), func(t *testing.T) { c.check(t, name, types, vec) })
		}
	})
}

// TestNormLinearMat runs forms of linear_mat with the norm of their input.
func TestNormLinearMat(t *testing.T) {
	instances(t, "norm_linear_mat", func(t *testing.T, name string, types []kernels.Element) {
		for i, c := range linearCases(false) {
			if !everything() && i%3 != 0 {
				continue
			}
			c.norm, c.gain = ir.RMSNorm, true
			t.Run(c.String(), func(t *testing.T) { c.check(t, name, types, false) })
		}
	})
}

// TestNormLinearMatBits: what norm_linear_mat makes of rows of x, taken by an index or as they
// lie, has the bits of linear_mat of what rms_norm leaves of them, in tiles of either size.
func TestNormLinearMatBits(t *testing.T) {
	instances(t, "norm_linear_mat", func(t *testing.T, name string, types []kernels.Element) {
		suffixes := strings.Split(strings.TrimPrefix(name, "norm_linear_mat_"), "_")
		normName, matName := "rms_norm_"+suffixes[0]+"_"+suffixes[1], "linear_mat_"+suffixes[1]+"_"+suffixes[2]
		for _, tokens := range few([]int{67}, []int{1, 5, 32, 64, 67, 130}) {
			for _, k := range few([]int{20, 1284}, []int{4, 20, 130, 172, 1024, 1028, 2052, 4100}) {
				for _, tile := range []int{32, 64} {
					t.Run(fmt.Sprintf("%dx%d by %d", tokens, k, tile), func(t *testing.T) {
						const columns = 37
						rng := newRand(t.Name())
						w := newWeight(t, rng, dtype.F16, 2*columns, k)
						shape := linearShape{tile: tile}
						x, gain := random(rng, types[0], tokens*k), random(rng, kernels.Float, k)
						index := make([]int32, tokens)
						for i := range index {
							index[i] = int32(i * i % tokens)
						}
						taken := filled(types[0], tokens*k, func(i int) float64 { return x.at(int(index[i/k])*k + i%k) })
						product := func(kernel string, types []kernels.Element, x tensor) launch {
							l := launch{
								kernel:    kernel,
								constants: map[string]uint32{"fc_type0": uint32(dtype.F16)},
								buffers:   map[string]tensor{"x": x, "w0": w.bytes, "out": result(outOf(types), tokens*2*columns)},
								params:    kernels.LinearParams{Tokens: uint32(tokens), K: uint32(k), N0: 2 * columns, XStride: uint32(k), OutStride: 2 * columns, Eps: linearEps},
							}
							shape.launch(&l, false, types, tokens, 2*columns, false)
							return l
						}
						for _, from := range []tensor{x, taken} {
							normed := launch{
								kernel:  normName,
								buffers: map[string]tensor{"x": from, "weight": gain, "out": result(types[1], tokens*k)},
								params:  kernels.NormParams{Rows: uint32(tokens), Width: uint32(k), XStride: uint32(k), Eps: linearEps, Groups: 1},
								grid:    [3]int{tokens, 1, 1}, group: min(256, ceil(ceil(k, 4), 32)*32),
							}.run(t)["out"]
							want := product(matName, types[1:], normed).run(t)["out"]
							fused := product(name, types, from)
							fused.buffers["gain"] = gain
							agree(t, want, fused.run(t)["out"])
							if &from.bytes[0] == &taken.bytes[0] {
								fused.buffers["x"], fused.buffers["rows"], fused.constants["fc_gather"] = x, ints(index), 1
								agree(t, want, fused.run(t)["out"], "gathered")
								plain := product(matName, types[1:], normed)
								rows := filled(types[1], tokens*k, func(i int) float64 { return normed.at((tokens-1-i/k)*k + i%k) })
								back := make([]int32, tokens)
								for i := range back {
									back[i] = int32(tokens - 1 - i)
								}
								plain.buffers["x"], plain.buffers["rows"], plain.constants["fc_gather"] = rows, ints(back), 1
								agree(t, want, plain.run(t)["out"], "linear_mat gathers")
							}
						}
					})
				}
			}
		}
	})
}

// TestLinearShapes runs the shapes that lower chooses from: the result has the same
// bits in all of them, and a token the same alone as among others.
func TestLinearShapes(t *testing.T) {
	for family, shapes := range map[string][]linearShape{"linear_vec": vecShapes, "linear_mat": matShapes} {
		vec := family == "linear_vec"
		instances(t, family, func(t *testing.T, name string, types []kernels.Element) {
			for _, c := range shapeCases(vec) {
				t.Run(c.String(), func(t *testing.T) {
					first := c.check(t, name, types, vec)
					for _, s := range shapes {
						c.shape = s
						agree(t, first, c.check(t, name, types, vec), "%+v", s)
					}
				})
			}
		})
	}
}

// TestLinearLines runs products of weights in lines, alone and beside others: the result has
// the bits that it has of the file's blocks.
func TestLinearLines(t *testing.T) {
	for _, family := range []string{"linear_vec", "linear_mat"} {
		vec := family == "linear_vec"
		tokens := map[bool]int{true: 2, false: 33}[vec]
		var cases []linearCase
		for _, elem := range lined() {
			for _, k := range widths(elem) {
				cases = append(cases, linearCase{tokens: tokens, k: k, rows: []int{37}, types: []dtype.Type{elem}})
			}
		}
		cases = append(cases,
			linearCase{tokens: tokens, k: 512, rows: []int{6, 33, 2}, types: []dtype.Type{dtype.Q4_0, dtype.Q5_K, dtype.Q6_K}},
			linearCase{tokens: tokens, k: 512, rows: []int{35, 35}, types: []dtype.Type{dtype.Q4_K, dtype.Q8_0}, act: ir.SiLU, gated: true})
		instances(t, family, func(t *testing.T, name string, types []kernels.Element) {
			for _, c := range cases {
				t.Run(c.String(), func(t *testing.T) {
					want := c.check(t, name, types, vec)
					c.lines = true
					agree(t, want, c.check(t, name, types, vec))
				})
			}
		})
	}
}

// shapeCases are ragged in every direction.
func shapeCases(vec bool) []linearCase {
	var out []linearCase
	tokens := few([]int{5}, []int{1, 2, 3, 4, 6, 7, 8})
	if !vec {
		tokens = few([]int{67}, []int{1, 31, 64, 65, 100})
	}
	for i, w := range weightTypes {
		if !everything() && i%4 != 1 {
			continue
		}
		k := widths(w)
		for _, n := range tokens {
			out = append(out, linearCase{tokens: n, k: k[len(k)-1], rows: []int{37}, types: []dtype.Type{w}, norm: rms(vec), gain: vec})
		}
	}
	for _, n := range tokens {
		out = append(out,
			linearCase{tokens: n, k: 288, rows: []int{67, 5, 8}, types: []dtype.Type{dtype.Q4_0, dtype.F16, dtype.Q8_0}, residual: true, xStride: 300, outStride: 131},
			linearCase{tokens: n, k: 256, rows: []int{35, 35}, types: []dtype.Type{dtype.Q4_K, dtype.Q6_K}, act: ir.SiLU, gated: true, norm: rms(vec), gain: vec})
		if vec {
			out = append(out, linearCase{tokens: n, k: 288, rows: []int{35, 35}, types: []dtype.Type{dtype.F16, dtype.Q8_0}, act: ir.GELU, gated: true,
				bias: true, norm: ir.LayerNorm, gain: true, shift: true})
		}
	}
	return out
}

// rms is the norm of linear_vec, which linear_mat has not.
func rms(vec bool) ir.NormKind {
	if vec {
		return ir.RMSNorm
	}
	return ir.NoNorm
}

// TestLinearAgree compares the two kernels with each other, as a model does that
// prefills with one and decodes with the other.
func TestLinearAgree(t *testing.T) {
	instances(t, "linear_mat", func(t *testing.T, name string, types []kernels.Element) {
		for _, w := range weightTypes {
			k := widths(w)[0]
			c := linearCase{tokens: 3, k: k, rows: []int{13}, types: []dtype.Type{w}}
			t.Run(c.String(), func(t *testing.T) {
				mat := c.check(t, name, types, false)
				vec := c.check(t, "linear_vec"+name[len("linear_mat"):], types, true)
				compare(t, vec.values(), mat.values(), c.rows[0], 2*worst(types...))
			})
		}
	})
}

func (c linearCase) columns() int {
	if c.gated {
		return c.rows[0]
	}
	n := 0
	for _, rows := range c.rows {
		n += rows
	}
	return n
}

const (
	linearEps                  = 1e-5
	rowGateStride, rowGateFrom = 5, 3
)

// check runs a case, compares its result with the formula and returns it. Data depend
// on the case alone, so that launches of other shapes can be compared.
func (c linearCase) check(t *testing.T, name string, types []kernels.Element, vec bool) tensor {
	rng := newRand(c.String())
	columns := c.columns()
	xStride, outStride := max(c.xStride, c.k), max(c.outStride, columns)

	x := random(rng, types[0], c.tokens*xStride)
	for i := range x.length {
		if i%xStride >= c.k { // between rows
			x.put(i, math.NaN())
		}
	}
	l := launch{
		kernel:    name,
		constants: map[string]uint32{},
		buffers:   map[string]tensor{"x": x, "out": result(outOf(types), c.tokens*outStride)},
	}
	c.shape.launch(&l, vec, types, c.tokens, columns, c.gated)
	params := kernels.LinearParams{Tokens: uint32(c.tokens), K: uint32(c.k), XStride: uint32(xStride), OutStride: uint32(outStride), Eps: linearEps}
	weights := make([]weight, len(c.rows))
	for i := range c.rows {
		weights[i] = newWeight(t, rng, c.types[i], c.rows[i], c.k)
		typ := uint32(c.types[i])
		if c.lines && kernels.HasLines(typ) {
			weights[i], typ = weights[i].lines(), typ+kernels.Lines
		}
		l.buffers[fmt.Sprintf("w%d", i)] = weights[i].bytes
		l.constants[fmt.Sprintf("fc_type%d", i)] = typ
		*[]*uint32{&params.N0, &params.N1, &params.N2, &params.N3}[i] = uint32(c.rows[i])
	}
	l.params = params
	var extra linearExtras
	if c.residual {
		extra.residual = random(rng, kernels.Float, c.tokens*outStride)
		l.buffers["residual"], l.constants["fc_residual"] = extra.residual, 1
	}
	if c.gated {
		l.constants["fc_gated"] = 1
	}
	if c.rowGate != ir.NoActivation {
		extra.gate = random(rng, kernels.Float, c.tokens*rowGateStride)
		l.buffers["gate"], l.constants["fc_row_gate"] = extra.gate, uint32(c.rowGate)
		params.GateStride, params.GateFrom = rowGateStride, rowGateFrom
		l.params = params
	}
	if c.columnGate {
		extra.gate = random(rng, kernels.Float, c.tokens*(columns+rowGateStride))
		l.buffers["gate"], l.constants["fc_column_gate"] = extra.gate, 1
		params.GateStride, params.GateFrom = uint32(columns+rowGateStride), rowGateFrom
		l.params = params
	}
	if c.act != ir.NoActivation {
		l.constants["fc_activation"] = uint32(c.act)
	}
	if c.norm != ir.NoNorm && vec {
		l.constants["fc_norm"] = uint32(c.norm)
	}
	if c.gain {
		extra.gain = random(rng, kernels.Float, c.k)
		l.buffers["gain"] = extra.gain
		if c.norm == ir.LayerNorm {
			l.constants["fc_gain"] = 1
		}
	}
	if c.shift {
		extra.shift = random(rng, kernels.Float, c.k)
		l.buffers["shift"], l.constants["fc_shift"] = extra.shift, 1
	}
	if c.bias {
		l.constants["fc_bias"] = 1
		for i, n := range c.rows {
			bias := random(rng, kernels.Float, n)
			l.buffers[fmt.Sprintf("bias%d", i)] = bias
			extra.bias = append(extra.bias, bias.values()...)
		}
	}
	got := l.run(t)["out"]
	if !vec {
		for i := range weights {
			weights[i].values = filled(tileOf(types), len(weights[i].values), func(j int) float64 { return weights[i].values[j] }).values()
		}
	}
	c.compare(t, got, types, x, weights, extra)
	return got
}

// linearExtras is what a product reads besides x and the weights.
type linearExtras struct {
	residual, gain, shift, gate tensor
	bias                        []float64 // of all rows of all weights
}

// compare checks a result against the formula, which linear_mat applies to weights
// rounded to the type of x, and norm_linear_mat to both rounded to the type of tiles.
func (c linearCase) compare(t *testing.T, got tensor, types []kernels.Element, x tensor, weights []weight, extra linearExtras) {
	t.Helper()
	columns := c.columns()
	xStride, outStride := max(c.xStride, c.k), max(c.outStride, columns)
	var want []product
	dense := tensor{element: outOf(types)}
	for token := range c.tokens {
		row := make([]float64, c.k)
		squares := 0.0
		for i := range row {
			row[i] = x.at(token*xStride + i)
			squares += row[i] * row[i]
		}
		switch c.norm {
		case ir.RMSNorm:
			s := 1 / math.Sqrt(squares/float64(c.k)+linearEps)
			for i := range row {
				row[i] *= s * extra.gain.at(i)
			}
		case ir.LayerNorm:
			layerNorm(row, extra.gain.values(), extra.shift.values(), linearEps)
		}
		if len(types) == 3 { // of x, of tiles and of out: a tile holds x once it is normalised
			row = filled(tileOf(types), c.k, func(i int) float64 { return row[i] }).values()
		}
		var products []product
		for _, w := range weights {
			for n := range w.rows {
				p := multiply(w.values[n*c.k:][:c.k], row)
				if c.bias {
					p.value += extra.bias[len(products)]
					p.scale = max(p.scale, math.Abs(p.value))
				}
				products = append(products, p)
			}
		}
		for n := range columns {
			v := products[n]
			if c.gated {
				v = gate(c.act, v, products[c.rows[0]+n])
			} else {
				v = activate(c.act, v)
			}
			if c.rowGate != ir.NoActivation {
				by := ref.Activate(c.rowGate, extra.gate.at(token*rowGateStride+rowGateFrom))
				v.value, v.scale = v.value*by, v.scale*math.Abs(by)
			}
			if c.columnGate {
				by := extra.gate.at(token*(columns+rowGateStride) + rowGateFrom + n)
				v.value, v.scale = v.value*by, v.scale*math.Abs(by)
			}
			if c.residual {
				v.value += extra.residual.at(token*outStride + n)
				v.scale = max(v.scale, math.Abs(v.value))
			}
			want = append(want, v)
		}
		for n := columns; n < outStride; n++ {
			require.True(t, math.IsNaN(got.at(token*outStride+n)), "written between rows")
		}
		size := outOf(types).Size()
		dense.bytes = append(dense.bytes, got.bytes[token*outStride*size:][:columns*size]...)
		dense.length += columns
	}
	compareProducts(t, want, dense, types)
}

func multiply(w, x []float64) product {
	var p product
	for i := range w {
		p.value += w[i] * x[i]
		p.scale += w[i] * w[i] * x[i] * x[i]
	}
	p.scale = max(math.Sqrt(p.scale), math.Abs(p.value))
	return p
}

// activate is an activation of a product. Its slope is at most 1.13, but for ReLU².
func activate(act ir.Activation, a product) product {
	if act == ir.NoActivation {
		return a
	}
	v, slope := ref.Activate(act, a.value), 1.13
	if act == ir.ReLU2 {
		slope = 2*math.Abs(a.value) + a.scale
	}
	return product{v, slope*a.scale + math.Abs(v)}
}

// gate is a gate of two products.
func gate(act ir.Activation, a, b product) product {
	v := ref.Gate(act, a.value, b.value)
	if act == ir.ClampedSwiGLU { // a SiLU of another width, of bounded factors
		return product{v, 1.13*a.scale*(1+math.Abs(b.value)) + (1+math.Abs(a.value))*b.scale}
	}
	s := activate(act, a)
	return product{v, s.scale*math.Abs(b.value) + math.Abs(s.value)*b.scale}
}

// Rows that are taken by an index give the bits of the same rows side by side.
func TestLinearVecGather(t *testing.T) {
	instances(t, "linear_vec", func(t *testing.T, name string, types []kernels.Element) {
		for _, shape := range []linearShape{{rows: 4, simdgroups: 2}, {together: 4}} {
			const k, columns = 288, 10
			rng := newRand(t.Name())
			w := newWeight(t, rng, dtype.Q4_0, columns, k)
			rows := []int32{6, 0, 6, 2, 5}
			x, gain := random(rng, types[0], 7*k), random(rng, kernels.Float, k)
			taken := filled(types[0], len(rows)*k, func(i int) float64 { return x.at(int(rows[i/k])*k + i%k) })
			product := func(x tensor) launch {
				l := launch{
					kernel:    name,
					constants: map[string]uint32{"fc_type0": uint32(dtype.Q4_0), "fc_norm": uint32(ir.RMSNorm)},
					buffers:   map[string]tensor{"x": x, "w0": w.bytes, "gain": gain, "out": result(types[1], len(rows)*columns)},
					params:    kernels.LinearParams{Tokens: uint32(len(rows)), K: k, N0: columns, XStride: k, OutStride: columns, Eps: 1e-6},
				}
				shape.launch(&l, true, types, len(rows), columns, false)
				return l
			}
			gathered := product(x)
			gathered.constants["fc_gather"], gathered.buffers["rows"] = 1, ints(rows)
			agree(t, product(taken).run(t)["out"], gathered.run(t)["out"])
		}
	})
}

// TestLinearVecExperts compares what experts give with the product of each by itself, whose
// bits it has, and mixtures with their sums.
func TestLinearVecExperts(t *testing.T) {
	instances(t, "linear_vec", func(t *testing.T, name string, types []kernels.Element) {
		const k, n, stack, top, tokens = 288, 10, 5, 2, 4
		for _, c := range []struct {
			dtype                    dtype.Type
			gated, each, bias, mixed bool
			norm                     ir.NormKind
			shape                    linearShape
		}{
			{dtype: dtype.Q4_0, gated: true, norm: ir.RMSNorm, shape: linearShape{rows: 4, simdgroups: 2}},
			{dtype: dtype.F16, gated: true, bias: true, norm: ir.LayerNorm, shape: linearShape{rows: 2, simdgroups: 8}},
			{dtype: dtype.Q8_0, each: true, shape: linearShape{rows: 2, simdgroups: 1}},
			{dtype: dtype.Q5_1, each: true, mixed: true, bias: true, shape: linearShape{rows: 4, simdgroups: 8}},
			{dtype: dtype.F32, mixed: true, shape: linearShape{rows: 4, simdgroups: 1}},
		} {
			rng := newRand(t.Name() + c.dtype.String())
			expert := []int32{4, 1, 0, 4, 2, 3, 3, -1}
			inputs := tokens
			if c.each {
				inputs *= top
			}
			x, gain, share := random(rng, types[0], inputs*k), random(rng, kernels.Float, k), random(rng, kernels.Float, len(expert))
			residual := random(rng, kernels.Float, tokens*n)
			of := launch{kernel: name, constants: map[string]uint32{}, buffers: map[string]tensor{"gain": gain}}
			params := kernels.LinearParams{K: k, N0: n, XStride: k, OutStride: n, Eps: linearEps}
			var w, bias [2]tensor
			weights := 1
			if c.gated {
				weights, params.N1, of.constants["fc_gated"] = 2, n, 1
			}
			if c.norm != ir.NoNorm {
				of.constants["fc_norm"], of.constants["fc_gain"] = uint32(c.norm), 1
			}
			for i := range weights {
				w[i] = newWeight(t, rng, c.dtype, stack*n, k).bytes
				of.constants[fmt.Sprintf("fc_type%d", i)] = uint32(c.dtype)
				if bias[i] = random(rng, kernels.Float, stack*n); c.bias {
					of.constants["fc_bias"] = 1
				}
			}
			part := func(of tensor, i, n int) tensor {
				size := sizeOf(of.element, of.length) / (of.length / n)
				return tensor{of.element, of.bytes[i*size:][:size], n}
			}
			product := func(rows, constantRows int, x, out tensor, add map[string]tensor, constants map[string]uint32) tensor {
				l := launch{kernel: name, constants: maps.Clone(of.constants), buffers: maps.Clone(of.buffers)}
				maps.Copy(l.buffers, add)
				maps.Copy(l.constants, constants)
				l.buffers["x"], l.buffers["out"] = x, out
				p := params
				p.Tokens = uint32(rows)
				l.params = p
				c.shape.launch(&l, true, types, rows, constantRows, c.gated)
				return l.run(t)["out"]
			}
			want := make([][]float64, len(expert))
			for i, e := range expert {
				if e < 0 {
					continue
				}
				row := i / top
				if c.each {
					row = i
				}
				add := map[string]tensor{}
				for j := range weights {
					add[fmt.Sprintf("w%d", j)] = part(w[j], int(e), w[j].length/stack)
					if c.bias {
						add[fmt.Sprintf("bias%d", j)] = part(bias[j], int(e), n)
					}
				}
				want[i] = product(1, n, part(x, row, k), result(types[1], n), add, nil).values()
			}
			add, constants := map[string]tensor{"expert": ints(expert)}, map[string]uint32{"fc_experts": stack, "fc_top": top}
			for j := range weights {
				add[fmt.Sprintf("w%d", j)] = w[j]
				if c.bias {
					add[fmt.Sprintf("bias%d", j)] = bias[j]
				}
			}
			if c.each {
				constants["fc_each"] = 1
			}
			rows := len(expert)
			if c.mixed {
				rows, constants["fc_mixed"], constants["fc_residual"] = tokens, 1, 1
				add["share"], add["residual"] = share, residual
			}
			got := product(rows, n, x, result(types[1], rows*n), add, constants)
			for i := range rows {
				for j := range n {
					have := got.at(i*n + j)
					if !c.mixed {
						if want[i] == nil {
							require.True(t, math.IsNaN(have), "row %d", i)
						} else {
							require.Equal(t, want[i][j], have, "row %d of %+v", i, c)
						}
						continue
					}
					sum, size := residual.at(i*n+j), 1.0
					for s := range top {
						if want[i*top+s] == nil {
							sum = math.NaN()
							break
						}
						term := share.at(i*top+s) * want[i*top+s][j]
						sum, size = sum+term, size+math.Abs(term)
					}
					if math.IsNaN(sum) {
						require.True(t, math.IsNaN(have), "row %d", i)
					} else {
						require.InDelta(t, sum, have, 4*size*worst(types[1]), "row %d of %+v", i, c)
					}
				}
			}
		}
	})
}
