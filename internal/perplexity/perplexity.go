// Package perplexity measures how well a model predicts a text.
package perplexity

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/smelt-ml/smelt"
)

// ErrShortText is wrapped where a text has too few tokens to be scored.
var ErrShortText = errors.New("the text is too short")

// Result is how well a model predicts a text.
type Result struct {
	Tokens     int     // tokens scored
	NLL        float64 // mean negative log-likelihood, in nats a token
	Perplexity float64 // exp(NLL)
	Windows    []float64
}

// minWindow has one token to predict another from.
const minWindow = 2

// Of scores a text. It is encoded as one, without special tokens, and cut
// into windows that follow each other; what is left at the end is dropped. Each
// window starts from an empty cache, with the start token where the model has one,
// which counts towards the window. The tokens after the first are scored. Windows
// holds the mean of each; progress, if given, is called after it.
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
		return nil, fmt.Errorf("%w: it has %d tokens, and a window takes %d", ErrShortText, len(ids), step)
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

// LogLikelihood is the logarithm of the softmax of logits at id, NaN if any logit
// is.
func LogLikelihood(logits []float32, id int32) float64 {
	top := math.Inf(-1)
	for _, l := range logits {
		top = math.Max(top, float64(l)) // NaN wins
	}
	sum := 0.0
	for _, l := range logits {
		sum += math.Exp(float64(l) - top)
	}
	return float64(logits[id]) - top - math.Log(sum)
}
