package schedule

import (
	"errors"
	"fmt"
	"slices"

	"github.com/smelt-ml/smelt/internal/batch"
	"github.com/smelt-ml/smelt/internal/engine/pages"
)

// Options bound the steps of a scheduler.
type Options struct {
	Sequences int // maximum number of running sequences
	Tokens    int // maximum number of tokens of a step: at least Sequences
	Piece     int // maximum number of tokens of a sequence in a step; 0: Tokens
	Context   int // maximum number of tokens of a sequence
	Drafts    int // maximum number of guesses in a step, each with a row of logits; 0: none
}

// Patience is the number of times that a sequence is passed by later ones, or preempted, before
// it goes first.
const Patience = 32

// ErrTooLong is wrapped where a sequence could never fit into the cache.
var ErrTooLong = errors.New("there is no room for the sequence")

// Scheduler chooses steps. It is used by one goroutine at a time, and so is its pool.
type Scheduler struct {
	options Options
	pool    *pages.Pool
	arrived uint64
	running []*Sequence // in order, like waiting
	waiting []*Sequence
	pieces  []batch.Piece
	chosen  []*Sequence // by piece
	decode  []*Sequence // the last result of Decoding
	counts  Counts
}

// Counts are a scheduler's totals.
type Counts struct {
	Steps     int64
	Tokens    int64 // of all steps
	Preempted int64 // preemptions
	Drafted   int64 // guesses in steps
	Accepted  int64 // of Drafted, the right ones
}

// Sequence is a list of tokens, of which the first are computed.
type Sequence struct {
	priority int
	arrival  uint64
	passed   int
	tokens   []int32
	computed int
	prompt   int // number of tokens at Add
	cached   int // of prompt, tokens found in the cache at the first admission
	ran      bool
	decodes  bool // whether all tokens were computed once since it was admitted
	last     last
	table    *pages.Table

	guessed           []int32 // for the next step: the last token and guesses after it
	open              []int32 // of the last step: computed guesses that are neither accepted nor rejected yet
	drafted, accepted int
}

// last is the state of the last token of a sequence.
type last uint8

const (
	known    last = iota
	expected      // known before the step that computes it runs
	late          // not known yet, and excluded from steps
)

// unknown is the placeholder of a token that is not known yet. No step computes it.
const unknown = -1

// Tokens returns the sequence, valid until the next call and read-only.
func (q *Sequence) Tokens() []int32 { return q.tokens }

// Prompt returns the number of tokens that the sequence was added with.
func (q *Sequence) Prompt() int { return q.prompt }

// Cached returns the number of prompt tokens that were found in the cache.
func (q *Sequence) Cached() int { return q.cached }

// Drafted returns the number of tokens of the sequence that were guessed and computed.
func (q *Sequence) Drafted() int { return q.drafted }

// Accepted returns the number of guesses that were right.
func (q *Sequence) Accepted() int { return q.accepted }

// New returns a scheduler over the blocks of a pool.
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

// Context returns the maximum number of a sequence's tokens in the cache.
func (s *Scheduler) Context() int { return s.options.Context }

// Running returns the number of running sequences.
func (s *Scheduler) Running() int { return len(s.running) }

// Waiting returns the number of waiting sequences.
func (s *Scheduler) Waiting() int { return len(s.waiting) }

// Counts returns the scheduler's totals.
func (s *Scheduler) Counts() Counts { return s.counts }

// Add adds a waiting sequence and keeps its tokens, of which there must be at least one. Higher
// priorities go first.
func (s *Scheduler) Add(tokens []int32, priority int, salt string) (*Sequence, error) {
	if len(tokens) == 0 || len(tokens) > s.options.Context {
		return nil, fmt.Errorf("%w: %d tokens of %d", ErrTooLong, len(tokens), s.options.Context)
	}
	s.arrived++
	q := &Sequence{priority: priority, arrival: s.arrived, tokens: tokens, prompt: len(tokens), table: s.pool.NewTable(salt)}
	insert(&s.waiting, q)
	return q, nil
}

// Append replaces the placeholder that Expect added by a token, or, where there is none, adds the
// token to the sequence. The token accepts the first open guess that it equals, and otherwise
// rejects all open guesses. Append returns false if the sequence exceeds the cache; the caller must
// then remove it.
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

// Expect adds a placeholder to a sequence whose tokens are all computed. Append must fill it in
// before the step that computes it runs. A sequence with open guesses cannot expect a token.
func (s *Scheduler) Expect(q *Sequence) {
	q.tokens, q.last = append(q.tokens, unknown), expected
}

// Late excludes a sequence with an expected token from all steps until Append. The sequence
// keeps its blocks unless an earlier one in the order needs them.
func (s *Scheduler) Late(q *Sequence) { q.last = late }

// Open returns the guesses of the last step that are neither accepted nor rejected yet. The step
// has a row of logits after each, beside the row after the sequence's last token. The result is
// valid until the next call and read-only.
func (q *Sequence) Open() []int32 { return q.open }

// Decoding returns, in order, the sequences that bring one token to the next step unless they
// are preempted, and the number of guesses that there is room for in total. The list is valid
// until the next call.
func (s *Scheduler) Decoding() (list []*Sequence, guesses int) {
	s.decode = s.decode[:0]
	for _, q := range s.running {
		if q.missing() == 1 && q.last == known {
			s.decode = append(s.decode, q)
		}
	}
	return s.decode, s.room(len(s.decode))
}

// room returns the number of guesses that fit into a step with the given number of decoding
// sequences: the rest of the budget, or half of it where there are prompts.
func (s *Scheduler) room(decoding int) int {
	left := s.options.Tokens - decoding
	if s.short() || slices.ContainsFunc(s.running, func(q *Sequence) bool { return q.missing() > 1 && !q.decodes }) {
		left /= 2
	}
	return min(left, s.options.Drafts)
}

// short reports whether sequences wait only for blocks.
func (s *Scheduler) short() bool {
	return len(s.waiting) > 0 && len(s.running) < s.options.Sequences
}

// Draft sets the guesses after a sequence's last token, which must be known. The next step
// verifies as many as it has room for. A step that was chosen before must be chosen again.
func (s *Scheduler) Draft(q *Sequence, ids []int32) {
	q.guessed = append(append(q.guessed[:0], q.tokens[len(q.tokens)-1]), ids...)
}

// Remove removes a sequence, at any time between steps, and frees its blocks.
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

// before reports whether q goes before r.
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

// Step returns the pieces of the next step, none where all sequences wait for late tokens. They
// are valid until the next call. The pool's copies must be made first, then the step runs and
// [Scheduler.Done] is called; if it fails, [Scheduler.Fail] is. If a sequence was added, removed
// or late before the step ran, the step must be chosen again.
func (s *Scheduler) Step() []batch.Piece {
	s.pieces, s.chosen = s.pieces[:0], s.chosen[:0]
	left, preempted := s.options.Tokens, s.counts.Preempted
	behind := 0 // decoding sequences still to come, each with at least one token
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
	admits := s.counts.Preempted == preempted // after a preemption blocks are short
	for i := 0; admits && i < min(len(s.waiting), s.options.Sequences) && left > 0 && len(s.running) < s.options.Sequences; {
		q := s.waiting[i]
		if q.last != known || s.awaits(q) {
			i++ // those behind it may be admitted
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

// Fail records that a step after Done did not run to its end, so that the contents of the cache
// are unknown. It returns the running sequences, which must be removed.
func (s *Scheduler) Fail() []*Sequence {
	s.pool.Forget()
	return slices.Clone(s.running)
}

// Sequences returns the sequence of each piece of the step.
func (s *Scheduler) Sequences() []*Sequence { return s.chosen }

// Done records that the step runs before any other, so that later steps can rely on what it
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

// goesOn reports whether a sequence decodes in the next step unless it is preempted: it brings
// the token after the computed ones, and those that follow it without alternative.
func (s *Scheduler) goesOn(q *Sequence) bool {
	return (q.missing() == 1 || q.decodes && q.missing() > 1) && q.last != late && len(q.tokens) <= s.options.Context
}

// guess adds guesses to the decoding pieces of a step, and returns their number. They take
// blocks only where no sequence lacks them.
func (s *Scheduler) guess(left int) (taken int) {
	room := min(left, s.room(len(s.pieces)))
	short := s.short()
	for i, q := range s.chosen {
		most := min(len(q.guessed)-1, room-taken, s.options.Piece-1, s.options.Context-len(q.tokens))
		if held := s.pool.Slots()*len(q.table.Blocks()) - len(q.tokens); most > held && (short || !q.table.Extend(q.computed, len(q.tokens)+most)) {
			most = held
		}
		if most > 0 {
			q.table.Reach(len(q.tokens) + most)
			p := &s.pieces[i]
			p.Tokens, p.Blocks, p.Windows, p.Rows = q.guessed[:1+most], q.table.Blocks(), q.table.Windows(), batch.All
			taken += most
		}
	}
	return taken
}

// grow allocates blocks for a sequence's next tokens, preempting the last running sequences
// where none is free. It reports whether the sequence itself still runs.
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

// preempt makes a running sequence wait again. The sequence is not in the step yet, because a
// step is chosen in order, and decoding sequences are chosen before prompts.
func (s *Scheduler) preempt(q *Sequence) {
	q.table.Release()
	q.computed, q.decodes, q.open, q.guessed = 0, false, nil, q.guessed[:0]
	q.passed++
	s.running = without(s.running, q)
	insert(&s.waiting, q)
	s.counts.Preempted++
}

// choose adds a piece with a sequence's missing tokens, at most most of them, and returns their
// number.
func (s *Scheduler) choose(q *Sequence, most int) int {
	if s.pool.Recurs() && q.missing() > 1 && !q.decodes {
		s.share(q)
	}
	n := q.table.Stop(q.computed, min(q.missing(), most, s.options.Piece))
	q.table.Reach(q.computed + n)
	p := batch.Piece{Tokens: q.tokens[q.computed:][:n], Start: q.computed, Blocks: q.table.Blocks(), State: q.table.State(), Windows: q.table.Windows(), Rows: batch.None}
	if n == q.missing() {
		p.Rows = batch.Last
	}
	s.pieces, s.chosen = append(s.pieces, p), append(s.chosen, q)
	return n
}

// share makes a sequence leave recurrent states where waiting ones part from it.
func (s *Scheduler) share(q *Sequence) {
	for _, w := range s.waiting[:min(len(s.waiting), s.options.Sequences)] {
		if w.last != known {
			continue
		}
		if common := w.table.Common(w.tokens, q.table, q.tokens); common > w.table.Known(w.tokens) {
			q.table.Leave(common, q.computed)
		}
	}
}

// awaits reports whether a running sequence is about to compute the next block of a waiting one, or, with
// recurrent states, all that they have in common.
// A sequence that was passed [Patience] times does not wait for that.
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
		if s.pool.Recurs() {
			if common := q.table.Common(q.tokens, r.table, r.tokens); common > next && common*slots > r.computed {
				return true
			}
			continue
		}
		if end := (next + 1) * slots; end <= len(q.tokens) && end <= len(r.tokens) && end > r.computed &&
			q.table.Identity(next, q.tokens) == r.table.Identity(next, r.tokens) {
			return true
		}
	}
	return false
}

// admit moves a waiting sequence to the running ones, if there are blocks for its tokens and one
// more for each running sequence that may grow. Without that reserve it could be preempted at
// once.
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

// pass counts, for each waiting sequence, the later ones that a step has admitted before it:
// those of its pieces from first on.
func (s *Scheduler) pass(first int) {
	for i := 0; i < len(s.waiting); i++ {
		q, had := s.waiting[i], s.waiting[i].passed
		for _, r := range s.chosen[first:] {
			if q.arrival < r.arrival {
				q.passed++
			}
		}
		if had < Patience && q.passed >= Patience { // its place in the order changes
			s.waiting = slices.Delete(s.waiting, i, i+1)
			insert(&s.waiting, q)
		}
	}
}
