package kernels_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/smelt-ml/smelt/kernels"
)

// TestAttentionSplit cuts the keys into partitions and puts them together again,
// partitions without keys among them.
func TestAttentionSplit(t *testing.T) {
	shapes, batches := attentionCases()
	instances(t, "attention_vec", func(t *testing.T, name string, types []kernels.Element) {
		for i, s := range shapes {
			if headFor(types, s.head) != s.head {
				continue
			}
			b := batches[i%len(batches)]
			t.Run(fmt.Sprintf("%v/%v", s, b), func(t *testing.T) {
				rng := newRand(t.Name())
				p := b.page(rng)
				q := random(rng, types[0], b.tokens()*s.heads*s.head)
				k, v := p.cache(rng, types[1], s.kvHeads, s.head), p.cache(rng, types[1], s.kvHeads, s.head)
				partition := []int{16, 32, 40}[i%3]
				got := attendInParts(t, name, types, s, p, q, k, v, partition)
				compareProducts(t, attention(s, p, q, k, v), got, types)
			})
		}
	})
}

func attendInParts(t *testing.T, name string, types []kernels.Element, s attentionShape, p paging, q, k, v tensor, partition int) tensor {
	t.Helper()
	partitions := slices.Max(p.contexts)/partition + 2
	rows := p.tokens() * s.heads * partitions
	l := attentionLaunch(name, s, p, q, k, v)
	delete(l.buffers, 7)
	l.constants[1] = uint32(partition)
	l.buffers[9] = result(kernels.Float, rows*s.head)
	l.buffers[10] = result(kernels.Float, rows*2)
	l.grid[2] = partitions
	parts := l.run(t)
	reduce := launch{
		kernel:  "attention_reduce_" + map[kernels.Element]string{kernels.Float: "f32", kernels.Half: "f16", kernels.Bfloat: "bf16"}[types[0]],
		buffers: map[int]tensor{0: parts[9], 1: parts[10], 2: result(q.element, q.length)},
		params: kernels.ReduceParams{
			Tokens: uint32(p.tokens()), Heads: uint32(s.heads), Head: uint32(s.head), Partitions: uint32(partitions),
		},
		grid:  [3]int{s.heads, p.tokens(), 1},
		group: (s.head/4 + 31) / 32 * 32,
	}
	return reduce.run(t)[2]
}
