package kernels_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/kernels"
	"github.com/smelt-ml/smelt/kernels/emulated"
)

// recurrentCases are steps of sequences that begin or go on, and bring nothing, one token or some.
var recurrentCases = few([]batch{
	{lens: []int{3, 1, 0, 1}, contexts: []int{3, 9, 4, 17}, block: 16},
	{lens: []int{40, 2, 2}, contexts: []int{45, 2, 8}, block: 7},
}, []batch{
	{lens: []int{1}, contexts: []int{1}, block: 1},
	{lens: []int{5, 1, 2}, contexts: []int{9, 1, 2}, block: 1},
	{lens: []int{3, 1, 0, 1}, contexts: []int{3, 9, 4, 17}, block: 16},
	{lens: []int{40, 2, 1}, contexts: []int{45, 2, 8}, block: 7},
	{lens: []int{2, 3, 4, 5}, contexts: []int{65, 66, 67, 68}, block: 64},
})

// recurring is the recurrent states of a step: all, of n elements each and NaN where no sequence goes on
// from, those that its sequences read and write, and what each had before; nil where it begins. Some
// sequences write what they read.
type recurring struct {
	all    tensor
	n      int
	states []int32 // [seqs, 2]
	before [][]float64
}

func (p paging) recurring(rng *rand.Rand, n int) recurring {
	s := recurring{n: n, all: filled(kernels.Float, 2*len(p.lens)*n, func(int) float64 { return math.NaN() })}
	free := rng.Perm(2 * len(p.lens))
	for seq, length := range p.lens {
		read, write := int32(free[2*seq]), int32(free[2*seq+1])
		if rng.IntN(2) == 0 {
			write = read
		}
		if p.contexts[seq] == length {
			s.states, s.before = append(s.states, -1, write), append(s.before, nil)
			continue
		}
		for i := range n {
			s.all.put(int(read)*n+i, rng.NormFloat64())
		}
		s.states, s.before = append(s.states, read, write), append(s.before, s.all.values()[int(read)*n:][:n])
	}
	return s
}

// runStates executes a launch whose recurrent state is bound twice, in every order of lanes.
func (l launch) runStates(t *testing.T, state tensor) (out, after tensor) {
	t.Helper()
	l.buffers["state"], l.buffers["state_out"] = state, state
	require.NoError(t, kernels.Check(l.host()))
	for i, order := range turns() {
		memory := map[string][]byte{}
		for name, b := range l.buffers {
			memory[name] = b.bytes
		}
		o, s := l.buffers["out"].clone(), state.clone()
		memory["out"], memory["state"], memory["state_out"] = o.bytes, s.bytes, s.bytes
		order.InPlace = true // two copies of one state would hide what is overwritten too soon
		buffers, constants, err := kernels.Bind(l.kernel, memory, l.params, l.constants)
		require.NoError(t, err)
		require.NoError(t, execute(emulated.Launch{
			Kernel: l.kernel, Buffers: buffers, Constants: constants,
			Grid:  [3]uint32{uint32(l.grid[0]), uint32(l.grid[1]), uint32(l.grid[2])},
			Group: [3]uint32{uint32(l.group), 1, 1},
		}, order), "%+v", order)
		require.Equal(t, l.buffers["out"].bytes[sizeOf(o.element, o.length):], o.bytes[sizeOf(o.element, o.length):])
		if i > 0 {
			require.Equal(t, out.bytes, o.bytes, "depends on the order of lanes")
			require.Equal(t, after.bytes, s.bytes, "the state depends on the order of lanes")
		}
		out, after = o, s
	}
	k, _ := kernels.Lookup(l.kernel)
	seen.launch(t, k, l.constants)
	return out, after
}

// left returns all states after a step: next takes that of a sequence, which begins with zeros, over
// token t of the step.
func (s recurring) left(p paging, next func(t int, state []float64)) []float64 {
	want := s.all.values()
	for seq, length := range p.lens {
		own := slices.Clone(s.before[seq])
		if own == nil {
			own = make([]float64, s.n)
		}
		for i := range length {
			next(int(p.cu[seq])+i, own)
		}
		if length > 0 {
			copy(want[int(s.states[2*seq+1])*s.n:], own)
		}
	}
	return want
}

// requireStates compares all states after a step, NaN where none was written.
func requireStates(t *testing.T, want, got []float64) {
	t.Helper()
	for i, v := range got {
		if math.IsNaN(want[i]) {
			require.True(t, math.IsNaN(v), "element %d of the states", i)
			continue
		}
		require.InDelta(t, want[i], v, 1e-5*max(1, math.Abs(want[i])), "element %d of the states", i)
	}
}

func TestShortConv(t *testing.T) {
	instances(t, "short_conv", func(t *testing.T, name string, types []kernels.Element) {
		for _, b := range recurrentCases {
			for _, taps := range few([]int{3, 4}, []int{2, 3, 4, 8}) {
				for _, with := range []string{"", "fc_gated", "fc_silu", "fc_bias"} {
					gated := with == "fc_gated"
					t.Run(fmt.Sprint(b, taps, with), func(t *testing.T) {
						rng, width := newRand(t.Name()), few([]int{70}, []int{300})[0]
						p, stride, n := b.page(rng), width+3, (taps-1)*width
						tokens := b.tokens()
						x, in, out := random(rng, types[0], tokens*stride), random(rng, types[0], tokens*stride), random(rng, types[0], tokens*stride)
						w := random(rng, kernels.Float, width*taps)
						step := p.recurring(rng, n)
						l := launch{
							kernel: name, constants: map[string]uint32{},
							buffers: map[string]tensor{"x": x, "w": w, "cu_seqlens": ints(p.cu), "states": ints(step.states), "out": result(types[0], tokens*width)},
							params: kernels.ShortConvParams{Tokens: uint32(tokens), Seqs: uint32(len(p.lens)), Width: uint32(width), Taps: uint32(taps),
								XStride: uint32(stride)},
							grid: [3]int{ceil(width, 256), tokens, 1}, group: 256,
						}
						if with != "" {
							l.constants[with] = 1
						}
						if gated {
							l.buffers["in_gate"], l.buffers["out_gate"] = in, out
						}
						biased := with == "fc_bias"
						bias := random(rng, kernels.Float, width)
						if biased {
							l.buffers["bias"], l.constants["fc_silu"] = bias, 1
						}
						got, after := l.runStates(t, step.all)
						want := make([]float64, tokens*width)
						left := step.left(p, func(token int, state []float64) {
							for e := range width {
								at, sum := token*stride+e, 0.0
								v := x.at(at)
								if gated {
									v = float64(float32(in.at(at)) * float32(v))
								}
								for j := range taps - 1 {
									sum += w.at(e*taps+j) * state[j*width+e]
								}
								if sum += w.at(e*taps+taps-1) * v; gated {
									sum *= out.at(at)
								}
								if biased {
									sum += bias.at(e)
								}
								if biased || with == "fc_silu" {
									sum /= 1 + math.Exp(-sum)
								}
								want[token*width+e] = sum
								for j := range taps - 2 {
									state[j*width+e] = state[(j+1)*width+e]
								}
								state[(taps-2)*width+e] = v
							}
						})
						compare(t, want, got.values(), width, worst(types...))
						require.Equal(t, fmt.Sprint(left), fmt.Sprint(after.values()))
					})
				}
			}
		}
	})
}

func TestDeltaNet(t *testing.T) {
	requireDeltaRule(t, "delta_net", recurrentCases, few([][3]int{{4, 2, 24}, {3, 3, 40}}, [][3]int{{1, 1, 1}, {4, 2, 24}, {3, 3, 40}, {6, 1, 128}, {2, 2, 256}}),
		func(head int) int { return ceil(head, 32) * 32 })
}

// TestDeltaNetPieces has pieces that are cut by the end of a sequence.
func TestDeltaNetPieces(t *testing.T) {
	long := batch{lens: []int{37, 1, 20}, contexts: []int{37, 70, 90}, block: 64}
	requireDeltaRule(t, "delta_net_pieces", append([]batch{long}, recurrentCases...), few([][3]int{{4, 2, 24}, {2, 1, 72}}, [][3]int{{1, 1, 8}, {4, 2, 24}, {3, 3, 40}, {2, 1, 72}, {6, 1, 128}}),
		func(int) int { return 128 })
}

// requireDeltaRule compares a kernel with the rule, token by token. A shape is the number of heads of V,
// that of K, and the elements of a head.
func requireDeltaRule(t *testing.T, family string, batches []batch, shapes [][3]int, threads func(head int) int) {
	instances(t, family, func(t *testing.T, name string, types []kernels.Element) {
		for _, b := range batches {
			for _, s := range shapes {
				for _, gated := range []bool{false, true} {
					t.Run(fmt.Sprint(b, s, gated), func(t *testing.T) {
						const eps, normEps = 1e-3, 0.125
						rng, heads, keyHeads, head := newRand(t.Name()), s[0], s[1], s[2]
						share := 1
						if gated {
							share = heads / keyHeads
						}
						p, n, row := b.page(rng), heads*head*head, (2*keyHeads+heads)*head
						tokens := b.tokens()
						betaFrom, zFrom := rng.IntN(3), rng.IntN(3)
						gates, zs := heads+betaFrom, heads*head+zFrom+1 // from token to token
						qkv, alpha, beta := random(rng, types[0], tokens*row), random(rng, types[0], tokens*gates), random(rng, types[0], tokens*gates)
						z, gain := random(rng, types[0], tokens*zs), random(rng, kernels.Float, head)
						for i := range tokens * keyHeads * head { // Q is like K: where their product vanishes, rounding is all that is left
							at := i/(keyHeads*head)*row + i%(keyHeads*head)
							qkv.put(at, qkv.at(at)+2*qkv.at(at+keyHeads*head))
						}
						alpha.put((tokens-1)*gates, 100) // whose exponential is no number
						decay := filled(kernels.Float, heads, func(i int) float64 { return -0.2 * float64(i+1) })
						decay.put(0, -0.01)
						bias := random(rng, kernels.Float, heads)
						step := p.recurring(rng, n)
						l := launch{
							kernel: name, constants: map[string]uint32{},
							buffers: map[string]tensor{"qkv": qkv, "alpha": alpha, "beta": beta, "decay": decay, "bias": bias, "cu_seqlens": ints(p.cu), "states": ints(step.states), "out": result(types[0], tokens*heads*head)},
							params: kernels.DeltaNetParams{Tokens: uint32(tokens), Seqs: uint32(len(p.lens)), Heads: uint32(heads), KeyHeads: uint32(keyHeads),
								Head: uint32(head), Share: uint32(share), GateStride: uint32(gates), BetaFrom: uint32(betaFrom), ZStride: uint32(zs), ZFrom: uint32(zFrom),
								Eps: eps, NormEps: normEps},
							grid: [3]int{heads, len(p.lens), 1}, group: threads(head),
						}
						if gated {
							l.constants["fc_gated"], l.buffers["z"], l.buffers["gain"] = 1, z, gain
						}
						got, after := l.runStates(t, step.all)
						want := make([]float64, tokens*heads*head)
						left := step.left(p, func(token int, state []float64) {
							unit := func(at int) []float64 {
								x, sum := make([]float64, head), eps
								for i := range x {
									x[i] = qkv.at(token*row + at*head + i)
									sum += x[i] * x[i]
								}
								for i := range x {
									x[i] /= math.Sqrt(sum)
								}
								return x
							}
							for h := range heads {
								of := h / share % keyHeads
								q, k, own := unit(of), unit(keyHeads+of), state[h*head*head:][:head*head]
								keep := math.Exp(decay.at(h) * math.Log1p(math.Exp(alpha.at(token*gates+h)+bias.at(h))))
								learn := 1 / (1 + math.Exp(-beta.at(token*gates+betaFrom+h)))
								for j := range head {
									known := 0.0
									for i := range head {
										known += k[i] * keep * own[i*head+j]
									}
									more := learn * (qkv.at(token*row+(2*keyHeads+h)*head+j) - known)
									for i := range head {
										own[i*head+j] = keep*own[i*head+j] + k[i]*more
										want[(token*heads+h)*head+j] += q[i] * own[i*head+j] / math.Sqrt(float64(head))
									}
								}
								if gated {
									y, sum := want[(token*heads+h)*head:][:head], 0.0
									for _, v := range y {
										sum += v * v
									}
									for j := range y {
										v := z.at(token*zs + zFrom + h*head + j)
										y[j] *= gain.at(j) / math.Sqrt(sum/float64(head)+normEps) * v / (1 + math.Exp(-v))
									}
								}
							}
						})
						compare(t, want, got.values(), head, worst(types...))
						requireStates(t, left, after.values())
					})
				}
			}
		}
	})
}

func TestMamba2(t *testing.T) {
	requireStateSpace(t, "mamba2", recurrentCases, few([][4]int{{4, 2, 24, 20}, {3, 1, 40, 16}}, [][4]int{{1, 1, 1, 1}, {4, 2, 24, 20}, {3, 1, 40, 16}, {6, 3, 64, 128}, {2, 1, 256, 256}}),
		func(head int) int { return int(kernels.Mamba2Threads(uint32(ceil(head, 32) * 32))) })
}

// TestMamba2Pieces has pieces that are cut by the end of a sequence.
func TestMamba2Pieces(t *testing.T) {
	long := batch{lens: []int{37, 1, 20}, contexts: []int{37, 70, 90}, block: 64}
	requireStateSpace(t, "mamba2_pieces", append([]batch{long}, recurrentCases...), few([][4]int{{4, 2, 24, 16}, {2, 1, 72, 40}}, [][4]int{{1, 1, 8, 8}, {4, 2, 24, 16}, {2, 1, 72, 40}, {6, 3, 64, 128}, {2, 1, 128, 64}}),
		func(int) int { return 128 })
}

// requireStateSpace compares a kernel with the recurrence, token by token. A shape is the number of heads
// and of groups, and the elements of a head and of a group.
func requireStateSpace(t *testing.T, family string, batches []batch, shapes [][4]int, threads func(head int) int) {
	instances(t, family, func(t *testing.T, name string, types []kernels.Element) {
		for _, b := range batches {
			for _, s := range shapes {
				for _, gated := range []bool{false, true} {
					t.Run(fmt.Sprint(b, s, gated), func(t *testing.T) {
						rng, heads, groups, head, states := newRand(t.Name()), s[0], s[1], s[2], s[3]
						p, n, row := b.page(rng), heads*states*head, heads*head+2*groups*states
						tokens := b.tokens()
						from := rng.IntN(3)
						dts, zs := heads+from, heads*head+from // from token to token
						xbc, dt, z := random(rng, types[0], tokens*row), random(rng, types[0], tokens*dts), random(rng, types[0], tokens*zs)
						for i := range tokens * groups * states { // C is like B: where their product vanishes, rounding is all that is left
							at := i/(groups*states)*row + heads*head + i%(groups*states)
							xbc.put(at+groups*states, xbc.at(at+groups*states)+2*xbc.at(at))
						}
						dt.put((tokens-1)*dts+from, 100) // whose exponential is no number
						decay := filled(kernels.Float, heads, func(i int) float64 { return -0.2 * float64(i+1) })
						decay.put(0, -0.01)
						bias, skip := random(rng, kernels.Float, heads), random(rng, kernels.Float, heads)
						step := p.recurring(rng, n)
						l := launch{
							kernel: name, constants: map[string]uint32{},
							buffers: map[string]tensor{"xbc": xbc, "dt": dt, "decay": decay, "bias": bias, "skip": skip, "cu_seqlens": ints(p.cu), "states": ints(step.states), "out": result(types[0], tokens*heads*head)},
							params: kernels.Mamba2Params{Tokens: uint32(tokens), Seqs: uint32(len(p.lens)), Heads: uint32(heads), Groups: uint32(groups), Head: uint32(head), States: uint32(states),
								DtStride: uint32(dts), DtFrom: uint32(from), ZStride: uint32(zs)},
							grid: [3]int{heads, len(p.lens), 1}, group: threads(head),
						}
						if gated {
							l.constants["fc_gated"], l.buffers["z"] = 1, z
						}
						got, after := l.runStates(t, step.all)
						want := make([]float64, tokens*heads*head)
						left := step.left(p, func(token int, state []float64) {
							for h := range heads {
								shared := token*row + heads*head + h/(heads/groups)*states
								step := math.Log1p(math.Exp(dt.at(token*dts+from+h) + bias.at(h)))
								keep, own := math.Exp(decay.at(h)*step), state[h*states*head:][:states*head]
								for j := range head {
									x := xbc.at(token*row + h*head + j)
									y := skip.at(h) * x
									for i := range states {
										own[i*head+j] = keep*own[i*head+j] + xbc.at(shared+i)*step*x
										y += xbc.at(shared+groups*states+i) * own[i*head+j]
									}
									if gated {
										v := z.at(token*zs + h*head + j)
										y *= v / (1 + math.Exp(-v))
									}
									want[(token*heads+h)*head+j] = y
								}
							}
						})
						compare(t, want, got.values(), head, worst(types...))
						requireStates(t, left, after.values())
					})
				}
			}
		}
	})
}
