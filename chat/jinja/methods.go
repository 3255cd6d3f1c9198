package jinja

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"
)

// A method is a function of a value and arguments.
type method func(r *run, of Value, a args) Value

// textMethod adapts a method of strings.
func textMethod(f func(r *run, t Text, a args) Value) method {
	return func(r *run, of Value, a args) Value {
		t := of.(Text)
		r.scan(len(t.s))
		return f(r, t, a)
	}
}

// textMethods are the methods of strings.
var textMethods = map[string]method{
	"capitalize": textMethod(func(r *run, t Text, _ args) Value { return capitalize(r, t) }),
	"casefold":   textMethod(func(r *run, t Text, _ args) Value { return lower(r, t) }),
	"center":     padding(func(r *run, t Text, width int64, fill string) Value { return centered(r, t, width, fill) }),
	"count": textMethod(func(r *run, t Text, a args) Value {
		t, _ = r.window(t, a)
		part := a.text(0, "sub").s
		if part == "" {
			return Int(t.length() + 1)
		}
		return Int(strings.Count(t.s, part))
	}),
	"endswith": textMethod(func(r *run, t Text, a args) Value {
		t, _ = r.window(t, a)
		return anyOf(r, a, func(s string) bool { return strings.HasSuffix(t.s, s) })
	}),
	"find":    finding(strings.Index, false),
	"index":   finding(strings.Index, true),
	"isalnum": every(func(c rune) bool { return unicode.IsLetter(c) || unicode.IsNumber(c) }),
	"isalpha": every(unicode.IsLetter),
	"isascii": textMethod(func(_ *run, t Text, _ args) Value {
		return Bool(strings.IndexFunc(t.s, func(c rune) bool { return c >= utf8.RuneSelf }) < 0)
	}),
	"isdecimal": every(unicode.IsDigit),
	"isdigit":   every(unicode.IsDigit),
	"islower":   textMethod(func(r *run, t Text, _ args) Value { return Bool(lower(r, t).s == t.s && upper(r, t).s != t.s) }),
	"isnumeric": every(unicode.IsNumber),
	"isspace":   every(isSpace),
	"istitle": textMethod(func(r *run, t Text, _ args) Value {
		return Bool(title(r, t).s == t.s && upper(r, t).s != lower(r, t).s)
	}),
	"isupper": textMethod(func(r *run, t Text, _ args) Value { return Bool(upper(r, t).s == t.s && lower(r, t).s != t.s) }),
	"join": textMethod(func(r *run, t Text, a args) Value {
		return join(r, a.get(0, "iterable", Undefined{}), args{pos: []Value{t}})
	}),
	"ljust": padding(func(r *run, t Text, width int64, fill string) Value {
		return r.padded(t, layout{fill: fill, width: width}, '<')
	}),
	"lower":     textMethod(func(r *run, t Text, _ args) Value { return lower(r, t) }),
	"lstrip":    stripped(left),
	"partition": parting(strings.Index),
	"removeprefix": textMethod(func(r *run, t Text, a args) Value {
		if p := a.text(0, "prefix").s; strings.HasPrefix(t.s, p) {
			return r.cut(t, len(p), len(t.s))
		}
		return t
	}),
	"removesuffix": textMethod(func(r *run, t Text, a args) Value {
		if p := a.text(0, "suffix").s; strings.HasSuffix(t.s, p) {
			return r.cut(t, 0, len(t.s)-len(p))
		}
		return t
	}),
	"replace": textMethod(func(r *run, t Text, a args) Value {
		return r.replace(t, a.text(0, "old"), a.text(1, "new"), a.int(2, "count", -1))
	}),
	"rfind":  finding(strings.LastIndex, false),
	"rindex": finding(strings.LastIndex, true),
	"rjust": padding(func(r *run, t Text, width int64, fill string) Value {
		return r.padded(t, layout{fill: fill, width: width}, '>')
	}),
	"rpartition": parting(strings.LastIndex),
	"rsplit":     textMethod(func(r *run, t Text, a args) Value { return r.split(t, a, true) }),
	"rstrip":     stripped(right),
	"split":      textMethod(func(r *run, t Text, a args) Value { return r.split(t, a, false) }),
	"splitlines": textMethod(func(r *run, t Text, a args) Value {
		keep := truth(a.get(0, "keepends", Bool(false)))
		var lines []Value
		for from := 0; from < len(t.s); {
			to, n := len(t.s), 0
			if i := strings.IndexAny(t.s[from:], "\n\r\v\f\x1c\x1d\x1e\u0085\u2028\u2029"); i >= 0 {
				to = from + i
				if _, n = utf8.DecodeRuneInString(t.s[to:]); strings.HasPrefix(t.s[to:], "\r\n") {
					n = 2
				}
			}
			if keep {
				to, n = to+n, 0
			}
			lines = append(lines, r.cut(t, from, to))
			from = to + n
		}
		return r.list(lines)
	}),
	"startswith": textMethod(func(r *run, t Text, a args) Value {
		t, _ = r.window(t, a)
		return anyOf(r, a, func(s string) bool { return strings.HasPrefix(t.s, s) })
	}),
	"strip": stripped(both),
	"swapcase": textMethod(func(r *run, t Text, _ args) Value {
		up, low := cases.Upper(language.Und), cases.Lower(language.Und)
		return r.change(t, func(s string) string {
			var b strings.Builder
			for _, c := range s {
				if unicode.IsUpper(c) {
					b.WriteString(low.String(string(c)))
				} else {
					b.WriteString(up.String(string(c)))
				}
			}
			return b.String()
		})
	}),
	"title": textMethod(func(r *run, t Text, _ args) Value { return title(r, t) }),
	"upper": textMethod(func(r *run, t Text, _ args) Value { return upper(r, t) }),
	"zfill": textMethod(func(r *run, t Text, a args) Value {
		sign := t.trim(left, func(c rune) bool { return c == '+' || c == '-' })
		n := min(len(t.s)-len(sign.s), 1)
		fill := a.int(0, "width", 0) - int64(t.length())
		return r.join(t.cut(0, n), r.repeat(Plain("0"), fill), t.cut(n, len(t.s)))
	}),
}

// every returns a method that reports whether a string has characters and is holds for all.
func every(is func(rune) bool) method {
	return textMethod(func(_ *run, t Text, _ args) Value {
		return Bool(t.s != "" && strings.IndexFunc(t.s, func(c rune) bool { return !is(c) }) < 0)
	})
}

// padding returns a method that pads a string to a width.
func padding(pad func(r *run, t Text, width int64, fill string) Value) method {
	return textMethod(func(r *run, t Text, a args) Value {
		fill := r.str(a.get(1, "fillchar", Plain(" ")))
		if fill.length() != 1 {
			fail("a fill must be one character")
		}
		return pad(r, t, a.int(0, "width", 0), fill.s)
	})
}

// window returns the part of a string that the arguments start and end select, and the characters
// before it.
func (r *run) window(t Text, a args) (Text, int) {
	if len(a.pos) < 2 {
		return t, 0
	}
	at := t.characters()
	r.alloc(8 * len(at))
	bound := func(i int, otherwise int64) int {
		n := int64(len(at) - 1)
		v := otherwise
		if i < len(a.pos) && a.pos[i] != (None{}) {
			v = a.int(i, "", otherwise)
		}
		if v < 0 {
			v += n
		}
		return int(min(max(v, 0), n))
	}
	from := bound(1, 0)
	to := max(from, bound(2, int64(len(at)-1)))
	return r.cut(t, at[from], at[to]), from
}

// finding returns a method that returns the index of a part; without it -1, or an error.
func finding(find func(s, part string) int, must bool) method {
	return textMethod(func(r *run, t Text, a args) Value {
		part := a.text(0, "sub").s
		t, before := r.window(t, a)
		i := find(t.s, part)
		if i >= 0 {
			return Int(before + utf8.RuneCountInString(t.s[:i]))
		}
		if must {
			fail("index: %q is not in the string", part)
		}
		return Int(-1)
	})
}

// parting returns a method that splits a string into the parts before a separator, the separator,
// and the part behind it. Without a separator the string is the first part, or the last one if find
// searches from the end.
func parting(find func(s, part string) int) method {
	fromEnd := find("aa", "a") > 0
	return textMethod(func(r *run, t Text, a args) Value {
		by := a.text(0, "sep").s
		if by == "" {
			fail("partition: empty separator")
		}
		parts := []Value{t, Text{}, Text{}}
		if i := find(t.s, by); i >= 0 {
			parts = []Value{r.cut(t, 0, i), r.cut(t, i, i+len(by)), r.cut(t, i+len(by), len(t.s))}
		} else if fromEnd {
			parts = []Value{Text{}, Text{}, t}
		}
		l := r.list(parts)
		l.form = tuple
		return l
	})
}

// anyOf reports whether is holds for a string argument, or for one of a list of strings.
func anyOf(r *run, a args, is func(string) bool) Value {
	l, ok := a.get(0, "prefix", Undefined{}).(*List)
	if !ok {
		return Bool(is(a.text(0, "prefix").s))
	}
	return Bool(slices.ContainsFunc(l.Items, func(v Value) bool {
		t, ok := v.(Text)
		if !ok {
			fail("a prefix or suffix must be a string, not a %s", v.kind())
		}
		r.scan(len(t.s))
		return is(t.s)
	}))
}

// stripped returns a method that trims white space, or the given characters.
func stripped(where sides) method {
	return textMethod(func(r *run, t Text, a args) Value {
		drop := isSpace
		if chars, ok := a.get(0, "chars", None{}).(Text); ok {
			r.step(1 + len(t.s)*len(chars.s)>>6)
			drop = func(c rune) bool { return strings.ContainsRune(chars.s, c) }
		}
		out := t.trim(where, drop)
		r.alloc(valueSize + spanSize*len(out.marks))
		return out
	})
}

// replace replaces the first count occurrences of old; all if count is negative.
func (r *run) replace(t, old, with Text, count int64) Text {
	n := int64(strings.Count(t.s, old.s))
	if count >= 0 {
		n = min(n, count)
	}
	r.alloc(len(t.s) + spanSize*len(t.marks) + int(n)*(len(with.s)+spanSize*(1+len(with.marks))))
	var b builder
	from := 0
	for i := range n {
		at := from
		if old.s != "" {
			at += strings.Index(t.s[from:], old.s)
		} else if i > 0 { // empty old: between characters and at both ends
			_, w := utf8.DecodeRuneInString(t.s[from:])
			at += w
		}
		b.text(t.cut(from, at))
		b.text(with)
		from = at + len(old.s)
	}
	b.text(t.cut(from, len(t.s)))
	return b.done()
}

// split splits a string at a separator, or at white space without one.
func (r *run) split(t Text, a args, fromRight bool) Value {
	limit := a.int(1, "maxsplit", -1)
	if limit < 0 {
		limit = int64(len(t.s)) + 1
	}
	var parts []Value
	by, given := a.get(0, "sep", None{}).(Text)
	switch {
	case given && by.s == "":
		fail("split: empty separator")
	case given && !fromRight:
		rest := 0
		for ; limit > 0; limit-- {
			i := strings.Index(t.s[rest:], by.s)
			if i < 0 {
				break
			}
			parts = append(parts, r.cut(t, rest, rest+i))
			rest += i + len(by.s)
		}
		parts = append(parts, r.cut(t, rest, len(t.s)))
	case given:
		rest := len(t.s)
		for ; limit > 0; limit-- {
			i := strings.LastIndex(t.s[:rest], by.s)
			if i < 0 {
				break
			}
			parts = append(parts, r.cut(t, i+len(by.s), rest))
			rest = i
		}
		parts = append(parts, r.cut(t, 0, rest))
		slices.Reverse(parts)
	case fromRight:
		rest := t.trim(right, isSpace)
		for rest.s != "" {
			i := strings.LastIndexFunc(rest.s, isSpace)
			if i < 0 || limit == 0 {
				parts = append(parts, r.cut(rest, 0, len(rest.s)))
				break
			}
			_, n := utf8.DecodeRuneInString(rest.s[i:])
			parts = append(parts, r.cut(rest, i+n, len(rest.s)))
			rest = r.cut(rest, 0, len(Text{s: rest.s[:i]}.trim(right, isSpace).s))
			limit--
		}
		slices.Reverse(parts)
	default:
		rest := t.trim(left, isSpace)
		for rest.s != "" {
			i := strings.IndexFunc(rest.s, isSpace)
			if i < 0 || limit == 0 {
				parts = append(parts, r.cut(rest, 0, len(rest.s)))
				break
			}
			parts = append(parts, r.cut(rest, 0, i))
			next := Text{s: rest.s[i:]}.trim(left, isSpace)
			rest = r.cut(rest, len(rest.s)-len(next.s), len(rest.s))
			limit--
		}
	}
	return r.list(parts)
}

// dictMethods are the methods of mappings.
var dictMethods = map[string]method{
	"get": func(r *run, of Value, a args) Value {
		if v, ok := of.(*Dict).get(r.keyed(a.get(0, "key", Undefined{}))); ok {
			return v
		}
		return a.get(1, "default", None{})
	},
	"items": func(r *run, of Value, _ args) Value { return filters["items"](r, of, args{}) },
	"keys": func(r *run, of Value, _ args) Value {
		r.alloc(valueSize * (1 + of.(*Dict).Len()))
		return of.(*Dict).keys()
	},
	"values": func(r *run, of Value, _ args) Value {
		var values []Value
		for _, e := range of.(*Dict).entries {
			values = append(values, e.value)
		}
		l := r.list(values)
		l.form = dictValues
		return l
	},
	"copy":     func(r *run, of Value, _ args) Value { return entriesOf(r, args{pos: []Value{of}, kw: &Dict{}}) },
	"dictsort": func(r *run, of Value, a args) Value { return dictsort(r, of, a) },
}

// listMethods are the methods of lists. append and pop modify the list.
var listMethods = map[string]method{
	"append": func(r *run, of Value, a args) Value {
		r.alloc(2 * valueSize)
		l := of.(*List)
		l.Items = append(l.Items, a.get(0, "object", Undefined{}))
		return None{}
	},
	"count": func(r *run, of Value, a args) Value {
		n := 0
		for _, v := range of.(*List).Items {
			if r.equal(v, a.get(0, "value", Undefined{})) {
				n++
			}
		}
		return Int(n)
	},
	"index": func(r *run, of Value, a args) Value {
		for i, v := range of.(*List).Items {
			if r.equal(v, a.get(0, "value", Undefined{})) {
				return Int(i)
			}
		}
		fail("index: the value is not in the list")
		return nil
	},
	"pop": func(r *run, of Value, a args) Value {
		l := of.(*List)
		i, ok := index(a.get(0, "index", Int(-1)), len(l.Items))
		if !ok {
			fail("pop: index out of range")
		}
		v := l.Items[i]
		r.alloc(valueSize * len(l.Items))
		l.Items = slices.Delete(slices.Clone(l.Items), i, i+1)
		return v
	},
}
