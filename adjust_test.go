package smelt_test

import (
	"math"
	"testing"

	"github.com/samber/lo"
	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/constrain"
	"github.com/smelt-ml/smelt/internal/fixture"
)

// Logits are adjusted before a token is chosen, alike in a session and in an engine, with a
// constraint and without, and likelihoods stay those of the model.
func TestAdjustments(t *testing.T) {
	s := tinyQwen(t)
	e := fixture.Engine(t, s.Loaded(), smelt.EngineOptions{Sequences: 2})
	v, err := s.Loaded().Vocabulary()
	require.NoError(t, err)
	anything, err := v.Regexp(`[\s\S]*`)
	require.NoError(t, err)
	run := func(a smelt.Adjustments, c *constrain.Constraint) []smelt.Token {
		s.Reset()
		g := smelt.Generation{N: 40, IgnoreStop: true, Adjustments: a, Constraint: c, Logprobs: 1}
		want := collect(s.Generate(t.Context(), onceUpon, g))
		require.NoError(t, want.err)
		got := collect(e.Generate(t.Context(), smelt.Request{Prompt: onceUpon, Generation: g}))
		got.sameAs(t, &want, 0, "an engine")
		return want.tokens
	}
	id := func(t smelt.Token, _ int) int32 { return t.ID }
	plain := run(smelt.Adjustments{}, nil)
	require.NotEqual(t, len(plain), len(lo.Uniq(lo.Map(plain, id))), "the test needs a text that repeats itself")
	for _, c := range []*constrain.Constraint{nil, anything} {
		none := float32(math.Inf(-1))
		banned := run(smelt.Adjustments{Bias: map[int32]float32{plain[1].ID: none}}, c)
		require.Equal(t, plain[0], banned[0])
		require.NotContains(t, lo.Map(banned, id), plain[1].ID)

		forced := run(smelt.Adjustments{Bias: map[int32]float32{plain[7].ID: 100}}, c)
		require.Equal(t, []int32{plain[7].ID}, lo.Uniq(lo.Map(forced, id)))
		require.Less(t, forced[0].Logprob, float32(-0.1), "as the model has it")

		present := lo.Map(run(smelt.Adjustments{PresencePenalty: 1000}, c), id)
		require.Equal(t, lo.Uniq(present), present)
		require.Equal(t, present, lo.Map(run(smelt.Adjustments{FrequencyPenalty: 1000}, c), id))
		mild := lo.Map(run(smelt.Adjustments{FrequencyPenalty: 0.8}, c), id)
		require.NotEqual(t, lo.Map(plain, id), mild)
		require.NotEqual(t, mild, present)
	}
	for want, a := range map[string]smelt.Adjustments{
		"a penalty of NaN":           {PresencePenalty: math.NaN()},
		"a bias of +Inf for token 3": {Bias: map[int32]float32{3: float32(math.Inf(1))}},
		"for token -1":               {Bias: map[int32]float32{-1: 1}},
	} {
		require.ErrorContains(t, collect(e.Generate(t.Context(), smelt.Request{Prompt: onceUpon, Generation: smelt.Generation{Adjustments: a}})).err, want)
	}
}
