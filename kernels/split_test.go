package kernels_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

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
				c := newAttention(rng, s, b.page(rng), types)
				compareProducts(t, c.want(), c.runInParts(t, name, []int{16, 32, 40}[i%3], nil), types)
			})
		}
	})
}

// Windows that skip whole partitions, and sinks, which count once however many
// partitions there are.
func TestAttentionSplitFeatures(t *testing.T) {
	instances(t, "attention_vec", func(t *testing.T, name string, types []kernels.Element) {
		for i, f := range featuresFor(4) {
			if !everything() && len(name)%2 == i%2 {
				continue
			}
			t.Run(f.String(), func(t *testing.T) {
				rng := newRand(t.Name())
				c := newAttention(rng, attentionShape{4, 2, headFor(types, 24)}, featureBatch.page(rng), types)
				c.features = f
				compareProducts(t, c.want(), c.runInParts(t, name, 64, c.specialised()), types)
			})
		}
	})
}

// TestReduceManyPartitions has more partitions than a simdgroup has lanes, most of them
// empty.
func TestReduceManyPartitions(t *testing.T) {
	rng := newRand(t.Name())
	p := batch{lens: []int{1, 1}, contexts: []int{700, 9}, block: 32}.page(rng)
	types := []kernels.Element{kernels.Float, kernels.Float}
	c := newAttention(rng, attentionShape{2, 1, 40}, p, types)
	compareProducts(t, c.want(), c.runInParts(t, "attention_vec_f32_f32", 8, nil), types)
	c.sinks = inTurn(2, 1, -1)
	compareProducts(t, c.want(), c.runInParts(t, "attention_vec_f32_f32", 8, nil), types)
}

// runInParts launches attention_vec over partitions of that many keys and then
// attention_reduce.
func (c attentionCall) runInParts(t *testing.T, name string, partition int, constants map[string]uint32) tensor {
	t.Helper()
	partitions := slices.Max(c.contexts)/partition + 2
	rows := c.tokens() * c.heads * partitions
	l := c.launch(name, constants)
	delete(l.buffers, "out")
	l.constants["fc_split"] = uint32(partition)
	l = c.cut(l)
	l.buffers["part"] = result(kernels.Float, rows*c.head)
	l.buffers["statistics"] = result(kernels.Float, rows*2)
	l.grid[2] = partitions
	reduce := launch{
		kernel:  "attention_reduce_" + suffixOf[c.q.element],
		buffers: map[string]tensor{"out": result(c.q.element, c.q.length)},
		params: kernels.ReduceParams{
			Tokens: uint32(c.tokens()), Heads: uint32(c.heads), Head: uint32(c.head), Partitions: uint32(partitions),
		},
		grid:      [3]int{c.heads, c.tokens(), 1},
		group:     ceil(c.head/4, 32) * 32,
		constants: map[string]uint32{},
	}
	moveGate(&l, &reduce)
	parts := l.run(t)
	for seq, tokens := range c.lens { // what attention_reduce need not read says so
		for row := range tokens * c.heads {
			for i := ceil(int(c.contextLens[seq]), partition); i < partitions; i++ {
				at := (int(c.cu[seq])*c.heads+row)*partitions + i
				require.Zero(t, parts["statistics"].at(2*at+1), "partition %d of row %d", i, at/partitions)
			}
		}
	}
	reduce.buffers["part"], reduce.buffers["statistics"] = parts["part"], parts["statistics"]
	if sinks, ok := l.buffers["sinks"]; ok {
		reduce.buffers["sinks"] = sinks
		reduce.constants["fc_sinks"] = 1
	}
	return reduce.run(t)["out"]
}

// cut gives a launch the grid that its rows and heads ask for.
func (c attentionCall) cut(l launch) launch {
	if rows, ok := l.constants["fc_rows"]; ok && rows > 1 {
		l = c.inRows(l, int(rows))
	}
	if heads, ok := l.constants["fc_heads"]; ok {
		l = c.inHeads(l, int(heads))
	}
	return l
}

var suffixOf = map[kernels.Element]string{kernels.Float: "f32", kernels.Half: "f16", kernels.Bfloat: "bf16"}
