package engine

import (
	"context"
	"time"

	"github.com/smelt-ml/smelt/internal/batch"
	"github.com/smelt-ml/smelt/internal/engine/draft"
	"github.com/smelt-ml/smelt/ir/sym"
	"github.com/smelt-ml/smelt/lower/plan"
)

// Guessing says how an engine guesses tokens before it computes them.
type Guessing struct {
	Rows   int    // most guesses of a step; 0: none
	Lookup bool   // by what stands elsewhere in the sequence and in what was generated before
	Draft  *Draft // by a smaller model; nil: by none
	// Choose says how many are verified, as [draft.Budget.Choose] does; nil: a Budget does.
	Choose func(decoding int, guesses []draft.Guess, most int) (taken int)
}

// GuessesOf returns how many guesses a step of a Plan has rows of logits for, beside one for
// each of so many sequences.
func GuessesOf(plan *plan.Plan, sequences int) int {
	rows := 0
	for i := range plan.Phases {
		if ph := &plan.Phases[i]; ph.Longest.Max > 1 {
			rows = max(rows, int(ph.Bounds[sym.R]))
		}
	}
	return max(0, rows-sequences)
}

// Eagerly chooses what there is room for, whatever that costs, of a model's guesses at most
// five: tests want them.
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

// certain is the agreement that guesses count with which a constraint leaves no other text for.
const certain = 1 << 10

// ahead is how many tokens of a sequence are guessed at most.
const ahead = 32

// guesser guesses tokens for an engine, and learns what comes of it. It is of the engine's
// goroutines, one at a time. A nil one does nothing.
type guesser struct {
	budget   *draft.Budget
	lookup   *draft.Lookup // may be nil
	model    *drafter      // may be nil
	choose   func(decoding int, guesses []draft.Guess, most int) (taken int)
	measures bool // what steps take

	// Of the step that comes or has run.
	guesses          []draft.Guess
	of               []*request    // by guess
	level            []*chain      // that go on by a token
	decoding, tokens int           // sequences that decode, and their tokens with the guesses
	alone            bool          // these are the whole step
	made, all        time.Duration // that the model's steps have taken, and all that is done to guess
}

func newGuesser(r *Runner, l Limits, g Guessing, context int) (*guesser, error) {
	if g.Rows == 0 || !g.Lookup && g.Draft == nil {
		return nil, nil
	}
	to := &guesser{budget: draft.NewBudget(l.Sequences + g.Rows), choose: g.Choose}
	to.measures = to.choose == nil
	if to.measures {
		to.choose = to.budget.Choose
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

// interrupt ends the step of the model that guesses, from any goroutine.
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

// How long an engine measures steps when it starts, in passes through steps of more and more
// tokens, of which the first finds everything cold. It ends where a third of the time is over.
const (
	measuring = 300 * time.Millisecond
	passes    = 4 // at most, and two at least
)

// most is how many tokens of a prompt the model that guesses is measured with.
const most = 256

// measure finds what steps of several rows take, and steps of the model that guesses.
func (g *guesser) measure(ctx context.Context, r *Runner, rows int) error {
	if g == nil || !g.measures {
		return nil
	}
	if err := measure(ctx, r, rows, batch.All, g.budget.Measured); err != nil || g.model == nil {
		return err
	}
	return measure(ctx, g.model.runner, most, batch.Last, g.budget.MeasuredModel)
}

// measure finds what steps of a sequence take, from a token on, as far as there is time: the
// least of what passes that follow each other find, so that what disturbs for a while disturbs
// all steps alike. It writes blocks that nobody has yet.
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

// guessed is what a guesser knows of a request.
type guessed struct {
	text  *draft.Text
	chain *chain
	rates draft.Rates
	next  []int32    // what may follow its last token
	drawn []Proposal // what they were drawn from, where they were
	taken int        // how many guesses the step took
	was   int        // and how many were right before it
}

// begin takes a request's tokens.
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

// add takes a token that was chosen.
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

// guess gives the scheduler guesses for the next step, as many as are worth their time, and
// reports whether there are any: the step is to be chosen anew. Who chooses outside has none:
// a step waits for one token of each, and not for several.
//
// Whether a token that a model draws is verified must not depend on which one it is, nor on
// what would follow it: else what is verified, and with it the text, would have another
// distribution. So it is decided before the token is drawn, and stays so.
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

// propose finds out how a request may go on: as it does elsewhere, or as the model says where
// that is more often right.
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
	if made.Tokens == 0 || looked.Tokens > 0 && g.budget.Likelier(&looked, &made) {
		return looked
	}
	c.follow(q.sequence.Tokens())
	made.Behind = c.behind()
	return made
}

// make draws the tokens that were taken of those that the model is about to make, and lets it
// compute what comes after them where more were taken. It reports whether it has.
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
				guess.Tokens = guess.Made // it is not decided anew
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
		g.budget.Made(tokens, took.Seconds())
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

// took takes what it took to guess for the step that comes and to choose it anew. Without
// guesses it was chosen while another one ran.
func (g *guesser) took(all time.Duration, guessed bool) {
	if g == nil {
		return
	}
	if !guessed {
		all = g.made
	}
	g.all = all
	g.budget.Sought((all - g.made).Seconds())
}

// spent returns what took was told for the step that is about to run.
func (g *guesser) spent() (all time.Duration) {
	if g != nil {
		all, g.all, g.made = g.all, 0, 0
	}
	return all
}

// runs takes what is in the step that is about to run.
func (g *guesser) runs(e *Engine) {
	if g == nil {
		return
	}
	g.decoding, g.tokens, g.alone = 0, 0, true
	for i, s := range e.scheduler.Sequences() {
		p := &e.pieces[i]
		if p.Rows == batch.None || p.Rows == batch.Last && len(p.Tokens) > 1 { // of a prompt
			g.alone = false
			continue
		}
		g.decoding, g.tokens = g.decoding+1, g.tokens+len(p.Tokens)
		e.requests[s].guessed.taken = len(p.Tokens) - 1
	}
}

// learn takes what came of a step that took so many seconds, choosing among its rows included.
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
		if q.over { // at a token that nobody compared with its guess
			g.guesses[i].Take = right
		}
		g.budget.Verified(&g.guesses[i], right)
		came += right
	}
	switch {
	case g.tokens > g.decoding && g.alone:
		g.budget.Drafted(g.decoding, g.tokens, came, seconds)
	case g.tokens > g.decoding:
		g.budget.Drafted(g.decoding, g.tokens, came, 0)
	case g.alone && g.decoding > 0:
		g.budget.Plain(g.decoding, seconds)
	}
}

// Ways to guess tokens, as people name them: not at all, and by what followed elsewhere.
const (
	SpeculateOff   = "off"
	SpeculateNgram = "ngram"
)
