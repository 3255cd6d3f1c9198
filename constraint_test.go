package smelt_test

import (
	"encoding/json"
	"math"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/samber/lo"
	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/constrain"
	"github.com/smelt-ml/smelt/internal/compiler"
	"github.com/smelt-ml/smelt/internal/engine"
	"github.com/smelt-ml/smelt/internal/fixture"
	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/internal/tiny"
	"github.com/smelt-ml/smelt/ir/dtype"
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
		got, err := fixture.Generate(t.Context(), s, onceUpon, g)
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
	_, err = fixture.Generate(t.Context(), s, onceUpon, smelt.Generation{Constraint: c, Sampler: func([]float32) (int32, error) { return 5, nil }})
	require.ErrorContains(t, err, "which the constraint does not allow")
}

// record is a form with texts that must follow, tokens that must and such as are free.
const record = `{"type":"object","properties":{"identifier":{"type":"integer","minimum":0,"maximum":99999},"description":{"type":"string","maxLength":12},
	"classification":{"enum":["elementary particle","composite particle"]},"measurements":{"type":"array","items":{"type":"boolean"},"minItems":2,"maxItems":4}},
	"required":["identifier","description","classification","measurements"],"additionalProperties":false}`

func idsOf(a *answer) []int32 {
	return lo.Map(a.tokens, func(t smelt.Token, _ int) int32 { return t.ID })
}

// rows counts those that tokens were chosen from, and none was guessed for.
type rows struct {
	decoding
	chosen atomic.Int64
}

func (r *rows) Stepped(s smelt.EngineStep) { r.chosen.Add(int64(s.Rows - s.Drafted)) }

// byHand is a sampler that asks a constraint for each mask itself: nothing is forced beside
// it, and nothing guessed.
func byHand(t *testing.T, c *constrain.Constraint, s smelt.Sampling) func(logits []float32) (int32, error) {
	state, mask, inner := c.Start(), make([]uint64, c.Words()), engine.NewSampler(engine.Sampling(s))
	return func(logits []float32) (int32, error) {
		require.NoError(t, state.Mask(mask))
		for i := range logits {
			if i>>6 >= len(mask) || mask[i>>6]>>(i&63)&1 == 0 {
				logits[i] = float32(math.Inf(-1))
			}
		}
		id, err := inner.Next(logits)
		if err == nil {
			var ok bool
			ok, err = state.Accept(id)
			require.True(t, ok)
		}
		return id, err
	}
}

// Tokens that must follow take no logits, and guesses that a constraint allows are verified:
// the answers are the same, in a session and in engines of all kinds, alone and beside others.
func TestConstraintChangesNoAnswer(t *testing.T) {
	smelt.GuessEagerly(t)
	opts := fixture.Options(t, "cpu", dtype.F16)
	opts.Context, opts.Sequences, opts.Block, opts.SameBits = 256, 4, 16, true
	opts.Rows = compiler.GuessedRows(opts.Sequences)
	device := smelt.Device{Name: "cpu", Threads: 2}
	l := fixture.Load(t, testfiles.Model(t, "tiny-qwen3/gguf/tiny-qwen3-F16.gguf"), opts, device)
	small := fixture.Load(t, tiny.GGUF(t, "tiny-qwen3", "Q2_K"), opts, device)
	v, err := l.Vocabulary()
	require.NoError(t, err)
	c, err := v.JSONSchema([]byte(record), constrain.Options{NoWhitespace: true})
	require.NoError(t, err)
	prompts := []string{"Once upon a time", "There was a little girl", "One day, a big dog", "The sun was warm"}
	samplings := []smelt.Sampling{{}, {Temperature: 1.5, Seed: 3}, {Temperature: 0.7, TopK: 20, Seed: 4}, {}}
	want := make([]answer, len(prompts))
	for i, p := range prompts {
		s, err := l.NewSession()
		require.NoError(t, err)
		want[i] = collect(s.Generate(t.Context(), p, smelt.Generation{N: 150, Sampler: byHand(t, c, samplings[i])}))
		require.NoError(t, want[i].err)
		s.Reset()
		got := collect(s.Generate(t.Context(), p, smelt.Generation{N: 150, Sampling: samplings[i], Constraint: c}))
		require.Equal(t, idsOf(&want[i]), idsOf(&got), "a session, %q", p)
		require.Equal(t, want[i].text, got.text)
		require.NoError(t, s.Close())
	}
	m := fixture.Engine(t, l, smelt.EngineOptions{Sequences: 4})
	const few = "with too few blocks"
	for name, o := range map[string]smelt.EngineOptions{
		"plain": {}, few: {CacheBytes: 20 * m.OnDevice().Memory().Cache / int64(m.Stats().Blocks), Speculate: engine.SpeculateNgram},
		"lookup": {Speculate: engine.SpeculateNgram}, "draft": {Draft: small}, "both": {Speculate: engine.SpeculateNgram, Draft: small},
	} {
		t.Run(name, func(t *testing.T) {
			var seen rows
			o.Sequences, o.Metrics = 4, &seen
			e := fixture.Engine(t, l, o)
			generated := 0
			for range 2 { // the second time all masks are known
				var wait sync.WaitGroup
				got := make([]answer, len(prompts))
				for i, p := range prompts {
					wait.Go(func() {
						got[i] = collect(e.Generate(t.Context(), smelt.Request{Prompt: p, Generation: smelt.Generation{N: 150, Sampling: samplings[i], Constraint: c}}))
					})
				}
				wait.Wait()
				for i, p := range prompts {
					require.NoError(t, got[i].err, p)
					generated += len(got[i].tokens)
					if o.Draft != nil && samplings[i].Temperature > 0 { // another text of the same distribution
						require.True(t, json.Valid([]byte(got[i].text)) || len(got[i].tokens) == 150, got[i].text)
						continue
					}
					require.Equal(t, idsOf(&want[i]), idsOf(&got[i]), p)
					require.Equal(t, want[i].text, got[i].text, p)
				}
			}
			s := e.Stats()
			t.Logf("%d tokens, %d steps with %d tokens and %d rows; %d guesses, %d right; %d preempted", generated, s.Steps, s.Tokens, seen.chosen.Load(), s.Drafted, s.Accepted, s.Preempted)
			require.Equal(t, name == few, s.Preempted > 0)
			switch {
			case name == "plain":
				require.Zero(t, s.Drafted)
				require.Less(t, seen.chosen.Load(), int64(generated)) // some had to follow
			case o.Draft != nil: // which draws among what is allowed
				require.Greater(t, 2*s.Accepted, s.Drafted)
			default:
				require.Positive(t, s.Accepted)
			}
		})
	}
}

// What a constraint does not allow is not verified: of a text that stands in the prompt, none.
func TestGuessesAreAllowed(t *testing.T) {
	smelt.GuessEagerly(t)
	opts := fixture.Options(t, "cpu", dtype.F16)
	opts.Context, opts.Sequences, opts.Rows = 256, 1, compiler.GuessedRows(1)
	l := fixture.Load(t, testfiles.Model(t, "tiny-qwen3/gguf/tiny-qwen3-F16.gguf"), opts, smelt.Device{Name: "cpu"})
	v, err := l.Vocabulary()
	require.NoError(t, err)
	digits, err := v.Regexp(` (named|Named)[0-9]{30}`) // where a name followed before
	require.NoError(t, err)
	e := fixture.Engine(t, l, smelt.EngineOptions{Sequences: 1, Speculate: engine.SpeculateNgram})
	ask := func(salt string, c *constrain.Constraint) *smelt.Usage {
		a := collect(e.Generate(t.Context(), smelt.Request{Salt: salt, Prompt: "a little girl named Lily. a little girl named Lily. a little girl", Generation: smelt.Generation{N: 3, Constraint: c}}))
		require.NoError(t, a.err)
		return a.usage()
	}
	require.Positive(t, ask("", nil).Drafted)
	for _, salt := range []string{"a", "b"} { // the second time what may follow is known
		require.Zero(t, ask(salt, digits).Drafted, salt)
	}
}
