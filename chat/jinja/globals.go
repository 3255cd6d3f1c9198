package jinja

import (
	"fmt"
	"strings"
	"time"
)

// globalFunctions are in scope below all variables. Set by init, since they refer to the evaluator.
var globalFunctions map[string]Value

func init() {
	globalFunctions = map[string]Value{}
	for name, f := range map[string]func(*run, args) Value{
		"dict": func(r *run, a args) Value {
			r.alloc(2 * valueSize * a.kw.Len())
			return entriesOf(r, a)
		},
		"namespace": func(r *run, a args) Value { return &namespace{*entriesOf(r, a)} },
		"raise_exception": func(r *run, a args) Value {
			fail("%w: %s", ErrRaised, r.str(a.get(0, "message", Undefined{})))
			return nil
		},
		"range": func(r *run, a args) Value {
			from, to, step := int64(0), a.int(0, "stop", 0), a.int(2, "step", 1)
			if len(a.pos) > 1 {
				from, to = to, a.int(1, "stop", 0)
			}
			if step == 0 {
				fail("range step 0")
			}
			var items []Value
			for i := from; step > 0 && i < to || step < 0 && i > to; {
				r.alloc(2 * valueSize)
				items = append(items, Int(i))
				next := i + step
				if (next > i) != (step > 0) {
					break
				}
				i = next
			}
			return &List{Items: items}
		},
		"strftime_now": func(r *run, a args) Value {
			format := a.text(0, "format").s
			r.alloc(longestTime * len(format))
			return Plain(strftime(r.now, format))
		},
	} {
		globalFunctions[name] = &function{name, f}
	}
}

// entriesOf returns a mapping of the named arguments, on top of an optional mapping.
func entriesOf(r *run, a args) *Dict {
	d := &Dict{}
	if len(a.pos) > 1 {
		fail("want at most one mapping")
	}
	if len(a.pos) == 1 {
		switch of := a.pos[0].(type) {
		case *Dict:
			for _, e := range of.entries {
				d.set(r.keyed(e.key), e.value)
			}
		default:
			for _, v := range r.items(of) {
				pair := r.items(v)
				if len(pair) != 2 || !d.set(r.keyed(pair[0]), pair[1]) {
					fail("want a mapping or a list of pairs")
				}
			}
		}
	}
	for _, e := range a.kw.entries {
		d.set(e.key, e.value)
	}
	r.alloc(2 * valueSize * d.Len())
	return d
}

// strftimeForms maps Python's directives to Go's layouts.
var strftimeForms = map[byte]string{
	'Y': "2006", 'y': "06", 'm': "01", 'd': "02", 'H': "15", 'I': "03", 'M': "04", 'S': "05", 'p': "PM",
	'a': "Mon", 'A': "Monday", 'b': "Jan", 'h': "Jan", 'B': "January", 'Z': "MST", 'z': "-0700",
	'F': "2006-01-02", 'D': "01/02/06", 'T': "15:04:05", 'R': "15:04", 'e': "_2", 'j': "002",
	'c': "Mon Jan _2 15:04:05 2006", 'x': "01/02/06", 'X': "15:04:05",
}

const longestTime = 16 // bytes of a directive's result for each of its own, or nearly

func strftime(t time.Time, format string) string {
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			b.WriteByte(format[i])
			continue
		}
		i++
		flag := ""
		if format[i] == '-' && i+1 < len(format) { // without leading zeros
			flag = "-"
			i++
		}
		form, ok := strftimeForms[format[i]]
		switch s := t.Format(form); {
		case format[i] == '%':
			b.WriteByte('%')
		case !ok:
			fmt.Fprintf(&b, "%%%s%c", flag, format[i])
		case flag == "-":
			if s = strings.TrimLeft(s, "0"); s == "" {
				s = "0"
			}
			b.WriteString(s)
		default:
			b.WriteString(s)
		}
	}
	return b.String()
}
