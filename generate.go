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

// Generation holds the parameters of one generation. Zero fields take defaults.
type Generation struct {
	N        int // maximum number of tokens to generate; 0: 128; below 0: none
	Sampling Sampling
	Adjustments
	// Stop are texts that end the generation; they are not part of Token.Text.
	Stop []string
	// IgnoreStop continues after stop tokens.
	IgnoreStop bool
	// NoText leaves Token.Text empty unless Stop is set, for callers that decode tokens
	// themselves, such as a [chat.Parser].
	NoText bool
	// Logprobs is the number of alternatives in Token.Top; above 0 it also sets Token.Logprob.
	Logprobs int
	// Sampler, if set, samples a token in place of Sampling. It may modify the logits, which are
	// valid during the call.
	Sampler func(logits []float32) (int32, error)
	// Constraint, if set, masks tokens that violate a form: their logits become -Inf before
	// sampling. It must be made from the model's [Loaded.Vocabulary]. If it admits a single
	// token, no logits are computed, unless Logprobs or Sampler need them.
	Constraint *constrain.Constraint
}

// defaultGenerated is the default of Generation.N.
const defaultGenerated = 128

// Adjustments change logits before sampling. Zero fields change nothing. Penalties count
// generated tokens only, not those of the prompt.
type Adjustments struct {
	Bias             map[int32]float32 // added to the logits of tokens, by id
	FrequencyPenalty float64           // subtracted from a token's logit for each of its occurrences
	PresencePenalty  float64           // subtracted once from the logit of a token that occurred
}

// Sampling holds the parameters of sampling; the zero value is greedy. The filters apply in
// the order TopK, TopP, MinP; the temperature then scales the logits of the remaining
// tokens.
type Sampling struct {
	Temperature float64 // 0: greedy
	TopK        int     // keep the k most likely tokens; 0: all
	TopP        float64 // keep the smallest set of tokens whose probabilities sum to p; 0 or 1: all
	MinP        float64 // keep tokens with at least p times the largest probability; 0: all
	Seed        uint64
}

// Validate returns an error about a parameter outside its range.
func (s Sampling) Validate() error { return engine.Sampling(s).Validate() }

// Token is a generated token.
type Token struct {
	ID int32
	// Text is the text that this token completes. An incomplete UTF-8 sequence, or a possible
	// beginning of a stop text, is held back until later tokens decide it.
	Text string
	// Logprob is the natural logarithm of the token's probability before sampling's filters
	// and temperature, and Top lists the most likely tokens; set if Generation.Logprobs is.
	Logprob float32
	Top     []Alternative
	Finish  string // reason why the generation ends with this token; "" for earlier tokens
	Stop    string // the text of Generation.Stop that ended the generation, if any
	// Usage is set by an [Engine] on the last value of a request, including one with an
	// error.
	Usage *Usage
}

// Usage holds the token counts of a request to an [Engine].
type Usage struct {
	PromptTokens int
	CachedTokens int // prompt tokens that the prefix cache held
	Drafted      int // draft tokens of speculative decoding
	Accepted     int // draft tokens that verification accepted
}

// Values of Token.Finish.
const (
	FinishStop   = "stop"   // a stop token or a stop text
	FinishLength = "length" // Generation.N tokens, or a full context
)

// Alternative is a token of Token.Top with its log probability.
type Alternative struct {
	ID      int32
	Logprob float32
}

// Generate appends a prompt to the sequence and yields each generated token, a stop token
// included; the last has a Finish. An error is the last value, and its Token holds the text
// that was held back. A break out of the range ends the generation; the sequence keeps the
// tokens generated so far.
//
// An empty sequence begins with the start token if the model has one. A later prompt
// continues the sequence, generated tokens included, as one text; an empty prompt continues
// generation.
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

// GenerateTokens is Generate for a prompt of token ids, which it appends unchanged.
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

// picking returns the generation in the engine's form.
func (g *Generation) picking(t *tokenizer.Tokenizer) engine.Picking {
	return engine.Picking{
		Sampling: engine.Sampling(g.Sampling), Adjustments: engine.Adjustments(g.Adjustments), Logprobs: g.Logprobs,
		Sampler: g.Sampler, Constraint: g.Constraint, Tokenizer: t,
	}
}

// begin returns the picker and the detokenizer of a generation that follows the tokens before.
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

// tokenOf returns a picked token with its text, and with a Finish if it ends the text or is the
// last token.
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
