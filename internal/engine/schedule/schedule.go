package schedule

import (
	"errors"
	"fmt"
	"slices"

	"github.com/smelt-ml/smelt/internal/batch"
	"github.com/smelt-ml/smelt/internal/engine/pages"
)

// Options bound steps.
type Options struct {
	Sequences int // most that run at once
	Tokens    int // most of a step: at least Sequences, so that a prompt always goes on
	Piece     int // most that one sequence brings to a step; 0: Tokens
	Context   int // most tokens of a sequence
	Drafts    int // most tokens of a step that are guessed, each with a row of logits; 0: none
}

// Patience is how often a sequence is passed by later ones, or gives up its blocks to
// others, before it goes first.
const Patience = 32

// ErrTooLong is wrapped where a sequence would never fit into the cache.
var ErrTooLong = errors.New("there is no room for the sequence")

// Scheduler chooses steps. It is used by one goroutine at a time, and so is its pool.
type Scheduler struct {
	options Options
	pool    *pages.Pool
	arrived uint64
	running []*Sequence // in their order, as are those that wait
	waiting []*Sequence
	pieces  []batch.Piece
	chosen  []*Sequence // by piece
	decode  []*Sequence // as they were asked for last
	counts  Counts
}

// Counts tell what a scheduler has done.
type Counts struct {
	Steps     int64
	Tokens    int64 // of all steps
	Preempted int64 // sequences that gave up their blocks
	Drafted   int64 // guesses, as tokens of steps
	Accepted  int64 // of them, those that were right
}

// Sequence is tokens that follow each other, of which the first are computed.
type Sequence struct {
	priority int
	arrival  uint64
	passed   int
	tokens   []int32
	computed int
	prompt   int // tokens that it came with
	cached   int // of them, those that were there when it first ran
	ran      bool
	decodes  bool // all of it was computed since it has its blocks
	last     last
	table    *pages.Table

	guessed           []int32 // for the next step: the last token, and what may follow
	open              []int32 // of the last step: what it has computed and nobody has chosen yet
	drafted, accepted int
}

// last says what is known of the last of a sequence's tokens.
type last uint8

const (
	known    last = iota
	expected      // what it is, before the step is run that it comes in
	late          // it comes in none of the next steps
)

// unknown stands for a token until it is known: no step takes it.
const unknown = -1

// Tokens returns the sequence. It is valid until the next call, and not to be written.
func (q *Sequence) Tokens() []int32 { return q.tokens }

// Prompt returns how many tokens it came with.
func (q *Sequence) Prompt() int { return q.prompt }

// Cached returns how many of these others had computed.
func (q *Sequence) Cached() int { return q.cached }

// Drafted and Accepted return how many tokens were guessed of it, and how many of these were
// right.
func (q *Sequence) Drafted() int { return q.drafted }

// Accepted is described at Drafted.
func (q *Sequence) Accepted() int { return q.accepted }

// New returns a scheduler that gives out the blocks of a pool.
func New(pool *pages.Pool, o Options) *Scheduler {
	if o.Piece == 0 {
		o.Piece = o.Tokens
	}
	if o.Sequences < 1 || o.Tokens < o.Sequences || o.Piece < 1 || o.Context < 1 || o.Drafts < 0 {
		panic(fmt.Sprintf("schedule: options %+v", o))
	}
	o.Context = min(o.Context, pool.Blocks()*pool.Slots())
	return &Scheduler{options: o, pool: pool}
}

// Context returns how many tokens of a sequence the cache holds at most.
func (s *Scheduler) Context() int { return s.options.Context }

// Running and Waiting return how many sequences do.
func (s *Scheduler) Running() int { return len(s.running) }

// Waiting is described at Running.
func (s *Scheduler) Waiting() int { return len(s.waiting) }

// Counts returns what the scheduler has done.
func (s *Scheduler) Counts() Counts { return s.counts }

// Add lets a sequence wait. It keeps the tokens, one at least. Of two priorities the higher
// goes first.
func (s *Scheduler) Add(tokens []int32, priority int, salt string) (*Sequence, error) {
	if len(tokens) == 0 || len(tokens) > s.options.Context {
		return nil, fmt.Errorf("%w: %d tokens of %d", ErrTooLong, len(tokens), s.options.Context)
	}
	s.arrived++
	q := &Sequence{priority: priority, arrival: s.arrived, tokens: tokens, prompt: len(tokens), table: s.pool.NewTable(salt)}
	insert(&s.waiting, q)
	return q, nil
}

// Append adds a token to a sequence all of whose tokens are computed, or says which the one
// is that was expected, or adds one behind these that follows in any case: the next step
// brings them all, as far as there is room for them. Where the cache holds no more of it, it returns false: the sequence
// must be removed. Where the token was guessed, it is computed too, and so is the row after
// it.
func (s *Scheduler) Append(q *Sequence, id int32) bool {
	if q.last == known {
		q.tokens = append(q.tokens, id)
	}
	q.tokens[len(q.tokens)-1], q.last = id, known
	if len(q.open) > 0 && q.open[0] == id {
		q.open = q.open[1:]
		q.accepted++
		s.counts.Accepted++
		q.computed++
		q.table.Commit(q.tokens, q.computed)
	} else if len(q.open) > 0 { // what was computed behind it is not the sequence
		q.open = nil
		q.table.Shrink(len(q.tokens))
	}
	return len(q.tokens) <= s.options.Context
}

// Expect adds a token to a sequence all of whose tokens are computed, which Append will tell
// before the next step is run: that step brings it. None is expected after guesses.
func (s *Scheduler) Expect(q *Sequence) {
	q.tokens, q.last = append(q.tokens, unknown), expected
}

// Late tells that a token that was expected takes longer: until Append no step brings it. The
// sequence keeps its blocks meanwhile, as long as nobody needs them who comes before it.
func (s *Scheduler) Late(q *Sequence) { q.last = late }

// Open returns the guesses of the last step that nobody has chosen or refused yet: there is a
// row of logits after each, beside that after the sequence's last token. It is valid until
// the next call, and not to be written.
func (q *Sequence) Open() []int32 { return q.open }

// Decoding returns the sequences that bring one token to the next step, unless they have to
// give up their blocks, in their order; and how many guesses there is room for, of all
// together. It is valid until the next call.
func (s *Scheduler) Decoding() (list []*Sequence, guesses int) {
	s.decode = s.decode[:0]
	for _, q := range s.running {
		if q.missing() == 1 && q.last == known {
			s.decode = append(s.decode, q)
		}
	}
	return s.decode, s.room(len(s.decode))
}

// room returns how many guesses a step has room for beside so many sequences that decode:
// what these leave, or half of it where there are prompts.
func (s *Scheduler) room(decoding int) int {
	left := s.options.Tokens - decoding
	if s.short() || slices.ContainsFunc(s.running, func(q *Sequence) bool { return q.missing() > 1 && !q.decodes }) {
		left /= 2
	}
	return min(left, s.options.Drafts)
}

// short reports whether sequences wait for nothing but blocks.
func (s *Scheduler) short() bool {
	return len(s.waiting) > 0 && len(s.running) < s.options.Sequences
}

// Draft says what may follow a sequence's last token, which is known: the next step verifies
// as much of it as there is room for. A step that was asked for before is asked for anew.
func (s *Scheduler) Draft(q *Sequence, ids []int32) {
	q.guessed = append(append(q.guessed[:0], q.tokens[len(q.tokens)-1]), ids...)
}

// Remove takes a sequence out, at any time between steps. Its blocks are free.
func (s *Scheduler) Remove(q *Sequence) {
	q.table.Release()
	s.running = without(s.running, q)
	s.waiting = without(s.waiting, q)
}

func without(list []*Sequence, q *Sequence) []*Sequence {
	if i := slices.Index(list, q); i >= 0 {
		return slices.Delete(list, i, i+1)
	}
	return list
}

// before is the order of sequences.
func (q *Sequence) before(r *Sequence) bool {
	if a, b := q.passed >= Patience, r.passed >= Patience; a != b {
		return a
	} else if !a && q.priority != r.priority {
		return q.priority > r.priority
	}
	return q.arrival < r.arrival
}

func insert(list *[]*Sequence, q *Sequence) {
	i := len(*list)
	for i > 0 && q.before((*list)[i-1]) {
		i--
	}
	*list = slices.Insert(*list, i, q)
}

func (q *Sequence) missing() int { return len(q.tokens) - q.computed }

// Step returns what the next step computes: nothing where nobody waits for anything but
// late tokens. The copies that the pool asks for are to be made before. It is valid until the
// next call; [Scheduler.Done] tells that the step is run, and who fails to run it removes its
// sequences. Where somebody was added, removed or late since, a step that was not run is
// asked for anew.
func (s *Scheduler) Step() []batch.Piece {
	s.pieces, s.chosen = s.pieces[:0], s.chosen[:0]
	left, preempted := s.options.Tokens, s.counts.Preempted
	behind := 0 // of those that go on, each has a token at least
	for _, q := range s.running {
		if s.goesOn(q) {
			behind++
		}
	}
	for i := 0; i < len(s.running); i++ {
		if q := s.running[i]; s.goesOn(q) {
			if behind--; s.grow(q) {
				left -= s.choose(q, left-behind)
			}
		}
	}
	if s.options.Drafts > 0 && s.counts.Preempted == preempted {
		left -= s.guess(left)
	}
	for i := 0; i < len(s.running) && left > 0; i++ {
		if q := s.running[i]; q.missing() > 1 && !q.decodes {
			left -= s.choose(q, left)
		}
	}
	first := len(s.chosen)
	admits := s.counts.Preempted == preempted // else blocks are short
	for i := 0; admits && i < min(len(s.waiting), s.options.Sequences) && left > 0 && len(s.running) < s.options.Sequences; {
		q := s.waiting[i]
		if q.last != known || s.awaits(q) {
			i++ // and those behind need not wait for the same
			continue
		}
		if !s.admit(q) {
			break
		}
		left -= s.choose(q, left)
	}
	s.pass(first)
	for _, q := range s.running {
		q.guessed = q.guessed[:0]
	}
	return s.pieces
}

// Fail tells that a step was not run that Done was told of, or not to its end: nobody knows
// what is in the cache. It returns those that run, which must be removed.
func (s *Scheduler) Fail() []*Sequence {
	s.pool.Forget()
	return slices.Clone(s.running)
}

// Sequences returns whose the pieces of the step are.
func (s *Scheduler) Sequences() []*Sequence { return s.chosen }

// Done tells that the step is run, before any other: those that follow count on what it
// computes.
func (s *Scheduler) Done() {
	s.counts.Steps++
	for i, q := range s.chosen {
		n := len(s.pieces[i].Tokens)
		s.counts.Tokens += int64(n)
		if s.pieces[i].Rows == batch.All {
			q.open = s.pieces[i].Tokens[1:]
			q.drafted += len(q.open)
			s.counts.Drafted += int64(len(q.open))
			n = 1
		}
		q.computed += n
		q.decodes = q.decodes || q.missing() == 0
		q.table.Commit(q.tokens, q.computed)
	}
}

// goesOn tells whether a sequence decodes in the next step, unless it has to give up its
// blocks: it brings the token after those that are computed, and what follows that in any
// case.
func (s *Scheduler) goesOn(q *Sequence) bool {
	return (q.missing() == 1 || q.decodes && q.missing() > 1) && q.last != late && len(q.tokens) <= s.options.Context
}

// guess adds guesses to the pieces of a step that decode, and returns how many. They take
// blocks only where nobody lacks them.
func (s *Scheduler) guess(left int) (taken int) {
	room := min(left, s.room(len(s.pieces)))
	short := s.short()
	for i, q := range s.chosen {
		most := min(len(q.guessed)-1, room-taken, s.options.Piece-1, s.options.Context-len(q.tokens))
		if held := s.pool.Slots()*len(q.table.Blocks()) - len(q.tokens); most > held && (short || !q.table.Extend(q.computed, len(q.tokens)+most)) {
			most = held
		}
		if most > 0 {
			p := &s.pieces[i]
			p.Tokens, p.Blocks, p.Rows = q.guessed[:1+most], q.table.Blocks(), batch.All
			taken += most
		}
	}
	return taken
}

// grow gets the block for a sequence's next token, from the last in the order if there is
// none left, and reports whether the sequence still runs: it may be the last itself.
func (s *Scheduler) grow(q *Sequence) bool {
	for !q.table.Extend(q.computed, len(q.tokens)) {
		last := s.running[len(s.running)-1]
		s.preempt(last)
		if last == q {
			return false
		}
	}
	return true
}

// preempt makes a sequence wait again. Those of a step are chosen in the order, and those
// that ask for blocks come before prompts: it is not chosen yet.
func (s *Scheduler) preempt(q *Sequence) {
	q.table.Release()
	q.computed, q.decodes, q.open, q.guessed = 0, false, nil, q.guessed[:0]
	q.passed++
	s.running = without(s.running, q)
	insert(&s.waiting, q)
	s.counts.Preempted++
}

// choose brings as many tokens of a sequence as are missing, but at most so many.
func (s *Scheduler) choose(q *Sequence, most int) int {
	n := min(q.missing(), most, s.options.Piece)
	p := batch.Piece{Tokens: q.tokens[q.computed:][:n], Start: q.computed, Blocks: q.table.Blocks(), Rows: batch.None}
	if n == q.missing() {
		p.Rows = batch.Last
	}
	s.pieces, s.chosen = append(s.pieces, p), append(s.chosen, q)
	return n
}

// awaits reports whether a sequence that runs is about to compute what comes next in one
// that waits. Who was passed too often waits no longer.
func (s *Scheduler) awaits(q *Sequence) bool {
	if q.passed >= Patience {
		return false
	}
	next, slots := -1, s.pool.Slots()
	for _, r := range s.running {
		if r.missing() <= 1 {
			continue
		}
		if next < 0 {
			next = q.table.Known(q.tokens)
		}
		if end := (next + 1) * slots; end <= len(q.tokens) && end <= len(r.tokens) && end > r.computed &&
			q.table.Identity(next, q.tokens) == r.table.Identity(next, r.tokens) {
			return true
		}
	}
	return false
}

// admit lets a sequence run, if there are blocks for its tokens and one more for each that
// runs already and may grow: who had to give up its blocks at once came for nothing.
func (s *Scheduler) admit(q *Sequence) bool {
	spare, most := 0, s.pool.For(s.options.Context)
	for _, r := range s.running {
		if len(r.table.Blocks()) < most {
			spare++
		}
	}
	cached, ok := q.table.Begin(q.tokens, len(q.tokens), spare)
	if !ok {
		return false
	}
	if !q.ran {
		q.cached, q.ran = min(cached, q.prompt), true
	}
	q.computed = cached
	s.waiting = without(s.waiting, q)
	insert(&s.running, q)
	return true
}

// pass notes of those that wait whom a step has let run before them: the sequences that it
// chose from the first on.
func (s *Scheduler) pass(first int) {
	for i := 0; i < len(s.waiting); i++ {
		q, had := s.waiting[i], s.waiting[i].passed
		for _, r := range s.chosen[first:] {
			if q.arrival < r.arrival {
				q.passed++
			}
		}
		if had < Patience && q.passed >= Patience { // it has another place from now on
			s.waiting = slices.Delete(s.waiting, i, i+1)
			insert(&s.waiting, q)
		}
	}
}
