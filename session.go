package smelt

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/smelt-ml/smelt/device"
	"github.com/smelt-ml/smelt/internal/engine"
)

// ErrNoTokens is wrapped by the error about an empty prompt for a model without a start token.
var ErrNoTokens = errors.New("the prompt has no tokens")

// ErrContext is wrapped by errors about a sequence that exceeds the context.
var ErrContext = engine.ErrContext

// ErrNaN is wrapped by errors about logits that are NaN, which no token can be sampled from. The
// cause is a broken weight or kernel; smelt verify --bisect finds it.
var ErrNaN = engine.ErrNaN

// Session is one sequence of tokens on a device, with a KV cache of its own. It is not safe for
// concurrent use; different sessions of one [Loaded] are.
type Session struct {
	loaded   *Loaded
	sequence *engine.Sequence
}

// Loaded returns the program that the session runs.
func (s *Session) Loaded() *Loaded { return s.loaded }

// OnDevice returns the session's instance on the device, with its counters.
func (s *Session) OnDevice() *device.Instance { return s.sequence.Instance() }

// Close releases the session's memory. Further calls do nothing.
func (s *Session) Close() error { return s.sequence.Close() }

// Tokens returns the sequence, generated tokens included. The slice is read-only and valid until
// the next call.
func (s *Session) Tokens() []int32 { return s.sequence.Tokens() }

// Length returns the number of tokens of the sequence.
func (s *Session) Length() int { return s.sequence.Length() }

// Context returns the maximum number of tokens of the sequence.
func (s *Session) Context() int { return s.sequence.Context() }

// Vocab returns the length of a row of logits.
func (s *Session) Vocab() int { return s.sequence.Vocab() }

// Truncate shortens the sequence to its first n tokens.
func (s *Session) Truncate(n int) { s.sequence.Truncate(n) }

// Reset empties the sequence.
func (s *Session) Reset() { s.sequence.Reset() }

// FillRandom makes the sequence n tokens long by filling the cache with random contents, for
// benchmarks at a depth of n tokens without a prefill.
func (s *Session) FillRandom(n int, rng *rand.Rand) error { return s.sequence.FillRandom(n, rng) }

// Feed appends tokens and returns the logits after the last, [Vocab], valid until the
// next call. Without ids it returns the logits after the current last token. On an error
// the sequence is unchanged.
func (s *Session) Feed(ctx context.Context, ids []int32) ([]float32, error) {
	return s.sequence.Feed(ctx, ids)
}

// Next appends tokens and returns the most likely next token, the smallest id of equals,
// without appending it.
func (s *Session) Next(ctx context.Context, ids []int32) (int32, error) {
	if s.sequence.Chooses() {
		return s.sequence.Next(ctx, ids)
	}
	logits, err := s.sequence.Feed(ctx, ids)
	if err != nil {
		return 0, err
	}
	return engine.Greedy(logits)
}

// Chooses reports whether the device computes the argmax of the logits itself, so that Next
// does not read them.
func (s *Session) Chooses() bool { return s.sequence.Chooses() }

// Score appends tokens and calls row with the logits after each, in order, with i from 0.
// The logits are valid during the call.
func (s *Session) Score(ctx context.Context, ids []int32, row func(i int, logits []float32) error) error {
	return s.sequence.Score(ctx, ids, row)
}

// Greedy returns the token of the largest logit, the smallest id of equals.
func Greedy(logits []float32) (int32, error) { return engine.Greedy(logits) }

// Encode is [Loaded.Encode].
func (s *Session) Encode(prompt string) ([]int32, error) { return s.loaded.Encode(prompt) }

// Encode tokenizes a prompt. It recognises special tokens, and prepends the start token if
// the model has one.
func (l *Loaded) Encode(prompt string) ([]int32, error) {
	t, err := l.Tokenizer()
	if err != nil {
		return nil, err
	}
	ids := t.Open(t.Encode(prompt, true))
	if len(ids) == 0 {
		return nil, fmt.Errorf("%w, and %s starts with none", ErrNoTokens, l.program.Plan.Model)
	}
	return ids, nil
}

// fits returns ErrContext for a text whose length shows that it has more than room tokens.
func (l *Loaded) fits(text string, room int) error {
	t, err := l.Tokenizer()
	if err != nil {
		return err
	}
	if n := t.AtLeast(text); n > room {
		return fmt.Errorf("%w: the text has at least %d tokens, and there is room for %d", ErrContext, n, room)
	}
	return nil
}

// encodeAfter tokenizes a prompt that continues the sequence.
func (s *Session) encodeAfter(prompt string) ([]int32, error) {
	if err := s.loaded.fits(prompt, s.Context()-s.Length()); err != nil {
		return nil, err
	}
	if s.Length() == 0 {
		return s.Encode(prompt)
	}
	t, err := s.loaded.Tokenizer()
	if err != nil {
		return nil, err
	}
	return t.EncodeAfter(s.Tokens(), prompt, true), nil
}
