package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/smelt-ml/smelt/device"
	"github.com/smelt-ml/smelt/internal/batch"
	"github.com/smelt-ml/smelt/ir/sym"
	"github.com/smelt-ml/smelt/lower/plan"
)

// ErrContext is wrapped where a sequence would outgrow its cache.
var ErrContext = errors.New("the context is full")

// Logits is the name of the result that holds a row of logits for each requested token.
const Logits = "logits"

// Embeddings is the name of the result that holds a row of hidden states for each requested
// token, in plans that embed texts and have no logits.
const Embeddings = "embeddings"

// Next is the name of the result that holds, for each row of logits, the index of the largest,
// or −1 where one is NaN.
const Next = "next"

// ErrNaN is wrapped where logits are NaN: the model or a kernel is broken.
var ErrNaN = errors.New("there are NaNs among the logits")

// Sequence is a sequence of tokens with caches of its own on a device. It is used by one
// goroutine at a time.
//
// A token is in the caches once a step has computed it. [Sequence.Append] adds chosen tokens
// that are not computed yet; the next step computes them before its input, so that any
// continuation starts from the whole sequence.
type Sequence struct {
	r      *Runner
	tokens []int32
	length int        // leading tokens that are in the caches
	states leftStates // of a plan with recurrent states
	cut    int        // number of tokens that the sequence was last cut back to
	blocks []int32    // its blocks: all of the cache
}

// NewSequence starts an empty sequence on a Plan with loaded weights.
func NewSequence(plan *plan.Plan, executable *device.Executable) (*Sequence, error) {
	blocks := batch.Contiguous(plan.Block(), plan.Context)
	r, err := NewRunner(plan, executable, len(blocks), SequenceStates(plan)...)
	if err != nil {
		return nil, err
	}
	return &Sequence{r: r, blocks: blocks}, nil
}

// Close releases the sequence's memory.
func (s *Sequence) Close() error { return s.r.Close() }

// Reset empties the sequence.
func (s *Sequence) Reset() { s.Truncate(0) }

// Truncate drops all but the first n tokens of the sequence. The caches need no clearing: a
// token sees only slots that its own sequence has written.
func (s *Sequence) Truncate(n int) {
	s.tokens = s.tokens[:min(max(n, 0), len(s.tokens))]
	s.length, s.cut = s.from(min(s.length, len(s.tokens))), len(s.tokens)
}

// from returns the number of leading tokens, of the n in the caches, that need no recomputation, and
// drops the recurrent states behind them.
func (s *Sequence) from(n int) int {
	if !s.r.stateful {
		return n
	}
	return s.states.upTo(n)
}

// Append adds tokens that the next step computes before its input.
func (s *Sequence) Append(ids ...int32) { s.tokens = append(s.tokens, ids...) }

// Tokens returns the sequence, valid until the next call and read-only.
func (s *Sequence) Tokens() []int32 { return s.tokens }

// Length returns the number of tokens of the sequence.
func (s *Sequence) Length() int { return len(s.tokens) }

// Context returns the number of tokens that the caches hold. A sequence may exceed it by
// appended tokens.
func (s *Sequence) Context() int { return s.r.plan.Context }

// Vocab returns the width of a row of logits.
func (s *Sequence) Vocab() int { return s.r.vocab }

// Instance returns the loaded program's instance, for its counters and memory.
func (s *Sequence) Instance() *device.Instance { return s.r.run }

// Feed appends tokens and returns the logits after the last, valid until the next call. Without
// tokens it returns the logits after the current sequence. On an error it removes the tokens
// that it appended.
func (s *Sequence) Feed(ctx context.Context, ids []int32) (logits []float32, err error) {
	err = s.feed(ctx, ids, batch.Last, func(int) error {
		logits, err = s.r.Logits()
		return err
	})
	return logits, err
}

// Chooses reports whether the plan chooses tokens on the device, so that Next works.
func (s *Sequence) Chooses() bool { return s.r.next }

// Next appends tokens and returns the most likely token after the last, the first among equals,
// as chosen on the device; the logits are not copied. On an error, or where the logits hold a
// NaN, it removes the tokens that it appended.
func (s *Sequence) Next(ctx context.Context, ids []int32) (next int32, err error) {
	if err := s.r.chooses(); err != nil {
		return 0, err
	}
	err = s.feed(ctx, ids, batch.Last, func(int) error {
		chosen, err := s.r.Chosen()
		if err != nil {
			return err
		}
		if next = chosen[0]; next < 0 {
			return fmt.Errorf("%w after %d tokens", ErrNaN, s.length)
		}
		return nil
	})
	return next, err
}

// Logits returns the logits after the last token of the last step, valid until the next step.
func (s *Sequence) Logits() ([]float32, error) {
	l, err := s.r.Logits()
	if err != nil {
		return nil, err
	}
	return l[len(l)-s.r.vocab:], nil
}

// Score appends tokens and calls row with the logits after each, in order and counted from 0.
// The logits are valid during the call.
func (s *Sequence) Score(ctx context.Context, ids []int32, row func(i int, logits []float32) error) error {
	return s.feed(ctx, ids, batch.All, func(first int) error {
		l, err := s.r.Logits()
		if err != nil {
			return err
		}
		vocab := s.r.vocab
		for i := max(0, -first); i < len(l)/vocab; i++ { // rows before were appended
			if err := row(first+i, l[i*vocab:(i+1)*vocab]); err != nil {
				return err
			}
		}
		return nil
	})
}

// Profiled is a step with the times of its dispatches.
type Profiled struct {
	Phase int       // index in Plan.Phases
	Sizes sym.Sizes // Smax is the length of the sequence after the step
	// Nanoseconds by dispatch of the phase. The dispatches ran one after the other.
	Nanoseconds []int64
}

// Profile appends tokens as Feed does, and times the dispatches of its steps.
func (s *Sequence) Profile(ctx context.Context, ids []int32) ([]Profiled, error) {
	s.r.step.Profile = true
	defer func() { s.r.step.Profile = false }()
	var steps []Profiled
	err := s.feed(ctx, ids, batch.Last, func(int) error {
		p := s.r.profiled()
		p.Sizes[sym.Smax] = int64(s.length)
		steps = append(steps, p)
		return nil
	})
	return steps, err
}

// feed appends tokens and computes, in steps, all that are not in the caches, or the last one
// again where none are missing. rows selects the tokens of a step that get logits, which may be
// fewer than its tokens. use is called after each step with the index in ids of the step's first
// token, which is negative for earlier tokens of the sequence.
func (s *Sequence) feed(ctx context.Context, ids []int32, rows batch.Rows, use func(first int) error) (err error) {
	had, length := len(s.tokens), s.length
	switch {
	case had+len(ids) == 0:
		return errors.New("no tokens to feed")
	case had+len(ids) > s.Context():
		return fmt.Errorf("%w: it holds %d tokens, %d more do not fit into %d", ErrContext, length, had-length+len(ids), s.Context())
	}
	defer func() {
		if err != nil {
			s.tokens, s.length = s.tokens[:had], s.from(min(length, had))
		}
	}()
	s.tokens = append(s.tokens, ids...)
	s.length = s.from(min(length, len(s.tokens)-1))
	for s.length < len(s.tokens) {
		left := s.tokens[s.length:]
		q := batch.Piece{Start: s.length, Blocks: s.blocks, Rows: rows}
		if s.r.stateful && s.cut > s.length { // what follows may be cut back again
			left = left[:min(len(left), s.cut-s.length)]
		}
		n := s.r.piece(q, len(left))
		if n == 0 {
			return fmt.Errorf("the plan of %s has no phase for a step of %d tokens after %d", s.r.plan.Model, len(left), s.length)
		}
		first := s.length - had
		q.Tokens = left[:n]
		if s.r.stateful {
			q.State = s.states.step()
		}
		if err := s.r.Run(ctx, q); err != nil {
			return err
		}
		s.length += n
		if s.r.stateful {
			s.states = append(s.states, leftState{s.length, q.State.Write, n > 1 || s.length == s.cut})
		}
		if err := use(first); err != nil {
			return err
		}
	}
	return nil
}
