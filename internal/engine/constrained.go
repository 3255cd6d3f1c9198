package engine

import (
	"errors"
	"fmt"
	"math"
	"math/bits"

	"github.com/smelt-ml/smelt/constrain"
)

// constrained restricts a sampler to the tokens that a constraint allows. It computes the mask
// of allowed tokens while the device computes the step.
type constrained struct {
	state   constrain.State // after the chosen tokens
	mask    []uint64
	allowed []float32                             // copy of the logits with -Inf for tokens that are not allowed
	outside func(logits []float32) (int32, error) // the caller's sampler; nil: sampler
	sampler *Sampler                              // nil: greedy
	chosen  int32                                 // the device's greedy choice, allowed or not; -1: none
	forces  bool                                  // whether a token without alternative skips its row of logits
	looking chan struct{}                         // closed when the mask of state is computed; nil: not started
	text    func(text string) []int32             // tokenizes text as the model would; nil: there is no tokenizer
	forced  []int32                               // tokens without alternative after the last chosen one
}

func newConstrained(p *Picking) *constrained {
	c := &constrained{
		state: p.Constraint.Start(), mask: make([]uint64, p.Constraint.Words()), outside: p.Sampler, chosen: -1,
		forces: p.Sampler == nil && p.Logprobs == 0,
	}
	if p.Sampling.Temperature != 0 {
		c.sampler = NewSampler(p.Sampling)
	}
	if t := p.Tokenizer; t != nil {
		before := t.Encode("\n", false)
		c.text = func(text string) []int32 { return t.EncodeAfter(before, text, false) }
	}
	c.Prepare() // while the prompt is computed
	return c
}

// Prepare starts computing the mask, unless it is known already.
func (c *constrained) Prepare() {
	if c.looking != nil || c.state.Known() {
		return
	}
	looking, state, mask := make(chan struct{}), c.state, make([]uint64, len(c.mask))
	c.looking = looking
	go func() {
		defer close(looking)
		_ = state.Mask(mask) // sample computes it again and returns the error
	}()
}

// picks reports whether the device's greedy choice is used where the constraint allows it.
func (c *constrained) picks() bool { return c.outside == nil && c.sampler == nil }

// Ready reports whether sample would return without waiting for the mask.
func (c *constrained) Ready() bool {
	if c.looking != nil {
		select {
		case <-c.looking:
		default:
			return false
		}
	}
	return c.state.Known()
}

// Known reports whether the mask is known without computation.
func (c *constrained) Known() bool { return c.looking == nil && c.state.Known() }

// sample chooses an allowed token, or accepts or rejects the proposed one.
func (c *constrained) sample(logits []float32, proposed *Proposal) (int32, error) {
	if c.looking != nil {
		<-c.looking
		c.looking = nil
	}
	if err := c.state.Mask(c.mask); err != nil {
		return 0, err
	}
	id, err := c.among(logits, proposed)
	if err != nil {
		return 0, err
	}
	if ok, err := c.state.Accept(id); err != nil || !ok {
		if err == nil {
			err = fmt.Errorf("the sampler chose token %d, which the constraint does not allow", id)
		}
		return 0, err
	}
	return id, nil
}

var errNoToken = errors.New("the constraint allows no token: the text is complete, and the model has no token that ends it")

// among chooses one of the tokens in the mask.
func (c *constrained) among(logits []float32, proposed *Proposal) (int32, error) {
	switch {
	case c.outside != nil:
		if !limit(logits, c.mask) {
			return 0, errNoToken
		}
		return c.outside(logits)
	case c.sampler != nil:
		c.allowed = append(c.allowed[:0], logits...)
		if !limit(c.allowed, c.mask) {
			return 0, errNoToken
		}
		return c.sampler.Verify(c.allowed, proposed)
	case c.chosen >= 0 && c.mask[c.chosen>>6]>>(c.chosen&63)&1 != 0:
		return c.chosen, nil
	}
	best := int32(-1)
	for i, w := range c.mask {
		for ; w != 0; w &= w - 1 {
			id := int32(i<<6 + bits.TrailingZeros64(w))
			if int(id) >= len(logits) {
				break
			}
			if x := logits[id]; x != x {
				return 0, fmt.Errorf("%w: logit %d", ErrNaN, id)
			} else if best < 0 || x > logits[best] {
				best = id
			}
		}
	}
	if best < 0 {
		return 0, errNoToken
	}
	return best, nil
}

// limit sets the logits of tokens outside a mask to -Inf, and reports whether the mask has any
// token.
func limit(logits []float32, mask []uint64) (any bool) {
	least := float32(math.Inf(-1))
	for at := 0; at < len(logits); at += 64 {
		w := uint64(0)
		if at>>6 < len(mask) {
			w = mask[at>>6]
		}
		word := logits[at:min(at+64, len(logits))]
		switch any = any || w != 0; w {
		case 0:
			for i := range word {
				word[i] = least
			}
		case math.MaxUint64:
		default:
			for i := range word {
				if w>>i&1 == 0 {
					word[i] = least
				}
			}
		}
	}
	return any
}

// sole accepts the next token where the constraint allows exactly one and finds it without a
// mask.
func (c *constrained) sole() (id int32, ok bool, err error) {
	if !c.forces || c.looking != nil {
		return 0, false, nil
	}
	if id, ok, err = c.state.Sole(); err != nil || !ok {
		return 0, false, err
	}
	if c.sampler != nil {
		c.sampler.Skip() // every token consumes one number of the random sequence
	}
	_, err = c.state.Accept(id)
	return id, true, err
}

// Guess appends tokens of the text that the constraint leaves no alternative to, tokenized as
// the model would.
func (c *constrained) Guess(dst []int32, most int) []int32 {
	if c.text == nil {
		return dst
	}
	text, err := c.state.Forced(nil)
	if err != nil || len(text) == 0 {
		return dst
	}
	ids := c.text(string(text))
	if len(ids) > most {
		ids = ids[:most]
	}
	return append(dst, ids[:c.Allows(ids)]...)
}

// Allows returns the length of the longest prefix of tokens that may follow, ending where the
// next mask is not known.
func (c *constrained) Allows(tokens []int32) int {
	state := c.state
	for i, id := range tokens {
		if ok, err := state.Accept(id); err != nil || !ok || !state.Known() {
			return i
		}
	}
	return len(tokens)
}

// Limit sets the logits of tokens that may not follow the tokens in after to -Inf.
func (c *constrained) Limit(after []Proposal, logits []float32) (ok bool, err error) {
	state := c.state
	for i := range after {
		if ok, err := state.Accept(after[i].ID); err != nil || !ok {
			return false, err
		}
	}
	if !state.Known() {
		return false, nil
	}
	if err := state.Mask(c.mask); err != nil {
		return false, err
	}
	return limit(logits, c.mask), nil
}

// Forced returns the tokens without alternative after the last chosen one.
func (c *constrained) Forced() []int32 { return c.forced }
