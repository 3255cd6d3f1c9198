package engine

import (
	"context"
	"fmt"

	"github.com/smelt-ml/smelt/constrain"
	"github.com/smelt-ml/smelt/models/tokenizer"
)

// Picking configures how the tokens of a text are picked from logits.
type Picking struct {
	Sampling Sampling
	Adjustments
	Logprobs int // number of alternatives returned with each token, beside its own likelihood
	// Sampler, if set, picks instead of Sampling. It may change the logits.
	Sampler func(logits []float32) (int32, error)
	// Constraint, if set, restricts the text to a language.
	Constraint *constrain.Constraint
	// Tokenizer tokenizes the text that a constraint leaves no alternative to, as guesses; nil:
	// none are guessed.
	Tokenizer *tokenizer.Tokenizer
}

// Validate reports a parameter outside its range.
func (p *Picking) Validate() error {
	if p.Logprobs < 0 {
		return fmt.Errorf("%d alternatives to each token: want 0 or more", p.Logprobs)
	}
	if err := p.Adjustments.check(); err != nil {
		return err
	}
	return p.Sampling.Validate()
}

// Token is a picked token, with its likelihood if requested.
type Token struct {
	ID      int32
	Logprob float32
	Top     []Alternative
}

// Picker picks the tokens of one text: for an [Engine] by [Picker.Request], for a [Sequence] by
// [Picker.After]. Both use the device's greedy choice where it makes one and sampling is greedy.
type Picker struct {
	sampling        Sampling
	vocab, logprobs int
	constraint      *constrained                                              // nil: none
	sample          func(logits []float32, proposed *Proposal) (int32, error) // nil: the device's choice
	outside         bool                                                      // whether sample is the caller's
}

// NewPicker returns a picker for a new text, from rows of vocab logits. chooses reports whether
// the device computes the greedy choice.
func NewPicker(p Picking, vocab int, chooses bool) *Picker {
	if !p.Adjustments.none() {
		if p.Sampler == nil {
			p.Sampler = NewSampler(p.Sampling).Next
		}
		p.Sampler = p.Adjustments.before(p.Sampler)
	}
	c := &Picker{sampling: p.Sampling, vocab: vocab, logprobs: p.Logprobs, outside: p.Sampler != nil}
	switch {
	case p.Constraint != nil:
		c.constraint = newConstrained(&p)
		c.sample = c.constraint.sample
	case c.outside: // which gets no proposals
		c.sample = func(logits []float32, _ *Proposal) (int32, error) { return p.Sampler(logits) }
	case p.Sampling.Temperature != 0 || !chooses:
		c.sample = NewSampler(p.Sampling).Verify
	}
	return c
}

// Request returns a request without a prompt. The picker picks its tokens and calls give with
// each, and with the length of the sequence before it; give reports whether another token is
// wanted.
func (c *Picker) Request(give func(t Token, length int) (more bool)) Request {
	r := Request{Chooser: c.chooser(), Sampling: c.sampling}
	if c.constraint != nil && r.Chooser == Sampled {
		r.Constraint = c.constraint
	}
	r.Next = func(row Row) (int32, bool, error) {
		t, err := c.of(&row)
		if err != nil {
			return 0, false, err
		}
		more := give(t, row.Length+1)
		if c.constraint == nil {
			return t.ID, more, nil
		}
		for c.constraint.forced = c.constraint.forced[:0]; more; {
			sole, ok, err := c.constraint.sole()
			if err != nil {
				return 0, false, err
			} else if !ok {
				break
			}
			c.constraint.forced = append(c.constraint.forced, sole)
			more = give(Token{ID: sole}, row.Length+1+len(c.constraint.forced))
		}
		return t.ID, more, nil
	}
	return r
}

// After appends ids, which may be empty, to a sequence and picks the next token, which it does
// not append.
func (c *Picker) After(ctx context.Context, s *Sequence, ids []int32) (t Token, err error) {
	if c.constraint != nil {
		if len(ids) == 0 {
			if id, ok, err := c.constraint.sole(); ok || err != nil {
				return Token{ID: id}, err
			}
		}
		c.constraint.Prepare()
	}
	switch {
	case c.constraint != nil && c.constraint.picks() && s.Chooses():
		if c.constraint.chosen, err = s.Next(ctx, ids); err != nil {
			return t, err
		}
		logits, err := s.Logits()
		if err != nil {
			return t, err
		}
		return c.pick(logits, nil, s.Length())
	case c.sample != nil:
		logits, err := s.Feed(ctx, ids)
		if err != nil {
			return t, err
		}
		return c.pick(logits, nil, s.Length())
	}
	if t.ID, err = s.Next(ctx, ids); err != nil || c.logprobs == 0 {
		return t, err
	}
	logits, err := s.Logits()
	if err == nil {
		c.rate(&t, logits)
	}
	return t, err
}

// chooser returns the [Chooser] of the picker's requests.
func (c *Picker) chooser() Chooser {
	switch {
	case c.outside:
		return Outside
	case c.sample != nil || c.logprobs > 0:
		return Sampled
	}
	return Chosen
}

// of picks the token that follows a row.
func (c *Picker) of(row *Row) (t Token, err error) {
	if c.constraint != nil {
		if c.constraint.chosen, err = row.Picked(); err != nil {
			return t, err
		}
	}
	if c.sample != nil {
		return c.pick(row.Logits(), row.Proposal, row.Length)
	}
	if t.ID, err = row.Chosen(); err == nil && c.logprobs > 0 {
		c.rate(&t, row.Logits())
	}
	return t, err
}

// pick samples a token from the logits after that many tokens, or accepts the proposed one.
func (c *Picker) pick(logits []float32, proposed *Proposal, after int) (t Token, err error) {
	given := logits
	if c.logprobs > 0 && c.outside { // before the sampler changes them
		logits = append([]float32(nil), logits...)
	}
	if t.ID, err = c.sample(logits, proposed); err != nil {
		return t, fmt.Errorf("after %d tokens: %w", after, err)
	} else if t.ID < 0 || int(t.ID) >= c.vocab {
		return t, fmt.Errorf("after %d tokens: the sampler chose id %d, outside the vocabulary of %d tokens", after, t.ID, c.vocab)
	}
	if c.logprobs > 0 {
		c.rate(&t, given)
	}
	return t, nil
}

// rate sets a token's likelihood and its most likely alternatives.
func (c *Picker) rate(t *Token, logits []float32) {
	t.Logprob, t.Top = Logprobs(logits, t.ID, c.logprobs)
}
