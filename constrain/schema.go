package constrain

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
)

// Options restrict the notation of a JSON text.
type Options struct {
	AnyOrder     bool // properties in any order; else in the schema's order, undeclared ones last
	NoWhitespace bool // no white space between tokens; else any
	OneSpace     bool // at most one space between tokens, and none around the text
}

// JSONSchema returns the constraint of a JSON schema of draft 4 to 2020-12. It fails, with the path
// of the keyword, on a schema that cannot be enforced exactly.
func (v *Vocabulary) JSONSchema(schema []byte, o Options) (*Constraint, error) {
	return v.compile(context.Background(), func(g *grammar) (place, []string, error) {
		root, err := g.parseValue(string(schema))
		if err != nil {
			return 0, nil, err
		}
		c := newSchemas(g, root, o)
		start := c.compile()
		for _, x := range c.intricate { // so that a bound exceeded here fails now and not within a text
			v.ready(g.lexer, x)
		}
		return start, c.notes, nil
	})
}

// JSON returns the constraint that the text is any JSON value.
func (v *Vocabulary) JSON(o Options) (*Constraint, error) { return v.JSONSchema([]byte("true"), o) }

// demand is one requirement on a value.
type demand struct {
	v    *value
	kind demandKind
}

type demandKind uint8

const (
	mustMatch  demandKind = iota // match the schema v
	mustNot                      // not match the schema v
	mustBe                       // equal the value v
	mustDiffer                   // differ from the value v
)

// conjID is the index of a conjunction: a set of demands on one value, all of which must hold. 0 is
// the empty set.
type conjID int32

type conjunction struct {
	demands   []demand
	shape     *shape // nil until computed
	inhabited bool   // some value meets all demands
	rule      place  // 0 until computed
}

// shape is the normal form of a schema: the allowed values of each type. Strings and numbers are
// closed under all combinations; arrays and objects are lists of alternatives.
type shape struct {
	null, no, yes bool
	number        re
	text          texts
	arrays        []*arrayShape
	objects       []*objectShape
}

// texts is a set of strings: an explicit list and an expression.
type texts struct {
	words []string
	expr  re
}

type arrayShape struct {
	prefix   []conjID
	items    conjID // items behind the prefix
	min, max int    // max can be unlimited
	contains []contained
	unique   *value // a schema that demands that the items differ; nil if there is none
}

// contained is the demand that min to max items meet value; not is its opposite, if there is a max.
type contained struct {
	value, not conjID
	min, max   int
}

// tally is the number of items that met each contained demand, as far as it matters.
type tally [maxContained]int32

const maxContained = 4 // of one array

type objectShape struct {
	groups   []*propertyGroup
	required []string
	min, max int // max can be unlimited
	names    re  // allowed names of properties
	some     []*witness
	flat     *flatObject
}

// witness is the demand that an object has a property whose value meets it and whose name matches
// names, is not in except and matches nothing of unless.
type witness struct {
	names  re
	except []string
	unless []re
	value  conjID
}

const maxWitnesses = 8 // of one object; each set of them is a state

func (w *witness) matches(c *schemas, name string) bool {
	return !slices.Contains(w.except, name) && c.matches(w.names, name) &&
		!slices.ContainsFunc(w.unless, func(p re) bool { return c.matches(p, name) })
}

// member is a demand on the value of a property.
type member struct {
	name string
	demand
}

// propertyGroup holds the properties of one schema object: by name, by pattern, and the schema of
// all others.
type propertyGroup struct {
	names      []string
	values     []demand
	index      map[string]int
	patterns   []re
	patValues  []demand
	additional *demand
}

var (
	trueValue  = &value{kind: isTrue}
	falseValue = &value{kind: isFalse}
	never      = demand{falseValue, mustMatch}
)

// schemas compiles one schema document.
type schemas struct {
	*grammar
	num     *numbers
	root    *value
	options Options
	notes   []string
	noted   map[string]bool // of notes
	refs    *references

	conjs    []*conjunction
	byKey    map[string]conjID
	numbered map[*value]uint32
	memo     map[demand]*shape
	busy     map[demand]bool
	patterns map[string]re
	alone    map[member]*propertyGroup
	// strings whose completion needs a search
	intricate []lexeme
	depth     int
	combined  int  // alternatives of all combinations
	within    bool // contradicts is under way
	anything  *shape
	space     lexState
}

func newSchemas(g *grammar, root *value, o Options) *schemas {
	c := &schemas{grammar: g, num: newNumbers(g.pool), root: root, options: o, refs: newReferences(root, &g.budget),
		byKey: map[string]conjID{}, numbered: map[*value]uint32{}, memo: map[demand]*shape{}, busy: map[demand]bool{}, noted: map[string]bool{}, patterns: map[string]re{}, alone: map[member]*propertyGroup{}}
	var ws byteSet
	for _, b := range []byte(" \t\n\r") {
		ws.add(b)
	}
	switch {
	case o.OneSpace:
		c.space = g.raw(g.optional(g.byte(' ')))
	case !o.NoWhitespace:
		c.space = g.raw(g.repeat(g.set(ws), 0, unlimited))
	}
	c.anything = &shape{null: true, no: true, yes: true, number: c.num.any, text: texts{expr: g.pool.text},
		arrays: []*arrayShape{{max: unlimited}}, objects: []*objectShape{{max: unlimited, names: g.pool.text}}}
	c.conjs = []*conjunction{{shape: c.anything}}
	c.byKey[""] = 0
	return c
}

func (c *schemas) refuse(v *value, keyword, why string) {
	path := c.refs.path(v)
	if keyword != "" {
		path += "/" + keyword
	}
	panic(refusal{path: "#" + path, keyword: keyword, why: why})
}

// tried reports whether f returned without a refusal.
func tried(f func()) (ok bool) {
	defer func() {
		if r := recover(); r != nil {
			if _, is := r.(refusal); !is {
				panic(r)
			}
			ok = false
		}
	}()
	f()
	return true
}

func (c *schemas) conj(demands ...demand) conjID {
	var list []demand
	for _, d := range demands {
		switch {
		case d.kind == mustMatch && (d.v.kind == isTrue || d.v.kind == isObject && len(d.v.keys) == 0):
		case d.kind == mustNot && d.v.kind == isFalse:
		default:
			list = append(list, d)
		}
	}
	number := func(d demand) uint32 {
		n, ok := c.numbered[d.v]
		if !ok {
			n = uint32(len(c.numbered))
			c.numbered[d.v] = n
		}
		return n<<2 | uint32(d.kind)
	}
	c.spend(4 * derivation * (1 + len(list)))
	slices.SortFunc(list, func(a, b demand) int { return int(number(a)) - int(number(b)) })
	list = slices.Compact(list)
	key := make([]byte, 0, 4*len(list))
	for _, d := range list {
		key = binary.LittleEndian.AppendUint32(key, number(d))
	}
	if id, ok := c.byKey[string(key)]; ok {
		return id
	}
	if len(c.conjs) >= maxShapes {
		panic(limit("a schema that expands to more than %d schemas", maxShapes))
	}
	id := conjID(len(c.conjs))
	c.conjs = append(c.conjs, &conjunction{demands: list})
	c.byKey[string(key)] = id
	return id
}

func (c *schemas) conjBoth(a, b conjID) conjID {
	switch {
	case a == b || b == 0:
		return a
	case a == 0:
		return b
	}
	return c.conj(append(slices.Clone(c.conjs[a].demands), c.conjs[b].demands...)...)
}

func (c *schemas) shapeOf(id conjID) *shape {
	j := c.conjs[id]
	if j.shape == nil {
		s := c.anything
		for _, d := range j.demands {
			s = c.both(s, c.demanded(d))
		}
		j.shape = s
	}
	return j.shape
}

// demanded returns the shape of one demand.
func (c *schemas) demanded(d demand) *shape {
	if s := c.memo[d]; s != nil {
		return s
	}
	if c.busy[d] {
		c.refuse(d.v, "$ref", "refers to itself without consuming text")
	}
	if c.depth++; c.depth > 10*maxDepth {
		panic(limit("schemas combined more than %d levels deep", 10*maxDepth))
	}
	c.busy[d] = true
	defer func() {
		delete(c.busy, d)
		c.depth--
	}()
	var s *shape
	switch d.kind {
	case mustBe:
		s = c.constant(d.v)
	case mustDiffer:
		s = c.differs(d.v)
	default:
		s = c.schema(d.v, d.kind == mustNot)
	}
	c.memo[d] = s
	return s
}

// both returns the shape of values that a and b allow.
func (c *schemas) both(a, b *shape) *shape {
	switch {
	case a == b || b == c.anything:
		return a
	case a == c.anything:
		return b
	}
	s := &shape{null: a.null && b.null, no: a.no && b.no, yes: a.yes && b.yes, number: c.num.both(a.number, b.number), text: c.bothTexts(a.text, b.text)}
	for _, x := range a.arrays {
		for _, y := range b.arrays {
			if z := c.bothArrays(x, y); z != nil {
				s.arrays = append(s.arrays, z)
			}
		}
	}
	several := len(a.objects)*len(b.objects) > 1
	for _, x := range a.objects {
		for _, y := range b.objects {
			if z := c.bothObjects(x, y); z != nil && !(several && c.contradicts(z)) {
				s.objects = c.oneMore(s.objects, z)
			}
		}
		c.checkBranches(s)
	}
	c.checkBranches(s)
	return s
}

// oneMore returns alternatives with one more, without those that another one includes.
func (c *schemas) oneMore(list []*objectShape, o *objectShape) []*objectShape {
	c.spend(derivation + 4*len(list))
	if slices.ContainsFunc(list, func(x *objectShape) bool { return x.includes(o) }) {
		return list
	}
	return append(slices.DeleteFunc(list, o.includes), o)
}

// includes reports whether o visibly allows all that x does: it has no demand that x lacks.
func (o *objectShape) includes(x *objectShape) bool {
	return len(o.groups) <= len(x.groups) && len(o.required) <= len(x.required) && len(o.some) <= len(x.some) &&
		o.names == x.names && o.min <= x.min && lesser(o.max, x.max) == x.max &&
		within(o.groups, x.groups) && within(o.required, x.required) && within(o.some, x.some)
}

func within[T comparable](list, of []T) bool {
	return !slices.ContainsFunc(list, func(x T) bool { return !slices.Contains(of, x) })
}

func (c *schemas) checkBranches(s *shape) {
	c.combined += 1 + len(s.arrays) + len(s.objects)
	c.spend(4 * derivation)
	if n := len(s.arrays) + len(s.objects); n > maxBranches {
		panic(limit("a schema of %d alternatives, more than %d", n, maxBranches))
	}
	if c.combined > maxCombined {
		panic(limit("a schema with too many combinations"))
	}
}

// either returns the shape of values that any of parts allows.
func (c *schemas) either(parts ...*shape) *shape {
	if slices.Contains(parts, c.anything) {
		return c.anything
	}
	s := &shape{}
	var numbers []re
	var strings []texts
	for _, x := range parts {
		s.null, s.no, s.yes = s.null || x.null, s.no || x.no, s.yes || x.yes
		numbers, strings = append(numbers, x.number), append(strings, x.text)
		s.arrays = append(s.arrays, x.arrays...)
		for _, o := range x.objects {
			s.objects = c.oneMore(s.objects, o)
		}
	}
	if s.number = c.num.any; !slices.Contains(numbers, c.num.any) {
		s.number = c.pool.or(numbers...)
	}
	s.text = c.eitherTexts(strings...)
	unlimitedArray := func(x *arrayShape) bool {
		return len(x.prefix) == 0 && x.items == 0 && x.min == 0 && x.max == unlimited && len(x.contains) == 0 && x.unique == nil
	}
	if i := slices.IndexFunc(s.arrays, unlimitedArray); i >= 0 {
		s.arrays = s.arrays[i : i+1]
	}
	unlimitedObject := func(x *objectShape) bool {
		return len(x.groups) == 0 && len(x.required) == 0 && x.min == 0 && x.max == unlimited && x.names == c.pool.text && len(x.some) == 0
	}
	if i := slices.IndexFunc(s.objects, unlimitedObject); i >= 0 {
		s.objects = s.objects[i : i+1]
	}
	c.checkBranches(s)
	return s
}

func (c *schemas) matches(r re, word string) bool {
	if r == c.pool.text {
		return true
	}
	c.spend(derivation + len(word))
	for i := 0; i < len(word) && r != reNone; i++ {
		r = c.pool.step(r, word[i])
	}
	return c.at(r).nullable
}

func (c *schemas) bothTexts(a, b texts) (t texts) {
	t.expr = c.pool.and(a.expr, b.expr)
	inA, inB := c.setOf(a.words), c.setOf(b.words)
	for _, w := range a.words {
		if inB[w] || c.matches(b.expr, w) {
			t.words = append(t.words, w)
		}
	}
	for _, w := range b.words {
		if !inA[w] && c.matches(a.expr, w) {
			t.words = append(t.words, w)
		}
	}
	return t
}

// setOf returns the set of words, without repetitions.
func (c *schemas) setOf(words []string) map[string]bool {
	c.spend(derivation * len(words))
	set := make(map[string]bool, len(words))
	for _, w := range words {
		set[w] = true
	}
	return set
}

// joined returns the words of the lists, each once.
func (c *schemas) joined(lists ...[]string) (all []string) {
	seen := map[string]bool{}
	for _, words := range lists {
		c.spend(derivation * len(words))
		for _, w := range words {
			if !seen[w] {
				seen[w] = true
				all = append(all, w)
			}
		}
	}
	return all
}

func (c *schemas) eitherTexts(parts ...texts) (t texts) {
	exprs, words := make([]re, len(parts)), make([][]string, len(parts))
	for i, x := range parts {
		exprs[i], words[i] = x.expr, x.words
	}
	t.expr = c.pool.or(exprs...)
	for _, w := range c.joined(words...) {
		if !c.matches(t.expr, w) {
			t.words = append(t.words, w)
		}
	}
	return t
}

// words returns the expression for a list of strings. Common prefixes are factored out, so that a
// derivative has as many parts as bytes may follow and not as there are words.
func (c *schemas) words(words []string) re {
	words = slices.Clone(words)
	slices.Sort(words)
	return c.factored(slices.Compact(words), 0)
}

// factored returns the expression for sorted, distinct strings without their first from bytes, which
// they have in common.
func (c *schemas) factored(words []string, from int) re {
	var parts []re
	for len(words) > 0 {
		first := words[0]
		if len(first) == from {
			parts = append(parts, reEps)
			words = words[1:]
			continue
		}
		n := 1
		for n < len(words) && words[n][from] == first[from] {
			n++
		}
		c.spend(n)
		last, to := words[n-1], from+1
		for to < len(first) && to < len(last) && first[to] == last[to] {
			to++
		}
		parts = append(parts, c.pool.cat(c.pool.literal(first[from:to]), c.factored(words[:n], to)))
		words = words[n:]
	}
	return c.pool.or(parts...)
}

func (c *schemas) exceptTexts(t texts) texts {
	all := c.pool.or(t.expr, c.words(t.words))
	if all == c.pool.text {
		return texts{}
	}
	return texts{expr: c.pool.and(c.pool.text, c.pool.not(all))}
}

func lesser(a, b int) int {
	if a == unlimited || b != unlimited && b < a {
		return b
	}
	return a
}

func (c *schemas) bothArrays(a, b *arrayShape) *arrayShape {
	s := &arrayShape{items: c.conjBoth(a.items, b.items), min: max(a.min, b.min), max: lesser(a.max, b.max), contains: slices.Concat(a.contains, b.contains), unique: cmp.Or(a.unique, b.unique)}
	if s.max == 0 || s.max == 1 {
		s.unique = nil
	}
	if s.max != unlimited && s.min > s.max {
		return nil
	}
	c.spend(len(s.contains))
	for i := range max(len(a.prefix), len(b.prefix)) {
		s.prefix = append(s.prefix, c.conjBoth(a.at(i), b.at(i)))
	}
	slices.SortFunc(s.contains, func(a, b contained) int {
		return cmp.Or(cmp.Compare(a.value, b.value), cmp.Compare(a.min, b.min), cmp.Compare(a.max, b.max))
	})
	s.contains = slices.Compact(s.contains)
	return s
}

func (s *arrayShape) at(i int) conjID {
	if i < len(s.prefix) {
		return s.prefix[i]
	}
	return s.items
}

func (c *schemas) bothObjects(a, b *objectShape) *objectShape {
	s := &objectShape{min: max(a.min, b.min), max: lesser(a.max, b.max), names: c.pool.and(a.names, b.names), groups: slices.Clone(a.groups), some: slices.Clone(a.some)}
	for _, w := range b.some {
		if !slices.Contains(s.some, w) {
			s.some = append(s.some, w)
		}
	}
	c.spend(derivation + len(a.groups)*len(b.groups))
	for _, g := range b.groups {
		if !slices.Contains(s.groups, g) {
			s.groups = append(s.groups, g)
		}
	}
	s.required = c.joined(a.required, b.required)
	if s.max != unlimited && max(s.min, len(s.required)) > s.max {
		return nil
	}
	for _, g := range s.groups {
		c.spend(1 + len(s.required))
		if slices.ContainsFunc(s.required, func(n string) bool { return slices.Contains(g.demands(c, n), never) }) {
			return nil
		}
		closed := len(g.patterns) == 0 && g.additional != nil && *g.additional == never
		if closed && slices.ContainsFunc(s.some, func(w *witness) bool {
			return !slices.ContainsFunc(g.names, func(n string) bool { return w.matches(c, n) })
		}) {
			return nil
		}
	}
	return s
}

// contradicts reports whether a required property of an alternative visibly has no value.
// Schemas of properties are not looked through in turn, as they may contain themselves.
func (c *schemas) contradicts(o *objectShape) bool {
	if c.within {
		return false
	}
	c.within = true
	defer func() { c.within = false }()
	return slices.ContainsFunc(o.required, func(n string) (none bool) {
		id := c.demandsOf(o, n)
		return len(c.conjs[id].demands) > 1 && tried(func() { none = c.empty(c.shapeOf(id), 0) }) && none
	})
}

// demands returns the group's demands on the value of a property.
func (g *propertyGroup) demands(c *schemas, name string) (ds []demand) {
	known := false
	if g.index == nil {
		g.index = make(map[string]int, len(g.names))
		for i, n := range g.names {
			g.index[n] = i
		}
	}
	if i, ok := g.index[name]; ok {
		ds, known = append(ds, g.values[i]), true
	}
	c.spend(1)
	for i, p := range g.patterns {
		if c.matches(p, name) {
			ds, known = append(ds, g.patValues[i]), true
		}
	}
	if !known && g.additional != nil {
		ds = append(ds, *g.additional)
	}
	return ds
}

func (c *schemas) demandsOf(o *objectShape, name string) conjID {
	if !c.matches(o.names, name) {
		return c.conj(never)
	}
	var ds []demand
	for _, g := range o.groups {
		ds = append(ds, g.demands(c, name)...)
	}
	return c.conj(ds...)
}

// empty reports whether no value has this shape, decided to a limited depth.
func (c *schemas) empty(s *shape, depth int) bool {
	if s.null || s.no || s.yes || len(s.text.words) > 0 || c.alive(s.number) || c.alive(s.text.expr) {
		return false
	}
	if depth == 0 {
		return len(s.arrays)+len(s.objects) == 0
	}
	unmet := func(id conjID) (none bool) {
		return tried(func() { none = c.empty(c.shapeOf(id), depth-1) }) && none
	}
	for _, a := range s.arrays {
		none := false
		for i := 0; i < min(a.min, len(a.prefix)+1) && !none; i++ {
			none = unmet(a.at(i))
		}
		if !none {
			return false
		}
	}
	for _, o := range s.objects {
		if !slices.ContainsFunc(o.required, func(n string) bool { return unmet(c.demandsOf(o, n)) }) {
			return false
		}
	}
	return true
}

// flatObject is an object's properties, each with all demands on it.
type flatObject struct {
	names  []string
	values []conjID
	needed []bool
	in     []uint // as of extra
	extras []extra
}

// extra is a class of properties without a name of their own.
type extra struct {
	name  func() re
	value conjID
	in    uint // the object's witnesses that these properties can be, one bit each
}

const maxPatterns = 8 // of one object; each name matches any subset of them

func (c *schemas) flatten(o *objectShape) *flatObject {
	if o.flat != nil {
		return o.flat
	}
	f := &flatObject{}
	required := c.setOf(o.required)
	seen := map[string]bool{}
	add := func(name string) {
		if !seen[name] {
			seen[name] = true
			f.names = append(f.names, name)
			f.values = append(f.values, c.demandsOf(o, name))
			f.needed = append(f.needed, required[name])
			in := uint(0)
			for i, w := range o.some {
				if w.matches(c, name) {
					in |= 1 << i
				}
			}
			f.in = append(f.in, in)
		}
	}
	if len(o.some) > maxWitnesses {
		panic(limit("an object of which %d properties must break a schema", len(o.some)))
	}
	var patterns []re
	addPattern := func(p re) {
		if !slices.Contains(patterns, p) && p != c.pool.text {
			patterns = append(patterns, p)
		}
	}
	for _, g := range o.groups {
		for _, n := range g.names {
			add(n)
		}
		for _, p := range g.patterns {
			addPattern(p)
		}
	}
	for _, w := range o.some {
		for _, n := range w.except {
			add(n)
		}
		addPattern(w.names)
		for _, p := range w.unless {
			addPattern(p)
		}
	}
	for _, n := range o.required {
		add(n)
	}
	if len(patterns) > maxPatterns {
		panic(limit("more than %d patterns of properties of one object", maxPatterns))
	}
	others := func(narrow re) re {
		if len(f.names) > 0 {
			narrow = c.pool.and(c.pool.text, narrow, c.pool.not(c.words(f.names)))
		}
		return c.pool.and(o.names, narrow)
	}
	for set := range 1 << len(patterns) {
		within := func(p re) bool { return p == c.pool.text || set>>slices.Index(patterns, p)&1 != 0 }
		in := uint(0)
		for i, w := range o.some {
			if within(w.names) && !slices.ContainsFunc(w.unless, within) {
				in |= 1 << i
			}
		}
		var ds []demand
		for _, g := range o.groups {
			known := false
			for i, p := range g.patterns {
				if within(p) {
					ds, known = append(ds, g.patValues[i]), true
				}
			}
			if !known && g.additional != nil {
				ds = append(ds, *g.additional)
			}
		}
		if slices.Contains(ds, never) {
			continue
		}
		value := c.conj(ds...)
		name := func() re { return others(c.pool.text) }
		if len(patterns) > 0 || o.names != c.pool.text {
			narrow := c.pool.text
			for i, p := range patterns {
				if set>>i&1 != 0 {
					narrow = c.pool.and(narrow, p)
				} else {
					narrow = c.pool.and(c.pool.text, narrow, c.pool.not(p))
				}
			}
			r := others(narrow)
			if !c.alive(r) {
				continue
			}
			name = func() re { return r }
		}
		f.extras = append(f.extras, extra{name, value, in})
	}
	o.flat = f
	return f
}

// checkConditions bounds the states of r, which are combinations of the states of all conditions.
func (c *schemas) checkConditions(r re) {
	n, count := c.at(r), 0
	if n.kind != kindAnd {
		return
	}
	for _, q := range n.list {
		if count += 64; c.at(q).kind == kindNot {
			count -= 63
		}
	}
	if count > maxAtOnce {
		panic(limit("a value with %d conditions", len(n.list)))
	}
}

// compile returns the place of the schema's texts.
func (c *schemas) compile() place {
	root := c.conj(demand{c.root, mustMatch})
	// Visit everything reachable, so that an unsupported keyword fails now.
	reached := []conjID{root}
	seen := map[conjID]bool{root: true}
	reach := func(id conjID) {
		if !seen[id] {
			seen[id] = true
			reached = append(reached, id)
		}
	}
	for i := 0; i < len(reached); i++ {
		s := c.shapeOf(reached[i])
		for _, r := range []re{s.number, s.text.expr} {
			c.checkConditions(r)
		}
		if r := s.text.expr; r != reNone && !c.short(r) && c.alive(r) {
			c.intricate = append(c.intricate, c.quoted(r))
		}
		for _, a := range s.arrays {
			for _, id := range a.prefix {
				reach(id)
			}
			if a.max == unlimited || a.max > len(a.prefix) {
				reach(a.items)
			}
			c.eachContained(a, reach)
			c.checkUnique(a)
		}
		for _, o := range s.objects {
			f := c.flatten(o)
			for _, id := range f.values {
				reach(id)
			}
			for _, e := range f.extras {
				reach(e.value)
			}
			c.eachWitness(o, f, reach)
			// A name that occurs twice in a text counts once.
			if len(f.extras) > 0 && o.min > 1 && o.min > len(o.required)+1 {
				c.refuse(c.root, "minProperties", "more than 1 is not supported with properties of any name")
			}
		}
	}
	for changed := true; changed; {
		changed = false
		for i := len(reached) - 1; i >= 0; i-- {
			j := c.conjs[reached[i]]
			if !j.inhabited && c.inhabited(j.shape) {
				j.inhabited, changed = true, true
			}
		}
	}
	if !c.conjs[root].inhabited {
		c.refuse(c.root, "", "no value matches")
	}
	if c.options.OneSpace {
		return c.value(root, placeReturn)
	}
	return c.spaced(c.value(root, c.spaced(placeReturn)))
}

func (c *schemas) inhabited(s *shape) bool {
	c.spend(derivation)
	return s.null || s.no || s.yes || len(s.text.words) > 0 || c.alive(s.number) || c.alive(s.text.expr) ||
		slices.ContainsFunc(s.arrays, c.inhabitedArray) || slices.ContainsFunc(s.objects, c.inhabitedObject)
}

// longest returns the maximum number of items of an array.
func (c *schemas) longest(a *arrayShape) int {
	for i := 0; i <= len(a.prefix) && (a.max == unlimited || i < a.max); i++ {
		if !c.conjs[a.at(i)].inhabited {
			return i
		}
	}
	return a.max
}

func (c *schemas) inhabitedArray(a *arrayShape) bool {
	if n := c.longest(a); n != unlimited && n < a.min {
		return false
	}
	return (len(a.contains) == 0 || c.completable(a, arrayState{}, map[arrayState]bool{})) && c.enough(a)
}

// arrayState is the state of an array's text: the items so far, up to where their number no longer
// matters.
type arrayState struct {
	i int
	n tally
}

// items visits each demand on the item that follows s, with the state behind it.
func (c *schemas) items(a *arrayShape, s arrayState, visit func(id conjID, then arrayState)) {
	most := c.longest(a)
	if most != unlimited && s.i >= most {
		return
	}
	for set := range 1 << len(a.contains) {
		id, then, ok := a.at(s.i), arrayState{min(s.i+1, max(len(a.prefix), a.min, most)), s.n}, true
		for k, d := range a.contains {
			switch in := set>>k&1 != 0; {
			case in:
				id = c.conjBoth(id, d.value)
				then.n[k]++
				ok = ok && (d.max == unlimited && s.n[k] < int32(d.min) || int(s.n[k]) < d.max)
			case d.max != unlimited:
				id = c.conjBoth(id, d.not)
			}
		}
		if ok && c.conjs[id].inhabited {
			visit(id, then)
		}
	}
}

// completes reports whether an array may end in state s.
func (a *arrayShape) completes(s arrayState) bool {
	for k, d := range a.contains {
		if int(s.n[k]) < d.min {
			return false
		}
	}
	return s.i >= a.min
}

// completable reports whether an array can be completed from state s. known holds earlier results.
func (c *schemas) completable(a *arrayShape, s arrayState, known map[arrayState]bool) bool {
	if ok, done := known[s]; done {
		return ok
	}
	c.spend(derivation)
	ok := a.completes(s)
	if !ok {
		c.items(a, s, func(_ conjID, then arrayState) {
			ok = ok || then != s && c.completable(a, then, known)
		})
	}
	known[s] = ok
	return ok
}

// eachContained visits the conjunctions of each item's schema with contained demands.
func (c *schemas) eachContained(a *arrayShape, visit func(conjID)) {
	if len(a.contains) > maxContained {
		c.refuse(c.root, "contains", fmt.Sprintf("more than %d of one array are not supported", maxContained))
	}
	for i := 0; i <= len(a.prefix) && len(a.contains) > 0; i++ {
		for set := range 1 << len(a.contains) {
			id := a.at(i)
			for k, d := range a.contains {
				if set>>k&1 != 0 {
					id = c.conjBoth(id, d.value)
				} else if d.max != unlimited {
					id = c.conjBoth(id, d.not)
				}
			}
			visit(id)
		}
	}
}

// eachWitness visits the conjunction of each property's schema with what a witness demands of it.
func (c *schemas) eachWitness(o *objectShape, f *flatObject, visit func(conjID)) {
	choosy := o.choosy()
	if choosy&(choosy-1) != 0 {
		c.refuse(c.root, "additionalProperties", "two properties of any name that must break a schema would have to be told apart")
	}
	for i, w := range o.some {
		for j, id := range f.values {
			if choosy&f.in[j]>>i&1 != 0 {
				visit(c.conjBoth(id, w.value))
			}
		}
		for _, e := range f.extras {
			if choosy&e.in>>i&1 != 0 {
				visit(c.conjBoth(e.value, w.value))
			}
		}
	}
}

// choosy returns the witnesses that demand something of the value, one bit each.
func (o *objectShape) choosy() (bits uint) {
	for i, w := range o.some {
		if w.value != 0 {
			bits |= 1 << i
		}
	}
	return bits
}

func (c *schemas) inhabitedObject(o *objectShape) bool {
	f := c.flatten(o)
	c.spend(derivation + 4*(len(f.values)+len(f.extras)))
	possible := 0
	for i, id := range f.values {
		if c.conjs[id].inhabited {
			possible++
		} else if f.needed[i] {
			return false
		}
	}
	if o.max != unlimited && len(o.required) > o.max {
		return false
	}
	if len(o.some) > 0 {
		if x := c.objectText(o); !x.completable(x.first()) {
			return false
		}
	}
	if slices.ContainsFunc(f.extras, func(e extra) bool { return c.conjs[e.value].inhabited }) {
		return o.max == unlimited || o.min <= o.max
	}
	return possible >= o.min
}
