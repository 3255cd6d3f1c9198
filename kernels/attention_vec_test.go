package kernels_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/kernels"
	"github.com/smelt-ml/smelt/kernels/published"
)

// mappedBatches has steps of every kind: decoding, chunks of prompts, both, ragged steps
// with empty sequences, and verification of drafts.
var mappedBatches = map[string]batch{
	"decode":      {lens: []int{1, 1, 1, 1, 1}, contexts: []int{37, 1, 300, 64, 5}, block: 16},
	"prefill":     {lens: []int{33, 20}, contexts: []int{33, 52}, block: 32},
	"mixed":       {lens: []int{1, 1, 34, 1, 9}, contexts: []int{70, 3, 34, 40, 30}, block: 16},
	"ragged":      {lens: []int{0, 3, 0, 0, 31, 1, 0}, contexts: []int{4, 3, 0, 9, 65, 2, 1}, block: 7},
	"verify":      {lens: []int{5, 5, 5}, contexts: []int{20, 133, 64}, block: 8},
	"one request": {lens: []int{6}, contexts: []int{290}, block: 512},
}

// owners returns the host's map: the sequence of every token, or of every tile of `rows`
// tokens, and −1 for surplus tiles.
func (p paging) owners(rows int) []int32 {
	if rows == 1 {
		var out []int32
		for seq, n := range p.lens {
			out = append(out, slices.Repeat([]int32{int32(seq)}, n)...)
		}
		return out
	}
	out := slices.Repeat([]int32{-1}, p.tiles(rows))
	for seq, n := range p.lens {
		for i := range ceil(n, rows) {
			out[int(p.cu[seq])/rows+seq+i] = int32(seq)
		}
	}
	return out
}

// tiles returns the maximum number of tiles that the tokens can fill.
func (p paging) tiles(rows int) int { return p.tokens()/rows + len(p.lens) }

// inRows changes a launch of attention_vec to `rows` tokens per threadgroup.
func (p paging) inRows(l launch, rows int) launch {
	l.constants["fc_rows"] = uint32(rows)
	l.grid[1] = p.tiles(rows)
	return l
}

// inHeads changes a launch of attention_vec or attention_write to `heads` query heads of a KV head
// per threadgroup.
func (s attentionShape) inHeads(l launch, heads int) launch {
	l.constants["fc_heads"] = uint32(heads)
	l.grid[0] = int(kernels.HeadGroups(int64(s.heads), int64(s.kvHeads), int64(heads)))
	return l
}

// mapped binds the host's map to a launch.
func (p paging) mapped(l launch, rows int) launch {
	l.constants["fc_map"] = 1
	l.buffers["map"] = ints(p.owners(rows))
	return l
}

// TestAttentionVecMap checks that the map and the search give the same bits for every batch.
func TestAttentionVecMap(t *testing.T) {
	instances(t, "attention_vec", func(t *testing.T, name string, types []kernels.Element) {
		for kind, b := range mappedBatches {
			t.Run(kind, func(t *testing.T) {
				rng := newRand(t.Name())
				c := newAttention(rng, attentionShape{2, 1, headFor(types, 24)}, b.page(rng), types)
				want := c.run(t, name, nil)
				compareProducts(t, c.want(), want, types)
				agree(t, want, c.mapped(c.launch(name, nil), 1).run(t)["out"])
			})
		}
	})
}

// TestAttentionVecSurplus checks that fc_map makes the kernel read the map: results of tokens
// without a sequence stay unwritten, as do those of threadgroups past the tokens.
func TestAttentionVecSurplus(t *testing.T) {
	instances(t, "attention_vec", func(t *testing.T, name string, types []kernels.Element) {
		rng := newRand(t.Name())
		p := batch{lens: []int{3, 2}, contexts: []int{40, 9}, block: 16}.page(rng)
		c := newAttention(rng, attentionShape{2, 1, headFor(types, 16)}, p, types)
		row := c.heads * c.head * types[0].Size()
		want, blank := c.run(t, name, nil).bytes, result(types[0], c.q.length).bytes

		l := c.mapped(c.launch(name, nil), 1)
		l.buffers["map"] = ints([]int32{0, -1, 0, -1, 1})
		l.grid[1] += 3
		got := l.run(t)["out"].bytes
		for token := range 5 {
			if token == 1 || token == 3 {
				require.Equal(t, blank[token*row:][:row], got[token*row:][:row], "token %d", token)
				continue
			}
			part := func(of []byte) tensor { return tensor{types[0], of[token*row:][:row], c.heads * c.head} }
			agree(t, part(want), part(got), "token %d", token)
		}

		l = c.launch(name, nil)
		l.grid[1] += 3
		require.Equal(t, want, l.run(t)["out"].bytes)

		short := l.params.(kernels.AttentionParams)
		short.Tokens = 4
		l.params = short
		got = l.run(t)["out"].bytes
		require.Equal(t, want[:4*row], got[:4*row])
		require.Equal(t, blank[4*row:], got[4*row:])
	})
}

// expanded returns a call in which every token is a sequence, with the keys that it sees.
func (c attentionCall) expanded() attentionCall {
	e := c
	e.lens, e.contexts, e.cu, e.contextLens, e.table = nil, nil, []int32{0}, nil, nil
	for seq, n := range c.lens {
		for i := range n {
			token := int(c.cu[seq]) + i
			context := min(c.positions[token]+1, c.contextLens[seq])
			e.lens = append(e.lens, 1)
			e.contexts = append(e.contexts, int(context))
			e.contextLens = append(e.contextLens, context)
			e.cu = append(e.cu, int32(token+1))
			e.table = append(e.table, c.table[seq*c.stride:][:c.stride]...)
		}
	}
	return e
}

// testDrafts verifies drafts in threadgroups of several tokens. The results must have the
// bits of single tokens, and an infinite value at the last draft must not reach those
// before it.
func testDrafts(t *testing.T, name string, types []kernels.Element, s attentionShape, b batch, f features, rows int) {
	t.Helper()
	rng := newRand(t.Name())
	c := newAttention(rng, s, b.page(rng), types)
	c.features = f
	for d := range s.head {
		c.v.put(c.element(c.slot(0, b.contexts[0]-1), 0, s.kvHeads, s.head, d), math.Inf(1))
	}
	for _, constants := range []map[string]uint32{c.specialised(), nil} {
		want := c.expanded().run(t, name, constants)
		agree(t, want, c.run(t, name, constants))
		agree(t, want, c.inRows(c.launch(name, constants), rows).run(t)["out"])
		agree(t, want, c.mapped(c.inRows(c.launch(name, constants), rows), rows).run(t)["out"])
		finite := (b.lens[0] - 1) * s.heads * s.head
		for i := range finite {
			require.False(t, math.IsNaN(want.at(i)) || math.IsInf(want.at(i), 0))
		}
		require.True(t, math.IsNaN(want.at(finite)) || math.IsInf(want.at(finite), 0))
		if !everything() {
			return
		}
	}
}

// TestAttentionVecDrafts has the grid of vllm-metal's test_spec_window_parity: verification
// windows of 2 to 8 tokens, contexts of 512 and 8192, heads of 64 to 256, blocks of 8 and 32.
func TestAttentionVecDrafts(t *testing.T) {
	type draft struct {
		tokens, context, block int
		attentionShape
		rows int
		features
	}
	drafts := few([]draft{
		{2, 70, 8, attentionShape{2, 1, 64}, 2, features{}},
		{5, 300, 32, attentionShape{2, 1, 128}, 2, features{window: 40}},
		{8, 40, 8, attentionShape{2, 2, 64}, 8, features{window: 3, sinks: inTurn(2, 1)}},
		{6, 60, 32, attentionShape{2, 1, 96}, 4, features{softCap: 3}},
		{4, 33, 32, attentionShape{2, 1, 256}, 4, features{}},
	}, nil)
	if everything() {
		for i, tokens := range []int{2, 4, 5, 6, 8} {
			for j, context := range []int{512, 8192} {
				for _, head := range []int{64, 96, 128, 256} {
					for _, block := range []int{8, 32} {
						f := features{}
						if (i+j)%2 == 1 {
							f = features{window: 100, softCap: 50}
						}
						drafts = append(drafts, draft{tokens, context, block, attentionShape{2, 1, head}, []int{2, 4, 8}[i%3], f})
					}
				}
			}
		}
	}
	instances(t, "attention_vec", func(t *testing.T, name string, types []kernels.Element) {
		for i, d := range drafts {
			if headFor(types, d.head) != d.head || everything() && d.context > 512 && (i+len(name))%3 != 0 {
				continue
			}
			t.Run(fmt.Sprintf("%d of %d by %d/%v/rows %d/%v", d.tokens, d.context, d.block, d.attentionShape, d.rows, d.features), func(t *testing.T) {
				b := batch{lens: []int{d.tokens, 1, d.tokens - 1}, contexts: []int{d.context, 9, d.context/2 + 1}, block: d.block}
				testDrafts(t, name, types, d.attentionShape, b, d.features, d.rows)
			})
		}
	})
}

// TestAttentionSplitDrafts verifies drafts with split-KV.
func TestAttentionSplitDrafts(t *testing.T) {
	instances(t, "attention_vec", func(t *testing.T, name string, types []kernels.Element) {
		rng := newRand(t.Name())
		c := newAttention(rng, attentionShape{2, 1, headFor(types, 40)}, batch{lens: []int{5, 3}, contexts: []int{200, 17}, block: 16}.page(rng), types)
		c.features = features{window: 90, sinks: inTurn(2, 0.5)}
		want := c.runInParts(t, name, 64, nil)
		compareProducts(t, c.want(), want, types)
		agree(t, want, c.runInParts(t, name, 64, map[string]uint32{"fc_rows": 4}))
	})
}

// Query heads that share a threadgroup have the bits of each head alone: with as many heads per
// threadgroup as per KV head, fewer, and more; with several tokens; with split-KV; and with
// features that differ by head.
func TestAttentionVecHeads(t *testing.T) {
	type heads struct {
		attentionShape
		rows, heads int
		features
		split int
	}
	cases := []heads{
		{attentionShape{7, 1, 64}, 1, 2, features{slopes: inTurn(7, 0.5, 0.0625, 0), sinks: inTurn(7, 0, 2, -5)}, 0},
		{attentionShape{6, 2, 40}, 1, 4, features{window: 33, slopes: inTurn(6, 0.25, -0.01)}, 64},
		{attentionShape{8, 2, 128}, 1, 4, features{}, 0},
		{attentionShape{6, 2, 96}, 2, 2, features{sinks: inTurn(6, 1, -3), window: 20}, 0},
		{attentionShape{4, 1, 32}, 2, 4, features{softCap: 3}, 32},
		{attentionShape{3, 1, 256}, 4, 2, features{slopes: inTurn(3, 0.5, 0.25, 1)}, 0},
		{attentionShape{6, 2, 64}, 1, 4, features{gate: ir.Sigmoid}, 64},
		{attentionShape{6, 2, 72}, 2, 2, features{gate: ir.Softplus, byHead: true}, 32},
		{attentionShape{4, 1, 64}, 1, 4, features{gate: ir.Softplus, byHead: true}, 0},
		{attentionShape{4, 2, 40}, 4, 2, features{gate: ir.Sigmoid}, 0},
		{attentionShape{2, 1, 512}, 1, 1, features{gate: ir.Sigmoid}, 0},
		{attentionShape{3, 1, kernels.MaxLatent}, 1, 1, features{window: 33}, 64},
	}
	instances(t, "attention_vec", func(t *testing.T, name string, types []kernels.Element) {
		for i, h := range cases {
			if headFor(types, h.head) != h.head || !everything() && (i+len(name))%2 == 0 {
				continue
			}
			t.Run(fmt.Sprintf("%v/rows %d/heads %d/%v/split %d", h.attentionShape, h.rows, h.heads, h.features, h.split), func(t *testing.T) {
				rng := newRand(t.Name())
				c := newAttention(rng, h.attentionShape, featureBatch.page(rng), types)
				c.features = h.features
				run := func(constants map[string]uint32) tensor {
					if h.split != 0 {
						return c.runInParts(t, name, h.split, constants)
					}
					return c.cut(c.launch(name, constants)).run(t)["out"]
				}
				want := run(c.specialised())
				compareProducts(t, c.want(), want, types)
				agree(t, want, run(map[string]uint32{"fc_rows": uint32(h.rows), "fc_heads": uint32(h.heads)}))
			})
		}
	})
}

// peerGrid is a test of another engine's per-token kernel.
type peerGrid struct {
	peer     string
	kernels  []string // suffixes
	shapes   []attentionShape
	batches  []batch
	features []features
	split    bool // also with split-KV
}

// peerGrids returns the decode and varlen tests, the sinks and the split-KV of vllm-metal,
// and vLLM's test of its unified attention. They allow absolute errors of 1.5e-2 in half,
// 3e-2 in bfloat and 1e-3 in float, plus 1e-2 or 2e-2 of the result; here every error must
// be within [bounds] relative to the sum of the terms' magnitudes.
func peerGrids() []peerGrid {
	decode := func(block int, contexts ...int) batch {
		return batch{lens: slices.Repeat([]int{1}, len(contexts)), contexts: contexts, block: block}
	}
	varlen := batch{lens: []int{1, 5, 129}, contexts: []int{1328, 18, 463}, block: 16}
	short := batch{lens: []int{1, 2, 9}, contexts: []int{328, 18, 63}, block: 16}
	var unified []features
	for _, window := range []int{0, 64, 128, 256} {
		unified = append(unified, features{window: window}, features{window: window, softCap: 50})
	}
	var sinks []features
	for _, sink := range []float64{0, 2, -5} {
		sinks = append(sinks, features{sinks: inTurn(16, sink)})
	}
	split := func(window int, contexts ...int) peerGrid {
		return peerGrid{"vllm-metal split", few([]string{"f16_f16"}, []string{"f16_f16", "bf16_bf16", "f32_f32"}), []attentionShape{{16, 8, 128}},
			[]batch{decode(16, contexts...)}, []features{{window: window}}, true}
	}
	if !everything() {
		return []peerGrid{
			{"vllm-metal decode", []string{"f16_f16"}, []attentionShape{{8, 2, 128}}, []batch{decode(16, 523, 37, 1)}, []features{{}, {window: 128}}, false},
			{"vllm-metal varlen", []string{"f16_f16"}, []attentionShape{{4, 4, 128}}, []batch{short}, []features{{window: 128}}, false},
			{"vLLM unified", []string{"bf16_bf16"}, []attentionShape{{5, 1, 256}}, []batch{short}, unified[4:6], false},
			{"vllm-metal sinks", []string{"f16_f16"}, []attentionShape{{16, 4, 64}}, []batch{decode(16, 37)}, sinks, false},
			split(0, 1300),
			split(700, 1300),
		}
	}
	lens := []batch{decode(16, 523, 37, 2011), decode(16, 1, 128, 2048)}
	chunks := append(slices.Clone(lens), varlen, batch{lens: []int{8, 16}, contexts: []int{128, 256}, block: 16},
		batch{lens: []int{32, 64}, contexts: []int{512, 1024}, block: 16})
	return []peerGrid{
		{"vllm-metal decode", []string{"f16_f16"}, []attentionShape{{4, 4, 128}, {8, 2, 128}}, lens, []features{{}, {window: 128}}, false},
		{"vllm-metal varlen", []string{"f16_f16"}, []attentionShape{{4, 4, 128}, {8, 2, 128}}, chunks, []features{{}, {window: 128}}, false},
		{"vLLM unified", []string{"bf16_bf16"}, []attentionShape{{4, 4, 128}, {8, 2, 128}, {5, 1, 128}, {4, 4, 256}, {8, 2, 256}, {5, 1, 256}},
			[]batch{varlen, lens[0]}, unified, false},
		{"vllm-metal sinks", []string{"f16_f16", "bf16_bf16", "f32_f32"}, []attentionShape{{8, 8, 64}, {8, 2, 64}, {16, 4, 64}, {8, 8, 128}, {8, 2, 128}, {16, 4, 128}},
			[]batch{decode(16, 37, 300), short}, sinks, false},
		{"vllm-metal sinks, split", []string{"f16_f16"}, []attentionShape{{8, 2, 64}}, []batch{decode(16, 1300)}, sinks, true},
		split(0, 8192),
		split(0, 100, 2048),
		split(0, 700, 4096),
		split(0, 1300),
		split(512, 2048),
		split(700, 2048),
		split(1300, 8192),
	}
}

// ofVLLMMetal returns the kernel for a row of vllm-metal's in [published.Origins], with the row's
// constants and the given ones.
func ofVLLMMetal(t *testing.T, row, suffix string, constants map[string]uint32) (string, map[string]uint32) {
	t.Helper()
	o, ok := published.OriginOf("vllm-metal", row)
	require.True(t, ok, row)
	values := maps.Clone(o.Constants)
	if values == nil {
		values = map[string]uint32{}
	}
	maps.Copy(values, constants)
	return o.Family + "_" + suffix, values
}

func TestAttentionVecPeers(t *testing.T) {
	for _, g := range peerGrids() {
		for _, suffix := range g.kernels {
			for _, s := range g.shapes {
				for i, b := range g.batches {
					for _, f := range g.features {
						if f.sinks != nil {
							f.sinks = f.sinks[:s.heads]
						}
						t.Run(fmt.Sprintf("%s/%s/%v/%v/%v", g.peer, suffix, s, b, f), func(t *testing.T) {
							rng, types := newRand(t.Name()), typesOf(suffix)
							p := b.page(rng)
							p.bySlot = i%2 == 0 // as theirs are
							c := newAttention(rng, s, p, types)
							c.features = f
							want := c.want()
							name, constants := ofVLLMMetal(t, "paged_attention", suffix, c.specialised())
							compareProducts(t, want, c.run(t, name, constants), types)
							if g.split {
								name, constants := ofVLLMMetal(t, "paged_attention, split KV", suffix, c.specialised())
								got := c.runInParts(t, name, int(constants["fc_split"]), constants)
								compareProducts(t, want, got, types)
							}
						})
					}
				}
			}
		}
	}
}
