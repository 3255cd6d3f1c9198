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

// Engine runs many sequences over one cache of blocks: package schedule says which tokens
// of which of them come in a step, package pages where their keys and values lie.
//
// One goroutine runs the steps, as long as there are requests, which come from any. While
// the device computes a step, another goroutine chooses and packs the next, in which a token
// that the running step is to give has its place and nothing else is missing. When the step
// is done, its rows go to whoever chooses among them (see [Chooser]), the chosen tokens go to
// their places, and the next step runs. It is only chosen anew where something came between:
// a request that ended, came, or has not chosen yet; and before and after a step that
// verifies guesses, which nobody knows of earlier.
type Engine struct {
	runner    *Runner
	pool      *pages.Pool
	scheduler *schedule.Scheduler
	guesser   *guesser // nil: tokens are not guessed
	limits    Limits
	vocab     int64         // ids of tokens that can be looked up; 0: any
	ended     chan struct{} // closed when the goroutine is gone
	wake      chan struct{} // holds a value where there may be news

	mu      sync.Mutex
	closed  bool
	arrived []*request
	given   []*request // up, by their contexts
	decided []*request // by goroutines of their own
	stats   Stats

	observe func(Ran) // may be nil

	// Of the goroutine that runs steps; while a step runs, those from requests on are of the
	// one that plans.
	rows      []*request // of the step that runs or has run
	fresh     int        // of these, with goroutines of their own, how many are not decided
	chosen    []int32
	logits    []float32
	patience  *time.Timer
	requests  map[*schedule.Sequence]*request
	undecided int // requests with goroutines of their own that choose
	news      []*request
	choices   []*request
	pieces    []batch.Piece // of the next step, of packed[next]
	packed    [2]batch.Step
	next      int
	stale     bool // the next step is to be chosen anew

	helpers  sync.WaitGroup // goroutines that run until the end
	plan     chan struct{}
	planned  chan struct{}
	choosers int // beside the goroutine that runs steps
	choose   chan struct{}
	choosing sync.WaitGroup
	row      atomic.Int32
}

// Limits bound an engine's steps.
type Limits struct {
	Sequences int // most that run at once
	Tokens    int // most of a step
}

// LimitsOf returns the largest that a Plan has phases for: its steps of several tokens of a
// sequence, where it has any, take what those of one token each do.
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

// Request is a sequence of tokens that an engine shall continue.
type Request struct {
	Tokens     []int32 // one at least
	Priority   int     // higher ones go first
	Salt       string  // blocks are shared with requests of the same salt alone
	Chooser    Chooser
	Sampling   Sampling   // that Next draws by, which a draft's tokens are drawn by too; zero where it does not
	Constraint Constraint // that Next, which is Sampled then, keeps the text to; nil: none
	// Next returns the token that follows a row of logits, and whether another shall come
	// after it. It is called by one goroutine at a time; those of other requests may be
	// called meanwhile.
	Next func(Row) (id int32, more bool, err error)
	// Ended is called once, after the last Next or with what went wrong.
	Ended func(Usage, error)
}

// Chooser says what a request's Next takes, which decides who calls it.
type Chooser uint8

const (
	// Chosen looks at [Row.Chosen] alone: it takes no time.
	Chosen Chooser = iota
	// Sampled looks at all of a row. The rows of a step are spread over the processors; the
	// next step waits for them, but not for those whose [Constraint] is not ready: they have copies,
	// and their sequences come again in the first step after they have chosen.
	Sampled
	// Outside is code that may take any time. It has a goroutine and a copy of the row to
	// itself. The next step waits for a quarter of the time that the last one took, or for
	// [leastPatience]; then it goes on without the sequence, which comes again in the first
	// step after it has chosen.
	Outside
)

// leastPatience is how long a step waits at least for those who choose outside: as long as
// it takes to wake a goroutine on a busy machine, many times over.
const leastPatience = 500 * time.Microsecond

// Usage is what a request took.
type Usage struct {
	Prompt   int // tokens
	Cached   int // of these, those that others had computed
	Drafted  int // tokens that were guessed before they were computed
	Accepted int // of these, those that were right
}

// Row is what a step computed after the last token of a sequence. It is valid during Next.
type Row struct {
	runner *Runner
	logits []float32
	chosen int32
	Length int // tokens of the sequence
	// Proposal is what a draft has drawn to follow, which Next takes or refuses by
	// [Sampler.Verify]; nil where it has not.
	Proposal *Proposal
}

// Logits returns the row, [Vocab]. Who chooses outside may change it.
func (r *Row) Logits() []float32 { return r.logits }

// Chosen returns the most likely token, as the device has chosen it.
func (r *Row) Chosen() (int32, error) {
	if err := r.runner.chooses(); err != nil {
		return 0, err
	}
	if r.chosen < 0 {
		return 0, fmt.Errorf("%w after %d tokens", ErrNaN, r.Length)
	}
	return r.chosen, nil
}

// Picked is Chosen, or -1 where the device has not chosen.
func (r *Row) Picked() (int32, error) {
	if !r.runner.next {
		return -1, nil
	}
	return r.Chosen()
}

// request is a Request under way.
type request struct {
	Request
	ctx      context.Context
	unwatch  func() bool
	sequence *schedule.Sequence
	guessed  guessed
	over     bool  // of the goroutine
	err      error // that it is over with

	// What Next is called with and what it returned, after so many tokens that were what was
	// guessed.
	first  int       // row of the step
	rows   []float32 // from there on, or a copy of them
	picked []int32   // of these, what the device has chosen
	row    Row
	right  int
	id     int32
	more   bool
	failed error
	forced []int32 // what follows id

	// Of one that chooses outside, or whose constraint was not ready.
	turn      chan struct{} // of one outside: holds a value where there is a row; closed at the end
	copied    []float32
	undecided bool
	fresh     bool // since the last step
}

// Stats tell what an engine does and has done.
type Stats struct {
	Waiting, Running int // sequences
	Blocks, Free     int // of the cache; what is free may still be known
	schedule.Counts
	Pages pages.Counts
}

// Ran is a step that was run.
type Ran struct {
	Took                    time.Duration // on the device
	Guessing                time.Duration // before it, by a draft's steps and lookups
	Sequences, Tokens, Rows int
	Drafted                 int   // tokens that were guessed
	Stats                   Stats // after it
}

// WatchCache has a watcher told which blocks become known and which are forgotten, from the
// goroutines that choose steps, one at a time. It is called before the first request.
func (e *Engine) WatchCache(w pages.Watcher) { e.pool.Watch(w) }

// Observe lets a function see every step, from the goroutine that runs them. It is called
// before the first Submit, if at all.
func (e *Engine) Observe(step func(Ran)) { e.observe = step }

// New starts an engine with a cache of so many blocks.
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
	r, err := NewRunner(plan, executable, blocks)
	if err != nil {
		return nil, err
	}
	pool := r.newPool(blocks)
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

// longest returns how many tokens of a sequence a step takes.
func longest(plan *plan.Plan) int {
	most := int64(1)
	for i := range plan.Phases {
		most = max(most, plan.Phases[i].Longest.Max)
	}
	return int(most)
}

// Context returns how many tokens of a sequence fit into the cache at most. The last that is
// generated need not.
func (e *Engine) Context() int { return e.scheduler.Context() }

// Block returns how many tokens a block of the cache has.
func (e *Engine) Block() int { return e.runner.plan.Block() }

// Vocab returns the width of a row of logits.
func (e *Engine) Vocab() int { return e.runner.vocab }

// Chooses reports whether the plan chooses tokens itself, so that Row.Chosen works.
func (e *Engine) Chooses() bool { return e.runner.next }

// Limits returns what the engine was made with.
func (e *Engine) Limits() Limits { return e.limits }

// Instance returns what runs on the device, for its counters and memory.
func (e *Engine) Instance() *device.Instance { return e.runner.run }

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
		return fmt.Errorf("the engine is %w", device.ErrClosed)
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

// Close ends all requests, the step under way included, and releases the memory. It waits
// for those who choose outside. Further calls do nothing.
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

// ready waits until there is a step to run. It returns false when the engine is closed and
// all requests have ended.
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
				panic("engine: there are requests, and nothing to do")
			}
			e.note()
		}
		<-e.wake
	}
}

// abandon ends the requests that are decoded, of which the next tokens could not be guessed: what
// is wrong with the model that guesses is wrong with the machine, or would go unnoticed.
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

// receive takes what has come since it was last called, and reports whether the engine is
// open.
func (e *Engine) receive() bool {
	e.mu.Lock()
	e.news, e.arrived = e.arrived, e.news[:0]
	e.choices, e.decided = e.decided, e.choices[:0]
	given, closed := e.given, e.closed
	e.given = nil
	e.mu.Unlock()
	for i, q := range e.news {
		e.begin(q)
		e.news[i] = nil
	}
	for i, q := range e.choices {
		e.undecided--
		if q.undecided = false; q.fresh {
			q.fresh = false
			e.fresh--
		} else {
			e.stale = true
		}
		e.take(q)
		e.choices[i] = nil
	}
	for _, q := range given {
		if !q.over {
			e.end(q, q.ctx.Err())
		}
	}
	return !closed
}

func (e *Engine) begin(q *request) {
	var err error
	if q.sequence, err = e.scheduler.Add(q.Tokens, q.Priority, q.Salt); err != nil { // Submit has looked
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

// end ends a request, though its Next may still be called: then it is told by take.
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

// prepare chooses and packs the next step. The tokens that are expected of the running one
// are not in it yet.
func (e *Engine) prepare() {
	e.pieces, e.stale = e.scheduler.Step(), false
	if len(e.pieces) > 0 {
		e.runner.pack(&e.packed[e.next], e.pieces)
	}
}

// step runs the one that is prepared, prepares another meanwhile, and lets requests choose
// what follows its rows. What fails ends the requests that run.
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
		for _, q := range e.rows { // even where one has given up its blocks since
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

// results looks at what a step has given.
func (e *Engine) results() (err error) {
	if e.runner.next {
		if e.chosen, err = e.runner.Chosen(); err != nil {
			return err
		}
	}
	e.logits, err = e.runner.Logits()
	return err
}

// handOut lets requests choose among the rows of a step, and takes what all have chosen but
// those outside.
func (e *Engine) handOut() {
	sampled := 0
	v := e.runner.vocab
	for _, q := range e.rows {
		q.rows, q.picked = e.logits[q.first*v:], nil
		if e.runner.next {
			q.picked = e.chosen[q.first:]
		}
		e.look(q, 0)
		// Who has guesses in the step knows what may follow them.
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
			q.fresh = true
			e.fresh++
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

// look lets a request see one of its rows of the step.
func (e *Engine) look(q *request, row int) {
	v := e.runner.vocab
	q.row.runner, q.row.logits = e.runner, q.rows[row*v:(row+1)*v:(row+1)*v]
	if q.picked != nil {
		q.row.chosen = q.picked[row]
	}
}

// chooseRows lets requests choose, one after the other, until there are none left.
func (e *Engine) chooseRows() {
	for i := int(e.row.Add(1)) - 1; i < len(e.rows); i = int(e.row.Add(1)) - 1 {
		if q := e.rows[i]; !q.over && !q.undecided {
			e.chooseOf(q)
		}
	}
}

// chooseOf lets a request choose after its last token, and after each guess of the step as
// long as it chooses what was guessed, and what follows that in any case.
func (e *Engine) chooseOf(q *request) {
	open := q.sequence.Open()
	for q.right = 0; ; {
		if q.row.Proposal = nil; q.right < min(len(open), len(q.guessed.drawn)) {
			q.row.Proposal = &q.guessed.drawn[q.right]
		}
		e.chooseNext(q)
		if q.right == len(open) || q.id != open[q.right] || !q.more || q.failed != nil {
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

// chooseNext calls Next.
func (e *Engine) chooseNext(q *request) {
	q.id, q.more, q.failed = q.Next(q.row)
	if q.forced = nil; q.Constraint != nil && q.more && q.failed == nil {
		q.forced = q.Constraint.Forced()
	}
}

// chooseOutside is the goroutine of a request.
func (e *Engine) chooseOutside(q *request) {
	for range q.turn {
		e.chooseLate(q)
	}
}

// chooseLate lets a request choose that the steps do not wait for.
func (e *Engine) chooseLate(q *request) {
	q.row.Proposal = nil
	e.chooseNext(q)
	e.mu.Lock()
	e.decided = append(e.decided, q)
	e.rouse()
	e.mu.Unlock()
}

// await gives those who choose outside their time.
func (e *Engine) await(most time.Duration) {
	if e.fresh == 0 {
		return
	}
	for e.patience.Reset(most); e.fresh > 0; {
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
		if !q.fresh {
			continue
		}
		q.fresh = false
		e.fresh--
		if !q.over {
			e.scheduler.Late(q.sequence)
			e.stale = true
		}
	}
}

// take goes on with what a request has chosen to follow its last token.
func (e *Engine) take(q *request) {
	if q.over { // while it chose
		e.tell(q)
		return
	}
	if open := q.sequence.Open(); len(open) > 0 {
		e.stale = true // the next step was chosen without it
		for _, id := range open[:q.right] {
			e.scheduler.Append(q.sequence, id)
			e.guesser.add(q, id)
		}
	}
	err := q.failed
	if err == nil && q.more && e.vocab > 0 && (q.id < 0 || int64(q.id) >= e.vocab) {
		err = fmt.Errorf("after %d tokens: %d was chosen of %d tokens", q.row.Length, q.id, e.vocab)
	}
	switch {
	case err != nil || !q.more:
		e.end(q, err)
	case !e.scheduler.Append(q.sequence, q.id):
		e.end(q, fmt.Errorf("%w: %d tokens are in it", ErrContext, e.Context()))
	default:
		e.guesser.add(q, q.id)
		e.force(q)
	}
}

// force adds what follows a request's last token in any case, to be computed with it.
func (e *Engine) force(q *request) {
	for _, id := range q.forced {
		e.stale = true // the next step was chosen without it
		if !e.scheduler.Append(q.sequence, id) {
			e.end(q, fmt.Errorf("%w: %d tokens are in it", ErrContext, e.Context()))
			return
		}
		e.guesser.add(q, id)
	}
}
