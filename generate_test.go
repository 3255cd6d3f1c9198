package smelt_test

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/internal/fixture"
	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/ir/dtype"
)

const onceUpon = "Once upon a time"

func tinyQwen(t *testing.T) *smelt.Session {
	opts := fixture.Options(t, "cpu", dtype.F16)
	opts.Context = 256
	return fixture.Session(t, testfiles.Model(t, "tiny-qwen3/gguf/tiny-qwen3-F16.gguf"), "cpu", opts)
}

func TestFinish(t *testing.T) {
	s := tinyQwen(t)
	five, err := fixture.Generate(t.Context(), s, onceUpon, smelt.Generation{N: 5})
	require.NoError(t, err)
	require.Len(t, five.Tokens, 5)
	require.Equal(t, smelt.FinishLength, five.Finish)

	s.Reset()
	none, err := fixture.Generate(t.Context(), s, onceUpon, smelt.Generation{N: -1})
	require.NoError(t, err)
	require.Empty(t, none.Tokens)
	require.Equal(t, five.Prompt, s.Length())
	next, err := fixture.Generate(t.Context(), s, "", smelt.Generation{N: 5})
	require.NoError(t, err)
	require.Equal(t, five.Tokens, next.Tokens)

	s.Reset()
	usual, err := fixture.Generate(t.Context(), s, onceUpon, smelt.Generation{IgnoreStop: true})
	require.NoError(t, err)
	require.Len(t, usual.Tokens, 128)
}

// A text is cut before what stops it, wherever tokens end, and what might have been the
// beginning of a stop comes when it is not.
func TestStop(t *testing.T) {
	s := tinyQwen(t)
	whole, err := fixture.Generate(t.Context(), s, onceUpon, smelt.Generation{N: 60})
	require.NoError(t, err)
	for at := 1; at < len(whole.Text)-8; at += 5 {
		stop := whole.Text[at : at+7]
		first := strings.Index(whole.Text, stop)
		for _, stops := range [][]string{{stop}, {"\x00", stop, ""}, {stop + "x", stop}} {
			s.Reset()
			got, err := fixture.Generate(t.Context(), s, onceUpon, smelt.Generation{N: 60, Stop: stops})
			require.NoError(t, err)
			require.Equal(t, whole.Text[:first], got.Text, "%q", stops)
			require.Equal(t, smelt.FinishStop, got.Finish)
			require.Equal(t, whole.Tokens[:len(got.Tokens)], got.Tokens)
		}
		s.Reset()
		got, err := fixture.Generate(t.Context(), s, onceUpon, smelt.Generation{N: 60, Stop: []string{stop + "\x00"}})
		require.NoError(t, err)
		require.Equal(t, whole, got, "a beginning is no stop")
	}
}

// TestLogprobs holds them to the softmax of the logits in float64.
func TestLogprobs(t *testing.T) {
	for _, sampling := range []smelt.Sampling{{}, {Temperature: 1.5, Seed: 3}} {
		s := tinyQwen(t)
		ids, err := s.Encode(onceUpon)
		require.NoError(t, err)
		before := len(ids)
		var tokens []smelt.Token
		for token, err := range s.GenerateTokens(t.Context(), ids, smelt.Generation{N: 8, Sampling: sampling, Logprobs: 3}) {
			require.NoError(t, err)
			tokens = append(tokens, token)
			ids = append(ids, token.ID)
		}
		require.Equal(t, ids, s.Tokens())
		s.Reset()
		require.NoError(t, s.Score(t.Context(), ids[:len(ids)-1], func(i int, logits []float32) error {
			if i < before-1 {
				return nil
			}
			token := tokens[i-before+1]
			sum := 0.0
			for _, x := range logits {
				sum += math.Exp(float64(x))
			}
			logprob := func(id int32) float64 { return float64(logits[id]) - math.Log(sum) }
			require.InDelta(t, logprob(token.ID), float64(token.Logprob), 2e-4)
			require.Len(t, token.Top, 3)
			best, err := smelt.Greedy(logits)
			require.NoError(t, err)
			require.Equal(t, best, token.Top[0].ID)
			for k, a := range token.Top {
				require.InDelta(t, logprob(a.ID), float64(a.Logprob), 2e-4)
				require.True(t, k == 0 || a.Logprob <= token.Top[k-1].Logprob)
			}
			if sampling.Temperature == 0 {
				require.Equal(t, best, token.ID)
			}
			return nil
		}))
	}
}

// A sampler of one's own sees the logits, may change them, and chooses.
func TestSampler(t *testing.T) {
	s := tinyQwen(t)
	plain, err := fixture.Generate(t.Context(), s, onceUpon, smelt.Generation{N: 6})
	require.NoError(t, err)
	s.Reset()
	banned := plain.Tokens[2]
	got, err := fixture.Generate(t.Context(), s, onceUpon, smelt.Generation{N: 6, Logprobs: 1, Sampler: func(logits []float32) (int32, error) {
		logits[banned] = float32(math.Inf(-1))
		return smelt.Greedy(logits)
	}})
	require.NoError(t, err)
	require.Equal(t, plain.Tokens[:2], got.Tokens[:2])
	require.NotContains(t, got.Tokens, banned)

	s.Reset()
	_, err = fixture.Generate(t.Context(), s, onceUpon, smelt.Generation{Sampler: func(logits []float32) (int32, error) { return int32(len(logits)), nil }})
	require.ErrorContains(t, err, "the sampler chose")
	s.Reset()
	_, err = fixture.Generate(t.Context(), s, onceUpon, smelt.Generation{Sampler: func([]float32) (int32, error) { return 0, smelt.ErrNaN }})
	require.ErrorIs(t, err, smelt.ErrNaN)
}

// Breaking off keeps what was generated, and the sequence goes on from there.
func TestBreak(t *testing.T) {
	s := tinyQwen(t)
	whole, err := fixture.Generate(t.Context(), s, onceUpon, smelt.Generation{N: 8})
	require.NoError(t, err)
	s.Reset()
	var got []int32
	for token, err := range s.Generate(t.Context(), onceUpon, smelt.Generation{N: 8}) {
		require.NoError(t, err)
		if got = append(got, token.ID); len(got) == 3 {
			break
		}
	}
	rest, err := fixture.Generate(t.Context(), s, "", smelt.Generation{N: 5})
	require.NoError(t, err)
	require.Equal(t, whole.Tokens, append(got, rest.Tokens...))
}

func TestGenerationErrors(t *testing.T) {
	s := tinyQwen(t)
	for want, g := range map[string]smelt.Generation{
		"temperature -1":      {Sampling: smelt.Sampling{Temperature: -1}},
		"-1 alternatives":     {Logprobs: -1},
		"the context is full": {N: 1},
		"no tokens to feed":   {N: 2},
	} {
		ids := make([]int32, 300)
		if g.N != 1 {
			ids = nil
		}
		var failed error
		values := 0
		for _, err := range s.GenerateTokens(t.Context(), ids, g) {
			failed = err
			values++
		}
		require.ErrorContains(t, failed, want)
		require.Equal(t, 1, values)
		require.Zero(t, s.Length())
	}
}
