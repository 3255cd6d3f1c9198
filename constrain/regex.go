package constrain

import (
	"container/heap"
	"hash/maphash"
	"math/bits"
	"slices"
)

// re is the index of a regular expression in a pool.
type re int32

const (
	reNone re = iota // matches nothing
	reEps            // matches the empty text
	reAll            // matches every sequence of bytes
)

type reKind uint8

const (
	kindNone reKind = iota
	kindEps
	kindSet     // one byte of a set
	kindCat     // a, then b
	kindOr      // any one of list
	kindAnd     // all of list
	kindNot     // everything that a does not match
	kindRepeat  // a repeated lo to hi times
	kindMachine // a machine in one of its states
	kindLoop    // a, in which it stands itself, behind at least one byte
)

const unlimited = -1 // upper bound of a repetition without one

type reNode struct {
	kind     reKind
	nullable bool  // matches the empty text
	sure     bool  // matches something, known from its structure
	negative bool  // contains a complement, so it may match bytes that are not UTF-8
	char     bool  // a set of characters in UTF-8
	loops    bool  // contains a loop
	life     int8  // result of alive: 0 unknown, 1 alive, -1 dead
	least    int32 // lower bound on the bytes of a match
	lo, hi   int32
	a, b     re
	list     []re
	set      byteSet
	cuts     byteSet // contains b if the derivatives by b-1 and by b may differ
	machine  machine
	state    int32
	name     string    // of a loop, equal in every pool
	hash     [2]uint64 // of the structure, equal in every pool
	row      *[256]re  // derivative + 1 by byte; 0 until computed
}

// machine is a deterministic automaton within a regular expression, for languages without a short
// expression, such as the multiples of a number.
type machine interface {
	step(state int32, b byte) int32 // -1: no match can follow
	accepts(state int32) bool
	key() string
}

type byteSet [4]uint64

func (s *byteSet) add(b byte)      { s[b>>6] |= 1 << (b & 63) }
func (s *byteSet) has(b byte) bool { return s[b>>6]>>(b&63)&1 != 0 }
func (s *byteSet) addRange(lo, hi byte) {
	for b := int(lo); b <= int(hi); b++ {
		s.add(byte(b))
	}
}
func (s byteSet) or(t byteSet) byteSet {
	for i := range s {
		s[i] |= t[i]
	}
	return s
}

// edges returns the bytes at which membership changes.
func (s byteSet) edges() (e byteSet) {
	carry := uint64(0)
	for i, w := range s {
		e[i] = w ^ (w<<1 | carry)
		carry = w >> 63
	}
	return e
}

// pool holds hash-consed regular expressions over bytes, simplified so that an expression has
// finitely many derivatives (Brzozowski 1964; Owens, Reppy, Turon 2009).
type pool struct {
	nodes  []reNode
	byHash map[[2]uint64]re
	spans  map[re]spans // cached results of lengths
	memo   map[re]re    // derivatives by one byte
	rows   int
	text   re // any UTF-8 text
	char   re // any character
	budget
	classes map[[2]uint64]re // cached results of class, by the hash of the characters
}

var hashSeeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

func newPool() *pool {
	p := &pool{byHash: map[[2]uint64]re{}, spans: map[re]spans{}, memo: map[re]re{}, classes: map[[2]uint64]re{}}
	p.intern(reNode{kind: kindNone})
	p.intern(reNode{kind: kindEps, nullable: true, sure: true})
	p.intern(reNode{kind: kindNot, a: reNone, nullable: true, sure: true, negative: true})
	p.char = p.class(runes{{0, 0x10FFFF}})
	p.text = p.repeat(p.char, 0, unlimited)
	return p
}

func hashOf(b []byte) [2]uint64 {
	return [2]uint64{maphash.Bytes(hashSeeds[0], b), maphash.Bytes(hashSeeds[1], b)}
}

func (p *pool) at(r re) *reNode { return &p.nodes[r] }

func (p *pool) intern(n reNode) re {
	buf := make([]byte, 0, 96)
	put := func(v uint64) {
		buf = append(buf, byte(v), byte(v>>8), byte(v>>16), byte(v>>24), byte(v>>32), byte(v>>40), byte(v>>48), byte(v>>56))
	}
	buf = append(buf, byte(n.kind))
	child := func(r re) {
		h := p.nodes[r].hash
		put(h[0])
		put(h[1])
	}
	switch n.kind {
	case kindSet:
		for _, w := range n.set {
			put(w)
		}
	case kindCat:
		child(n.a)
		child(n.b)
	case kindOr, kindAnd:
		for _, r := range n.list {
			child(r)
		}
	case kindNot:
		if len(p.nodes) > int(reAll) {
			child(n.a)
		}
	case kindRepeat:
		put(uint64(uint32(n.lo))<<32 | uint64(uint32(n.hi)))
		child(n.a)
	case kindLoop:
		buf = append(buf, n.name...)
	case kindMachine:
		put(uint64(n.state))
		buf = append(buf, n.machine.key()...)
	}
	n.hash = hashOf(buf)
	if r, ok := p.byHash[n.hash]; ok {
		return r
	}
	p.spend(derivation + 4*len(n.list))
	if len(p.nodes) >= maxNodes {
		panic(limit("regular expressions of more than %d parts", maxNodes))
	}
	r := re(len(p.nodes))
	p.nodes = append(p.nodes, n)
	p.byHash[n.hash] = r
	return r
}

func (p *pool) set(s byteSet) re {
	if s == (byteSet{}) {
		return reNone
	}
	return p.intern(reNode{kind: kindSet, set: s, cuts: s.edges(), sure: true, least: 1})
}

func (p *pool) byte(b byte) re {
	var s byteSet
	s.add(b)
	return p.set(s)
}

func (p *pool) literal(text string) re {
	r := reEps
	for i := len(text) - 1; i >= 0; i-- {
		r = p.cat(p.byte(text[i]), r)
	}
	return r
}

func (p *pool) cat(parts ...re) re {
	r := reEps
	for i := len(parts) - 1; i >= 0; i-- {
		r = p.cat2(parts[i], r)
	}
	return r
}

func (p *pool) cat2(a, b re) re {
	switch {
	case a == reNone || b == reNone:
		return reNone
	case a == reEps:
		return b
	case b == reEps:
		return a
	}
	na := *p.at(a)
	if na.kind == kindCat {
		return p.cat2(na.a, p.cat2(na.b, b))
	}
	nb := p.at(b)
	cuts := na.cuts
	if na.nullable {
		cuts = cuts.or(nb.cuts)
	}
	return p.intern(reNode{kind: kindCat, a: a, b: b, nullable: na.nullable && nb.nullable, sure: na.sure && nb.sure, negative: na.negative || nb.negative, loops: na.loops || nb.loops, least: plus(na.least, nb.least), cuts: cuts})
}

func (p *pool) byOrder(list []re) []re {
	slices.SortFunc(list, func(a, b re) int {
		x, y := p.at(a).hash, p.at(b).hash
		if x[0] != y[0] {
			if x[0] < y[0] {
				return -1
			}
			return 1
		}
		return int(a - b)
	})
	return slices.Compact(list)
}

func (p *pool) or(parts ...re) re {
	var list []re
	var set byteSet
	for _, r := range parts {
		n := p.at(r)
		switch {
		case n.kind == kindNone:
		case r == reAll || r == p.text && p.text != reNone:
			// Every operand is valid UTF-8 at the same position within a character.
			return r
		case n.kind == kindOr:
			for _, r := range n.list {
				if m := p.at(r); m.kind == kindSet {
					set = set.or(m.set)
				} else {
					list = append(list, r)
				}
			}
		case n.kind == kindSet:
			set = set.or(n.set)
		default:
			list = append(list, r)
		}
	}
	if set != (byteSet{}) {
		list = append(list, p.set(set))
	}
	p.spend(4 * len(list))
	list = p.byOrder(list)
	switch len(list) {
	case 0:
		return reNone
	case 1:
		return list[0]
	}
	if list[0] == reEps || slices.Contains(list, reEps) {
		// The empty text adds nothing to an operand that matches it.
		rest := slices.DeleteFunc(slices.Clone(list), func(r re) bool { return r == reEps })
		if slices.ContainsFunc(rest, func(r re) bool { return p.at(r).nullable }) {
			return p.or(rest...)
		}
	}
	n := reNode{kind: kindOr, list: list, least: endless}
	for _, r := range list {
		m := p.at(r)
		n.least = min(n.least, m.least)
		n.nullable = n.nullable || m.nullable
		n.sure = n.sure || m.sure
		n.negative = n.negative || m.negative
		n.loops = n.loops || m.loops
		n.cuts = n.cuts.or(m.cuts)
	}
	if n.loops {
		if fewer := p.absorbed(list); len(fewer) < len(list) {
			return p.or(fewer...)
		}
	}
	return p.intern(n)
}

// absorbed returns the operands of an alternation without those that are another one restricted.
func (p *pool) absorbed(list []re) (rest []re) {
	operands := func(r re) []re {
		if n := p.at(r); n.kind == kindAnd {
			return n.list
		}
		return []re{r}
	}
	for _, r := range list {
		all := operands(r)
		if !slices.ContainsFunc(list, func(q re) bool {
			return q != r && !slices.ContainsFunc(operands(q), func(x re) bool { return !slices.Contains(all, x) })
		}) {
			rest = append(rest, r)
		}
	}
	return rest
}

func (p *pool) and(parts ...re) re {
	var list []re
	text := false
	for _, r := range parts {
		n := p.at(r)
		switch {
		case r == reNone:
			return reNone
		case r == reAll:
		case r == p.text:
			text = true
		case n.kind == kindAnd:
			for _, r := range n.list {
				if r == p.text {
					text = true
				} else {
					list = append(list, r)
				}
			}
		default:
			list = append(list, r)
		}
	}
	// The expression for any text restricts only complements.
	if text && !slices.ContainsFunc(list, func(r re) bool { return !p.at(r).negative }) {
		list = append(list, p.text)
	}
	p.spend(4 * len(list))
	list = p.byOrder(p.bothCounts(list))
	switch {
	case len(list) == 0:
		return reAll
	case slices.Contains(list, reNone):
		return reNone
	case len(list) == 1:
		return list[0]
	case slices.Contains(list, reEps):
		if slices.ContainsFunc(list, func(r re) bool { return !p.at(r).nullable }) {
			return reNone
		}
		return reEps
	}
	// An alternation with a loop is distributed: the loop's derivatives restrict it again and again,
	// and are finitely many only in one normal form.
	if i := slices.IndexFunc(list, func(r re) bool { return p.at(r).kind == kindOr && p.at(r).loops }); i >= 0 {
		ways := slices.Clone(p.at(list[i]).list)
		for j, way := range ways {
			ways[j] = p.and(append(slices.Delete(slices.Clone(list), i, i+1), way)...)
		}
		return p.or(ways...)
	}
	n := reNode{kind: kindAnd, list: list, nullable: true, negative: true}
	for _, r := range list {
		m := p.at(r)
		n.least = max(n.least, m.least)
		n.nullable = n.nullable && m.nullable
		n.negative = n.negative && m.negative
		n.loops = n.loops || m.loops
		n.cuts = n.cuts.or(m.cuts)
	}
	n.sure = n.nullable
	return p.intern(n)
}

// bothCounts joins repetitions of one class, where the class of all characters counts as equal,
// into one. The length of a string is then determined by one state.
func (p *pool) bothCounts(list []re) []re {
	at := -1
	for i := 0; i < len(list); i++ {
		n := *p.at(list[i])
		if n.kind != kindRepeat || !p.at(n.a).char {
			continue
		}
		if at < 0 {
			at = i
			continue
		}
		m := *p.at(list[at])
		if n.a != m.a && n.a != p.char && m.a != p.char {
			continue
		}
		class := n.a
		if class == p.char {
			class = m.a
		}
		lo, hi := max(int(n.lo), int(m.lo)), lesser(int(n.hi), int(m.hi))
		if hi != unlimited && lo > hi {
			return []re{reNone}
		}
		list[at] = p.repeat(class, lo, hi)
		list = slices.Delete(list, i, i+1)
		i--
		if r := p.at(list[at]); r.kind != kindRepeat {
			at = -1
		}
	}
	return list
}

func (p *pool) not(a re) re {
	n := *p.at(a)
	if n.kind == kindNot {
		return n.a
	}
	if a == reNone {
		return reAll
	}
	return p.intern(reNode{kind: kindNot, a: a, nullable: !n.nullable, sure: !n.nullable, negative: true, loops: n.loops, cuts: n.cuts})
}

// repeat returns a repeated lo to hi times; hi can be unlimited.
func (p *pool) repeat(a re, lo, hi int) re {
	n := *p.at(a)
	switch {
	case hi == 0 || a == reEps:
		return reEps
	case a == reNone:
		if lo == 0 {
			return reEps
		}
		return reNone
	case lo == 1 && hi == 1:
		return a
	}
	if n.nullable {
		lo = 0
	}
	if n.kind == kindRepeat && n.lo == 0 && n.hi == unlimited {
		return a
	}
	if n.kind == kindRepeat && n.lo <= 1 && n.hi == unlimited && hi == unlimited && lo == 0 {
		return p.repeat(n.a, 0, unlimited)
	}
	return p.intern(reNode{kind: kindRepeat, a: a, lo: int32(lo), hi: int32(hi), nullable: lo == 0, sure: lo == 0 || n.sure, negative: n.negative, loops: n.loops, least: times(n.least, lo), cuts: n.cuts})
}

func (p *pool) optional(a re) re { return p.or(reEps, a) }

func (p *pool) automaton(m machine, state int32) re {
	if state < 0 {
		return reNone
	}
	var cuts byteSet
	for _, b := range []byte("0123456789:;-.+/,efEFZ[z{") {
		cuts.add(b)
	}
	return p.intern(reNode{kind: kindMachine, machine: m, state: state, nullable: m.accepts(state), sure: m.accepts(state), cuts: cuts})
}

// step returns the derivative of r by b; reNone if b cannot come next.
func (p *pool) step(r re, b byte) re {
	row := p.nodes[r].row
	if row == nil {
		if p.rows++; p.rows > maxRows {
			for i := range p.nodes {
				p.nodes[i].row = nil
			}
			p.rows = 1
		}
		row = new([256]re)
		p.nodes[r].row = row
	}
	if d := row[b]; d != 0 {
		return d - 1
	}
	return p.fill(r, row, b)
}

// fill computes the derivative of r by b, and by the neighbouring bytes that no cut separates from
// b.
func (p *pool) fill(r re, row *[256]re, b byte) re {
	clear(p.memo)
	d := p.derive(r, b, p.memo)
	if d != reNone && !p.alive(d) {
		d = reNone
	}
	cuts := &p.nodes[r].cuts
	for c := int(b); c >= 0; c-- {
		row[c] = d + 1
		if cuts.has(byte(c)) {
			break
		}
	}
	for c := int(b) + 1; c < 256 && !cuts.has(byte(c)); c++ {
		row[c] = d + 1
	}
	return d
}

const derivation = 16 // steps charged for one part of a derivative

func (p *pool) derive(r re, b byte, memo map[re]re) re {
	n := p.nodes[r] // a copy, since nodes can be reallocated below
	p.spend(derivation * (1 + len(n.list)))
	switch n.kind {
	case kindNone, kindEps:
		return reNone
	case kindSet:
		if n.set.has(b) {
			return reEps
		}
		return reNone
	case kindMachine:
		return p.automaton(n.machine, n.machine.step(n.state, b))
	}
	if d, ok := memo[r]; ok {
		return d
	}
	var d re
	switch n.kind {
	case kindCat:
		d = p.cat2(p.derive(n.a, b, memo), n.b)
		if p.nodes[n.a].nullable {
			d = p.or(d, p.derive(n.b, b, memo))
		}
	case kindOr, kindAnd:
		parts := make([]re, len(n.list))
		for i, q := range n.list {
			parts[i] = p.derive(q, b, memo)
		}
		if n.kind == kindOr {
			d = p.or(parts...)
		} else {
			d = p.and(parts...)
		}
	case kindLoop:
		d = p.derive(n.a, b, memo)
	case kindNot:
		d = p.not(p.derive(n.a, b, memo))
	case kindRepeat:
		d = p.derive(n.a, b, memo)
		if d != reNone {
			lo, hi := int(n.lo), int(n.hi)
			d = p.cat2(d, p.repeat(n.a, max(lo-1, 0), max(hi-1, unlimited)))
		}
	}
	memo[r] = d
	return d
}

// searchQueue is a priority queue of expressions by the lower bound on their shortest match.
type searchQueue struct {
	*pool
	list []re
}

func (q *searchQueue) Len() int           { return len(q.list) }
func (q *searchQueue) Less(i, j int) bool { return q.at(q.list[i]).least < q.at(q.list[j]).least }
func (q *searchQueue) Swap(i, j int)      { q.list[i], q.list[j] = q.list[j], q.list[i] }
func (q *searchQueue) Push(x any)         { q.list = append(q.list, x.(re)) }
func (q *searchQueue) Pop() any {
	last := q.list[len(q.list)-1]
	q.list = q.list[:len(q.list)-1]
	return last
}

// alive reports whether r matches any text.
func (p *pool) alive(r re) bool {
	n := p.at(r)
	switch {
	case n.sure || n.nullable:
		return true
	case n.life != 0:
		return n.life > 0
	case n.kind == kindNone:
		return false
	}
	if x, bound := p.uncount(r); x != r {
		life := int8(-1)
		if p.lengths(x).meets(bound) {
			life = 1
		}
		p.nodes[r].life = life
		return life > 0
	}
	// Search the derivatives, shortest possible match first, and remember the predecessor of each.
	from := map[re]re{r: r}
	queue := searchQueue{pool: p, list: []re{r}}
	memo := map[re]re{}
	for len(queue.list) > 0 {
		s := heap.Pop(&queue).(re)
		cuts := p.nodes[s].cuts
		cuts.add(0)
		for i, w := range cuts {
			for ; w != 0; w &= w - 1 {
				clear(memo)
				d := p.derive(s, byte(i<<6+bits.TrailingZeros64(w)), memo)
				if d == reNone || p.nodes[d].life < 0 {
					continue
				}
				if _, seen := from[d]; seen {
					continue
				}
				from[d] = s
				if m := p.at(d); m.sure || m.nullable || m.life > 0 {
					for q := s; ; q = from[q] {
						p.nodes[q].life = 1
						if q == r {
							return true
						}
					}
				}
				if len(from) > maxSearch {
					panic(limit("a match that needs a search of more than %d states of a regular expression", maxSearch))
				}
				heap.Push(&queue, d)
			}
		}
	}
	for q := range from {
		p.nodes[q].life = -1
	}
	return false
}

// reaches reports whether a character in lo..hi can come next in r, which is at a character
// boundary.
func (p *pool) reaches(r re, lo, hi rune) bool {
	if r == p.text {
		return lo < surrogateMin || hi > surrogateMax
	}
	for _, seq := range utf8Ranges(runes{{lo, hi}}) {
		if p.reachesBytes(r, seq, func(re) bool { return true }) {
			return true
		}
	}
	return false
}

// reachesBytes visits the derivatives of r by the byte sequences in seq until found returns true.
func (p *pool) reachesBytes(r re, seq [][2]byte, found func(behind re) bool) bool {
	if len(seq) == 0 {
		return found(r)
	}
	last := reNone
	for b := int(seq[0][0]); b <= int(seq[0][1]); b++ {
		if d := p.step(r, byte(b)); d != reNone && d != last {
			if p.reachesBytes(d, seq[1:], found) {
				return true
			}
			last = d
		}
	}
	return false
}
