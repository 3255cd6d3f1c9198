package smelt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/smelt-ml/smelt/constrain"
	"github.com/smelt-ml/smelt/internal/engine"
	"github.com/smelt-ml/smelt/internal/stops"
	"github.com/smelt-ml/smelt/models"
	"github.com/smelt-ml/smelt/models/tokenizer"
)

// Generation says how much to generate and how. Zero fields take defaults.
type Generation struct {
	N        int // most tokens to generate; 0: [DefaultGenerated], below 0: none
	Sampling Sampling
	Adjustments
	// Stop are texts that end the generation where they appear; they are not given out.
	Stop []string
	// IgnoreStop goes on after tokens that end a text.
	IgnoreStop bool
	// Logprobs is how many alternatives each token comes with, and its own likelihood.
	Logprobs int
	// Sampler, if there is one, chooses from the logits in place of Sampling. They are
	// valid during the call and may be changed.
	Sampler func(logits []float32) (int32, error)
	// Constraint, if there is one, keeps the text to a form: other tokens have the logit -Inf
	// when one is chosen. It must be of the model's [Loaded.Vocabulary]. A token that must
	// follow, as no other may, is taken without logits, unless Logprobs or a Sampler want them.
	Constraint *constrain.Constraint
}

// DefaultGenerated is the most tokens that a Generation asks for which does not say.
const DefaultGenerated = 128

// Sampling says how the next token is chosen; the zero value takes the most likely. The
// filters apply in this order: TopK, TopP, MinP, then the temperature spreads what is
// left.
type Sampling struct {
	Temperature float64 // 0: always the most likely token
	TopK        int     // keep the k most likely; 0: all
	TopP        float64 // keep the fewest tokens whose probabilities reach p; 0 or 1: all
	MinP        float64 // keep tokens at least this share as likely as the most likely; 0: all
	Seed        uint64
}

// Validate reports a parameter outside its range.
func (s Sampling) Validate() error { return engine.Sampling(s).Validate() }

// Token is one that was generated.
type Token struct {
	ID int32
	// Text is what is certain with this token: the first bytes of a character wait for
	// the rest, and what may be the beginning of a stop text for what follows.
	Text string
	// Logprob is the natural logarithm of the token's probability as the model has it,
	// whatever the sampling, and Top the most likely tokens, where they were asked for.
	Logprob float32
	Top     []Alternative
	Finish  string // why the generation ends with this token; "" before
	// Usage is what the request took, of an [Engine]: on the last value, which may be that
	// of an error.
	Usage *Usage
}

// Usage is what a request to an [Engine] took.
type Usage struct {
	PromptTokens int
	CachedTokens int // of these, those that earlier requests had computed
	Drafted      int // tokens that were guessed before they were computed
	Accepted     int // of these, those that were right
}

// Why a generation ends.
const (
	FinishStop   = "stop"   // a token that ends a text, or a stop text
	FinishLength = "length" // as many tokens as were asked for, or as fit
)

// Alternative is a token that might have been generated.
type Alternative struct {
	ID      int32
	Logprob float32
}

// Generate appends a prompt to the sequence and continues it: one Token for each that is
// generated, a stop token included, the last with a Finish. An error is the last value;
// its Token has the text that was held back. Breaking off the range ends the generation,
// and the sequence has what was generated until then.
//
// An empty sequence begins with the start token where the model has one. Later prompts
// go on from what the sequence has, generated tokens included, as if all of it were one
// text; an empty one goes on where it stands.
func (s *Session) Generate(ctx context.Context, prompt string, g Generation) iter.Seq2[Token, error] {
	return func(yield func(Token, error) bool) {
		ids, err := s.encodeAfter(prompt)
		if err != nil {
			yield(Token{}, err)
			return
		}
		s.generate(ctx, ids, g, yield)
	}
}

// GenerateTokens is Generate for a prompt of tokens, which are taken as they are.
func (s *Session) GenerateTokens(ctx context.Context, ids []int32, g Generation) iter.Seq2[Token, error] {
	return func(yield func(Token, error) bool) { s.generate(ctx, ids, g, yield) }
}

func (s *Session) generate(ctx context.Context, ids []int32, g Generation, yield func(Token, error) bool) {
	text, err := newText(s.loaded, &g, s.Tokens(), ids)
	if err == nil {
		err = g.check()
	}
	if room := max(0, s.Context()-s.Length()); err == nil && len(ids) > room {
		err = fmt.Errorf("%w: the prompt has %d tokens, and there is room for %d of %d", ErrContext, len(ids), room, s.Context())
	}
	if err != nil {
		yield(Token{}, err)
		return
	}
	if g.N < 0 {
		s.sequence.Append(ids...)
		return
	}
	next := s.chooser(&g)
	for left := cmp.Or(g.N, DefaultGenerated); ; left-- {
		token, err := next(ctx, ids)
		if err != nil {
			yield(Token{Text: text.rest()}, err)
			return
		}
		ids = nil
		s.sequence.Append(token.ID)
		text.add(&token, left == 1 || s.Length() > s.Context())
		if !yield(token, nil) || token.Finish != "" {
			return
		}
	}
}

func (g *Generation) check() error {
	if g.Logprobs < 0 {
		return fmt.Errorf("%d alternatives to each token: want 0 or more", g.Logprobs)
	}
	if err := g.Adjustments.check(); err != nil {
		return err
	}
	return g.Sampling.Validate()
}

// chooser returns what appends tokens and chooses the next: the device itself where
// it is the most likely one, else a sampler among the logits.
func (s *Session) chooser(g *Generation) func(context.Context, []int32) (Token, error) {
	c := newChoice(g, s.loaded, s.Vocab(), s.sequence.Chooses())
	return func(ctx context.Context, ids []int32) (t Token, err error) {
		if c.form != nil {
			if len(ids) == 0 {
				if id, ok, err := c.form.sole(); ok || err != nil {
					return Token{ID: id}, err
				}
			}
			c.form.Prepare()
		}
		switch {
		case c.form != nil && c.form.picks() && s.Chooses():
			if c.form.chosen, err = s.sequence.Next(ctx, ids); err != nil {
				return t, err
			}
			logits, err := s.sequence.Logits()
			if err != nil {
				return t, err
			}
			return c.choose(logits, nil, s.Length())
		case c.sample != nil:
			logits, err := s.sequence.Feed(ctx, ids)
			if err != nil {
				return t, err
			}
			return c.choose(logits, nil, s.Length())
		}
		if t.ID, err = s.sequence.Next(ctx, ids); err != nil || c.logprobs == 0 {
			return t, err
		}
		logits, err := s.sequence.Logits()
		if err == nil {
			c.rate(&t, logits)
		}
		return t, err
	}
}

// choice chooses tokens as a Generation says.
type choice struct {
	vocab, logprobs int
	form            *constrained                                                     // nil: none
	sample          func(logits []float32, proposed *engine.Proposal) (int32, error) // nil: what the device has chosen
	outside         bool                                                             // sample is the caller's
}

// sampler is what chooses from logits: the caller's, or what Sampling says.
func (g *Generation) sampler() func(logits []float32) (int32, error) {
	if g.Sampler != nil {
		return g.Sampler
	}
	return engine.NewSampler(engine.Sampling(g.Sampling)).Next
}

// newChoice takes the device's choice where it makes one and that is what is wanted.
func newChoice(g *Generation, l *Loaded, vocab int, chooses bool) *choice {
	if !g.Adjustments.none() {
		adjusted := *g
		adjusted.Sampler = g.Adjustments.before(g.sampler())
		g = &adjusted
	}
	c := &choice{vocab: vocab, logprobs: g.Logprobs, outside: g.Sampler != nil}
	switch {
	case g.Constraint != nil:
		c.form = newConstrained(g, l)
		c.sample = c.form.sample
	case c.outside: // to whom nothing is proposed
		c.sample = func(logits []float32, _ *engine.Proposal) (int32, error) { return g.Sampler(logits) }
	case g.Sampling.Temperature != 0 || !chooses:
		c.sample = engine.NewSampler(engine.Sampling(g.Sampling)).Verify
	}
	return c
}

// chooser says what it takes to choose.
func (c *choice) chooser() engine.Chooser {
	switch {
	case c.outside:
		return engine.Outside
	case c.sample != nil || c.logprobs > 0:
		return engine.Sampled
	}
	return engine.Chosen
}

// choose samples a token from the logits after so many, or takes the one that is proposed.
func (c *choice) choose(logits []float32, proposed *engine.Proposal, after int) (t Token, err error) {
	given := logits
	if c.logprobs > 0 && c.outside { // before the sampler changes them
		logits = append([]float32(nil), logits...)
	}
	if t.ID, err = c.sample(logits, proposed); err != nil {
		return t, fmt.Errorf("after %d tokens: %w", after, err)
	} else if t.ID < 0 || int(t.ID) >= c.vocab {
		return t, fmt.Errorf("after %d tokens: the sampler chose %d of %d tokens", after, t.ID, c.vocab)
	}
	if c.logprobs > 0 {
		c.rate(&t, given)
	}
	return t, nil
}

// rate says how likely a token was, and what else was likely.
func (c *choice) rate(t *Token, logits []float32) {
	var top []engine.Alternative
	t.Logprob, top = engine.Logprobs(logits, t.ID, c.logprobs)
	for _, a := range top {
		t.Top = append(t.Top, Alternative(a))
	}
}

// text turns generated tokens into text, up to what stops it.
type text struct {
	tokenizer *tokenizer.Tokenizer // nil where the model has none
	decoder   *tokenizer.Decoder
	stops     *stops.Finder
	ignore    bool // tokens that end a text
}

// newText begins after tokens that come one after the other.
func newText(l *Loaded, g *Generation, before ...[]int32) (*text, error) {
	t := &text{ignore: g.IgnoreStop, stops: stops.New(g.Stop...)}
	var err error
	if t.tokenizer, err = l.Tokenizer(); errors.Is(err, models.ErrNoTokenizer) && t.stops.Len() == 0 {
		return t, nil
	} else if err != nil {
		return nil, err
	}
	t.decoder = t.tokenizer.NewDecoder(false)
	for _, ids := range before {
		t.decoder.Prime(ids)
	}
	return t, nil
}

// add gives a token the text that is certain with it, and the Finish where it ends the
// text, or is the last one anyway.
func (t *text) add(token *Token, last bool) {
	var stopped bool
	token.Text, stopped = t.next(token.ID, last)
	switch {
	case stopped:
		token.Finish = FinishStop
	case last:
		token.Finish = FinishLength
	}
}

// next returns what text is certain with a token, the last one or not, and whether it ends the
// text.
func (t *text) next(id int32, last bool) (out string, stopped bool) {
	if t.tokenizer == nil {
		return "", false
	}
	ends := t.tokenizer.IsStop(id) && !t.ignore
	piece := t.decoder.Next(id)
	if ends || last {
		piece += t.decoder.Flush()
	}
	out, stop := t.stops.Next(piece, ends || last)
	return out, ends || stop != ""
}

// rest returns what was held back.
func (t *text) rest() string {
	if t.tokenizer == nil {
		return ""
	}
	out, _ := t.stops.Next(t.decoder.Flush(), true)
	return out
}
