package engine

import (
	"errors"
	"fmt"
	"math"
	"math/bits"

	"github.com/smelt-ml/smelt/constrain"
)

// constrained lets a sampler choose among the tokens that a constraint allows. What may
// follow is found out while the device computes.
type constrained struct {
	state   constrain.State // after the tokens that were chosen
	mask    []uint64
	allowed []float32                             // logits, those of other tokens -Inf
	outside func(logits []float32) (int32, error) // nil: sampler
	sampler *Sampler                              // nil: the most likely token
	chosen  int32                                 // the most likely of all, as the device has chosen it; -1: it has not
	forces  bool                                  // a token that must follow takes no logits
	looking chan struct{}                         // closed where the mask of state has been made; nil: it has not been asked for
	text    func(text string) []int32             // as the model would write it; nil: it has no tokenizer
	forced  []int32                               // behind the last token that was chosen
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

// Prepare makes the mask, unless that takes no time.
func (c *constrained) Prepare() {
	if c.looking != nil || c.state.Known() {
		return
	}
	looking, state, mask := make(chan struct{}), c.state, make([]uint64, len(c.mask))
	c.looking = looking
	go func() {
		defer close(looking)
		_ = state.Mask(mask) // sample asks again, and is told what is wrong
	}()
}

// picks reports whether what the device has chosen is taken where the constraint allows it.
func (c *constrained) picks() bool { return c.outside == nil && c.sampler == nil }

// Ready reports whether sample would not wait.
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

// Known reports whether the mask takes no time.
func (c *constrained) Known() bool { return c.looking == nil && c.state.Known() }

// sample chooses a token, takes the one that is proposed or refuses it.
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

var errNoToken = errors.New("the text has the form that it is kept to, and the model has no token that ends it")

// among chooses among the tokens of the mask.
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

// limit takes tokens that a mask has not from logits, and reports whether any are left.
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

// sole takes the token that must follow, where there is one that is seen without more ado.
func (c *constrained) sole() (id int32, ok bool, err error) {
	if !c.forces || c.looking != nil {
		return 0, false, nil
	}
	if id, ok, err = c.state.Sole(); err != nil || !ok {
		return 0, false, err
	}
	if c.sampler != nil {
		c.sampler.Skip() // each token has its number of the random sequence
	}
	_, err = c.state.Accept(id)
	return id, true, err
}

// Guess appends the tokens that the model would write the text with that must follow.
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

// Allows is how many of some tokens may follow, as far as what may follow them is known.
func (c *constrained) Allows(tokens []int32) int {
	state := c.state
	for i, id := range tokens {
		if ok, err := state.Accept(id); err != nil || !ok || !state.Known() {
			return i
		}
	}
	return len(tokens)
}

// Limit takes tokens that may not follow some from logits.
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

// Forced returns the tokens that had to follow the last.
func (c *constrained) Forced() []int32 { return c.forced }
