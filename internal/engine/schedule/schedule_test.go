package schedule

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/batch"
	"github.com/smelt-ml/smelt/internal/engine/pages"
	"github.com/smelt-ml/smelt/internal/testfiles"
)

func ExampleScheduler() {
	s := New(pages.NewPool(16, 4), Options{Sequences: 4, Tokens: 8, Context: 64})
	add := func(n, first int) *Sequence {
		q, _ := s.Add(slices.Repeat([]int32{int32(first)}, n), 0, "")
		return q
	}
	names := map[*Sequence]string{add(3, 1): "short", add(20, 2): "long", add(2, 3): "late"}
	for range 5 {
		pieces := s.Step()
		var line []string
		for i, q := range s.Sequences() {
			line = append(line, fmt.Sprintf("%s %d+%d", names[q], pieces[i].Start, len(pieces[i].Tokens)))
		}
		fmt.Println(strings.Join(line, ", "))
		s.Done()
		for i, q := range s.Sequences() {
			if pieces[i].Rows == batch.Last {
				s.Append(q, 9)
			}
		}
	}
	// Output:
	// short 0+3, long 0+5
	// short 3+1, long 5+7
	// short 4+1, long 12+7
	// short 5+1, long 19+1, late 0+2
	// short 6+1, long 20+1, late 2+1
}

// faults are planted into histories: each must be noticed.
type faults struct {
	youngestFirst, oldestGivesUp, overBudget, noPatience, leak, computedTooMuch, leftOut, stale, forgetCopies, tooEarly bool

	wrongIsRight, oneLess, known, givenBack, tooMany, takes, oldGuess bool // of drafts

	narrow bool // of windows

	oneBefore bool // of recurrent states
}

// client is who asks for a sequence in a history.
type client struct {
	*Sequence
	salt     string
	priority int
	arrival  int
	wants    int // tokens after the prompt
	passed   int // as a client sees it: later ones began, or it had to give up
	later    int // of these, how often later ones began
	running  bool
}

func (c *client) before(d *client) bool {
	if a, b := c.passed >= Patience, d.passed >= Patience; a != b {
		return a
	} else if !a && c.priority != d.priority {
		return c.priority > d.priority
	}
	return c.arrival < d.arrival
}

// randomGroups are blocks of layers without a window, of layers with one, or of both; the groups behind
// the first are as small as they may be.
func randomGroups(r *rand.Rand, blocks, slots int, o *Options) []pages.Group {
	groups := []pages.Group{{Blocks: blocks}}
	if r.IntN(2) == 0 {
		return groups
	}
	if r.IntN(3) == 0 {
		groups[0].Window = 1 + r.IntN(30)
	}
	tokens := o.Tokens
	if o.Piece > 0 {
		tokens = o.Piece
	}
	for range r.IntN(3) {
		window := 1 + r.IntN(20)
		if groups[0].Window > 0 {
			window = 1 + r.IntN(groups[0].Window)
		}
		if !slices.ContainsFunc(groups, func(g pages.Group) bool { return g.Window == window }) {
			groups = append(groups, pages.Group{Window: window, Blocks: min(blocks, pages.Reserve(window, slots, o.Sequences, tokens))})
		}
	}
	return groups
}

// slotOf returns the slot of a token of a piece in the cache of a group.
func slotOf(p *batch.Piece, group, token, slots int) int {
	blocks := p.Blocks
	if group > 0 {
		blocks = p.Windows[group-1].Blocks
	}
	return int(blocks[token/slots])*slots + token%slots
}

// history runs clients over a scheduler and a simulated cache until all have what they
// want, and returns the first thing that is against the laws.
func history(seed uint64, fault faults) (counts Counts, err error) {
	defer func() {
		if x := recover(); x != nil {
			err = fmt.Errorf("panic: %v", x)
		}
	}()
	r := rand.New(rand.NewPCG(seed, 5))
	slots := 1 + r.IntN(4)
	blocks := 1 + r.IntN(24)
	o := Options{Sequences: 1 + r.IntN(6), Context: 4 + r.IntN(40)}
	o.Tokens = o.Sequences + r.IntN(12)
	if r.IntN(2) == 0 {
		o.Piece = 1 + r.IntN(o.Tokens)
	}
	if r.IntN(2) == 0 {
		o.Drafts = r.IntN(10)
	}
	groups := randomGroups(r, blocks, slots, &o)
	narrow := slices.Clone(groups)
	if fault.narrow {
		for i := range narrow {
			narrow[i].Window = max(min(1, narrow[i].Window), narrow[i].Window-slots-1)
		}
	}
	pool := pages.NewGroups(slots, narrow...)
	var states []uint64 // a hash of the tokens before each
	if o.Drafts == 0 && seed%3 > 0 {
		states = make([]uint64, pages.States(o.Sequences))
		pool.Recur(len(states))
	}
	s := New(pool, o)
	caches := make([][]uint64, len(groups)) // of each group, a hash of the sequence up to the token
	for i, g := range groups {
		caches[i] = make([]uint64, g.Blocks*slots)
	}
	cache := caches[0]
	var clients []*client
	letters, levels, later := 1+r.IntN(3), 1+r.IntN(3), 1+r.IntN(120)
	arrivals := 0
	ahead := r.IntN(2) == 0 // each step is chosen while the one before is computed
	var pieces []batch.Piece
	planned := false
	plan := func(guesses bool) error {
		if fault.youngestFirst {
			slices.Reverse(s.waiting)
		}
		if fault.oldestGivesUp {
			slices.Reverse(s.running)
		}
		if fault.overBudget {
			s.options.Tokens = o.Tokens + 1
		}
		if fault.noPatience {
			for _, q := range s.waiting {
				q.passed = 0
			}
		}
		var hidden *Sequence
		if fault.leftOut && len(s.running) > 1 {
			hidden, s.running = s.running[0], s.running[1:]
		}
		before := slices.Clone(clients)
		if fault.tooMany && guesses {
			s.options.Drafts += 3
		}
		if fault.takes && guesses {
			s.options.Sequences = max(1, len(s.running))
		}
		decoding, room := s.Decoding()
		held := map[*Sequence]int{}
		for _, q := range decoding {
			held[q] = len(q.table.Blocks()) * slots
			if guesses && r.IntN(3) > 0 {
				ids := make([]int32, r.IntN(6))
				for i := range ids {
					ids[i] = int32(r.IntN(letters))
				}
				s.Draft(q, ids)
			}
		}
		pieces, planned = s.Step(), true
		s.options.Sequences, s.options.Drafts = o.Sequences, o.Drafts
		for _, q := range decoding {
			if fault.oldGuess && cap(q.guessed) > 0 {
				q.guessed = q.guessed[:cap(q.guessed)]
			}
		}
		if err := checkDrafts(s, pieces, min(room, o.Drafts), held); err != nil {
			return err
		}
		if hidden != nil {
			insert(&s.running, hidden)
		}
		return check(s, o, before, pieces)
	}
	decide := func(q *Sequence) (right bool, err error) {
		at := slices.IndexFunc(clients, func(c *client) bool { return c.Sequence == q })
		c := clients[at]
		c.wants--
		id, open := int32(r.IntN(letters)), len(q.open) > 0
		if open && r.IntN(2) == 0 {
			id = q.open[0]
		}
		right = open && q.open[0] == id
		fits := s.Append(q, id)
		if fault.wrongIsRight && open && !right {
			q.computed++
		} else if fault.oneLess && right {
			q.computed--
		} else if fault.givenBack && open && !right {
			q.table.Shrink(q.computed - slots)
		}
		planned = planned && !open
		if fits && c.wants > 0 {
			return right, nil
		}
		if len(q.tokens) > min(o.Context, pool.Blocks()*slots)+1 {
			return false, fmt.Errorf("%d tokens in a context of %d", len(q.tokens), o.Context)
		}
		if fault.leak {
			s.running = without(s.running, q)
		} else {
			s.Remove(q)
		}
		clients = slices.Delete(clients, at, at+1)
		planned = false
		return false, nil
	}
	arrive := func() error {
		ids := make([]int32, 1+r.IntN(s.Context()))
		for i := range ids {
			ids[i] = int32(r.IntN(letters))
		}
		c := &client{priority: r.IntN(levels), arrival: arrivals, wants: 1 + r.IntN(12), salt: string(rune('a' + r.IntN(2)))}
		arrivals++
		var err error
		c.Sequence, err = s.Add(ids, c.priority, c.salt)
		clients = append(clients, c)
		return err
	}
	for step := 0; arrivals < later || len(clients) > 0; step++ {
		if step > 100*later+1000 {
			return s.Counts(), fmt.Errorf("%d clients have still not what they want", len(clients))
		}
		for range r.IntN(4) {
			if arrivals < later {
				planned = false
				if err := arrive(); err != nil {
					return s.Counts(), err
				}
			}
		}
		if len(clients) > 0 && r.IntN(20) == 0 { // somebody has enough
			i := r.IntN(len(clients))
			s.Remove(clients[i].Sequence)
			clients = slices.Delete(clients, i, i+1)
			planned = false
		}
		for _, c := range slices.Clone(clients) {
			if c.last == late && r.IntN(3) == 0 {
				planned = false
				if _, err := decide(c.Sequence); err != nil {
					return s.Counts(), fmt.Errorf("step %d: %w", step, err)
				}
			}
		}
		if guesses := o.Drafts > 0 && r.IntN(2) == 0; guesses || !planned {
			if err := plan(guesses); err != nil {
				return s.Counts(), fmt.Errorf("step %d: %w", step, err)
			}
		}
		planned = false
		for _, c := range pool.Copies() {
			if !fault.forgetCopies {
				copy(cache[int(c.To)*slots:][:slots], cache[int(c.From)*slots:][:slots])
			}
		}
		pool.Copied()
		salts := map[*Sequence]uint64{}
		for _, c := range clients {
			salts[c.Sequence] = uint64(c.salt[0])
		}
		if fault.stale && len(pieces) > 1 {
			pieces[0].Blocks = pieces[1].Blocks
		}
		written := map[int32]bool{}
		for i, q := range s.Sequences() {
			p, hash := &pieces[i], salts[q]
			for n := range p.Start {
				hash = after(hash, q.tokens[n])
			}
			if states != nil {
				if fault.oneBefore && i > 0 {
					p.State = pieces[i-1].State
				}
				if p.Start > 0 && states[p.State.Read] != hash || written[p.State.Write] || p.Start > 0 && written[p.State.Read] {
					return s.Counts(), fmt.Errorf("step %d: the state of %v after %d tokens is another", step, q.tokens, p.Start)
				}
				written[p.State.Write] = true
			}
			for i, id := range p.Tokens { // guesses too
				n := p.Start + i
				if n < len(q.tokens) {
					id = q.tokens[n] // which may not have been known
				}
				if id == unknown {
					return s.Counts(), fmt.Errorf("step %d: token %d of %v is not known", step, n, q.tokens)
				}
				hash = after(hash, id)
				for g := range groups {
					caches[g][slotOf(p, g, n, slots)] = hash
				}
			}
			if states != nil {
				states[p.State.Write] = hash
			}
		}
		for i, q := range s.Sequences() {
			p, hash := &pieces[i], salts[q]
			for n := range min(p.Start+len(p.Tokens), len(q.tokens)) {
				hash = after(hash, q.tokens[n])
				for g, of := range groups {
					if seen := of.Window == 0 || n > p.Start-of.Window; seen && caches[g][slotOf(p, g, n, slots)] != hash {
						return s.Counts(), fmt.Errorf("step %d: token %d of %v is not what its slot holds for a window of %d", step, n, q.tokens, of.Window)
					}
				}
			}
		}
		s.Done()
		type row struct {
			*Sequence
			rows int
		}
		var rows []row
		for i, q := range s.Sequences() {
			if fault.computedTooMuch && q.missing() > 1 {
				q.computed++
			}
			switch pieces[i].Rows {
			case batch.Last:
				rows = append(rows, row{q, 1})
			case batch.All:
				rows = append(rows, row{q, len(pieces[i].Tokens)})
			}
			if fault.known && len(q.open) > 0 {
				guessed := append(slices.Clone(q.tokens), q.open...)
				q.table.Commit(guessed, len(guessed))
			}
		}
		if ahead {
			for _, q := range rows {
				if q.rows == 1 {
					s.Expect(q.Sequence)
				}
			}
			if err := plan(false); err != nil {
				return s.Counts(), fmt.Errorf("after step %d: %w", step, err)
			}
		}
		for _, q := range rows {
			if ahead && q.rows == 1 && r.IntN(8) == 0 {
				s.Late(q.Sequence)
				planned = planned && fault.tooEarly
				continue
			}
			for more := true; more; q.rows-- {
				if more, err = decide(q.Sequence); err != nil {
					return s.Counts(), fmt.Errorf("step %d: %w", step, err)
				}
			}
			if q.rows < 0 {
				return s.Counts(), fmt.Errorf("step %d: %d rows of logits of %v too few", step, -q.rows, q.tokens)
			}
			if need := pool.For(len(q.tokens)); !fault.leak && len(q.table.Blocks()) > need {
				return s.Counts(), fmt.Errorf("step %d: %d blocks for %d tokens", step, len(q.table.Blocks()), len(q.tokens))
			}
		}
	}
	if pool.Free() != pool.Blocks() {
		return s.Counts(), fmt.Errorf("%d of %d blocks come back", pool.Free(), pool.Blocks())
	}
	return s.Counts(), nil
}

// checkDrafts holds the guesses of a step to the laws.
func checkDrafts(s *Scheduler, pieces []batch.Piece, room int, held map[*Sequence]int) error {
	sum := 0
	for i, q := range s.chosen {
		p := &pieces[i]
		guesses := p.Start + len(p.Tokens) - len(q.tokens)
		if guesses <= 0 {
			continue
		}
		sum += guesses
		if end := p.Start + len(p.Tokens); len(s.waiting) > 0 && len(s.running) < s.options.Sequences && end > max(held[q], len(q.tokens)+s.pool.Slots()-1) {
			return fmt.Errorf("guesses of %v take blocks up to %d, which others wait for", q.tokens, end)
		}
	}
	if sum > room || sum > s.options.Drafts {
		return fmt.Errorf("%d guesses, of at most %d", sum, room)
	}
	return nil
}

// after is the hash of a sequence that is a token longer.
func after(hash uint64, token int32) uint64 {
	hash = (hash ^ uint64(token+1)) * 0x9e3779b97f4a7c15
	return hash ^ hash>>29
}

// check holds a step to the laws, and notes of clients what came of it.
func check(s *Scheduler, o Options, clients []*client, pieces []batch.Piece) error {
	byOrder := slices.Clone(clients)
	slices.SortFunc(byOrder, func(a, b *client) int {
		if a.before(b) {
			return -1
		}
		return 1
	})
	runs := map[*Sequence]bool{}
	for _, q := range s.running {
		runs[q] = true
	}
	piece := map[*Sequence]*batch.Piece{}
	tokens := 0
	for i, q := range s.chosen {
		p := &pieces[i]
		if piece[q] != nil || !runs[q] {
			return fmt.Errorf("a sequence comes twice, or does not run: %v", q.tokens)
		}
		piece[q] = p
		tokens += len(p.Tokens)
		end := p.Start + len(p.Tokens)
		own := p.Tokens[:min(len(p.Tokens), len(q.tokens)-p.Start)]
		want := batch.None
		if end == len(q.tokens) {
			want = batch.Last
		} else if end > len(q.tokens) && len(own) == 1 {
			want = batch.All
		}
		if p.Start != q.computed || !slices.Equal(own, q.tokens[p.Start:][:len(own)]) || p.Rows != want || end > len(q.tokens) && want != batch.All {
			return fmt.Errorf("a piece of %v brings %v after %d", q.tokens, p.Tokens, p.Start)
		}
		if o.Piece > 0 && len(p.Tokens) > o.Piece {
			return fmt.Errorf("a sequence brings %d tokens, of at most %d", len(p.Tokens), o.Piece)
		}
	}
	switch {
	case tokens > o.Tokens:
		return fmt.Errorf("%d tokens are over the budget of %d", tokens, o.Tokens)
	case len(s.running) > o.Sequences:
		return fmt.Errorf("%d sequences run, of at most %d", len(s.running), o.Sequences)
	case len(pieces) == 0 && len(clients) > 0 && !slices.ContainsFunc(clients, func(c *client) bool { return c.last != known || len(c.open) > 0 }):
		return fmt.Errorf("%d clients wait and nothing is done", len(clients))
	}
	stands := func(q *Sequence) bool { return q.last == late || len(q.open) > 0 || len(q.tokens) > s.Context() } // no step takes it
	var began, gaveUp, waits []*client
	full := false // one that ran before got less than it might
	for _, c := range byOrder {
		p := piece[c.Sequence]
		switch {
		case c.running && !runs[c.Sequence]:
			gaveUp = append(gaveUp, c)
		case !c.running && runs[c.Sequence]:
			began = append(began, c)
		case !runs[c.Sequence]:
			waits = append(waits, c)
		case stands(c.Sequence):
			if p != nil {
				return fmt.Errorf("%v is in a step", c.tokens)
			}
		case len(c.tokens)-c.computed == 1 && (p == nil || p.Rows == batch.None):
			return fmt.Errorf("%v decodes, and has no token in the step", c.tokens)
		case p == nil && tokens < o.Tokens:
			return fmt.Errorf("%v runs and has nothing in a step with room", c.tokens)
		case len(c.tokens)-c.computed > 1 && p != nil && full:
			return fmt.Errorf("%v goes on before one that comes first in the order", c.tokens)
		}
		if c.running && runs[c.Sequence] && !stands(c.Sequence) && (p == nil || p.Rows == batch.None && len(p.Tokens) != o.Piece && len(p.Tokens) != c.table.Stop(c.computed, o.Tokens)) {
			full = true
		}
		if c.later > Patience+o.Sequences { // who gives up its blocks afterwards does so to earlier ones
			return fmt.Errorf("one was passed %d times", c.later)
		}
	}
	for _, c := range gaveUp {
		for _, d := range byOrder {
			if runs[d.Sequence] && c.before(d) {
				return fmt.Errorf("%v gave up its blocks, and %v kept its own", c.tokens, d.tokens)
			}
		}
	}
	for _, c := range gaveUp { // before anybody began
		c.passed++
	}
	waits = append(waits, gaveUp...)
	for _, c := range began {
		for _, d := range waits {
			if d.before(c) && d.last == known && (d.passed >= Patience || !slices.ContainsFunc(s.running, func(q *Sequence) bool {
				n := s.pool.Slots()
				return len(q.tokens) >= n && len(d.tokens) >= n && slices.Equal(q.tokens[:n], d.tokens[:n])
			})) {
				return fmt.Errorf("%v begins before %v", c.tokens, d.tokens)
			}
		}
	}
	for _, c := range began {
		for _, d := range waits {
			if d.arrival < c.arrival {
				d.passed++
				if d.last == known { // else it could not have begun
					d.later++
				}
			}
		}
	}
	for _, c := range clients {
		c.running = runs[c.Sequence]
	}
	return nil
}

// TestStatesShared: of prompts that come at once, the first leaves a recurrent state where each other one
// parts from it, and these go on from there.
func TestStatesShared(t *testing.T) {
	pool := pages.NewPool(64, 4)
	pool.Recur(pages.States(4))
	s := New(pool, Options{Sequences: 4, Tokens: 64, Context: 64})
	prompt := func(parts int, id int32) []int32 {
		ids := make([]int32, 30)
		for i := parts; i < len(ids); i++ {
			ids[i] = id
		}
		return ids
	}
	var list []*Sequence
	for i, parts := range []int{30, 21, 9, 22} {
		q, err := s.Add(prompt(parts, int32(1+i)), 0, "")
		require.NoError(t, err)
		list = append(list, q)
	}
	run(s, 12)
	for i, cached := range []int{0, 20, 8, 20} {
		require.Equal(t, cached, list[i].Cached(), "sequence %d", i)
	}
}

// histories is how many are run: all of them with SMELT_FULL=histories.
func histories(few int) int { return testfiles.Rounds("histories", few, 100_000) }

// TestHistories runs random histories, whose clients come and go.
func TestHistories(t *testing.T) {
	var sum Counts
	for seed := range uint64(histories(100)) {
		c, err := history(seed, faults{})
		require.NoError(t, err, "seed %d", seed)
		sum = Counts{sum.Steps + c.Steps, sum.Tokens + c.Tokens, sum.Preempted + c.Preempted, sum.Drafted + c.Drafted, sum.Accepted + c.Accepted}
	}
	t.Logf("%+v", sum)
	require.Positive(t, sum.Preempted)
	require.Positive(t, sum.Accepted)
	require.Greater(t, sum.Drafted, sum.Accepted)
}

// TestHistoriesNotice plants faults into histories.
func TestHistoriesNotice(t *testing.T) {
	for name, fault := range map[string]faults{
		"the youngest begins":              {youngestFirst: true},
		"the oldest gives up its blocks":   {oldestGivesUp: true},
		"a step is over its budget":        {overBudget: true},
		"somebody is passed for ever":      {noPatience: true},
		"blocks do not come back":          {leak: true},
		"a token is not computed":          {computedTooMuch: true},
		"one that decodes is left out":     {leftOut: true},
		"a step has the table of others":   {stale: true},
		"copies are not made":              {forgetCopies: true},
		"a late token is not waited for":   {tooEarly: true},
		"a wrong guess is kept":            {wrongIsRight: true},
		"a right guess is not":             {oneLess: true},
		"a guess is known to others":       {known: true},
		"a block too much is given back":   {givenBack: true},
		"guesses are over their budget":    {tooMany: true},
		"guesses take others' blocks":      {takes: true},
		"guesses stay for another step":    {oldGuess: true},
		"a key is given back that is seen": {narrow: true},
		"a state is another sequence's":    {oneBefore: true},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(300) {
				if _, err := history(seed, fault); err != nil {
					t.Logf("seed %d: %v", seed, err)
					return
				}
			}
			t.Fatal("nothing was noticed")
		})
	}
}

// run makes steps until nothing is left to do or so many are made; every sequence goes on.
func run(s *Scheduler, steps int) (sizes []int) {
	for range steps {
		pieces := s.Step()
		if len(pieces) == 0 {
			break
		}
		n := 0
		for i := range pieces {
			n += len(pieces[i].Tokens)
		}
		sizes = append(sizes, n)
		s.pool.Copied()
		s.Done()
		for i, q := range s.Sequences() {
			if pieces[i].Rows == batch.Last {
				s.Append(q, int32(len(q.tokens)))
			}
		}
	}
	return sizes
}

// TestPaidOnce: of two that begin alike and come at once, the second waits for the blocks of
// the first; a third that does not goes on meanwhile.
func TestPaidOnce(t *testing.T) {
	s := New(pages.NewPool(64, 4), Options{Sequences: 4, Tokens: 10, Context: 64})
	prefix := slices.Repeat([]int32{7}, 24)
	first, err := s.Add(append(prefix[:24:24], 1, 2), 0, "")
	require.NoError(t, err)
	second, err := s.Add(append(prefix[:24:24], 3, 4, 5), 0, "")
	require.NoError(t, err)
	other, err := s.Add([]int32{9, 9}, 0, "")
	require.NoError(t, err)
	require.Equal(t, []int{10, 10, 8, 5}, run(s, 4))
	require.Zero(t, first.Cached())
	require.Equal(t, 24, second.Cached())
	require.Equal(t, 4, len(other.Tokens()))
	require.Equal(t, 27, second.Prompt())
}

// TestPreempted: the younger of two gives up its blocks and comes back with the tokens that
// it had; what the cache still knows is not computed again.
func TestPreempted(t *testing.T) {
	s := New(pages.NewPool(6, 4), Options{Sequences: 2, Tokens: 16, Context: 24})
	old, err := s.Add([]int32{1, 2, 3, 4, 5, 6, 7}, 0, "")
	require.NoError(t, err)
	young, err := s.Add([]int32{11, 12, 13, 14, 15, 16, 17}, 0, "")
	require.NoError(t, err)
	for s.Counts().Preempted == 0 {
		require.Len(t, run(s, 1), 1)
	}
	had := slices.Clone(young.Tokens())
	require.Equal(t, []int{1, 1}, []int{s.Running(), s.Waiting()})
	require.Greater(t, len(old.Tokens()), 12)
	s.Remove(old)
	require.Less(t, run(s, 1)[0], len(had)-3, "a block of it is known")
	require.Equal(t, had, young.Tokens()[:len(had)])
	s.Remove(young)
	require.Equal(t, 6, s.pool.Free())
}

// TestFail: what was to be computed is not in the cache, nor anything before it.
func TestFail(t *testing.T) {
	s := New(pages.NewPool(8, 4), Options{Sequences: 1, Tokens: 16, Context: 24})
	prompt := []int32{1, 2, 3, 4, 5, 6, 7, 8, 9}
	for i, cached := range []int{0, 8, 8, 0, 8} {
		q, err := s.Add(slices.Clone(prompt), 0, "")
		require.NoError(t, err)
		run(s, 1)
		require.Equal(t, cached, q.Cached(), i)
		if i == 2 {
			require.Equal(t, []*Sequence{q}, s.Fail())
		}
		s.Remove(q)
		require.Equal(t, 8, s.pool.Free())
	}
}

// TestDrafts: guesses are tokens of a step with a row each, as many as there is room for; those
// that are right are computed, and the blocks of the others go back.
func TestDrafts(t *testing.T) {
	s := New(pages.NewPool(16, 4), Options{Sequences: 2, Tokens: 12, Piece: 6, Context: 40, Drafts: 8})
	q, err := s.Add([]int32{1, 2, 3}, 0, "")
	require.NoError(t, err)
	require.Equal(t, []int{3}, run(s, 1)) // and 3 is chosen
	list, room := s.Decoding()
	require.Equal(t, []*Sequence{q}, list)
	require.Equal(t, 8, room)
	s.Draft(q, []int32{4, 5, 6, 7, 8, 9, 10})
	p := s.Step()
	require.Equal(t, []batch.Piece{{Tokens: []int32{3, 4, 5, 6, 7, 8}, Start: 3, Blocks: q.table.Blocks(), Rows: batch.All}}, p)
	require.Len(t, p[0].Blocks, 3)
	s.Done()
	for _, id := range []int32{4, 5, 77} {
		require.NotEmpty(t, q.Open())
		require.True(t, s.Append(q, id))
	}
	require.Empty(t, q.Open())
	require.Equal(t, []int{5, 2}, []int{q.Drafted(), q.Accepted()})
	require.Len(t, q.table.Blocks(), 2)
	other := s.pool.NewTable("")
	require.Equal(t, 1, other.Known([]int32{1, 2, 3, 3, 4, 5, 6, 7}), "what was wrong is known by nobody")
	require.Equal(t, []int{1}, run(s, 1), "there are no guesses for it")
	require.Equal(t, Counts{Steps: 3, Tokens: 10, Drafted: 5, Accepted: 2}, s.Counts())

	_, err = s.Add(slices.Repeat([]int32{9}, 20), 0, "")
	require.NoError(t, err)
	_, room = s.Decoding()
	require.Equal(t, 5, room, "the prompt has half")
	s.Draft(q, []int32{1, 1, 1, 1, 1})
	p = s.Step()
	require.Len(t, p[0].Tokens, 1, "no block is taken while somebody waits, and this one is full")
	require.Len(t, p[1].Tokens, 6)
}

// TestForced: what follows a sequence's token in any case comes with it, in its order and from
// its place; each that decodes has a token in every step all the same, and so have prompts
// what is left. A sequence that gives up its blocks meanwhile loses none.
func TestForced(t *testing.T) {
	s := New(pages.NewPool(9, 4), Options{Sequences: 3, Tokens: 6, Context: 64})
	var list []*Sequence
	for range 3 {
		q, err := s.Add([]int32{1, 2}, 0, "")
		require.NoError(t, err)
		list = append(list, q)
	}
	next := int32(10)
	step := func(forced ...int) (counts []int) {
		pieces := s.Step()
		require.Equal(t, list, s.Sequences())
		left := 6
		for i, p := range pieces {
			require.Equal(t, list[i].Tokens()[p.Start:][:len(p.Tokens)], p.Tokens)
			require.Equal(t, list[i].computed, p.Start)
			require.Equal(t, p.Rows == batch.Last, p.Start+len(p.Tokens) == len(list[i].Tokens()))
			require.NotEmpty(t, p.Tokens)
			require.GreaterOrEqual(t, 4*len(p.Blocks), p.Start+len(p.Tokens))
			counts = append(counts, len(p.Tokens))
			left -= len(p.Tokens)
		}
		require.GreaterOrEqual(t, left, 0)
		s.Done()
		for i, p := range pieces {
			if p.Rows == batch.Last {
				s.Expect(list[i])
			}
		}
		for i, p := range pieces {
			for k := range 1 + forced[i] {
				if p.Rows == batch.Last {
					require.True(t, s.Append(list[i], next), k)
					next++
				}
			}
		}
		return counts
	}
	require.Equal(t, []int{2, 2, 2}, step(0, 2, 0))
	require.Equal(t, []int{1, 3, 1}, step(5, 0, 1))
	require.Equal(t, []int{4, 1, 1}, step(0, 0, 9)) // each behind has one
	require.Equal(t, []int{2, 1, 1}, step(2, 3, 0))
	require.Equal(t, []int{3, 2, 1}, step(0, 0, 0))
	tokens := slices.Clone(list[2].Tokens())
	s.preempt(list[2])
	require.Equal(t, tokens, list[2].Tokens())
	require.Zero(t, list[2].computed)
	s.Remove(list[0])
	s.Remove(list[1])
	for list[2].missing() > 0 {
		p := s.Step()[0]
		require.Equal(t, tokens[p.Start:][:len(p.Tokens)], p.Tokens)
		s.Done()
	}
}

func TestTooLong(t *testing.T) {
	s := New(pages.NewPool(2, 4), Options{Sequences: 1, Tokens: 8, Context: 100})
	require.Equal(t, 8, s.Context())
	_, err := s.Add(make([]int32, 9), 0, "")
	require.ErrorIs(t, err, ErrTooLong)
	_, err = s.Add(nil, 0, "")
	require.ErrorIs(t, err, ErrTooLong)
	q, err := s.Add(make([]int32, 8), 0, "")
	require.NoError(t, err)
	require.Len(t, s.Step(), 1)
	s.Done()
	require.False(t, s.Append(q, 1))
}

// TestSteadyState: steps of sequences that decode allocate nothing.
func TestSteadyState(t *testing.T) {
	s := New(pages.NewPool(1024, 4), Options{Sequences: 16, Tokens: 64, Context: 4096, Drafts: 40})
	for i := range 16 {
		ids := make([]int32, 5, 4096)
		ids[0] = int32(i)
		q, err := s.Add(ids, 0, "")
		require.NoError(t, err)
		q.table.Begin(slices.Repeat([]int32{int32(-i)}, 300), 300, 0) // room in the tables
		q.table.Commit(slices.Repeat([]int32{int32(-i)}, 300), 300)
		q.table.Release()
	}
	run(s, 40)
	require.Zero(t, testing.AllocsPerRun(50, func() { run2(s) }))
}

// run2 is a step of run, without what the test keeps; some have a guess that is right, and
// one that is wrong.
func run2(s *Scheduler) {
	decoding, _ := s.Decoding()
	for i, q := range decoding {
		if i%2 == 0 {
			guesses := [...]int32{int32(len(q.tokens)), -1}
			s.Draft(q, guesses[:])
		}
	}
	s.Step()
	s.Done()
	for _, q := range s.Sequences() {
		for right := true; right; {
			open := q.Open()
			id := int32(len(q.tokens))
			s.Append(q, id)
			right = len(open) > 0 && open[0] == id
		}
	}
}
