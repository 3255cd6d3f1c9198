package integration_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/internal/batch"
	"github.com/smelt-ml/smelt/internal/engine"
	"github.com/smelt-ml/smelt/internal/fixture"
	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/internal/tools/parity"
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/ir/sym"
)

// mixedLayer is one layer of a model whose layers differ, like those of Gemma 4 and of hybrids.
type mixedLayer struct {
	heads, kv, size int // of attention; 0: none
	window          int
	of              int // 1 + the layer whose keys and values it reads; 0: its own
	state           bool
}

// mixedLayers have caches of three shapes and two windows, of which some are read by later layers too,
// and two layers without attention, of which one has a state.
func mixedLayers(states bool) []mixedLayer {
	return []mixedLayer{
		{heads: 4, kv: 2, size: 16, window: 10},
		{heads: 2, kv: 1, size: 512},
		{state: states},
		{heads: 4, kv: 4, size: 16, window: 5},
		{heads: 8, kv: 2, size: 16, window: 7, of: 1},
		{},
		{heads: 4, kv: 1, size: 512, of: 2},
	}
}

// mixedModel returns a model of such layers with random weights.
func mixedModel(layers []mixedLayer) (*smelt.Model, featuredWeights) {
	weights := featuredWeights{}
	return smelt.Define("mixed", weights, func(b *ir.Builder) {
		x := b.Embed(b.Input(sym.Tokens), b.Weight("embedding", featuredVocab, featuredWidth))
		for i, l := range layers {
			b.Layer(i, func() {
				at := func(name string) string { return strconv.Itoa(i) + "." + name }
				norm := func(name string, x *ir.Value) *ir.Value {
					return b.RMSNorm(x, b.Weight(at(name+".gain"), int(x.Type.Shape.Last())), 1e-5)
				}
				if l.heads > 0 {
					x = b.Add(x, b.Linear(l.attend(b, at, norm, norm("norm", x)), b.Weight(at("o"), featuredWidth, l.heads*l.size)))
				}
				if l.state {
					n := norm("norm", x)
					x = b.Add(x, b.Mul(n, b.ShortConv(n, b.Weight(at("conv"), featuredWidth, 4), b.State("conv", 3, featuredWidth))))
				}
				n := norm("mlp", x)
				inner := b.Mul(b.SiLU(b.Linear(n, b.Weight(at("gate"), featuredInner, featuredWidth))), b.Linear(n, b.Weight(at("up"), featuredInner, featuredWidth)))
				x = b.Add(x, b.Linear(inner, b.Weight(at("down"), featuredWidth, featuredInner)))
			})
		}
		x = b.RMSNorm(b.GatherRows(x), b.Weight("last.gain", featuredWidth), 1e-5)
		b.Return("logits", b.Linear(x, b.Weight("head", featuredVocab, featuredWidth)))
	}), weights
}

func (l *mixedLayer) attend(b *ir.Builder, at func(string) string, norm func(string, *ir.Value) *ir.Value, n *ir.Value) *ir.Value {
	heads := func(name string, heads int) *ir.Value {
		return b.SplitHeads(b.Linear(n, b.Weight(at(name), heads*l.size, featuredWidth)), heads)
	}
	rotated := func(name string, x *ir.Value) *ir.Value {
		return b.Rope(norm(name, x), ir.RopeAttr{Rotated: l.size, Theta: 1e4, FreqScale: 1, Magnitude: 1}, nil)
	}
	q := rotated("qnorm", heads("q", l.heads))
	var cache *ir.Value
	if l.of > 0 {
		cache = b.CacheOf(l.of - 1)
	} else {
		cache = b.CacheWrite(b.CacheWindow(l.kv, l.size, l.window), rotated("knorm", heads("k", l.kv)), heads("v", l.kv))
	}
	headFirst := [3]int{1, 0, 2}
	keys, values := b.CacheRead(cache)
	if l.heads > l.kv {
		keys, values = b.RepeatKV(keys, l.heads/l.kv), b.RepeatKV(values, l.heads/l.kv)
	}
	scores := b.Scale(b.MatmulT(b.Transpose(q, headFirst), b.Transpose(keys, headFirst)), 1/math.Sqrt(float64(l.size)))
	weights := b.Softmax(b.MaskWindow(scores, l.window))
	return b.MergeHeads(b.Transpose(b.Matmul(weights, b.Transpose(values, headFirst)), headFirst))
}

// TestMixedLayers: sequences in random mixtures have the logits of the float64 interpreter and, where the
// same kernels compute them, the bits that they have alone, with layers whose caches differ.
func TestMixedLayers(t *testing.T) {
	for _, states := range []bool{false, true} {
		for device, bound := range fixture.Bounds {
			t.Run(fmt.Sprintf("states=%v/%s", states, device), func(t *testing.T) {
				r := rand.New(rand.NewPCG(2, 21))
				m := newMixture(r, 5, featuredVocab, 4, 7)
				model, weights := mixedModel(mixedLayers(states))
				opts := fixture.Options(t, device, dtype.F16)
				opts.Context, opts.Block, opts.Sequences, opts.Prefill = m.context, m.block, len(m.ids), mixedPrefill
				p, err := model.Compile(opts)
				require.NoError(t, err)
				l, err := p.Load(smelt.Device{Name: device, Threads: 2})
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, l.Close()) })
				alone := len(batch.Contiguous(m.block, m.context))
				_, err = m.compare(onDevice(t, l, alone), onDevice(t, l, m.blocks), mixedBounds[device], nil)
				require.NoError(t, err)
				m.steps = m.steps[:min(len(m.steps), 12)]
				require.Less(t, m.furthest(t, byInterpreterOf(p, weights.Data, m.blocks), onDevice(t, l, m.blocks)), bound)
			})
		}
	}
}

// furthest runs the steps of a mixture by two executors, and returns the largest difference of logits.
func (m *mixture) furthest(t *testing.T, one, other executor) (largest float64) {
	for _, step := range m.steps {
		sequences := make([]batch.Piece, len(step))
		for i, p := range step {
			sequences[i] = m.sequence(p, m.tables[p.sequence])
		}
		want, _, err := one(nil, sequences...)
		require.NoError(t, err)
		got, _, err := other(nil, sequences...)
		require.NoError(t, err)
		for i := range want {
			for k, x := range want[i] {
				largest = math.Max(largest, math.Abs(x-got[i][k]))
			}
		}
	}
	return largest
}

// TestMixedLayersGiveBack: requests at once over a cache that is too small for them, with prefixes that
// some share and with guesses, have the tokens and the bits of logits that they have alone, while layers
// with a window have fewer blocks than the others.
func TestMixedLayersGiveBack(t *testing.T) {
	for _, c := range []struct {
		name    string
		layers  []mixedLayer
		guesses bool
		windows []int
	}{
		{"plain", mixedLayers(false), false, []int{0, 10, 5}},
		{"guesses", mixedLayers(false), true, []int{0, 10, 5}},
		{"states", mixedLayers(true), false, []int{0, 10, 5}},
		{"windows only", []mixedLayer{{heads: 4, kv: 2, size: 16, window: 10}, {}, {heads: 4, kv: 1, size: 32, window: 6}}, true, []int{10, 6}},
		{"one window", []mixedLayer{{heads: 4, kv: 2, size: 16, window: 10}, {}}, true, []int{10}},
	} {
		t.Run(c.name, func(t *testing.T) {
			model, _ := mixedModel(c.layers)
			manyAtOnce(t, model, c.guesses, c.windows)
		})
	}
	for _, c := range []struct {
		name    string
		model   parity.Case
		guesses bool
		windows []int
	}{
		{"hybrid", parity.Cases("granitehybrid")[3], false, []int{0}},
		{"Gemma 4", parity.Cases("gemma4")[0], true, []int{0, 3}},
	} {
		t.Run(c.name, func(t *testing.T) {
			model, err := smelt.Open(fixture.Case(t, c.model, "f32"), "")
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, model.Close()) })
			manyAtOnce(t, model, c.guesses, c.windows)
		})
	}
}

func manyAtOnce(t *testing.T, model *smelt.Model, guesses bool, windows []int) {
	const context, block, sequences, blocks = 96, 4, 4, 50
	opts := fixture.Options(t, "cpu", dtype.F16)
	opts.Context, opts.Block, opts.Sequences, opts.Prefill, opts.Rows = context, block, sequences, 8, 16
	p, err := model.Compile(opts)
	require.NoError(t, err)
	require.Equal(t, windows, p.Plan.Windows())
	l, err := p.Load(smelt.Device{Name: "cpu", Threads: 2})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })

	limits := engine.LimitsOf(p.Plan)
	for _, w := range engine.WindowBlocks(p.Plan, limits, blocks) {
		require.Less(t, w.Blocks, blocks)
	}
	guessing := engine.Guessing{}
	if guesses {
		guessing = engine.Guessing{Rows: engine.GuessesOf(p.Plan, limits.Sequences), Lookup: true, Choose: engine.Eagerly}
	}
	e, err := engine.New(p.Plan, l.OnDevice(), limits, blocks, guessing)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })

	r := rand.New(rand.NewPCG(4, 21))
	var texts [4][]int32
	for i := range texts {
		for range 60 {
			texts[i] = append(texts[i], int32(r.IntN(6*(i+1))))
		}
	}
	n := 80
	if testfiles.Full("histories") {
		n = 10_000
	}
	type asked struct {
		prompt []int32
		more   int
		ids    []int32
		rows   [][]float32
		usage  engine.Usage
		err    error
	}
	list := make([]asked, n)
	var wait sync.WaitGroup
	for i := range list {
		q := &list[i]
		q.prompt = slices.Clone(texts[r.IntN(len(texts))][:1+r.IntN(60)])
		if r.IntN(3) == 0 { // of full blocks
			q.prompt = q.prompt[:max(len(q.prompt)/block*block, 1)]
		}
		q.more = 1 + r.IntN(30)
		wait.Add(1)
		require.NoError(t, e.Submit(t.Context(), engine.Request{
			Tokens: slices.Clone(q.prompt), Priority: r.IntN(2), Chooser: engine.Sampled,
			Next: func(row engine.Row) (int32, bool, error) {
				id, err := row.Chosen()
				q.ids, q.rows = append(q.ids, id), append(q.rows, slices.Clone(row.Logits()))
				return id, len(q.ids) < q.more, err
			},
			Ended: func(u engine.Usage, err error) {
				q.usage, q.err = u, err
				wait.Done()
			},
		}))
	}
	wait.Wait()
	s, err := l.NewSession()
	require.NoError(t, err)
	cached := 0
	for i := range list {
		q := &list[i]
		require.NoError(t, q.err)
		require.Len(t, q.ids, q.more)
		cached += q.usage.Cached
		s.Reset()
		feed := q.prompt
		for at, id := range q.ids {
			logits, err := s.Feed(t.Context(), feed)
			require.NoError(t, err)
			require.Equal(t, logits, q.rows[at], "token %d of request %d", at, i)
			feed = []int32{id}
		}
	}
	stats := e.Stats()
	t.Logf("%+v, %d tokens of prompts cached", stats, cached)
	require.Positive(t, cached)
	require.Equal(t, []int{blocks, blocks}, []int{stats.Blocks, stats.Free})
	if windows[0] == 0 {
		require.Positive(t, stats.Counts.Preempted)
	}
	require.Equal(t, guesses, stats.Counts.Accepted > 0)
}

// TestMixedLayersKeep: explain lists what each layer keeps of a sequence.
func TestMixedLayersKeep(t *testing.T) {
	model, _ := mixedModel(mixedLayers(true))
	opts := fixture.Options(t, "cpu", dtype.F16)
	opts.Context, opts.Block, opts.Sequences, opts.Prefill = 96, 4, 2, 8
	p, err := model.Compile(opts)
	require.NoError(t, err)
	e, err := p.Explain("decode")
	require.NoError(t, err)
	// A window of 10 and a token lie in up to 4 blocks of 4, one of 5 in up to 3.
	want := []string{
		"[0] 2 KV heads of 16, f16, of the last 10 tokens: 2048", "[1] 1 KV heads of 512, f16: 196608", "[2] 2 states of 3 × 64: 1536",
		"[3] 4 KV heads of 16, f16, of the last 5 tokens: 3072", "[4] nothing: it reads layer 0's: 0", "[5] nothing: 0", "[6] nothing: it reads layer 1's: 0",
	}
	var got []string
	for _, k := range e.Keeps {
		got = append(got, fmt.Sprintf("%v %s: %d", k.Layers, k.What, k.Bytes))
	}
	require.Equal(t, want, got)
	require.Equal(t, int64(2048+196608+1536+3072), e.CacheBytes)
}

// TestSequencesHoldWindows: a sequence of eight times a window holds, for the layers that have it, the
// blocks of a window and a step, and has the bits of one that gives nothing back.
func TestSequencesHoldWindows(t *testing.T) {
	const block, piece, window, prompt, tokens = 2, 4, 6, 24, 48
	opts := parityOptions(t, "cpu")
	opts.Block, opts.Prefill = block, piece
	l := fixture.Load(t, fixture.Case(t, parity.Cases("gemma3")[window-3], "f32"), opts, smelt.Device{Name: "cpu", Threads: 2})
	plan := l.Program().Plan
	require.Equal(t, []int{0, window}, plan.Windows())
	e, err := engine.New(plan, l.OnDevice(), engine.LimitsOf(plan), opts.Context/block, engine.Guessing{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	var all, prompts, decoding int // the most blocks, without the window and with it
	e.Observe(func(ran engine.Ran) {
		all = max(all, ran.Stats.Blocks-ran.Stats.Free)
		for _, w := range ran.Stats.Windows {
			if prompts = max(prompts, w.Blocks); ran.Tokens == 1 {
				decoding = max(decoding, w.Blocks)
			}
		}
	})
	feed, rows, ended := make([]int32, prompt), [][]float32(nil), make(chan error)
	for i := range feed {
		feed[i] = int32(7 * i % parity.Vocab)
	}
	ids := slices.Clone(feed)
	require.NoError(t, e.Submit(t.Context(), engine.Request{Tokens: slices.Clone(feed), Chooser: engine.Sampled,
		Next: func(row engine.Row) (int32, bool, error) {
			id, err := row.Chosen()
			ids, rows = append(ids, id), append(rows, slices.Clone(row.Logits()))
			return id, len(ids) < tokens, err
		},
		Ended: func(_ engine.Usage, err error) { ended <- err },
	}))
	require.NoError(t, <-ended)
	require.NoError(t, e.Close())
	require.GreaterOrEqual(t, all, (tokens-1)/block)
	require.Equal(t, window/block+1, decoding)
	require.Equal(t, (window+piece)/block, prompts)

	s := fixture.Session(t, fixture.Case(t, parity.Cases("gemma3")[window-3], "f32"), "cpu", parityOptions(t, "cpu"))
	for i, want := range rows {
		logits, err := s.Feed(t.Context(), feed)
		require.NoError(t, err)
		require.Equal(t, want, logits, "token %d", i)
		feed = ids[prompt+i : prompt+i+1]
	}
}
