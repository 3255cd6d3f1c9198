// Package perplexity measures how well a model predicts a text.
package perplexity

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/smelt-ml/smelt"
)

// ErrShortText reports that a text has fewer tokens than a window.
var ErrShortText = errors.New("the text is too short")

// Result holds the perplexity of a text.
type Result struct {
	Tokens     int       // tokens scored
	NLL        float64   // mean negative log-likelihood, in nats a token
	Perplexity float64   // exp(NLL)
	Windows    []float64 // the mean NLL of each window
}

// minWindow is the smallest window: a token, and one that it predicts.
const minWindow = 2

// Of returns the perplexity of a text. It encodes the text as a whole, without special tokens, and
// cuts it into consecutive windows of that number of tokens; a shorter rest is dropped. Each window
// starts from an empty cache, with the model's start token, if any, as its first token; all tokens
// but the first are scored. progress, if not nil, is called after each window.
func Of(ctx context.Context, s *smelt.Session, text string, window int, progress func(done, total int)) (*Result, error) {
	if window < minWindow || window > s.Context() {
		return nil, fmt.Errorf("a window of %d tokens: want %d to %d, the slots of the cache", window, minWindow, s.Context())
	}
	tokenizer, err := s.Loaded().Tokenizer()
	if err != nil {
		return nil, err
	}
	ids := tokenizer.Encode(text, false)
	start := tokenizer.Opening()
	step := window - len(start)
	total := len(ids) / step
	if total == 0 {
		return nil, fmt.Errorf("%w: it has %d tokens; a window has %d", ErrShortText, len(ids), step)
	}
	p := &Result{}
	sum := 0.0
	defer s.Reset()
	for w := range total {
		tokens := append(start[:len(start):len(start)], ids[w*step:(w+1)*step]...)
		s.Reset()
		nll, err := score(ctx, s, tokens)
		if err != nil {
			return nil, fmt.Errorf("window %d of %d: %w", w+1, total, err)
		}
		p.Windows = append(p.Windows, nll/float64(window-1))
		p.Tokens += window - 1
		sum += nll
		if progress != nil {
			progress(w+1, total)
		}
	}
	p.NLL = sum / float64(p.Tokens)
	p.Perplexity = math.Exp(p.NLL)
	return p, nil
}

// score returns the summed negative log-likelihood of all tokens but the first.
func score(ctx context.Context, s *smelt.Session, tokens []int32) (float64, error) {
	sum := 0.0
	err := s.Score(ctx, tokens, func(i int, logits []float32) error {
		if i+1 == len(tokens) {
			return nil
		}
		nll := -LogLikelihood(logits, tokens[i+1])
		switch {
		case math.IsNaN(nll):
			return fmt.Errorf("the token after position %d has a log-likelihood of NaN: %w", i, smelt.ErrNaN)
		case math.IsInf(nll, 0):
			return fmt.Errorf("the token after position %d has a log-likelihood of %g", i, -nll)
		}
		sum += nll
		return nil
	})
	return sum, err
}

// LogLikelihood returns the logarithm of the softmax of logits at id, NaN if any logit is NaN.
func LogLikelihood(logits []float32, id int32) float64 {
	top := math.Inf(-1)
	for _, l := range logits {
		top = math.Max(top, float64(l)) // max propagates NaN
	}
	sum := 0.0
	for _, l := range logits {
		sum += math.Exp(float64(l) - top)
	}
	return float64(logits[id]) - top - math.Log(sum)
}
