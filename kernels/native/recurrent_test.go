package native

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/kernels"
)

// step is a step of sequences with recurrent states, each of which has some tokens in the
// step and perhaps some before.
type step struct {
	starts, counts []int
	cu, states     []int32 // states is [seqs, 2]
	tokens, all    int     // all is the number of states
}

// stepOf returns a step in which every other sequence writes the state that it reads.
func stepOf(starts, counts []int) *step {
	s := &step{starts: starts, counts: counts, cu: []int32{0}, all: 2 * len(starts)}
	for i, n := range counts {
		s.tokens += n
		s.cu = append(s.cu, int32(s.tokens))
		read, write := int32(s.all-1-i), int32(i)
		if i%2 == 0 {
			write = read
		}
		if starts[i] == 0 {
			read = -1
		}
		s.states = append(s.states, read, write)
	}
	return s
}

// over calls next for every token of a step with its sequence's state of n floats, and returns all states
// after the step.
func (s *step) over(state []float32, n int, next func(t int, state []float64)) []float64 {
	left := widened(state)
	for seq, count := range s.counts {
		own := make([]float64, n)
		if read := int(s.states[2*seq]); read >= 0 {
			copy(own, widened(state[read*n:][:n]))
		}
		for i := range count {
			next(int(s.cu[seq])+i, own)
		}
		if count > 0 {
			copy(left[int(s.states[2*seq+1])*n:], own)
		}
	}
	return left
}

// inPlace runs d, whose state is bound twice, on the emulator and on every instruction set,
// and compares its results and states.
func (s *step) inPlace(t *testing.T, d dispatch, state []float32, want, left []float64, bound float64) {
	t.Helper()
	d.writes, d.shared = []string{"out", "state_out"}, map[string]string{"state": "state_out"}
	run := func(name string, bound float64, run func() [][]byte) {
		d.args["state_out"] = floatBytes(state)
		got := run()
		near(t, want, floats(got[0]), 1, bound, name)
		near(t, left, floats(got[1]), 1, bound, name)
	}
	run("emulated", max(bound, 1e-5), func() [][]byte { return d.emulate(t) })
	for _, l := range Libraries() {
		run(l.ISA(), bound, func() [][]byte { return d.run(t, l) })
	}
}

var steps = []*step{
	stepOf([]int{0, 8, 16, 5}, []int{3, 1, 1, 0}),
	stepOf([]int{5, 0, 7, 20}, []int{40, 2, 1, 9}),
	stepOf([]int{0, 3}, []int{4, 2}),
	stepOf([]int{63, 1, 2}, []int{2, 1, 700}),
}

func TestShortConv(t *testing.T) {
	for i, s := range steps {
		for _, taps := range []int{2, 3, 4, 8} {
			for _, width := range []int{5, 64, 200} {
				for with := range 4 {
					gated, silu, biased := uint32(with%2), uint32(with/2), uint32(with/3)
					gated -= biased
					t.Run(fmt.Sprint(i, taps, width, with), func(t *testing.T) {
						rng, stride, n := newRand(t.Name()), width+3, (taps-1)*width
						x, in, out := normals(rng, s.tokens*stride), normals(rng, s.tokens*stride), normals(rng, s.tokens*stride)
						w, bias, state := normals(rng, width*taps), normals(rng, width), normals(rng, s.all*n)
						want := make([]float64, s.tokens*width)
						left := s.over(state, n, func(token int, state []float64) {
							for e := range width {
								at, sum := token*stride+e, 0.0
								v, outer := float64(x[at]), 1.0
								if gated == 1 {
									v, outer = float64(in[at]*x[at]), float64(out[at])
								}
								for j := range taps - 1 {
									sum += float64(w[e*taps+j]) * state[j*width+e]
								}
								sum = (sum+float64(w[e*taps+taps-1])*v)*outer + float64(biased)*float64(bias[e])
								if silu == 1 {
									sum /= 1 + math.Exp(-sum)
								}
								want[token*width+e] = sum
								for j := range taps - 2 {
									state[j*width+e] = state[(j+1)*width+e]
								}
								state[(taps-2)*width+e] = v
							}
						})
						s.inPlace(t, dispatch{
							kernel: "short_conv_f32", constants: map[string]uint32{"fc_gated": gated, "fc_silu": silu, "fc_bias": biased},
							args: map[string][]byte{"x": floatBytes(x), "in_gate": floatBytes(in), "out_gate": floatBytes(out), "w": floatBytes(w), "bias": floatBytes(bias),
								"cu_seqlens": intBytes(s.cu...), "states": intBytes(s.states...), "out": nan(len(want))},
							params: kernels.ShortConvParams{Tokens: uint32(s.tokens), Seqs: uint32(len(s.counts)), Width: uint32(width), Taps: uint32(taps),
								XStride: uint32(stride)},
							grid: [3]uint32{uint32(width+255) / 256, uint32(s.tokens), 1}, group: [3]uint32{256, 1, 1},
						}, state, want, left, 1e-5)
					})
				}
			}
		}
	}
}

func TestDeltaNet(t *testing.T) {
	for i, s := range steps {
		for _, shape := range [][4]int{{1, 1, 1, 1}, {4, 2, 24, 1}, {4, 2, 24, 2}, {3, 3, 40, 1}, {2, 1, 128, 1}} {
			for gated := range uint32(2) {
				t.Run(fmt.Sprint(i, shape, gated), func(t *testing.T) {
					const eps, normEps = 1e-3, 0.125
					heads, keyHeads, head, share := shape[0], shape[1], shape[2], shape[3]
					rng, row, n := newRand(t.Name()), (2*keyHeads+heads)*head, heads*head*head
					betaFrom, zFrom := i%2, i%3
					gates, zs := heads+betaFrom, heads*head+zFrom+1 // from token to token
					qkv, alpha, beta := normals(rng, s.tokens*row), normals(rng, s.tokens*gates), normals(rng, s.tokens*gates)
					z, gain := normals(rng, s.tokens*zs), normals(rng, head)
					alpha[(s.tokens-1)*gates] = 100 // whose exponential is no number
					decay, bias, state := normals(rng, heads), normals(rng, heads), normals(rng, s.all*n)
					for h := range decay {
						decay[h] = -0.2 * float32(h+1)
					}
					decay[0] = -0.01
					want := make([]float64, s.tokens*heads*head)
					left := s.over(state, n, func(token int, state []float64) {
						unit := func(at int) []float64 {
							x, sum := widened(qkv[token*row+at*head:][:head]), eps
							for _, v := range x {
								sum += v * v
							}
							for i := range x {
								x[i] /= math.Sqrt(sum)
							}
							return x
						}
						for h := range heads {
							gate := token*gates + h
							of := h / share % keyHeads
							q, k, own := unit(of), unit(keyHeads+of), state[h*head*head:][:head*head]
							keep := math.Exp(float64(decay[h]) * math.Log1p(math.Exp(float64(alpha[gate])+float64(bias[h]))))
							learn := 1 / (1 + math.Exp(-float64(beta[gate+betaFrom])))
							for j := range head {
								known := 0.0
								for i := range head {
									known += k[i] * keep * own[i*head+j]
								}
								more := learn * (float64(qkv[token*row+(2*keyHeads+h)*head+j]) - known)
								for i := range head {
									own[i*head+j] = keep*own[i*head+j] + k[i]*more
									want[(token*heads+h)*head+j] += q[i] * own[i*head+j] / math.Sqrt(float64(head))
								}
							}
							if gated == 1 {
								y, sum := want[(token*heads+h)*head:][:head], 0.0
								for _, v := range y {
									sum += v * v
								}
								for j := range y {
									v := float64(z[token*zs+zFrom+h*head+j])
									y[j] *= float64(gain[j]) / math.Sqrt(sum/float64(head)+normEps) * v / (1 + math.Exp(-v))
								}
							}
						}
					})
					s.inPlace(t, dispatch{
						kernel: "delta_net_f32", constants: map[string]uint32{"fc_gated": gated},
						args: map[string][]byte{"z": floatBytes(z), "gain": floatBytes(gain), "qkv": floatBytes(qkv), "alpha": floatBytes(alpha), "beta": floatBytes(beta), "decay": floatBytes(decay),
							"bias": floatBytes(bias), "cu_seqlens": intBytes(s.cu...), "states": intBytes(s.states...),
							"out": nan(len(want))},
						params: kernels.DeltaNetParams{Tokens: uint32(s.tokens), Seqs: uint32(len(s.counts)), Heads: uint32(heads), KeyHeads: uint32(keyHeads),
							Head: uint32(head), Share: uint32(share), GateStride: uint32(gates), BetaFrom: uint32(betaFrom), ZStride: uint32(zs), ZFrom: uint32(zFrom),
							Eps: eps, NormEps: normEps},
						grid: [3]uint32{uint32(heads), uint32(len(s.counts)), 1}, group: [3]uint32{uint32(head+31) / 32 * 32, 1, 1},
					}, state, want, left, 1e-5)
				})
			}
		}
	}
}

func TestMamba2(t *testing.T) {
	for i, s := range steps {
		for _, shape := range [][4]int{{1, 1, 1, 1}, {4, 2, 24, 20}, {3, 1, 40, 16}, {4, 2, 64, 128}, {2, 1, 80, 24}} {
			for gated := range uint32(2) {
				t.Run(fmt.Sprint(i, shape, gated), func(t *testing.T) {
					heads, groups, head, states := shape[0], shape[1], shape[2], shape[3]
					rng, row, n := newRand(t.Name()), heads*head+2*groups*states, heads*states*head
					from := i % 3
					dts, zs := heads+from, heads*head+from // from token to token
					xbc, dt, z := normals(rng, s.tokens*row), normals(rng, s.tokens*dts), normals(rng, s.tokens*zs)
					for i := range xbc { // so that results are about one
						if column := i % row; column >= heads*head+groups*states {
							xbc[i] /= 2
						} else if column >= heads*head {
							xbc[i] /= float32(math.Sqrt(float64(states)))
						}
					}
					dt[(s.tokens-1)*dts+from] = 100 // whose exponential is no number
					for j := range head {
						xbc[(s.tokens-1)*row+j] /= 100
					}
					decay, bias, skip, state := normals(rng, heads), normals(rng, heads), normals(rng, heads), normals(rng, s.all*n)
					for i := range state {
						state[i] /= float32(math.Sqrt(float64(states)))
					}
					for h := range decay {
						decay[h] = -0.2 * float32(h+1)
					}
					decay[0] = -0.1
					want := make([]float64, s.tokens*heads*head)
					left := s.over(state, n, func(token int, state []float64) {
						for h := range heads {
							shared := xbc[token*row+heads*head+h/(heads/groups)*states:]
							step := math.Log1p(math.Exp(float64(dt[token*dts+from+h]) + float64(bias[h])))
							keep, own := math.Exp(float64(decay[h])*step), state[h*states*head:][:states*head]
							for j := range head {
								x := float64(xbc[token*row+h*head+j])
								y := float64(skip[h]) * x
								for i := range states {
									own[i*head+j] = keep*own[i*head+j] + float64(shared[i])*step*x
									y += float64(shared[groups*states+i]) * own[i*head+j]
								}
								if gated == 1 {
									v := float64(z[token*zs+h*head+j])
									y *= v / (1 + math.Exp(-v))
								}
								want[(token*heads+h)*head+j] = y
							}
						}
					})
					s.inPlace(t, dispatch{
						kernel: "mamba2_f32", constants: map[string]uint32{"fc_gated": gated},
						args: map[string][]byte{"z": floatBytes(z), "xbc": floatBytes(xbc), "dt": floatBytes(dt), "decay": floatBytes(decay), "bias": floatBytes(bias), "skip": floatBytes(skip),
							"cu_seqlens": intBytes(s.cu...), "states": intBytes(s.states...), "out": nan(len(want))},
						params: kernels.Mamba2Params{Tokens: uint32(s.tokens), Seqs: uint32(len(s.counts)), Heads: uint32(heads), Groups: uint32(groups), Head: uint32(head), States: uint32(states),
							DtStride: uint32(dts), DtFrom: uint32(from), ZStride: uint32(zs)},
						grid: [3]uint32{uint32(heads), uint32(len(s.counts)), 1}, group: [3]uint32{kernels.Mamba2Threads(uint32(head+31) / 32 * 32), 1, 1},
					}, state, want, left, 1e-5)
				})
			}
		}
	}
}

// TestMamba2Cuts: a token's bits are the same however a text is cut into steps.
func TestMamba2Cuts(t *testing.T) {
	const heads, groups, head, states, tokens = 2, 1, 72, 24, 40
	const row, n = heads*head + 2*groups*states, heads * states * head
	rng := newRand(t.Name())
	xbc, dt, z := normals(rng, tokens*row), normals(rng, tokens*heads), normals(rng, tokens*heads*head)
	decay, bias, skip := []float32{-0.1, -1}, normals(rng, heads), normals(rng, heads)
	for _, l := range Libraries() {
		run := func(cuts ...int) (out []float32, left []byte) {
			state := floatBytes(make([]float32, 2*n))
			for i, first := range cuts {
				end := append(cuts, tokens)[i+1]
				s := stepOf([]int{first}, []int{end - first})
				s.states[1] = 1 // the same for all
				got := dispatch{
					kernel: "mamba2_f32", constants: map[string]uint32{"fc_gated": 1}, writes: []string{"out", "state_out"}, shared: map[string]string{"state": "state_out"},
					args: map[string][]byte{"z": floatBytes(z[first*heads*head:]), "xbc": floatBytes(xbc[first*row:]), "dt": floatBytes(dt[first*heads:]), "decay": floatBytes(decay), "bias": floatBytes(bias), "skip": floatBytes(skip),
						"cu_seqlens": intBytes(s.cu...), "states": intBytes(s.states...), "out": nan(s.tokens * heads * head), "state_out": state},
					params: kernels.Mamba2Params{Tokens: uint32(s.tokens), Seqs: 1, Heads: heads, Groups: groups, Head: head, States: states, DtStride: heads, ZStride: heads * head},
					grid:   [3]uint32{heads, 1, 1}, group: [3]uint32{192, 1, 1},
				}.run(t, l)
				out, state = append(out, floats(got[0])...), got[1]
			}
			return out, state
		}
		out, left := run(0)
		for _, cuts := range [][]int{{0, 1, 2, 3, 4}, {0, 7, 16, 33}, {0, 5, 6, 39}} {
			cut, state := run(cuts...)
			require.Equal(t, out, cut, "%s: cut at %v", l.ISA(), cuts)
			require.Equal(t, left, state, "%s: cut at %v", l.ISA(), cuts)
		}
	}
}
