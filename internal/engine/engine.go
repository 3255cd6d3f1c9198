package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/smelt-ml/smelt/internal/batch"
	"github.com/smelt-ml/smelt/internal/engine/pages"
	"github.com/smelt-ml/smelt/internal/engine/schedule"
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/lower"
	"github.com/smelt-ml/smelt/metal"
)

// Engine runs many sequences over one cache of blocks: package schedule says which tokens
// of which of them come in a step, package pages where their keys and values lie. One
// goroutine runs the steps, as long as there are requests; these come from any.
type Engine struct {
	runner    *Runner
	pool      *pages.Pool
	scheduler *schedule.Scheduler
	limits    Limits
	vocab     int64 // ids of tokens that can be looked up; 0: any
	stop      context.CancelFunc
	ended     chan struct{} // closed when the goroutine is gone
	wake      chan struct{} // holds a value where there may be news

	mu      sync.Mutex
	closed  bool
	arrived []*request
	given   []*request // up, by their contexts
	stats   Stats

	// Of the goroutine.
	steps    context.Context
	requests map[*schedule.Sequence]*request
	news     []*request
	chosen   []int32
	logits   []float32
}

// Limits bound an engine's steps.
type Limits struct {
	Sequences int // most that run at once
	Tokens    int // most of a step
}

// LimitsOf returns the largest that a Plan has phases for: its steps of several tokens of a
// sequence, where it has any, take what those of one token each do.
func LimitsOf(plan *lower.Plan) Limits {
	var l Limits
	prompts := 0
	for i := range plan.Phases {
		ph := &plan.Phases[i]
		l.Sequences = max(l.Sequences, int(ph.Bounds[ir.B]))
		if ph.Longest.Max > 1 {
			prompts = max(prompts, int(ph.Bounds[ir.T]))
		}
	}
	if prompts == 0 {
		return Limits{l.Sequences, l.Sequences}
	}
	l.Sequences = min(l.Sequences, prompts)
	return Limits{l.Sequences, prompts}
}

// Request is a sequence of tokens that an engine shall continue.
type Request struct {
	Tokens   []int32 // one at least
	Priority int     // higher ones go first
	Salt     string  // blocks are shared with requests of the same salt alone
	// Next returns the token that follows a row of logits, and whether another shall come
	// after it. It is called by the engine's goroutine, which waits for it.
	Next func(Row) (id int32, more bool, err error)
	// Ended is called once, by that goroutine, after the last Next or with what went wrong.
	Ended func(Usage, error)
}

// Usage is what a request took.
type Usage struct {
	Prompt int // tokens
	Cached int // of these, those that others had computed
}

// Row is what a step computed after the last token of a sequence. It is valid during Next.
type Row struct {
	engine *Engine
	index  int
	Length int // tokens of the sequence
}

// Logits returns the row, [Vocab]. They may be changed.
func (r Row) Logits() []float32 {
	v := r.engine.runner.vocab
	return r.engine.logits[r.index*v : (r.index+1)*v]
}

// Chosen returns the most likely token, as the device has chosen it.
func (r Row) Chosen() (int32, error) {
	if err := r.engine.runner.chooses(); err != nil {
		return 0, err
	}
	id := r.engine.chosen[r.index]
	if id < 0 {
		return 0, fmt.Errorf("%w after %d tokens", ErrNaN, r.Length)
	}
	return id, nil
}

// request is a Request under way.
type request struct {
	Request
	ctx      context.Context
	unwatch  func() bool
	sequence *schedule.Sequence
	over     bool // of the goroutine
}

// Stats tell what an engine does and has done.
type Stats struct {
	Waiting, Running int // sequences
	Blocks, Free     int // of the cache; what is free may still be known
	schedule.Counts
	Pages pages.Counts
}

// New starts an engine with a cache of so many blocks.
func New(plan *lower.Plan, executable *metal.Executable, limits Limits, blocks int) (*Engine, error) {
	most := LimitsOf(plan)
	switch {
	case limits.Sequences < 1 || limits.Sequences > most.Sequences:
		return nil, fmt.Errorf("%d sequences at once: the plan of %s has steps of 1 to %d", limits.Sequences, plan.Model, most.Sequences)
	case limits.Tokens < limits.Sequences || limits.Tokens > most.Tokens:
		return nil, fmt.Errorf("steps of %d tokens for %d sequences: want %d to %d", limits.Tokens, limits.Sequences, limits.Sequences, most.Tokens)
	case blocks < 1:
		return nil, fmt.Errorf("a cache of %d blocks", blocks)
	}
	r, err := NewRunner(plan, executable, blocks)
	if err != nil {
		return nil, err
	}
	pool := pages.NewPool(blocks, r.block)
	e := &Engine{
		runner: r, pool: pool, limits: limits, vocab: plan.Vocab,
		ended: make(chan struct{}), wake: make(chan struct{}, 1), requests: make(map[*schedule.Sequence]*request),
		scheduler: schedule.New(pool, schedule.Options{
			Sequences: limits.Sequences, Tokens: limits.Tokens, Piece: longest(plan), Context: plan.Context,
		}),
	}
	e.steps, e.stop = context.WithCancel(context.Background())
	e.note()
	go e.loop()
	return e, nil
}

// longest returns how many tokens of a sequence a step takes.
func longest(plan *lower.Plan) int {
	most := int64(1)
	for i := range plan.Phases {
		most = max(most, plan.Phases[i].Longest.Max)
	}
	return int(most)
}

// Context returns how many tokens of a sequence fit into the cache at most. The last that is
// generated need not.
func (e *Engine) Context() int { return e.scheduler.Context() }

// Vocab returns the width of a row of logits.
func (e *Engine) Vocab() int { return e.runner.vocab }

// Chooses reports whether the plan chooses tokens itself, so that Row.Chosen works.
func (e *Engine) Chooses() bool { return e.runner.next }

// Limits returns what the engine was made with.
func (e *Engine) Limits() Limits { return e.limits }

// Instance returns what runs on the device, for its counters and memory.
func (e *Engine) Instance() *metal.Instance { return e.runner.run }

// Stats returns what the engine does as of its last step; requests that came since wait.
func (e *Engine) Stats() Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.stats
	s.Waiting += len(e.arrived)
	return s
}

// Submit hands a request over, whose tokens the engine keeps. It returns before anything of
// it is computed; when ctx ends, so does the request, with its error.
func (e *Engine) Submit(ctx context.Context, r Request) error {
	if len(r.Tokens) == 0 {
		return errors.New("no tokens to continue")
	}
	if n := len(r.Tokens); n > e.Context() {
		return fmt.Errorf("%w: the prompt has %d tokens, and there is room for %d", ErrContext, n, e.Context())
	}
	for i, id := range r.Tokens {
		if id < 0 || e.vocab > 0 && int64(id) >= e.vocab {
			return fmt.Errorf("token %d has the id %d, of a vocabulary of %d", i, id, e.vocab)
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	q := &request{Request: r, ctx: ctx}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return fmt.Errorf("the engine is %w", metal.ErrClosed)
	}
	q.unwatch = context.AfterFunc(ctx, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if !e.closed {
			e.given = append(e.given, q)
			e.rouse()
		}
	})
	e.arrived = append(e.arrived, q)
	e.rouse()
	return nil
}

// rouse tells the goroutine that there is news.
func (e *Engine) rouse() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// Close ends all requests, the step under way included, and releases the memory. Further
// calls do nothing.
func (e *Engine) Close() error {
	e.mu.Lock()
	e.closed = true
	e.rouse()
	e.mu.Unlock()
	e.stop()
	<-e.ended
	return e.runner.Close()
}

func (e *Engine) loop() {
	defer close(e.ended)
	for e.receive() {
		e.step()
		e.note()
	}
}

// note lets others see what the engine does.
func (e *Engine) note() {
	s := Stats{
		Waiting: e.scheduler.Waiting(), Running: e.scheduler.Running(), Blocks: e.pool.Blocks(), Free: e.pool.Free(),
		Counts: e.scheduler.Counts(), Pages: e.pool.Counts(),
	}
	e.mu.Lock()
	e.stats = s
	e.mu.Unlock()
}

// receive takes what has come since the last step, and waits where there is nothing to do.
// It returns false when the engine is closed.
func (e *Engine) receive() bool {
	for {
		e.mu.Lock()
		e.news, e.arrived = e.arrived, e.news[:0]
		given, closed := e.given, e.closed
		e.given = nil
		e.mu.Unlock()
		for i, q := range e.news {
			e.begin(q)
			e.news[i] = nil
		}
		for _, q := range given {
			if !q.over {
				e.end(q, q.ctx.Err())
			}
		}
		if closed {
			for _, q := range e.requests {
				e.end(q, fmt.Errorf("the engine is %w", metal.ErrClosed))
			}
			e.note()
			return false
		}
		if len(e.requests) > 0 {
			return true
		}
		e.note()
		<-e.wake
	}
}

func (e *Engine) begin(q *request) {
	var err error
	if q.sequence, err = e.scheduler.Add(q.Tokens, q.Priority, q.Salt); err != nil { // Submit has looked
		panic(err)
	}
	e.requests[q.sequence] = q
}

func (e *Engine) end(q *request, err error) {
	q.over = true
	q.unwatch()
	e.scheduler.Remove(q.sequence)
	delete(e.requests, q.sequence)
	q.Ended(Usage{Prompt: q.sequence.Prompt(), Cached: q.sequence.Cached()}, err)
}

// step runs one, and hands out its rows. What fails ends the requests that are in it.
func (e *Engine) step() {
	pieces := e.scheduler.Step()
	if len(pieces) == 0 {
		panic("engine: there are requests, and nothing to do")
	}
	err := e.run(pieces)
	switch {
	case e.steps.Err() != nil: // closed
	case err != nil:
		for _, q := range e.scheduler.Sequences() {
			e.end(e.requests[q], err)
		}
	default:
		e.scheduler.Done()
		row := 0
		for i, q := range e.scheduler.Sequences() {
			if pieces[i].Rows == batch.Last {
				e.next(e.requests[q], row)
				row++
			}
		}
	}
}

func (e *Engine) run(pieces []batch.Piece) (err error) {
	for _, c := range e.pool.Copies() {
		if err == nil {
			err = e.runner.run.CopyBlock(int(c.From), int(c.To))
		}
	}
	e.pool.Copied()
	if err == nil {
		err = e.runner.Run(e.steps, pieces...)
	}
	if err != nil || !slices.ContainsFunc(pieces, func(p batch.Piece) bool { return p.Rows == batch.Last }) {
		return err
	}
	if e.runner.next {
		if e.chosen, err = e.runner.Chosen(); err != nil {
			return err
		}
	}
	e.logits, err = e.runner.Logits()
	return err
}

// next lets a request choose what follows its last token.
func (e *Engine) next(q *request, row int) {
	id, more, err := q.Next(Row{e, row, len(q.sequence.Tokens())})
	if err == nil && more && e.vocab > 0 && (id < 0 || int64(id) >= e.vocab) {
		err = fmt.Errorf("after %d tokens: %d was chosen of %d tokens", len(q.sequence.Tokens()), id, e.vocab)
	}
	switch {
	case err != nil || !more:
		e.end(q, err)
	case !e.scheduler.Append(q.sequence, id):
		e.end(q, fmt.Errorf("%w: %d tokens are in it", ErrContext, e.Context()))
	}
}
