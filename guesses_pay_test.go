package smelt_test

import (
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/internal/compiler"
	"github.com/smelt-ml/smelt/internal/engine"
	"github.com/smelt-ml/smelt/internal/engine/draft"
	"github.com/smelt-ml/smelt/internal/fixture"
	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/internal/tiny"
	"github.com/smelt-ml/smelt/ir/dtype"
)

// decoding keeps an engine's steps that bring no prompts.
type decoding struct {
	mu    sync.Mutex
	steps []smelt.EngineStep
}

func (d *decoding) Stepped(s smelt.EngineStep) {
	if s.Tokens == s.Sequences+s.Drafted {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.steps = append(d.steps, s)
	}
}

func (*decoding) FirstToken(time.Duration) {}
func (*decoding) NextToken(time.Duration)  {}
func (*decoding) Ended(smelt.Usage, error) {}

// since returns the seconds that steps took from one on, those of the draft included.
func (d *decoding) since(step int) (seconds float64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.steps[step:] {
		seconds += (s.Took + s.Guessing).Seconds()
	}
	return seconds
}

func median(list []float64) float64 {
	slices.Sort(list)
	return list[len(list)/2]
}

// stepTimes returns the seconds that a step of one sequence usually takes by its tokens: the
// median of many that take turns with those of other sizes, so that what disturbs for a
// while disturbs all alike.
func stepTimes(t *testing.T, l *smelt.Loaded) func(tokens int) float64 {
	turns := []int{0, 1, 2, 3, 5, 8, 12, 16, 24, 31}
	step := 0
	smelt.GuessBy(t, func(decoding int, guesses []draft.Guess, most int) (taken int) {
		step++
		for i := range guesses {
			guesses[i].Take = min(turns[step%len(turns)]-taken, guesses[i].Tokens)
			taken += guesses[i].Take
		}
		return taken
	})
	var seen decoding
	e := fixture.Engine(t, l, smelt.EngineOptions{Sequences: 1, Speculate: engine.SpeculateNgram, Metrics: &seen})
	period := []int32{5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}
	text := slices.Repeat(period, e.Context()/len(period))
	for range 5 {
		require.NoError(t, e.Dictate(t.Context(), text[:48], text[48:]))
	}
	smelt.GuessBy(t, nil)
	all := map[int][]float64{}
	for _, s := range seen.steps {
		all[s.Tokens] = append(all[s.Tokens], s.Took.Seconds())
	}
	var sizes []int
	for n, list := range all {
		if len(list) >= 8 {
			sizes = append(sizes, n)
		}
	}
	slices.Sort(sizes)
	require.Equal(t, 1, sizes[0])
	return func(n int) float64 {
		i, found := slices.BinarySearch(sizes, n)
		if found {
			return median(all[n])
		}
		i = min(i, len(sizes)-1)
		below, above := sizes[i-1], sizes[i]
		from, to := median(all[below]), median(all[above])
		return from + (to-from)*float64(n-below)/float64(above-below)
	}
}

// TestGuessesPay decodes by turns with guesses and without: a text that stands in the prompt
// with other words here and there, at least 1.5 times as fast; and stories, of which nothing
// can be looked up for long, 2 % slower at most. What the model says is given, but for the
// draft, which guesses what the model would say.
func TestGuessesPay(t *testing.T) {
	if !testfiles.Full("models") {
		t.Skip("a measurement, which tests beside it would disturb: SMELT_FULL=models makes it")
	}
	const hidden, rounds = 48 << 10, 9
	const prompt, n = 256, 150
	opts := fixture.Options(t, "cpu", dtype.F16)
	opts.Context, opts.Sequences, opts.Block = 512, 4, 64
	opts.Rows = compiler.GuessedRows(opts.Sequences)
	device := smelt.Device{Name: "cpu", Threads: 2}
	l, small := fixture.Load(t, tiny.Heavy(t, "tiny-qwen3", hidden), opts, device), fixture.Load(t, tiny.GGUF(t, "tiny-qwen3", "Q2_K"), opts, device)
	valid, err := os.ReadFile(testfiles.Model(t, "valid.txt"))
	require.NoError(t, err)
	words, err := l.Encode(string(valid))
	require.NoError(t, err)
	text := func(r *rand.Rand, n int) []int32 { return words[r.IntN(len(words)-n):][:n] }
	edits := func(e *smelt.Engine, r *rand.Rand) error {
		text := text(r, prompt)
		return e.Dictate(t.Context(), edited(r, text), text[:n])
	}
	stories := func(e *smelt.Engine, r *rand.Rand) error {
		text := text(r, prompt+n)
		return e.Dictate(t.Context(), text[:prompt], text[prompt:])
	}
	drawn := func(e *smelt.Engine, r *rand.Rand) error {
		g := smelt.Generation{N: n, IgnoreStop: true, Sampling: smelt.Sampling{Temperature: 0.8, Seed: r.Uint64()}}
		a := collect(e.Generate(t.Context(), smelt.Request{Tokens: text(r, 100), Generation: g}))
		return a.err
	}
	options := map[string]smelt.EngineOptions{
		"plain": {}, "lookup": {Speculate: engine.SpeculateNgram}, "draft": {Draft: small}, "both": {Speculate: engine.SpeculateNgram, Draft: small},
	}
	times := stepTimes(t, l)
	for _, task := range []struct {
		name  string
		ask   func(*smelt.Engine, *rand.Rand) error
		least map[string]float64
	}{
		{"edits", edits, map[string]float64{"lookup": 1.5, "both": 1.5}},
		{"stories", stories, map[string]float64{"lookup": 0.98}},
		{"drawn", drawn, map[string]float64{"draft": 0.98, "lookup": 0.98, "both": 0.98}},
	} {
		t.Run(task.name, func(t *testing.T) {
			engines, seen := map[string]*smelt.Engine{}, map[string]*decoding{}
			for way, o := range options {
				if way == "plain" || task.least[way] > 0 {
					seen[way] = &decoding{}
					o.Sequences, o.Metrics = 1, seen[way]
					engines[way] = fixture.Engine(t, l, o)
				}
			}
			ratios := map[string][]float64{}
			for round := range rounds {
				seconds := map[string]float64{}
				for way, e := range engines {
					before := len(seen[way].steps)
					require.NoError(t, task.ask(e, rand.New(rand.NewPCG(uint64(round), 0))))
					require.Eventually(t, func() bool { return e.Stats().Running == 0 }, time.Minute, time.Millisecond)
					seconds[way] = seen[way].since(before)
				}
				for way := range engines {
					ratios[way] = append(ratios[way], seconds["plain"]/seconds[way])
				}
			}
			for way, e := range engines {
				require.NoError(t, e.Close(), way)
			}
			usually := make(map[string]float64)
			for way, d := range seen {
				var guessing []float64
				for _, s := range d.steps {
					usually[way] += times(s.Tokens)
					if s.Guessing > 0 {
						guessing = append(guessing, s.Guessing.Seconds())
					}
				}
				if n := len(guessing); n > 0 {
					usually[way] += float64(n) * median(guessing)
				}
			}
			for _, way := range slices.Sorted(maps.Keys(task.least)) {
				s := engines[way].Stats()
				faster := usually["plain"] / usually[way]
				t.Logf("%s: %.3f times as fast; rounds %.2f, median %.2f; %d of %d guesses right, %d steps of %d",
					way, faster, ratios[way], median(ratios[way]), s.Accepted, s.Drafted, len(seen[way].steps), len(seen["plain"].steps))
				require.GreaterOrEqual(t, faster, task.least[way], way)
			}
		})
	}
}
