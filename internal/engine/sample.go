package engine

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// Sampling configures how the next token is chosen from the logits. The filters apply in this
// order: TopK, TopP, MinP; then the temperature scales what is left.
type Sampling struct {
	Temperature float64 // 0: always the most likely token
	TopK        int     // keep the k most likely; 0: all
	TopP        float64 // keep the fewest tokens whose probabilities reach p; 0 or 1: all
	MinP        float64 // keep tokens at least this share as likely as the most likely; 0: all
	Seed        uint64
}

// Validate reports a parameter outside its range.
func (s Sampling) Validate() error {
	switch {
	case !(s.Temperature >= 0) || math.IsInf(s.Temperature, 1):
		return fmt.Errorf("temperature %g: want 0 or more", s.Temperature)
	case s.TopK < 0:
		return fmt.Errorf("top-k %d: want 0 or more", s.TopK)
	case !(s.TopP >= 0 && s.TopP <= 1):
		return fmt.Errorf("top-p %g: want 0 to 1", s.TopP)
	case !(s.MinP >= 0 && s.MinP <= 1):
		return fmt.Errorf("min-p %g: want 0 to 1", s.MinP)
	}
	return nil
}

// Sampler draws tokens. The same seed and logits give the same tokens.
type Sampler struct {
	Sampling
	rng   *rand.Rand
	drawn Distribution // of the last call, whose memory is reused
}

// Distribution holds the tokens that one is drawn from, with weights above 0, and the sum of the
// weights.
type Distribution struct {
	candidates []candidate
	sum        float64
}

type candidate struct {
	id    int32
	logit float32
	p     float64 // its weight
}

// Proposal is a token that a draft model has drawn, and the distribution that it was drawn from.
type Proposal struct {
	ID   int32
	from Distribution
}

// Streams of a seed: one sequence of random numbers for the tokens of a text, another for the
// proposals of a draft model.
const (
	ofTexts  = 0x5e17
	ofDrafts = 0xd4af
)

// NewSampler returns a sampler at the start of its random sequence.
func NewSampler(s Sampling) *Sampler { return newSampler(s, ofTexts) }

func newSampler(s Sampling, stream uint64) *Sampler {
	return &Sampler{Sampling: s, rng: rand.New(rand.NewPCG(s.Seed, stream))}
}

// Next chooses a token. It returns an error for NaN logits: they mean that the model or a kernel
// is broken, and choosing among them would hide it.
func (s *Sampler) Next(logits []float32) (int32, error) { return s.Verify(logits, nil) }

// Verify chooses a token with the same distribution as Next, given a proposal (speculative
// sampling). It accepts the proposal with the probability p/q, at most 1, of its probability
// here over that in the draft's distribution, and else draws from the positive part of the
// difference of the two distributions. Every call takes one number of the random sequence, with
// or without a proposal.
func (s *Sampler) Verify(logits []float32, proposed *Proposal) (int32, error) {
	if s.Temperature == 0 {
		return Greedy(logits)
	}
	if err := s.spread(logits, &s.drawn); err != nil {
		return 0, err
	}
	u := s.rng.Float64()
	if proposed == nil {
		return s.drawn.at(u), nil
	}
	return s.drawn.verify(proposed, u), nil
}

// Skip takes the number of the random sequence that Next would take, for a token that has no
// alternative.
func (s *Sampler) Skip() {
	if s.Temperature != 0 {
		s.rng.Float64()
	}
}

// propose draws a token for a draft, reusing the proposal's memory.
func (s *Sampler) propose(p *Proposal) { p.ID = p.from.at(s.rng.Float64()) }

// spread computes the distribution that a token is drawn from.
func (s *Sampler) spread(logits []float32, to *Distribution) error {
	best, err := Greedy(logits)
	if err != nil {
		return err
	}
	c := s.rank(logits, to.candidates[:0])
	to.candidates, to.sum = s.cut(c, logits[best]), 0
	for i := range to.candidates {
		c := &to.candidates[i]
		c.p = math.Exp(float64(c.logit-logits[best]) / s.Temperature)
		to.sum += c.p
	}
	return nil
}

// at returns the token at a share of the total weight, 0 to 1.
func (d *Distribution) at(share float64) int32 {
	x, id := share*d.sum, int32(0)
	for i := range d.candidates {
		c := &d.candidates[i]
		if c.p > 0 { // rounding may lead past the end, but never to a token without weight
			id = c.id
		}
		if x -= c.p; x < 0 {
			break
		}
	}
	return id
}

// largest returns the probability of the most likely token.
func (d *Distribution) largest() float64 {
	most := 0.0
	for i := range d.candidates {
		most = max(most, d.candidates[i].p)
	}
	return most / d.sum
}

// verify accepts the proposal, or draws from the positive part of the difference between d and
// the proposal's distribution. u is uniform in 0 to 1 and decides; where it rejects, the part
// above the limit is uniform again and draws.
func (d *Distribution) verify(proposed *Proposal, u float64) int32 {
	q := &proposed.from
	accept := min(1, d.probability(proposed.ID)/q.probability(proposed.ID))
	if u < accept {
		return proposed.ID
	}
	slices.SortFunc(d.candidates, byID)
	slices.SortFunc(q.candidates, byID)
	rest, k := 0.0, 0
	for i := range d.candidates {
		c := &d.candidates[i]
		c.p /= d.sum
		for k < len(q.candidates) && q.candidates[k].id < c.id {
			k++
		}
		if k < len(q.candidates) && q.candidates[k].id == c.id {
			c.p = max(0, c.p-q.candidates[k].p/q.sum)
		}
		rest += c.p
	}
	if rest == 0 { // the distributions are equal up to rounding
		return proposed.ID
	}
	d.sum = rest
	return d.at((u - accept) / (1 - accept))
}

// probability returns a token's probability.
func (d *Distribution) probability(id int32) float64 {
	for i := range d.candidates {
		if d.candidates[i].id == id {
			return d.candidates[i].p / d.sum
		}
	}
	return 0
}

// Greedy returns the most likely token, the first among equals.
func Greedy(logits []float32) (int32, error) {
	if len(logits) == 0 {
		return 0, fmt.Errorf("no logits")
	}
	best := 0
	for i, x := range logits {
		if x != x {
			return 0, fmt.Errorf("%w: logit %d", ErrNaN, i)
		}
		if x > logits[best] {
			best = i
		}
	}
	return int32(best), nil
}

// firstTwo returns the most likely token, the first among equals, and the second-largest logit.
func firstTwo(logits []float32) (best int32, second float32, err error) {
	if best, err = Greedy(logits); err != nil {
		return 0, 0, err
	}
	second = float32(math.Inf(-1))
	for i, x := range logits {
		if x > second && int32(i) != best {
			second = x
		}
	}
	return best, second, nil
}

// byLogit orders candidates, the most likely first.
func byLogit(a, b candidate) int {
	return cmp.Or(cmp.Compare(b.logit, a.logit), cmp.Compare(a.id, b.id))
}

// byID orders candidates by token id.
func byID(a, b candidate) int { return cmp.Compare(a.id, b.id) }

// rank appends the candidates that TopK keeps to an empty list, in the order of their ids or,
// where filters need it, by falling logit.
func (s *Sampler) rank(logits []float32, list []candidate) []candidate {
	k := len(logits)
	if s.TopK > 0 {
		k = min(k, s.TopK)
	}
	if k == len(logits) {
		for i, x := range logits {
			list = append(list, candidate{id: int32(i), logit: x})
		}
		if s.TopP > 0 && s.TopP < 1 { // only the nucleus needs the order
			slices.SortFunc(list, byLogit)
		}
		return list
	}
	// A buffer of 2k, cut back to the best k whenever it is full, keeps this nearly linear for
	// the usual small k.
	floor := float32(math.Inf(-1))
	for i, x := range logits {
		if len(list) >= 2*k {
			slices.SortFunc(list, byLogit)
			list = list[:k]
			floor = list[k-1].logit
		}
		if x > floor || len(list) < k {
			list = append(list, candidate{id: int32(i), logit: x})
		}
	}
	slices.SortFunc(list, byLogit)
	return list[:min(k, len(list))]
}

// cut applies TopP and MinP, on probabilities before the temperature.
func (s *Sampler) cut(c []candidate, top float32) []candidate {
	if s.TopP > 0 && s.TopP < 1 {
		sum := 0.0
		for i := range c {
			c[i].p = math.Exp(float64(c[i].logit - top))
			sum += c[i].p
		}
		reached := 0.0
		for i := range c {
			if reached += c[i].p; reached >= s.TopP*sum {
				c = c[:i+1]
				break
			}
		}
	}
	if s.MinP > 0 {
		floor := float64(top) + math.Log(s.MinP)
		c = slices.DeleteFunc(c, func(x candidate) bool { return float64(x.logit) < floor })
	}
	return c
}

// Alternative is a token and the logarithm of its probability.
type Alternative struct {
	ID      int32
	Logprob float32
}

// Logprobs returns the logarithm of a token's probability, the softmax of the logits, and the k
// most likely tokens, equals ordered by id.
func Logprobs(logits []float32, id int32, k int) (own float32, top []Alternative) {
	most := logits[id]
	for _, x := range logits {
		most = max(most, x)
	}
	sum := 0.0
	for _, x := range logits {
		sum += math.Exp(float64(x) - float64(most))
	}
	norm := float64(most) + math.Log(sum)
	if k > 0 {
		s := Sampler{Sampling: Sampling{TopK: k}}
		c := s.rank(logits, nil)
		if k >= len(logits) { // rank then leaves them unordered
			slices.SortFunc(c, byLogit)
		}
		for _, c := range c {
			top = append(top, Alternative{c.id, float32(float64(c.logit) - norm)})
		}
	}
	return float32(float64(logits[id]) - norm), top
}
