package constrain

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
)

// Vocabulary is the tokens of a model, laid out for masks. It is safe for use by several
// goroutines, and what one constraint finds out about it serves the others.
type Vocabulary struct {
	tokens [][]byte
	ends   []int32

	// The tokens as a trie in preorder. Node 0 is the root.
	char  []byte
	depth []uint16
	after []int32 // the first node that is not below
	token []int32 // or -1
	twins map[int32][]int32

	root *merged

	mu     sync.Mutex
	cache  map[lexID]*local
	counts map[[2]uint64]*counted
	size   int
}

const maxTokenBytes = 1 << 12

// New lays out the tokens, by id. A token without text, such as a control token, is nil: it
// is never allowed, except for ends, which are allowed where a text may end.
func New(tokens [][]byte, ends []int32) (*Vocabulary, error) {
	if len(tokens) == 0 {
		return nil, errors.New("a vocabulary without tokens")
	}
	v := &Vocabulary{tokens: slices.Clone(tokens), ends: slices.Clone(ends), cache: map[lexID]*local{}, counts: map[[2]uint64]*counted{}, twins: map[int32][]int32{}}
	for _, id := range ends {
		if id < 0 || int(id) >= len(tokens) {
			return nil, fmt.Errorf("end token %d is outside of the vocabulary of %d", id, len(tokens))
		}
		v.tokens[id] = nil
	}
	order := make([]int32, 0, len(tokens))
	for id, t := range v.tokens {
		if len(t) > maxTokenBytes {
			return nil, fmt.Errorf("token %d has %d bytes, more than %d", id, len(t), maxTokenBytes)
		}
		if len(t) > 0 {
			order = append(order, int32(id))
		}
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

// Len is the number of tokens.
func (v *Vocabulary) Len() int { return len(v.tokens) }

// Words is the length of a mask: 64 tokens in each.
func (v *Vocabulary) Words() int { return (len(v.tokens) + 63) / 64 }

func allow(mask []uint64, id int32) { mask[id>>6] |= 1 << (id & 63) }

// allowAt allows the tokens of a node.
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

// local is what a state of the lexer lets through, whatever surrounds the lexeme: the tokens
// that stay within it or end with it, and the nodes of the trie at which it may end, from
// which the grammar goes on.
type local struct {
	dense  []uint64
	sparse []int32 // instead of dense where few
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

// merged is a node of the trie of what is left of the tokens behind a set of nodes. Below
// each exit of a string, say, stand much the same few bytes: they are walked once.
type merged struct {
	nodes []int32
	kids  atomic.Pointer[[]mergedKid]
}

type mergedKid struct {
	b      byte
	tokens []int32 // those that end here
	below  *merged // nil: nothing
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

// counted is what a state within a string lets through where any number of characters of
// one class may follow, by how many characters that takes: what bounds of the length leave
// of it is found without another walk.
type counted struct {
	need  [][]int32 // [characters] nodes whose tokens stay in the string
	exits [][]int32 // [characters] nodes that end the string after so many
	most  int
	all   *local // without bounds
	order []int32
}

// localOf is what s lets through.
func (v *Vocabulary) localOf(l *lexer, s lexState) *local {
	n := &l.states[s]
	if n.local != nil {
		return n.local
	}
	if n.mode == modeLiteral {
		loc := v.walkLiteral(n.text)
		l.states[s].local = loc
		return loc
	}
	id := l.id(s)
	v.mu.Lock()
	loc := v.cache[id]
	v.mu.Unlock()
	if loc == nil {
		loc = v.compute(l, s)
		v.mu.Lock()
		if v.size > maxCaches {
			v.cache, v.size = map[lexID]*local{}, 0
		}
		v.cache[id] = loc
		v.size += 256 + 8*len(loc.dense) + 4*len(loc.sparse)
		if loc.exits != nil {
			v.size += 4 * len(loc.exits.nodes)
		}
		v.mu.Unlock()
	}
	l.states[s].local = loc
	return loc
}

func (v *Vocabulary) compute(l *lexer, s lexState) *local {
	n := l.states[s]
	if n.mode == modeBody {
		e := l.at(n.expr)
		if e.kind == kindRepeat && l.at(e.a).char {
			return v.within(v.countedOf(l, e.a), int(e.lo), int(e.hi))
		}
		if e.kind == kindAnd && slices.Contains(e.list, l.text) { // any text but some
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

// walk goes once through the trie, past what s does not let through.
func (v *Vocabulary) walk(l *lexer, s lexState) *local {
	var nodes, exits []int32
	var rows [maxTokenBytes + 1]*[256]lexState
	rows[0] = l.row(s)
	for i, end := int32(1), int32(len(v.char)); i < end; {
		d := v.depth[i]
		to := rows[d-1][v.char[i]]
		after := v.after[i]
		if to == lexDead {
			i = after
			continue
		}
		if v.token[i] >= 0 {
			nodes = append(nodes, i)
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
		row := n.row
		if row == nil {
			row = l.row(to)
		}
		rows[d] = row
		i++
	}
	return v.pack(nodes, exits)
}

func (v *Vocabulary) pack(nodes, exits []int32) *local {
	loc := &local{}
	if len(nodes) < v.Words()/2 {
		for _, n := range nodes {
			loc.sparse = v.tokensAt(loc.sparse, n)
		}
	} else {
		loc.dense = make([]uint64, v.Words())
		for _, n := range nodes {
			v.allowAt(loc.dense, n)
		}
	}
	if len(exits) > 0 {
		loc.exits = &merged{nodes: exits}
	}
	return loc
}

// countedOf is what any number of characters of one class lets through.
func (v *Vocabulary) countedOf(l *lexer, char re) *counted {
	id := l.at(char).hash
	v.mu.Lock()
	c := v.counts[id]
	v.mu.Unlock()
	if c != nil {
		return c
	}
	home := l.state(lexKey{mode: modeBody, expr: l.repeat(char, 0, unlimited)})
	c = &counted{}
	var stack [maxTokenBytes + 1]lexState
	var chars [maxTokenBytes + 1]int32
	stack[0] = home
	put := func(to *[][]int32, k, node int32) {
		for int(k) >= len(*to) {
			*to = append(*to, nil)
		}
		(*to)[k] = append((*to)[k], node)
	}
	var nodes, exits []int32
	for i := int32(1); i < int32(len(v.char)); {
		d := v.depth[i]
		to := l.step(stack[d-1], v.char[i])
		if to == lexDead {
			i = v.after[i]
			continue
		}
		stack[d], chars[d] = to, chars[d-1]
		if to == lexDone {
			put(&c.exits, chars[d], i)
			if v.token[i] >= 0 {
				nodes = append(nodes, i)
			}
			exits = append(exits, i)
			i = v.after[i]
			continue
		}
		need := chars[d] + 1
		if to == home {
			chars[d]++
		}
		if v.token[i] >= 0 {
			put(&c.need, need, i)
			nodes = append(nodes, i)
		}
		i++
	}
	c.most = max(len(c.need), len(c.exits))
	c.all = v.pack(nodes, exits)
	c.order = exits
	v.mu.Lock()
	v.counts[id] = c
	v.mu.Unlock()
	return c
}

// within is what is left where lo to hi characters must follow.
func (v *Vocabulary) within(c *counted, lo, hi int) *local {
	if hi == unlimited || hi > c.most {
		hi = c.most
	}
	if lo == 0 && hi == c.most {
		return c.all
	}
	var nodes, exits []int32
	for k := lo; k <= hi && k < len(c.exits); k++ {
		for _, n := range c.exits[k] {
			if v.token[n] >= 0 {
				nodes = append(nodes, n)
			}
			exits = append(exits, n)
		}
	}
	loc := &local{}
	if len(exits) > 0 {
		loc.exits = &merged{nodes: exits}
	}
	loc.dense = make([]uint64, v.Words())
	for _, n := range nodes {
		v.allowAt(loc.dense, n)
	}
	for k := 0; k <= hi && k < len(c.need); k++ {
		for _, n := range c.need[k] {
			v.allowAt(loc.dense, n)
		}
	}
	return loc
}

// walkBeside goes through the trie beside the walk of any string, and skips what is the same
// there: a string that is none of some names soon is.
func (v *Vocabulary) walkBeside(l *lexer, s lexState) *local {
	base := v.countedOf(l, l.char)
	other := l.state(lexKey{mode: modeBody, expr: l.text})
	loc := &local{dense: make([]uint64, v.Words())}
	base.all.allow(loc.dense)
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
	exits := make([]int32, 0, len(base.order)+len(come))
	for _, n := range base.order {
		if _, is := slices.BinarySearch(gone, n); !is {
			exits = append(exits, n)
		}
	}
	exits = append(exits, come...)
	slices.SortFunc(exits, cmp.Compare[int32])
	if len(gone)+len(come) == 0 {
		loc.exits = base.all.exits
	} else if len(exits) > 0 {
		loc.exits = &merged{nodes: exits}
	}
	return loc
}
