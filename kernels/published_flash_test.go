package kernels_test

import (
	"fmt"
	"maps"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/kernels"
	"github.com/smelt-ml/smelt/kernels/published"
)

// flash is a launch of flash_attention: batches of contiguous tensors.
type flash struct {
	batch, heads, kvHeads int
	queries, keys, offset int
	head                  int
	causal                bool
	byToken               bool // tensors are [batch, row, heads, head]
}

func (f flash) String() string {
	return fmt.Sprintf("%dx%d:%d,%dx%d+%d,%d,%v,%v", f.batch, f.heads, f.kvHeads, f.queries, f.keys, f.offset, f.head, f.causal, f.byToken)
}

// strides returns the elements from one head to the next and from one row to the next.
func (f flash) strides(heads, rows int) (int, int) {
	if f.byToken {
		return f.head, heads * f.head
	}
	return rows * f.head, f.head
}

// at is the index of element d of a row.
func (f flash) at(batch, heads, rows, head, row, d int) int {
	headStride, rowStride := f.strides(heads, rows)
	return batch*heads*rows*f.head + head*headStride + row*rowStride + d
}

func (f flash) launch(name string, q, k, v tensor) launch {
	qHead, qRow := f.strides(f.heads, f.queries)
	kvHead, kvRow := f.strides(f.kvHeads, f.keys)
	l := launch{
		kernel:    name,
		constants: map[string]uint32{},
		buffers:   map[string]tensor{"q": q, "k": k, "v": v, "out": result(q.element, q.length)},
		params: kernels.FlashParams{
			Batch: uint32(f.batch), Heads: uint32(f.heads), KvHeads: uint32(f.kvHeads), SeqQ: uint32(f.queries), SeqKv: uint32(f.keys),
			Head: uint32(f.head), Offset: uint32(f.offset), QHeadStride: uint32(qHead), QRowStride: uint32(qRow),
			KvHeadStride: uint32(kvHead), KvRowStride: uint32(kvRow), Scale: float32(1 / math.Sqrt(float64(f.head))),
		},
		grid:  [3]int{ceil(f.queries, 32), f.heads, f.batch},
		group: 128,
	}
	if f.causal { // as it was published
		origin, ok := published.OriginOf("Minerva", "flash_attention_forward")
		if !ok {
			panic("no origin of flash attention")
		}
		l.constants = maps.Clone(origin.Constants)
	}
	return l
}

// formula is attention as a paper writes it: all scores of a row, their softmax, the
// values.
func (f flash) formula(q, k, v tensor) []product {
	out := make([]product, q.length)
	scale := float64(float32(1 / math.Sqrt(float64(f.head))))
	for b := range f.batch {
		for h := range f.heads {
			kvHead := h / (f.heads / f.kvHeads)
			for i := range f.queries {
				seen := f.keys
				if f.causal {
					seen = min(seen, f.offset+i+1)
				}
				scores := make([]float64, seen)
				highest := math.Inf(-1)
				for j := range scores {
					for d := range f.head {
						scores[j] += q.at(f.at(b, f.heads, f.queries, h, i, d)) * k.at(f.at(b, f.kvHeads, f.keys, kvHead, j, d))
					}
					scores[j] *= scale
					highest = max(highest, scores[j])
				}
				total := 0.0
				for j := range scores {
					scores[j] = math.Exp(scores[j] - highest)
					total += scores[j]
				}
				for j := range scores {
					for d := range f.head {
						o := &out[f.at(b, f.heads, f.queries, h, i, d)]
						term := scores[j] / total * v.at(f.at(b, f.kvHeads, f.keys, kvHead, j, d))
						o.value += term
						o.scale += math.Abs(term)
					}
				}
			}
		}
	}
	return out
}

func flashCases() []flash {
	cases := []flash{
		{batch: 2, heads: 4, kvHeads: 2, queries: 5, keys: 5, head: 64, causal: true},
		{batch: 1, heads: 3, kvHeads: 1, queries: 35, keys: 70, offset: 35, head: 80, causal: true, byToken: true},
		{batch: 2, heads: 2, kvHeads: 2, queries: 1, keys: 97, offset: 96, head: 128, causal: true},
		{batch: 1, heads: 2, kvHeads: 1, queries: 33, keys: 40, head: 256},
		{batch: 1, heads: 1, kvHeads: 1, queries: 40, keys: 7, head: 24, causal: true},
		{batch: 1, heads: 2, kvHeads: 1, queries: 3, keys: 0, head: 72},
		{batch: 1, heads: 2, kvHeads: 2, queries: 4, keys: 9, offset: math.MaxUint32, head: 8, causal: true, byToken: true},
	}
	if !everything() {
		return cases
	}
	for _, head := range []int{8, 24, 40, 64, 72, 80, 88, 96, 104, 112, 120, 128, 136, 192, 200, 248, 256} {
		for i, rows := range [][3]int{{1, 1, 0}, {1, 300, 299}, {7, 64, 57}, {32, 32, 0}, {64, 95, 31}, {65, 33, 0}, {50, 80, 10}} {
			for j, heads := range [][2]int{{4, 4}, {8, 2}, {5, 1}} {
				cases = append(cases, flash{batch: 1 + (i+j)%2, heads: heads[0], kvHeads: heads[1], queries: rows[0], keys: rows[1],
					offset: rows[2], head: head, causal: i%3 != 2, byToken: j == 1})
			}
		}
	}
	return cases
}

func TestFlashAttention(t *testing.T) {
	instances(t, "flash_attention", func(t *testing.T, name string, types []kernels.Element) {
		for i, f := range flashCases() {
			t.Run(f.String(), func(t *testing.T) {
				rng := newRand(t.Name())
				q := random(rng, types[0], f.batch*f.heads*f.queries*f.head)
				k := random(rng, types[0], f.batch*f.kvHeads*f.keys*f.head)
				v := random(rng, types[0], f.batch*f.kvHeads*f.keys*f.head)
				l := f.launch(name, q, k, v)
				if i%2 == 0 {
					l.constants["fc_head"] = uint32(f.head)
				}
				want, got := f.formula(q, k, v), l.run(t)["out"]
				compareProducts(t, want, got, types)
				if types[0] == kernels.Bfloat {
					return // its last bit is worth more than the bound below
				}
				for j, p := range want {
					require.InDelta(t, p.value, got.at(j), 1e-3, "element %d", j)
				}
			})
		}
	})
}

// TestFlashAttentionIsTile compares it with attention_tile on the same keys in a paged
// cache, bit by bit: they share their arithmetic.
func TestFlashAttentionIsTile(t *testing.T) {
	instances(t, "flash_attention", func(t *testing.T, name string, types []kernels.Element) {
		for _, head := range few([]int{40, 128}, []int{8, 40, 64, 72, 128, 192, 256}) {
			t.Run(fmt.Sprint(head), func(t *testing.T) {
				s := attentionShape{4, 2, head}
				rng := newRand(t.Name())
				p := batch{lens: []int{35}, contexts: []int{75}, block: 16}.page(rng)
				f := flash{batch: 1, heads: s.heads, kvHeads: s.kvHeads, queries: 35, keys: 75, offset: 40, head: head, causal: true, byToken: true}
				q := random(rng, types[0], p.tokens()*s.heads*head)
				paged := [2]tensor{p.cache(rng, types[0], s.kvHeads, head), p.cache(rng, types[0], s.kvHeads, head)}
				var dense [2]tensor
				for i := range dense {
					dense[i] = filled(types[0], f.kvHeads*f.keys*head, func(e int) float64 {
						row, kvHead := e/(f.kvHeads*head), e/head%f.kvHeads
						return paged[i].at(p.element(p.slot(0, row), kvHead, f.kvHeads, head, e%head))
					})
				}
				tile := "attention_tile" + name[len("flash_attention"):] + name[len("flash_attention"):]
				want := attentionLaunch(tile, s, p, q, paged[0], paged[1]).run(t)["out"]
				got := f.launch(name, q, dense[0], dense[1]).run(t)["out"]
				agree(t, want, got)
			})
		}
	})
}

// TestFlashAttentionKeepsNaNToItself writes NaN where only later rows look: earlier ones
// must not change by a bit, later ones must show it.
func TestFlashAttentionKeepsNaNToItself(t *testing.T) {
	instances(t, "flash_attention", func(t *testing.T, name string, types []kernels.Element) {
		f := flash{batch: 1, heads: 2, kvHeads: 1, queries: 50, keys: 80, offset: 30, head: 40, causal: true, byToken: true}
		rng := newRand(t.Name())
		q := random(rng, types[0], f.heads*f.queries*f.head)
		k, v := random(rng, types[0], f.keys*f.head), random(rng, types[0], f.keys*f.head)
		clean := f.launch(name, q, k, v).run(t)["out"].values()
		const key = 47
		for d := range f.head {
			v.put(f.at(0, 1, f.keys, 0, key, d), []float64{math.NaN(), math.Inf(1), 1}[d%3])
		}
		got := f.launch(name, q, k, v).run(t)["out"].values()
		first := f.at(0, f.heads, f.queries, 0, key-f.offset, 0) // rows are tokens: all before it see less
		require.Equal(t, clean[:first], got[:first])
		for i, x := range got[first:] {
			require.True(t, math.IsNaN(x), "element %d hides the NaN it sees: %v", first+i, x)
		}
	})
}
