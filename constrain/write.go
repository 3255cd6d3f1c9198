package constrain

import (
	"fmt"
	"slices"
	"strings"
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
	var words branches
	for _, w := range s.text.words {
		forks = words.add(c, forks, w, next)
	}
	return append(forks, words.forks(c.grammar)...)
}

// branches are fixed texts, each with the place behind it, from which a trie of their prefixes is
// built.
type branches []branch

type branch struct {
	text string
	next place
}

// add adds the JSON string of a word. A word with several notations becomes a lexeme in forks.
func (b *branches) add(c *schemas, forks []place, word string, next place) []place {
	if plainWord(word) {
		*b = append(*b, branch{`"` + word + `"`, next})
		return forks
	}
	return append(forks, c.lexeme(uncounted(c.raw(c.written(word))), next))
}

func (b branches) forks(g *grammar) []place {
	slices.SortStableFunc(b, func(x, y branch) int { return strings.Compare(x.text, y.text) })
	var forks []place
	for len(b) > 0 {
		if b[0].text == "" {
			forks = append(forks, b[0].next)
			b = b[1:]
			continue
		}
		n := 1
		for n < len(b) && b[n].text != "" && b[n].text[0] == b[0].text[0] {
			n++
		}
		first, last := b[0].text, b[n-1].text
		same := 0
		for same < len(first) && same < len(last) && first[same] == last[same] {
			same++
		}
		below := slices.Clone(b[:n])
		for i := range below {
			below[i].text = below[i].text[same:]
		}
		forks = append(forks, g.text(first[:same], g.fork(below.forks(g)...)))
		b = b[n:]
	}
	return forks
}

// plainWord reports whether a string has one notation in JSON, without escapes.
func plainWord(w string) bool {
	for i := 0; i < len(w); i++ {
		if w[i] < 0x20 || w[i] > 0x7E || strings.IndexByte(`"\/<>&`, w[i]) >= 0 {
			return false
		}
	}
	return true
}

// written returns the notations of a word as a JSON string. A printable ASCII character is written
// as itself, so that names are forced, except for those that encoders escape.
func (c *schemas) written(word string) re {
	hex := func(v rune) re {
		r := c.pool.literal(`\u`)
		for _, d := range fmt.Sprintf("%04x", v) {
			var set byteSet
			set.add(byte(d))
			if d >= 'a' {
				set.add(byte(d) - 0x20)
			}
			r = c.pool.cat(r, c.pool.set(set))
		}
		return r
	}
	r := c.pool.byte('"')
	for _, v := range word {
		var ways []re
		if v >= 0x20 && v != '"' && v != '\\' {
			ways = append(ways, c.pool.literal(string(v)))
		}
		if i := strings.IndexRune("\"\\/\b\f\n\r\t", v); i >= 0 {
			ways = append(ways, c.pool.literal(`\`+`"\/bfnrt`[i:i+1]))
		}
		switch {
		case v >= 0x10000:
			v -= 0x10000
			ways = append(ways, c.pool.cat(hex(surrogateMin+v>>10), hex(0xDC00+v&0x3FF)))
		case v < 0x20 || v >= 0x7F || strings.ContainsRune(`"\/<>&'`, v):
			ways = append(ways, hex(v))
		}
		r = c.pool.cat(r, c.pool.or(ways...))
	}
	return c.pool.cat(r, c.pool.byte('"'))
}

// array returns the place of an array of a shape, to the end of the rule.
func (c *schemas) array(a *arrayShape) place {
	type state struct {
		i   int
		has bool
	}
	known := map[state]place{}
	most := c.longest(a)
	ends := max(len(a.prefix), a.min) // from this item on the state no longer changes
	if most != unlimited {
		ends = max(ends, most)
	}
	var after func(s state) place
	item := func(s state) []place {
		next := state{min(s.i+1, ends), s.has}
		if most != unlimited && s.i >= most {
			return nil
		}
		var forks []place
		plain := a.at(s.i)
		if len(a.contains) > 0 && !s.has {
			if id := c.conjBoth(plain, a.contains[0]); c.conjs[id].inhabited {
				forks = append(forks, c.value(id, c.spaced(after(state{next.i, true}))))
			}
			if !c.containable(a, s.i+1, 0) {
				return forks
			}
		}
		return append(forks, c.value(plain, c.spaced(after(next))))
	}
	after = func(s state) place {
		if p, ok := known[s]; ok {
			return p
		}
		p := c.later(func() []place {
			var forks []place
			if most == unlimited || s.i < most {
				forks = append(forks, c.grammar.text(",", c.spaced(c.later(func() []place { return item(s) }))))
			}
			if s.i >= a.min && (s.has || len(a.contains) == 0) {
				forks = append(forks, c.grammar.text("]", placeReturn))
			}
			return forks
		})
		known[s] = p
		return p
	}
	return c.grammar.text("[", c.spaced(c.later(func() []place {
		forks := item(state{})
		if a.min == 0 && len(a.contains) == 0 {
			forks = append(forks, c.grammar.text("]", placeReturn))
		}
		return forks
	})))
}

// members is the state of an object's text: the properties so far.
type members struct {
	next  int    // in order: the first property that may follow
	used  string // in any order: one bit per property
	count int    // number of properties, if bounds need it
}

// objectText builds the grammar of an object of one shape.
type objectText struct {
	*schemas
	o     *objectShape
	f     *flatObject
	extra []extra  // those that can have a value
	names []lexeme // lexemes of extra's names, computed lazily
	cap   int      // larger counts are equivalent
	known [2]map[members]place
}

// object returns the place of an object of a shape, to the end of the rule.
func (c *schemas) object(o *objectShape) place {
	x := &objectText{schemas: c, o: o, f: c.flatten(o)}
	for _, e := range x.f.extras {
		if c.conjs[e.value].inhabited {
			x.extra = append(x.extra, e)
		}
	}
	x.names = make([]lexeme, len(x.extra))
	x.cap = max(o.min, o.max)
	x.known = [2]map[members]place{{}, {}}
	first := members{}
	if c.options.AnyOrder {
		first.used = string(make([]byte, (len(x.f.names)+7)/8))
	}
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
	for i := range x.f.names {
		if x.open(m, i) && x.conjs[x.f.values[i]].inhabited {
			may++
			if x.f.needed[i] {
				must++
			}
		}
	}
	return must, may
}

// possible reports whether an object can be completed from m.
func (x *objectText) possible(m members) bool {
	must, may := x.left(m)
	if x.o.max != unlimited && m.count+must > x.o.max {
		return false
	}
	return len(x.extra) > 0 || m.count+may >= x.o.min
}

func (x *objectText) closes(m members) bool {
	must, _ := x.left(m)
	return must == 0 && m.count >= x.o.min
}

func (x *objectText) after(m members) place {
	if p, ok := x.known[0][m]; ok {
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
	x.known[0][m] = p
	return p
}

// keys returns the places of the properties that may follow.
func (x *objectText) keys(m members) (forks []place) {
	if x.o.max != unlimited && m.count >= x.o.max {
		return nil
	}
	value := func(id conjID, then members) place {
		return x.spaced(x.grammar.text(":", x.spaced(x.value(id, x.spaced(x.after(then))))))
	}
	then := m
	then.count = min(m.count+1, x.cap)
	var names branches
	blocked := false
	for i, name := range x.f.names {
		if !x.open(m, i) {
			continue
		}
		next := then
		if x.options.AnyOrder {
			used := []byte(m.used)
			used[i>>3] |= 1 << (i & 7)
			next.used = string(used)
		} else {
			next.next = i + 1
		}
		if x.conjs[x.f.values[i]].inhabited && x.possible(next) {
			id := x.f.values[i]
			forks = names.add(x.schemas, forks, name, x.later(func() []place { return []place{value(id, next)} }))
		}
		if !x.options.AnyOrder && x.f.needed[i] {
			blocked = true
			break
		}
	}
	forks = append(forks, names.forks(x.grammar)...)
	if !blocked {
		next := then
		next.next = len(x.f.names)
		if x.options.AnyOrder {
			next.next = 0
		}
		if x.possible(next) {
			for i, e := range x.extra {
				if x.names[i].state == lexDead {
					x.names[i] = x.quoted(e.name())
				}
				forks = append(forks, x.lexeme(x.names[i], value(e.value, next)))
			}
		}
	}
	return forks
}
