package kernels_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/kernels"
)

const latentEps = 1e-3

// latentCall is what latent attention makes queries and rows of its cache of: queries behind absorbed ones,
// latent vectors among other columns.
type latentCall struct {
	paging
	rotation
	types                            []kernels.Element
	heads, latent, qHead, from, step int
	absorbed, q, all, gain           tensor
}

func newLatent(t *testing.T, types []kernels.Element, b batch, r rotation, heads, latent int) latentCall {
	rng := newRand(t.Name())
	c := latentCall{paging: b.page(rng), rotation: r, types: types, heads: heads, latent: latent, qHead: r.rotated + 16, from: 24, step: 24 + latent + r.rotated + 8}
	tokens := b.tokens()
	c.absorbed, c.q, c.all = random(rng, types[0], tokens*heads*latent), random(rng, types[0], tokens*heads*c.qHead), random(rng, types[0], tokens*c.step)
	for i := range c.step { // so small a token that eps shows
		c.all.put(i, c.all.at(i)/64)
	}
	c.gain = random(rng, kernels.Float, latent)
	return c
}

func (c latentCall) row() int { return c.latent + c.rotated }

// write returns a launch of latent_write.
func (c latentCall) write(name string) launch {
	tokens := c.tokens()
	l := launch{
		kernel: name, constants: c.constants(name), grid: [3]int{c.heads + 1, tokens, 1}, group: 32,
		buffers: map[string]tensor{"absorbed": c.absorbed, "q": c.q, "all": c.all, "gain": c.gain, "positions": ints(c.positions), "slots": ints(c.slots),
			"q_out": result(c.types[0], tokens*c.heads*c.row()), "k_cache": result(c.types[1], c.blocks*c.block*c.row())},
	}
	l.params = kernels.LatentWriteParams{Tokens: uint32(tokens), Heads: uint32(c.heads), KvHeads: 1, Head: uint32(c.row()), Block: uint32(c.block), QHead: uint32(c.qHead),
		AllStride: uint32(c.step), AllFrom: uint32(c.from), Rotated: uint32(c.rotated), Rows: uint32(c.heads + 1),
		FreqScale: float32(c.freqScale), Magnitude: float32(c.magnitude), Eps: latentEps, Log2Theta: c.bind(&l)}
	return l
}

func latentRotations() []rotation {
	return []rotation{
		{head: 64, rotated: 64, theta: 1e4, freqScale: 1, magnitude: 1, interleaved: true},
		{head: 32, rotated: 32, theta: 1e6, freqScale: 0.25, magnitude: 1.2, factors: stretch(16)},
		{head: 32, rotated: 32, theta: 1e4, freqScale: 1, magnitude: 1, table: true},
	}
}

// TestLatentWrite has tokens without a slot, too.
func TestLatentWrite(t *testing.T) {
	b := batch{lens: []int{3, 1, 2}, contexts: []int{5, 9, 3}, block: 4}
	instances(t, "latent_write", func(t *testing.T, name string, types []kernels.Element) {
		for _, latent := range few([]int{32, 512}, []int{32, 40, 96, 256, 512}) {
			for _, r := range latentRotations() {
				if headFor(types, latent) != latent {
					continue
				}
				t.Run(fmt.Sprintf("%d/%v", latent, r), func(t *testing.T) {
					c := newLatent(t, types, b, r, 3, latent)
					c.slots[1] = -1
					results := c.write(name).run(t)
					queries, cache, row := results["q_out"].values(), results["k_cache"].values(), c.row()
					written := make([]bool, len(cache))
					for token := range c.tokens() {
						for h := token * c.heads; h < (token+1)*c.heads; h++ {
							last := slices.Clone(c.q.values()[(h+1)*c.qHead-r.rotated:][:r.rotated])
							r.turn(last, c.positions[token])
							want := slices.Concat(c.absorbed.values()[h*latent:][:latent], last)
							compare(t, want, queries[h*row:][:row], row, r.bound(c.positions, types[0]))
						}
						if c.slots[token] < 0 {
							continue
						}
						want := slices.Clone(c.all.values()[token*c.step+c.from:][:row])
						normalise(want[:latent], c.gain, latentEps)
						r.turn(want[latent:], c.positions[token])
						at := c.element(int(c.slots[token]), 0, 1, row, 0)
						compare(t, want, cache[at:][:row], row, r.bound(c.positions, types...))
						for d := range row {
							written[at+d] = true
						}
					}
					for i, w := range written {
						require.NotEqual(t, w, math.IsNaN(cache[i]), "element %d of the cache", i)
					}
				})
			}
		}
	})
}

// TestLatentAttention has the bits of latent_write and attention_vec, in the results and in the cache, whole
// and in partitions, for a token without a slot, too.
func TestLatentAttention(t *testing.T) {
	instances(t, "latent_attention", func(t *testing.T, name string, types []kernels.Element) {
		suffix := strings.TrimPrefix(name, "latent_attention_")
		for i, latent := range few([]int{64, 512}, []int{32, 40, 64, 256, 480, 512}) {
			for j, r := range latentRotations() {
				if headFor(types, latent) != latent || !everything() && (i+j+len(suffix))%3 == 0 {
					continue
				}
				t.Run(fmt.Sprintf("%d/%v", latent, r), func(t *testing.T) {
					c := newLatent(t, types, decodes[(i+j)%2*3], r, 3, latent)
					f, row := features{window: 33 * (j % 2)}, c.row()
					written := c.write("latent_write_" + suffix).run(t)
					s := attentionShape{c.heads, 1, row}
					cache := c.cache(newRand(t.Name()+"cache"), types[1], 1, row)
					before := cache.clone()
					for _, slot := range c.slots {
						from, to := sizeOf(types[1], c.element(int(slot), 0, 1, row, 0)), sizeOf(types[1], c.element(int(slot), 0, 1, row, row))
						copy(cache.bytes[from:to], written["k_cache"].bytes[from:to])
						for d := range row {
							before.put(c.element(int(slot), 0, 1, row, d), math.NaN())
						}
					}
					full := attentionCall{attentionShape: s, paging: c.paging, features: f, q: written["q_out"], k: cache, v: cache}
					if c.tokens() > 1 {
						c.slots[1] = -1
					}
					for _, partition := range []int{0, 64} {
						want := full.run
						if partition > 0 {
							want = func(t *testing.T, kernel string, constants map[string]uint32) tensor {
								return full.runInParts(t, kernel, partition, constants)
							}
						}
						expected := want(t, "attention_vec_"+suffix, nil)
						for _, heads := range []int{1, 2} {
							if heads > 1 && row > kernels.MaxSmallHead {
								continue
							}
							out, rows := c.attention(t, name, before, f, partition, heads)
							require.Equal(t, expected.values(), out.values(), "partitions of %d keys, %d heads", partition, heads)
							for i, slot := range c.slots {
								at := c.element(c.slot(i, int(c.positions[i])), 0, 1, row, 0)
								if slot < 0 {
									require.True(t, math.IsNaN(rows.at(at)), "token %d has no slot", i)
									continue
								}
								require.Equal(t, cache.values()[at:][:row], rows.values()[at:][:row], "token %d", i)
							}
						}
					}
				})
			}
		}
	})
}

// attention runs latent_attention over the cache before the step, and returns its result and what it has
// written.
func (c latentCall) attention(t *testing.T, name string, before tensor, f features, partition, heads int) (out, written tensor) {
	t.Helper()
	l, row, tokens := c.write(name), c.row(), c.tokens()
	delete(l.buffers, "q_out")
	maps.Copy(l.buffers, map[string]tensor{"k_cache": before, "v_cache": before, "k_slots": result(c.types[1], before.length), "cu_seqlens": ints(c.cu),
		"context_lens": ints(c.contextLens), "block_table": ints(c.paging.table), "out": result(c.types[0], tokens*c.heads*row)})
	w := l.params.(kernels.LatentWriteParams)
	block, kvHead, slot := c.strides(1, row)
	l.params = kernels.LatentAttentionParams{Tokens: w.Tokens, Seqs: uint32(len(c.lens)), Heads: w.Heads, KvHeads: 1, Head: w.Head, Block: w.Block, TableStride: uint32(c.stride),
		BlockStride: uint32(block), HeadStride: uint32(kvHead), RowStride: uint32(slot), Scale: scaleOf(attentionShape{c.heads, 1, row}), Window: uint32(f.window),
		QHead: w.QHead, AllStride: w.AllStride, AllFrom: w.AllFrom, Rotated: w.Rotated, Log2Theta: w.Log2Theta, FreqScale: w.FreqScale, Magnitude: w.Magnitude, Eps: w.Eps}
	l.grid, l.group = [3]int{int(kernels.HeadGroups(int64(c.heads), 1, int64(heads))), tokens, 1}, 256
	if f.window != 0 {
		l.constants["fc_window"] = 1
	}
	if heads > 1 {
		l.constants["fc_heads"] = uint32(heads)
	}
	if partition == 0 {
		results := l.run(t)
		return results["out"], results["k_slots"]
	}
	partitions := slices.Max(c.contexts)/partition + 2
	delete(l.buffers, "out")
	l.constants["fc_split"], l.grid[2] = uint32(partition), partitions
	rows := tokens * c.heads * partitions
	l.buffers["part"], l.buffers["statistics"] = result(kernels.Float, rows*row), result(kernels.Float, rows*2)
	parts := l.run(t)
	reduced := launch{
		kernel:    "attention_reduce_" + suffixOf[c.types[0]],
		buffers:   map[string]tensor{"part": parts["part"], "statistics": parts["statistics"], "out": result(c.types[0], tokens*c.heads*row)},
		params:    kernels.ReduceParams{Tokens: w.Tokens, Heads: w.Heads, Head: w.Head, Partitions: uint32(partitions)},
		grid:      [3]int{c.heads, tokens, 1},
		group:     ceil(row/4, 32) * 32,
		constants: map[string]uint32{},
	}.run(t)
	return reduced["out"], parts["k_slots"]
}

func TestIndices(t *testing.T) {
	for _, width := range []int{1, 16, 300} {
		got := launch{
			kernel: "indices", buffers: map[string]tensor{"positions": ints([]int32{7, -1, 0}), "out": result(kernels.Int, 3*width)},
			params: kernels.IndicesParams{Rows: 3, Width: uint32(width)}, grid: [3]int{ceil(width, 256), 3, 1}, group: 256,
		}.run(t)["out"].values()
		for i, n := range got {
			want := i % width
			if i/width == 1 {
				want = -1
			}
			require.EqualValues(t, want, n)
		}
	}
}
