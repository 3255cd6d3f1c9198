package pages

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/smelt-ml/smelt/internal/batch"
)

// Identity identifies the contents of a full block: a hash of its tokens and of the identity of
// the block before it. The first block follows the hash of a salt.
type Identity = [sha256.Size]byte

// Group is the blocks of the layers whose tokens see the last Window keys, their own included; 0: all
// keys.
type Group struct{ Window, Blocks int }

// Pool owns the blocks of a cache. It is used by one goroutine at a time.
type Pool struct {
	slots  int
	window int
	more   []*Pool // of the other groups; nil in these
	states *Pool   // recurrent states in the place of blocks; nil: none
	blocks []block
	known  map[Identity]int32
	plain  []int32 // free blocks without an identity; the last is taken first
	passed lru     // free blocks with an identity that windows have passed, where nobody is known to begin
	kept   lru     // other free blocks with an identity
	copies []batch.Copy
	hashed []byte
	counts Counts

	uncopied bool
	watcher  Watcher // may be nil
}

// Watcher is called when blocks become known or are forgotten, by the goroutine that uses the
// pool. Its methods must not block.
type Watcher interface {
	// Stored reports a block that can be shared from then on, and the block that it follows;
	// nil: none. The tokens are valid during the call.
	Stored(id Identity, parent *Identity, tokens []int32)
	// Removed reports a block that can no longer be shared.
	Removed(id Identity)
	// Cleared reports that no block can be shared any more.
	Cleared()
}

// Watch sets the watcher of all later changes.
func (p *Pool) Watch(w Watcher) { p.watcher = w }

// block is the pool's record of one block.
type block struct {
	holders      int32 // tables, and pending copies of it
	known        bool
	passed       bool // which list it is in
	identity     Identity
	older, newer int32 // neighbours in the list
}

// lru is a list of free blocks in eviction order.
type lru struct {
	oldest, newest int32
	length         int
}

const none = -1

// Counts are a pool's totals.
type Counts struct {
	Asked   int64 // tokens that sequences began with
	Cached  int64 // of Asked, tokens found in the cache
	Evicted int64 // blocks whose identity was forgotten
	Copied  int64 // blocks that were copied
}

// Recur gives the pool recurrent states: [States] of its sequences at least. The pool copies no blocks
// then. It must be called before the first table begins.
func (p *Pool) Recur(states int) {
	p.states, p.uncopied = newGroup(p.slots, Group{Blocks: states}), true
}

// NewPool returns a pool of blocks with the given number of slots each. None is known.
func NewPool(blocks, slots int) *Pool { return NewGroups(slots, Group{Blocks: blocks}) }

// NewGroups returns a pool of groups of blocks. The first group sees at least as many keys as each other
// one, and its blocks decide which sequences there is room for. The others must have [Reserve] blocks, or
// as many as the first. A pool with more than one group copies no blocks.
func NewGroups(slots int, groups ...Group) *Pool {
	p := newGroup(slots, groups[0])
	for _, g := range groups[1:] {
		if g.Window == 0 || p.window != 0 && g.Window > p.window {
			panic(fmt.Sprintf("pages: a window of %d keys behind one of %d", g.Window, p.window))
		}
		p.more, p.uncopied = append(p.more, newGroup(slots, g)), true
	}
	return p
}

// Reserve returns the number of blocks that a group with a window needs for sequences that each add at
// most the given number of tokens in a step.
func Reserve(window, slots, sequences, tokens int) int {
	return sequences * ((window+tokens+slots-1)/slots + 1)
}

func newGroup(slots int, g Group) *Pool {
	blocks := g.Blocks
	if blocks < 1 || slots < 1 || g.Window < 0 {
		panic(fmt.Sprintf("pages: %d blocks of %d slots, a window of %d", blocks, slots, g.Window))
	}
	p := &Pool{
		slots: slots, window: g.Window, blocks: make([]block, blocks), known: make(map[Identity]int32, blocks),
		plain: make([]int32, blocks), passed: lru{none, none, 0}, kept: lru{none, none, 0}, hashed: make([]byte, sha256.Size+4*slots),
	}
	for i := range p.plain { // the first block is taken first, so that memory is touched from its start
		p.plain[i] = int32(blocks - 1 - i)
	}
	return p
}

// Uncopied makes the pool request no copies, for devices that cannot copy: of a prompt that is
// known whole, the last block is computed again. It must be called before the first table
// begins.
func (p *Pool) Uncopied() { p.uncopied = true }

// Slots returns the number of slots of a block.
func (p *Pool) Slots() int { return p.slots }

// Blocks returns the number of blocks.
func (p *Pool) Blocks() int { return len(p.blocks) }

// Free returns the number of blocks that no table holds.
func (p *Pool) Free() int { return len(p.plain) + p.passed.length + p.kept.length }

// Held returns, of each group but the first, the blocks that tables hold.
func (p *Pool) Held() (held []Group) {
	for _, g := range p.more {
		held = append(held, Group{g.window, g.Blocks() - g.Free()})
	}
	return held
}

// Counts returns the pool's totals.
func (p *Pool) Counts() Counts { return p.counts }

// first returns the first block of the group that the token at position n, any later one, or the one
// before sees: that one may be computed again.
func (p *Pool) first(n int) int {
	if p.window == 0 {
		return 0
	}
	return max(0, n-p.window) / p.slots
}

// For returns the number of blocks that hold n tokens.
func (p *Pool) For(tokens int) int { return (tokens + p.slots - 1) / p.slots }

// Copies returns the copies to make before the next step writes, in any order: no block is both
// read and written by them. They are valid until [Pool.Copied].
func (p *Pool) Copies() []batch.Copy { return p.copies }

// Copied records that the copies were made.
func (p *Pool) Copied() {
	p.counts.Copied += int64(len(p.copies))
	for i := len(p.copies) - 1; i >= 0; i-- { // of a table, tails before heads
		p.drop(p.copies[i].From)
	}
	p.copies = p.copies[:0]
}

// Forget makes all blocks unknown, because their contents are not what they should be. Tables
// keep their blocks.
func (p *Pool) Forget() {
	for b := int32(len(p.blocks)) - 1; b >= 0; b-- {
		x := &p.blocks[b]
		if !x.known {
			continue
		}
		x.known = false
		if x.holders == 0 {
			p.unlink(b)
			p.plain = append(p.plain, b)
		}
	}
	clear(p.known)
	if p.watcher != nil {
		p.watcher.Cleared()
	}
	for _, g := range p.more {
		g.Forget()
	}
	if p.states != nil {
		p.states.Forget()
	}
}

// take returns a free block with one holder. There must be a free block.
func (p *Pool) take() int32 {
	b := p.passed.oldest
	if b == none {
		b = p.kept.oldest
	}
	if n := len(p.plain); n > 0 {
		b = p.plain[n-1]
		p.plain = p.plain[:n-1]
	} else {
		p.unlink(b)
		delete(p.known, p.blocks[b].identity)
		p.blocks[b].known = false
		p.counts.Evicted++
		if p.watcher != nil {
			p.watcher.Removed(p.blocks[b].identity)
		}
	}
	p.blocks[b].holders = 1
	return b
}

// hold adds a holder to a known block.
func (p *Pool) hold(b int32) {
	if p.blocks[b].holders == 0 {
		p.unlink(b)
	}
	p.blocks[b].holders++
}

// drop removes a holder from a block. A known block without holders is kept, as the most
// recently used of its list.
func (p *Pool) drop(b int32) { p.pass(b, false) }

// pass is drop for a block that a window may have passed.
func (p *Pool) pass(b int32, passed bool) {
	x := &p.blocks[b]
	if x.holders--; x.holders > 0 {
		return
	}
	if x.known {
		x.passed = passed
		p.link(b)
		return
	}
	p.plain = append(p.plain, b)
	if i := slices.IndexFunc(p.copies, func(c batch.Copy) bool { return c.To == b }); i >= 0 {
		from := p.copies[i].From
		p.copies = slices.Delete(p.copies, i, i+1)
		p.drop(from)
	}
}

// list returns the list that a known block without holders is in.
func (p *Pool) list(b int32) *lru {
	if p.blocks[b].passed {
		return &p.passed
	}
	return &p.kept
}

func (p *Pool) link(b int32) {
	x, l := &p.blocks[b], p.list(b)
	x.older, x.newer = l.newest, none
	if l.newest == none {
		l.oldest = b
	} else {
		p.blocks[l.newest].newer = b
	}
	l.newest = b
	l.length++
}

func (p *Pool) unlink(b int32) {
	x, l := &p.blocks[b], p.list(b)
	if x.older == none {
		l.oldest = x.newer
	} else {
		p.blocks[x.older].newer = x.newer
	}
	if x.newer == none {
		l.newest = x.older
	} else {
		p.blocks[x.newer].older = x.older
	}
	l.length--
}

// know makes a block known by an identity. Where another one is known by it already, the holder gets that
// one in its place. It returns the block that is known, and whether it is new.
func (p *Pool) know(b int32, id Identity) (known int32, stored bool) {
	have, found := p.known[id]
	switch {
	case !found:
		p.known[id] = b
		p.blocks[b].known, p.blocks[b].identity = true, id
	case have != b:
		p.hold(have)
		p.drop(b)
		return have, false
	}
	return b, !found
}

// knows reports whether a block of that identity is known.
func (p *Pool) knows(id *Identity) bool {
	_, known := p.known[*id]
	return known
}

// writable reports whether the holder of a block may write there.
func (p *Pool) writable(b int32) bool { return p.blocks[b].holders == 1 && !p.blocks[b].known }

// after returns the identity of a block with the given tokens after a parent.
func (p *Pool) after(parent *Identity, tokens []int32) Identity {
	text := append(p.hashed[:0], parent[:]...)
	for _, t := range tokens {
		text = binary.LittleEndian.AppendUint32(text, uint32(t))
	}
	return sha256.Sum256(text)
}
