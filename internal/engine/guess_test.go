package engine

import (
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/lower"
)

// TestGuesses: texts have the same tokens with guesses; what was generated is guessed in a
// later text of the same salt, and in no other.
func TestGuesses(t *testing.T) {
	e := guessing(t, Limits{4, 12}, Guessing{Rows: 8, Lookup: true, Choose: Eagerly})
	salted := func(salt string, n int) asked {
		a := askAs(t.Context(), e, Request{Tokens: []int32{7, 0}, Salt: salt}, n, nil)
		require.NoError(t, a.err)
		return a
	}
	first := salted("a", 7)
	require.Equal(t, []int32{3, 18, 13, 28, 23, 38, 33}, first.ids)
	require.Zero(t, first.usage.Drafted)
	again := salted("a", 7)
	require.Equal(t, first.ids, again.ids)
	require.Equal(t, Usage{Prompt: 2, Drafted: 5, Accepted: 5}, again.usage, "all after three tokens that agree, but the last")
	other := salted("b", 7)
	require.Equal(t, first.ids, other.ids)
	require.Zero(t, other.usage.Drafted, "another tenant's text is not guessed")

	var wait sync.WaitGroup
	for i := range 30 {
		wait.Go(func() {
			var want []int32
			for last := int32(i % 5); len(want) < 20; want = append(want, last) {
				last = successor(last)
			}
			prompt := slices.Concat([]int32{1, 2, 3, 4}, want[:10], []int32{11, 9}, []int32{int32(i % 5)}) // and a wrong turn
			a := askBy(t.Context(), e, Chooser(i%3), prompt, 20, nil)
			require.NoError(t, a.err)
			require.Equal(t, want, a.ids)
		})
	}
	wait.Wait()
	require.NoError(t, e.Close())
	s := e.Stats()
	require.Equal(t, s.Blocks, s.Free)
	require.Greater(t, s.Accepted, int64(30))
	require.Greater(t, s.Drafted, s.Accepted)
}

// guessing is counting for engines that guess.
func guessing(t *testing.T, limits Limits, g Guessing) *Engine {
	plan, program := loadFollowing(t, "cpu", tables(func(after, token int) float32 {
		if int32(token) == successor(int32(after)) {
			return 1
		}
		return 0
	}), true, lower.Options{Context: 64, Sequences: 4, Rows: 12}, lower.Range{Name: "any", MinT: 1, MaxT: 12})
	require.Equal(t, 8, GuessesOf(plan, 4))
	_, err := New(plan, program, limits, 3, Guessing{Rows: 9})
	require.ErrorContains(t, err, "9 guesses beside 4 sequences: the plan of following has rows of logits for 0 to 8")
	e, err := New(plan, program, limits, 3, g)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	return e
}
