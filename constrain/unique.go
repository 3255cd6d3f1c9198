package constrain

import (
	"slices"
	"strings"
)

// The items of an array that must differ are remembered beside the states of their expressions, as
// characters are counted (lengths.go). They are null, booleans, numbers and strings. A number has its
// shortest notation or one zero behind the point, so that finitely many texts equal an item.

// many is the number of items up to which it matters how many there can be.
const many = 1024

// seen is a node of a trie of items: of their text or, behind a quote, of the values of strings. A
// node does not change, since memories share it.
type seen struct {
	item bool
	kids []seenKid // sorted
	// The arguments and the result of the last call of exhausted; 0 for none.
	expr re
	left span
	all  bool
}

type seenKid struct {
	b  byte
	to *seen
}

func (n *seen) find(b byte) (int, bool) {
	return slices.BinarySearchFunc(n.kids, b, func(k seenKid, b byte) int { return int(k.b) - int(b) })
}

// below returns the node behind text; nil if no item begins so.
func (n *seen) below(text string) *seen {
	for i := 0; i < len(text) && n != nil; i++ {
		k, ok := n.find(text[i])
		if !ok {
			return nil
		}
		n = n.kids[k].to
	}
	return n
}

// with returns a trie with one more item.
func (n *seen) with(text string) *seen {
	next := &seen{}
	if n != nil {
		next.item, next.kids = n.item, slices.Clone(n.kids)
	}
	if text == "" {
		next.item = true
		return next
	}
	i, ok := next.find(text[0])
	if !ok {
		next.kids = slices.Insert(next.kids, i, seenKid{b: text[0]})
	}
	next.kids[i].to = next.kids[i].to.with(text[1:])
	return next
}

// memory is what a thread remembers of an array: the items so far, and the next one as far as it is
// read. nil is the beginning of an array.
type memory struct {
	id    uint64
	items *seen
	count int32   // of items
	at    *seen   // node of the item under way; nil if no item begins so
	last  *memory // without the last bytes of the item under way
	bytes string  // those; empty between items
}

type memoryKey struct {
	from  *memory
	bytes string // that are read; empty where the item ends
}

func (m *memory) number() uint64 {
	if m == nil {
		return 0
	}
	return m.id
}

// begun returns m without the item under way.
func (m *memory) begun() *memory {
	for m != nil && m.bytes != "" {
		m = m.last
	}
	return m
}

// remembered returns the memory m with more bytes of the item under way or, if there are none, with
// that item among the others.
func (p *parser) remembered(m *memory, bytes string) *memory {
	key := memoryKey{m, bytes}
	if next := p.memories[key]; next != nil {
		return next
	}
	if len(p.memories) > maxReadings {
		clear(p.memories)
	}
	p.spend(derivation)
	p.lastID++
	next := &memory{id: p.lastID, last: m, bytes: bytes}
	if m != nil {
		next.items, next.count, next.at = m.items, m.count, m.at.below(bytes)
	}
	if bytes == "" {
		var parts []string
		for ; m != nil && m.bytes != ""; m = m.last {
			parts = append(parts, m.bytes)
		}
		slices.Reverse(parts)
		p.spend(derivation * len(parts))
		for _, text := range equals(strings.Join(parts, "")) {
			next.items = next.items.with(text)
		}
		next.count, next.at, next.last = next.count+1, next.items, nil
	}
	p.memories[key] = next
	return next
}

// equals returns the texts of an item's value.
func equals(text string) []string {
	if text[0] != '-' && (text[0] < '0' || text[0] > '9') {
		return []string{text}
	}
	whole := strings.TrimSuffix(text, ".0")
	switch {
	case strings.Contains(whole, "."):
		return []string{text}
	case strings.TrimPrefix(whole, "-") == "0":
		return []string{"0", "0.0", "-0", "-0.0"}
	}
	return []string{whole, whole + ".0"}
}

// differing returns the state of a thread whose byte b leads to the state to, and what the thread then
// remembers; lexDead if the item under way can no longer differ from the others.
func (p *parser) differing(t *thread, to lexState, read int32, b byte) (lexState, *memory) {
	m := t.memory
	p.within = p.within || p.states[t.lex].mode != modeQuote
	if bytes := p.decoded(t.lex, b); bytes != "" {
		m = p.remembered(m, bytes)
	}
	if m == nil || m.at == nil {
		return to, m
	}
	left := anyLength
	if x := &p.steps[t.at].lex; x.counts() {
		left = x.left(read)
	}
	none := false
	switch k := p.states[to].lexKey; {
	case to == lexDone:
		none = m.at.item
	case k.mode == modeRaw, k.mode == modeBody:
		none = p.exhausted(k.expr, left, m.at)
	default:
		none = !slices.ContainsFunc(utf8Ranges(k.chars()), func(seq [][2]byte) bool {
			return p.lacks(k.expr, left, m.at, seq)
		})
	}
	if none {
		return lexDead, nil
	}
	return to, m
}

// decoded returns what byte b adds to the text of an item in state s.
func (l *lexer) decoded(s lexState, b byte) string {
	k := &l.states[s]
	switch k.mode {
	case modeBody:
		if isMark(b) {
			return ""
		}
	case modeEscape:
		if b == 'u' {
			return ""
		}
		b = unescaped(b)
	case modeHex, modeLowHex:
		digit, _ := hexDigit(b)
		digits := k.digits&0xFFFF<<4 | digit
		c := rune(digits & 0xFFFF)
		switch {
		case digits < 1<<16 || k.mode == modeHex && c >= surrogateMin && c <= surrogateMax:
			return ""
		case k.mode == modeLowHex:
			c = decodeSurrogates(rune(k.digits>>16), c)
		}
		return string(c)
	case modeLow, modeLowEscape:
		return ""
	}
	return string([]byte{b})
}

// behind returns a range of numbers of characters behind byte b of a text.
func (s span) behind(b byte) span {
	if s == anyLength || b >= 0x80 && b < 0xC0 {
		return s
	}
	if s.most != endless {
		s.most--
	}
	s.least = max(s.least-1, 0)
	return s
}

// exhausted reports whether all texts of r, of a number of characters within left, are items below
// the node at.
func (l *lexer) exhausted(r re, left span, at *seen) bool {
	if at.expr == r && at.left == left {
		return at.all
	}
	all := at.item || !l.at(r).nullable || left.least > 0
	l.spend(derivation)
	for b := 0; b < 256 && all; b++ {
		d, after := l.pool.step(r, byte(b)), left.behind(byte(b))
		if d == reNone || !l.fits(d, after) {
			continue
		}
		i, ok := at.find(byte(b))
		all = ok && l.exhausted(d, after, at.kids[i].to)
	}
	at.expr, at.left, at.all = r, left, all
	return all
}

// fits reports whether r has a text of a number of characters within left.
func (l *lexer) fits(r re, left span) bool { return left == anyLength || l.known(r).meets(left) }

// lacks reports whether r has a text that begins with one of the sequences of bytes and is no item
// below the node at.
func (l *lexer) lacks(r re, left span, at *seen, seq [][2]byte) bool {
	if len(seq) == 0 {
		return !l.exhausted(r, left, at)
	}
	for b := int(seq[0][0]); b <= int(seq[0][1]); b++ {
		d, after := l.pool.step(r, byte(b)), left.behind(byte(b))
		if d == reNone {
			continue
		}
		if i, ok := at.find(byte(b)); ok {
			if l.lacks(d, after, at.kids[i].to, seq[1:]) {
				return true
			}
		} else if l.reachesBytes(d, seq[1:], func(behind re) bool { return l.fits(behind, after) }) {
			return true
		}
	}
	return false
}

// stuck reports whether the lexeme at a place, or the item that it must lead to, can be none that m
// lacks.
func (p *parser) stuck(at place, m *memory) bool {
	if m == nil {
		return false
	}
	s := &p.steps[at]
	if len(s.forks) > 0 {
		return !slices.ContainsFunc(s.forks, func(q place) bool { return !p.stuck(q, m) })
	}
	if x := s.lex; x.room > 0 && m.count >= x.room {
		node, k := m.items, p.states[x.state].lexKey
		if k.mode == modeQuote {
			node = node.below(`"`)
		}
		return node != nil && p.exhausted(k.expr, x.span, node)
	}
	return false
}

// uniqueItem returns the expressions of the items of a shape: of the values of strings, and of the
// texts of others; firm is the latter with one text for each value.
func (c *schemas) uniqueItem(s *shape) (text, raw, firm re) {
	var words []re
	for i, ok := range []bool{isNull: s.null, isFalse: s.no, isTrue: s.yes} {
		if ok {
			words = append(words, c.pool.literal(constants[i]))
		}
	}
	raw = c.pool.or(append(words, c.num.both(s.number, c.num.short))...)
	firm = c.pool.or(append(words, c.num.both(s.number, c.num.shortest))...)
	return c.pool.or(s.text.expr, c.words(s.text.words)), raw, firm
}

// uniquePlaces returns the places of an item that differs from those before it. Arrays of fewer
// items than room have another item whatever they are.
func (c *schemas) uniquePlaces(id conjID, room int32, next place) (forks []place) {
	s := c.conjs[id].shape
	text, raw, _ := c.uniqueItem(s)
	x := c.quoted(text)
	if s.text.expr == reNone && !slices.ContainsFunc(s.text.words, func(w string) bool { return !allPlain(w) }) && x.state != lexDead {
		x.state = c.state(lexKey{mode: modeQuote, expr: c.states[x.state].expr, plain: true})
	}
	for _, x := range []lexeme{x, uncounted(c.raw(raw))} {
		if x.state != lexDead {
			x.room = room
			forks = append(forks, c.lexeme(x, next))
		}
	}
	return forks
}

func allPlain(w string) bool {
	return !strings.ContainsFunc(w, func(r rune) bool { return r >= 0x7F || !plain(byte(r)) })
}

// places returns the number of places that differ in their item.
func (a *arrayShape) places() int {
	if n := len(a.prefix) + 1; a.max == unlimited || n <= a.max {
		return n
	}
	return a.max
}

// checkUnique refuses an array whose items must differ where they cannot be told apart.
func (c *schemas) checkUnique(a *arrayShape) {
	if a.unique == nil {
		return
	}
	if len(a.contains) > 0 {
		c.refuse(a.unique, "uniqueItems", "beside contains is not supported")
	}
	for i := range a.places() {
		s := c.shapeOf(a.at(i))
		if len(s.arrays)+len(s.objects) > 0 {
			c.refuse(a.unique, "uniqueItems", "of items that can be arrays or objects is not supported")
		}
		text, _, _ := c.uniqueItem(s)
		c.checkConditions(text)
		if !c.short(text) && c.alive(text) {
			c.intricate = append(c.intricate, c.quoted(text))
		}
	}
}

// variety returns the number of values that an item can have and, if there are strings and others,
// the lesser of their numbers; both up to most.
func (c *schemas) variety(id conjID, most int) (all, least int) {
	text, _, firm := c.uniqueItem(c.conjs[id].shape)
	least = most
	for _, r := range []re{text, firm} {
		if n := c.several(r, most); n > 0 {
			all, least = min(all+n, most), min(least, n)
		}
	}
	return all, least
}

// several returns the number of texts of r, up to most.
func (c *schemas) several(r re, most int) (n int) {
	if !c.alive(r) {
		return 0
	}
	for level := map[re]int{r: 1}; len(level) > 0 && n < most; {
		next := map[re]int{}
		for r, times := range level {
			if c.at(r).nullable {
				n = min(n+times, most)
			}
			c.spend(256)
			for b := range 256 {
				if d := c.pool.step(r, byte(b)); d != reNone {
					next[d] = min(next[d]+times, most)
				}
			}
		}
		level = next
	}
	return n
}

// enough reports whether an array of different items can have as many as it must.
func (c *schemas) enough(a *arrayShape) bool {
	if a.unique == nil || a.min < 2 {
		return true
	}
	for i := range min(a.min, len(a.prefix)+1) {
		if n, _ := c.variety(a.at(i), a.min); n < a.min {
			if a.min > 1 && slices.ContainsFunc(a.prefix, func(id conjID) bool { return id != a.at(i) }) {
				c.refuse(a.unique, "uniqueItems", "of items by place that have few values is not supported")
			}
			return false
		}
	}
	return true
}

// room returns the least variety of an array's items, up to many.
func (c *schemas) room(a *arrayShape) int32 {
	room := many
	for i := range a.places() {
		_, n := c.variety(a.at(i), many)
		room = min(room, n)
	}
	return int32(max(room, 1))
}

// doubt is how far a walk of the tokens behind an item that must differ can trust the memory, which
// lacks that item.
type doubt uint8

const (
	sure     doubt = iota
	once           // up to the text of another item
	doubtful       // not at all
)

// maskUnique sets the bits of the tokens that a thread within an item that must differ accepts. It
// walks the tokens that end the item as if the item were not remembered, and tries those that this
// might allow too many of.
func (c *Constraint) maskUnique(mask []uint64, t thread) {
	c.own = append(c.own[:0], mask...)
	clear(c.own)
	c.doubts = c.doubts[:0]
	x := c.p.steps[t.at].lex
	loc := c.v.localOf(c.p.lexer, t.lex, c.p.left(&t))
	loc.allow(c.own)
	m := t.begun()
	if loc.exits != nil {
		d := once
		if m != nil && m.count+1 >= x.room || x.room < 2 {
			d = doubtful
		}
		c.walk(c.own, loc.exits, c.p.from(c.p.steps[t.at].next, t.top, m).threads, d)
	}
	if m != nil {
		c.doubtBelow(t, 0)
	}
	for _, id := range c.doubts {
		if c.own[id>>6]>>(id&63)&1 != 0 && !c.takes(t, c.v.tokens[id]) {
			c.own[id>>6] &^= 1 << (id & 63)
		}
	}
	for i, w := range c.own {
		mask[i] |= w
	}
}

// doubtBelow adds the tokens below a node that lead a thread to an item that the array has.
func (c *Constraint) doubtBelow(t thread, node int32) {
	v := c.v
	for n := node + 1; n < v.after[node]; n = v.after[n] {
		to, read, m := c.p.stepOf(&t, v.char[n])
		switch {
		case c.p.lexer.step(t.lex, v.char[n]) == lexDead:
		case to == lexDead || m != nil && m.at != nil && m.at.item && c.p.states[to].accepts:
			for i := n; i < v.after[n]; i++ {
				c.doubts = v.tokensAt(c.doubts, i)
			}
		case m != nil && m.at != nil:
			c.doubtBelow(thread{t.at, to, read, t.top, m}, n)
		}
	}
}

// takes reports whether a thread accepts a text.
func (c *Constraint) takes(t thread, text []byte) bool {
	ts, ends := []thread{t}, false
	for _, b := range text {
		var next []thread
		if next, ends = c.p.advance(nil, ts, b); len(next) == 0 && !ends {
			return false
		}
		ts = c.p.merge(next)
	}
	return true
}
