package draft

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// world is what a Policy works in: what steps take, and how often guesses are right.
type world struct {
	decoding int
	plain    float64
	mixed    func(step, tokens int) float64
	right    func(step, sequence int) float64
	agreed   func(step, sequence int) int // 0: nothing is looked up
	noise    float64
	sought   float64 // seconds to look guesses up
	model    *model  // nil: none guesses
	busy     float64 // how much longer steps of several tokens took at first
}

// model is one that guesses: what its steps take, and how often it is right by how sure it is.
type model struct {
	seconds func(tokens int) float64
	prompt  int // tokens that it is behind at first
	sure    []float64
	right   func(step int, sure float64) float64
}

// faults are planted: each must be noticed.
type faults struct{ allRight, noLoss, noMeasure, freeModel, freeLookup bool }

// outcome is what came of it, beside plain decoding in the same world.
type outcome struct {
	seconds, tokens float64
	plain           float64 // seconds that plain decoding would have taken
	guesses         float64
}

// live runs steps.
func (w *world) live(steps int, seed uint64, fault faults) (o outcome) {
	r := rand.New(rand.NewPCG(seed, 3))
	b := NewPolicy(w.decoding + 64)
	rates := make([]Rates, w.decoding)
	behind, fed := make([]int, w.decoding), make([]int, w.decoding) // fed: of what was made, those that the model has computed
	noise := func() float64 { return 1 + w.noise*r.ExpFloat64() }
	for n := 1; n <= 32; n *= 2 {
		b.Measured(n, w.mixed(0, n)*min(noise(), noise())*(1+min(w.busy, w.busy*float64(n-1))))
	}
	if w.model != nil {
		for i := range behind {
			behind[i] = w.model.prompt
		}
		for n := 1; n <= 256 && !fault.freeModel; n *= 2 {
			b.MeasuredModel(n, w.model.seconds(n)*min(noise(), noise()))
		}
	}
	for step := range steps {
		var guesses []Guess
		var of []int
		for i := range rates {
			if w.model != nil {
				guesses, of = append(guesses, Guess{Rates: &rates[i], Model: true, Tokens: 32, Behind: behind[i]}), append(of, i)
			} else if n := w.agreed(step, i); n > 0 {
				guesses, of = append(guesses, Guess{Rates: &rates[i], Agreed: n, Tokens: 16}), append(of, i)
			}
			fed[i] = 0
		}
		took := b.Choose(w.decoding, guesses, 64)
		for w.model != nil {
			tokens := 0
			for k := range guesses {
				g := &guesses[k]
				if len(g.Sure) > g.Made {
					if g.Take > g.Made {
						g.Made++
					} else {
						g.Tokens = g.Made
					}
				}
				if g.Take > g.Made {
					g.Sure = append(g.Sure, w.model.sure[r.IntN(len(w.model.sure))])
					tokens += g.Behind
					g.Behind, behind[of[k]], fed[of[k]] = 1, 0, g.Made
				}
			}
			if tokens == 0 {
				break
			}
			seconds := w.model.seconds(tokens) * noise()
			o.seconds += seconds
			if !fault.freeModel {
				b.Made(tokens, seconds)
			}
			took = b.Choose(w.decoding, guesses, 64)
		}
		disturbed := noise()
		if took == 0 {
			b.Plain(w.decoding, w.plain*disturbed)
			o.seconds += w.plain * disturbed
			o.tokens += float64(w.decoding)
			o.plain += w.plain * disturbed
			for i := range behind {
				behind[i]++
			}
			continue
		}
		came := w.decoding
		for k := range guesses {
			g := &guesses[k]
			right := 0
			for right < g.Take {
				p := 0.0
				if w.model != nil {
					p = w.model.right(step, g.Sure[right])
				} else {
					p = w.right(step, of[k])
				}
				if r.Float64() >= p {
					break
				}
				right++
			}
			came += right
			behind[of[k]] += right + 1 - min(right, fed[of[k]])
			if fault.allRight {
				right = g.Take
			}
			b.Verified(g, right)
		}
		if o.seconds += w.sought; !fault.freeLookup {
			b.Sought(w.sought)
		}
		seconds := w.mixed(step, w.decoding+took) * disturbed
		switch {
		case fault.noMeasure:
			b.Drafted(w.decoding, w.decoding+took, came, 0)
		case fault.noLoss:
			b.Drafted(w.decoding, w.decoding+took, w.decoding+took, seconds)
		default:
			b.Drafted(w.decoding, w.decoding+took, came, seconds)
		}
		o.seconds += seconds
		o.tokens += float64(came)
		o.plain += w.plain * disturbed * float64(came) / float64(w.decoding)
		o.guesses += float64(took)
	}
	return o
}

// measured is what steps of Qwen3 0.6B in Q4_0 took on a processor with AVX-512, in
// milliseconds by tokens.
var measured = map[int]float64{1: 15, 2: 19.2, 3: 19.6, 4: 29.8, 5: 31.9, 8: 35.7, 16: 48.9, 32: 72, 80: 150}

func milliseconds(tokens int) float64 {
	below, above := 1, 80
	for n := range measured {
		if n <= tokens {
			below = max(below, n)
		} else {
			above = min(above, n)
		}
	}
	return measured[below] + (measured[above]-measured[below])*float64(tokens-below)/float64(above-below)
}

func always[T any](x T) func(int, int) T { return func(int, int) T { return x } }

// What models are like.
var (
	times  = func(_, tokens int) float64 { return milliseconds(tokens) }
	tenth  = func(tokens int) float64 { return 1.5 + 0.05*float64(tokens) }
	doubts = []float64{0.2, 0.9, 2.5, 4, 6, 6, 8, 8}
	asSure = func(_ int, sure float64) float64 { return 1 / (1 + math.Exp(-sure)) }
	never  = func(int, float64) float64 { return 0 }
)

var worlds = map[string]struct {
	world
	least float64 // speed against plain decoding
}{
	"copies":                           {world{1, 15, times, always(0.97), always(32), 0.02, 0, nil, 0}, 3.5},
	"copies, and it was busy at first": {world{1, 15, times, always(0.97), always(32), 0.02, 0, nil, 14}, 3.5},
	"copies of four, and it was busy at first":  {world{4, 32, times, always(0.95), always(12), 0.02, 0, nil, 14}, 2.7},
	"copies of four, and the first row is dear": {world{4, 18, func(_, n int) float64 { return 20.6 + 0.85*float64(n-4) }, always(0.9), always(12), 0.02, 0, nil, 14}, 1.8},
	"copies, of four":                           {world{4, 32, times, always(0.95), always(12), 0.02, 0, nil, 0}, 2.7},
	"stories":                                   {world{1, 15, times, always(0.2), func(step, _ int) int { return 3 * (step % 2) }, 0.02, 0, nil, 0}, 0.98},
	"never right":                               {world{1, 15, times, always(0.0), always(32), 0.02, 0, nil, 0}, 0.98},
	"rows cost as much":                         {world{1, 15, func(_, n int) float64 { return 15 * float64(n) }, always(0.9), always(32), 0.02, 0, nil, 0}, 0.98},
	"rows cost more":                            {world{2, 20, func(_, n int) float64 { return 30 * float64(n) }, always(0.9), always(32), 0.02, 0, nil, 0}, 0.98},
	"looked up for long":                        {world{1, 15, times, always(0.35), always(2), 0.02, 7, nil, 0}, 0.98},
	"one of four copies":                        {world{4, 32, times, func(_, i int) float64 { return []float64{0.97, 0.1, 0.1, 0.1}[i] }, always(10), 0.02, 0, nil, 0}, 2},
	"copies at times":                           {world{1, 15, times, func(step, _ int) float64 { return []float64{0.97, 0.05}[step/200%2] }, always(10), 0.02, 0, nil, 0}, 2.7},
	"rows get dear":                             {world{1, 15, func(step, n int) float64 { return milliseconds(n) * float64(1+2*(step/300%2)) }, always(0.9), always(32), 0.02, 0, nil, 0}, 1.3},
	"a restless machine":                        {world{1, 15, times, always(0.2), always(4), 0.5, 0, nil, 0}, 0.98},
	"copies where it is so":                     {world{1, 15, times, always(0.95), always(32), 0.5, 0, nil, 0}, 2},
	"a guess is free":                           {world{1, 15, func(_, n int) float64 { return 15 }, always(0.5), always(3), 0.02, 0, nil, 0}, 1.5},
	"a draft":                                   {world{1, 15, times, nil, nil, 0.02, 0, &model{tenth, 100, doubts, asSure}, 0}, 1.7},
	"a draft, of four":                          {world{4, 32, times, nil, nil, 0.02, 0, &model{tenth, 100, doubts, asSure}, 0}, 1.9},
	"a draft that is never right":               {world{1, 15, times, nil, nil, 0.02, 0, &model{tenth, 100, doubts, never}, 0}, 0.98},
	"a draft that is never right, of four":      {world{4, 32, times, nil, nil, 0.02, 0, &model{tenth, 20, doubts, never}, 0}, 0.98},
	"a draft that takes as long":                {world{1, 15, times, nil, nil, 0.02, 0, &model{func(n int) float64 { return milliseconds(n) }, 20, doubts, asSure}, 0}, 0.98},
	"a draft that takes half":                   {world{1, 15, times, nil, nil, 0.02, 0, &model{func(n int) float64 { return milliseconds(n) / 2 }, 20, doubts, asSure}, 0}, 0.98},
	"a draft where it is restless":              {world{1, 15, times, nil, nil, 0.5, 0, &model{tenth, 100, doubts, asSure}, 0}, 1.3},
	"a draft that is right at times":            {world{1, 15, times, nil, nil, 0.02, 0, &model{tenth, 20, doubts, func(step int, sure float64) float64 { return float64(1-step/200%2) * asSure(step, sure) }}, 0}, 1.3},
	"a draft far behind":                        {world{1, 15, times, nil, nil, 0.02, 0, &model{tenth, 4000, doubts, asSure}, 0}, 0.98},
	"nothing is ever guessed":                   {world{3, 15, func(_, n int) float64 { return 15 }, always(1.0), always(0), 0.02, 0, nil, 0}, 1},
}

// TestPolicy: guesses make decoding as fast as they should where they are right, and never
// slower by more than two parts in a hundred, whatever the world is like.
func TestPolicy(t *testing.T) {
	for name, w := range worlds {
		t.Run(name, func(t *testing.T) {
			for _, steps := range []int{200, 2000} {
				least := w.least - 0.1*min(1, 200/float64(steps))*max(0, w.least-1)
				var all outcome
				for seed := range uint64(8) {
					o := w.live(steps, seed, faults{})
					all.plain, all.seconds = all.plain+o.plain, all.seconds+o.seconds
					if w.noise < 0.1 { // else single lives are as lucky as their machines
						require.GreaterOrEqual(t, o.plain/o.seconds, least, "%d steps: %+v", steps, o)
					}
				}
				require.GreaterOrEqual(t, all.plain/all.seconds, least, "%d steps", steps)
			}
		})
	}
}

// TestPolicyNotices plants faults that TestPolicy must see.
func TestPolicyNotices(t *testing.T) {
	for name, fault := range map[string]faults{
		"all guesses count as right": {allRight: true},
		"nothing is ever lost":       {allRight: true, noLoss: true},
		"no step is measured":        {noMeasure: true},
		"the model's time is free":   {freeModel: true},
		"looking up is free":         {freeLookup: true},
	} {
		t.Run(name, func(t *testing.T) {
			noticed := ""
			for world, w := range worlds {
				if o := w.live(2000, 1, fault); o.plain/o.seconds < w.least {
					noticed += fmt.Sprintf(" %s %.2f,", world, o.plain/o.seconds)
				}
			}
			require.NotEmpty(t, noticed)
			t.Log(noticed)
		})
	}
}

// TestFarBehind: a model that takes seven steps to read the prompt guesses once these are
// saved, and until then nothing is lost.
func TestFarBehind(t *testing.T) {
	w := world{decoding: 1, plain: 15, mixed: times, noise: 0.02, model: &model{tenth, 2000, doubts, asSure}}
	for seed := range uint64(8) {
		short, long := w.live(500, seed, faults{}), w.live(6000, seed, faults{})
		require.GreaterOrEqual(t, short.plain/short.seconds, 0.98)
		require.Greater(t, long.plain/long.seconds, 1.2)
	}
}

// TestWorstCase: a world that knows what is chosen, and lets everything be wrong once it has
// become most.
func TestWorstCase(t *testing.T) {
	b, rates := NewPolicy(80), Rates{}
	balance, plain, lowest := 0.0, 15.0, 0.0
	for range 20000 {
		guesses := []Guess{{Rates: &rates, Agreed: 32, Tokens: 32}}
		took := b.Choose(1, guesses, 64)
		if took == 0 {
			b.Plain(1, plain)
			balance += Allowance * plain
		} else {
			right := took
			if took > 6 {
				right = 0
			}
			b.Verified(&guesses[0], right)
			b.Drafted(1, 1+took, 1+right, milliseconds(1+took))
			balance += plain*float64(1+right) - milliseconds(1+took)
		}
		lowest = min(lowest, balance)
	}
	require.GreaterOrEqual(t, lowest, -2*plain, "a step of it was allowed, and estimates are off by some")
}

// TestLine holds the estimates of steps to what was measured, and beyond.
func TestLine(t *testing.T) {
	b := NewPolicy(40)
	ask := func(decoding int) (all []float64) {
		l := b.lineFrom(decoding)
		for n := decoding; n <= decoding+8; n++ {
			all = append(all, l.seconds(n))
		}
		return all
	}
	b.Plain(1, 10)
	require.InDeltaSlice(t, []float64{10, 11, 12, 13, 14, 15, 16, 17, 18}, ask(1), 1e-9)
	b.mixed.at(3).add(20)
	require.InDeltaSlice(t, []float64{10, 15, 20, 25, 30, 35, 40, 45, 50}, ask(1), 1e-9)
	b.mixed.at(5).add(24)
	require.InDeltaSlice(t, []float64{10, 15, 20, 22, 24, 26, 28, 30, 32}, ask(1), 1e-9)
	b.Plain(4, 16)
	require.InDeltaSlice(t, []float64{16, 24, 32, 40, 48, 56, 64, 72, 80}, ask(4), 1e-9)
	b.mixed.at(12).add(24)
	require.InDeltaSlice(t, []float64{16, 24, 24, 24, 24, 24, 24, 24, 24}, ask(4), 1e-9)
}

// TestPolicyAllocates nothing.
func TestPolicyAllocates(t *testing.T) {
	b, rates := NewPolicy(80), make([]Rates, 4)
	guesses := make([]Guess, 4)
	for i := range guesses {
		guesses[i] = Guess{Rates: &rates[i], Agreed: 8 * i, Tokens: 16}
	}
	b.Plain(4, 32)
	step := func() {
		if took := b.Choose(4, guesses, 64); took > 0 {
			for i := range guesses {
				b.Verified(&guesses[i], guesses[i].Take)
			}
			b.Drafted(4, 4+took, 4+took, 32+float64(took))
		} else {
			b.Plain(4, 32)
		}
	}
	most := 0
	for range 100 {
		step()
		most = max(most, guesses[3].Take)
	}
	require.Greater(t, most, 4)
	require.Zero(t, testing.AllocsPerRun(100, step))
}
