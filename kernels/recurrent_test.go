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

// recurrentCases are steps of sequences that begin, go on within a block, at its end and far
// from it, and bring nothing, one token, some and several blocks of them.
var recurrentCases = few([]batch{
	{lens: []int{3, 1, 0, 1}, contexts: []int{3, 9, 4, 17}, block: 16},
	{lens: []int{40, 2, 2}, contexts: []int{45, 2, 8}, block: 7},
}, []batch{
	{lens: []int{1}, contexts: []int{1}, block: 1},
	{lens: []int{5, 1, 2}, contexts: []int{9, 1, 2}, block: 1},
	{lens: []int{3, 1, 0, 1}, contexts: []int{3, 9, 4, 17}, block: 16},
	{lens: []int{40, 2, 1}, contexts: []int{45, 2, 8}, block: 7},
	{lens: []int{1, 1, 1, 1}, contexts: []int{2, 3, 4, 5}, block: 4},
	{lens: []int{2, 3, 4, 5}, contexts: []int{65, 66, 67, 68}, block: 64},
})

// state makes a recurrent state of so many elements for each block, NaN where no sequence goes
// on from, and returns what each sequence had before the step; nil where it begins.
func (p paging) state(rng *rand.Rand, n int) (all tensor, before [][]float64) {
	all = filled(kernels.Float, p.blocks*n, func(int) float64 { return math.NaN() })
	for seq, length := range p.lens {
		start := p.contexts[seq] - length
		if start == 0 {
			before = append(before, nil)
			continue
		}
		from := int(p.table[seq*p.stride+(start-1)/p.block]) * n
		for i := range n {
			all.put(from+i, rng.NormFloat64())
		}
		before = append(before, all.values()[from:][:n])
	}
	return all, before
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

// left replaces, in what the states were, those of the blocks that a sequence's tokens lie in:
// next takes its state, which begins with zeros, over token t of the step.
func (p paging) left(state tensor, before [][]float64, n int, next func(t int, state []float64)) []float64 {
	want := state.values()
	for seq, length := range p.lens {
		own := slices.Clone(before[seq])
		if own == nil {
			own = make([]float64, n)
		}
		for i := range length {
			t := int(p.cu[seq]) + i
			next(t, own)
			copy(want[int(p.table[seq*p.stride+int(p.positions[t])/p.block])*n:], own)
		}
	}
	return want
}

func TestShortConv(t *testing.T) {
	instances(t, "short_conv", func(t *testing.T, name string, types []kernels.Element) {
		for _, b := range recurrentCases {
			for _, taps := range few([]int{3, 4}, []int{2, 3, 4, 8}) {
				for _, gated := range []bool{false, true} {
					t.Run(fmt.Sprint(b, taps, gated), func(t *testing.T) {
						rng, width := newRand(t.Name()), few([]int{70}, []int{300})[0]
						p, stride, n := b.page(rng), width+3, (taps-1)*width
						tokens := b.tokens()
						x, in, out := random(rng, types[0], tokens*stride), random(rng, types[0], tokens*stride), random(rng, types[0], tokens*stride)
						w := random(rng, kernels.Float, width*taps)
						state, before := p.state(rng, n)
						l := launch{
							kernel: name, constants: map[string]uint32{},
							buffers: map[string]tensor{"x": x, "w": w, "positions": ints(p.positions), "cu_seqlens": ints(p.cu),
								"block_table": ints(p.table), "out": result(types[0], tokens*width)},
							params: kernels.ShortConvParams{Tokens: uint32(tokens), Seqs: uint32(len(p.lens)), Width: uint32(width), Taps: uint32(taps),
								XStride: uint32(stride), Block: uint32(p.block), TableStride: uint32(p.stride)},
							grid: [3]int{ceil(width, 256), tokens, 1}, group: 256,
						}
						if gated {
							l.constants["fc_gated"], l.buffers["in_gate"], l.buffers["out_gate"] = 1, in, out
						}
						got, after := l.runStates(t, state)
						want := make([]float64, tokens*width)
						left := p.left(state, before, n, func(token int, state []float64) {
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
	instances(t, "delta_net", func(t *testing.T, name string, types []kernels.Element) {
		for _, b := range recurrentCases {
			for _, s := range few([][3]int{{4, 2, 24}, {3, 3, 40}}, [][3]int{{1, 1, 1}, {4, 2, 24}, {3, 3, 40}, {6, 1, 128}, {2, 2, 256}}) {
				t.Run(fmt.Sprint(b, s), func(t *testing.T) {
					const eps = 1e-3
					rng, heads, keyHeads, head := newRand(t.Name()), s[0], s[1], s[2]
					p, n, row := b.page(rng), heads*head*head, (2*keyHeads+heads)*head
					tokens := b.tokens()
					qkv, alpha, beta := random(rng, types[0], tokens*row), random(rng, types[0], tokens*heads), random(rng, types[0], tokens*heads)
					alpha.put(0, 40) // whose exponential is no number worth adding one to
					decay := filled(kernels.Float, heads, func(i int) float64 { return -0.2 * float64(i+1) })
					bias := random(rng, kernels.Float, heads)
					state, before := p.state(rng, n)
					got, after := launch{
						kernel: name,
						buffers: map[string]tensor{"qkv": qkv, "alpha": alpha, "beta": beta, "decay": decay, "bias": bias, "positions": ints(p.positions),
							"cu_seqlens": ints(p.cu), "block_table": ints(p.table), "out": result(types[0], tokens*heads*head)},
						params: kernels.DeltaNetParams{Tokens: uint32(tokens), Seqs: uint32(len(p.lens)), Heads: uint32(heads), KeyHeads: uint32(keyHeads),
							Head: uint32(head), Block: uint32(p.block), TableStride: uint32(p.stride), Eps: eps},
						grid: [3]int{heads, len(p.lens), 1}, group: ceil(head, 32) * 32,
					}.runStates(t, state)
					want := make([]float64, tokens*heads*head)
					left := p.left(state, before, n, func(token int, state []float64) {
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
							q, k, own := unit(h%keyHeads), unit(keyHeads+h%keyHeads), state[h*head*head:][:head*head]
							keep := math.Exp(decay.at(h) * math.Log1p(math.Exp(alpha.at(token*heads+h)+bias.at(h))))
							learn := 1 / (1 + math.Exp(-beta.at(token*heads+h)))
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
						}
					})
					compare(t, want, got.values(), head, worst(types...))
					for i, v := range after.values() {
						if math.IsNaN(left[i]) {
							require.True(t, math.IsNaN(v), "element %d of the states", i)
							continue
						}
						require.InDelta(t, left[i], v, 1e-5*max(1, math.Abs(left[i])), "element %d of the states", i)
					}
				})
			}
		}
	})
}
