package native

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/kernels"
)

// mixture is a case of linear_vec with stacked expert weights.
type mixture struct {
	tokens, experts, top, k, n int
	dtype                      dtype.Type
	activation                 ir.Activation
	each, gated, mixed         bool
	bias, norm, residual       bool
	lost                       bool // a pair has no expert
}

func mixtures() (all []mixture) {
	for i, w := range weightTypes {
		k := 96
		switch w.BlockElems() {
		case 1:
			k = 76
		case 64:
			k = 192
		case 256:
			k = 512
		}
		for j, tokens := range []int{1, 2, 5, 70} {
			m := mixture{tokens: tokens, experts: 7, top: 3, k: k, n: 72, dtype: w, bias: (i+j)%2 == 0, norm: j%2 == 0, lost: tokens == 5}
			gate, down := m, m
			gate.gated, gate.activation = true, []ir.Activation{ir.SiLU, ir.ClampedSwiGLU}[i%2]
			down.each, down.mixed, down.residual, down.norm = true, true, i%2 == 0, false
			plain := m
			plain.mixed = i%2 == 1
			all = append(all, gate, down, plain)
			if tokens == 1 {
				gate.lost, down.lost, plain.lost = true, true, true
				all = append(all, gate, down, plain)
			}
		}
	}
	return all
}

// check compares the mixture with the products of each pair of a token and an expert alone:
// unmixed results must have the same bits, mixed results must be their weighted sums.
func (m mixture) check(t *testing.T, l Library) {
	rng := newRand(fmt.Sprintf("%+v", m))
	weights, size := 1, int(m.dtype.Bytes(int64(m.n*m.k)))
	if m.gated {
		weights = 2
	}
	pairs, inputs := m.tokens*m.top, m.tokens
	if m.each {
		inputs = pairs
	}
	x, share, gain, residual := normals(rng, inputs*m.k), normals(rng, pairs), normals(rng, m.k), normals(rng, m.tokens*m.n)
	expert := make([]int32, pairs)
	for i := range expert {
		if i%m.top == 0 {
			order := rng.Perm(m.experts)
			for s := range m.top {
				expert[i+s] = int32(order[s])
			}
		}
	}
	if m.lost {
		expert[min(4, pairs-2)] = -1
	}
	params := kernels.LinearParams{Tokens: uint32(pairs), K: uint32(m.k), N0: uint32(m.n), XStride: uint32(m.k), OutStride: uint32(m.n), Eps: eps}
	one := dispatch{kernel: "linear_vec_f32_f32", writes: []string{"out"}, group: [3]uint32{64, 1, 1}, grid: [3]uint32{ceil(m.n, 8), 1, 1},
		args: map[string][]byte{}, constants: map[string]uint32{"fc_activation": uint32(m.activation)}}
	stack, biases := make([][]byte, weights), make([][]float32, weights)
	for i := range weights {
		stack[i], _ = stored(t, rng, m.experts*m.n*m.k, m.dtype)
		biases[i] = normals(rng, m.experts*m.n)
		one.constants[fmt.Sprintf("fc_type%d", i)] = uint32(m.dtype)
	}
	if m.gated {
		params.N1, one.constants["fc_gated"] = uint32(m.n), 1
	}
	if m.norm {
		one.args["gain"], one.constants["fc_norm"] = floatBytes(gain), uint32(ir.RMSNorm)
	}
	if m.bias {
		one.constants["fc_bias"] = 1
	}
	all := one
	all.args, all.constants = map[string][]byte{}, map[string]uint32{}
	for name, c := range one.constants {
		all.constants[name] = c
	}
	for name, b := range one.args {
		all.args[name] = b
	}

	want := make([][]float32, pairs)
	p := params
	p.Tokens = 1
	one.params = p
	for i, e := range expert {
		if e < 0 {
			continue
		}
		row := i / m.top
		if m.each {
			row = i
		}
		one.args["x"], one.args["out"] = floatBytes(x[row*m.k:][:m.k]), nan(m.n)
		for j := range weights {
			one.args[fmt.Sprintf("w%d", j)] = stack[j][int(e)*size:][:size]
			if m.bias {
				one.args[fmt.Sprintf("bias%d", j)] = floatBytes(biases[j][int(e)*m.n:][:m.n])
			}
		}
		want[i] = floats(one.run(t, l)[0])
	}

	rows := pairs
	all.args["x"], all.args["expert"] = floatBytes(x), intBytes(expert...)
	for j := range weights {
		all.args[fmt.Sprintf("w%d", j)] = stack[j]
		if m.bias {
			all.args[fmt.Sprintf("bias%d", j)] = floatBytes(biases[j])
		}
	}
	all.constants["fc_experts"], all.constants["fc_top"] = uint32(m.experts), uint32(m.top)
	if m.each {
		all.constants["fc_each"] = 1
	}
	if m.mixed {
		rows, params.Tokens, all.constants["fc_mixed"], all.args["share"] = m.tokens, uint32(m.tokens), 1, floatBytes(share)
	}
	if m.residual {
		all.args["residual"], all.constants["fc_residual"] = floatBytes(residual), 1
	}
	all.params, all.grid[1], all.args["out"] = params, uint32(rows), nan(rows*m.n)
	for _, how := range []string{"native", "emulated"} {
		var got []float32
		bound := 1e-5
		if how == "emulated" && isHalf(m.dtype) && l.HalfIntegers() {
			bound = shortBound
		}
		switch {
		case how == "native":
			got = floats(all.run(t, l)[0])
		case m.dtype.IsQuantized(): // the emulated kernel does not round activations
			continue
		default:
			got = floats(all.emulate(t)[0])
		}
		for row := range rows {
			for c := range m.n {
				var sum, scale float64
				if m.mixed {
					if m.residual {
						sum = float64(residual[row*m.n+c])
					}
					for s := range m.top {
						i := row*m.top + s
						if want[i] == nil {
							sum = math.NaN()
							break
						}
						sum += float64(share[i]) * float64(want[i][c])
						scale += math.Abs(float64(share[i]))
					}
				} else if want[row] == nil {
					sum = math.NaN()
				} else {
					sum, scale = float64(want[row][c]), 1
				}
				have := float64(got[row*m.n+c])
				switch {
				case math.IsNaN(sum):
					require.True(t, math.IsNaN(have), "%s row %d of %+v", how, row, m)
				case how == "native" && !m.mixed:
					require.Equal(t, sum, have, "row %d of %+v: the bits of the product by itself", row, m)
				default:
					require.InDelta(t, sum, have, bound*(math.Abs(sum)+scale*math.Sqrt(float64(m.k))*4), "%s row %d of %+v", how, row, m)
				}
			}
		}
	}
}

// TestMixture compares products of stacked weights with those of each expert alone, for every
// weight type, and the emulated kernel with them for floats.
func TestMixture(t *testing.T) {
	for n, l := range Libraries() {
		for i, m := range mixtures() {
			if (n+i)%4 != 0 && !testfiles.Full("kernels") {
				continue
			}
			t.Run(fmt.Sprintf("%s/%+v", l.ISA(), m), func(t *testing.T) { m.check(t, l) })
		}
	}
}

// TestMixtureAlone checks that a token's mixture is bit-identical alone and in a batch.
func TestMixtureAlone(t *testing.T) {
	const tokens, experts, top, k, n = 9, 6, 3, 64, 40
	for _, l := range Libraries() {
		t.Run(l.ISA(), func(t *testing.T) {
			rng := newRand("alone")
			w, _ := stored(t, rng, experts*n*k, dtype.Q8_0)
			x, share := normals(rng, tokens*top*k), normals(rng, tokens*top)
			expert := make([]int32, 0, tokens*top)
			for range tokens {
				for _, e := range rng.Perm(experts)[:top] {
					expert = append(expert, int32(e))
				}
			}
			run := func(first, n0 int) []float32 {
				d := dispatch{kernel: "linear_vec_f32_f32", writes: []string{"out"}, group: [3]uint32{64, 1, 1}, grid: [3]uint32{ceil(n, 8), uint32(n0), 1},
					constants: map[string]uint32{"fc_type0": uint32(dtype.Q8_0), "fc_experts": experts, "fc_top": top, "fc_each": 1, "fc_mixed": 1},
					params:    kernels.LinearParams{Tokens: uint32(n0), K: k, N0: n, XStride: k, OutStride: n},
					args: map[string][]byte{"w0": w, "x": floatBytes(x[first*top*k:][:n0*top*k]), "share": floatBytes(share[first*top:][:n0*top]),
						"expert": intBytes(expert[first*top:][:n0*top]...), "out": nan(n0 * n)}}
				return floats(d.run(t, l)[0])
			}
			all := run(0, tokens)
			for i := range tokens {
				require.Equal(t, all[i*n:][:n], run(i, 1), "token %d", i)
			}
		})
	}
}
