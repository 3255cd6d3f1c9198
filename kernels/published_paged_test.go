package kernels_test

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/kernels"
)

// pagedCall is attention of one query a sequence over a cache in vLLM's layout, with
// gaps between its heads and blocks and between the queries.
type pagedCall struct {
	attentionShape
	paging
	features
	owners                []int32   // the sequence of each query's token; nil for a query a sequence
	slopes                []float64 // of ALiBi by head; nil for none
	blockStride, kvStride int
	q, k, v               tensor
}

const queryGap = 8 // elements between the queries of two sequences

func newPaged(rng *rand.Rand, e kernels.Element, s attentionShape, contexts []int, block int, f features, slopes []float64) *pagedCall {
	c := &pagedCall{attentionShape: s, features: f, slopes: slopes,
		paging: batch{lens: slices.Repeat([]int{1}, len(contexts)), contexts: contexts, block: block}.page(rng)}
	c.kvStride = s.head*block + 16
	c.blockStride = s.kvHeads*c.kvStride + 8
	c.q = random(rng, e, len(contexts)*(s.heads*s.head+queryGap))
	k := slices.Repeat([]float64{math.NaN()}, c.blocks*c.blockStride)
	v := slices.Clone(k)
	for seq, context := range contexts {
		for j := c.firstSeen(context); j < context; j++ { // all other slots hold NaN
			for h := range s.kvHeads {
				for d := range s.head {
					k[c.keyAt(e, seq, j, h, d)], v[c.valueAt(seq, j, h, d)] = rng.NormFloat64(), rng.NormFloat64()
				}
			}
		}
	}
	c.k = filled(e, len(k), func(i int) float64 { return k[i] })
	c.v = filled(e, len(v), func(i int) float64 { return v[i] })
	return c
}

func (c *pagedCall) firstSeen(context int) int {
	if c.window == 0 {
		return 0
	}
	return max(0, context-c.window)
}

func (c *pagedCall) headAt(slot, kvHead int) int {
	return slot/c.block*c.blockStride + kvHead*c.kvStride
}

// keyAt is where element d of a key lies: pieces of 16 bytes, those of a block's slots
// side by side.
func (c *pagedCall) keyAt(e kernels.Element, seq, j, kvHead, d int) int {
	x, slot := 16/e.Size(), c.slot(seq, j)
	return c.headAt(slot, kvHead) + (d/x*c.block+slot%c.block)*x + d%x
}

func (c *pagedCall) valueAt(seq, j, kvHead, d int) int {
	slot := c.slot(seq, j)
	return c.headAt(slot, kvHead) + d*c.block + slot%c.block
}

func (c *pagedCall) partitions() int { return max(1, ceil(slices.Max(c.contexts), 512)) }

func (c *pagedCall) params() kernels.PagedAttentionParams {
	return kernels.PagedAttentionParams{
		Heads: uint32(c.heads), KvHeads: uint32(c.kvHeads), Head: uint32(c.head), Block: uint32(c.block),
		TableStride: uint32(c.stride), QStride: uint32(c.heads*c.head + queryGap), BlockStride: uint32(c.blockStride),
		HeadStride: uint32(c.kvStride), Partitions: uint32(c.partitions()), Scale: scaleOf(c.attentionShape),
		Window: uint32(c.window), SoftCap: float32(c.softCap),
	}
}

// constants asks for the features; specialised also makes a pipeline for the sizes.
func (c *pagedCall) constants(specialised bool) map[string]uint32 {
	out := map[string]uint32{}
	if specialised {
		out["fc_head"], out["fc_block"] = uint32(c.head), uint32(c.block)
	}
	if c.owners != nil {
		out["fc_map"] = 1
	}
	for name, asked := range map[string]bool{"fc_alibi": c.slopes != nil, "fc_window": c.window != 0, "fc_soft_cap": c.softCap != 0} {
		if asked {
			out[name] = 1
		}
	}
	return out
}

// queries is how many there are.
func (c *pagedCall) queries() int {
	if c.owners != nil {
		return len(c.owners)
	}
	return len(c.contexts)
}

func (c *pagedCall) length() int { return c.queries() * c.heads * c.head }

// rows says which keys each query sees.
func (c *pagedCall) rows() map[string]tensor {
	in := map[string]tensor{"context_lens": ints(c.contextLens)}
	if c.owners != nil {
		in["map"], in["positions"] = ints(c.owners), ints(c.positions)
	}
	return in
}

// addSinks asks for them in what comes last.
func (c *pagedCall) addSinks(l *launch) {
	if c.sinks != nil {
		l.constants["fc_sinks"] = 1
		l.buffers["sinks"] = filled(kernels.Float, len(c.sinks), func(i int) float64 { return c.sinks[i] })
	}
}

func (c *pagedCall) inputs() map[string]tensor {
	in := c.rows()
	maps.Copy(in, map[string]tensor{"q": c.q, "k_cache": c.k, "v_cache": c.v, "block_table": ints(c.table)})
	if c.slopes != nil {
		in["alibi_slopes"] = filled(kernels.Float, len(c.slopes), func(i int) float64 { return c.slopes[i] })
	}
	return in
}

// v1 launches paged_attention_v1 and returns its result.
func (c *pagedCall) v1(t *testing.T, specialised bool) tensor {
	t.Helper()
	l := launch{
		kernel: "paged_attention_v1_" + suffixOf[c.q.element], constants: c.constants(specialised), buffers: c.inputs(),
		params: c.params(), grid: [3]int{c.heads, c.queries(), 1}, group: 256,
	}
	c.addSinks(&l)
	l.buffers["out"] = result(c.q.element, c.length())
	return l.run(t)["out"]
}

// v2 launches paged_attention_v2 and its reduction.
func (c *pagedCall) v2(t *testing.T, specialised bool) tensor {
	t.Helper()
	n := c.queries() * c.heads * c.partitions()
	l := launch{
		kernel: "paged_attention_v2_" + suffixOf[c.q.element], constants: c.constants(specialised), buffers: c.inputs(),
		params: c.params(), grid: [3]int{c.heads, c.queries(), c.partitions()}, group: 256,
	}
	maps.Copy(l.buffers, map[string]tensor{"part": result(c.q.element, n*c.head), "exp_sums": result(kernels.Float, n), "max_logits": result(kernels.Float, n)})
	parts := l.run(t)
	reduce := launch{
		kernel: "paged_attention_reduce_" + suffixOf[c.q.element], constants: map[string]uint32{}, buffers: c.rows(),
		params: c.params(), grid: [3]int{c.heads, c.queries(), 1}, group: ceil(c.head, 32) * 32,
	}
	maps.Copy(reduce.buffers, map[string]tensor{"exp_sums": parts["exp_sums"], "max_logits": parts["max_logits"], "part": parts["part"], "out": result(c.q.element, c.length())})
	for name, bits := range c.constants(specialised) {
		if name == "fc_head" || name == "fc_map" {
			reduce.constants[name] = bits
		}
	}
	c.addSinks(&reduce)
	return reduce.run(t)["out"]
}

// want is the formula, key by key: the soft cap, then ALiBi, as in vLLM.
func (c *pagedCall) want() []product {
	q, k, v := c.q.values(), c.k.values(), c.v.values()
	out := make([]product, c.length())
	for seq, context := range c.contexts {
		for h := range c.heads {
			from, kvHead := c.firstSeen(context), h/(c.heads/c.kvHeads)
			query := q[seq*(c.heads*c.head+queryGap)+h*c.head:][:c.head]
			scores := make([]float64, context-from)
			highest, total := math.Inf(-1), 0.0
			for i := range scores {
				for d, x := range query {
					scores[i] += x * k[c.keyAt(c.q.element, seq, from+i, kvHead, d)]
				}
				scores[i] *= float64(scaleOf(c.attentionShape))
				if c.softCap != 0 {
					scores[i] = c.softCap * math.Tanh(scores[i]/c.softCap)
				}
				if c.slopes != nil {
					scores[i] += c.slopes[h] * float64(from+i-context+1)
				}
				highest = max(highest, scores[i])
			}
			if c.sinks != nil {
				highest = max(highest, c.sinks[h])
				total = math.Exp(c.sinks[h] - highest)
			}
			for i := range scores {
				scores[i] = math.Exp(scores[i] - highest)
				total += scores[i]
			}
			for i := range scores {
				for d := range c.head {
					term := scores[i] / total * v[c.valueAt(seq, from+i, kvHead, d)]
					p := &out[(seq*c.heads+h)*c.head+d]
					p.value, p.scale = p.value+term, p.scale+math.Abs(term)
				}
			}
		}
	}
	return out
}

func (c *pagedCall) check(t *testing.T, specialised bool) {
	t.Helper()
	want, types := c.want(), []kernels.Element{c.q.element}
	compareProducts(t, want, c.v1(t, specialised), types)
	compareProducts(t, want, c.v2(t, specialised), types)
}

// alibiSlopes fall by powers of two, as in the paper.
func alibiSlopes(heads int) []float64 {
	out := make([]float64, heads)
	for i := range out {
		out[i] = math.Exp2(-8 * float64(i+1) / float64(heads))
	}
	return out
}

// TestPagedAttention takes the grid of Aphrodite's test and the other sizes that vLLM
// has. The bounds are those of all attention here: for floats, 1e-5 of the size of the
// terms, where Aphrodite allows 1e-3.
func TestPagedAttention(t *testing.T) {
	type size struct{ heads, kvHeads, head, block int }
	var sizes []size
	for i, head := range []int{64, 80, 96, 112, 128, 256, 32, 120, 192} {
		for j, block := range []int{16, 32, 8} {
			for k, heads := range [][2]int{{40, 40}, {64, 8}, {3, 1}} {
				of := size{heads[0], heads[1], head, block}
				switch inPaper := i < 6 && j < 2 && k < 2; {
				case everything() && (inPaper || k == 2):
					sizes = append(sizes, of)
				case !everything() && k == 2 && (i+j)%3 == 0:
					sizes = append(sizes, of)
				}
			}
		}
	}
	contexts := few([]int{1, 33, 530}, []int{1, 33, 64, 513, 700, 17, 1100})
	instances(t, "paged_attention_v1", func(t *testing.T, name string, types []kernels.Element) {
		for i, s := range sizes {
			for _, alibi := range few([]bool{i%2 == 0}, []bool{false, true}) {
				t.Run(fmt.Sprintf("%v, alibi %v", s, alibi), func(t *testing.T) {
					var slopes []float64
					if alibi {
						slopes = alibiSlopes(s.heads)
					}
					shape := attentionShape{s.heads, s.kvHeads, s.head}
					newPaged(newRand(t.Name()), types[0], shape, contexts, s.block, features{}, slopes).check(t, i%2 == 0)
				})
			}
		}
	})
}

// TestPagedAttentionFeatures sees windows that end at, before and behind a block and a
// partition. What a window hides is NaN.
func TestPagedAttentionFeatures(t *testing.T) {
	contexts := []int{1, 40, 600, 1030}
	instances(t, "paged_attention_v1", func(t *testing.T, name string, types []kernels.Element) {
		for i, f := range []features{{window: 1}, {window: 6}, {window: 16}, {window: 88}, {window: 2000}, {softCap: 1.5}, {window: 519, softCap: 20},
			{sinks: []float64{0, 2, -5, 40}}, {window: 70, sinks: []float64{3, -30, 1, 0}}} {
			for j, block := range few([]int{16}, []int{8, 16, 32}) {
				t.Run(fmt.Sprintf("%v by %d", f, block), func(t *testing.T) {
					s := attentionShape{4, 2, []int{64, 120}[i%2]}
					var slopes []float64
					if i%3 == 0 {
						slopes = alibiSlopes(s.heads)
					}
					newPaged(newRand(t.Name()), types[0], s, contexts, block, f, slopes).check(t, (i+j)%2 == 0)
				})
			}
		}
	})
}

// TestPagedAttentionWithoutKeys gives a sequence no keys, among others that have some.
func TestPagedAttentionWithoutKeys(t *testing.T) {
	instances(t, "paged_attention_v1", func(t *testing.T, name string, types []kernels.Element) {
		c := newPaged(newRand(t.Name()), types[0], attentionShape{2, 1, 32}, []int{0, 5, 0}, 8, features{}, nil)
		c.check(t, false)
		for _, got := range []tensor{c.v1(t, true), c.v2(t, true)} {
			require.Equal(t, make([]float64, 64), got.values()[:64])
		}
	})
}

// TestPagedAttentionOfTokens: a token whose sequence a map names has the bits of a sequence
// that ends with it.
func TestPagedAttentionOfTokens(t *testing.T) {
	instances(t, "paged_attention_v1", func(t *testing.T, name string, types []kernels.Element) {
		for i, f := range []features{{}, {window: 40, softCap: 5, sinks: []float64{0, 2, -5, 1}}} {
			s, rng := attentionShape{4, 2, 64}, newRand(t.Name())
			tokens := newPaged(rng, types[0], s, []int{70, 5, 600}, 16, f, [][]float64{nil, alibiSlopes(s.heads)}[i])
			tokens.k, tokens.v = random(rng, types[0], tokens.k.length), random(rng, types[0], tokens.v.length)
			tokens.positions, tokens.owners = []int32{4, 69, 0, 530, 3, 599, 900}, []int32{1, 0, 0, 2, -1, 2, 2}
			tokens.q = random(rng, types[0], len(tokens.owners)*(s.heads*s.head+queryGap))
			alone := *tokens
			alone.owners, alone.contexts, alone.contextLens, alone.table = nil, nil, nil, nil
			for j, seq := range tokens.owners {
				context := 0
				if seq >= 0 {
					context = min(int(tokens.positions[j])+1, tokens.contexts[seq])
				}
				alone.contexts, alone.contextLens = append(alone.contexts, context), append(alone.contextLens, int32(context))
				row := max(0, int(seq)) * tokens.stride
				alone.table = append(alone.table, tokens.table[row:row+tokens.stride]...)
			}
			require.Equal(t, alone.v1(t, true).bytes, tokens.v1(t, true).bytes)
			require.Equal(t, alone.v2(t, false).bytes, tokens.v2(t, false).bytes)
			require.NotEqual(t, tokens.v1(t, true).values()[:64], tokens.v1(t, true).values()[s.heads*s.head:][:64])
		}
	})
}

// TestPagedAttentionShowsNaN puts a NaN into one key, and an infinity into one value,
// that are seen.
func TestPagedAttentionShowsNaN(t *testing.T) {
	instances(t, "paged_attention_v1", func(t *testing.T, name string, types []kernels.Element) {
		s := attentionShape{2, 2, 32}
		c := newPaged(newRand(t.Name()), types[0], s, []int{600, 30, 30}, 16, features{}, nil)
		c.k.put(c.keyAt(types[0], 0, 520, 1, 3), math.NaN())
		c.v.put(c.valueAt(1, 7, 0, 9), math.Inf(1))
		for _, got := range []tensor{c.v1(t, false), c.v2(t, false)} {
			for i, v := range got.values() {
				seq, head, d := i/64, i/32%2, i%32
				require.Equal(t, seq == 0 && head == 1, math.IsNaN(v), "%d: %v", i, v)
				require.Equal(t, seq == 1 && head == 0 && d == 9, math.IsInf(v, 1), "%d: %v", i, v)
			}
		}
	})
}

// TestPagedAttentionAgrees writes what attention_vec reads from our cache into one of
// vLLM's layout and compares the results.
func TestPagedAttentionAgrees(t *testing.T) {
	instances(t, "paged_attention_v1", func(t *testing.T, name string, types []kernels.Element) {
		e := types[0]
		for _, f := range []features{{}, {window: 33, softCap: 5}} {
			s := attentionShape{6, 2, 80}
			rng := newRand(t.Name())
			c := newPaged(rng, e, s, []int{1, 90, 45}, 16, f, nil)
			ours := newAttention(rng, s, c.paging, []kernels.Element{e, e})
			ours.features = f
			for seq := range c.contexts {
				copy(ours.q.bytes[seq*s.heads*s.head*e.Size():][:s.heads*s.head*e.Size()], c.q.bytes[seq*(s.heads*s.head+queryGap)*e.Size():])
			}
			c.k, c.v = c.reshape(t, ours.k, ours.v)
			suffix := suffixOf[e]
			own := ours.run(t, "attention_vec_"+suffix+"_"+suffix, nil).values()
			want := ours.want()
			for i := range want {
				want[i].value = own[i]
			}
			compareProducts(t, want, c.v1(t, true), types)
			compareProducts(t, want, c.v2(t, true), types)
		}
	})
}

// reshape copies our cache, row by row, into one of vLLM's layout.
func (c *pagedCall) reshape(t *testing.T, k, v tensor) (tensor, tensor) {
	width := c.kvHeads * c.head
	var slots []int32
	var rows [2][]float64
	for seq, context := range c.contexts {
		for j := range context {
			slots = append(slots, int32(c.slot(seq, j)))
			for i, cache := range []tensor{k, v} {
				for e := range width {
					rows[i] = append(rows[i], cache.at(c.element(c.slot(seq, j), e/c.head, c.kvHeads, c.head, e%c.head)))
				}
			}
		}
	}
	row := func(i int) tensor {
		return filled(k.element, len(rows[i]), func(j int) float64 { return rows[i][j] })
	}
	got := launch{
		kernel: "reshape_and_cache_" + suffixOf[k.element],
		buffers: map[string]tensor{"k": row(0), "v": row(1), "slots": ints(slots), "k_cache": result(k.element, c.blocks*c.blockStride),
			"v_cache": result(k.element, c.blocks*c.blockStride)},
		params: kernels.PagedWriteParams{Tokens: uint32(len(slots)), KvHeads: uint32(c.kvHeads), Head: uint32(c.head), Block: uint32(c.block),
			KStride: uint32(width), VStride: uint32(width), BlockStride: uint32(c.blockStride), HeadStride: uint32(c.kvStride)},
		grid: [3]int{ceil(width, 256), len(slots), 1}, group: 256,
	}.run(t)
	return got["k_cache"], got["v_cache"]
}

// anyBits returns a tensor of any bits, NaNs of all kinds among them.
func anyBits(rng *rand.Rand, e kernels.Element, n int) tensor {
	t := tensor{e, make([]byte, sizeOf(e, n)), n}
	for i := range t.bytes {
		t.bytes[i] = byte(rng.Uint32())
	}
	return t
}

// raw returns the bytes of one element.
func (t tensor) raw(i int) []byte { return t.bytes[i*t.element.Size():][:t.element.Size()] }

// TestReshapeAndCache compares bytes; negative slots and what lies between stay.
func TestReshapeAndCache(t *testing.T) {
	instances(t, "reshape_and_cache", func(t *testing.T, name string, types []kernels.Element) {
		for _, s := range []struct{ kvHeads, head, block int }{{2, 64, 16}, {4, 128, 16}, {3, 80, 8}, {1, 120, 32}} {
			t.Run(fmt.Sprint(s), func(t *testing.T) {
				e, rng := types[0], newRand(t.Name())
				slots := []int32{17, -1, 0, 95, 31, -7, 32, 16}
				width, x := s.kvHeads*s.head, 16/e.Size()
				kStride, vStride, headStride := width+8, width+5, s.head*s.block+8
				blockStride, blocks := s.kvHeads*headStride+16, 96/s.block
				k, v := anyBits(rng, e, len(slots)*kStride), anyBits(rng, e, len(slots)*vStride)
				want := []tensor{result(e, blocks*blockStride), result(e, blocks*blockStride)}
				for token, slot := range slots {
					for i := 0; slot >= 0 && i < width; i++ {
						d, in := i%s.head, int(slot)%s.block
						at := int(slot)/s.block*blockStride + i/s.head*headStride
						copy(want[0].raw(at+d/x*s.block*x+in*x+d%x), k.raw(token*kStride+i))
						copy(want[1].raw(at+d*s.block+in), v.raw(token*vStride+i))
					}
				}
				got := launch{
					kernel: name,
					buffers: map[string]tensor{"k": k, "v": v, "slots": ints(slots), "k_cache": result(e, blocks*blockStride),
						"v_cache": result(e, blocks*blockStride)},
					params: kernels.PagedWriteParams{Tokens: uint32(len(slots)), KvHeads: uint32(s.kvHeads), Head: uint32(s.head),
						Block: uint32(s.block), KStride: uint32(kStride), VStride: uint32(vStride), BlockStride: uint32(blockStride),
						HeadStride: uint32(headStride)},
					grid: [3]int{ceil(width, 256), len(slots), 1}, group: 256,
				}.run(t)
				require.Equal(t, want[0].bytes, got["k_cache"].bytes)
				require.Equal(t, want[1].bytes, got["v_cache"].bytes)
			})
		}
	})
}
