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

// Logits is the name of the result that holds a row of logits for each token
// asked for.
const Logits = "logits"

// Embeddings is the name of the result that holds a row of hidden states for each token
// asked for, in plans that embed texts and make none.
const Embeddings = "embeddings"

// Next is the name of the result that holds, for each row of logits, the index of
// the largest, or −1 where one is NaN.
const Next = "next"

// ErrNaN is wrapped where logits are not numbers: the model or a kernel is broken.
var ErrNaN = errors.New("there are NaNs among the logits")

// Sequence is tokens on a device that follow each other, whose keys and values live in its
// caches. It is used by one goroutine at a time.
//
// A token is in the caches once a step has computed it. What is chosen after the last
// step belongs to the sequence, by [Sequence.Append], and to no step yet: the next one
// computes it before what it is fed. So whoever goes on later, with a text or without,
// goes on from the whole sequence.
type Sequence struct {
	r       *Runner
	tokens  []int32
	length  int     // tokens in the caches, the first ones
	reached int     // tokens that the last block's recurrent states are after
	blocks  []int32 // its blocks: those of the whole cache
}

// NewSequence starts an empty sequence on a Plan with its weights.
func NewSequence(plan *plan.Plan, executable *device.Executable) (*Sequence, error) {
	blocks := batch.Contiguous(plan.Block(), plan.Context)
	r, err := NewRunner(plan, executable, len(blocks))
	if err != nil {
		return nil, err
	}
	return &Sequence{r: r, blocks: blocks}, nil
}

// Close releases the sequence's memory.
func (s *Sequence) Close() error { return s.r.Close() }

// Reset forgets the sequence.
func (s *Sequence) Reset() { s.Truncate(0) }

// Truncate forgets all but the first n tokens of the sequence. The caches need no
// clearing: a token only sees slots that its own sequence has written.
func (s *Sequence) Truncate(n int) {
	s.tokens = s.tokens[:min(max(n, 0), len(s.tokens))]
	s.length = s.from(min(s.length, len(s.tokens)))
}

// from returns how many of the first n tokens, which are in the caches, need not be computed
// again. Recurrent states go on only from where they are, or from the end of a block: those of
// a token in between are gone.
func (s *Sequence) from(n int) int {
	if !s.r.stateful || n == s.reached {
		return n
	}
	return n / s.r.block * s.r.block
}

// Append adds tokens to the sequence that the next step computes, before those that it
// is fed.
func (s *Sequence) Append(ids ...int32) { s.tokens = append(s.tokens, ids...) }

// Tokens returns the sequence. It is valid until the next call and not to be written.
func (s *Sequence) Tokens() []int32 { return s.tokens }

// Length returns how many tokens the sequence has.
func (s *Sequence) Length() int { return len(s.tokens) }

// Context returns how many tokens the caches hold. A sequence may be longer by what
// was appended.
func (s *Sequence) Context() int { return s.r.plan.Context }

// Vocab returns the width of a row of logits.
func (s *Sequence) Vocab() int { return s.r.vocab }

// Instance returns what runs on the device, for its counters and memory.
func (s *Sequence) Instance() *device.Instance { return s.r.run }

// Feed appends tokens and returns the logits after the last, valid until the next
// call. Without tokens it returns those after the sequence as it stands. If it fails
// midway, what it added is taken back.
func (s *Sequence) Feed(ctx context.Context, ids []int32) (logits []float32, err error) {
	err = s.feed(ctx, ids, batch.Last, func(int) error {
		logits, err = s.r.Logits()
		return err
	})
	return logits, err
}

// Chooses reports whether the plan chooses tokens itself, so that Next works.
func (s *Sequence) Chooses() bool { return s.r.next }

// Next appends tokens and returns the most likely one after the last, as the device
// has chosen it: the first of equals. The logits stay where they are. If it fails
// midway, or the logits hold a NaN, what it added is taken back.
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

// Logits returns those that the last step computed after its last token, valid until the
// next.
func (s *Sequence) Logits() ([]float32, error) {
	l, err := s.r.Logits()
	if err != nil {
		return nil, err
	}
	return l[len(l)-s.r.vocab:], nil
}

// Score appends tokens and hands the logits after each to row, in order and counted
// from 0; they are valid during the call.
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

// Profiled is a step whose dispatches were timed.
type Profiled struct {
	Phase int       // index in Plan.Phases
	Sizes sym.Sizes // Smax is the length of the sequence after the step
	// Nanoseconds by dispatch of the phase. The dispatches ran one after the other.
	Nanoseconds []int64
}

// Profile appends tokens as Feed does, and times the dispatches of the steps that
// this takes.
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

// feed appends tokens and computes, in steps, all that are not in the caches yet: the
// last one again where none are missing. rows says which of a step's tokens get logits,
// of which a step may have fewer than tokens; use is called after each step with the
// place of its first token in ids, which is negative for those that the sequence had
// before.
func (s *Sequence) feed(ctx context.Context, ids []int32, rows batch.Rows, use func(first int) error) (err error) {
	had, length := len(s.tokens), s.length
	switch {
	case had+len(ids) == 0:
		return errors.New("no tokens to feed")
	case had+len(ids) > s.Context():
		return fmt.Errorf("%w: %d tokens are in it, %d more do not fit into %d", ErrContext, length, had-length+len(ids), s.Context())
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
		n := s.r.piece(q, len(left))
		if n == 0 {
			return fmt.Errorf("the plan of %s has no phase for a step of %d tokens after %d", s.r.plan.Model, len(left), s.length)
		}
		first := s.length - had
		q.Tokens = left[:n]
		s.reached = -1 // where the step fails midway, the states of its first block are gone
		if err := s.r.Run(ctx, q); err != nil {
			return err
		}
		s.length += n
		s.reached = s.length
		if err := use(first); err != nil {
			return err
		}
	}
	return nil
}
