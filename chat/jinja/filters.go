package jinja

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"
)

// A filter computes a value from v and the arguments of the filter.
type filter func(r *run, v Value, a args) Value

// filters by name. Set by init, since some refer to the table.
var filters map[string]filter

func init() {
	filters = map[string]filter{
		"abs": func(_ *run, v Value, _ args) Value {
			switch v := v.(type) {
			case Int:
				return max(v, -v)
			case Float:
				return Float(math.Abs(float64(v)))
			}
			fail("abs of a %s", v.kind())
			return nil
		},
		"batch":      batch,
		"capitalize": onText(capitalize),
		"count":      length,
		"d":          otherwise,
		"default":    otherwise,
		"dictsort":   dictsort,
		"e":          safe,
		"escape":     safe,
		"first": func(r *run, v Value, _ args) Value {
			if items := r.items(v); len(items) > 0 {
				return items[0]
			}
			return Undefined{}
		},
		"float":     toFloat,
		"from_json": fromText, "fromjson": fromText,
		"indent": indent,
		"int":    toInt,
		"items": func(r *run, v Value, _ args) Value {
			switch v := v.(type) {
			case *Dict:
				r.alloc(4 * valueSize * v.Len())
				return v.pairs()
			case Undefined:
				return &List{}
			}
			fail("a %s is not iterable", v.kind())
			return nil
		},
		"join": join,
		"last": func(r *run, v Value, _ args) Value {
			if items := r.items(v); len(items) > 0 {
				return items[len(items)-1]
			}
			return Undefined{}
		},
		"length": length,
		"list":   func(r *run, v Value, _ args) Value { return r.list(slices.Clone(r.items(v))) },
		"lower":  onText(lower),
		"map":    mapped,
		"max":    extreme(1),
		"min":    extreme(-1),
		"reject": selecting(false, false), "rejectattr": selecting(false, true),
		"select": selecting(true, false), "selectattr": selecting(true, true),
		"replace": func(r *run, v Value, a args) Value { return textMethods["replace"](r, r.str(v), a) },
		"reverse": func(r *run, v Value, _ args) Value {
			if t, ok := v.(Text); ok {
				parts := r.items(t)
				slices.Reverse(parts)
				return join(r, &List{parts}, args{})
			}
			items := slices.Clone(r.items(v))
			slices.Reverse(items)
			return r.list(items)
		},
		"round":  round,
		"safe":   safe,
		"sort":   sorted,
		"string": func(r *run, v Value, _ args) Value { return r.str(v) },
		"sum": func(r *run, v Value, a args) Value {
			sum := a.get(1, "start", Int(0))
			for _, item := range r.attributes(r.items(v), a.get(0, "attribute", None{})) {
				r.step(1)
				if sum = plus(r, sum, item); sum == nil {
					fail("sum of a value that is not a number")
				}
			}
			return sum
		},
		"title":  onText(title),
		"tojson": toJSON,
		"trim": func(r *run, v Value, a args) Value {
			return stripped(both)(r, r.str(v), a)
		},
		"unique": func(r *run, v Value, _ args) Value {
			var kept []Value
			seen := &Dict{}
			for _, item := range r.items(v) {
				r.step(1)
				key := item
				if t, ok := item.(Text); ok {
					key = lower(r, t)
				}
				if _, ok := seen.get(key); ok {
					continue
				}
				if !seen.set(key, item) && slices.ContainsFunc(kept, func(v Value) bool { return r.equal(v, item) }) {
					continue
				}
				kept = append(kept, item)
			}
			return r.list(kept)
		},
		"upper": onText(upper),
		"wordcount": func(r *run, v Value, _ args) Value {
			t := r.str(v)
			r.scan(len(t.s))
			return Int(len(strings.FieldsFunc(t.s, isSpace)))
		},
	}
}

// safe returns v unchanged, since nothing is escaped for HTML.
func safe(r *run, v Value, _ args) Value { return v }

func otherwise(_ *run, v Value, a args) Value {
	if v == (Undefined{}) || truth(a.get(1, "boolean", Bool(false))) && !truth(v) {
		return a.get(0, "default_value", Plain(""))
	}
	return v
}

func length(r *run, v Value, _ args) Value {
	switch v := v.(type) {
	case Undefined:
		return Int(0)
	case Text:
		r.scan(len(v.s))
		return Int(v.length())
	case *List:
		return Int(len(v.Items))
	case *Dict:
		return Int(v.Len())
	}
	fail("a %s has no length", v.kind())
	return nil
}

func onText(change func(*run, Text) Text) filter {
	return func(r *run, v Value, _ args) Value { return change(r, r.str(v)) }
}

// change applies f to each longest run of bytes with equal marking.
func (r *run) change(t Text, f func(string) string) Text {
	r.alloc(2*len(t.s) + spanSize*len(t.marks))
	var b builder
	t.runs(func(s string, marked bool) { b.string(f(s), marked) })
	return r.made(b.done())
}

func upper(r *run, t Text) Text { return r.change(t, cases.Upper(language.Und).String) }
func lower(r *run, t Text) Text { return r.change(t, cases.Lower(language.Und).String) }

// capitalize changes only the first character, like @huggingface/jinja.
func capitalize(r *run, t Text) Text {
	n := len(t.s)
	for i := range t.s {
		if i > 0 {
			n = i
			break
		}
	}
	return r.join(upper(r, t.cut(0, n)), t.cut(n, len(t.s)))
}

// title capitalises each word of ASCII letters, like @huggingface/jinja.
func title(r *run, t Text) Text {
	word := false
	return r.change(t, func(s string) string {
		b := []byte(s)
		for i, c := range b {
			lower := c >= 'a' && c <= 'z'
			if lower && !word {
				b[i] = c - 'a' + 'A'
			}
			word = lower || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_'
		}
		return string(b)
	})
}

func toInt(r *run, v Value, a args) Value {
	switch v := v.(type) {
	case Int:
		return v
	case Bool:
		i, _ := integer(v)
		return Int(i)
	case Float:
		if math.Abs(float64(v)) < 1<<63 {
			return Int(v)
		}
	case Text:
		r.scan(len(v.s))
		s := strings.TrimFunc(v.s, isSpace)
		digits := len(s) - len(strings.TrimLeft(strings.TrimLeft(s, "+-"), "0123456789"))
		if i, err := strconv.ParseInt(s[:digits], 10, 64); err == nil {
			return Int(i)
		}
	}
	return a.get(0, "default", Int(0))
}

func toFloat(r *run, v Value, a args) Value {
	if f, ok := number(v); ok {
		return Float(f)
	}
	if t, ok := v.(Text); ok {
		r.scan(len(t.s))
		if f, err := strconv.ParseFloat(strings.TrimFunc(t.s, isSpace), 64); err == nil {
			return Float(f)
		}
	}
	return a.get(0, "default", Float(0))
}

func round(_ *run, v Value, a args) Value {
	f, ok := number(v)
	if !ok {
		fail("round of a %s", v.kind())
	}
	by := map[string]func(float64) float64{"common": math.RoundToEven, "ceil": math.Ceil, "floor": math.Floor}
	how := "common"
	if t, ok := a.get(1, "method", Plain(how)).(Text); ok {
		how = t.s
	}
	if by[how] == nil {
		fail("round: unknown method %q", how)
	}
	scale := math.Pow(10, float64(a.int(0, "precision", 0)))
	return Float(by[how](f*scale) / scale)
}

func indent(r *run, v Value, a args) Value {
	t := r.str(v)
	var by Text
	switch w := a.get(0, "width", Int(4)).(type) {
	case Text:
		by = w
	case Int:
		by = r.repeat(Plain(" "), int64(w))
	default:
		fail("indent: the width must be a number, not a %s", w.kind())
	}
	first, blank := truth(a.get(1, "first", Bool(false))), truth(a.get(2, "blank", Bool(false)))
	r.alloc(len(t.s) + spanSize*len(t.marks))
	var b builder
	for from, line := 0, 0; from <= len(t.s); line++ {
		to := from + strings.IndexByte(t.s[from:], '\n')
		if to < from {
			to = len(t.s)
		}
		if (line > 0 || first) && (to > from || blank) {
			r.alloc(len(by.s) + spanSize*len(by.marks))
			b.text(by)
		}
		b.text(t.cut(from, min(to+1, len(t.s))))
		from = to + 1
	}
	return b.done()
}

func toJSON(r *run, v Value, a args) Value {
	f := jsonForm{item: ", ", key: ": ", ascii: truth(a.get(0, "ensure_ascii", Bool(false))), sorted: truth(a.get(3, "sort_keys", Bool(false)))}
	switch w := a.get(1, "indent", None{}).(type) {
	case None, Undefined:
	case Text:
		f.indent, f.item = w.s, ","
	case Int:
		if w < 0 || w > 100 {
			fail("tojson: an indent of %d", w)
		}
		f.indent, f.item = strings.Repeat(" ", int(w)), ","
		if w == 0 {
			f.item = ", "
		}
	default:
		fail("tojson: the indent must be a number, not a %s", w.kind())
	}
	if s, ok := a.get(2, "separators", None{}).(*List); ok {
		parts := [2]Text{}
		for i := range parts {
			if len(s.Items) != 2 {
				fail("tojson: want two separators")
			}
			t, ok := s.Items[i].(Text)
			if !ok {
				fail("tojson: separators must be strings")
			}
			parts[i] = t
		}
		f.item, f.key = parts[0].s, parts[1].s
	}
	return r.json(v, f)
}

// fromText parses JSON. If the text has marks, every string in the result is marked.
func fromText(r *run, v Value, _ args) Value {
	t := r.str(v)
	r.alloc(valueSize * len(t.s))
	mark := Plain
	if len(t.marks) > 0 {
		mark = Marked
	}
	out, err := FromJSON([]byte(t.s), mark)
	if err != nil {
		fail("from_json: %w", err)
	}
	return out
}

// path follows a path such as "function.name"; None returns the value itself.
func (r *run) path(v, path Value) Value {
	if path == (None{}) {
		return v
	}
	for part := range strings.SplitSeq(r.str(path).s, ".") {
		r.scan(len(part))
		if i, err := strconv.Atoi(part); err == nil {
			if l, ok := v.(*List); ok {
				if i < 0 || i >= len(l.Items) {
					return Undefined{}
				}
				v = l.Items[i]
				continue
			}
		}
		switch of := v.(type) {
		case *Dict:
			v, _ = of.Get(part)
		case *namespace:
			v, _ = of.Get(part)
		default:
			return Undefined{}
		}
	}
	return v
}

func (r *run) attributes(items []Value, path Value) []Value {
	if path == (None{}) {
		return items
	}
	out := make([]Value, len(items))
	for i, v := range items {
		out[i] = r.path(v, path)
	}
	return r.list(out).Items
}

func join(r *run, v Value, a args) Value {
	by := r.str(a.get(0, "d", a.get(0, "separator", Plain(""))))
	items := r.attributes(r.items(v), a.get(1, "attribute", None{}))
	var b builder
	for i, item := range items {
		t := r.str(item)
		r.alloc(len(by.s) + len(t.s) + spanSize*(len(by.marks)+len(t.marks)))
		if i > 0 {
			b.text(by)
		}
		b.text(t)
	}
	return b.done()
}

// lazy returns the items of a filter's input; Undefined and None have none.
func (r *run) lazy(v Value) []Value {
	if v == (None{}) {
		return nil
	}
	return r.items(v)
}

func mapped(r *run, v Value, a args) Value {
	items := r.lazy(v)
	out := make([]Value, len(items))
	if path, ok := a.kw.Get("attribute"); ok {
		missing := a.get(len(a.pos), "default", Undefined{})
		for i, item := range items {
			if out[i] = r.path(item, path); out[i] == (Undefined{}) {
				out[i] = missing
			}
		}
		return r.list(out)
	}
	name := a.text(0, "filter")
	f, ok := filters[name.s]
	if !ok {
		fail("map: unknown filter %q", name.s)
	}
	for i, item := range items {
		r.step(1)
		out[i] = f(r, item, args{pos: a.pos[1:], kw: a.kw})
	}
	return r.list(out)
}

// selecting returns a filter that keeps or drops items by a test, or by their truth; if attribute
// is set, of an attribute of each item.
func selecting(keep, attribute bool) filter {
	return func(r *run, v Value, a args) Value {
		var path Value = None{}
		if attribute {
			path = a.text(0, "attribute")
			a.pos = a.pos[min(1, len(a.pos)):]
		}
		check := func(_ *run, v Value, _ args) bool { return truth(v) }
		if len(a.pos) > 0 {
			name := a.text(0, "test")
			found, ok := tests[name.s]
			if !ok {
				fail("unknown test %q", name.s)
			}
			check = found
			a.pos = a.pos[1:]
		}
		var out []Value
		for _, item := range r.lazy(v) {
			r.step(1)
			if check(r, r.path(item, path), a) == keep {
				out = append(out, item)
			}
		}
		return r.list(out)
	}
}

// order compares two values of one kind; strings ignore case unless caseSensitive.
func (r *run) order(a, b Value, caseSensitive bool) int {
	if !caseSensitive {
		if t, ok := a.(Text); ok {
			a = lower(r, t)
		}
		if t, ok := b.(Text); ok {
			b = lower(r, t)
		}
	}
	if a.kind() == b.kind() && (a == Value(None{}) || a == Value(Undefined{})) {
		return 0
	}
	c, ok := r.compare(a, b)
	if !ok {
		fail("a %s and a %s cannot be ordered", a.kind(), b.kind())
	}
	return c
}

func sorted(r *run, v Value, a args) Value {
	items := r.list(slices.Clone(r.items(v))).Items
	reverse, cased := truth(a.get(0, "reverse", Bool(false))), truth(a.get(1, "case_sensitive", Bool(false)))
	path := a.get(2, "attribute", None{})
	slices.SortStableFunc(items, func(x, y Value) int {
		c := r.order(r.path(x, path), r.path(y, path), cased)
		if reverse {
			return -c
		}
		return c
	})
	return &List{items}
}

func dictsort(r *run, v Value, a args) Value {
	d, ok := v.(*Dict)
	if !ok {
		fail("dictsort of a %s", v.kind())
	}
	cased, reverse := truth(a.get(0, "case_sensitive", Bool(false))), truth(a.get(2, "reverse", Bool(false)))
	by := 0
	switch how := r.str(a.get(1, "by", Plain("key"))).s; how {
	case "key":
	case "value":
		by = 1
	default:
		fail("dictsort: unknown key %q", how)
	}
	r.alloc(4 * valueSize * d.Len())
	pairs := d.pairs()
	slices.SortStableFunc(pairs.Items, func(x, y Value) int {
		c := r.order(x.(*List).Items[by], y.(*List).Items[by], cased)
		if reverse {
			return -c
		}
		return c
	})
	return pairs
}

func extreme(sign int) filter {
	return func(r *run, v Value, a args) Value {
		path := a.get(1, "attribute", None{})
		var best Value = Undefined{}
		for i, item := range r.items(v) {
			if i == 0 || sign*r.order(r.path(item, path), r.path(best, path), truth(a.get(0, "case_sensitive", Bool(false)))) > 0 {
				best = item
			}
		}
		return best
	}
}

func batch(r *run, v Value, a args) Value {
	n := a.int(0, "linecount", 0)
	if n < 1 {
		fail("batch: want a size of at least 1, not %d", n)
	}
	items := r.items(v)
	var lines []Value
	for part := range slices.Chunk(items, int(min(n, math.MaxInt32))) {
		line := slices.Clone(part)
		if fill := a.get(1, "fill_with", None{}); fill != (None{}) {
			for int64(len(line)) < n {
				r.alloc(valueSize)
				line = append(line, fill)
			}
		}
		lines = append(lines, r.list(line))
	}
	return r.list(lines)
}
