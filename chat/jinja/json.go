package jinja

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"
)

// scalar returns a value that is no text and no collection, as JSON.
func (r *run) scalar(v Value) string {
	switch v := v.(type) {
	case Undefined, None:
		return "null"
	case Bool:
		return strconv.FormatBool(bool(v))
	case Float:
		switch f := float64(v); {
		case math.IsInf(f, 1):
			return "Infinity"
		case math.IsInf(f, -1):
			return "-Infinity"
		case math.IsNaN(f):
			return "NaN"
		}
		return formatFloat(float64(v))
	}
	i := whole(v)
	if i == nil {
		fail("a %s cannot be written", v.kind())
	}
	r.step(len(i.Bits()) * len(i.Bits()) >> 2)
	return i.String()
}

// jsonForm is the layout of JSON.
type jsonForm struct {
	item, key string // separators
	indent    string // indentation of one level; "" for a single line
	ascii     bool   // escape all other characters
	sorted    bool   // sort keys
}

// json encodes a value like Python's json.dumps.
func (r *run) json(v Value, f jsonForm) Text {
	w := jsonWriter{run: r, jsonForm: f}
	w.value(v, 0)
	return w.out.done()
}

type jsonWriter struct {
	*run
	jsonForm
	out builder
}

func (w *jsonWriter) string(s string, marked bool) {
	w.alloc(len(s) + 1)
	w.out.string(s, marked)
}

func (w *jsonWriter) line(level int) {
	if w.indent != "" {
		w.string("\n", false)
		for range level {
			w.string(w.indent, false)
		}
	}
}

func (w *jsonWriter) value(v Value, level int) {
	w.step(1)
	if level > maxNesting {
		fail("%w: lists and objects nested more than %d deep", ErrLimit, maxNesting)
	}
	switch v := v.(type) {
	case Text:
		w.quoted(v)
	case *List:
		w.sequence("[", "]", len(v.Items), level, func(i int) { w.value(v.Items[i], level+1) })
	case *Dict:
		w.entries(v.entries, level)
	case *namespace:
		w.entries(v.entries, level)
	default:
		w.string(w.scalar(v), false)
	}
}

func (w *jsonWriter) sequence(open, end string, n, level int, each func(i int)) {
	w.string(open, false)
	for i := range n {
		if i > 0 {
			w.string(w.item, false)
		}
		w.line(level + 1)
		each(i)
	}
	if n > 0 {
		w.line(level)
	}
	w.string(end, false)
}

func (w *jsonWriter) entries(list []entry, level int) {
	if w.sorted {
		list = slices.Clone(list)
		w.alloc(2 * valueSize * len(list))
		slices.SortStableFunc(list, func(a, b entry) int {
			x, y := w.str(a.key).s, w.str(b.key).s
			w.scan(min(len(x), len(y)))
			return cmp.Compare(x, y)
		})
	}
	w.sequence("{", "}", len(list), level, func(i int) {
		key, ok := list[i].key.(Text)
		if !ok {
			key = Plain(w.scalar(list[i].key))
		}
		w.quoted(key)
		w.string(w.key, false)
		w.value(list[i].value, level+1)
	})
}

var jsonEscapes = map[rune]string{'"': `\"`, '\\': `\\`, '\n': `\n`, '\r': `\r`, '\t': `\t`, '\b': `\b`, '\f': `\f`}

func (w *jsonWriter) quoted(t Text) {
	w.string(`"`, false)
	t.runs(func(s string, marked bool) {
		plain := 0
		for i, c := range s {
			escape, ok := jsonEscapes[c]
			switch {
			case ok:
			case c < ' ' || w.ascii && c > '~':
				escape = unicodeEscape(c)
			default:
				continue
			}
			w.string(s[plain:i], marked)
			w.string(escape, marked)
			plain = i + max(1, utf8.RuneLen(c))
			if c == utf8.RuneError {
				_, n := utf8.DecodeRuneInString(s[i:])
				plain = i + n
			}
		}
		w.string(s[plain:], marked)
	})
	w.string(`"`, false)
}

// unicodeEscape returns the JSON escape of a character, one or two UTF-16 units.
func unicodeEscape(c rune) string {
	quoted := func(u rune) string { return `\u` + strconv.FormatInt(int64(u)+0x10000, 16)[1:] }
	if c < 0x10000 {
		return quoted(c)
	}
	c -= 0x10000
	return quoted(0xd800+c>>10) + quoted(0xdc00+c&0x3ff)
}
