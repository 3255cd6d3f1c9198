package integration_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/constrain"
	"github.com/smelt-ml/smelt/internal/fixture"
	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/models/checkpoint"
)

// TestConstraintsDelayNobody decodes four texts beside four others, by turns with these kept
// to a schema and without one: steps take 2 % more at most. The model is half of Llama 3.2 1B's
// shape with random weights, its vocabulary Llama 3's.
func TestConstraintsDelayNobody(t *testing.T) {
	vocab := testfiles.Data(t, "tokenizers/ggml-vocab/ggml-vocab-llama-bpe.gguf")
	if !testfiles.Full("models") {
		t.Skip("a measurement, which tests beside it would disturb: SMELT_FULL=models makes it")
	}
	const n, rounds = 48, 5
	shape, err := smelt.Open("arch:llama3.2-1b,block_count=8", "q4_0")
	require.NoError(t, err)
	m, err := shape.Randomise(t.Context(), 1)
	require.NoError(t, err)
	opts := fixture.Options(t, "cpu", dtype.F16)
	opts.Context, opts.Sequences, opts.Block = 512, 8, 64
	p, err := m.Compile(opts)
	require.NoError(t, err)
	l, err := p.Load(smelt.Device{Name: "cpu", Threads: 2})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	tok, err := checkpoint.OpenTokenizer(vocab)
	require.NoError(t, err)
	v, err := constrain.New(tok.Texts(), tok.StopIDs())
	require.NoError(t, err)
	e := fixture.Engine(t, l, smelt.EngineOptions{Sequences: 8})
	decode := func(c *constrain.Constraint, s smelt.Sampling) (seconds float64) {
		var wait, others sync.WaitGroup
		var mu sync.Mutex
		ctx, enough := context.WithCancel(t.Context())
		for i := range 4 {
			others.Go(func() {
				g := smelt.Generation{N: 400, IgnoreStop: true, Constraint: c, Sampling: s}
				for _, err := range e.Generate(ctx, smelt.Request{Tokens: []int32{int32(200 + i)}, Generation: g}) {
					if err != nil {
						require.ErrorIs(t, err, context.Canceled)
					}
				}
			})
		}
		for i := range 4 {
			wait.Go(func() {
				var begun time.Time
				tokens := 0
				for _, err := range e.Generate(t.Context(), smelt.Request{Tokens: []int32{int32(100 + i)}, Generation: smelt.Generation{N: n, IgnoreStop: true}}) {
					require.NoError(t, err)
					if tokens++; tokens == 8 { // all are in the steps
						begun = time.Now()
					}
				}
				mu.Lock()
				seconds += time.Since(begun).Seconds() / float64(4*(tokens-8))
				mu.Unlock()
			})
		}
		wait.Wait()
		enough()
		others.Wait()
		return seconds
	}
	for name, s := range map[string]smelt.Sampling{"greedy": {}, "sampled": {Temperature: 1, Seed: 1}} {
		var ratios []float64
		for round := range rounds {
			plain := decode(nil, s)
			// Each round another schema, so that masks are made anew.
			c, err := v.JSONSchema([]byte(schemas[round%len(schemas)]), constrain.Options{})
			require.NoError(t, err)
			ratios = append(ratios, decode(c, s)/plain)
			t.Logf("%s: %.1f ms a step", name, 1000*plain)
		}
		slices.Sort(ratios)
		t.Logf("%s: steps take %.3f times as long (%.3f)", name, ratios[rounds/2], ratios)
		require.Less(t, ratios[rounds/2], 1.02, name)
	}
}

// schemas are of lists, since random weights write those to no end.
var schemas = []string{
	`{"type":"array","minItems":200,"items":{"type":"object","properties":{"name":{"type":"string","maxLength":20},"kind":{"enum":["a","bee","sea"]},"n":{"type":"integer"}},"required":["name","kind","n"],"additionalProperties":false}}`,
	`{"type":"array","minItems":200,"items":{"type":"string","pattern":"^[a-z]{2,8}(-[a-z0-9]{1,6}){0,3}$"}}`,
	`{"type":"array","minItems":200,"items":{"type":"string","format":"date-time"}}`,
	`{"type":"array","minItems":200,"items":{"type":"object","patternProperties":{"^x-":{"type":"number"}},"additionalProperties":{"type":["string","null"]}}}`,
	`{"type":"array","minItems":200}`,
}
