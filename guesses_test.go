package smelt_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/internal/engine/draft"
	"github.com/smelt-ml/smelt/internal/fixture"
	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/ir/dtype"
)

// edited is a copy of a text in which some tokens, one in twenty, are replaced, left out or
// followed by another.
func edited(r *rand.Rand, text []int32) (copied []int32) {
	other := func() int32 { return text[r.IntN(len(text))] }
	for _, id := range text {
		switch r.IntN(60) {
		case 0:
			copied = append(copied, other())
		case 1:
		case 2:
			copied = append(copied, id, other())
		default:
			copied = append(copied, id)
		}
	}
	return copied
}

// TestGuessesOfTexts lets a policy and a lookup of their own decode the same texts where steps
// take what they took for Qwen3 0.6B in Q4_0 on a processor with AVX-512 and VNNI.
func TestGuessesOfTexts(t *testing.T) {
	valid, err := os.ReadFile(testfiles.Model(t, "valid.txt"))
	require.NoError(t, err)
	tokens := fixture.Load(t, testfiles.Model(t, "tiny-qwen3/gguf/tiny-qwen3-F16.gguf"), fixture.Options(t, "cpu", dtype.F16), smelt.Device{Name: "cpu"})
	words, err := tokens.Encode(string(valid))
	require.NoError(t, err)
	sizes, took := []int{1, 2, 3, 4, 5, 8, 16, 32, 80}, []float64{15, 19.2, 19.6, 29.8, 31.9, 35.7, 48.9, 72, 150}
	milliseconds := func(n int) float64 {
		i := 0
		for n > sizes[i+1] {
			i++
		}
		return took[i] + (took[i+1]-took[i])*float64(n-sizes[i])/float64(sizes[i+1]-sizes[i])
	}
	const prompt, n, turns = 256, 150, 10
	for kind, least := range map[string]float64{"edits": 2, "stories": 0.98} {
		policy, lookup, time := draft.NewPolicy(80), draft.NewLookup(512), 0.0
		for n := 1; n <= 32; n *= 2 {
			policy.Measured(n, milliseconds(n))
		}
		for turn := range turns {
			r := rand.New(rand.NewPCG(uint64(turn), 1))
			text := words[r.IntN(len(words)-prompt-n-1):]
			next := text[prompt:]
			if kind == "edits" {
				next = slices.Concat(edited(r, text[:prompt]), text)
			}
			sequence, rates := lookup.Begin(fmt.Sprint(turn), text[:prompt]), draft.Rates{}
			for next = next[:n]; len(next) > 0; {
				ids, agreed := sequence.Propose(nil, min(32, len(next)))
				guess := []draft.Guess{{Rates: &rates, Agreed: agreed, Tokens: len(ids)}}
				taken, right := policy.Choose(1, guess, 63), 0
				for right < min(taken, len(next)-1) && ids[right] == next[right] {
					right++
				}
				if taken == 0 {
					policy.Plain(1, milliseconds(1))
				} else {
					policy.Verified(&guess[0], right)
					policy.Drafted(1, 1+taken, 1+right, milliseconds(1+taken))
				}
				time += milliseconds(1 + taken)
				for _, id := range next[:right+1] {
					sequence.Append(id)
				}
				next = next[right+1:]
			}
			sequence.End()
		}
		faster := turns * n * milliseconds(1) / time
		t.Logf("%s: %.2f times as fast", kind, faster)
		require.Greater(t, faster, least)
	}
}
