package batch_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/batch"
	"github.com/smelt-ml/smelt/internal/ref"
	"github.com/smelt-ml/smelt/ir/sym"
)

func ExamplePack() {
	s := batch.Pack(2, 8,
		batch.Piece{Tokens: []int32{72, 73, 74}, Start: 1, Blocks: []int32{3, 0}},
		batch.Piece{Tokens: []int32{75, 76}, Blocks: []int32{2}, Second: 1, Rows: batch.All})
	for _, name := range []string{sym.Tokens, sym.TokenTypes, sym.Positions, sym.Slots, sym.CuSeqlens, sym.ContextLens, sym.BlockTable, sym.LogitRows} {
		fmt.Println(name, s.Inputs[name])
	}
	fmt.Println(s.Sizes, s.Longest)
	// Output:
	// tokens [72 73 74 75 76]
	// token_types [0 0 0 0 1]
	// positions [1 2 3 0 1]
	// slots [7 0 1 4 5]
	// cu_seqlens [0 3 5]
	// context_lens [4 2]
	// block_table [3 0 2 -1]
	// logit_rows [2 3 4]
	// [5 2 3 2 8 0] 3
}

// TestWindows: layers with a window have slots and a table of their own, as wide as the others'; nothing of
// them is left in a step without.
func TestWindows(t *testing.T) {
	var s batch.Step
	first := batch.Piece{Tokens: []int32{72, 73, 74}, Start: 1, Blocks: []int32{3, 0}, Windows: []batch.Window{{Keys: 2, Blocks: []int32{7, 7}}, {Keys: 1, Blocks: []int32{4, 5}}}}
	second := batch.Piece{Tokens: []int32{75, 76}, Blocks: []int32{2}, Windows: []batch.Window{{Keys: 2, Blocks: []int32{1}}, {Keys: 1, Blocks: []int32{0}}}}
	s.Pack(2, 8, first, second)
	require.Equal(t, []int32{7, 0, 1, 4, 5}, s.Inputs["slots"])
	require.Equal(t, []int32{15, 14, 15, 2, 3}, s.Inputs["slots@2"])
	require.Equal(t, []int32{7, 7, 1, -1}, s.Inputs["block_table@2"])
	require.Equal(t, []int32{9, 10, 11, 0, 1}, s.Inputs["slots@1"])
	require.Equal(t, []int32{4, 5, 0, -1}, s.Inputs["block_table@1"])
	first.Windows, second.Windows = first.Windows[:1], second.Windows[:1]
	s.Pack(2, 8, second)
	require.Equal(t, []int32{2, 3}, s.Inputs["slots@2"])
	require.NotContains(t, s.Inputs, "slots@1")
	require.NotContains(t, s.Inputs, "block_table@1")
	second.Windows = []batch.Window{{Keys: 3, Blocks: []int32{1}}}
	require.PanicsWithValue(t, "batch: sequence 1 adds 2 tokens after 0 to 1 blocks of 2 slots for layers that see 3 keys, where others see 2",
		func() { s.Pack(2, 8, first, second) })
	second.Windows = []batch.Window{{Keys: 2, Blocks: []int32{}}}
	require.Panics(t, func() { s.Pack(2, 8, first, second) })
}

// mixture gives random sequences blocks of their own, shuffled, and what has been written
// of each so far.
type mixture struct {
	r              *rand.Rand
	block, context int
	blocks         int
	sequences      []batch.Piece
}

func newMixture(r *rand.Rand) *mixture {
	m := &mixture{r: r, block: 1 + r.IntN(9), context: 1 + r.IntN(60)}
	m.sequences = make([]batch.Piece, 1+r.IntN(6))
	each := (m.context + m.block - 1) / m.block
	m.blocks = each*len(m.sequences) + r.IntN(3)
	all := r.Perm(m.blocks)
	for i := range m.sequences {
		for _, b := range all[i*each : (i+1)*each] {
			m.sequences[i].Blocks = append(m.sequences[i].Blocks, int32(b))
		}
	}
	return m
}

// next takes some sequences further, in random order, each by a piece of any length.
func (m *mixture) next() (step []batch.Piece) {
	for _, i := range m.r.Perm(len(m.sequences)) {
		q := &m.sequences[i]
		q.Start += len(q.Tokens)
		q.Tokens = nil
		left := m.context - q.Start
		if left == 0 || m.r.IntN(4) == 0 {
			continue
		}
		for range 1 + m.r.IntN(min(left, []int{1, 3, left}[m.r.IntN(3)])) {
			q.Tokens = append(q.Tokens, int32(m.r.IntN(1000)))
		}
		q.Rows = batch.Rows(m.r.IntN(3))
		brings := *q
		if m.r.IntN(2) == 0 { // no more blocks than it needs
			brings.Blocks = q.Blocks[:(q.Start+len(q.Tokens)+m.block-1)/m.block]
		}
		step = append(step, brings)
	}
	return step
}

// TestLaws packs random mixtures, step after step in the same memory, and checks what the
// package promises of each; a map of the cache says what every slot was written with.
func TestLaws(t *testing.T) {
	for seed := range uint64(300) {
		m := newMixture(rand.New(rand.NewPCG(seed, 7)))
		type place struct {
			block    int32 // the sequence's first, which no other owns
			position int32
		}
		cache := map[int32]place{}
		var s batch.Step
		for range 8 {
			sequences := m.next()
			if len(sequences) == 0 {
				continue
			}
			s.Pack(m.block, m.context, sequences...)
			in := s.Inputs
			longest, keys := int64(0), int32(0)
			require.Equal(t, int32(0), in[sym.CuSeqlens][0])
			require.Len(t, in[sym.CuSeqlens], len(sequences)+1)
			var rows []int32
			for b, q := range sequences {
				from, to := in[sym.CuSeqlens][b], in[sym.CuSeqlens][b+1]
				require.Less(t, from, to, "cu_seqlens rises")
				require.Equal(t, q.Tokens, in[sym.Tokens][from:to])
				for i := from; i < to; i++ {
					position, slot := in[sym.Positions][i], in[sym.Slots][i]
					require.Equal(t, int32(q.Start)+i-from, position)
					require.True(t, slot >= 0 && int(slot) < m.blocks*m.block)
					require.NotContains(t, cache, slot, "slots collide")
					cache[slot] = place{q.Blocks[0], position}
					if q.Rows == batch.All || q.Rows == batch.Last && i == to-1 {
						rows = append(rows, i)
					}
				}
				// Through the table, every key of the context is where some step has put it.
				require.Equal(t, int32(q.Start+len(q.Tokens)), in[sym.ContextLens][b])
				table := in[sym.BlockTable][b*int(s.Sizes[sym.NB]) : (b+1)*int(s.Sizes[sym.NB])]
				for j := range in[sym.ContextLens][b] {
					slot := table[int(j)/m.block]*int32(m.block) + j%int32(m.block)
					require.Equal(t, place{q.Blocks[0], j}, cache[slot])
				}
				longest, keys = max(longest, int64(to-from)), max(keys, in[sym.ContextLens][b])
			}
			require.ElementsMatch(t, rows, in[sym.LogitRows])
			require.IsNonDecreasing(t, append([]int32{0}, in[sym.LogitRows]...))
			require.Equal(t, longest, s.Longest)
			smax := s.Sizes[sym.Smax]
			require.True(t, int64(keys) <= smax && smax <= int64(m.context))
			require.Equal(t, ref.SizesFor(in, int(smax)), s.Sizes, "the inputs have these sizes")
			for name, fresh := range batch.Pack(m.block, m.context, sequences...).Inputs {
				require.Equal(t, append([]int32{}, fresh...), append([]int32{}, in[name]...), "the memory of the last step leaves no trace")
			}
		}
	}
}

func TestNoRoom(t *testing.T) {
	for want, q := range map[string]batch.Piece{
		"adds 0 tokens":                      {Blocks: []int32{0}},
		"3 tokens after 6 to 2 blocks of 4":  {Tokens: []int32{1, 2, 3}, Start: 6, Blocks: []int32{0, 1}},
		"2 tokens after 9 to 9 blocks of 4 ": {Tokens: []int32{1, 2}, Start: 9, Blocks: make([]int32, 9)}, // over the context
		"1 tokens after -1":                  {Tokens: []int32{1}, Start: -1, Blocks: []int32{0}},
	} {
		func() {
			defer func() { require.Contains(t, recover(), want) }()
			batch.Pack(4, 10, batch.Piece{Tokens: []int32{1}, Blocks: []int32{5}}, q)
		}()
	}
}

// TestPackCopies: a step of copies has no tokens, and the next one in its memory no copies.
func TestPackCopies(t *testing.T) {
	var s batch.Step
	tokens := batch.Piece{Tokens: []int32{1, 2}, Start: 3, Blocks: []int32{0, 4}}
	s.Pack(4, 8, tokens)
	s.PackCopies(batch.Copy{From: 4, To: 7}, batch.Copy{From: 4, To: 1})
	require.Equal(t, []int32{4, 7, 4, 1}, s.Inputs[sym.Copies])
	require.Equal(t, ref.SizesFor(s.Inputs, 0), s.Sizes)
	require.Equal(t, sym.Sizes{sym.C: 2}, s.Sizes)
	require.Zero(t, s.Longest)
	s.Pack(4, 8, tokens)
	require.Equal(t, batch.Pack(4, 8, tokens).Sizes, s.Sizes)
	require.Empty(t, s.Inputs[sym.Copies])
}

func TestSmax(t *testing.T) {
	require.EqualValues(t, 64, batch.Smax(1, 4096))
	require.EqualValues(t, 64, batch.Smax(64, 4096))
	require.EqualValues(t, 128, batch.Smax(65, 4096))
	require.EqualValues(t, 100, batch.Smax(65, 100))
}

func TestContiguous(t *testing.T) {
	require.Equal(t, []int32{0}, batch.Contiguous(64, 64))
	require.Equal(t, []int32{0, 1, 2}, batch.Contiguous(3, 7))
}
