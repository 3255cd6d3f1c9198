package native

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/kernels"
)

// TestLinearSameBits: a token has the bits of linear_vec with that token alone, whoever
// stands beside it, in either kernel, whichever way a weight lies, on any threads.
func TestLinearSameBits(t *testing.T) {
	each(t, func(t *testing.T, l Library) {
		for _, w := range weightTypes {
			const k, n = 768, 96
			most := linear{tokens: 40, k: k, rows: []int{n}, types: []ir.DType{w}, bias: true, activation: ir.GELU, residual: true}.build(t, true)
			moved := l.Interleave(uint32(w), n, k, most.args["w0"])
			some := func(first, tokens int, name string, interleaved bool, o Options) []byte {
				d := most.clone()
				d.kernel = name
				for name, width := range map[string]int{"x": 4 * k, "residual": 4 * n, "out": 4 * n} {
					d.args[name] = d.args[name][first*width:][:tokens*width]
				}
				d.params = kernels.LinearParams{Tokens: uint32(tokens), K: k, N0: n, XStride: k, OutStride: n}
				if interleaved {
					d.args["w0"], d.interleaved = moved, []string{"w0"}
				}
				return d.runWith(t, l, o)[0]
			}
			var want []byte
			for i := range 40 {
				want = append(want, some(i, 1, "linear_vec_f32_f32", false, Options{})...)
			}
			for i, tokens := range []int{1, 2, 3, 4, 5, 6, 7, 9, 13, 40} {
				for _, first := range []int{0, (40 - tokens) / 2, 40 - tokens} {
					for _, interleaved := range []bool{false, true} {
						if interleaved && moved == nil {
							continue
						}
						name := []string{"linear_vec_f32_f32", "linear_mat_f32_f32"}[(i+first)%2]
						got := some(first, tokens, name, interleaved, Options{Threads: 1 + i%8, Cut: uint64(first % 3)})
						require.True(t, bytes.Equal(want[4*n*first:][:len(got)], got), "%v: %d tokens from %d in %s, interleaved: %t", w, tokens, first, name, interleaved)
					}
				}
			}
		}
	})
}

// story is sequences of an attention layer with all their queries, keys and values.
type story struct {
	featured
	q, k, v [][]byte // by sequence: [tokens, heads · head], [tokens, kv_heads · head]
}

func (c featured) story(t testing.TB, lengths ...int) story {
	s := story{featured: c}
	rng := newRand(fmt.Sprint(c, lengths))
	for _, n := range lengths {
		k, _ := stored(t, rng, n*c.kvHeads*c.head, c.cache)
		v, _ := stored(t, rng, n*c.kvHeads*c.head, c.cache)
		q := normals(rng, n*c.heads*c.head)
		for i := range q {
			q[i] *= 3 // so that largest scores rise now and then
		}
		s.q, s.k, s.v = append(s.q, floatBytes(q)), append(s.k, k), append(s.v, v)
	}
	return s
}

// span is what a step brings of a sequence.
type span struct{ sequence, from, to int }

// step returns the dispatch of a step with these spans, over a cache of such blocks that lie in
// any order.
func (s story) step(rng *rand.Rand, family string, block int, spans ...span) dispatch {
	c := s.featured
	c.block = block
	blockStride, headStride, rowStride := c.strides()
	perSeq := 0
	for _, p := range spans {
		perSeq = max(perSeq, (p.to+block-1)/block)
	}
	blocks := perSeq*len(spans) + 1
	order := rng.Perm(blocks)
	bytesOf := func(elements int) int { return int(c.cache.Bytes(int64(elements))) }
	cache := make([][]byte, 2)
	for i := range cache {
		cache[i] = make([]byte, bytesOf(blocks*blockStride))
	}
	var q []byte
	var positions, lengths, table []int32
	starts := []int32{0}
	for b, p := range spans {
		row := order[b*perSeq:][:perSeq]
		for i, block := range row {
			if i*c.block >= p.to {
				block = -1
			}
			table = append(table, int32(block))
		}
		for j := range p.to {
			for h := range c.kvHeads {
				to, from, n := bytesOf(row[j/block]*blockStride+h*headStride+j%block*rowStride), bytesOf((j*c.kvHeads+h)*c.head), bytesOf(c.head)
				copy(cache[0][to:][:n], s.k[p.sequence][from:])
				copy(cache[1][to:][:n], s.v[p.sequence][from:])
			}
		}
		width := 4 * c.heads * c.head
		q = append(q, s.q[p.sequence][p.from*width:p.to*width]...)
		for position := p.from; position < p.to; position++ {
			positions = append(positions, int32(position))
		}
		lengths, starts = append(lengths, int32(p.to)), append(starts, int32(len(positions)))
	}
	d := dispatch{
		kernel: family + "_f32_" + c.cache.String(),
		args: map[string][]byte{"q": q, "k_cache": cache[0], "v_cache": cache[1], "positions": intBytes(positions...),
			"cu_seqlens": intBytes(starts...), "context_lens": intBytes(lengths...), "block_table": intBytes(table...), "out": nan(len(q) / 4)},
		params: kernels.AttentionParams{Tokens: uint32(len(positions)), Seqs: uint32(len(spans)), Heads: uint32(c.heads),
			KvHeads: uint32(c.kvHeads), Head: uint32(c.head), Block: uint32(block), TableStride: uint32(perSeq),
			BlockStride: uint32(blockStride), HeadStride: uint32(headStride), RowStride: uint32(rowStride),
			Scale: float32(1 / math.Sqrt(float64(c.head))), Window: uint32(c.window), SoftCap: float32(c.cap)},
		writes: []string{"out"}, constants: c.constants(),
	}
	if c.sinks != nil {
		d.args["sinks"] = floatBytes(c.sinks)
	}
	if c.slopes != nil {
		d.args["slopes"] = floatBytes(c.slopes)
	}
	return d
}

// TestAttentionSameBits: a token has the bits of attention_vec with that token alone over a
// contiguous cache, whoever stands beside it, in either kernel, however its prompt is cut,
// in blocks of any size, on any threads.
func TestAttentionSameBits(t *testing.T) {
	t.Skip("attention_vec cuts contexts by the tokens of a step, and the kernels differ in their order of sums")
	alibi := []float32{0.02, 0.01, 0.5, 0.001, 0.1, 0.3, 0.04, 0.01}
	for _, c := range []featured{
		{attention: attention{heads: 4, kvHeads: 2, head: 64, cache: ir.F16}},
		{attention: attention{heads: 2, kvHeads: 2, head: 128, cache: ir.F16}, bySlot: true},
		{attention: attention{heads: 7, kvHeads: 1, head: 40, cache: ir.F32}, cap: 20},
		{attention: attention{heads: 6, kvHeads: 1, head: 256, cache: ir.F16}, window: 600},
		{attention: attention{heads: 8, kvHeads: 2, head: 32, cache: ir.Q8_0}, window: 100, sinks: alibi},
		{attention: attention{heads: 8, kvHeads: 8, head: 8, cache: ir.F32}, slopes: alibi},
	} {
		t.Run(c.String(), func(t *testing.T) {
			lengths := []int{1700, 1, 530, 70, 1100, 16}
			s := c.story(t, lengths...)
			each(t, func(t *testing.T, l Library) {
				rng := rand.New(rand.NewPCG(5, 7))
				width := 4 * c.heads * c.head
				known := map[span][]byte{}
				alone := func(sequence, position int) []byte {
					p := span{sequence, position, position + 1}
					if known[p] == nil {
						known[p] = s.step(rng, "attention_vec", position+1, p).runWith(t, l, Options{})[0]
					}
					return known[p]
				}
				// Of long spans the first, the last and a few tokens between are looked at.
				check := func(family string, block int, o Options, spans ...span) {
					out := s.step(rng, family, block, spans...).runWith(t, l, o)[0]
					for _, p := range spans {
						for at := p.from; at < p.to; at++ {
							if at != p.from && at != p.to-1 && rng.IntN(p.to-p.from) > 6 {
								continue
							}
							require.True(t, bytes.Equal(alone(p.sequence, at), out[(at-p.from)*width:][:width]),
								"token %d of a sequence, in %v by %s, blocks of %d, %+v", at, spans, family, block, o)
						}
						out = out[(p.to-p.from)*width:]
					}
				}
				blocks := []int{16, 64, 32, 7, 48, 2048, 1}
				for round := range 7 {
					block, o := blocks[round], Options{Threads: 1 + round, Cut: uint64(round % 4)}
					var decoding, mixed []span
					for _, i := range rng.Perm(len(lengths))[:1+round%len(lengths)] {
						to := 1 + rng.IntN(lengths[i])
						decoding = append(decoding, span{i, to - 1, to})
						mixed = append(mixed, span{i, max(0, to-[]int{1, 3, 40, 200}[rng.IntN(4)]), to})
					}
					check("attention_vec", block, o, decoding...)
					check("attention_tile", block, o, decoding...)
					check("attention_vec", block, o, mixed...)
					check("attention_tile", block, o, mixed...)
				}
				cuts := []int{0, 1 + rng.IntN(600), 601 + rng.IntN(400), lengths[0]}
				for i := range cuts[1:] {
					check("attention_tile", 64, Options{Threads: 2}, span{0, cuts[i], cuts[i+1]})
				}
			})
		})
	}
}
