package jinja

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// str converts a value to a string, as Python's str does.
func (r *run) str(v Value) Text {
	switch v := v.(type) {
	case Text:
		return v
	case Undefined:
		return Text{}
	}
	return r.repr(v)
}

// repr returns a value in Python's notation.
func (r *run) repr(v Value) Text {
	w := pythonWriter{run: r}
	w.value(v, 0)
	return w.out.done()
}

type pythonWriter struct {
	*run
	ascii bool // escape all other characters
	out   builder
}

func (w *pythonWriter) plain(s string) {
	w.alloc(len(s) + 1)
	w.out.string(s, false)
}

func (w *pythonWriter) value(v Value, level int) {
	w.step(1)
	if level > maxNesting {
		fail("%w: lists and objects nested more than %d deep", ErrLimit, maxNesting)
	}
	switch v := v.(type) {
	case Undefined:
		w.plain("Undefined")
	case None:
		w.plain("None")
	case Bool:
		w.plain(map[Bool]string{true: "True", false: "False"}[v])
	case Float:
		w.plain(formatFloat(float64(v)))
	case Text:
		w.quoted(v)
	case *List:
		form := v.form
		if form == (listForm{}) {
			form = listForm{open: "[", close: "]"}
		}
		w.plain(form.open)
		for i, item := range v.Items {
			if i > 0 {
				w.plain(", ")
			}
			w.value(item, level+1)
		}
		if v.isTuple() && len(v.Items) == 1 {
			w.plain(",")
		}
		w.plain(form.close)
	case *Dict:
		w.entries(v, level)
	case *namespace:
		w.plain("<Namespace ")
		w.entries(&v.Dict, level)
		w.plain(">")
	default:
		w.plain(w.scalar(v))
	}
}

func (w *pythonWriter) entries(d *Dict, level int) {
	w.plain("{")
	for i, e := range d.entries {
		if i > 0 {
			w.plain(", ")
		}
		w.value(e.key, level+1)
		w.plain(": ")
		w.value(e.value, level+1)
	}
	w.plain("}")
}

var pythonEscapes = map[rune]string{'\\': `\\`, '\n': `\n`, '\r': `\r`, '\t': `\t`}

// quoted writes a string literal, in double quotes if it contains single quotes and no double ones.
func (w *pythonWriter) quoted(t Text) {
	quote := '\''
	if strings.ContainsRune(t.s, '\'') && !strings.ContainsRune(t.s, '"') {
		quote = '"'
	}
	w.plain(string(quote))
	t.runs(func(s string, marked bool) {
		w.alloc(len(s))
		done := 0
		for i, c := range s {
			escape, ok := pythonEscapes[c]
			switch {
			case ok:
			case c == quote:
				escape = `\` + string(c)
			case w.ascii && c > '~' || !unicode.IsPrint(c):
				escape = fmt.Sprintf(map[bool]string{true: `\x%02x`, false: `\u%04x`}[c < 0x100], c)
				if c > 0xffff {
					escape = fmt.Sprintf(`\U%08x`, c)
				}
			default:
				continue
			}
			w.out.string(s[done:i], marked)
			w.alloc(len(escape))
			w.out.string(escape, marked)
			_, n := utf8.DecodeRuneInString(s[i:])
			done = i + n
		}
		w.out.string(s[done:], marked)
	})
	w.plain(string(quote))
}
