package kernels_test

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/kernels"
)

// byExpert sorts rows by expert, as group_by_expert does.
func byExpert(expert []int32, experts int) (order, starts []int32) {
	for e := range experts + 1 {
		starts = append(starts, int32(len(order)))
		for i, own := range expert {
			if int(own) == e || e == experts && (own < 0 || int(own) >= experts) {
				order = append(order, int32(i))
			}
		}
	}
	return order, append(starts, int32(len(order)))
}

func TestGroupByExpert(t *testing.T) {
	for _, rows := range few([]int{1, 75, 520}, []int{1, 7, 8, 9, 75, 255, 256, 257, 520, 4096}) {
		for _, experts := range few([]int{5, 70}, []int{1, 5, 33, 70, 300}) {
			for name, choose := range map[string]func(rng *rand.Rand, i int) int32{
				"even":   func(_ *rand.Rand, i int) int32 { return int32(i % experts) },
				"random": func(rng *rand.Rand, _ int) int32 { return int32(rng.IntN(experts+3)) - 2 }, // some are none
				"one":    func(*rand.Rand, int) int32 { return int32(experts / 2) },
				"none":   func(*rand.Rand, int) int32 { return -1 },
			} {
				t.Run(fmt.Sprintf("%d of %d/%s", rows, experts, name), func(t *testing.T) {
					rng := newRand(t.Name())
					expert := make([]int32, rows)
					for i := range expert {
						expert[i] = choose(rng, i)
					}
					got := launch{
						kernel:  "group_by_expert",
						buffers: map[string]tensor{"expert": ints(expert), "order": result(kernels.Int, rows), "starts": result(kernels.Int, experts+2)},
						params:  kernels.GroupByExpertParams{Rows: uint32(rows), Groups: uint32(experts + 1)},
						grid:    [3]int{experts + 1, 1, 1}, group: 256,
					}.run(t)
					order, starts := byExpert(expert, experts)
					require.Equal(t, ints(order).values(), got["order"].values())
					require.Equal(t, ints(starts).values(), got["starts"].values())
				})
			}
		}
	}
}

// routedCase is a product with expert weights in tiles.
type routedCase struct {
	dtype             dtype.Type
	stack             int // of experts
	tokens, top, n    int
	gated, each, bias bool
	act               ir.Activation
}

// routedCases returns cases of every weight type; in the plain run one seventh of them, by turn.
func routedCases(turn int) (cases []routedCase) {
	cases = []routedCase{
		{dtype: dtype.Q4_0, stack: 7, tokens: 60, top: 3, n: 35, gated: true, bias: true, act: ir.SiLU},
		{dtype: dtype.F16, stack: 40, tokens: 50, top: 2, n: 70, each: true, bias: true},
	}
	for i, w := range weightTypes {
		if !everything() && i%7 != turn%7 {
			continue
		}
		c := routedCase{dtype: w, stack: 6 + i%2*29, tokens: 40 + 7*i, top: 1 + i%3, n: 33 + 8*i, gated: i%2 == 0, each: i%3 == 1, bias: i%4 < 2}
		if c.gated {
			c.act = []ir.Activation{ir.SiLU, ir.ClampedSwiGLU}[i/2%2]
		}
		cases = append(cases, c)
	}
	return cases
}

// TestLinearMatExperts checks that products of experts in tiles have the bits of each expert's
// product alone: for experts with several tiles, one and none, and rows without an expert.
func TestLinearMatExperts(t *testing.T) {
	turn := 0
	instances(t, "linear_mat", func(t *testing.T, name string, types []kernels.Element) {
		for _, c := range routedCases(turn) {
			t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) { c.check(t, name, types) })
		}
		turn++
	})
}

func (c routedCase) check(t *testing.T, name string, types []kernels.Element) {
	stack := c.stack
	rng := newRand(fmt.Sprintf("%+v", c))
	ks := widths(c.dtype)
	k := ks[len(ks)-1]
	// Most tokens go to expert 1, none to 4, and one row in twenty has no expert.
	expert := make([]int32, c.tokens*c.top)
	for i := range expert {
		switch r := rng.IntN(20); {
		case r == 0:
			expert[i] = -1
		case r < 12:
			expert[i] = 1
		default:
			expert[i] = int32([]int{0, 2, 3, 5, 2 + rng.IntN(2), stack - 1}[rng.IntN(6)])
		}
	}
	inputs := c.tokens
	if c.each {
		inputs = len(expert)
	}
	xStride, outStride := k+4, c.n+3
	x := random(rng, types[0], inputs*xStride)
	l := launch{kernel: name, constants: map[string]uint32{}, buffers: map[string]tensor{}}
	params := kernels.LinearParams{K: uint32(k), N0: uint32(c.n), XStride: uint32(xStride), OutStride: uint32(outStride)}
	weights := 1
	if c.gated {
		weights, params.N1, l.constants["fc_gated"], l.constants["fc_activation"] = 2, uint32(c.n), 1, uint32(c.act)
	}
	var w, bias [2]tensor
	for i := range weights {
		w[i] = newWeight(t, rng, c.dtype, stack*c.n, k).bytes
		l.constants[fmt.Sprintf("fc_type%d", i)] = uint32(c.dtype)
		if bias[i] = random(rng, kernels.Float, stack*c.n); c.bias {
			l.constants["fc_bias"] = 1
		}
	}
	// product binds the weights and biases of expert e, or of all experts for -1.
	product := func(e int, x tensor, rows int) launch {
		of := launch{kernel: name, constants: maps.Clone(l.constants), buffers: map[string]tensor{"x": x, "out": result(outOf(types), rows*outStride)}}
		for i := range weights {
			own, add := w[i], bias[i]
			if e >= 0 {
				size := w[i].length / stack
				own = tensor{kernels.Bytes, w[i].bytes[e*size:][:size], size}
				add = tensor{kernels.Float, bias[i].bytes[4*e*c.n:][:4*c.n], c.n}
			}
			of.buffers[fmt.Sprintf("w%d", i)] = own
			if c.bias {
				of.buffers[fmt.Sprintf("bias%d", i)] = add
			}
		}
		p := params
		p.Tokens = uint32(rows)
		of.params = p
		return of
	}

	order, starts := byExpert(expert, stack)
	want := make([][]byte, len(expert)) // rows of out; nil for rows without an expert
	row := func(of tensor, i int) []byte {
		size := outOf(types).Size()
		return of.bytes[i*outStride*size:][:c.n*size]
	}
	for e := range stack {
		rows := order[starts[e]:starts[e+1]]
		if len(rows) == 0 {
			continue
		}
		of := filled(types[0], len(rows)*xStride, func(i int) float64 {
			from := int(rows[i/xStride])
			if !c.each {
				from /= c.top
			}
			return x.at(from*xStride + i%xStride)
		})
		alone := product(e, of, len(rows))
		linearShape{tile: 32}.launch(&alone, false, types, len(rows), c.n, c.gated)
		out := alone.run(t)["out"]
		for i, r := range rows {
			want[r] = row(out, i)
		}
	}
	for _, tile := range []int{32, 64} {
		all := product(-1, x, len(expert))
		linearShape{tile: tile}.launch(&all, false, types, len(expert), c.n, c.gated)
		all.grid[0] += stack + 1
		all.constants["fc_experts"], all.constants["fc_top"] = uint32(stack), uint32(c.top)
		if c.each {
			all.constants["fc_each"] = 1
		}
		all.buffers["rows"], all.buffers["starts"] = ints(order), ints(starts)
		out := all.run(t)["out"]
		for i := range expert {
			if want[i] != nil {
				require.Equal(t, want[i], row(out, i), "row %d in tiles of %d", i, tile)
				continue
			}
			for j := range c.n {
				require.True(t, math.IsNaN(out.at(i*outStride+j)))
			}
			require.NotContains(t, string(row(out, i)), "\xff\xff", "row %d is as it was", i)
		}
		for i := range expert {
			for j := c.n; j < outStride; j++ {
				require.True(t, math.IsNaN(out.at(i*outStride+j)), "written between rows")
			}
		}
	}
}
