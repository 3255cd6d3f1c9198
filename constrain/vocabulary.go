package constrain

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
)

// Vocabulary is the tokens of a model, indexed for computing masks. It is safe for concurrent use,
// and its constraints share what it caches.
type Vocabulary struct {
	tokens [][]byte
	ends   []int32

	// The tokens as a trie in preorder; node 0 is the root.
	char  []byte
	depth []uint16
	after []int32 // first node behind the subtree
	token []int32 // token at the node, -1 for none
	twins map[int32][]int32

	root *merged

	mu     sync.Mutex
	cache  map[lexID]*local
	counts map[lexID]*counted
	size   int
}

const maxTokenBytes = 1 << 12

// New indexes tokens by id. A token without text, such as a control token, is nil: it is allowed
// only where a [Form] has it, or where the text may end if it is in ends.
func New(tokens [][]byte, ends []int32) (*Vocabulary, error) {
	if len(tokens) == 0 {
		return nil, errors.New("a vocabulary without tokens")
	}
	v := &Vocabulary{tokens: slices.Clone(tokens), ends: slices.Clone(ends), cache: map[lexID]*local{}, counts: map[lexID]*counted{}, twins: map[int32][]int32{}}
	for _, id := range ends {
		if id < 0 || int(id) >= len(tokens) {
			return nil, fmt.Errorf("end token %d is outside the vocabulary of %d tokens", id, len(tokens))
		}
		v.tokens[id] = nil
	}
	order := make([]int32, 0, len(tokens))
	for id, t := range tokens {
		switch {
		case len(t) > maxTokenBytes:
			return nil, fmt.Errorf("token %d has %d bytes, more than %d", id, len(t), maxTokenBytes)
		case slices.Contains(ends, int32(id)):
			continue
		case len(t) == 0:
			v.tokens[id] = []byte(controlBytes(int32(id)))
		case bytes.IndexByte(t, controlMark) >= 0: // in no text; would collide with controlBytes
			v.tokens[id] = nil
			continue
		}
		order = append(order, int32(id))
	}
	slices.SortStableFunc(order, func(a, b int32) int { return slices.Compare(v.tokens[a], v.tokens[b]) })
	v.grow(0, 0, -1)
	var last []byte
	path := []int32{0}
	for _, id := range order {
		t := v.tokens[id]
		same := 0
		for same < len(t) && same < len(last) && t[same] == last[same] {
			same++
		}
		path = path[:same+1]
		for d := same; d < len(t); d++ {
			path = append(path, int32(len(v.char)))
			v.grow(t[d], d+1, -1)
		}
		node := path[len(t)]
		if v.token[node] < 0 {
			v.token[node] = id
		} else {
			v.twins[node] = append(v.twins[node], id)
		}
		last = t
	}
	v.after = make([]int32, len(v.char))
	open := []int32{}
	for i := range v.char {
		for len(open) > 0 && v.depth[open[len(open)-1]] >= v.depth[i] {
			v.after[open[len(open)-1]] = int32(i)
			open = open[:len(open)-1]
		}
		open = append(open, int32(i))
	}
	for _, i := range open {
		v.after[i] = int32(len(v.char))
	}
	v.root = &merged{nodes: []int32{0}}
	return v, nil
}

func (v *Vocabulary) grow(b byte, depth int, token int32) {
	v.char = append(v.char, b)
	v.depth = append(v.depth, uint16(depth))
	v.token = append(v.token, token)
}

// Len returns the number of tokens.
func (v *Vocabulary) Len() int { return len(v.tokens) }

// Words returns the length of a mask in words of 64 tokens.
func (v *Vocabulary) Words() int { return (len(v.tokens) + 63) / 64 }

func allow(mask []uint64, id int32) { mask[id>>6] |= 1 << (id & 63) }

// allowAt sets the bits of the tokens at a node.
func (v *Vocabulary) allowAt(mask []uint64, node int32) {
	if id := v.token[node]; id >= 0 {
		allow(mask, id)
		if len(v.twins) > 0 {
			for _, id := range v.twins[node] {
				allow(mask, id)
			}
		}
	}
}

func (v *Vocabulary) denyAt(mask []uint64, node int32) {
	if id := v.token[node]; id >= 0 {
		mask[id>>6] &^= 1 << (id & 63)
		for _, id := range v.twins[node] {
			mask[id>>6] &^= 1 << (id & 63)
		}
	}
}

func (v *Vocabulary) tokensAt(dst []int32, node int32) []int32 {
	if id := v.token[node]; id >= 0 {
		dst = append(append(dst, id), v.twins[node]...)
	}
	return dst
}

// local is the part of a mask that a lexer state determines without the grammar: the tokens that
// stay within the lexeme or end with it, and the trie nodes at which the lexeme may end, from which
// the grammar continues.
type local struct {
	dense  []uint64
	sparse []int32 // used instead of dense for few tokens
	exits  *merged // nil: none
}

func (l *local) allow(mask []uint64) {
	for i, w := range l.dense {
		mask[i] |= w
	}
	for _, id := range l.sparse {
		allow(mask, id)
	}
}

// merged is a node of the union of the subtries below several nodes. The exits of a string, for
// example, have nearly the same few bytes below them, which are then walked once.
type merged struct {
	nodes []int32
	kids  atomic.Pointer[[]mergedKid]
}

type mergedKid struct {
	b      byte
	tokens []int32 // tokens that end here
	below  *merged // nil: none
}

func (m *merged) children(v *Vocabulary) []mergedKid {
	if kids := m.kids.Load(); kids != nil {
		return *kids
	}
	var by [256][]int32
	for _, n := range m.nodes {
		for c := n + 1; c < v.after[n]; c = v.after[c] {
			by[v.char[c]] = append(by[v.char[c]], c)
		}
	}
	kids := []mergedKid{}
	for b, nodes := range by {
		if len(nodes) == 0 {
			continue
		}
		kid := mergedKid{b: byte(b)}
		var inner []int32
		for _, n := range nodes {
			kid.tokens = v.tokensAt(kid.tokens, n)
			if v.after[n] > n+1 {
				inner = append(inner, n)
			}
		}
		if len(inner) > 0 {
			kid.below = &merged{nodes: inner}
		}
		kids = append(kids, kid)
	}
	m.kids.Store(&kids)
	return kids
}

// localOf returns the local of state s; left is the allowed number of further characters of a
// counted lexeme.
func (v *Vocabulary) localOf(l *lexer, s lexState, left span) *local {
	n := &l.states[s]
	counts := left != anyLength
	switch {
	case counts && n.mode == modeBody:
		c := v.countedOf(l, s)
		if left = c.clip(left); left == anyLength {
			return c.all
		}
		return v.kept(l.id(s, left), func() *local { return v.within(c, left) })
	case counts:
		return v.kept(l.id(s, left), func() *local { return v.walkCounted(l, s, left) })
	case n.local != nil:
		return n.local
	}
	var loc *local
	if n.mode == modeLiteral {
		loc = v.walkLiteral(n.text)
	} else {
		loc = v.kept(l.id(s, left), func() *local { return v.compute(l, s) })
	}
	l.states[s].local = loc
	return loc
}

// ready computes the local of a string behind its opening quote, so that a bound that the string
// exceeds is met when its constraint is compiled.
func (v *Vocabulary) ready(l *lexer, x lexeme) {
	s := l.step(x.state, '"')
	if !v.knows(l, s, x.span) {
		l.spend(len(v.char))
	}
	v.localOf(l, s, x.span)
}

// knows reports whether localOf has s in its cache or needs no walk.
func (v *Vocabulary) knows(l *lexer, s lexState, left span) bool {
	n := &l.states[s]
	switch {
	case n.mode == modeLiteral || left == anyLength && n.local != nil:
		return true
	case left != anyLength && n.mode == modeBody:
		v.mu.Lock()
		defer v.mu.Unlock()
		return v.counts[l.id(s, anyLength)] != nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.cache[l.id(s, left)] != nil
}

// kept returns the cached local for id, or computes and caches it.
func (v *Vocabulary) kept(id lexID, compute func() *local) *local {
	v.mu.Lock()
	loc := v.cache[id]
	v.mu.Unlock()
	if loc != nil {
		return loc
	}
	loc = compute()
	v.mu.Lock()
	defer v.mu.Unlock()
	v.account(loc.size())
	v.cache[id] = loc
	return loc
}

// account adds bytes to the size of the caches and clears them beyond maxCaches.
func (v *Vocabulary) account(bytes int) {
	if v.size += bytes; v.size > maxCaches {
		clear(v.cache)
		clear(v.counts)
		v.size = bytes
	}
}

func (l *local) size() int {
	bytes := 256 + 8*len(l.dense) + 4*len(l.sparse)
	if l.exits != nil {
		bytes += 4 * len(l.exits.nodes)
	}
	return bytes
}

func (v *Vocabulary) compute(l *lexer, s lexState) *local {
	n := l.states[s]
	if n.mode == modeBody {
		if e := l.at(n.expr); e.kind == kindAnd && slices.Contains(e.list, l.text) { // any text with exclusions
			return v.walkBeside(l, s)
		}
	}
	return v.walk(l, s)
}

func (v *Vocabulary) walkLiteral(text string) *local {
	loc := &local{}
	node := int32(0)
	for i := 0; i < len(text); i++ {
		c := node + 1
		for c < v.after[node] && v.char[c] != text[i] {
			c = v.after[c]
		}
		if c >= v.after[node] {
			return loc
		}
		node = c
		loc.sparse = v.tokensAt(loc.sparse, node)
	}
	if v.after[node] > node+1 {
		loc.exits = &merged{nodes: []int32{node}}
	}
	return loc
}

// walk walks the trie once, skipping subtrees that s does not accept.
func (v *Vocabulary) walk(l *lexer, s lexState) *local {
	dense, tokens := make([]uint64, v.Words()), 0
	var exits []int32
	var rows [maxTokenBytes + 1]*[256]lexState
	var states [maxTokenBytes + 1]lexState
	rows[0], states[0] = l.row(s), s
	for i, end := int32(1), int32(len(v.char)); i < end; {
		d, b := v.depth[i], v.char[i]
		to := rows[d-1][b] - 1
		if to < 0 {
			to = l.fill(states[d-1], b)
		}
		after := v.after[i]
		if to == lexDead {
			i = after
			continue
		}
		if v.token[i] >= 0 {
			v.allowAt(dense, i)
			tokens++
		}
		if after == i+1 {
			i++
			continue
		}
		n := &l.states[to]
		if n.accepts {
			exits = append(exits, i)
		}
		if !n.more {
			i = after
			continue
		}
		rows[d], states[d] = l.row(to), to
		i++
	}
	return v.packDense(dense, tokens, exits)
}

// packDense returns a local with the bits of dense, of which the given number of tokens are set.
func (v *Vocabulary) packDense(dense []uint64, tokens int, exits []int32) *local {
	loc := &local{dense: dense}
	if tokens < v.Words()/2 {
		loc.dense = nil
		for i, w := range dense {
			for ; w != 0; w &= w - 1 {
				loc.sparse = append(loc.sparse, int32(i<<6+bits.TrailingZeros64(w)))
			}
		}
	}
	if len(exits) > 0 {
		loc.exits = &merged{nodes: exits}
	}
	return loc
}

func (v *Vocabulary) pack(nodes, exits []int32) *local {
	dense := make([]uint64, v.Words())
	for _, n := range nodes {
		v.allowAt(dense, n)
	}
	return v.packDense(dense, len(nodes), exits)
}

// counted is the unbounded mask of a state within a string, grouped by the number of characters
// from the state to the string's end. The mask under any bound on the string's length follows from
// it without another walk of the trie.
type counted struct {
	all     *local
	atLeast [][]int32 // [k]: nodes within the string that admit k characters and any greater number, and no smaller one
	exits   [][]int32 // [k]: nodes that end the string after k characters
	others  []stop    // the other nodes within the string
	most    int       // a bound of this many characters or more excludes nothing
}

// stop is a node within a string after which only some numbers of characters are possible.
type stop struct {
	node    int32
	read    int32 // characters from the state to the node
	lengths spans // possible numbers of characters after the node
}

// countedOf returns the counted of a state within a string.
func (v *Vocabulary) countedOf(l *lexer, s lexState) *counted {
	id := l.id(s, anyLength)
	v.mu.Lock()
	c := v.counts[id]
	v.mu.Unlock()
	if c != nil {
		return c
	}
	c = &counted{}
	var states [maxTokenBytes + 1]lexState
	var chars [maxTokenBytes + 1]int32
	states[0] = s
	put := func(to *[][]int32, k, node int32) {
		for int(k) >= len(*to) {
			*to = append(*to, nil)
		}
		(*to)[k] = append((*to)[k], node)
	}
	var nodes, exits []int32
	for i := int32(1); i < int32(len(v.char)); {
		d, b := v.depth[i], v.char[i]
		to := l.step(states[d-1], b)
		if to == lexDead {
			i = v.after[i]
			continue
		}
		read := chars[d-1]
		if to == lexDone {
			put(&c.exits, read, i)
			if v.token[i] >= 0 {
				nodes = append(nodes, i)
			}
			exits = append(exits, i)
			i = v.after[i]
			continue
		}
		if l.states[to].mode == modeBody && l.begins(states[d-1], b) {
			read++
		}
		states[d], chars[d] = to, read
		if v.token[i] >= 0 {
			nodes = append(nodes, i)
			lengths := l.lengthsOf(to)
			if lengths.upward() {
				put(&c.atLeast, read+lengths[0].least, i)
			} else {
				c.others = append(c.others, stop{i, read, lengths})
				c.most = max(c.most, int(read+lengths[0].least))
			}
		}
		i++
	}
	c.most = max(c.most, len(c.atLeast), len(c.exits))
	c.all = v.pack(nodes, exits)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.account(c.all.size() + 4*(len(nodes)+len(exits)) + 32*len(c.others))
	v.counts[id] = c
	return c
}

// clip returns a canonical bound with the same mask as left, so that equal masks share a cache
// entry.
func (c *counted) clip(left span) span {
	if int(left.most) >= c.most && (left.least == 0 || len(c.others) == 0) {
		left.most = endless
	}
	if len(c.others) == 0 {
		left.least = min(left.least, int32(len(c.exits)))
	}
	return left
}

// within returns the local under a bound on the number of characters that follow.
func (v *Vocabulary) within(c *counted, left span) *local {
	var tokens, exits []int32
	for k, nodes := range c.exits {
		if left.meets(span{int32(k), int32(k)}) {
			exits = append(exits, nodes...)
		}
	}
	slices.Sort(exits)
	tokens = slices.Clone(exits)
	for k, nodes := range c.atLeast {
		if int32(k) <= left.most {
			tokens = append(tokens, nodes...)
		}
	}
	for _, s := range c.others {
		bound := span{max(left.least-s.read, 0), left.most}
		if left.most != endless {
			bound.most -= s.read
		}
		if s.lengths.meets(bound) {
			tokens = append(tokens, s.node)
		}
	}
	return v.pack(tokens, exits)
}

// walkCounted is walk under a bound on the number of characters that follow.
func (v *Vocabulary) walkCounted(l *lexer, s lexState, left span) *local {
	var nodes, exits []int32
	var states [maxTokenBytes + 1]lexState
	var chars [maxTokenBytes + 1]int32
	x := lexeme{s, left, 0}
	states[0] = s
	for i := int32(1); i < int32(len(v.char)); {
		d, b := v.depth[i], v.char[i]
		to := l.step(states[d-1], b)
		if to != lexDead {
			to, chars[d] = l.counted(&x, states[d-1], to, b, chars[d-1])
		}
		if to == lexDead {
			i = v.after[i]
			continue
		}
		states[d] = to
		if v.token[i] >= 0 {
			nodes = append(nodes, i)
		}
		if to == lexDone {
			exits = append(exits, i)
			i = v.after[i]
			continue
		}
		i++
	}
	return v.pack(nodes, exits)
}

// walkBeside computes the local of a string that excludes some names, as a difference to that of
// any string. It walks only the subtries where the two differ, which are few: most prefixes soon
// differ from every name.
func (v *Vocabulary) walkBeside(l *lexer, s lexState) *local {
	other := l.state(lexKey{mode: modeBody, expr: l.text})
	base := v.localOf(l, other, anyLength)
	loc := &local{dense: make([]uint64, v.Words())}
	base.allow(loc.dense)
	var gone, come []int32
	var stack [maxTokenBytes + 1][2]lexState
	stack[0] = [2]lexState{s, other}
	for i := int32(1); i < int32(len(v.char)); {
		d := v.depth[i]
		from := stack[d-1]
		a, b := lexDead, lexDead
		if from[0] != lexDead {
			a = l.step(from[0], v.char[i])
		}
		if from[1] != lexDead {
			b = l.step(from[1], v.char[i])
		}
		if a == b {
			i = v.after[i]
			continue
		}
		stack[d] = [2]lexState{a, b}
		if a == lexDead {
			v.denyAt(loc.dense, i)
		} else {
			v.allowAt(loc.dense, i)
		}
		if l.states[a].accepts {
			come = append(come, i)
		}
		if l.states[b].accepts {
			gone = append(gone, i)
		}
		i++
	}
	var ends []int32 // from any string; empty if no token of the vocabulary ends one
	if base.exits != nil {
		ends = base.exits.nodes
	}
	exits := make([]int32, 0, len(ends)+len(come))
	for _, n := range ends {
		if _, is := slices.BinarySearch(gone, n); !is {
			exits = append(exits, n)
		}
	}
	exits = append(exits, come...)
	slices.SortFunc(exits, cmp.Compare[int32])
	if len(gone)+len(come) == 0 {
		loc.exits = base.exits
	} else if len(exits) > 0 {
		loc.exits = &merged{nodes: exits}
	}
	return loc
}
