package engine

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/batch"
)

// TestRunner asks for the logits of some tokens of a step, for none, and for a step that
// the plan has no phase for.
func TestRunner(t *testing.T) {
	head := func(after, token int) float32 { return float32((token*7 + after*3) % 11) }
	s := following(t, "cpu", head, true)
	row := func(after int) (l []float32) {
		for token := range vocab {
			l = append(l, head(after, token))
		}
		return l
	}
	q := batch.Piece{Tokens: []int32{4, 9, 2}, Blocks: s.blocks}
	for rows, want := range map[batch.Rows][]int{batch.Last: {2}, batch.All: {4, 9, 2}, batch.None: nil} {
		q.Rows = rows
		require.NoError(t, s.r.Run(t.Context(), q))
		logits, err := s.r.Logits()
		require.NoError(t, err)
		chosen, err := s.r.Chosen()
		require.NoError(t, err)
		require.Len(t, logits, len(want)*vocab)
		require.Len(t, chosen, len(want))
		for i, after := range want {
			require.Equal(t, row(after), logits[i*vocab:(i+1)*vocab])
			best, err := Greedy(row(after))
			require.NoError(t, err)
			require.Equal(t, best, chosen[i])
		}
	}
	err := s.r.Run(t.Context(), q, batch.Piece{Tokens: []int32{1}, Blocks: s.blocks})
	require.ErrorContains(t, err, "no phase for a step of sizes")
	q.Tokens = make([]int32, 6)
	require.ErrorContains(t, s.r.Run(t.Context(), q), "no phase")
	require.Equal(t, 5, s.r.piece(batch.Piece{Blocks: s.blocks}, 99))
	require.Equal(t, 1, s.r.piece(batch.Piece{Blocks: s.blocks}, 1))
}
