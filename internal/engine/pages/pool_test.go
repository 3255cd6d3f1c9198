package pages

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/batch"
	"github.com/smelt-ml/smelt/internal/testfiles"
)

func ExamplePool() {
	pool := NewPool(8, 4)
	prompt := []int32{1, 2, 3, 4, 5, 6, 7, 8, 9}
	first := pool.NewTable("")
	cached, _ := first.Begin(prompt, len(prompt), 0)
	fmt.Println(cached, first.Blocks())
	first.Commit(prompt, len(prompt)) // once a step has computed them

	second := pool.NewTable("")
	cached, _ = second.Begin(append(prompt[:8:8], 90, 91), 12, 0)
	fmt.Println(cached, second.Blocks())
	other := pool.NewTable("another tenant")
	cached, _ = other.Begin(prompt, len(prompt), 0)
	fmt.Println(cached, other.Blocks())
	// Output:
	// 0 [0 1 2]
	// 8 [0 1 3]
	// 0 [4 5 6]
}

// model says what a pool should do, by what blocks hold rather than by their numbers: a
// prefix of tokens after a salt, for the blocks that are known.
type model struct {
	slots    int
	users    map[string]int // tables and copies that hold a known block
	kept     []string       // known blocks that nobody holds, the first goes first
	plain    int            // blocks that nobody holds or knows
	copies   []copying
	uncopied bool
}

// copying is what must be copied: a known block, into the last one of a sequence.
type copying struct {
	key string
	to  *sequence
}

// holding is a block of a sequence, as the model has it: what it is known by, or "".
type holding []string

func (m *model) take() {
	if m.plain > 0 {
		m.plain--
		return
	}
	delete(m.users, m.kept[0])
	m.kept = m.kept[1:]
}

func (m *model) hold(key string) {
	if m.users[key] == 0 {
		m.kept = slices.DeleteFunc(m.kept, func(k string) bool { return k == key })
	}
	m.users[key]++
}

func (m *model) drop(key string) {
	if key == "" {
		m.plain++
	} else if m.users[key]--; m.users[key] == 0 {
		m.kept = append(m.kept, key)
	}
}

func (m *model) begin(q *sequence, slots, spare int) (h holding, cached int, ok bool) {
	need := (slots + m.slots - 1) / m.slots
	try := func(hits int, copied bool) bool {
		free, fresh := m.plain+len(m.kept), need-hits
		for i := range hits {
			if m.users[q.key(i)] == 0 {
				free--
			}
		}
		if copied {
			fresh++
		}
		if free < fresh+spare {
			return false
		}
		for i := range hits {
			m.hold(q.key(i))
			h = append(h, q.key(i))
		}
		for range fresh {
			m.take()
		}
		if copied {
			m.copies = append(m.copies, copying{h[hits-1], q})
			h[hits-1] = ""
		}
		for len(h) < need {
			h = append(h, "")
		}
		cached = min(hits*m.slots, len(q.tokens)-1)
		return true
	}
	hits := 0
	for (hits+1)*m.slots <= len(q.tokens) {
		if _, known := m.users[q.key(hits)]; !known {
			break
		}
		hits++
	}
	if hits*m.slots < len(q.tokens) {
		return h, cached, try(hits, false)
	}
	return h, cached, !m.uncopied && try(hits, true) || try(hits-1, false)
}

func (m *model) extend(q *sequence, slots int) bool {
	need := (slots+m.slots-1)/m.slots - len(q.holding)
	if need > m.plain+len(m.kept) {
		return false
	}
	for range max(0, need) {
		m.take()
		q.holding = append(q.holding, "")
	}
	return true
}

func (m *model) shrink(q *sequence, slots int) {
	need := (slots + m.slots - 1) / m.slots
	for len(q.holding) > need {
		m.drop(q.holding[len(q.holding)-1])
		q.holding = q.holding[:len(q.holding)-1]
	}
}

func (m *model) commit(q *sequence) {
	for i := range q.computed / m.slots {
		if q.holding[i] != "" {
			continue
		}
		q.holding[i] = q.key(i)
		if _, known := m.users[q.key(i)]; known {
			m.plain++
			m.hold(q.key(i))
		} else {
			m.users[q.key(i)] = 1
		}
	}
}

func (m *model) release(q *sequence) {
	for _, key := range slices.Backward(q.holding) {
		m.drop(key)
		if i := slices.IndexFunc(m.copies, func(c copying) bool { return c.to == q }); key == "" && i >= 0 {
			m.drop(m.copies[i].key)
			m.copies = slices.Delete(m.copies, i, i+1)
		}
	}
	q.holding = nil
}

func (m *model) copied() {
	for _, c := range slices.Backward(m.copies) {
		m.drop(c.key)
	}
	m.copies = nil
}

// sequence is one of a history.
type sequence struct {
	salt     string
	tokens   []int32
	computed int
	table    *Table
	holding  holding
}

// key is what block i of the sequence is known by, if it is.
func (q *sequence) key(i int) string {
	return fmt.Sprint(q.salt, q.tokens[:(i+1)*q.table.pool.slots])
}

// faults are planted into histories: each must be noticed.
type faults struct {
	forgetCopies, early, noSalt, headsFirst, writeShared, loseHolder, loseBlock, stale, freeTwice, shrinkMore bool
}

// history runs random sequences over a small cache, beside the model, and returns the
// first thing that is wrong.
func history(seed uint64, fault faults) (counts Counts, err error) {
	defer func() {
		if x := recover(); x != nil {
			err = fmt.Errorf("panic: %v", x)
		}
	}()
	r := rand.New(rand.NewPCG(seed, 3))
	slots := 1 + r.IntN(4)
	p := NewPool(1+r.IntN(12), slots)
	m := &model{slots: slots, users: map[string]int{}, plain: p.Blocks()}
	if r.IntN(3) == 0 {
		p.Uncopied()
		m.uncopied = true
	}
	cache := make([]string, p.Blocks()*slots) // what each slot was written for: a sequence up to its token
	letters := 1 + r.IntN(3)
	var running []*sequence
	at := func(q *sequence, i int) *string { return &cache[int(q.table.blocks[i/slots])*slots+i%slots] }
	for step := range 40 {
		var did string
		switch n := r.IntN(10); {
		case n < 3 || len(running) == 0: // one begins
			q := &sequence{salt: strings.Repeat("x", r.IntN(2))}
			for range 1 + r.IntN(3*slots+2) {
				q.tokens = append(q.tokens, int32(r.IntN(letters)))
			}
			q.table = p.NewTable(q.salt)
			if fault.noSalt {
				q.table = p.NewTable("")
			}
			need, spare := len(q.tokens)+r.IntN(3), r.IntN(3)
			did = fmt.Sprintf("begin %v of %q for %d, %d to spare", q.tokens, q.salt, need, spare)
			cached, ok := q.table.Begin(q.tokens, need, spare)
			h, wantCached, wantOK := m.begin(q, need, spare)
			if cached != wantCached || ok != wantOK {
				return p.Counts(), fmt.Errorf("step %d: %s: %d cached, %v: want %d, %v", step, did, cached, ok, wantCached, wantOK)
			}
			if ok {
				q.holding, q.computed = h, cached
				running = append(running, q)
				if fault.loseHolder {
					p.blocks[q.table.blocks[0]].holders--
				}
				if fault.writeShared && len(p.copies) > 0 {
					c := p.copies[len(p.copies)-1]
					if i := slices.Index(q.table.blocks, c.To); i >= 0 {
						q.table.blocks[i] = c.From
					}
				}
			}
		case n < 4: // one ends
			i := r.IntN(len(running))
			q := running[i]
			did = fmt.Sprintf("end %v", q.tokens)
			blocks, holding := slices.Clone(q.table.blocks), q.holding
			if fault.headsFirst {
				slices.Reverse(q.table.blocks)
			}
			q.table.Release()
			m.release(q)
			if fault.stale {
				q.table.blocks, q.holding = blocks, holding
			} else {
				running = slices.Delete(running, i, i+1)
			}
			if fault.freeTwice && !p.blocks[blocks[0]].known {
				p.plain = append(p.plain, blocks[0])
			}
		case n < 5: // one gives back what it has too much
			q := running[r.IntN(len(running))]
			did = fmt.Sprintf("shrink %v to %d", q.tokens, q.computed+1)
			if fault.shrinkMore {
				q.table.Shrink(q.computed + 1 - slots)
			} else {
				q.table.Shrink(q.computed + 1)
			}
			m.shrink(q, q.computed+1)
		default: // one goes on by a few tokens
			q := running[r.IntN(len(running))]
			for len(q.tokens) == q.computed || r.IntN(2) == 0 {
				q.tokens = append(q.tokens, int32(r.IntN(letters)))
			}
			to := q.computed + 1 + r.IntN(len(q.tokens)-q.computed)
			room := to + r.IntN(2)*r.IntN(2*slots) // for guesses
			did = fmt.Sprintf("extend %v from %d to %d", q.tokens, q.computed, room)
			ok, want := q.table.Extend(q.computed, room), m.extend(q, room)
			if ok != want {
				return p.Counts(), fmt.Errorf("step %d: %s: %v", step, did, ok)
			}
			if !ok {
				break
			}
			if m.uncopied && len(p.Copies()) > 0 {
				return p.Counts(), fmt.Errorf("step %d: %s: %d copies, of which none can be made", step, did, len(p.Copies()))
			}
			if err := copyable(p); err != nil {
				return p.Counts(), fmt.Errorf("step %d: %s: %w", step, did, err)
			}
			for _, c := range p.Copies() {
				if !fault.forgetCopies {
					copy(cache[int(c.To)*slots:][:slots], cache[int(c.From)*slots:][:slots])
				}
			}
			p.Copied()
			m.copied()
			if fault.early {
				q.table.Commit(q.tokens, min(len(q.tokens), len(q.table.blocks)*slots))
			}
			for ; q.computed < to; q.computed++ {
				*at(q, q.computed) = fmt.Sprint(q.salt, q.tokens[:q.computed+1])
			}
			q.table.Commit(q.tokens, q.computed)
			m.commit(q)
			if fault.loseBlock && len(p.plain) > 0 {
				p.plain = p.plain[1:]
			}
		}
		if err := audit(p, m, running); err != nil {
			return p.Counts(), fmt.Errorf("step %d: %s: %w", step, did, err)
		}
		pending := map[int32]int32{}
		for _, c := range p.Copies() {
			pending[c.To] = c.From
		}
		for _, q := range running {
			for i := range q.computed {
				b := q.table.blocks[i/slots]
				if from, waits := pending[b]; waits {
					b = from
				}
				if got, want := cache[int(b)*slots+i%slots], fmt.Sprint(q.salt, q.tokens[:i+1]); got != want {
					return p.Counts(), fmt.Errorf("step %d: %s: token %d of %v is read as %s", step, did, i, q.tokens, got)
				}
			}
		}
	}
	for _, q := range running {
		q.table.Release()
		m.release(q)
	}
	p.Copied()
	m.copied()
	if p.Free() != p.Blocks() {
		return p.Counts(), fmt.Errorf("%d of %d blocks come back", p.Free(), p.Blocks())
	}
	return p.Counts(), audit(p, m, nil)
}

// copyable checks that no copy reads what another writes.
func copyable(p *Pool) error {
	for _, a := range p.Copies() {
		for _, b := range p.Copies() {
			if a.From == b.To || a != b && a.To == b.To {
				return fmt.Errorf("the copies %v depend on their order", p.Copies())
			}
		}
	}
	return nil
}

// audit counts holders and walks the lists: each block is held by those who have it, or on
// one list, once; and what is known is what the model knows, in its order.
func audit(p *Pool, m *model, running []*sequence) error {
	holders := make([]int32, p.Blocks())
	for _, q := range running {
		for i, b := range q.table.blocks {
			holders[b]++
			if known := p.blocks[b].known; known != (q.holding[i] != "") {
				return fmt.Errorf("block %d of %v is known: %v", i, q.tokens, known)
			}
		}
	}
	for _, c := range p.copies {
		holders[c.From]++
	}
	listed := make([]int, p.Blocks())
	for _, b := range p.plain {
		listed[b]++
		if p.blocks[b].known {
			return fmt.Errorf("block %d is known and on the list of those that are not", b)
		}
	}
	length, last := 0, int32(none)
	for b := p.kept.oldest; b != none; last, b = b, p.blocks[b].newer {
		listed[b]++
		if length++; length > p.Blocks() || p.blocks[b].older != last || !p.blocks[b].known {
			return fmt.Errorf("the list of blocks that are kept is torn at %d", b)
		}
	}
	if length != p.kept.length || last != p.kept.newest || length != len(m.kept) || len(p.plain) != m.plain {
		return fmt.Errorf("%d blocks are kept and %d plain: want %d and %d", length, len(p.plain), len(m.kept), m.plain)
	}
	known := 0
	for b := range p.blocks {
		x := &p.blocks[b]
		if x.holders != holders[b] {
			return fmt.Errorf("block %d has %d holders, and counts %d", b, holders[b], x.holders)
		}
		if free := x.holders == 0; free && listed[b] != 1 || !free && listed[b] != 0 {
			return fmt.Errorf("block %d with %d holders is %d times on lists", b, x.holders, listed[b])
		}
		if x.known {
			if known++; p.known[x.identity] != int32(b) {
				return fmt.Errorf("block %d is known as another", b)
			}
		}
	}
	if known != len(p.known) || known != len(m.users) {
		return fmt.Errorf("%d blocks are known, and %d on the map: want %d", known, len(p.known), len(m.users))
	}
	return nil
}

// histories is how many are run: all of them with SMELT_FULL=histories.
func histories(few int) int { return testfiles.Rounds("histories", few, 100_000) }

// TestHistories runs random histories beside the model.
func TestHistories(t *testing.T) {
	var sum Counts
	for seed := range uint64(histories(1500)) {
		c, err := history(seed, faults{})
		require.NoError(t, err, "seed %d", seed)
		sum = Counts{sum.Asked + c.Asked, sum.Cached + c.Cached, sum.Evicted + c.Evicted, sum.Copied + c.Copied}
	}
	t.Logf("%+v", sum)
	require.Positive(t, sum.Cached)
	require.Positive(t, sum.Evicted)
	require.Positive(t, sum.Copied)
}

// TestHistoriesNotice plants faults into histories.
func TestHistoriesNotice(t *testing.T) {
	for name, fault := range map[string]faults{
		"copies are not made":                       {forgetCopies: true},
		"a block is known before it is computed":    {early: true},
		"tenants share":                             {noSalt: true},
		"heads are evicted before tails":            {headsFirst: true},
		"a shared block is written":                 {writeShared: true},
		"a holder is not counted":                   {loseHolder: true},
		"a block is lost":                           {loseBlock: true},
		"a table is used after it was given back":   {stale: true},
		"a block is on the list of free ones twice": {freeTwice: true},
		"a block that is in use is given back":      {shrinkMore: true},
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

// TestNothingChanges: where blocks are missing, those that would have been hit keep their
// place in the order of eviction.
func TestNothingChanges(t *testing.T) {
	p := NewPool(4, 2)
	first, second := p.NewTable(""), p.NewTable("")
	old, young := []int32{1, 2, 3, 4}, []int32{5, 6}
	for _, x := range []struct {
		table  *Table
		tokens []int32
	}{{first, old}, {second, young}} {
		_, ok := x.table.Begin(x.tokens, len(x.tokens), 0)
		require.True(t, ok)
		x.table.Commit(x.tokens, len(x.tokens))
		x.table.Release()
	}
	big := p.NewTable("")
	_, ok := big.Begin(append(old[:4:4], 7, 8, 9, 10, 11), 9, 0)
	require.False(t, ok)
	require.Empty(t, big.Blocks())
	taker := p.NewTable("")
	_, ok = taker.Begin([]int32{20, 21, 22}, 3, 0) // the plain block and the oldest: a tail of the first
	require.True(t, ok)
	cached, ok := p.NewTable("").Begin(append(young, 1), 3, 0)
	require.True(t, ok)
	require.Equal(t, 2, cached)
	cached, ok = p.NewTable("").Begin(old, 4, 0)
	require.False(t, ok)
	require.Zero(t, cached)
	require.Len(t, p.known, 1, "the tail went first, then the head for the younger's second block")
}

// TestBegin: the last token is always computed; where all are known, into a copy of its
// block, or into a block of its own where there is none for that or nobody copies.
func TestBegin(t *testing.T) {
	tokens := []int32{1, 2, 3, 4}
	for _, c := range []struct {
		blocks   int
		uncopied bool
		cached   int
		copies   []batch.Copy
	}{{2, false, 2, nil}, {3, false, 3, []batch.Copy{{From: 1, To: 2}}}, {3, true, 2, nil}} {
		p := NewPool(c.blocks, 2)
		if c.uncopied {
			p.Uncopied()
		}
		a := p.NewTable("")
		_, ok := a.Begin(tokens, 4, 0)
		require.True(t, ok)
		a.Commit(tokens, 4)
		a.Release()
		cached, ok := a.Begin(tokens, 4, 0)
		require.True(t, ok)
		require.Equal(t, c.cached, cached)
		require.Equal(t, c.copies, p.Copies())
		require.Panics(t, func() { a.Begin(tokens, 4, 0) })
		a.Release()
		require.Empty(t, p.Copies(), "nobody needs the copy")
		require.Equal(t, c.blocks, p.Free())
	}
}

// TestSteadyState: sequences that go on, end and begin allocate nothing.
func TestSteadyState(t *testing.T) {
	const blocks, slots = 64, 4
	p := NewPool(blocks, slots)
	table := p.NewTable("")
	tokens := make([]int32, 100)
	next := int32(0)
	run := func() {
		for i := range tokens {
			next++
			tokens[i] = next
		}
		table.chain = table.chain[:0]
		_, ok := table.Begin(tokens[:10], 10, 0)
		require.True(t, ok)
		for n := 10; n < len(tokens); n++ {
			table.Extend(n, n+1)
			p.Copied()
			table.Commit(tokens, n+1)
		}
		table.Release()
	}
	run()
	require.Zero(t, testing.AllocsPerRun(100, run))
	require.Positive(t, p.Counts().Evicted)
}

// windowed begins a table of a pool and computes its tokens in pieces.
func windowed(t *testing.T, p *Pool, tokens []int32, piece int) (table *Table, cached int) {
	table = p.NewTable("")
	cached, ok := table.Begin(tokens, len(tokens), 0)
	require.True(t, ok)
	for n := cached; n < len(tokens); {
		n = min(n+piece, len(tokens))
		table.Reach(n)
		table.Commit(tokens, n)
	}
	return table, cached
}

// TestWindows: a group with a window holds what the next token sees and the token before, and a prefix is
// found up to where each group knows what is still seen of it.
func TestWindows(t *testing.T) {
	const slots, window = 4, 6
	tokens := make([]int32, 40)
	for i := range tokens {
		tokens[i] = int32(i)
	}
	p := NewGroups(slots, Group{Blocks: 40}, Group{Window: window, Blocks: 6})
	small := p.more[0]
	table, _ := windowed(t, p, tokens, 3)
	require.Len(t, table.Blocks(), 10)
	w := table.Windows()
	require.Equal(t, window, w[0].Keys)
	require.Len(t, w[0].Blocks, 10)
	require.Equal(t, slices.Repeat([]int32{w[0].Blocks[8]}, 8), w[0].Blocks[:8], "others stand for those that are gone")
	require.NotEqual(t, w[0].Blocks[8], w[0].Blocks[9])
	require.Equal(t, []Group{{window, 2}}, p.Held())
	table.Release()
	require.Equal(t, 6, small.Free())

	// The last window of the whole is known, and so is that of the prefixes of the last few blocks.
	again, cached := windowed(t, p, append(tokens[:40:40], 50), 3)
	require.Equal(t, 40, cached)
	again.Release()
	// Of a shorter prefix the other group has all, and this one no more.
	short, cached := windowed(t, p, append(tokens[:8:8], 60), 3)
	require.Zero(t, cached)
	require.Len(t, p.known, 10, "what was computed anew is known")
	short.Release()
	short, cached = windowed(t, p, append(tokens[:8:8], 61), 3)
	require.Equal(t, 8, cached)
	// A whole sequence is computed from its last block on, of which nothing is copied.
	short.Release()
	short, cached = windowed(t, p, tokens[:8], 3)
	require.Equal(t, 4, cached)
	require.Empty(t, p.Copies())
	short.Release()
	p.Forget()
	require.Empty(t, small.known)
	require.Equal(t, 6, small.Free())
}

// TestWindowsKeepEnds: what is seen from the end of a prompt, and from where a second one parted from the
// first, outlasts what a window passes behind it.
func TestWindowsKeepEnds(t *testing.T) {
	const slots, window = 4, 6
	tokens := make([]int32, 40)
	for i := range tokens {
		tokens[i] = int32(i)
	}
	p := NewGroups(slots, Group{Blocks: 60}, Group{Window: window, Blocks: 9})
	begin := func(shared, prompt int, other int32) (cached int) {
		text := slices.Clone(tokens)
		for i := shared; i < len(text); i++ {
			text[i] = other
		}
		table := p.NewTable("")
		cached, ok := table.Begin(text[:prompt], prompt, 0)
		require.True(t, ok)
		for n := cached + 1; n <= len(text); n++ {
			require.True(t, table.Extend(n-1, n))
			table.Reach(n)
			table.Commit(text, n)
		}
		table.Release()
		return cached
	}
	require.Zero(t, begin(40, 9, 0))
	require.Equal(t, 8, begin(9, 10, 100), "where the first prompt ended")
	require.Equal(t, 8, begin(21, 30, 101), "where none did")
	require.Equal(t, 20, begin(21, 30, 102), "where the last parted from the first")
}

// TestWindowAlone: where all layers have the window, so has the pool.
func TestWindowAlone(t *testing.T) {
	p := NewGroups(4, Group{Window: 6, Blocks: 12})
	tokens := make([]int32, 40)
	table, _ := windowed(t, p, tokens[:8], 8)
	for n := 9; n <= len(tokens); n++ {
		require.True(t, table.Extend(n-1, n))
		table.Commit(tokens, n)
		require.LessOrEqual(t, 12-p.Free(), 3)
	}
	table.Release()
	require.Equal(t, 12, p.Free())
}
