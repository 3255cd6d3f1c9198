package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/smelt-ml/smelt/device"
	"github.com/smelt-ml/smelt/internal/batch"
	"github.com/smelt-ml/smelt/internal/engine/pages"
	"github.com/smelt-ml/smelt/internal/engine/schedule"
	"github.com/smelt-ml/smelt/ir/sym"
	"github.com/smelt-ml/smelt/lower/plan"
)

// Engine runs many sequences over one cache of blocks: package schedule chooses the tokens of
// each step, package pages assigns cache blocks.
//
// One goroutine runs the steps while there are requests, which any goroutine may submit. While
// the device computes a step, another goroutine chooses and packs the next, with a placeholder
// for each token that the running step will give. After a step, requests choose from its rows
// (see [Chooser]), the chosen tokens replace the placeholders, and the next step runs. The next
// step is chosen anew only if a request has begun, ended or not chosen yet, and before and after
// a step that verifies guesses.
type Engine struct {
	runner    *Runner
	pool      *pages.Pool
	scheduler *schedule.Scheduler
	guesser   *guesser // nil: tokens are not guessed
	limits    Limits
	vocab     int64         // ids that the embedding has; 0: any
	ended     chan struct{} // closed when the step goroutine has returned
	wake      chan struct{} // holds a value where something may have changed

	mu        sync.Mutex
	closed    bool
	arrived   []*request
	cancelled []*request // whose context was cancelled
	decided   []*request // whose own goroutine has chosen
	stats     Stats

	observe func(Ran) // may be nil

	// Owned by the goroutine that runs steps; while a step runs, the fields from requests on are
	// owned by the planning goroutine.
	rows      []*request // with rows of logits in the step that runs or has run
	awaited   int        // requests that the next step waits for
	chosen    []int32
	logits    []float32
	patience  *time.Timer
	requests  map[*schedule.Sequence]*request
	undecided int           // requests that choose in goroutines of their own now
	news      []*request    // buffer of arrived
	choices   []*request    // buffer of decided
	pieces    []batch.Piece // of the next step, of packed[next]
	packed    [2]batch.Step
	next      int
	stale     bool // whether the next step must be chosen anew

	helpers  sync.WaitGroup // goroutines that run until Close
	plan     chan struct{}
	planned  chan struct{}
	choosers int // number of choosing goroutines beside the one that runs steps
	choose   chan struct{}
	choosing sync.WaitGroup
	row      atomic.Int32
}

// Limits bound the steps of an engine.
type Limits struct {
	Sequences int // maximum number of running sequences
	Tokens    int // maximum number of tokens of a step
}

// LimitsOf returns the largest limits for which a Plan has phases. Phases for several tokens per
// sequence, where the Plan has any, bound those for one token each.
func LimitsOf(plan *plan.Plan) Limits {
	var l Limits
	prompts := 0
	for i := range plan.Phases {
		ph := &plan.Phases[i]
		l.Sequences = max(l.Sequences, int(ph.Bounds[sym.B]))
		if ph.Longest.Max > 1 {
			prompts = max(prompts, int(ph.Bounds[sym.T]))
		}
	}
	if prompts == 0 {
		return Limits{l.Sequences, l.Sequences}
	}
	l.Sequences = min(l.Sequences, prompts)
	return Limits{l.Sequences, prompts}
}

// Request is a sequence of tokens for an engine to continue.
type Request struct {
	Tokens     []int32 // at least one
	Priority   int     // higher ones are scheduled first
	Salt       string  // requests share cache blocks only within a salt
	Chooser    Chooser
	Sampling   Sampling   // distribution from which Next samples and a draft model draws its proposals; zero: greedy drafts
	Constraint Constraint // restricts the text, for a Sampled Next; nil: none
	// Next returns the token that follows a row of logits, and whether another token is wanted.
	// It is called by one goroutine at a time, concurrently with the Next of other requests.
	Next func(Row) (id int32, more bool, err error)
	// Ended is called once, after the last Next or with the error that ended the request.
	Ended func(Usage, error)
}

// Chooser states what a request's Next reads and how long it takes, which decides the goroutine
// that calls it.
type Chooser uint8

const (
	// Chosen reads [Row.Chosen] only and takes no time.
	Chosen Chooser = iota
	// Sampled reads the whole row. The rows of a step are spread over the processors, and the
	// next step waits for them, except for those whose [Constraint] is not ready: these get
	// copies, and their sequences join the first step after they have chosen.
	Sampled
	// Outside runs the caller's code, which may take any time, in a goroutine of its own with a
	// copy of the row. The next step waits for a quarter of the last step's time, or for
	// [leastPatience]; then it runs without the sequence, which joins the first step after it
	// has chosen.
	Outside
)

// leastPatience is the minimum wait of a step for requests that choose outside: many times the
// time to wake a goroutine on a busy machine.
const leastPatience = 500 * time.Microsecond

// Usage counts the tokens of a request.
type Usage struct {
	Prompt   int // tokens
	Cached   int // of Prompt, found in the cache
	Drafted  int // tokens that were guessed and verified
	Accepted int // of Drafted, the right ones
}

// Row is the output of a step after the last token of a sequence. It is valid during Next.
type Row struct {
	runner *Runner
	logits []float32
	chosen int32
	Length int // of the sequence, in tokens
	// Proposal is the next token that a draft model has drawn, which Next accepts or rejects by
	// [Sampler.Verify]; nil if there is none.
	Proposal *Proposal
}

// Logits returns the row, [Vocab]. A request that chooses outside may change it.
func (r *Row) Logits() []float32 { return r.logits }

// Chosen returns the most likely token, chosen by the device.
func (r *Row) Chosen() (int32, error) {
	if err := r.runner.chooses(); err != nil {
		return 0, err
	}
	if r.chosen < 0 {
		return 0, fmt.Errorf("%w after %d tokens", ErrNaN, r.Length)
	}
	return r.chosen, nil
}

// Picked returns Chosen, or -1 where the plan does not choose.
func (r *Row) Picked() (int32, error) {
	if !r.runner.next {
		return -1, nil
	}
	return r.Chosen()
}

// request is a submitted Request and its state.
type request struct {
	Request
	ctx      context.Context
	unwatch  func() bool // stops watching ctx
	sequence *schedule.Sequence
	guessed  guessed
	over     bool  // the request has ended; set by the step goroutine
	err      error // for Ended

	// The request's rows of the last step.
	first  int       // index of the first one in the step
	rows   []float32 // logits from that row on
	picked []int32   // the device's choices from that row on; nil: the plan does not choose
	right  int       // right guesses among the choices so far

	// Argument and results of the last call of Next.
	row     Row
	id      int32
	more    bool
	nextErr error
	forced  []int32 // tokens that the constraint forces after id

	// For a request that chooses outside, or whose constraint was not ready.
	turn      chan struct{} // of a request that chooses outside: holds a value while there is a row; closed at the end
	copied    []float32     // the row
	undecided bool          // the request chooses in a goroutine of its own now
	awaited   bool          // the next step waits for the choice
}

// Stats describe an engine's state and totals.
type Stats struct {
	Waiting, Running int           // sequences
	Blocks, Free     int           // of the cache; free blocks may still be known
	Windows          []pages.Group // of layers with a window whose blocks are others, those that sequences hold
	schedule.Counts
	Pages pages.Counts
}

// Ran describes a step that has run.
type Ran struct {
	Took                    time.Duration // time on the device
	Guessing                time.Duration // time before it of the draft model's steps and of lookups
	Sequences, Tokens, Rows int
	Drafted                 int   // guessed tokens
	Stats                   Stats // after the step
}

// WatchCache sets a watcher that is called when blocks become known or are forgotten, by the
// goroutines that choose steps, one at a time. It must be called before the first request.
func (e *Engine) WatchCache(w pages.Watcher) { e.pool.Watch(w) }

// Observe sets a function that is called after every step by the goroutine that runs steps. It
// must be called before the first Submit.
func (e *Engine) Observe(step func(Ran)) { e.observe = step }

// New starts an engine with a cache of the given number of blocks.
func New(plan *plan.Plan, executable *device.Executable, limits Limits, blocks int, guessing Guessing) (*Engine, error) {
	most, guesses := LimitsOf(plan), GuessesOf(plan, limits.Sequences)
	switch {
	case limits.Sequences < 1 || limits.Sequences > most.Sequences:
		return nil, fmt.Errorf("%d sequences at once: the plan of %s has steps of 1 to %d", limits.Sequences, plan.Model, most.Sequences)
	case limits.Tokens < limits.Sequences || limits.Tokens > most.Tokens:
		return nil, fmt.Errorf("steps of %d tokens for %d sequences: want %d to %d", limits.Tokens, limits.Sequences, limits.Sequences, most.Tokens)
	case blocks < 1:
		return nil, fmt.Errorf("a cache of %d blocks", blocks)
	case guessing.Rows < 0 || guessing.Rows > guesses:
		return nil, fmt.Errorf("%d guesses beside %d sequences: the plan of %s has rows of logits for 0 to %d", guessing.Rows, limits.Sequences, plan.Model, guesses)
	case guessing.Draft != nil && guessing.Draft.Limits.Sequences < limits.Sequences:
		return nil, fmt.Errorf("%d sequences at once: the draft's plan of %s has steps of %d", limits.Sequences, guessing.Draft.Plan.Model, guessing.Draft.Limits.Sequences)
	}
	windows := WindowBlocks(plan, limits, blocks)
	r, err := NewRunner(plan, executable, blocks, windows...)
	if err != nil {
		return nil, err
	}
	pool := r.newPool(blocks, windows...)
	e := &Engine{
		runner: r, pool: pool, limits: limits, vocab: plan.Vocab,
		ended: make(chan struct{}), wake: make(chan struct{}, 1), requests: make(map[*schedule.Sequence]*request),
		plan: make(chan struct{}), planned: make(chan struct{}), choose: make(chan struct{}),
		choosers: min(runtime.GOMAXPROCS(0), limits.Sequences) - 1, patience: time.NewTimer(time.Hour),
		scheduler: schedule.New(pool, schedule.Options{
			Sequences: limits.Sequences, Tokens: limits.Tokens, Piece: longest(plan), Context: plan.Context, Drafts: guessing.Rows,
		}),
	}
	if e.guesser, err = newGuesser(r, limits, guessing, e.Context()); err == nil {
		err = e.guesser.measure(context.Background(), r, guessing.Rows)
	}
	if err != nil {
		return nil, errors.Join(err, e.guesser.close(), r.Close())
	}
	e.note()
	e.helpers.Go(func() {
		for range e.plan {
			e.receive()
			e.prepare()
			e.planned <- struct{}{}
		}
	})
	for range e.choosers {
		e.helpers.Go(func() {
			for range e.choose {
				e.chooseRows()
				e.choosing.Done()
			}
		})
	}
	go e.loop()
	return e, nil
}

// longest returns the maximum number of tokens of a sequence in a step.
func longest(plan *plan.Plan) int {
	most := int64(1)
	for i := range plan.Phases {
		most = max(most, plan.Phases[i].Longest.Max)
	}
	return int(most)
}

// Context returns the maximum number of a sequence's tokens in the cache. The last generated
// token need not be in it.
func (e *Engine) Context() int { return e.scheduler.Context() }

// Block returns the number of tokens in a cache block.
func (e *Engine) Block() int { return e.runner.plan.Block() }

// Vocab returns the width of a row of logits.
func (e *Engine) Vocab() int { return e.runner.vocab }

// Chooses reports whether the plan chooses tokens on the device, so that [Row.Chosen] works.
func (e *Engine) Chooses() bool { return e.runner.next }

// Limits returns the limits of the engine's steps.
func (e *Engine) Limits() Limits { return e.limits }

// Instance returns the loaded program's instance, for its counters and memory.
func (e *Engine) Instance() *device.Instance { return e.runner.run }

// Stats returns the state after the last step; requests submitted since count as waiting.
func (e *Engine) Stats() Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.stats
	s.Waiting += len(e.arrived)
	return s
}

// Submit adds a request, whose tokens the engine keeps, and returns before anything is computed.
// Cancelling ctx ends the request with the context's error.
func (e *Engine) Submit(ctx context.Context, r Request) error {
	if len(r.Tokens) == 0 {
		return errors.New("no tokens to continue")
	}
	if n := len(r.Tokens); n > e.Context() {
		return fmt.Errorf("%w: the prompt has %d tokens, the cache holds %d", ErrContext, n, e.Context())
	}
	for i, id := range r.Tokens {
		if id < 0 || e.vocab > 0 && int64(id) >= e.vocab {
			return fmt.Errorf("token %d has the id %d; the vocabulary has %d tokens", i, id, e.vocab)
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	q := &request{Request: r, ctx: ctx}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return fmt.Errorf("the engine is %w", device.ErrClosed)
	}
	q.unwatch = context.AfterFunc(ctx, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if !e.closed {
			e.cancelled = append(e.cancelled, q)
			e.rouse()
		}
	})
	e.arrived = append(e.arrived, q)
	e.rouse()
	return nil
}

// rouse wakes the step goroutine.
func (e *Engine) rouse() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// Close cancels all requests and the running step, and releases the memory. It waits for
// requests that choose outside. Further calls do nothing.
func (e *Engine) Close() error {
	e.mu.Lock()
	e.closed = true
	e.rouse()
	e.mu.Unlock()
	e.runner.run.Interrupt()
	e.guesser.interrupt()
	<-e.ended
	return errors.Join(e.guesser.close(), e.runner.Close())
}

func (e *Engine) loop() {
	for e.ready() {
		ran := e.step()
		e.note()
		if e.observe != nil {
			ran.Stats = e.Stats()
			e.observe(ran)
		}
	}
	close(e.plan)
	close(e.choose)
	e.helpers.Wait()
	close(e.ended)
}

// note publishes the engine's stats.
func (e *Engine) note() {
	s := Stats{
		Waiting: e.scheduler.Waiting(), Running: e.scheduler.Running(), Blocks: e.pool.Blocks(), Free: e.pool.Free(), Windows: e.pool.Held(),
		Counts: e.scheduler.Counts(), Pages: e.pool.Counts(),
	}
	e.mu.Lock()
	e.stats = s
	e.mu.Unlock()
}

// ready waits until there is a step to run. It returns false when the engine is closed and all
// requests have ended.
func (e *Engine) ready() bool {
	for {
		if !e.receive() {
			for _, q := range e.requests {
				e.end(q, fmt.Errorf("the engine is %w", device.ErrClosed))
			}
			if e.undecided == 0 {
				e.note()
				return false
			}
		} else {
			start := time.Now()
			guessed, err := e.guesser.guess(context.Background(), e)
			if err != nil {
				e.abandon(err)
				continue
			}
			if guessed || e.stale {
				e.prepare()
			}
			e.guesser.took(time.Since(start), guessed)
			if len(e.pieces) > 0 {
				return true
			}
			if len(e.requests) > 0 && e.undecided == 0 {
				panic("engine: requests exist and no step can run")
			}
			e.note()
		}
		<-e.wake
	}
}

// abandon ends the requests that decode after guessing failed. An error of the draft model must
// not go unnoticed, and usually affects the machine as a whole.
func (e *Engine) abandon(err error) {
	e.mu.Lock()
	closed := e.closed
	e.mu.Unlock()
	if closed {
		return
	}
	decoding, _ := e.scheduler.Decoding()
	for _, s := range slices.Clone(decoding) {
		e.end(e.requests[s], err)
	}
}

// receive takes the arrivals, cancellations and choices since its last call, and reports whether
// the engine is open.
func (e *Engine) receive() bool {
	e.mu.Lock()
	e.news, e.arrived = e.arrived, e.news[:0]
	e.choices, e.decided = e.decided, e.choices[:0]
	cancelled, closed := e.cancelled, e.closed
	e.cancelled = nil
	e.mu.Unlock()
	for i, q := range e.news {
		e.begin(q)
		e.news[i] = nil
	}
	for i, q := range e.choices {
		e.undecided--
		if q.undecided = false; q.awaited {
			q.awaited = false
			e.awaited--
		} else {
			e.stale = true
		}
		e.take(q)
		e.choices[i] = nil
	}
	for _, q := range cancelled {
		if !q.over {
			e.end(q, q.ctx.Err())
		}
	}
	return !closed
}

func (e *Engine) begin(q *request) {
	var err error
	if q.sequence, err = e.scheduler.Add(q.Tokens, q.Priority, q.Salt); err != nil { // Submit has checked them
		panic(err)
	}
	e.requests[q.sequence] = q
	e.guesser.begin(q)
	e.stale = true
	if q.Chooser == Outside {
		q.turn = make(chan struct{}, 1)
		go e.chooseOutside(q)
	}
}

// end ends a request. Its Next may still be running; then take reports the end.
func (e *Engine) end(q *request, err error) {
	q.over, q.err = true, err
	q.unwatch()
	e.scheduler.Remove(q.sequence)
	delete(e.requests, q.sequence)
	e.guesser.end(q)
	e.stale = true
	if !q.undecided {
		e.tell(q)
	}
}

func (e *Engine) tell(q *request) {
	if q.turn != nil {
		close(q.turn)
	}
	q.Ended(Usage{
		Prompt: q.sequence.Prompt(), Cached: q.sequence.Cached(), Drafted: q.sequence.Drafted(), Accepted: q.sequence.Accepted(),
	}, q.err)
}

// prepare chooses and packs the next step. Tokens that the running step will give are
// placeholders in it.
func (e *Engine) prepare() {
	e.pieces, e.stale = e.scheduler.Step(), false
	if len(e.pieces) > 0 {
		e.runner.pack(&e.packed[e.next], e.pieces)
	}
}

// step runs the prepared step while the next is prepared, and lets requests choose from its
// rows. An error ends the running requests.
func (e *Engine) step() Ran {
	sizes := &e.packed[e.next].Sizes
	ran := Ran{Sequences: int(sizes[sym.B]), Tokens: int(sizes[sym.T]), Rows: int(sizes[sym.R]), Guessing: e.guesser.spent()}
	for i := range e.pieces {
		if p := &e.pieces[i]; p.Rows == batch.All {
			ran.Drafted += len(p.Tokens) - 1
		}
	}
	start := time.Now()
	err := e.run()
	ran.Took = time.Since(start)
	if err == nil && len(e.rows) > 0 {
		err = e.results()
	}
	e.mu.Lock()
	closed := e.closed
	e.mu.Unlock()
	switch {
	case closed:
	case err != nil:
		for _, q := range e.rows { // including those that were preempted since
			if !q.over {
				e.end(q, err)
			}
		}
		for _, q := range e.scheduler.Fail() {
			e.end(e.requests[q], err)
		}
	default:
		e.handOut()
		e.guesser.learn(time.Since(start).Seconds())
		e.await(max(ran.Took/4, leastPatience))
	}
	return ran
}

// run runs the prepared step.
func (e *Engine) run() error {
	packed := &e.packed[e.next]
	packed.SetTokens(e.pieces...)
	if err := e.runner.copyFor(context.Background(), e.pool); err != nil {
		e.rows, e.stale = e.rows[:0], true
		return err
	}
	e.scheduler.Done()
	e.guesser.runs(e)
	clear(e.rows)
	e.rows = e.rows[:0]
	first := 0
	for i, q := range e.scheduler.Sequences() {
		if e.pieces[i].Rows == batch.None {
			continue
		}
		r := e.requests[q]
		r.first, r.row.Length = first, len(q.Tokens())
		e.rows = append(e.rows, r)
		if r.Constraint != nil {
			r.Constraint.Prepare()
		}
		if e.pieces[i].Rows == batch.Last {
			e.scheduler.Expect(q)
			first++
		} else {
			first += len(e.pieces[i].Tokens)
		}
	}
	e.next ^= 1
	e.plan <- struct{}{}
	err := e.runner.runPacked(context.Background(), packed)
	<-e.planned
	return err
}

// results reads the outputs of a step.
func (e *Engine) results() (err error) {
	if e.runner.next {
		if e.chosen, err = e.runner.Chosen(); err != nil {
			return err
		}
	}
	e.logits, err = e.runner.Logits()
	return err
}

// handOut lets requests choose from the rows of a step, and takes their choices except those
// made outside.
func (e *Engine) handOut() {
	sampled := 0
	v := e.runner.vocab
	for _, q := range e.rows {
		q.rows, q.picked = e.logits[q.first*v:], nil
		if e.runner.next {
			q.picked = e.chosen[q.first:]
		}
		e.look(q, 0)
		// A constraint of a request with guesses in the step already knows what may follow them.
		unready := q.Constraint != nil && len(q.sequence.Open()) == 0 && !q.Constraint.Ready()
		switch {
		case q.over:
		case q.Chooser == Outside || unready:
			q.copied = append(q.copied[:0], q.row.logits...)
			q.row.logits = q.copied
			q.undecided = true
			e.undecided++
			if unready {
				e.scheduler.Late(q.sequence)
				e.stale = true
				go e.chooseLate(q)
				continue
			}
			q.awaited = true
			e.awaited++
			q.turn <- struct{}{}
		case q.Chooser == Sampled:
			sampled++
		}
	}
	e.row.Store(0)
	helpers := max(min(e.choosers, sampled-1), 0)
	e.choosing.Add(helpers)
	for range helpers {
		e.choose <- struct{}{}
	}
	e.chooseRows()
	e.choosing.Wait()
	for _, q := range e.rows {
		if !q.over && !q.undecided {
			e.take(q)
		}
	}
}

// look points a request at one of its rows of the step.
func (e *Engine) look(q *request, row int) {
	v := e.runner.vocab
	q.row.runner, q.row.logits = e.runner, q.rows[row*v:(row+1)*v:(row+1)*v]
	if q.picked != nil {
		q.row.chosen = q.picked[row]
	}
}

// chooseRows lets requests choose until none is left. Several goroutines run it.
func (e *Engine) chooseRows() {
	for i := int(e.row.Add(1)) - 1; i < len(e.rows); i = int(e.row.Add(1)) - 1 {
		if q := e.rows[i]; !q.over && !q.undecided {
			e.chooseOf(q)
		}
	}
}

// chooseOf lets a request choose after its last token, and after each guess of the step while
// its choices, with the tokens that they force, equal the guesses.
func (e *Engine) chooseOf(q *request) {
	open := q.sequence.Open()
	for q.right = 0; ; {
		if q.row.Proposal = nil; q.right < min(len(open), len(q.guessed.drawn)) {
			q.row.Proposal = &q.guessed.drawn[q.right]
		}
		e.chooseNext(q)
		if q.right == len(open) || q.id != open[q.right] || !q.more || q.nextErr != nil {
			return
		}
		n := 1 + len(q.forced)
		if q.right+n > len(open) || !slices.Equal(q.forced, open[q.right+1:q.right+n]) {
			return
		}
		q.right += n
		e.look(q, q.right)
		q.row.Length += n
	}
}

// chooseNext calls Next and stores its results.
func (e *Engine) chooseNext(q *request) {
	q.id, q.more, q.nextErr = q.Next(q.row)
	if q.forced = nil; q.Constraint != nil && q.more && q.nextErr == nil {
		q.forced = q.Constraint.Forced()
	}
}

// chooseOutside is the goroutine of a request that chooses outside.
func (e *Engine) chooseOutside(q *request) {
	for range q.turn {
		e.chooseLate(q)
	}
}

// chooseLate lets a request choose while steps go on without it.
func (e *Engine) chooseLate(q *request) {
	q.row.Proposal = nil
	e.chooseNext(q)
	e.mu.Lock()
	e.decided = append(e.decided, q)
	e.rouse()
	e.mu.Unlock()
}

// await waits at most most for requests that choose outside, and marks the rest as late.
func (e *Engine) await(most time.Duration) {
	if e.awaited == 0 {
		return
	}
	for e.patience.Reset(most); e.awaited > 0; {
		select {
		case <-e.wake:
			if !e.receive() {
				return
			}
			continue
		case <-e.patience.C:
		}
		break
	}
	for _, q := range e.rows {
		if !q.awaited {
			continue
		}
		q.awaited = false
		e.awaited--
		if !q.over {
			e.scheduler.Late(q.sequence)
			e.stale = true
		}
	}
}

// take appends a request's choice, and the right guesses before it, to its sequence.
func (e *Engine) take(q *request) {
	if q.over { // while it chose
		e.tell(q)
		return
	}
	if open := q.sequence.Open(); len(open) > 0 {
		e.stale = true // the next step was chosen without the guesses
		for _, id := range open[:q.right] {
			e.scheduler.Append(q.sequence, id)
			e.guesser.add(q, id)
		}
	}
	err := q.nextErr
	if err == nil && q.more && e.vocab > 0 && (q.id < 0 || int64(q.id) >= e.vocab) {
		err = fmt.Errorf("after %d tokens: the chosen id %d is not in the vocabulary of %d tokens", q.row.Length, q.id, e.vocab)
	}
	switch {
	case err != nil || !q.more:
		e.end(q, err)
	case !e.scheduler.Append(q.sequence, q.id):
		e.end(q, fmt.Errorf("%w: it holds %d tokens", ErrContext, e.Context()))
	default:
		e.guesser.add(q, q.id)
		e.force(q)
	}
}

// force appends the tokens without alternative after a request's choice, to be computed with it.
func (e *Engine) force(q *request) {
	for _, id := range q.forced {
		e.stale = true // the next step was chosen without it
		if !e.scheduler.Append(q.sequence, id) {
			e.end(q, fmt.Errorf("%w: it holds %d tokens", ErrContext, e.Context()))
			return
		}
		e.guesser.add(q, id)
	}
}
