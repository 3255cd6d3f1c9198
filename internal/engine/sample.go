package engine

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// Sampling says how the next token is chosen from the logits. The filters apply
// in this order: TopK, TopP, MinP, then the temperature spreads what is left.
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
	rng        *rand.Rand
	candidates []candidate
}

type candidate struct {
	id    int32
	logit float32
	p     float64
}

// NewSampler returns a sampler at the start of its random sequence.
func NewSampler(s Sampling) *Sampler {
	return &Sampler{Sampling: s, rng: rand.New(rand.NewPCG(s.Seed, 0x5e17))}
}

// Next chooses a token. Logits that are NaN are an error: they mean that the
// model or a kernel is broken, and choosing among them would hide it.
func (s *Sampler) Next(logits []float32) (int32, error) {
	best, err := Greedy(logits)
	if err != nil || s.Temperature == 0 {
		return best, err
	}
	c := s.rank(logits)
	c = s.cut(c, logits[best])
	sum := 0.0
	for i := range c {
		c[i].p = math.Exp(float64(c[i].logit-logits[best]) / s.Temperature)
		sum += c[i].p
	}
	x := s.rng.Float64() * sum
	for i := range c {
		if x -= c[i].p; x < 0 {
			return c[i].id, nil
		}
	}
	return c[len(c)-1].id, nil
}

// Greedy returns the most likely token, the first of equals.
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

// byLogit orders candidates, the most likely first.
func byLogit(a, b candidate) int {
	return cmp.Or(cmp.Compare(b.logit, a.logit), cmp.Compare(a.id, b.id))
}

// rank returns the candidates that TopK keeps, most likely first.
func (s *Sampler) rank(logits []float32) []candidate {
	k := len(logits)
	if s.TopK > 0 {
		k = min(k, s.TopK)
	}
	s.candidates = s.candidates[:0]
	if k == len(logits) {
		for i, x := range logits {
			s.candidates = append(s.candidates, candidate{id: int32(i), logit: x})
		}
		if s.TopP > 0 && s.TopP < 1 { // only the nucleus needs the order
			slices.SortFunc(s.candidates, byLogit)
		}
		return s.candidates
	}
	// A buffer of 2k, cut back to the best k whenever it is full, keeps this near
	// linear for the small k that people use.
	floor := float32(math.Inf(-1))
	for i, x := range logits {
		if len(s.candidates) >= 2*k {
			slices.SortFunc(s.candidates, byLogit)
			s.candidates = s.candidates[:k]
			floor = s.candidates[k-1].logit
		}
		if x > floor || len(s.candidates) < k {
			s.candidates = append(s.candidates, candidate{id: int32(i), logit: x})
		}
	}
	slices.SortFunc(s.candidates, byLogit)
	return s.candidates[:min(k, len(s.candidates))]
}

// cut applies TopP and MinP, whose probabilities are those before the temperature.
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

// Logprobs returns the logarithm of a token's probability, the softmax of the logits, and
// the k most likely tokens, equals by the smaller id.
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
		c := s.rank(logits)
		if k >= len(logits) { // rank leaves them as they are
			slices.SortFunc(c, byLogit)
		}
		for _, c := range c {
			top = append(top, Alternative{c.id, float32(float64(c.logit) - norm)})
		}
	}
	return float32(float64(logits[id]) - norm), top
}
