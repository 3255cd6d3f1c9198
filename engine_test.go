package smelt_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/samber/lo"
	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/device"
	"github.com/smelt-ml/smelt/internal/engine"
	"github.com/smelt-ml/smelt/internal/fixture"
	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/internal/tiny"
	"github.com/smelt-ml/smelt/internal/tools/parity"
	"github.com/smelt-ml/smelt/ir/dtype"
)

// answer is what a generation gave.
type answer struct {
	tokens []smelt.Token
	text   string
	err    error
}

func collect(values func(func(smelt.Token, error) bool)) (a answer) {
	return collectSome(values, math.MaxInt)
}

// collectSome breaks off after so many tokens.
func collectSome(values func(func(smelt.Token, error) bool), most int) (a answer) {
	for token, err := range values {
		a.text += token.Text
		if a.err = err; err == nil {
			a.tokens = append(a.tokens, token)
		}
		if len(a.tokens) == most {
			break
		}
	}
	return a
}

func (a *answer) usage() *smelt.Usage { return a.tokens[len(a.tokens)-1].Usage }

// sameAs holds an answer to another of the same request: the same tokens, and
// log-probabilities that differ by no more than a bound. It returns the largest difference.
func (a *answer) sameAs(t *testing.T, want *answer, bound float64, about string) (largest float64) {
	require.Equal(t, want.err == nil, a.err == nil, "%s: %v, %v", about, want.err, a.err)
	require.Equal(t, want.text, a.text, about)
	require.Len(t, a.tokens, len(want.tokens), about)
	for i := range want.tokens {
		w, g := &want.tokens[i], &a.tokens[i]
		require.Equal(t, w.ID, g.ID, "%s: token %d", about, i)
		require.Equal(t, w.Finish, g.Finish, about)
		require.Len(t, g.Top, len(w.Top), about)
		largest = max(largest, math.Abs(float64(w.Logprob-g.Logprob)))
		for k := range w.Top {
			largest = max(largest, math.Abs(float64(w.Top[k].Logprob-g.Top[k].Logprob)))
		}
	}
	require.LessOrEqual(t, largest, bound, about)
	return largest
}

// requests are random ones: prompts of pieces of few texts, so that many begin alike, some
// sampled, some with priorities and tenants.
func requests(r *rand.Rand, n, most int, texts [][]int32) []smelt.Request {
	list := make([]smelt.Request, n)
	for i := range list {
		text := texts[r.IntN(len(texts))]
		prompt := slices.Clone(text[:1+r.IntN(min(most, len(text)))])
		switch r.IntN(6) {
		case 0, 1:
			prompt = append(prompt, texts[r.IntN(len(texts))][:1+r.IntN(8)]...)
		case 2: // of full blocks
			prompt = prompt[:max(len(prompt)/8*8, 1)]
		}
		list[i] = smelt.Request{
			Tokens: prompt, Priority: r.IntN(2), Salt: []string{"", "", "tenant"}[r.IntN(3)],
			Generation: smelt.Generation{N: 1 + r.IntN(min(24, most/2)), Logprobs: 1 + r.IntN(3), IgnoreStop: r.IntN(2) == 0},
		}
		if r.IntN(3) == 0 {
			list[i].Generation.Sampling = smelt.Sampling{Temperature: 0.8, TopK: 40, Seed: r.Uint64()}
		}
	}
	return list
}

// texts are what the model itself writes.
func texts(t *testing.T, l *smelt.Loaded, n, length int) (list [][]int32) {
	s, err := l.NewSession()
	require.NoError(t, err)
	defer s.Close()
	for i := range n {
		s.Reset()
		g := smelt.Generation{N: length, IgnoreStop: true, Sampling: smelt.Sampling{Temperature: 1, Seed: uint64(i)}}
		for _, err := range s.Generate(t.Context(), onceUpon, g) {
			require.NoError(t, err)
		}
		list = append(list, slices.Clone(s.Tokens()[:length]))
	}
	return list
}

// engineBounds is how far log-probabilities may be off where neighbours make a step take
// other kernels than a session's: twice what logits may, which on the CPU is nothing.
var engineBounds = lo.MapValues(fixture.Bounds, func(bound float64, device string) float64 {
	if device == "cpu" {
		return 0
	}
	return 2 * bound
})

// mixtures are the requests of TestEngine: how many, how long their prompts are at most, the
// blocks of the cache, which are few, and the context.
type mixtures struct{ n, length, blocks, context int }

// engineMixtures are those of a model on a device, in make test and as a whole.
func engineMixtures(model, device string) (m mixtures) {
	switch whole := testfiles.Full("models"); {
	case model == fourLayers && whole && device == "cpu":
		return mixtures{2000, 2000, 400, 2200}
	case whole && device == "cpu":
		return mixtures{10_000, 480, 120, 640}
	case whole && model != fourLayers:
		return mixtures{100, 60, 13, 128}
	case device == "cpu":
		return mixtures{60, 60, 11, 128}
	case model == withStates, model == withWindows:
		return mixtures{3, 20, 6, 128}
	}
	return mixtures{3, 10, 4, 128}
}

// fourLayers is a model with random weights, withStates one whose layers have recurrent states
// beside those with attention, withWindows one whose layers with and without a window have caches of
// their own, which later layers read too, embeddings of their own and a mixture.
const fourLayers, withStates, withWindows = "four-layers", "with-states", "with-windows"

// TestEngine runs random requests at once over a cache that is too small for them, of which
// some are broken off and some meet a deadline: each has the answer that it has on a session
// of its own, and prefixes are computed once. In a slice each model decodes in one way on
// devices other than cpu.
func TestEngine(t *testing.T) {
	for i, model := range append(slices.Clone(fixture.Trained), fourLayers) {
		for device, bound := range engineBounds {
			for name, by := range engineWays {
				if device != "cpu" && int(by) != i%len(engineWays) && !testfiles.Full("models") {
					continue
				}
				t.Run(model+"/"+device+"/"+name, func(t *testing.T) { randomRequests(t, model, device, bound, by) })
			}
		}
	}
	for device, bound := range engineBounds {
		for _, model := range []string{withStates, withWindows} {
			t.Run(model+"/"+device, func(t *testing.T) { randomRequests(t, model, device, bound, plainly) })
		}
	}
}

// crowd are gauges that hold the first step back until so many requests are there: on a busy machine
// they might else come so late that the cache has room for all.
type crowd struct {
	gauges
	once  sync.Once
	queue func() int
	most  int
}

func (c *crowd) Stepped(s smelt.EngineStep) {
	c.once.Do(func() {
		for i := 0; c.queue() < c.most && i < 30_000; i++ {
			time.Sleep(time.Millisecond)
		}
	})
	c.gauges.Stepped(s)
}

// ways to decode: with which guesses.
type way int

const (
	plainly way = iota
	byLookup
	byDraft // the same weights in fewer bits, or other random ones
)

var engineWays = map[string]way{"plain": plainly, "guesses": byLookup, "draft": byDraft}

// randomRequests is TestEngine of a model, decoded in a way.
func randomRequests(t *testing.T, model, device string, bound float64, by way) {
	if device != "cpu" && testing.Short() {
		t.Skip("it takes seconds")
	}
	m := engineMixtures(model, device)
	n, length, blocks := m.n, m.length, m.blocks
	opts := fixture.Options(t, device, dtype.F16)
	opts.Context, opts.Prefill, opts.Sequences, opts.Block = m.context, 48, 8, 8
	var path, draft string
	switch model {
	case withStates, withWindows:
		// Its weights are random, its logits so close that what is drawn from them turns on less
		// than the kernels of GPUs differ by.
		opts.SameBits, bound = device != "cpu", 0
		c := parity.Cases("lfm2")[0]
		if model == withWindows {
			c = parity.Cases("gemma4-moe")[0]
			c.Config.Window = 20 // of more than two blocks
		}
		path = fixture.Case(t, c, "f16")
	case fourLayers:
		c := tiny.Narrow()
		c.Context = m.context
		draft = fixture.Random(t, c, "f16")
		c.Layers = 4
		path = fixture.Random(t, c, "f16")
	default:
		path = testfiles.Model(t, model+"/gguf/"+model+"-F16.gguf")
		draft = testfiles.Model(t, model+"/gguf/"+model+"-Q4_0.gguf")
	}
	l := fixture.Load(t, path, opts, smelt.Device{Name: device, Threads: 2})
	r := rand.New(rand.NewPCG(1, 18))
	texts := texts(t, l, 3, length)
	list := requests(r, n, length, texts)
	full, copies := 8, model != withStates && model != withWindows
	if !copies { // nobody goes on in the middle of a block that is shared
		full = 16
	}
	for i := range 2 { // the same prompt of full blocks, at once
		list[i].Tokens, list[i].Salt = texts[0][:full], ""
	}
	plan := l.Program().Plan
	memory, err := l.OnDevice().InstanceMemory(blocks, engine.WindowBlocks(plan, engine.LimitsOf(plan), blocks)...)
	require.NoError(t, err)
	smelt.GuessEagerly(t)
	g := crowd{most: n / 2}
	o := smelt.EngineOptions{CacheBytes: memory.Cache, Metrics: &g}
	switch by {
	case byLookup:
		o.Speculate = engine.SpeculateNgram
	case byDraft:
		o.Draft = fixture.Load(t, draft, opts, smelt.Device{Name: device, Threads: 2})
	}
	e := fixture.Engine(t, l, o)
	g.queue = func() int { s := e.Stats(); return s.Waiting + s.Running }
	answers, most, late := make([]answer, n), make([]int, n), make([]bool, n)
	var wait sync.WaitGroup
	for i := range list {
		most[i] = math.MaxInt
		ctx, cancel := t.Context(), func() {}
		switch kind := r.IntN(16); {
		case i < 2:
		case kind < 2:
			most[i] = 1 + r.IntN(4)
		case kind == 2:
			ctx, cancel = context.WithTimeout(ctx, time.Duration(r.IntN(n*2))*time.Millisecond)
		}
		wait.Go(func() {
			defer cancel()
			answers[i] = collectSome(e.Generate(ctx, list[i]), most[i])
			late[i] = errors.Is(answers[i].err, context.DeadlineExceeded)
		})
	}
	wait.Wait()
	// Of a few requests at once, none may come late enough to find the prefix of another.
	again, reused := list[0], 0
	for range 2 {
		a := collectSome(e.Generate(t.Context(), again), math.MaxInt)
		require.NoError(t, a.err)
		reused = a.usage().CachedTokens
	}
	require.Positive(t, reused)
	s, err := l.NewSession()
	require.NoError(t, err)
	largest, cached, given := 0.0, 0, 0
	for i, q := range list {
		s.Reset()
		if late[i] { // the tokens until then are what they should be
			most[i] = len(answers[i].tokens)
			answers[i].err, answers[i].text = nil, ""
			for _, token := range answers[i].tokens {
				answers[i].text += token.Text
			}
			if most[i] == 0 {
				continue
			}
		}
		if by == byDraft && q.Generation.Sampling.Temperature > 0 { // another text of the same distribution
			require.NoError(t, answers[i].err)
			require.NotEmpty(t, answers[i].tokens)
		} else {
			want := collectSome(s.GenerateTokens(t.Context(), q.Tokens, q.Generation), most[i])
			largest = max(largest, answers[i].sameAs(t, &want, bound, fmt.Sprintf("request %d: %+v", i, q)))
		}
		given += len(answers[i].tokens)
		u := answers[i].usage()
		if u == nil { // broken off
			require.Len(t, answers[i].tokens, most[i])
			continue
		}
		require.Equal(t, len(q.Tokens), u.PromptTokens)
		require.Less(t, u.CachedTokens, u.PromptTokens)
		cached += u.CachedTokens
		require.LessOrEqual(t, u.Accepted, u.Drafted)
		require.LessOrEqual(t, u.Accepted, len(answers[i].tokens))
	}
	require.NoError(t, e.Close())
	stats := e.Stats()
	require.Equal(t, []int64{stats.Steps, stats.Drafted, stats.Accepted, 0, 0, int64(stats.Blocks)},
		[]int64{g.steps.Load(), g.drafted.Load(), g.accepted.Load(), g.running.Load(), g.waiting.Load(), g.free.Load()})
	require.Equal(t, stats.Drafted > 0, g.guessing.Load() > 0)
	require.InDelta(t, n+2, g.requests.Load(), float64(lo.Count(late, true)), "those that came too late are none")
	require.GreaterOrEqual(t, g.tokens.Load(), int64(given)) // of some that were broken off, more
	require.Positive(t, g.batch.Load())
	t.Logf("log-probabilities at most %.2g off; %d prompt tokens of requests cached; %+v", largest, cached, stats)
	require.Equal(t, stats.Blocks, stats.Free)
	if device == "cpu" {
		require.Positive(t, cached)
	}
	require.Equal(t, copies, stats.Copied > 0)
	if by == plainly {
		require.Zero(t, stats.Drafted)
	} else if device == "cpu" {
		require.Positive(t, stats.Accepted)
		require.Greater(t, stats.Drafted, stats.Accepted)
	}
	if device == "cpu" {
		require.Positive(t, stats.Preempted)
	}
}

// TestPrefixIsPaidOnce: of a prompt that was computed before, while its request still runs
// or after it ended, only the last block is computed again; for another tenant, all.
func TestPrefixIsPaidOnce(t *testing.T) {
	opts := fixture.Options(t, "cpu", dtype.F16)
	opts.Context, opts.Sequences, opts.Block = 256, 4, 16
	l := fixture.Load(t, testfiles.Model(t, "tiny-qwen3/gguf/tiny-qwen3-F16.gguf"), opts, smelt.Device{Name: "cpu", Threads: 2})
	e := fixture.Engine(t, l, smelt.EngineOptions{})
	prefix := texts(t, l, 1, 200)[0]
	ask := func(salt string, n int) *answer {
		a := collect(e.Generate(t.Context(), smelt.Request{
			Tokens: append(prefix[:n:n], 1, 2, 3), Salt: salt, Generation: smelt.Generation{N: 4, IgnoreStop: true},
		}))
		require.NoError(t, a.err)
		return &a
	}
	require.Zero(t, ask("", 150).usage().CachedTokens)
	require.Equal(t, 144, ask("", 150).usage().CachedTokens)
	require.Equal(t, 96, ask("", 100).usage().CachedTokens)
	require.Equal(t, 144, ask("", 190).usage().CachedTokens)
	require.Zero(t, ask("another", 150).usage().CachedTokens)
	require.Equal(t, ask("", 150).text, ask("another", 150).text)

	// A whole prompt of full blocks: its last token is computed again, into a copy.
	whole := smelt.Request{Tokens: prefix[:160], Generation: smelt.Generation{N: 8, IgnoreStop: true}}
	first := collect(e.Generate(t.Context(), whole))
	copied := e.Stats().Copied
	again := collect(e.Generate(t.Context(), whole))
	again.sameAs(t, &first, 1e-3, "again")
	require.Equal(t, 159, again.usage().CachedTokens)
	require.Equal(t, copied+1, e.Stats().Copied)

	// While it still runs.
	for token, err := range e.Generate(t.Context(), smelt.Request{Tokens: prefix[8:168], Generation: smelt.Generation{N: 50, IgnoreStop: true}}) {
		require.NoError(t, err)
		if token.Usage == nil {
			a := collect(e.Generate(t.Context(), smelt.Request{Tokens: prefix[8:180], Generation: smelt.Generation{N: 1}}))
			require.NoError(t, a.err)
			require.Equal(t, 160, a.usage().CachedTokens)
			break
		}
	}
	require.Eventually(t, func() bool { s := e.Stats(); return s.Running == 0 && s.Free == s.Blocks }, time.Minute, time.Millisecond)
}

// TestPrefixIsQuick: after a prompt of 1,024 tokens and 16 more, one that has another 16 in
// their place has its first token in a tenth of the time at most.
func TestPrefixIsQuick(t *testing.T) {
	c := tiny.Small()
	c.Context = 2048
	opts := fixture.Options(t, "cpu", dtype.F16)
	opts.Context = c.Context
	l := fixture.Load(t, fixture.Random(t, c, "q4_0"), opts, smelt.Device{Name: "cpu", Threads: 2})
	e := fixture.Engine(t, l, smelt.EngineOptions{})
	r := rand.New(rand.NewPCG(8, 18))
	ids := func(n int) []int32 {
		return lo.Times(n, func(int) int32 { return int32(r.IntN(c.Vocab)) })
	}
	first := func(prompt []int32, cached int) time.Duration {
		start := time.Now()
		a := collect(e.Generate(t.Context(), smelt.Request{Tokens: prompt, Generation: smelt.Generation{N: 1}}))
		took := time.Since(start)
		require.NoError(t, a.err)
		require.Equal(t, cached, a.usage().CachedTokens)
		return took
	}
	best := []time.Duration{time.Hour, time.Hour}
	for range 5 {
		prefix := ids(1024)
		best[0] = min(best[0], first(slices.Concat(prefix, ids(16)), 0))
		best[1] = min(best[1], first(slices.Concat(prefix, ids(16)), 1024))
	}
	t.Logf("%v, then %v: %.1f %%", best[0], best[1], 100*float64(best[1])/float64(best[0]))
	require.LessOrEqual(t, best[1], best[0]/10)
}

// TestEngineOfAnyProgram: an engine needs no program that was compiled for one, and a plan
// from a file serves as it is.
func TestEngineOfAnyProgram(t *testing.T) {
	path := testfiles.Model(t, "tiny-llama/gguf/tiny-llama-Q4_0.gguf")
	opts := fixture.Options(t, "cpu", dtype.F16)
	opts.Context = 96
	l := fixture.Load(t, path, opts, smelt.Device{Name: "cpu", Threads: 2})
	g := smelt.Generation{N: 12, IgnoreStop: true}
	s, err := l.NewSession()
	require.NoError(t, err)
	want := collect(s.Generate(t.Context(), onceUpon, g))
	for _, o := range []smelt.EngineOptions{{}, {Sequences: 3, BlockSize: 16, StepTokens: 20}, {Sequences: 1, BlockSize: 96}} {
		e := fixture.Engine(t, l, o)
		got := collect(e.Generate(t.Context(), smelt.Request{Prompt: onceUpon, Generation: g}))
		require.NoError(t, got.err)
		require.Equal(t, want.text, got.text)
		require.Equal(t, len(want.tokens), len(got.tokens))
		require.NoError(t, e.Close())
	}

	file := filepath.Join(t.TempDir(), "engine.plan")
	opts.Sequences, opts.Block = 4, 16
	for _, c := range []struct {
		sequences, block int
		o                smelt.EngineOptions
		want             string
	}{
		{4, 16, smelt.EngineOptions{}, ""},
		{4, 16, smelt.EngineOptions{Sequences: 2, BlockSize: 16}, ""},
		{4, 16, smelt.EngineOptions{Sequences: 5}, "5 sequences, steps of 384 tokens and blocks of 16: the plan is compiled for 4, 384 and 16"},
		{4, 16, smelt.EngineOptions{BlockSize: 32}, "blocks of 32"},
		{0, 0, smelt.EngineOptions{}, ""},
	} {
		opts.Sequences, opts.Block = c.sequences, c.block
		m, err := smelt.Open(path, "")
		require.NoError(t, err)
		p, err := m.Compile(opts)
		require.NoError(t, err)
		f, err := os.Create(file)
		require.NoError(t, err)
		require.NoError(t, p.Save(f))
		require.NoError(t, f.Close())
		require.NoError(t, m.Close())
		m, err = smelt.Open(path, "")
		require.NoError(t, err)
		p, err = m.ReadPlan(file)
		require.NoError(t, err)
		l, err := p.Load(smelt.Device{Name: "cpu", Threads: 2})
		require.NoError(t, err)
		e, err := l.NewEngine(c.o)
		if c.want != "" {
			require.ErrorContains(t, err, c.want)
		} else {
			require.NoError(t, err)
			got := collect(e.Generate(t.Context(), smelt.Request{Prompt: onceUpon, Generation: g}))
			require.Equal(t, want.text, got.text)
		}
		require.NoError(t, l.Close())
		require.NoError(t, p.Close())
	}
}

func TestEngineRefuses(t *testing.T) {
	opts := fixture.Options(t, "cpu", dtype.F16)
	opts.Context, opts.Sequences, opts.Block = 64, 4, 16
	l := fixture.Load(t, testfiles.Model(t, "tiny-llama/gguf/tiny-llama-F16.gguf"), opts, smelt.Device{Name: "cpu", Threads: 2})
	for want, o := range map[string]smelt.EngineOptions{
		"-1 sequences":                                       {Sequences: -1},
		"steps of 3 tokens for 4 sequences":                  {StepTokens: 3},
		"a cache of 100 bytes: one block of 16 tokens takes": {CacheBytes: 100},
		`drafts cannot be made so: "suffix" is neither`:      {Speculate: "suffix"},
	} {
		_, err := l.NewEngine(o)
		require.ErrorContains(t, err, want)
	}
	stranger := fixture.Load(t, testfiles.Model(t, "tiny-qwen3/gguf/tiny-qwen3-F16.gguf"), opts, smelt.Device{Name: "cpu", Threads: 2})
	_, err := l.NewEngine(smelt.EngineOptions{Draft: stranger})
	require.ErrorContains(t, err, "the draft tiny-qwen3-F16: it has another vocabulary: of 1024 tokens, where tiny-llama-F16 has 512")
	_, err = l.NewEngine(smelt.EngineOptions{CacheBytes: 1 << 50})
	require.Error(t, err)

	e := fixture.Engine(t, l, smelt.EngineOptions{Speculate: "off"})
	for want, r := range map[string]smelt.Request{
		"not both":                                {Prompt: "a", Tokens: []int32{1}},
		"temperature -1":                          {Prompt: "a", Generation: smelt.Generation{Sampling: smelt.Sampling{Temperature: -1}}},
		"-1 alternatives":                         {Prompt: "a", Generation: smelt.Generation{Logprobs: -1}},
		"token 1 has the id -4":                   {Tokens: []int32{1, -4}},
		"the prompt has 65":                       {Tokens: make([]int32, 65)},
		"chose id 999999, outside the vocabulary": {Prompt: "a", Generation: smelt.Generation{Sampler: func([]float32) (int32, error) { return 999999, nil }}},
		"after 3 tokens: broken":                  {Tokens: []int32{1, 2, 3}, Generation: smelt.Generation{Sampler: func([]float32) (int32, error) { return 0, fmt.Errorf("broken") }}},
	} {
		a := collect(e.Generate(t.Context(), r))
		require.ErrorContains(t, a.err, want)
		require.Empty(t, a.tokens)
	}
	none := collect(e.Generate(t.Context(), smelt.Request{Prompt: "a", Generation: smelt.Generation{N: -1}}))
	require.NoError(t, none.err)
	require.Empty(t, none.tokens)

	full := collect(e.Generate(t.Context(), smelt.Request{Tokens: make([]int32, 60), Generation: smelt.Generation{IgnoreStop: true}}))
	require.NoError(t, full.err)
	require.Len(t, full.tokens, 5, "the last token need not fit")
	require.Equal(t, smelt.FinishLength, full.tokens[4].Finish)
}

// TestEngineCloses: breaking off a range ends a request, and so do its context, and Close of
// the engine or of what it was made of; no goroutine is left.
func TestEngineCloses(t *testing.T) {
	before := runtime.NumGoroutine()
	opts := fixture.Options(t, "cpu", dtype.F16)
	opts.Context, opts.Sequences, opts.Block = 512, 2, 16
	m, err := smelt.Open(testfiles.Model(t, "tiny-llama/gguf/tiny-llama-Q4_0.gguf"), "")
	require.NoError(t, err)
	p, err := m.Compile(opts)
	require.NoError(t, err)
	for _, first := range []string{"engine", "loaded", "model"} {
		l, err := p.Load(smelt.Device{Name: "cpu", Threads: 1})
		require.NoError(t, err)
		e, err := l.NewEngine(smelt.EngineOptions{})
		require.NoError(t, err)
		long := smelt.Request{Prompt: onceUpon, Generation: smelt.Generation{N: 400, IgnoreStop: true}}
		for range e.Generate(t.Context(), long) {
			break
		}
		ctx, cancel := context.WithCancel(t.Context())
		tokens := 0
		for _, err := range e.Generate(ctx, long) {
			if tokens++; tokens == 3 {
				cancel()
			}
			if err != nil {
				require.ErrorIs(t, err, context.Canceled)
			}
		}
		require.Less(t, tokens, 400)
		cancel()
		var wait sync.WaitGroup
		closes := map[string]func() error{"engine": e.Close, "loaded": l.Close, "model": m.Close}
		for range 3 {
			wait.Go(func() {
				if a := collect(e.Generate(t.Context(), long)); first != "model" {
					require.ErrorIs(t, a.err, smelt.ErrClosed)
				}
			})
		}
		require.Eventually(t, func() bool { return e.Stats().Running == 2 }, time.Minute, time.Millisecond)
		require.NoError(t, closes[first]())
		if first == "model" {
			require.NoError(t, l.Close())
		}
		wait.Wait()
		for _, name := range []string{"engine", "loaded"} {
			require.NoError(t, closes[name]())
			require.NoError(t, closes[name]())
		}
		require.ErrorIs(t, collect(e.Generate(t.Context(), long)).err, smelt.ErrClosed)
		_, err = l.NewEngine(smelt.EngineOptions{})
		require.ErrorIs(t, err, device.ErrClosed)
	}
	gone(t, before)
}

// gone waits until no more goroutines run than before.
func gone(t *testing.T, before int) {
	for start := time.Now(); runtime.NumGoroutine() > before; time.Sleep(time.Millisecond) {
		require.Less(t, time.Since(start), time.Minute, "%d goroutines, of %d", runtime.NumGoroutine(), before)
	}
}
