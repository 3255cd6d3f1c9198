package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/lower"
	"github.com/smelt-ml/smelt/metal"
)

// ErrContext is wrapped where a sequence would outgrow its cache.
var ErrContext = errors.New("the context is full")

// Logits is the name of the result that holds a row of logits for each token
// asked for.
const Logits = "logits"

// Next is the name of the result that holds, for each row of logits, the index of
// the largest, or −1 where one is NaN.
const Next = "next"

// ErrNaN is wrapped where logits are not numbers: the model or a kernel is broken.
var ErrNaN = errors.New("there are NaNs among the logits")

// contextStep is what the bound on the context is rounded up to, so that sizes
// that depend on it change rarely.
const contextStep = 64

// Session is one sequence of tokens on a device, whose keys and values live in its
// caches. It is used by one goroutine at a time.
//
// A token is in the caches once a step has computed it. What is chosen after the last
// step belongs to the sequence, by [Session.Append], and to no step yet: the next one
// computes it before what it is fed. So whoever goes on later, with a text or without,
// goes on from the whole sequence.
type Session struct {
	plan   *lower.Plan
	run    *metal.Session
	tokens []int32
	length int  // tokens in the caches, the first ones
	block  int  // slots of a cache block
	vocab  int  // width of a row of logits
	next   bool // the plan returns Next

	step  metal.Step
	table []int32 // block b of the sequence is block b of the cache
	rows  []int32
}

// NewSession starts an empty sequence on a loaded program.
func NewSession(plan *lower.Plan, program *metal.Program) (*Session, error) {
	s := &Session{plan: plan, block: plan.Context}
	for _, c := range plan.Caches {
		if c.Block > 0 {
			s.block = c.Block
		}
	}
	blocks := (plan.Context + s.block - 1) / s.block
	for b := range blocks {
		s.table = append(s.table, int32(b))
	}
	one := lower.Sizes{ir.T: 1, ir.B: 1, ir.R: 1, ir.NB: 1, ir.Smax: 1}
	for i := range plan.Buffers {
		b := &plan.Buffers[i]
		switch {
		case b.Kind == lower.Output && b.Name == Logits:
			s.vocab = int(b.Bytes.Eval(&one) / b.DType.Bytes(1))
		case b.Kind == lower.Output && b.Name == Next:
			s.next = true
		}
	}
	if s.vocab == 0 {
		return nil, fmt.Errorf("the model %s returns no %q", plan.Model, Logits)
	}
	var err error
	if s.run, err = program.NewSession(blocks); err != nil {
		return nil, err
	}
	s.step.Inputs = make(map[string][]int32)
	return s, nil
}

// Close releases the session's memory.
func (s *Session) Close() error { return s.run.Close() }

// Reset forgets the sequence.
func (s *Session) Reset() { s.Truncate(0) }

// Truncate forgets all but the first n tokens of the sequence. The caches need no
// clearing: a token only sees slots that its own sequence has written.
func (s *Session) Truncate(n int) {
	s.tokens = s.tokens[:min(max(n, 0), len(s.tokens))]
	s.length = min(s.length, len(s.tokens))
}

// Append adds tokens to the sequence that the next step computes, before those that it
// is fed.
func (s *Session) Append(ids ...int32) { s.tokens = append(s.tokens, ids...) }

// Tokens returns the sequence. It is valid until the next call and not to be written.
func (s *Session) Tokens() []int32 { return s.tokens }

// Length returns how many tokens the sequence has.
func (s *Session) Length() int { return len(s.tokens) }

// Context returns how many tokens the caches hold. A sequence may be longer by what
// was appended.
func (s *Session) Context() int { return s.plan.Context }

// Vocab returns the width of a row of logits.
func (s *Session) Vocab() int { return s.vocab }

// Device returns the session on the device, for its counters and memory.
func (s *Session) Device() *metal.Session { return s.run }

// Feed appends tokens and returns the logits after the last, valid until the next
// call. Without tokens it returns those after the sequence as it stands. If it fails
// midway, what it added is taken back.
func (s *Session) Feed(ctx context.Context, ids []int32) (logits []float32, err error) {
	err = s.feed(ctx, ids, s.lastRow, func(int) error {
		logits, err = s.logits()
		return err
	})
	return logits, err
}

// Chooses reports whether the plan chooses tokens itself, so that Next works.
func (s *Session) Chooses() bool { return s.next }

// Next appends tokens and returns the most likely one after the last, as the device
// has chosen it: the first of equals. The logits stay where they are. If it fails
// midway, or the logits hold a NaN, what it added is taken back.
func (s *Session) Next(ctx context.Context, ids []int32) (next int32, err error) {
	if !s.next {
		return 0, fmt.Errorf("the plan of %s returns no %q: choose among the logits", s.plan.Model, Next)
	}
	err = s.feed(ctx, ids, s.lastRow, func(int) error {
		chosen, err := s.run.OutputInts(Next)
		if err != nil {
			return err
		}
		if next = chosen[len(s.rows)-1]; next < 0 {
			return fmt.Errorf("%w after %d tokens", ErrNaN, s.length)
		}
		return nil
	})
	return next, err
}

// lastRow asks for logits after the last of n tokens.
func (s *Session) lastRow(n int) []int32 { return append(s.rows[:0], int32(n-1)) }

// Logits returns those that the last step computed after its last token, valid until the
// next.
func (s *Session) Logits() ([]float32, error) {
	l, err := s.logits()
	if err != nil {
		return nil, err
	}
	return l[len(l)-s.vocab:], nil
}

// logits returns those of the last step, a row for each token that they were asked of.
func (s *Session) logits() ([]float32, error) {
	l, err := s.run.Output(Logits)
	if err != nil {
		return nil, err
	}
	return l[:len(s.rows)*s.vocab], nil
}

// Score appends tokens and hands the logits after each to row, in order and counted
// from 0; they are valid during the call.
func (s *Session) Score(ctx context.Context, ids []int32, row func(i int, logits []float32) error) error {
	return s.feed(ctx, ids, func(n int) []int32 {
		rows := s.rows[:0]
		for i := range n {
			rows = append(rows, int32(i))
		}
		return rows
	}, func(first int) error {
		l, err := s.logits()
		if err != nil {
			return err
		}
		for i := max(0, -first); i < len(l)/s.vocab; i++ { // rows before were appended
			if err := row(first+i, l[i*s.vocab:(i+1)*s.vocab]); err != nil {
				return err
			}
		}
		return nil
	})
}

// Profiled is a step whose dispatches were timed.
type Profiled struct {
	Phase int         // index in Plan.Phases
	Sizes lower.Sizes // Smax is the length of the sequence after the step
	// Nanoseconds by dispatch of the phase. The dispatches ran one after the other.
	Nanoseconds []int64
}

// Profile appends tokens as Feed does, and times the dispatches of the steps that
// this takes.
func (s *Session) Profile(ctx context.Context, ids []int32) ([]Profiled, error) {
	s.step.Profile = true
	defer func() { s.step.Profile = false }()
	var steps []Profiled
	err := s.feed(ctx, ids, s.lastRow, func(int) error {
		p := Profiled{s.step.Phase, s.step.Sizes, s.run.Counters().Nanoseconds}
		p.Sizes[ir.Smax] = int64(s.length)
		steps = append(steps, p)
		return nil
	})
	return steps, err
}

// feed appends tokens and computes, in steps, all that are not in the caches yet: the
// last one again where none are missing. rows says which of a step's n tokens get
// logits; use is called after each step with the place of its first token in ids, which
// is negative for those that the sequence had before.
func (s *Session) feed(ctx context.Context, ids []int32, rows func(n int) []int32, use func(first int) error) (err error) {
	had, length := len(s.tokens), s.length
	switch {
	case had+len(ids) == 0:
		return errors.New("no tokens to feed")
	case had+len(ids) > s.plan.Context:
		return fmt.Errorf("%w: %d tokens are in it, %d more do not fit into %d", ErrContext, length, had-length+len(ids), s.plan.Context)
	}
	defer func() {
		if err != nil {
			s.tokens, s.length = s.tokens[:had], length
		}
	}()
	s.tokens = append(s.tokens, ids...)
	s.length = min(length, len(s.tokens)-1)
	for s.length < len(s.tokens) {
		phase, n, smax, err := s.phase(len(s.tokens) - s.length)
		if err != nil {
			return err
		}
		first := s.length - had
		s.prepare(phase, s.tokens[s.length:s.length+n], smax)
		s.rows = rows(n)
		s.step.Inputs[ir.LogitRows] = s.rows
		s.step.Sizes[ir.R] = int64(len(s.rows))
		if err := s.run.Run(ctx, &s.step); err != nil {
			return err
		}
		s.length += n
		if err := use(first); err != nil {
			return err
		}
	}
	return nil
}

// phase chooses the phase that takes most of the next tokens, how many, and the
// bound on the context that the step works with.
func (s *Session) phase(left int) (phase, n int, smax int64, err error) {
	phase = -1
	for i := range s.plan.Phases {
		p := &s.plan.Phases[i]
		take := int(min(int64(left), p.MaxT))
		bound := int64(min(s.plan.Context, (s.length+take+contextStep-1)/contextStep*contextStep))
		if p.Takes(int64(take), bound) && take > n {
			phase, n, smax = i, take, bound
		}
	}
	if phase < 0 {
		return 0, 0, 0, fmt.Errorf("the plan of %s has no phase for a step of %d tokens after %d", s.plan.Model, left, s.length)
	}
	return phase, n, smax, nil
}

// prepare fills in the inputs of a step that appends these tokens.
func (s *Session) prepare(phase int, ids []int32, smax int64) {
	n, total := len(ids), s.length+len(ids)
	positions := s.step.Inputs[ir.Positions][:0]
	for i := range n {
		positions = append(positions, int32(s.length+i))
	}
	in := s.step.Inputs
	in[ir.Tokens] = ids
	in[ir.Positions] = positions
	in[ir.Slots] = positions // one sequence whose blocks lie in order
	in[ir.CuSeqlens] = append(in[ir.CuSeqlens][:0], 0, int32(n))
	in[ir.ContextLens] = append(in[ir.ContextLens][:0], int32(total))
	in[ir.BlockTable] = s.table
	s.step.Phase = phase
	s.step.Sizes = lower.Sizes{ir.T: int64(n), ir.B: 1, ir.NB: int64(len(s.table)), ir.Smax: smax}
}
