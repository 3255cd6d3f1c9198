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

// Pool owns the blocks of a cache. It is used by one goroutine at a time.
type Pool struct {
	slots  int
	blocks []block
	known  map[Identity]int32
	plain  []int32 // free blocks without an identity; the last is taken first
	kept   lru     // free blocks with an identity
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
	identity     Identity
	older, newer int32 // neighbours in the list of kept blocks
}

// lru is a list of the kept blocks in eviction order.
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

// NewPool returns a pool of blocks with the given number of slots each. None is known.
func NewPool(blocks, slots int) *Pool {
	if blocks < 1 || slots < 1 {
		panic(fmt.Sprintf("pages: %d blocks of %d slots", blocks, slots))
	}
	p := &Pool{
		slots: slots, blocks: make([]block, blocks), known: make(map[Identity]int32, blocks),
		plain: make([]int32, blocks), kept: lru{none, none, 0}, hashed: make([]byte, sha256.Size+4*slots),
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
func (p *Pool) Free() int { return len(p.plain) + p.kept.length }

// Counts returns the pool's totals.
func (p *Pool) Counts() Counts { return p.counts }

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
}

// take returns a free block with one holder. There must be a free block.
func (p *Pool) take() int32 {
	b := p.kept.oldest
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
// recently used.
func (p *Pool) drop(b int32) {
	x := &p.blocks[b]
	if x.holders--; x.holders > 0 {
		return
	}
	if x.known {
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

func (p *Pool) link(b int32) {
	x, l := &p.blocks[b], &p.kept
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
	x, l := &p.blocks[b], &p.kept
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
