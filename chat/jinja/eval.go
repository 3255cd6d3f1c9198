package jinja

import (
	"math"
	"math/big"
	"slices"
	"strings"
)

func (s textStmt) exec(r *run) signal {
	r.write(s.text)
	return goOn
}

func (s outputStmt) exec(r *run) signal {
	r.write(r.str(r.eval(s.of)))
	return goOn
}

func (s *ifStmt) exec(r *run) signal {
	if truth(r.eval(s.test)) {
		return r.block(s.then)
	}
	return r.block(s.otherwise)
}

func (s *forStmt) exec(r *run) signal {
	return s.over(r, r.scope, r.items(r.eval(s.of)), 1)
}

// over executes the loop over items, in a scope below outer.
func (s *forStmt) over(r *run, outer *scope, items []Value, depth int) signal {
	if s.test != nil {
		var kept []Value
		for _, v := range items {
			r.scoped(outer, func() {
				r.bind(s.vars, v)
				if truth(r.eval(s.test)) {
					kept = append(kept, v)
				}
			})
		}
		items = r.list(kept).Items
	}
	if len(items) == 0 {
		return r.block(s.otherwise)
	}
	l := &loop{items: items, depth: depth}
	if s.recursive {
		l.again = &function{"loop", func(r *run, a args) Value {
			return r.capture(func() {
				r.scoped(outer, func() { s.over(r, outer, r.items(a.get(0, "iterable", Undefined{})), depth+1) })
			})
		}}
	}
	for i, v := range items {
		var sig signal
		r.step(1)
		r.scoped(outer, func() {
			l.at = i
			r.set("loop", l)
			r.bind(s.vars, v)
			sig = r.block(s.body)
		})
		if sig == breakLoop {
			break
		}
	}
	return goOn
}

// bind sets the loop variables to an item; several variables unpack it.
func (r *run) bind(vars []string, v Value) {
	if len(vars) == 1 {
		r.set(vars[0], v)
		return
	}
	parts := r.items(v)
	if len(parts) != len(vars) {
		fail("%d values for %d variables", len(parts), len(vars))
	}
	for i, name := range vars {
		r.set(name, parts[i])
	}
}

func (s *setStmt) exec(r *run) signal {
	v := r.eval(s.value)
	if len(s.targets) == 1 {
		r.assign(s.targets[0], v)
		return goOn
	}
	parts := r.items(v)
	if len(parts) != len(s.targets) {
		fail("%d values for %d variables", len(parts), len(s.targets))
	}
	for i, t := range s.targets {
		r.assign(t, parts[i])
	}
	return goOn
}

func (r *run) assign(t target, v Value) {
	if t.attribute == "" {
		r.set(t.name, v)
		return
	}
	ns, ok := r.lookup(t.name).(*namespace)
	if !ok {
		fail("%s.%s cannot be set: %s is not a namespace", t.name, t.attribute, t.name)
	}
	r.alloc(valueSize)
	ns.Set(Plain(t.attribute), v)
}

func (s *setBlockStmt) exec(r *run) signal {
	var v Value = r.capture(func() { r.block(s.body) })
	r.assign(s.target, r.filtered(v, s.filter))
	return goOn
}

func (s *filterStmt) exec(r *run) signal {
	r.write(r.str(r.filtered(r.capture(func() { r.block(s.body) }), s.filters)))
	return goOn
}

func (r *run) filtered(v Value, list []filterCall) Value {
	for i := range list {
		v = r.filter(&list[i], v)
	}
	return v
}

func (s *withStmt) exec(r *run) signal {
	var sig signal
	values := make([]Value, len(s.values))
	for i, e := range s.values {
		values[i] = r.eval(e)
	}
	r.scoped(r.scope, func() {
		for i, name := range s.names {
			r.set(name, values[i])
		}
		sig = r.block(s.body)
	})
	return sig
}

func (s signalStmt) exec(*run) signal { return s.signal }

func (s *macroStmt) exec(r *run) signal {
	r.set(s.name, r.macro(s.name, &s.macro))
	return goOn
}

func (s *callStmt) exec(r *run) signal {
	a := r.arguments(&s.call.args)
	a.caller = r.macro("caller", &s.caller)
	r.write(r.str(r.call(r.callee(s.call.callee), a)))
	return goOn
}

// macro returns a function that renders a body in the scope of its definition.
func (r *run) macro(name string, m *macro) *function {
	home := r.scope
	r.alloc(valueSize)
	return &function{name, func(r *run, a args) Value {
		return r.capture(func() {
			r.scoped(home, func() {
				r.parameters(name, m, a)
				r.block(m.body)
			})
		})
	}}
}

// parameters binds a macro's arguments. Those without a parameter become varargs and kwargs.
func (r *run) parameters(name string, m *macro, a args) {
	rest := &Dict{}
	r.scan(len(a.kw.entries) * len(m.params))
	for _, e := range a.kw.entries {
		key := e.key.(Text)
		i := slices.Index(m.params, key.s)
		if i >= 0 && i < len(a.pos) {
			fail("%s: two values for %q", name, key.s)
		}
		if i < 0 {
			rest.Set(key, e.value)
		}
	}
	for i, p := range m.params {
		switch v, named := a.kw.Get(p); {
		case i < len(a.pos):
			r.set(p, a.pos[i])
		case !named && m.defaults[i] != nil:
			r.set(p, r.eval(m.defaults[i]))
		default:
			r.set(p, v)
		}
	}
	more := r.list(slices.Clone(a.pos[min(len(m.params), len(a.pos)):]))
	more.form = tuple
	r.set("varargs", more)
	r.set("kwargs", rest)
	if a.caller != nil {
		r.set("caller", a.caller)
	}
}

func (e *literal) eval(*run) Value { return e.value }
func (e *name) eval(r *run) Value  { return r.lookup(e.name) }

func (e *listExpr) eval(r *run) Value {
	items := make([]Value, len(e.items))
	for i, item := range e.items {
		items[i] = r.eval(item)
	}
	l := r.list(items)
	l.form = e.form
	return l
}

func (e *dictExpr) eval(r *run) Value {
	d := &Dict{}
	for i, key := range e.keys {
		r.alloc(2 * valueSize)
		if k := r.keyed(r.eval(key)); !d.set(k, r.eval(e.values[i])) {
			fail("a %s cannot be a key", k.kind())
		}
	}
	return d
}

func (e *attribute) eval(r *run) Value { return r.attribute(r.eval(e.of), e.name, false) }

func (e *item) eval(r *run) Value {
	of := r.eval(e.of)
	return r.indexed(of, r.eval(e.key))
}

// indexed returns the item of a key or index, or Undefined.
func (r *run) indexed(of, key Value) Value {
	if name, ok := key.(Text); ok {
		return r.attribute(of, name.s, false)
	}
	switch of := of.(type) {
	case *Dict:
		v, _ := of.get(key)
		return v
	case *List:
		if i, ok := index(key, len(of.Items)); ok {
			return of.Items[i]
		}
	case Text:
		r.scan(len(of.s))
		at := of.characters()
		r.alloc(8 * len(at))
		if i, ok := index(key, len(at)-1); ok {
			return r.cut(of, at[i], at[i+1])
		}
	}
	return Undefined{}
}

// keyed counts the steps of looking up a key in a mapping, and returns it.
func (r *run) keyed(v Value) Value {
	if t, ok := v.(Text); ok {
		r.scan(len(t.s))
	}
	return v
}

// index returns the index v into a list of n; negative values count from its end.
func index(v Value, n int) (int, bool) {
	i, ok := integer(v)
	if i < 0 {
		i += int64(n)
	}
	return int(i), ok && i >= 0 && i < int64(n)
}

// attribute returns the entry or method of a name, or Undefined. In a call a method precedes an
// entry, so that a schema's entry "items" does not hide the method.
func (r *run) attribute(of Value, name string, called bool) Value {
	var table map[string]method
	r.scan(len(name))
	switch of := of.(type) {
	case *Dict:
		v, ok := of.Get(name)
		if _, callable := v.(*function); ok && (!called || callable || dictMethods[name] == nil) {
			return v
		}
		table = dictMethods
	case *namespace:
		v, _ := of.Get(name)
		return v
	case *loop:
		return of.attribute(name)
	case Text:
		table = textMethods
	case *List:
		if v, ok := of.named(name); ok {
			return v
		}
		table = listMethods
	}
	if m, ok := table[name]; ok {
		r.alloc(valueSize)
		return &function{name, func(r *run, a args) Value { return m(r, of, a) }}
	}
	return Undefined{}
}

func (e *sliceExpr) eval(r *run) Value {
	of := r.eval(e.of)
	part := func(e expr) (int64, bool) {
		if e == nil {
			return 0, false
		}
		v := r.eval(e)
		if v == (None{}) || v == (Undefined{}) {
			return 0, false
		}
		i, ok := integer(v)
		if !ok {
			fail("a %s cannot be a slice bound", v.kind())
		}
		return i, true
	}
	from, hasFrom := part(e.from)
	to, hasTo := part(e.to)
	step, hasStep := part(e.step)
	if !hasStep {
		step = 1
	}
	if step == 0 {
		fail("slice step 0")
	}
	var at []int
	n := 0
	switch of := of.(type) {
	case *List:
		n = len(of.Items)
	case Text:
		r.alloc(8 * len(of.s))
		at = of.characters()
		n = len(at) - 1
	case Undefined:
		return Undefined{}
	default:
		fail("a %s cannot be sliced", of.kind())
	}
	// As in Python: with a negative step the end before the first item is -1.
	low, high := int64(0), int64(n)
	if step < 0 {
		low, high = -1, int64(n)-1
	}
	bound := func(i int64, given bool, otherwise int64) int64 {
		if !given {
			return otherwise
		}
		if i < 0 {
			i += int64(n)
		}
		return min(max(i, low), high)
	}
	first, last := low, high
	if step < 0 {
		first, last = high, low
	}
	from, to = bound(from, hasFrom, first), bound(to, hasTo, last)
	if step == 1 {
		to = max(from, to)
		switch of := of.(type) {
		case Text:
			return r.cut(of, at[from], at[to])
		case *List: // append copies the items, since the slice has no capacity left
			r.alloc(valueSize)
			return &List{of.Items[from:to:to], of.form}
		}
	}
	var items []Value
	var b builder
	for i := from; (step > 0 && i < to) || (step < 0 && i > to); i += step {
		r.step(1)
		switch of := of.(type) {
		case *List:
			items = append(items, of.Items[i])
		case Text:
			b.text(of.cut(at[i], at[i+1]))
		}
		if step > 0 && i > math.MaxInt64-step || step < 0 && i < math.MinInt64-step {
			break
		}
	}
	if _, ok := of.(Text); ok {
		return r.made(b.done())
	}
	l := r.list(items)
	l.form = of.(*List).form
	return l
}

func (e *callExpr) eval(r *run) Value {
	a := r.arguments(&e.args)
	return r.call(r.callee(e.callee), a)
}

// callee returns the called function; methods precede entries.
func (r *run) callee(e expr) Value {
	if a, ok := e.(*attribute); ok {
		of := r.eval(a.of)
		f := r.attribute(of, a.name, true)
		if _, ok := f.(*function); !ok {
			fail("a %s has no method %q", of.kind(), a.name)
		}
		return f
	}
	f := r.eval(e)
	if l, ok := f.(*loop); ok && l.again != nil {
		return l.again
	}
	if _, ok := f.(*function); !ok {
		if n, named := e.(*name); named {
			fail("%s is not a function", n.name)
		}
		fail("a %s is not a function", f.kind())
	}
	return f
}

func (r *run) call(f Value, a args) Value {
	r.step(1)
	r.enter()
	v := f.(*function).call(r, a)
	r.depth--
	return v
}

// args are the evaluated arguments of a call.
type args struct {
	pos    []Value
	kw     *Dict     // nil for none
	caller *function // set in a call block
}

func (r *run) arguments(a *arguments) args {
	out := args{kw: &Dict{}}
	for i, e := range a.pos {
		v := r.eval(e)
		if i+1 == a.spread {
			out.pos = append(out.pos, r.items(v)...)
		} else {
			out.pos = append(out.pos, v)
		}
	}
	for i, e := range a.kw {
		r.scan(len(a.names[i]))
		out.kw.Set(Plain(a.names[i]), r.eval(e))
	}
	if a.kwMap != nil {
		d, ok := r.eval(a.kwMap).(*Dict)
		if !ok {
			fail("the argument of ** is not a mapping")
		}
		for _, e := range d.entries {
			if _, ok := e.key.(Text); !ok {
				fail("an argument's name must be a string, not a %s", e.key.kind())
			}
			out.kw.set(r.keyed(e.key), e.value)
		}
	}
	r.alloc(valueSize * (len(out.pos) + 2*out.kw.Len()))
	return out
}

// get returns an argument by position or name, or otherwise.
func (a args) get(i int, name string, otherwise Value) Value {
	if i < len(a.pos) {
		return a.pos[i]
	}
	if a.kw != nil {
		if v, ok := a.kw.Get(name); ok {
			return v
		}
	}
	return otherwise
}

// text returns an argument that must be a string.
func (a args) text(i int, name string) Text {
	t, ok := a.get(i, name, Undefined{}).(Text)
	if !ok {
		fail("argument %q must be a string", name)
	}
	return t
}

// mapping returns an argument that must be a mapping.
func (a args) mapping(i int, name string) *Dict {
	d, ok := a.get(i, name, Undefined{}).(*Dict)
	if !ok {
		fail("argument %q must be a mapping", name)
	}
	return d
}

// int returns an argument that must be an integer.
func (a args) int(i int, name string, otherwise int64) int64 {
	n, ok := integer(a.get(i, name, Int(otherwise)))
	if !ok {
		fail("argument %q must be an integer", name)
	}
	return n
}

func (e *filterExpr) eval(r *run) Value { return r.filter(&e.filterCall, r.eval(e.of)) }

func (r *run) filter(f *filterCall, v Value) Value {
	r.step(1)
	return f.filter(r, v, r.arguments(&f.args))
}

func (e *testExpr) eval(r *run) Value {
	return Bool(e.test(r, r.eval(e.of), r.arguments(&e.args)) != e.negate)
}

func (e *notExpr) eval(r *run) Value { return Bool(!truth(r.eval(e.of))) }

func (e *signExpr) eval(r *run) Value {
	switch v := r.eval(e.of).(type) {
	case Float:
		if e.minus {
			return -v
		}
		return v
	default:
		i := whole(v)
		if i == nil {
			fail("a %s has no negative", v.kind())
		}
		if e.minus {
			i = new(big.Int).Neg(i)
		}
		return integer64(i)
	}
}

func (e *logicExpr) eval(r *run) Value {
	if v := r.eval(e.a); truth(v) == e.or {
		return v
	}
	return r.eval(e.b)
}

func (e *compareExpr) eval(r *run) Value {
	a := r.eval(e.of)
	var v Value
	for _, c := range e.with {
		b := r.eval(c.to)
		if v = c.do(r, a, b); v == nil {
			fail("%s is not defined for %s and %s", c.op, a.kind(), b.kind())
		}
		if !truth(v) {
			break
		}
		a = b
	}
	return v
}

func (e *condExpr) eval(r *run) Value {
	switch {
	case truth(r.eval(e.test)):
		return r.eval(e.then)
	case e.otherwise != nil:
		return r.eval(e.otherwise)
	}
	return Undefined{}
}

func (e *binaryExpr) eval(r *run) Value {
	a, b := r.eval(e.a), r.eval(e.b)
	if v := e.do(r, a, b); v != nil {
		return v
	}
	fail("%s is not defined for %s and %s", e.op, a.kind(), b.kind())
	return nil
}

// binaryOps evaluate binary operators; nil means that the operator is not defined for the operands.
var binaryOps = map[string]func(r *run, a, b Value) Value{
	"==": func(r *run, a, b Value) Value { return Bool(r.equal(a, b)) },
	"!=": func(r *run, a, b Value) Value { return Bool(!r.equal(a, b)) },
	"<":  func(r *run, a, b Value) Value { return ordered(r, a, b, func(c int) bool { return c < 0 }) },
	"<=": func(r *run, a, b Value) Value { return ordered(r, a, b, func(c int) bool { return c <= 0 }) },
	">":  func(r *run, a, b Value) Value { return ordered(r, a, b, func(c int) bool { return c > 0 }) },
	">=": func(r *run, a, b Value) Value { return ordered(r, a, b, func(c int) bool { return c >= 0 }) },
	"in": contains,
	"not in": func(r *run, a, b Value) Value {
		in := contains(r, a, b)
		if in == nil {
			return nil
		}
		return Bool(!truth(in))
	},
	"~": func(r *run, a, b Value) Value { return r.join(r.str(a), r.str(b)) },
	"+": add,
	"-": minus,
	"*": multiply,
	"/": func(r *run, a, b Value) Value {
		x, okX := number(a)
		y, okY := number(b)
		if !okX || !okY {
			return nil
		}
		return Float(x / nonzero(y))
	},
	"//": quotient,
	"%": func(r *run, a, b Value) Value {
		if t, ok := a.(Text); ok {
			return r.printf(t, b)
		}
		return remainder(r, a, b)
	},
	"**": power,
}

// add adds numbers and concatenates strings and lists. A number added to a string is formatted.
func add(r *run, a, b Value) Value {
	if v := plus(r, a, b); v != nil {
		return v
	}
	if x, ok := a.(*List); ok {
		if y, ok := b.(*List); ok {
			l := r.list(slices.Concat(x.Items, y.Items))
			l.form = x.form
			return l
		}
	}
	_, textA := a.(Text)
	_, textB := b.(Text)
	if !textA && !textB {
		return nil
	}
	for _, v := range []Value{a, b} {
		switch v.(type) {
		case Text, Bool, Int, large, Float:
		default:
			return nil
		}
	}
	return r.join(r.str(a), r.str(b))
}

func (r *run) join(parts ...Text) Text {
	text, spans := 0, 0
	for _, t := range parts {
		text += len(t.s)
		spans += len(t.marks)
	}
	r.alloc(text + spanSize*spans)
	var b builder
	b.b.Grow(text)
	for _, t := range parts {
		b.text(t)
	}
	return b.done()
}

// multiply multiplies numbers and repeats strings and lists.
func multiply(r *run, a, b Value) Value {
	if v := times(r, a, b); v != nil {
		return v
	}
	n, ok := integer(b)
	if !ok {
		a, b = b, a
		n, ok = integer(b)
	}
	switch of := a.(type) {
	case Text:
		if ok {
			return r.repeat(of, n)
		}
	case *List:
		if n = max(n, 0); ok {
			r.room(n, itemSize*len(of.Items))
			return &List{slices.Repeat(of.Items, int(n)), of.form}
		}
	}
	return nil
}

// room counts the memory of n things of the given size.
func (r *run) room(n int64, size int) {
	if size > 0 && n > int64(r.bytes) {
		fail("%w: too much text", ErrLimit)
	}
	if size > 0 {
		r.alloc(int(n) * size)
	}
}

func (r *run) repeat(t Text, n int64) Text {
	if n <= 0 || t.s == "" {
		return Text{}
	}
	r.room(n, len(t.s)+spanSize*len(t.marks))
	var b builder
	for range n {
		b.text(t)
	}
	return b.done()
}

func (r *run) equal(a, b Value) bool {
	r.step(1)
	if order, ok := compareNumbers(a, b); ok {
		return order == 0
	}
	switch a := a.(type) {
	case Undefined, None: // one type in @huggingface/jinja
		return b == Undefined{} || b == None{}
	case Text:
		b, ok := b.(Text)
		r.scan(min(len(a.s), len(b.s)))
		return ok && a.s == b.s
	case *List:
		b, ok := b.(*List)
		if !ok || len(a.Items) != len(b.Items) || a.isTuple() != b.isTuple() {
			return false
		}
		r.enter()
		for i := range a.Items {
			if !r.equal(a.Items[i], b.Items[i]) {
				r.depth--
				return false
			}
		}
		r.depth--
		return true
	case *Dict:
		b, ok := b.(*Dict)
		if !ok || a.Len() != b.Len() {
			return false
		}
		r.enter()
		for _, e := range a.entries {
			v, ok := b.get(r.keyed(e.key))
			if !ok || !r.equal(e.value, v) {
				r.depth--
				return false
			}
		}
		r.depth--
		return true
	}
	return a == b
}

// compare compares numbers or strings; ok is false for values without an order.
func (r *run) compare(a, b Value) (order int, ok bool) {
	r.step(1)
	if order, ok := compareNumbers(a, b); ok {
		return order, true
	}
	x, okX := a.(Text)
	y, okY := b.(Text)
	r.scan(min(len(x.s), len(y.s)))
	return strings.Compare(x.s, y.s), okX && okY
}

func ordered(r *run, a, b Value, want func(int) bool) Value {
	c, ok := r.compare(a, b)
	if !ok {
		return nil
	}
	return Bool(want(c))
}

func contains(r *run, a, b Value) Value {
	switch b := b.(type) {
	case Undefined:
		return Bool(false)
	case *List:
		return Bool(slices.ContainsFunc(b.Items, func(v Value) bool { return r.equal(a, v) }))
	case *Dict:
		_, ok := b.get(r.keyed(a))
		return Bool(ok)
	case Text:
		if a, ok := a.(Text); ok {
			r.scan(len(b.s))
			return Bool(strings.Contains(b.s, a.s))
		}
	}
	return nil
}

// items returns the items that a loop iterates over.
func (r *run) items(v Value) []Value {
	switch v := v.(type) {
	case *List:
		r.step(1)
		return v.Items
	case *Dict:
		return r.list(v.keys().Items).Items
	case Text:
		at := v.characters()
		r.alloc((8 + 2*valueSize) * len(at))
		items := make([]Value, len(at)-1)
		for i := range items {
			items[i] = v.cut(at[i], at[i+1])
		}
		return items
	case Undefined:
		return nil
	}
	fail("a %s is not iterable", v.kind())
	return nil
}

// loop is the variable loop of a loop's body.
type loop struct {
	items []Value
	at    int
	depth int       // 1 for a loop that is in no recursive one
	again *function // renders a recursive loop for other items
	last  []Value   // arguments of the last call of changed
}

func (*loop) kind() string { return "loop" }

func (l *loop) attribute(name string) Value {
	n := len(l.items)
	switch name {
	case "index":
		return Int(l.at + 1)
	case "index0":
		return Int(l.at)
	case "revindex":
		return Int(n - l.at)
	case "revindex0":
		return Int(n - l.at - 1)
	case "first":
		return Bool(l.at == 0)
	case "last":
		return Bool(l.at == n-1)
	case "length":
		return Int(n)
	case "previtem":
		if l.at > 0 {
			return l.items[l.at-1]
		}
	case "nextitem":
		if l.at < n-1 {
			return l.items[l.at+1]
		}
	case "depth":
		return Int(l.depth)
	case "depth0":
		return Int(l.depth - 1)
	case "changed":
		return &function{name, func(r *run, a args) Value {
			same := l.last != nil && r.equal(&List{Items: l.last}, &List{Items: a.pos})
			l.last = a.pos
			return Bool(!same)
		}}
	case "cycle":
		return &function{name, func(_ *run, a args) Value {
			if len(a.pos) == 0 {
				fail("loop.cycle without arguments")
			}
			return a.pos[l.at%len(a.pos)]
		}}
	}
	return Undefined{}
}
