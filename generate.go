package smelt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/smelt-ml/smelt/constrain"
	"github.com/smelt-ml/smelt/internal/engine"
	"github.com/smelt-ml/smelt/internal/stops"
	"github.com/smelt-ml/smelt/models/checkpoint"
	"github.com/smelt-ml/smelt/models/tokenizer"
)

// Generation says how much to generate and how. Zero fields take defaults.
type Generation struct {
	N        int // most tokens to generate; 0: 128, below 0: none
	Sampling Sampling
	Adjustments
	// Stop are texts that end the generation where they appear; they are not given out.
	Stop []string
	// IgnoreStop goes on after tokens that end a text.
	IgnoreStop bool
	// NoText leaves the texts of tokens empty, where there is no Stop to be found: for who makes
	// text of them in another way, such as a [chat.Parser].
	NoText bool
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

// defaultGenerated is the most tokens that a Generation asks for which does not say.
const defaultGenerated = 128

// Adjustments change logits before a token is chosen from them. Zero fields change nothing.
// Tokens of the prompt do not count as said.
type Adjustments struct {
	Bias             map[int32]float32 // is added to the logits of tokens, by id
	FrequencyPenalty float64           // is taken from a token's logit for each time that it was generated
	PresencePenalty  float64           // is taken from those that were generated at all
}

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
	Stop    string // of Generation.Stop, the text that ends it; "" for another end
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
	picker, text, err := s.loaded.begin(&g, s.Vocab(), s.sequence.Chooses(), s.Tokens(), ids)
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
	for left := cmp.Or(g.N, defaultGenerated); ; left-- {
		picked, err := picker.After(ctx, s.sequence, ids)
		if err != nil {
			yield(Token{Text: text.Rest()}, err)
			return
		}
		ids = nil
		s.sequence.Append(picked.ID)
		token := tokenOf(picked, text, left == 1 || s.Length() > s.Context())
		if !yield(token, nil) || token.Finish != "" {
			return
		}
	}
}

// picking is the generation as the engine takes it.
func (g *Generation) picking(t *tokenizer.Tokenizer) engine.Picking {
	return engine.Picking{
		Sampling: engine.Sampling(g.Sampling), Adjustments: engine.Adjustments(g.Adjustments), Logprobs: g.Logprobs,
		Sampler: g.Sampler, Constraint: g.Constraint, Tokenizer: t,
	}
}

// begin returns what picks the tokens of a generation after others, and what makes text of them.
func (l *Loaded) begin(g *Generation, vocab int, chooses bool, before ...[]int32) (*engine.Picker, *stops.Text, error) {
	t, err := l.Tokenizer()
	if errors.Is(err, checkpoint.ErrNoTokenizer) && !slices.ContainsFunc(g.Stop, func(stop string) bool { return stop != "" }) {
		t, err = nil, nil
	}
	p := g.picking(t)
	if err == nil {
		err = p.Validate()
	}
	if err != nil {
		return nil, nil, err
	}
	o := stops.TextOptions{Stop: g.Stop, IgnoreStop: g.IgnoreStop, NoText: g.NoText}
	return engine.NewPicker(p, vocab, chooses), stops.NewText(t, o, before...), nil
}

// tokenOf returns a token that was picked with its text, and with its Finish where it ends the
// text or is the last one anyway.
func tokenOf(picked engine.Token, text *stops.Text, last bool) Token {
	t := Token{ID: picked.ID, Logprob: picked.Logprob}
	for _, a := range picked.Top {
		t.Top = append(t.Top, Alternative(a))
	}
	var ended bool
	switch t.Text, ended, t.Stop = text.Next(t.ID, last); {
	case ended:
		t.Finish = FinishStop
	case last:
		t.Finish = FinishLength
	}
	return t
}
