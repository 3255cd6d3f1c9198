package kernels_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/kernels"
)

func TestAttentionTile(t *testing.T) { testAttention(t, "attention_tile") }

// attentionCase is a launch of attention with features.
type attentionCase struct {
	attentionShape
	features
	batch
	bySlot bool
}

func (c attentionCase) String() string {
	name := fmt.Sprintf("%v/%v", c.attentionShape, c.batch)
	if c.window != 0 {
		name += fmt.Sprintf(" window %d", c.window)
	}
	if c.softCap != 0 {
		name += fmt.Sprintf(" cap %g", c.softCap)
	}
	if c.sinks != nil {
		name += fmt.Sprintf(" sinks %g", c.sinks[0])
	}
	if c.gate != ir.NoActivation {
		name += fmt.Sprintf(" gate %v by head %v", c.gate, c.byHead)
	}
	if c.bySlot {
		name += " by slot"
	}
	return name
}

// sinksOf returns a sink for every head; neighbours differ.
func sinksOf(heads int, first float64) []float64 {
	sinks := make([]float64, heads)
	for h := range sinks {
		sinks[h] = first + float64(h%3)
	}
	return sinks
}

// tensors returns the inputs of a case for types of activations and cache.
func (c attentionCase) tensors(t *testing.T, types []kernels.Element) (p paging, q, k, v tensor) {
	rng := newRand(t.Name())
	p = c.page(rng)
	p.bySlot = c.bySlot
	q = random(rng, types[0], p.tokens()*c.heads*c.head)
	return p, q, p.cache(rng, types[1], c.kvHeads, c.head), p.cache(rng, types[1], c.kvHeads, c.head)
}

func (c attentionCase) check(t *testing.T, name string, types []kernels.Element, specialise bool) {
	t.Helper()
	p, q, k, v := c.tensors(t, types)
	l := attentionLaunch(name, c.attentionShape, p, q, k, v)
	c.ask(&l)
	if specialise {
		l.constants["fc_head"] = uint32(c.head)
	}
	compareProducts(t, c.attention(c.attentionShape, p, q, k, v), l.run(t)["out"], types)
}

// featureCases crosses windows, soft caps, sinks and layouts with heads and batches.
// Windows begin within a step of keys, at its edge and after the first steps, in which
// rows then see no key.
func featureCases() []attentionCase {
	mixed := batch{lens: []int{1, 5, 41}, contexts: []int{133, 18, 115}, block: 16}
	cases := []attentionCase{
		{attentionShape{4, 2, 64}, features{window: 3}, mixed, false},
		{attentionShape{2, 1, 80}, features{window: 64, softCap: 5}, mixed, true},
		{attentionShape{3, 1, 128}, features{window: 32, sinks: sinksOf(3, -5)}, batch{lens: []int{33}, contexts: []int{97}, block: 8}, true},
		{attentionShape{2, 2, 256}, features{softCap: 50, sinks: sinksOf(2, 2)}, batch{lens: []int{2, 3}, contexts: []int{40, 3}, block: 32}, false},
		{attentionShape{2, 1, 72}, features{window: 1, softCap: 2, sinks: sinksOf(2, 0)}, batch{lens: []int{35}, contexts: []int{70}, block: 5}, true},
		{attentionShape{4, 2, 64}, features{slopes: []float64{0.25, 0.0625, 0, -0.01}}, mixed, true},
		{attentionShape{2, 1, 512}, features{window: 40, softCap: 30, gate: ir.Sigmoid}, mixed, true},
		{attentionShape{1, 1, 320}, features{sinks: sinksOf(1, 1)}, mixed, false},
		{attentionShape{2, 1, kernels.MaxLatent}, features{}, mixed, true},
		{attentionShape{3, 1, 96}, features{window: 40, softCap: 5, sinks: sinksOf(3, 1), slopes: []float64{0.5, 0.125, 2}}, mixed, false},
		{attentionShape{4, 2, 128}, features{gate: ir.Sigmoid, window: 40}, mixed, false},
		{attentionShape{3, 1, 72}, features{gate: ir.Softplus, byHead: true}, mixed, true},
		{attentionShape{2, 1, 40}, features{gate: ir.SiLU, sinks: sinksOf(2, 1)}, mixed, false},
	}
	if !everything() {
		return cases
	}
	for i, head := range []int{8, 24, 40, 64, 80, 96, 112, 128, 192, 200, 256, 512} {
		for j, window := range []int{0, 1, 7, 31, 32, 33, 64, 100, 1000} {
			for k, softCap := range []float64{0, 1, 50} {
				f := features{window: window, softCap: softCap}
				s := []attentionShape{{4, 4, head}, {8, 2, head}, {5, 1, head}}[(i+j+k)%3]
				if (j+k)%2 == 0 {
					f.sinks = sinksOf(s.heads, []float64{0, 2, -5}[i%3])
				}
				if (i+j)%3 == 0 {
					f.slopes = inTurn(s.heads, 0.5, 0.0625)
				}
				b := mixed
				b.block = []int{8, 16, 32, 11, 128}[(i+k)%5]
				cases = append(cases, attentionCase{s, f, b, (i+j)%2 == 0})
			}
		}
	}
	return cases
}

func TestAttentionTileFeatures(t *testing.T) {
	instances(t, "attention_tile", func(t *testing.T, name string, types []kernels.Element) {
		for i, c := range featureCases() {
			if headFor(types, c.head) == c.head {
				t.Run(c.String(), func(t *testing.T) { c.check(t, name, types, i%2 == 0) })
			}
		}
	})
}

// TestAttentionTilePeers runs the grids by which other engines check their kernels, on
// their types, within bounds that are tighter than theirs (1.5e-2 and 1e-2): the decode
// and varlen tests, the head sizes and the sinks of vllm-metal, and the windows and soft
// caps of vLLM's unified attention.
func TestAttentionTilePeers(t *testing.T) {
	varlen := few([]batch{
		{lens: []int{1, 5, 33}, contexts: []int{333, 18, 115}, block: 16},
	}, []batch{
		{lens: []int{1, 1, 1}, contexts: []int{523, 37, 2011}, block: 16},
		{lens: []int{1, 1, 1}, contexts: []int{1, 128, 2048}, block: 16},
		{lens: []int{1, 5, 129}, contexts: []int{1328, 18, 463}, block: 16},
		{lens: []int{8, 16}, contexts: []int{128, 256}, block: 16},
		{lens: []int{32, 64}, contexts: []int{512, 1024}, block: 16},
	})
	run := func(name string, c attentionCase) {
		t.Run(name+"/"+c.String(), func(t *testing.T) { c.check(t, name, typesOf(name[len("attention_tile"):]), true) })
	}
	for i, b := range varlen {
		for _, s := range []attentionShape{{4, 4, 128}, {8, 2, 128}} {
			run("attention_tile_f16_f16", attentionCase{s, features{}, b, true})
			run("attention_tile_f16_f16", attentionCase{s, features{window: 128}, b, true})
		}
		for _, head := range []int{64, 96, 128} {
			run("attention_tile_f16_f16", attentionCase{attentionShape{8, 2, head}, features{}, b, false})
		}
		for _, s := range few([]attentionShape{{8, 2, 64}}, []attentionShape{{8, 8, 64}, {8, 2, 64}, {16, 4, 64}, {8, 8, 128}, {8, 2, 128}, {16, 4, 128}}) {
			for _, first := range []float64{0, 2, -5} {
				run("attention_tile_f16_f16", attentionCase{s, features{sinks: slices.Repeat([]float64{first}, s.heads)}, b, true})
			}
		}
		if i == 3 { // vLLM has the third and first of these
			continue
		}
		for _, s := range few([]attentionShape{{5, 1, 256}}, []attentionShape{{4, 4, 128}, {8, 2, 128}, {5, 1, 128}, {4, 4, 256}, {8, 2, 256}, {5, 1, 256}}) {
			for _, window := range few([]int{64}, []int{0, 64, 128, 256}) {
				for _, softCap := range []float64{0, 50} {
					run("attention_tile_bf16_bf16", attentionCase{s, features{window: window, softCap: softCap}, b, true})
				}
			}
		}
	}
}

// TestAttentionTileMap compares tiles that read their sequence from a map with tiles that
// search for it, bit by bit, on grids of the size that package lower uses and on larger ones.
func TestAttentionTileMap(t *testing.T) {
	batches := []batch{
		{lens: []int{1, 1, 1}, contexts: []int{1, 40, 33}, block: 16},                        // decoding
		{lens: []int{1, 1, 70, 1, 33}, contexts: []int{9, 1, 70, 20, 40}, block: 8},          // mixed, ragged tails
		{lens: []int{32, 64, 31}, contexts: []int{32, 64, 31}, block: 32},                    // whole tiles
		{lens: []int{5, 5, 0, 2}, contexts: []int{25, 12, 7, 30}, block: 16},                 // drafts, an idle sequence
		{lens: slices.Repeat([]int{1}, 40), contexts: slices.Repeat([]int{3}, 40), block: 4}, // more sequences than tiles of tokens
	}
	instances(t, "attention_tile", func(t *testing.T, name string, types []kernels.Element) {
		for i, b := range batches {
			c := attentionCase{attentionShape{2, 1, headFor(types, 24)}, features{}, b, i%2 == 0}
			t.Run(c.String(), func(t *testing.T) {
				p, q, k, v := c.tensors(t, types)
				search := attentionLaunch(name, c.attentionShape, p, q, k, v)
				want := search.run(t)["out"]
				compareProducts(t, c.attention(c.attentionShape, p, q, k, v), want, types)
				for _, surplus := range []int{0, 3} {
					l := attentionLaunch(name, c.attentionShape, p, q, k, v)
					l.grid[0] += surplus
					agree(t, want, l.run(t)["out"], "a grid that is %d too large", surplus)
					l.constants["fc_map"] = 1
					l.buffers["map"] = ints(p.tileMap(l.grid[0]))
					agree(t, want, l.run(t)["out"], "a map of a grid that is %d too large", surplus)
				}
			})
		}
	})
}

// tileMap returns the sequence of every tile of a grid, -1 for surplus tiles.
func (p paging) tileMap(tiles int) []int32 {
	owners := slices.Repeat([]int32{-1}, tiles)
	for seq, n := range p.lens {
		for i := range ceil(n, 32) {
			owners[int(p.cu[seq])/32+seq+i] = int32(seq)
		}
	}
	return owners
}

// TestAttentionTileAgainstVec compares the two kernels on steps that both support.
func TestAttentionTileAgainstVec(t *testing.T) {
	instances(t, "attention_tile", func(t *testing.T, name string, types []kernels.Element) {
		for _, head := range few([]int{64, 128}, headSizes) {
			c := attentionCase{attentionShape{4, 2, headFor(types, head)}, features{},
				batch{lens: []int{1, 4, 34}, contexts: []int{70, 4, 39}, block: 16}, true}
			t.Run(c.String(), func(t *testing.T) {
				p, q, k, v := c.tensors(t, types)
				tile := attentionLaunch(name, c.attentionShape, p, q, k, v).run(t)["out"].values()
				vec := attentionLaunch("attention_vec"+name[len("attention_tile"):], c.attentionShape, p, q, k, v).run(t)["out"].values()
				formula := c.attention(c.attentionShape, p, q, k, v)
				bound := 2 * bounds[types[0]]
				for i, x := range tile {
					require.LessOrEqual(t, math.Abs(x-vec[i]), bound*formula[i].scale+steps[types[0]], "element %d", i)
				}
			})
		}
	})
}
