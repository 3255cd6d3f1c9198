package smelt_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/constrain"
)

// A constraint keeps a text to its form, whatever chooses among the tokens that it leaves.
func TestConstraint(t *testing.T) {
	s := tinyQwen(t)
	v, err := s.Loaded().Vocabulary()
	require.NoError(t, err)
	schema := `{"type":"object","properties":{"k":{"enum":["x","yy"]},"n":{"type":"array","items":{"type":"boolean"},"maxItems":2}},"required":["k","n"],"additionalProperties":false}`
	c, err := v.JSONSchema([]byte(schema), constrain.Options{NoWhitespace: true})
	require.NoError(t, err)
	worst := func(logits []float32) (int32, error) {
		least := -1
		for i, l := range logits {
			if l > -1e30 && (least < 0 || l < logits[least]) {
				least = i
			}
		}
		return int32(least), nil
	}
	for name, g := range map[string]smelt.Generation{
		"greedy":                {},
		"sampled":               {Sampling: smelt.Sampling{Temperature: 2, Seed: 7}},
		"with logprobs":         {Logprobs: 2},
		"by a sampler of one's": {Sampler: worst},
	} {
		s.Reset()
		g.N, g.Constraint = 60, c
		got, err := generate(t.Context(), s, onceUpon, g)
		require.NoError(t, err, name)
		var answer struct {
			K string
			N []bool
		}
		require.NoError(t, json.Unmarshal([]byte(got.Text), &answer), "%s: %q", name, got.Text)
		require.Contains(t, []string{"x", "yy"}, answer.K)
		require.NotNil(t, answer.N)
	}
	s.Reset()
	_, err = generate(t.Context(), s, onceUpon, smelt.Generation{Constraint: c, Sampler: func([]float32) (int32, error) { return 5, nil }})
	require.ErrorContains(t, err, "which the constraint does not allow")
}
