package engine

import (
	"context"
	"time"

	"github.com/smelt-ml/smelt/internal/batch"
	"github.com/smelt-ml/smelt/internal/engine/draft"
	"github.com/smelt-ml/smelt/ir/sym"
	"github.com/smelt-ml/smelt/lower/plan"
)

// Guessing configures how an engine guesses tokens before it computes them.
type Guessing struct {
	Rows   int    // maximum number of guesses in a step; 0: none
	Lookup bool   // guess from the sequence itself and from earlier generated text
	Draft  *Draft // guess by a smaller model; nil: none
	// Choose decides how many guesses are verified, as [draft.Policy.Choose] does; nil: a
	// Policy.
	Choose func(decoding int, guesses []draft.Guess, most int) (taken int)
}

// GuessesOf returns the number of guesses for which a step of a Plan has rows of logits, beside
// one row for each of the sequences.
func GuessesOf(plan *plan.Plan, sequences int) int {
	rows := 0
	for i := range plan.Phases {
		if ph := &plan.Phases[i]; ph.Longest.Max > 1 {
			rows = max(rows, int(ph.Bounds[sym.R]))
		}
	}
	return max(0, rows-sequences)
}

// Eagerly is a Choose for tests that verifies as many guesses as there is room for, at most five
// of a draft model's, whatever their cost.
func Eagerly(_ int, guesses []draft.Guess, most int) (taken int) {
	for i := range guesses {
		g := &guesses[i]
		if g.Take = min(g.Tokens, most-taken); g.Model {
			g.Take = min(g.Take, 5)
		}
		taken += g.Take
	}
	return taken
}

// certain is the match length by which guesses count that a constraint leaves no alternative to.
const certain = 1 << 10

// ahead is the maximum number of guessed tokens per sequence.
const ahead = 32

// guesser guesses tokens for an engine, and records which were right. It is used by the engine's
// goroutines, one at a time. A nil guesser does nothing.
type guesser struct {
	policy   *draft.Policy
	lookup   *draft.Lookup // may be nil
	model    *drafter      // may be nil
	choose   func(decoding int, guesses []draft.Guess, most int) (taken int)
	measures bool // whether it measures the time of steps

	// Of the next step, or the one that has run.
	guesses          []draft.Guess
	of               []*request    // by guess
	level            []*chain      // chains that make one more token
	decoding, tokens int           // decoding sequences, and their tokens including guesses
	alone            bool          // whether the step holds nothing else
	made, all        time.Duration // time of the draft model's steps, and of all guessing
}

func newGuesser(r *Runner, l Limits, g Guessing, context int) (*guesser, error) {
	if g.Rows == 0 || !g.Lookup && g.Draft == nil {
		return nil, nil
	}
	to := &guesser{policy: draft.NewPolicy(l.Sequences + g.Rows), choose: g.Choose}
	to.measures = to.choose == nil
	if to.measures {
		to.choose = to.policy.Choose
	}
	if g.Lookup {
		to.lookup = draft.NewLookup(context)
	}
	if g.Draft != nil {
		var err error
		if to.model, err = newDrafter(g.Draft, r.vocab); err != nil {
			return nil, err
		}
	}
	return to, nil
}

// interrupt cancels the draft model's step, from any goroutine.
func (g *guesser) interrupt() {
	if g != nil && g.model != nil {
		g.model.runner.run.Interrupt()
	}
}

// close releases the memory.
func (g *guesser) close() error {
	if g == nil || g.model == nil {
		return nil
	}
	return g.model.runner.Close()
}

// An engine measures steps when it starts, in passes over steps of doubling size, of which the
// first runs cold and ends after a third of the time.
const (
	measuring = 300 * time.Millisecond
	passes    = 4 // at most, and at least two
)

// most is the maximum number of tokens in the draft model's measured prefill steps.
const most = 256

// measure measures steps with several rows of logits, and steps of the draft model.
func (g *guesser) measure(ctx context.Context, r *Runner, rows int) error {
	if g == nil || !g.measures {
		return nil
	}
	if err := measure(ctx, r, rows, batch.All, g.policy.Measured); err != nil || g.model == nil {
		return err
	}
	return measure(ctx, g.model.runner, most, batch.Last, g.policy.MeasuredModel)
}

// measure measures steps of one sequence, at powers of two of tokens as far as time allows. It
// takes the minimum over passes, so that a passing disturbance affects no single size. It
// overwrites cache blocks, so it must run before any sequence has them.
func measure(ctx context.Context, r *Runner, most int, rows batch.Rows, measured func(tokens int, seconds float64)) error {
	table := batch.Contiguous(r.block, min(r.run.Blocks()*r.block, r.plan.Context, most))
	most = min(most, len(table)*r.block, longest(r.plan))
	var least []float64 // by powers of two
	start := time.Now()
	for pass := 0; pass < passes && (pass < 2 || time.Since(start) < measuring); pass++ {
		for i := 0; 1<<i <= most && (i < len(least) || pass == 0 && time.Since(start) < measuring/3); i++ {
			begun := time.Now()
			if err := r.Run(ctx, batch.Piece{Tokens: make([]int32, 1<<i), Blocks: table, Rows: rows}); err != nil {
				return err
			}
			took := time.Since(begun).Seconds()
			if i == len(least) {
				least = append(least, took)
			}
			least[i] = min(least[i], took)
		}
	}
	for i, seconds := range least {
		measured(1<<i, seconds)
	}
	return nil
}

// guessed is a guesser's state of a request.
type guessed struct {
	text  *draft.Text
	chain *chain
	rates draft.Rates
	next  []int32    // guesses after its last token
	drawn []Proposal // their distributions, where a draft model drew them
	taken int        // guesses in the step
	was   int        // accepted guesses before the step
}

// begin starts guessing for a request.
func (g *guesser) begin(q *request) {
	if g == nil {
		return
	}
	if g.lookup != nil {
		q.guessed.text = g.lookup.Begin(q.Salt, q.Tokens)
	}
	if g.model != nil {
		q.guessed.chain = g.model.begin(&q.Request)
	}
}

// add records a chosen token.
func (g *guesser) add(q *request, id int32) {
	if g != nil && g.lookup != nil {
		q.guessed.text.Append(id)
	}
}

// end forgets a request.
func (g *guesser) end(q *request) {
	if g == nil {
		return
	}
	if g.lookup != nil {
		q.guessed.text.End()
	}
	if g.model != nil {
		g.model.end(q.guessed.chain)
	}
}

// guess gives the scheduler the guesses for the next step that are worth their time, and reports
// whether there are any, in which case the step must be chosen anew. Requests that choose
// outside get none, because a step waits for one token of each only.
//
// Whether a drawn token is verified must not depend on the token or on what would follow it,
// else the text would have another distribution. So that decision is made before the token is
// drawn, and stays.
func (g *guesser) guess(ctx context.Context, e *Engine) (any bool, err error) {
	if g == nil {
		return false, nil
	}
	decoding, room := e.scheduler.Decoding()
	clear(g.of)
	g.guesses, g.of = g.guesses[:0], g.of[:0]
	for _, s := range decoding {
		q := e.requests[s]
		q.guessed.taken, q.guessed.drawn = 0, nil
		if q.Chooser == Outside || room == 0 || q.Constraint != nil && !q.Constraint.Known() {
			continue
		}
		if guess := g.propose(q, room); guess.Tokens > 0 {
			q.guessed.was = s.Accepted()
			g.guesses, g.of = append(g.guesses, guess), append(g.of, q)
		}
	}
	for {
		taken := g.choose(len(decoding), g.guesses, room)
		if more, err := g.make(ctx); err != nil {
			return false, err
		} else if more {
			continue
		}
		for i, q := range g.of {
			e.scheduler.Draft(q.sequence, q.guessed.next[:g.guesses[i].Take])
		}
		return taken > 0, nil
	}
}

// propose returns the guess for a request: a lookup's, or the draft model's where that is more
// often right.
func (g *guesser) propose(q *request, room int) draft.Guess {
	looked, made := draft.Guess{Rates: &q.guessed.rates}, draft.Guess{Rates: &q.guessed.rates, Model: true}
	q.guessed.next = q.guessed.next[:0]
	if q.Constraint != nil {
		q.guessed.next, looked.Agreed = q.Constraint.Guess(q.guessed.next, min(ahead, room)), certain
	}
	if g.lookup != nil && len(q.guessed.next) == 0 {
		q.guessed.next, looked.Agreed = q.guessed.text.Propose(q.guessed.next, min(ahead, room))
		if q.Constraint != nil {
			q.guessed.next = q.guessed.next[:q.Constraint.Allows(q.guessed.next)]
		}
	}
	looked.Tokens = len(q.guessed.next)
	if g.model == nil {
		return looked
	}
	c := q.guessed.chain
	made.Sampled, made.Tokens = c.sampler != nil, min(ahead, room, g.model.room(len(q.sequence.Tokens())))
	if made.Tokens == 0 || looked.Tokens > 0 && g.policy.Likelier(&looked, &made) {
		return looked
	}
	c.follow(q.sequence.Tokens())
	made.Behind = c.behind()
	return made
}

// make draws the tokens that were taken and not made yet, and runs the draft model to make
// further ones possible. It reports whether more tokens are wanted.
func (g *guesser) make(ctx context.Context) (more bool, err error) {
	g.level = g.level[:0]
	for i, q := range g.of {
		guess, c := &g.guesses[i], q.guessed.chain
		if !guess.Model {
			continue
		}
		if len(c.sure) > len(c.made) {
			if guess.Take > guess.Made {
				c.take()
				guess.Made++
			} else {
				guess.Tokens = guess.Made // the decision stays
			}
		}
		if guess.Take > guess.Made {
			g.level = append(g.level, c)
		}
	}
	if len(g.level) > 0 {
		start := time.Now()
		tokens, err := g.model.step(ctx, g.level)
		if err != nil {
			return false, err
		}
		took := time.Since(start)
		g.made += took
		g.policy.Made(tokens, took.Seconds())
	}
	for i, q := range g.of {
		guess, c := &g.guesses[i], q.guessed.chain
		if !guess.Model {
			continue
		}
		if guess.Sure, guess.Behind = c.sure, c.behind(); c.lost {
			guess.Tokens = guess.Made
		}
		q.guessed.next, q.guessed.drawn = q.guessed.next[:0], nil
		for k := range c.made {
			q.guessed.next = append(q.guessed.next, c.made[k].ID)
		}
		if guess.Sampled {
			q.guessed.drawn = c.made
		}
	}
	return len(g.level) > 0, nil
}

// took records the time of guessing for the next step and choosing it anew. Without guesses only
// the draft model's time counts, because the step was chosen while another ran.
func (g *guesser) took(all time.Duration, guessed bool) {
	if g == nil {
		return
	}
	if !guessed {
		all = g.made
	}
	g.all = all
	g.policy.Sought((all - g.made).Seconds())
}

// spent returns the time recorded by took for the step that is about to run, and resets it.
func (g *guesser) spent() (all time.Duration) {
	if g != nil {
		all, g.all, g.made = g.all, 0, 0
	}
	return all
}

// runs records the contents of the step that is about to run.
func (g *guesser) runs(e *Engine) {
	if g == nil {
		return
	}
	g.decoding, g.tokens, g.alone = 0, 0, true
	for i, s := range e.scheduler.Sequences() {
		p := &e.pieces[i]
		if p.Rows == batch.None || p.Rows == batch.Last && len(p.Tokens) > 1 { // part of a prompt
			g.alone = false
			continue
		}
		g.decoding, g.tokens = g.decoding+1, g.tokens+len(p.Tokens)
		e.requests[s].guessed.taken = len(p.Tokens) - 1
	}
}

// learn records the outcome of a step and its time, which includes choosing from its rows.
func (g *guesser) learn(seconds float64) {
	if g == nil {
		return
	}
	came := g.decoding
	for i, q := range g.of {
		if q.guessed.taken == 0 {
			continue
		}
		right := q.sequence.Accepted() - q.guessed.was
		g.guesses[i].Take = q.guessed.taken
		if q.over { // at a token before the rest was compared
			g.guesses[i].Take = right
		}
		g.policy.Verified(&g.guesses[i], right)
		came += right
	}
	switch {
	case g.tokens > g.decoding && g.alone:
		g.policy.Drafted(g.decoding, g.tokens, came, seconds)
	case g.tokens > g.decoding:
		g.policy.Drafted(g.decoding, g.tokens, came, 0)
	case g.alone && g.decoding > 0:
		g.policy.Plain(g.decoding, seconds)
	}
}

// Names of the ways to guess tokens: none, and lookup.
const (
	SpeculateOff   = "off"
	SpeculateNgram = "ngram"
)
