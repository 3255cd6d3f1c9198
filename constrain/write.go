package constrain

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"sync"
	"unicode/utf16"
	"unicode/utf8"
)

// This file translates shapes into grammars. Rules and states of objects and arrays are built when
// a text first reaches them.

// spaced returns the place of white space followed by next.
func (c *schemas) spaced(next place) place {
	if c.options.NoWhitespace {
		return next
	}
	return c.lexeme(uncounted(c.space), next)
}

// value returns the place of a value that meets a conjunction, followed by next.
func (c *schemas) value(id conjID, next place) place {
	s := c.conjs[id].shape
	if len(s.arrays)+len(s.objects) == 0 {
		return c.later(func() []place { return c.scalars(s, next) })
	}
	return c.call(c.rule(id), next)
}

func (c *schemas) rule(id conjID) place {
	j := c.conjs[id]
	if j.rule == 0 {
		j.rule = c.later(func() []place {
			forks := c.scalars(j.shape, placeReturn)
			for _, a := range j.shape.arrays {
				if c.inhabitedArray(a) {
					forks = append(forks, c.array(a))
				}
			}
			for _, o := range j.shape.objects {
				if c.inhabitedObject(o) {
					forks = append(forks, c.object(o))
				}
			}
			return forks
		})
	}
	return j.rule
}

func (c *schemas) scalars(s *shape, next place) (forks []place) {
	for _, w := range []struct {
		text string
		ok   bool
	}{{"null", s.null}, {"false", s.no}, {"true", s.yes}} {
		if w.ok {
			forks = append(forks, c.grammar.text(w.text, next))
		}
	}
	if r := c.raw(s.number); r != lexDead {
		forks = append(forks, c.lexeme(uncounted(r), next))
	}
	if x := c.quoted(s.text.expr); x.state != lexDead {
		forks = append(forks, c.lexeme(x, next))
	}
	words := make([]branch, len(s.text.words))
	for i, w := range s.text.words {
		words[i] = branch{w, func() place { return next }}
	}
	slices.SortFunc(words, compareBranches)
	return append(forks, c.spelled(`"`, words)...)
}

// branch is the rest of a word, and the place behind its closing quote.
type branch struct {
	text string
	next func() place
}

func compareBranches(a, b branch) int { return strings.Compare(a.text, b.text) }

// spelled returns the places of the rests of sorted, distinct words, each in all its notations in a
// JSON string, behind a text. The words are the branches of a trie that is built as texts reach it,
// so as many places are parsed at once as bytes may follow, and not as there are words.
func (c *schemas) spelled(behind string, words []branch) []place {
	c.spend(4 * len(words))
	var ways []branch // notations up to where the words differ, and the place of what follows
	for len(words) > 0 {
		first := words[0].text
		if first == "" {
			ways = append(ways, branch{behind + `"`, words[0].next})
			words = words[1:]
			continue
		}
		_, size := utf8.DecodeRuneInString(first)
		n := 1
		for n < len(words) && strings.HasPrefix(words[n].text, first[:size]) {
			n++
		}
		same, last := 0, words[n-1].text
		for same < len(first) && same < len(last) && first[same] == last[same] && plain(first[same]) {
			same++
		}
		if n == 1 && same == len(first) {
			ways = append(ways, branch{behind + first + `"`, words[0].next})
			words = words[1:]
			continue
		}
		texts := []string{first[:same]}
		if same == 0 {
			same, texts = size, notations(first[:size])
		}
		below := slices.Clone(words[:n])
		for i := range below {
			below[i].text = below[i].text[same:]
		}
		rest := sync.OnceValue(func() place { return c.later(func() []place { return c.spelled("", below) }) })
		for _, text := range texts {
			ways = append(ways, branch{behind + text, rest})
		}
		words = words[n:]
	}
	slices.SortFunc(ways, compareBranches)
	return c.ways(ways)
}

// ways returns the places of sorted notations, none of which begins with another.
func (c *schemas) ways(ways []branch) (forks []place) {
	for len(ways) > 0 {
		first := ways[0].text
		n := 1
		for n < len(ways) && ways[n].text[0] == first[0] {
			n++
		}
		if n == 1 {
			forks = append(forks, c.notation(first, ways[0].next()))
			ways = ways[1:]
			continue
		}
		same, last := 1, ways[n-1].text
		for first[same] == last[same] {
			same++
		}
		below := slices.Clone(ways[:n])
		for i := range below {
			below[i].text = below[i].text[same:]
		}
		forks = append(forks, c.notation(first[:same], c.later(func() []place { return c.ways(below) })))
		ways = ways[n:]
	}
	return forks
}

// plain reports whether a byte has one notation in a JSON string, without escapes. Printable ASCII
// has, so that names are forced, except for what encoders escape.
func plain(b byte) bool { return b >= 0x20 && b < 0x7F && strings.IndexByte(`"\/<>&'`, b) < 0 }

// notations returns the notations of a character in a JSON string. A hexadecimal digit of either
// case is a byte from 1 to 6, which no notation has.
func notations(char string) (all []string) {
	v, _ := utf8.DecodeRuneInString(char)
	if v >= 0x20 && v != '"' && v != '\\' {
		all = append(all, char)
	}
	if i := strings.IndexByte("\"\\/\b\f\n\r\t", char[0]); i >= 0 {
		all = append(all, `\`+`"\/bfnrt`[i:i+1])
	}
	escape := ""
	for _, u := range utf16.Encode([]rune{v}) {
		escape += `\u`
		for _, d := range fmt.Sprintf("%04x", u) {
			if d >= 'a' {
				d -= 'a' - 1
			}
			escape += string(d)
		}
	}
	return append(all, escape)
}

// notation returns the place of a notation followed by next.
func (c *schemas) notation(text string, next place) place {
	for text != "" {
		last := text[len(text)-1]
		if last < 0x20 {
			var digit byteSet
			digit.add('a' - 1 + last)
			digit.add('A' - 1 + last)
			next = c.lexeme(uncounted(c.raw(c.pool.set(digit))), next)
			text = text[:len(text)-1]
			continue
		}
		from := strings.LastIndexFunc(text, func(r rune) bool { return r < 0x20 }) + 1
		next = c.grammar.text(text[from:], next)
		text = text[:from]
	}
	return next
}

// array returns the place of an array of a shape, to the end of the rule.
func (c *schemas) array(a *arrayShape) place {
	places, known := map[arrayState]place{}, map[arrayState]bool{}
	var after func(s arrayState) place
	room := int32(0)
	if a.unique != nil {
		room = c.room(a)
	}
	item := func(s arrayState) (forks []place) {
		c.items(a, s, func(id conjID, then arrayState) {
			switch {
			case room > 0:
				forks = append(forks, c.uniquePlaces(id, room, c.spaced(after(then)))...)
			case len(a.contains) == 0 || c.completable(a, then, known):
				forks = append(forks, c.value(id, c.spaced(after(then))))
			}
		})
		return forks
	}
	end := func(s arrayState, forks []place) []place {
		if a.completes(s) {
			forks = append(forks, c.grammar.text("]", placeReturn))
		}
		return forks
	}
	after = func(s arrayState) place {
		if p, ok := places[s]; ok {
			return p
		}
		p := c.later(func() []place {
			var forks []place
			if next := item(s); len(next) > 0 {
				comma := c.grammar.text(",", c.spaced(c.fork(next...)))
				if room > 0 {
					c.steps[comma].forks = next
				}
				forks = append(forks, comma)
			}
			return end(s, forks)
		})
		places[s] = p
		return p
	}
	return c.grammar.text("[", c.spaced(c.later(func() []place { return end(arrayState{}, item(arrayState{})) })))
}

// members is the state of an object's text: the properties so far.
type members struct {
	next  int    // in order: the first property that may follow
	used  string // in any order: one bit per property
	count int    // number of properties, if bounds need it
	has   uint   // the witnesses so far, one bit each
	again uint   // those among them that a name which can repeat gave
}

// objectText builds the grammar of an object of one shape.
type objectText struct {
	*schemas
	o     *objectShape
	f     *flatObject
	extra []extra  // those that can have a value
	names []lexeme // lexemes of extra's names, computed lazily
	cap   int      // larger counts are equivalent
	known map[members]place
	order []int // the properties that can have a value, by name
	// The numbers of properties from each on that must be there, and that can have a value.
	must, may []int
}

func (c *schemas) objectText(o *objectShape) *objectText {
	x := &objectText{schemas: c, o: o, f: c.flatten(o), cap: max(o.min, o.max), known: map[members]place{}}
	for _, e := range x.f.extras {
		if c.conjs[e.value].inhabited {
			x.extra = append(x.extra, e)
		}
	}
	x.names = make([]lexeme, len(x.extra))
	n := len(x.f.names)
	x.must, x.may = make([]int, n+1), make([]int, n+1)
	for i := n - 1; i >= 0; i-- {
		x.must[i], x.may[i] = x.must[i+1], x.may[i+1]
		if c.conjs[x.f.values[i]].inhabited {
			x.order = append(x.order, i)
			x.may[i]++
			if x.f.needed[i] {
				x.must[i]++
			}
		}
	}
	slices.SortFunc(x.order, func(i, j int) int { return cmp.Compare(x.f.names[i], x.f.names[j]) })
	return x
}

func (x *objectText) first() (m members) {
	if x.options.AnyOrder {
		m.used = string(make([]byte, (len(x.f.names)+7)/8))
	}
	return m
}

// object returns the place of an object of a shape, to the end of the rule.
func (c *schemas) object(o *objectShape) place {
	x := c.objectText(o)
	first := x.first()
	return c.grammar.text("{", c.spaced(c.later(func() []place {
		forks := x.keys(first)
		if x.closes(first) {
			forks = append(forks, c.grammar.text("}", placeReturn))
		}
		return forks
	})))
}

func (x *objectText) open(m members, i int) bool {
	if x.options.AnyOrder {
		return m.used[i>>3]>>(i&7)&1 == 0
	}
	return i >= m.next
}

// left returns the numbers of properties that must and that may still follow.
func (x *objectText) left(m members) (must, may int) {
	if !x.options.AnyOrder {
		return x.must[m.next], x.may[m.next]
	}
	for _, i := range x.order {
		if x.open(m, i) {
			may++
			if x.f.needed[i] {
				must++
			}
		}
	}
	return must, may
}

// possible reports whether an object of count properties can be completed by must to may others.
func (x *objectText) possible(count, must, may int) bool {
	if x.o.max != unlimited && count+must > x.o.max {
		return false
	}
	return len(x.extra) > 0 || count+may >= x.o.min
}

// completable reports whether an object can be completed from m.
func (x *objectText) completable(m members) bool {
	must, may := x.left(m)
	more := x.missing(m)
	return more >= 0 && x.possible(m.count, must+more, may)
}

// missing returns the least number of properties that must follow m beside the required ones, so
// that the object has its witnesses; -1 if there are none.
func (x *objectText) missing(m members) int {
	need := (uint(1)<<len(x.o.some) - 1) &^ m.has
	if need == 0 {
		return 0
	}
	choosy := x.o.choosy()
	gives := func(id conjID, in uint) uint {
		for i, w := range x.o.some {
			if in&choosy>>i&1 != 0 && !x.conjs[x.conjBoth(id, w.value)].inhabited {
				in &^= 1 << i
			}
		}
		return in & need
	}
	var ways []uint
	x.spend(len(x.order) << len(x.o.some))
	for _, i := range x.order {
		id := x.f.values[i]
		if !x.open(m, i) {
			continue
		}
		if got := gives(id, x.f.in[i]); x.f.needed[i] {
			need &^= got
		} else {
			ways = append(ways, got)
		}
	}
	for _, e := range x.extra {
		ways = append(ways, gives(e.value, e.in))
	}
	reached := []uint{0}
	for n := 0; n <= len(x.o.some); n++ {
		if slices.ContainsFunc(reached, func(r uint) bool { return need&^r == 0 }) {
			return n
		}
		var next []uint
		for _, r := range reached {
			for _, w := range ways {
				if !slices.Contains(next, r|w) {
					next = append(next, r|w)
				}
			}
		}
		reached = next
	}
	return -1
}

// way is a demand on the value of a property, and the state of the object behind it.
type way struct {
	value conjID
	then  members
}

// follows returns how a property that can be the witnesses in may follow. What a name that can repeat
// has given holds for its later values too, since the last one counts.
func (x *objectText) follows(value conjID, in uint, then members, repeats bool) (ways []way) {
	choosy := x.o.choosy() & in
	then.has |= in &^ choosy
	add := func(value conjID, then members) {
		if x.conjs[value].inhabited && (len(x.o.some) == 0 || x.completable(then)) {
			ways = append(ways, way{value, then})
		}
	}
	if choosy == 0 {
		add(value, then)
		return ways
	}
	both := x.conjBoth(value, x.o.some[bits.TrailingZeros(choosy)].value)
	witnessed := then
	witnessed.has |= choosy
	if repeats {
		witnessed.again |= choosy
	}
	switch {
	case repeats && then.again&choosy != 0:
		add(both, then)
	case then.has&choosy != 0:
		add(value, then)
	default:
		add(both, witnessed)
		if both != value {
			add(value, then)
		}
	}
	return ways
}

func (x *objectText) closes(m members) bool {
	must, _ := x.left(m)
	return must == 0 && m.count >= x.o.min && m.has == 1<<len(x.o.some)-1
}

func (x *objectText) after(m members) place {
	if p, ok := x.known[m]; ok {
		return p
	}
	p := x.later(func() []place {
		var forks []place
		if keys := x.keys(m); len(keys) > 0 {
			forks = append(forks, x.grammar.text(",", x.spaced(x.fork(keys...))))
		}
		if x.closes(m) {
			forks = append(forks, x.grammar.text("}", placeReturn))
		}
		return forks
	})
	x.known[m] = p
	return p
}

// keys returns the places of the properties that may follow.
func (x *objectText) keys(m members) (forks []place) {
	if x.o.max != unlimited && m.count >= x.o.max {
		return nil
	}
	value := func(ways []way) place {
		var forks []place
		for _, w := range ways {
			forks = append(forks, x.value(w.value, x.spaced(x.after(w.then))))
		}
		return x.spaced(x.grammar.text(":", x.spaced(x.fork(forks...))))
	}
	x.spend(len(x.order))
	then := m
	then.count = min(m.count+1, x.cap)
	must, may := x.left(m)
	last := len(x.f.names) // the property that must come before those behind it
	if !x.options.AnyOrder {
		if i := slices.Index(x.f.needed[m.next:], true); i >= 0 {
			last = m.next + i
		}
	}
	var names []branch
	for _, i := range x.order {
		if !x.open(m, i) || i > last {
			continue
		}
		need, can := x.must[i+1], x.may[i+1]
		if x.options.AnyOrder {
			need, can = must, may-1
			if x.f.needed[i] {
				need--
			}
		}
		if !x.possible(then.count, need, can) {
			continue
		}
		ways := func() []way {
			next := then
			if next.next = i + 1; x.options.AnyOrder {
				used := []byte(m.used)
				used[i>>3] |= 1 << (i & 7)
				next.used, next.next = string(used), 0
			}
			return x.follows(x.f.values[i], x.f.in[i], next, false)
		}
		if len(x.o.some) == 0 || len(ways()) > 0 {
			names = append(names, branch{x.f.names[i], func() place { return value(ways()) }})
		}
	}
	forks = x.spelled(`"`, names)
	if last < len(x.f.names) {
		return forks
	}
	next := then
	if next.next = len(x.f.names); x.options.AnyOrder {
		next.next = 0
	} else {
		must, may = 0, 0
	}
	if x.possible(next.count, must, may) {
		for i, e := range x.extra {
			ways := x.follows(e.value, e.in, next, true)
			if len(ways) == 0 {
				continue
			}
			if x.names[i].state == lexDead {
				x.names[i] = x.quoted(e.name())
			}
			forks = append(forks, x.lexeme(x.names[i], value(ways)))
		}
	}
	return forks
}
