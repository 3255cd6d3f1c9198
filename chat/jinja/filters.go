package jinja

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"

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
			if f, ok := v.(Float); ok {
				return Float(math.Abs(float64(f)))
			}
			i := whole(v)
			if i == nil {
				fail("abs of a %s", v.kind())
			}
			return integer64(i.Abs(i))
		},
		"attr":       func(r *run, v Value, a args) Value { return r.attribute(v, a.text(0, "name").s, false) },
		"batch":      batch,
		"capitalize": onText(capitalize),
		"center":     func(r *run, v Value, a args) Value { return centered(r, r.str(v), a.int(0, "width", 80), " ") },
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
		"float": toFloat,
		"format": func(r *run, v Value, a args) Value {
			if len(a.pos) > 0 && a.kw.Len() > 0 {
				fail("format: want values or named values, not both")
			}
			if a.kw.Len() > 0 {
				return r.printf(r.str(v), a.kw)
			}
			return r.printf(r.str(v), &List{a.pos, tuple})
		},
		"groupby":   grouped,
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
				return join(r, &List{Items: parts}, args{})
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
		"slice":    sliced,
		"title":    onText(titleWords),
		"truncate": truncate,
		"tojson":   toJSON,
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

// capitalize makes the first character a title's and all others lower case, as Python does.
func capitalize(r *run, t Text) Text {
	first := true
	return r.cased(t, unicode.TitleCase, func(rune) bool {
		defer func() { first = false }()
		return first
	})
}

// title makes the first letter of each run of letters a title's and all others lower case, as
// Python's method does.
func title(r *run, t Text) Text {
	inWord := false
	return r.cased(t, unicode.TitleCase, func(c rune) bool {
		defer func() { inWord = unicode.IsUpper(c) || unicode.IsLower(c) || unicode.IsTitle(c) }()
		return !inWord
	})
}

// titleWords is the filter title of Jinja2, for which spaces, hyphens and brackets separate words,
// and whose first letters are upper case.
func titleWords(r *run, t Text) Text {
	first := true
	return r.cased(t, unicode.UpperCase, func(c rune) bool {
		defer func() { first = isSpace(c) || strings.ContainsRune("-({[<", c) }()
		return first
	})
}

// cased changes the characters for which first holds to a case, and all others to lower case.
func (r *run) cased(t Text, to int, first func(rune) bool) Text {
	r.scan(16 * len(t.s)) // one conversion for each character
	upper, lower := cases.Upper(language.Und), cases.Lower(language.Und)
	return r.change(t, func(s string) string {
		var b strings.Builder
		for _, c := range s {
			if !first(c) {
				b.WriteString(lower.String(string(c)))
				continue
			}
			for i, c := range upper.String(string(c)) {
				if i == 0 || to == unicode.UpperCase {
					b.WriteRune(unicode.To(to, c))
				} else {
					b.WriteString(lower.String(string(c)))
				}
			}
		}
		return b.String()
	})
}

// centered pads a text on both sides; of an odd number of characters the left gets more if the
// width is odd, as in Python.
func centered(r *run, t Text, width int64, fill string) Text {
	n := max(width-int64(t.length()), 0)
	left := n/2 + n&width&1
	return r.join(r.repeat(Plain(fill), left), t, r.repeat(Plain(fill), n-left))
}

// sliced splits a list into columns of almost equal length.
func sliced(r *run, v Value, a args) Value {
	n := a.int(0, "slices", 0)
	if n < 1 || n > int64(r.steps) {
		fail("slice: want at least one slice, not %d", n)
	}
	items := r.items(v)
	var columns []Value
	from, fill := 0, a.get(1, "fill_with", None{})
	for i := range int(n) {
		to := from + len(items)/int(n)
		longer := i < len(items)%int(n)
		if longer {
			to++
		}
		column := r.list(slices.Clone(items[from:to]))
		if fill != (None{}) && !longer && len(items)%int(n) > 0 {
			column.Items = append(column.Items, fill)
		}
		columns = append(columns, column)
		from = to
	}
	return r.list(columns)
}

// truncate cuts a text that is more than leeway characters longer than length, at a word's end
// unless killwords is set.
func truncate(r *run, v Value, a args) Value {
	t, end := r.str(v), r.str(a.get(2, "end", Plain("...")))
	length, leeway := a.int(0, "length", 255), a.int(3, "leeway", 5)
	at := t.characters()
	r.alloc(8 * len(at))
	room := length - int64(end.length())
	switch {
	case int64(len(at)-1) <= length+leeway:
		return t
	case room < 0 || leeway < 0:
		fail("truncate: a length of %d with a leeway of %d", length, leeway)
	}
	cut := r.cut(t, 0, at[room])
	if i := strings.LastIndexByte(cut.s, ' '); i >= 0 && !truth(a.get(1, "killwords", Bool(false))) {
		cut = r.cut(cut, 0, i)
	}
	return r.join(cut, end)
}

func toInt(r *run, v Value, a args) Value {
	if i := whole(v); i != nil {
		return integer64(i)
	}
	if t, ok := v.(Text); ok {
		r.scan(len(t.s))
		digits := strings.TrimFunc(t.s, isSpace)
		r.step(min(len(digits), maxDigits) * min(len(digits), maxDigits) >> 10)
		if i, err := integerOf(digits); i != nil && err == nil {
			return i
		}
		if f, err := strconv.ParseFloat(digits, 64); err == nil {
			v = Float(f)
		}
	}
	if f, ok := v.(Float); ok {
		if i := truncated(f); whole(i) != nil {
			return i
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

func round(_ *run, v Value, a args) (rounded Value) {
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
	precision := a.int(0, "precision", 0)
	if whole(v) != nil && how == "common" {
		if precision >= 0 {
			return v
		}
		defer func() { rounded = truncated(rounded.(Float)) }()
	}
	scale := math.Pow(10, float64(precision))
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
		case *List:
			v, _ = of.named(part)
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
	return &List{Items: items}
}

// grouped returns a tuple (grouper, list) for each value of an attribute, in the order of the values.
func grouped(r *run, v Value, a args) Value {
	path, missing, cased := a.get(0, "attribute", Undefined{}), a.get(1, "default", None{}), truth(a.get(2, "case_sensitive", Bool(false)))
	if path == (Undefined{}) {
		fail("groupby: want an attribute")
	}
	type keyed struct{ key, shown, item Value }
	items := r.list(r.items(v)).Items
	r.alloc(2 * itemSize * len(items))
	all := make([]keyed, len(items))
	for i, item := range items {
		key := r.path(item, path)
		if key == (Undefined{}) && missing != (None{}) {
			key = missing
		}
		all[i] = keyed{key, key, item}
		if t, ok := key.(Text); ok && !cased {
			all[i].key = lower(r, t)
		}
	}
	slices.SortStableFunc(all, func(x, y keyed) int {
		c, ok := r.compare(x.key, y.key)
		if !ok {
			fail("a %s and a %s cannot be ordered", x.key.kind(), y.key.kind())
		}
		return c
	})
	groups := r.list(nil)
	for len(all) > 0 {
		n := 1
		for n < len(all) && r.equal(all[0].key, all[n].key) {
			n++
		}
		same := make([]Value, n)
		for i := range same {
			same[i] = all[i].item
		}
		one := r.list([]Value{all[0].shown, r.list(same)})
		one.form = group
		r.alloc(itemSize)
		groups.Items, all = append(groups.Items, one), all[n:]
	}
	return groups
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
	pairs := &List{Items: d.pairs().Items}
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
