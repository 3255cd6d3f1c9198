package pages

import (
	"crypto/sha256"

	"github.com/smelt-ml/smelt/internal/batch"
)

// Table lists the blocks of one sequence in order. Its methods are given the tokens of that
// sequence, which may only grow.
type Table struct {
	pool   *Pool
	salt   Identity
	blocks []int32
	known  int        // leading blocks that are known by their identity in chain
	chain  []Identity // identities of the sequence's first full blocks, as far as computed
}

// NewTable returns the empty table of a sequence with a salt.
func (p *Pool) NewTable(salt string) *Table {
	return &Table{pool: p, salt: sha256.Sum256([]byte(salt))}
}

// Blocks returns the blocks, valid until the next call and read-only.
func (t *Table) Blocks() []int32 { return t.blocks }

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
// shares those that are known. It returns the number of tokens that need no computation, always
// fewer than all, because the last token's logits are needed. Where there are not enough blocks,
// or fewer than spare would be left, it returns false and changes nothing.
func (t *Table) Begin(tokens []int32, slots, spare int) (cached int, ok bool) {
	p := t.pool
	if len(t.blocks) > 0 || len(tokens) == 0 || slots < len(tokens) {
		panic("pages: a table begins once, with tokens and room for them")
	}
	hits := t.Known(tokens)
	need := p.For(slots)
	if hits*p.slots == len(tokens) {
		// The last token is computed again, into a copy of its block. Without a block for the
		// copy, that block itself is evicted for it.
		if !p.uncopied && t.left(hits) >= need-hits+1+spare {
			need++
		} else {
			hits--
		}
	}
	if t.left(hits) < need-hits+spare {
		return 0, false
	}
	for i := range hits {
		b := p.known[t.chain[i]]
		p.hold(b)
		t.blocks = append(t.blocks, b)
	}
	t.known = hits
	cached = min(hits*p.slots, len(tokens)-1)
	p.counts.Asked += int64(len(tokens))
	p.counts.Cached += int64(cached)
	t.extend(cached, slots)
	return cached, true
}

// Identity returns the identity of full block i of a sequence.
func (t *Table) Identity(i int, tokens []int32) Identity { return *t.identity(i, tokens) }

// Known returns the number of leading blocks of a sequence that are known.
func (t *Table) Known(tokens []int32) (n int) {
	for ; (n+1)*t.pool.slots <= len(tokens); n++ {
		if _, known := t.pool.known[*t.identity(n, tokens)]; !known {
			break
		}
	}
	return n
}

// left returns the number of free blocks after the first hits are held.
func (t *Table) left(hits int) int {
	left := t.pool.Free()
	for i := range hits {
		if t.pool.blocks[t.pool.known[t.chain[i]]].holders == 0 {
			left--
		}
	}
	return left
}

// Extend gives the table blocks for slots, of which those starting at from are to be written,
// and copies shared blocks among these. Where there are not enough blocks it returns false and
// changes nothing.
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

func (t *Table) extend(from, slots int) {
	p := t.pool
	for i := from / p.slots; i < len(t.blocks); i++ {
		if shared := t.blocks[i]; !p.writable(shared) {
			t.blocks[i] = p.take()
			p.copies = append(p.copies, batch.Copy{From: shared, To: t.blocks[i]}) // the copy holds its source until then
		}
	}
	t.known = min(t.known, from/p.slots)
	for len(t.blocks) < p.For(slots) {
		t.blocks = append(t.blocks, p.take())
	}
}

// Shrink frees the blocks behind those for the given slots. None of these may be full of
// committed tokens.
func (t *Table) Shrink(slots int) {
	for n := t.pool.For(slots); len(t.blocks) > n; t.blocks = t.blocks[:len(t.blocks)-1] {
		t.pool.drop(t.blocks[len(t.blocks)-1])
	}
}

// Commit records that the first computed tokens of a sequence are in the cache: blocks that are
// full of them can be shared.
func (t *Table) Commit(tokens []int32, computed int) {
	p := t.pool
	for ; (t.known+1)*p.slots <= computed; t.known++ {
		id, own := *t.identity(t.known, tokens), t.blocks[t.known]
		if b, known := p.known[id]; !known {
			p.known[id] = own
			p.blocks[own].known, p.blocks[own].identity = true, id
			if p.watcher != nil {
				p.watcher.Stored(id, t.parent(), tokens[t.known*p.slots:(t.known+1)*p.slots])
			}
		} else if b != own {
			p.hold(b)
			t.blocks[t.known] = b
			p.drop(own)
		}
	}
}

// parent returns the identity that the first unknown block follows; nil: none.
func (t *Table) parent() *Identity {
	if t.known == 0 {
		return nil
	}
	return &t.chain[t.known-1]
}

// Release empties the table. Its known blocks stay known until they are needed.
func (t *Table) Release() {
	for i := len(t.blocks) - 1; i >= 0; i-- { // a tail is evicted before its head
		t.pool.drop(t.blocks[i])
	}
	t.blocks, t.known = t.blocks[:0], 0
}
