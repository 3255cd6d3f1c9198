package pages

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/batch"
)

// recurrent is a pool of blocks of 4 tokens with states, and the tokens after which each state stands.
func recurrent(blocks, sequences int) (*Pool, map[int32][]int32) {
	p := NewPool(blocks, 4)
	p.Recur(States(sequences))
	return p, map[int32][]int32{}
}

// stepOf runs a step of n tokens of a sequence, and requires that the state which it reads is that of the
// tokens before it.
func stepOf(t *testing.T, table *Table, held map[int32][]int32, tokens []int32, computed, n int) {
	table.Reach(computed + n)
	s := table.State()
	if computed > 0 {
		require.Equal(t, tokens[:computed], held[s.Read], "the state that is read")
	}
	held[s.Write] = slices.Clone(tokens[:computed+n])
	table.Commit(tokens, computed+n)
}

func TestStatesAtEnds(t *testing.T) {
	p, held := recurrent(16, 2)
	prompt := make([]int32, 14)
	a := p.NewTable("")
	computed, ok := a.Begin(prompt, len(prompt), 0)
	require.True(t, ok)
	require.Zero(t, computed)
	require.Equal(t, batch.State{Read: -1, Write: -1}, a.State())
	require.Equal(t, 12, a.Stop(0, 14), "it stops at the prompt's last full block")
	stepOf(t, a, held, prompt, 0, 12)
	require.Equal(t, 2, a.Stop(12, 2))
	first := a.State().Read
	stepOf(t, a, held, prompt, 12, 2)
	require.NotEqual(t, first, a.State().Read, "a state that is known is not written")
	in := a.State().Read
	stepOf(t, a, held, append(prompt, 1), 14, 1)
	require.Equal(t, in, a.State().Read, "one that is not known is")
	a.Release()

	again := p.NewTable("")
	computed, _ = again.Begin(prompt, len(prompt), 0)
	require.Equal(t, 12, computed)
	require.Equal(t, first, again.State().Read)
	again.Release()

	other := append(slices.Clone(prompt[:8]), 1, 2, 3, 4, 5, 6)
	b := p.NewTable("")
	computed, _ = b.Begin(other, len(other), 0)
	require.Zero(t, computed, "blocks 0 and 1 are known, a state at their end is not")
	require.Equal(t, 8, b.Stop(0, 14), "it leaves one there")
	stepOf(t, b, held, other, 0, 8)
	require.Equal(t, 4, b.Stop(8, 6))
	stepOf(t, b, held, other, 8, 4)
	b.Release()

	third := append(slices.Clone(prompt[:8]), 9, 9)
	c := p.NewTable("")
	computed, _ = c.Begin(third, len(third), 0)
	require.Equal(t, 8, computed)
	c.Release()

	salted := p.NewTable("other")
	computed, _ = salted.Begin(prompt, len(prompt), 0)
	require.Zero(t, computed)
	salted.Release()
	p.Forget()
	again = p.NewTable("")
	computed, _ = again.Begin(prompt, len(prompt), 0)
	require.Zero(t, computed)
}

// TestStatesOfMany has sequences with common beginnings come, go on and go, some of them chosen twice
// before their step, and requires that none lacks a state, reads a foreign one, or keeps one at its end.
func TestStatesOfMany(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 3))
		const most = 4
		p, held := recurrent(40, most)
		type sequence struct {
			*Table
			tokens   []int32
			computed int
		}
		var running []*sequence
		for range 300 {
			if len(running) < most && r.IntN(3) == 0 {
				s := &sequence{Table: p.NewTable(""), tokens: make([]int32, 1+r.IntN(30))}
				for i := r.IntN(len(s.tokens)); i < len(s.tokens); i++ {
					s.tokens[i] = int32(r.IntN(2))
				}
				var ok bool
				if s.computed, ok = s.Begin(s.tokens, len(s.tokens), 0); ok {
					running = append(running, s)
				}
				continue
			}
			if len(running) == 0 {
				continue
			}
			i := r.IntN(len(running))
			s := running[i]
			switch {
			case r.IntN(12) == 0:
				if r.IntN(2) == 0 {
					s.Reach(s.computed + 1) // a step that is not run
				}
				s.Release()
				running = slices.Delete(running, i, i+1)
			case s.computed == len(s.tokens):
				s.tokens = append(s.tokens, int32(r.IntN(2)))
				if !s.Extend(s.computed, len(s.tokens)) {
					s.Release()
					running = slices.Delete(running, i, i+1)
				}
			default:
				n := s.Stop(s.computed, 1+r.IntN(len(s.tokens)-s.computed))
				if s.Reach(s.computed + n); r.IntN(4) == 0 {
					continue // chosen anew
				}
				stepOf(t, s.Table, held, s.tokens, s.computed, n)
				s.computed += n
			}
		}
		for _, s := range running {
			s.Release()
		}
		require.Equal(t, States(most), p.states.Free())
	}
}

// TestStatesInCommon has a sequence leave a state where another wants to go on.
func TestStatesInCommon(t *testing.T) {
	p, held := recurrent(16, 2)
	first, second := make([]int32, 30), make([]int32, 21)
	first[13], second[13] = 1, 2
	a, b := p.NewTable(""), p.NewTable("")
	_, ok := a.Begin(first, len(first), 0)
	require.True(t, ok)
	require.Equal(t, 3, b.Common(second, a, first))
	require.Equal(t, 5, b.Common(second, b, second), "the last token is computed")
	require.Zero(t, b.Common(second, p.NewTable("other"), second))
	stepOf(t, a, held, first, 0, 8)
	a.Leave(3, 8)
	require.Equal(t, 4, a.Stop(8, 22))
	stepOf(t, a, held, first, 8, 4)
	a.Leave(2, 12)
	require.Equal(t, 16, a.Stop(12, 18), "then at the prompt's last full block")
	computed, _ := b.Begin(second, len(second), 0)
	require.Equal(t, 12, computed)
}
