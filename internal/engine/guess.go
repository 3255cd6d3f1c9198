package engine

import (
	"context"
	"math"
	"time"

	"github.com/smelt-ml/smelt/internal/batch"
	"github.com/smelt-ml/smelt/internal/engine/draft"
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/lower"
)

// Guessing says how an engine guesses tokens before it computes them.
type Guessing struct {
	Rows   int  // most guesses of a step; 0: none
	Lookup bool // by what stands elsewhere in the sequence and in what was generated before
	Eager  bool // all that there is room for are verified, whatever they cost: tests want them
}

// GuessesOf returns how many guesses a step of a Plan has rows of logits for, beside one for
// each of so many sequences.
func GuessesOf(plan *lower.Plan, sequences int) int {
	rows := 0
	for i := range plan.Phases {
		if ph := &plan.Phases[i]; ph.Longest.Max > 1 {
			rows = max(rows, int(ph.Bounds[ir.R]))
		}
	}
	return max(0, rows-sequences)
}

// ahead is how many tokens of a sequence are guessed at most.
const ahead = 32

// guesser guesses tokens for an engine, and learns what comes of it. It is of the engine's
// goroutines, one at a time. A nil one does nothing.
type guesser struct {
	budget *draft.Budget
	lookup *draft.Lookup
	eager  bool

	// Of the step that comes or has run.
	guesses          []draft.Guess
	of               []*request // by guess
	decoding, tokens int        // sequences that decode, and their tokens with the guesses
	alone            bool       // these are the whole step
}

func newGuesser(l Limits, g Guessing, context int) *guesser {
	if g.Rows == 0 || !g.Lookup {
		return nil
	}
	return &guesser{budget: draft.NewBudget(l.Sequences + g.Rows), lookup: draft.NewLookup(context), eager: g.Eager}
}

// How long an engine may measure steps when it starts, each of them at most so often.
const (
	measuring = 300 * time.Millisecond
	samples   = 3
)

// measure finds what steps of several rows take, from few on, as long as there is time. It
// writes blocks that nobody has yet.
func (g *guesser) measure(ctx context.Context, r *Runner, blocks, most int) error {
	if g == nil || g.eager {
		return nil
	}
	table := batch.Contiguous(r.block, min(blocks*r.block, most))
	start := time.Now()
	for n := 2; n <= min(most, len(table)*r.block); n *= 2 {
		best := math.Inf(1)
		for i := 0; i < samples && (i < 2 || time.Since(start) < measuring); i++ { // the first finds everything cold
			begun := time.Now()
			if err := r.Run(ctx, batch.Piece{Tokens: make([]int32, n), Blocks: table, Rows: batch.All}); err != nil {
				return err
			}
			best = min(best, time.Since(begun).Seconds())
		}
		g.budget.Measured(n, best)
		if time.Since(start) > measuring {
			break
		}
	}
	return nil
}

// guessed is what a guesser knows of a request.
type guessed struct {
	text  *draft.Text
	rates draft.Rates
	next  []int32 // what may follow its last token
	taken int     // how many guesses the step took
	was   int     // and how many were right before it
}

// begin takes a request's tokens.
func (g *guesser) begin(q *request) {
	if g != nil {
		q.guessed.text = g.lookup.Begin(q.Salt, q.Tokens)
	}
}

// add takes a token that was chosen.
func (g *guesser) add(q *request, id int32) {
	if g != nil {
		q.guessed.text.Append(id)
	}
}

// end forgets a request.
func (g *guesser) end(q *request) {
	if g != nil {
		q.guessed.text.End()
	}
}

// guess gives the scheduler guesses for the next step, as many as are worth their time, and
// reports whether there are any: the step is to be chosen anew. Who chooses outside has none:
// a step waits for one token of each, and not for several.
func (g *guesser) guess(e *Engine) bool {
	if g == nil {
		return false
	}
	decoding, room := e.scheduler.Decoding()
	clear(g.of)
	g.guesses, g.of = g.guesses[:0], g.of[:0]
	for _, s := range decoding {
		q := e.requests[s]
		q.guessed.taken = 0
		if q.Chooser == Outside || room == 0 {
			continue
		}
		var agreed int
		q.guessed.next, agreed = q.guessed.text.Propose(q.guessed.next[:0], min(ahead, room))
		if n := len(q.guessed.next); n > 0 {
			q.guessed.was = s.Accepted()
			g.guesses = append(g.guesses, draft.Guess{Rates: &q.guessed.rates, Agreed: agreed, Tokens: n})
			g.of = append(g.of, q)
		}
	}
	taken := 0
	if g.eager {
		for i := range g.guesses {
			g.guesses[i].Take = min(g.guesses[i].Tokens, room-taken)
			taken += g.guesses[i].Take
		}
	} else {
		taken = g.budget.Choose(len(decoding), g.guesses, room)
	}
	if taken == 0 {
		return false
	}
	for i, q := range g.of {
		e.scheduler.Draft(q.sequence, q.guessed.next[:g.guesses[i].Take])
	}
	return true
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

// learn takes what came of a step that took so many seconds.
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
