package smelt

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/smelt-ml/smelt/device"
	"github.com/smelt-ml/smelt/internal/engine"
)

// ErrNoTokens is wrapped where a prompt is empty and the model has no token to start with.
var ErrNoTokens = errors.New("the prompt has no tokens")

// ErrContext is wrapped where a sequence would outgrow its cache.
var ErrContext = engine.ErrContext

// ErrNaN is wrapped where logits are not numbers, which nothing can be chosen from: a
// weight or a kernel is broken; smelt verify --bisect says where they come from.
var ErrNaN = engine.ErrNaN

// Session is one sequence of tokens on a device, with a cache of its own. It is used by
// one goroutine at a time; other sessions of the same [Loaded] may be used meanwhile.
type Session struct {
	loaded   *Loaded
	sequence *engine.Sequence
}

// Loaded returns the program that the session runs.
func (s *Session) Loaded() *Loaded { return s.loaded }

// OnDevice returns the session as the device has it, with its counters.
func (s *Session) OnDevice() *device.Instance { return s.sequence.Instance() }

// Close releases the session's memory. Further calls do nothing.
func (s *Session) Close() error { return s.sequence.Close() }

// Tokens returns the sequence, generated tokens included. It is valid until the next
// call and not to be written.
func (s *Session) Tokens() []int32 { return s.sequence.Tokens() }

// Length returns how many tokens the sequence has.
func (s *Session) Length() int { return s.sequence.Length() }

// Context returns how many tokens the cache holds.
func (s *Session) Context() int { return s.sequence.Context() }

// Vocab returns the width of a row of logits.
func (s *Session) Vocab() int { return s.sequence.Vocab() }

// Truncate forgets all but the first n tokens of the sequence.
func (s *Session) Truncate(n int) { s.sequence.Truncate(n) }

// Reset forgets the sequence.
func (s *Session) Reset() { s.sequence.Reset() }

// FillRandom makes the sequence n tokens long, with random contents of its cache in the
// place of tokens: quick, and as good as tokens where only the time of what follows
// matters.
func (s *Session) FillRandom(n int, rng *rand.Rand) error { return s.sequence.FillRandom(n, rng) }

// Feed appends tokens and returns the logits after the last, [Vocab], valid until the
// next call. Without tokens it returns those after the sequence as it stands. If it
// fails midway, what it added is taken back.
func (s *Session) Feed(ctx context.Context, ids []int32) ([]float32, error) {
	return s.sequence.Feed(ctx, ids)
}

// Next appends tokens and returns the most likely one after the last, the first of
// equals. It is not part of the sequence yet.
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

// Chooses reports whether the device itself finds the most likely token, so that Next
// need not look at the logits.
func (s *Session) Chooses() bool { return s.sequence.Chooses() }

// Score appends tokens and hands the logits after each to row, in order and counted
// from 0; they are valid during the call.
func (s *Session) Score(ctx context.Context, ids []int32, row func(i int, logits []float32) error) error {
	return s.sequence.Score(ctx, ids, row)
}

// Greedy returns the token of the largest logit, the first of equals.
func Greedy(logits []float32) (int32, error) { return engine.Greedy(logits) }

// Encode is [Loaded.Encode].
func (s *Session) Encode(prompt string) ([]int32, error) { return s.loaded.Encode(prompt) }

// Encode turns a prompt into tokens: special tokens are recognised, and the start
// token comes first where the model has one.
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

// encodeAfter encodes what goes on after the sequence.
func (s *Session) encodeAfter(prompt string) ([]int32, error) {
	if s.Length() == 0 {
		return s.Encode(prompt)
	}
	t, err := s.loaded.Tokenizer()
	if err != nil {
		return nil, err
	}
	return t.EncodeAfter(s.Tokens(), prompt, true), nil
}
