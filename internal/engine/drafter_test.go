package engine

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/samber/lo"
	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/engine/draft"
	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/lower"
)

// exactly returns the probabilities that tokens have, by the definition of Sampling, one
// filter after the other.
func exactly(s Sampling, logits []float32) []float64 {
	order := make([]int, len(logits))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return int(math.Copysign(1, float64(logits[b]-logits[a]))) })
	softmax := func(ids []int, temperature float64) []float64 {
		p, sum := make([]float64, len(logits)), 0.0
		for _, i := range ids {
			p[i] = math.Exp(float64(logits[i]) / temperature)
			sum += p[i]
		}
		for i := range p {
			p[i] /= sum
		}
		return p
	}
	if s.TopK > 0 {
		order = order[:min(s.TopK, len(order))]
	}
	if s.TopP > 0 && s.TopP < 1 {
		p, reached := softmax(order, 1), 0.0
		for n, i := range order {
			if reached += p[i]; reached >= s.TopP {
				order = order[:n+1]
				break
			}
		}
	}
	p := softmax(order, 1)
	order = slices.DeleteFunc(order, func(i int) bool { return p[i] < s.MinP*p[slices.Index(logits, slices.Max(logits))] })
	return softmax(order, s.Temperature)
}

// fit is how far counts are from what is expected: Pearson's chi-square, summed up.
type fit struct {
	chi        float64
	freedom    int
	impossible bool
}

// add takes counts of what has these probabilities, rare cells as one.
func (f *fit) add(counts []int, p []float64) {
	n := 0
	for _, c := range counts {
		n += c
	}
	rare, rareCount, cells := 0.0, 0, 0
	for i, c := range counts {
		switch want := p[i] * float64(n); {
		case want == 0 && c > 0:
			f.impossible = true
		case want < 8:
			rare, rareCount = rare+want, rareCount+c
		default:
			f.chi += (float64(c) - want) * (float64(c) - want) / want
			cells++
		}
	}
	if rare > 1 && cells > 0 {
		f.chi += (float64(rareCount) - rare) * (float64(rareCount) - rare) / rare
		cells++
	}
	f.freedom += max(cells-1, 0)
}

// log returns the logarithm, to base 10, of about how probable it is to be as far off or
// further, by the approximation of Wilson and Hilferty.
func (f *fit) log() float64 {
	switch {
	case f.impossible:
		return -1000
	case f.freedom == 0: // all are rare
		return 0
	}
	n := float64(f.freedom)
	z := (math.Cbrt(f.chi/n) - (1 - 2/(9*n))) / math.Sqrt(2/(9*n))
	return math.Log10(max(math.Erfc(z/math.Sqrt2)/2, 1e-300))
}

// mixed are ways to sample.
var mixed = map[string]Sampling{
	"temperature": {Temperature: 0.8},
	"hot":         {Temperature: 2.5},
	"top-k":       {Temperature: 1, TopK: 6},
	"top-p":       {Temperature: 1.3, TopP: 0.8},
	"min-p":       {Temperature: 1, MinP: 0.1},
	"all of them": {Temperature: 0.7, TopK: 12, TopP: 0.9, MinP: 0.02},
}

// chance is the logarithm of the probability below which a difference is a fault, and far
// below which planted ones must be.
const chance = -7

// faulty verifies a proposal in a way that may be wrong.
type faulty func(s *Sampler, logits []float32, p *Proposal) (int32, error)

// wrongly are planted faults, each of which changes the distribution.
var wrongly = map[string]faulty{
	"what is refused is drawn from all": func(s *Sampler, logits []float32, p *Proposal) (int32, error) {
		if err := s.spread(logits, &s.drawn); err != nil || p == nil {
			return s.drawn.at(s.rng.Float64()), err
		}
		if s.rng.Float64() < s.drawn.probability(p.ID)/p.from.probability(p.ID) {
			return p.ID, nil
		}
		return s.drawn.at(s.rng.Float64()), nil
	},
	"nothing is refused": func(s *Sampler, logits []float32, p *Proposal) (int32, error) {
		if p != nil && exactly(s.Sampling, logits)[p.ID] > 0 {
			return p.ID, nil
		}
		return s.Verify(logits, nil)
	},
	"some are not verified for what they are": func(s *Sampler, logits []float32, p *Proposal) (int32, error) {
		if p != nil && p.ID%2 == 0 {
			p = nil
		}
		return s.Verify(logits, p)
	},
	"what is proposed counts as half as likely": func(s *Sampler, logits []float32, p *Proposal) (int32, error) {
		if p != nil {
			p = &Proposal{p.ID, Distribution{slices.Clone(p.from.candidates), p.from.sum * 2}}
		}
		return s.Verify(logits, p)
	},
}

// TestVerify: a proposal is taken or refused so that what comes has the distribution of Next,
// for any two distributions, and in the way of each fault it has not.
func TestVerify(t *testing.T) {
	const n = 12000
	r := rand.New(rand.NewPCG(11, 1))
	target, near := randomLogits(r, 24), make([]float32, 24)
	for i := range target {
		target[i] /= 3
		near[i] = target[i] + float32(r.NormFloat64())
	}
	drafts := map[string][]float32{"near": near, "far": randomLogits(r, 24), "the same": target}
	drawn := func(s Sampling, draft []float32, verify faulty) (log float64, taken int) {
		counts := make([]int, len(target))
		s.Seed = 5
		sampler, proposer := NewSampler(s), newSampler(s, ofDrafts)
		var p Proposal
		for range n {
			require.NoError(t, proposer.spread(draft, &p.from))
			proposer.propose(&p)
			id, err := verify(sampler, target, &p)
			require.NoError(t, err)
			counts[id]++
			if id == p.ID {
				taken++
			}
		}
		var f fit
		f.add(counts, exactly(s, target))
		return f.log(), taken
	}
	for name, s := range mixed {
		for about, draft := range drafts {
			log, taken := drawn(s, draft, (*Sampler).Verify)
			require.Greater(t, log, float64(chance), "%s, %s", name, about)
			p, q, common := exactly(s, target), exactly(s, draft), 0.0
			for i := range p {
				common += min(p[i], q[i])
			}
			require.InDelta(t, common, float64(taken)/n, 0.03, "%s, %s: as many are taken as can be", name, about)
		}
		found := 0
		for fault, verify := range wrongly {
			log, _ := drawn(s, near, verify)
			t.Logf("%s, %s: 1e%.0f", name, fault, log)
			if log < 2*chance {
				found++
			}
		}
		require.Equal(t, len(wrongly), found, name)
	}
}

// TestVerifyTakesOneNumber of the random sequence, whatever is proposed.
func TestVerifyTakesOneNumber(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	s := Sampling{Temperature: 1, TopK: 20, Seed: 3}
	one, other, proposer := NewSampler(s), NewSampler(s), newSampler(s, ofDrafts)
	for range 200 {
		var p Proposal
		require.NoError(t, proposer.spread(randomLogits(r, 50), &p.from))
		proposer.propose(&p)
		_, err := one.Verify(randomLogits(r, 50), &p)
		require.NoError(t, err)
		_, err = other.Next(randomLogits(r, 50))
		require.NoError(t, err)
		require.Equal(t, one.rng.Uint64(), other.rng.Uint64())
	}
}

// pair is a model whose logits after a token are a row of a table, and a draft of it with
// another.
type pair struct{ target, draft [vocab][vocab]float32 }

// newPair returns tables of which the draft's is away from the target's by so much noise.
func newPair(noise float64) *pair {
	r := rand.New(rand.NewPCG(21, 3))
	var p pair
	for after := range vocab {
		for token := range vocab {
			p.target[after][token] = float32(1.5 * r.NormFloat64())
			p.draft[after][token] = p.target[after][token] + float32(noise*r.NormFloat64())
		}
	}
	return &p
}

func head(table *[vocab][vocab]float32) func(name string, i, j int) float32 {
	return tables(func(after, token int) float32 { return table[after][token] })
}

// engine starts the target with the draft, whose cache has so many blocks.
func (p *pair) engine(t *testing.T, limits Limits, blocks int, g Guessing) *Engine {
	options := lower.Options{Context: 256, Sequences: limits.Sequences, Rows: limits.Tokens}
	phase := lower.Range{Name: "any", MinT: 1, MaxT: int64(limits.Tokens)}
	plan, program := loadFollowing(t, "cpu", head(&p.target), true, options, phase)
	g.Rows, g.Draft = GuessesOf(plan, limits.Sequences), &Draft{Limits: limits, Blocks: blocks}
	g.Draft.Plan, g.Draft.Executable = loadFollowing(t, "cpu", head(&p.draft), true, options, phase)
	e, err := New(plan, program, limits, 4*limits.Sequences, g)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	return e
}

// sample continues a token by n others.
func sample(ctx context.Context, e *Engine, first int32, s Sampling, n int, verify faulty) (ids []int32, u Usage, err error) {
	over := make(chan struct{})
	sampler := NewSampler(s)
	submitted := e.Submit(ctx, Request{
		Tokens: []int32{first}, Chooser: Sampled, Sampling: s,
		Next: func(row Row) (int32, bool, error) {
			id, err := verify(sampler, row.Logits(), row.Proposal)
			ids = append(ids, id)
			return id, len(ids) < n, err
		},
		Ended: func(usage Usage, failed error) {
			u, err = usage, failed
			close(over)
		},
	})
	if submitted != nil {
		return nil, u, submitted
	}
	<-over
	return ids, u, err
}

// transitions runs texts of n tokens with many seeds, several at once, and counts what followed
// each token, and what came as the second and third of each text's.
func transitions(t *testing.T, e *Engine, s Sampling, texts, n int, verify faulty) (after [][]int, third []int, drafted, accepted int) {
	after, third = make([][]int, vocab), make([]int, vocab*vocab)
	for i := range after {
		after[i] = make([]int, vocab)
	}
	var mu sync.Mutex
	var wait sync.WaitGroup
	for worker := range 8 {
		wait.Go(func() {
			for i := worker; i < texts; i += 8 {
				s := s
				s.Seed = uint64(i)
				ids, u, err := sample(t.Context(), e, 0, s, n, verify)
				require.NoError(t, err)
				mu.Lock()
				last := int32(0)
				for _, id := range ids {
					after[last][id]++
					last = id
				}
				third[int(ids[1])*vocab+int(ids[2])]++
				drafted, accepted = drafted+u.Drafted, accepted+u.Accepted
				mu.Unlock()
			}
		})
	}
	wait.Wait()
	return after, third, drafted, accepted
}

// log returns how probable it is that what was counted is so far off, or further.
func (p *pair) log(s Sampling, after [][]int, third []int) float64 {
	var single, double fit
	exact := make([][]float64, vocab)
	for i := range exact {
		exact[i] = exactly(s, p.target[i][:])
		single.add(after[i], exact[i])
	}
	pairs := make([]float64, vocab*vocab)
	for second := range vocab {
		came := 0.0
		for first := range vocab {
			came += exact[0][first] * exact[first][second]
		}
		for next := range vocab {
			pairs[second*vocab+next] = came * exact[second][next]
		}
	}
	double.add(third, pairs)
	return min(single.log(), double.log())
}

// choosers say how many guesses are verified.
var choosers = map[string]func(decoding int, guesses []draft.Guess, most int) int{
	"all": Eagerly,
	"those that are sure": func(_ int, guesses []draft.Guess, most int) (taken int) {
		for i := range guesses {
			g := &guesses[i]
			g.Take = g.Made
			if sure := len(g.Sure); g.Take < min(g.Tokens, 6, most/8) && (sure == g.Made || g.Sure[g.Made] > -0.7) {
				g.Take++
			}
			taken += g.Take
		}
		return taken
	},
	"any": func(_ int, guesses []draft.Guess, most int) (taken int) {
		for i := range guesses {
			g := &guesses[i]
			if g.Take = g.Made; rand.IntN(3) > 0 {
				g.Take = min(g.Tokens, g.Made+rand.IntN(3), most/8)
			}
			taken += g.Take
		}
		return taken
	},
}

// afterwards is a planted fault: what was drawn is verified only if it makes what follows sure.
func afterwards(_ int, guesses []draft.Guess, most int) (taken int) {
	for i := range guesses {
		g := &guesses[i]
		switch {
		case g.Made == 0:
			g.Take = min(1+len(g.Sure), g.Tokens)
		case len(g.Sure) > 1 && g.Sure[1] < -0.7:
			g.Take = 0
		default:
			g.Take = g.Made
		}
		taken += g.Take
	}
	return taken
}

// TestDraftedDistribution: sampled texts have the distribution of plain sampling, whichever
// tokens of a draft are verified, and where its cache is so small that it often has none. What
// verifies wrongly is noticed, and so is a decision that comes too late.
func TestDraftedDistribution(t *testing.T) {
	p := newPair(1.2)
	limits := Limits{8, 56}
	whole := testfiles.Full("histories")
	texts := 600
	if whole {
		texts = 10000
	}
	run := func(t *testing.T, e *Engine, s Sampling, verify faulty) (log float64, drafted, accepted int) {
		after, third, drafted, accepted := transitions(t, e, s, texts, 12, verify)
		log = p.log(s, after, third)
		t.Logf("%d of %d guesses right; 1e%.1f", accepted, drafted, log)
		return log, drafted, accepted
	}
	same := func(kind string, blocks int, g Guessing, samplings ...string) {
		e := p.engine(t, limits, blocks, g)
		if whole {
			samplings = slices.Collect(maps.Keys(mixed))
			if kind == "those that are sure" { // at that temperature no guess is
				samplings = lo.Without(samplings, "hot")
			}
		}
		for _, name := range samplings {
			t.Run(kind+"/"+name, func(t *testing.T) {
				log, drafted, accepted := run(t, e, mixed[name], (*Sampler).Verify)
				require.Greater(t, log, float64(chance))
				require.Greater(t, accepted, texts)
				require.Greater(t, drafted, accepted)
			})
		}
	}
	same("all", 12, Guessing{Choose: choosers["all"]}, "temperature", "all of them")
	same("any", 12, Guessing{Choose: choosers["any"]}, "top-p")
	same("those that are sure", 12, Guessing{Choose: choosers["those that are sure"]}, "temperature", "top-k")
	same("few blocks", 3, Guessing{Choose: choosers["all"]}, "min-p")
	same("lookups", 12, Guessing{Choose: choosers["any"], Lookup: true}, "hot")

	e := p.engine(t, limits, 12, Guessing{Choose: choosers["all"]})
	for fault, verify := range wrongly {
		t.Run("fault/"+fault, func(t *testing.T) {
			log, _, _ := run(t, e, mixed["temperature"], verify)
			require.Less(t, log, float64(2*chance))
		})
	}
	t.Run("fault/decided afterwards", func(t *testing.T) {
		log, _, _ := run(t, p.engine(t, limits, 12, Guessing{Choose: afterwards}), mixed["temperature"], (*Sampler).Verify)
		require.Less(t, log, float64(2*chance))
	})
}

// TestDraftedGreedy: texts are those of plain decoding, whatever the draft is like and however
// few blocks it has; and a draft that is the model itself is always right.
func TestDraftedGreedy(t *testing.T) {
	for _, noise := range []float64{0, 0.7, 5} {
		for _, blocks := range []int{1, 3, 12} {
			t.Run(fmt.Sprintf("noise %g, %d blocks", noise, blocks), func(t *testing.T) {
				p := newPair(noise)
				e := p.engine(t, Limits{4, 24}, blocks, Guessing{Choose: Eagerly})
				var wait sync.WaitGroup
				var mu sync.Mutex
				all := Usage{}
				for i := range 40 {
					wait.Go(func() {
						prompt := make([]int32, 1+i*5%90)
						prompt[len(prompt)-1] = int32(i)
						var want []int32
						for last := int32(i); len(want) < 30; want = append(want, last) {
							var err error
							last, err = Greedy(p.target[last][:])
							require.NoError(t, err)
						}
						a := askAs(t.Context(), e, Request{Tokens: prompt, Salt: fmt.Sprint(i % 2), Chooser: Chooser(i % 2)}, 30, nil)
						require.NoError(t, a.err)
						require.Equal(t, want, a.ids)
						mu.Lock()
						all.Drafted, all.Accepted = all.Drafted+a.usage.Drafted, all.Accepted+a.usage.Accepted
						mu.Unlock()
					})
				}
				wait.Wait()
				t.Logf("%d of %d guesses right", all.Accepted, all.Drafted)
				switch noise {
				case 0: // but behind the ends of texts
					require.Greater(t, all.Accepted, all.Drafted*4/5)
				case 0.7:
					require.Positive(t, all.Accepted)
					fallthrough
				default:
					require.Greater(t, all.Drafted, all.Accepted)
				}
				require.NoError(t, e.Close())
				s := e.Stats()
				require.Equal(t, s.Blocks, s.Free)
				require.Equal(t, blocks, e.guesser.model.pool.Free())
				require.Empty(t, e.guesser.model.chains)
			})
		}
	}
}
