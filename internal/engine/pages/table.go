package pages

import (
	"crypto/sha256"
	"slices"

	"github.com/smelt-ml/smelt/internal/batch"
)

// Table lists the blocks of one sequence in order. Its methods are given the tokens of that
// sequence, which may only grow.
type Table struct {
	pool    *Pool
	salt    Identity
	list                   // of the first group
	more    []list         // of the other groups
	windows []batch.Window // their blocks
	chain   []Identity     // identities of the sequence's first full blocks, as far as computed
	ends    [2]int         // numbers of blocks after which others may go on: those that were known, and the prompt's
	states  states
	stops   []int // numbers of blocks after which a step ends, for a recurrent state at which others may go on
}

// list is the blocks of one sequence in one group, whose own pool it has.
type list struct {
	own    *Pool
	blocks []int32
	known  int // leading blocks that are known by their identity in chain
	gone   int // leading blocks that were given back: blocks has the first other one in their place
	run    int // for usable
}

// NewTable returns the empty table of a sequence with a salt.
func (p *Pool) NewTable(salt string) *Table {
	t := &Table{pool: p, salt: sha256.Sum256([]byte(salt)), list: list{own: p}, states: statesOf(p.states)}
	for _, g := range p.more {
		t.more = append(t.more, list{own: g})
		t.windows = append(t.windows, batch.Window{Keys: g.window})
	}
	return t
}

// Blocks returns the blocks of the first group, valid until the next call and read-only.
func (t *Table) Blocks() []int32 { return t.blocks }

// Windows returns the blocks of the other groups, valid until the next call and read-only.
func (t *Table) Windows() []batch.Window {
	for i := range t.more {
		t.windows[i].Blocks = t.more[i].blocks
	}
	return t.windows
}

// identity returns the identity of full block i of the sequence.
func (t *Table) identity(i int, tokens []int32) *Identity {
	for n := len(t.chain); n <= i; n++ {
		parent := &t.salt
		if n > 0 {
			parent = &t.chain[n-1]
		}
		t.chain = append(t.chain, t.pool.after(parent, tokens[n*t.pool.slots:(n+1)*t.pool.slots]))
	}
	return &t.chain[i]
}

// Begin gives an empty table blocks for the given slots of a sequence, at least its tokens, and
// shares those that are known; in groups but the first, [Table.Reach] gives blocks for the tokens of a
// step. It returns the number of tokens that need no computation, always fewer than all, because the
// last token's logits are needed. Where there are not enough blocks, or fewer than spare would be left,
// it returns false and changes nothing.
func (t *Table) Begin(tokens []int32, slots, spare int) (cached int, ok bool) {
	p := t.pool
	if len(t.blocks) > 0 || len(tokens) == 0 || slots < len(tokens) {
		panic("pages: a table begins once, with tokens and room for them")
	}
	hits := t.Known(tokens)
	need := p.For(slots)
	t.ends = [2]int{t.own.leading(t.chain), len(tokens) / p.slots}
	t.stops = append(t.stops[:0], t.ends[0], (len(tokens)-1)/p.slots) // where the same prompt goes on
	if hits*p.slots == len(tokens) {
		// The last token is computed again, into a copy of its block. Without a block for the
		// copy, that block itself is evicted for it.
		if !p.uncopied && t.left(hits) >= need-hits+1+spare {
			need++
		} else {
			hits = t.usable(tokens, hits-1)
		}
	}
	if t.left(hits) < need-hits+spare {
		return 0, false
	}
	t.hold(t.chain, hits)
	for i := range t.more {
		t.more[i].hold(t.chain, hits)
	}
	t.states.hold(t.chain, hits)
	cached = min(hits*p.slots, len(tokens)-1)
	p.counts.Asked += int64(len(tokens))
	p.counts.Cached += int64(cached)
	t.extend(cached, slots)
	return cached, true
}

// hold holds the known blocks of a prefix that are still seen.
func (l *list) hold(chain []Identity, hits int) {
	l.gone = l.own.first(hits * l.own.slots)
	for i := range hits {
		b := int32(none)
		if i >= l.gone {
			b = l.own.known[chain[i]]
			l.own.hold(b)
		}
		l.blocks = append(l.blocks, b)
	}
	l.known = hits
	l.stand()
}

// stand puts the first block that the sequence holds in the place of those that it gave back, so that
// whoever reads what no token sees reads nothing foreign.
func (l *list) stand() {
	for i := range l.gone {
		l.blocks[i] = l.blocks[l.gone]
	}
}

// Identity returns the identity of full block i of a sequence.
func (t *Table) Identity(i int, tokens []int32) Identity { return *t.identity(i, tokens) }

// Known returns the number of blocks of the longest prefix of a sequence that need no computation: each
// group knows what is still seen of it, and the recurrent state at its end is known.
func (t *Table) Known(tokens []int32) int { return t.usable(tokens, len(tokens)/t.pool.slots) }

// usable is Known of prefixes of up to most blocks.
func (t *Table) usable(tokens []int32, most int) (usable int) {
	t.run = 0
	for i := range t.more {
		t.more[i].run = 0
	}
	for n := 0; n < most; n++ {
		id := t.identity(n, tokens)
		sees := t.sees(id, n)
		if !sees && t.own.window == 0 {
			break
		}
		for i := range t.more {
			sees = t.more[i].sees(id, n) && sees
		}
		if sees && t.states.knows(id) {
			usable = n + 1
		}
	}
	return usable
}

// leading returns how many of the first blocks of a chain are known.
func (p *Pool) leading(chain []Identity) int {
	for i := range chain {
		if !p.knows(&chain[i]) {
			return i
		}
	}
	return len(chain)
}

// sees reports whether a group knows block n and those before it that are seen behind it, once it was
// called for these.
func (l *list) sees(id *Identity, n int) bool {
	if l.run++; !l.own.knows(id) {
		l.run = 0
	}
	return l.run >= n+1-l.own.first((n+1)*l.own.slots)
}

// left returns the number of free blocks after those of the first hits that are seen are held.
func (t *Table) left(hits int) int {
	left := t.pool.Free()
	for i := t.own.first(hits * t.pool.slots); i < hits; i++ {
		if t.pool.blocks[t.pool.known[t.chain[i]]].holders == 0 {
			left--
		}
	}
	return left
}

// Extend gives the table blocks of the first group for slots, of which those starting at from are to
// be written, and copies shared blocks among these. Where there are not enough blocks it returns false
// and changes nothing.
func (t *Table) Extend(from, slots int) bool {
	need := t.pool.For(slots) - len(t.blocks)
	for i := from / t.pool.slots; i < len(t.blocks); i++ {
		if !t.pool.writable(t.blocks[i]) {
			need++
		}
	}
	if need > t.pool.Free() {
		return false
	}
	t.extend(from, slots)
	return true
}

// Reach gives the table blocks of the other groups for the slots of a step, and the recurrent state that
// the step writes.
func (t *Table) Reach(slots int) {
	t.states.reach()
	for i := range t.more {
		t.more[i].reach(slots)
	}
}

func (t *Table) extend(from, slots int) {
	p := t.pool
	for i := from / p.slots; i < len(t.blocks); i++ {
		if shared := t.blocks[i]; !p.writable(shared) {
			t.blocks[i] = p.take()
			p.copies = append(p.copies, batch.Copy{From: shared, To: t.blocks[i]}) // the copy holds its source until then
		}
	}
	t.known = min(t.known, from/p.slots)
	t.reach(slots)
}

func (l *list) reach(slots int) {
	for len(l.blocks) < l.own.For(slots) {
		l.blocks = append(l.blocks, l.own.take())
	}
}

// Shrink frees the blocks behind those for the given slots. None of these may be full of
// committed tokens.
func (t *Table) Shrink(slots int) {
	t.shrink(slots)
	for i := range t.more {
		t.more[i].shrink(slots)
	}
}

func (l *list) shrink(slots int) {
	for n := l.own.For(slots); len(l.blocks) > n; l.blocks = l.blocks[:len(l.blocks)-1] {
		l.own.drop(l.blocks[len(l.blocks)-1])
	}
}

// Commit records that the first computed tokens of a sequence are in the cache: blocks that are
// full of them can be shared, and those that no later token sees are given back.
func (t *Table) Commit(tokens []int32, computed int) {
	if full := computed / t.pool.slots; full > 0 {
		t.identity(full-1, tokens)
	}
	t.commit(t, tokens, computed)
	for i := range t.more {
		t.more[i].commit(t, tokens, computed)
	}
	t.states.commit(t, computed)
}

func (l *list) commit(t *Table, tokens []int32, computed int) {
	p := l.own
	for ; (l.known+1)*p.slots <= computed; l.known++ {
		var stored bool
		if l.blocks[l.known], stored = p.know(l.blocks[l.known], t.chain[l.known]); stored && p.watcher != nil {
			p.watcher.Stored(t.chain[l.known], t.parent(l.known), tokens[l.known*p.slots:(l.known+1)*p.slots])
		}
	}
	for first := p.first(computed); l.gone < first; l.gone++ {
		p.pass(l.blocks[l.gone], !slices.ContainsFunc(t.ends[:], func(end int) bool {
			return p.first(end*p.slots) <= l.gone && l.gone < end
		}))
	}
	l.stand()
}

// parent returns the identity that block i follows; nil: none.
func (t *Table) parent(i int) *Identity {
	if i == 0 {
		return nil
	}
	return &t.chain[i-1]
}

// Release empties the table. Its known blocks stay known until they are needed.
func (t *Table) Release() {
	t.release()
	for i := range t.more {
		t.more[i].release()
	}
	t.states.release(t)
}

func (l *list) release() {
	for i := len(l.blocks) - 1; i >= l.gone; i-- { // a tail is evicted before its head
		l.own.drop(l.blocks[i])
	}
	l.blocks, l.known, l.gone = l.blocks[:0], 0, 0
}
