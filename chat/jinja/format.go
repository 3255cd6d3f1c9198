package jinja

import (
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"
)

func init() { // they refer to the tables of methods
	textMethods["format"] = textMethod(func(r *run, t Text, a args) Value { return r.format(t, a, 0) })
	textMethods["format_map"] = textMethod(func(r *run, t Text, a args) Value {
		return r.format(t, args{kw: a.mapping(0, "mapping")}, 0)
	})
}

// layout is how a value is formatted: a format specification of Python's.
type layout struct {
	fill      string
	align     byte // < > ^ or =; 0 for the default of the value's kind
	sign      byte // + or space; 0 for negative numbers only
	alternate bool // with the prefix of the base
	width     int64
	group     string // between thousands; "" for none
	precision int    // -1 for none
	kind      byte   // the letter; 0 for none
	bare      bool   // nothing was specified
}

// specified parses [[fill]align][sign][#][0][width][group][.precision][kind].
func specified(s string) layout {
	l := layout{fill: " ", precision: -1, bare: s == ""}
	whole := s
	_, n := utf8.DecodeRuneInString(s)
	if len(s) > n && strings.IndexByte("<>^=", s[n]) >= 0 {
		l.fill, l.align, s = s[:n], s[n], s[n+1:]
	} else if s != "" && strings.IndexByte("<>^=", s[0]) >= 0 {
		l.align, s = s[0], s[1:]
	}
	take := func(bytes string) byte {
		if s == "" || strings.IndexByte(bytes, s[0]) < 0 {
			return 0
		}
		c := s[0]
		s = s[1:]
		return c
	}
	l.sign = take("+- ")
	l.alternate = take("#") != 0
	if take("0") != 0 && l.align == 0 {
		l.fill, l.align = "0", '='
	}
	number := func() int {
		digits := len(s) - len(strings.TrimLeft(s, "0123456789"))
		v, err := strconv.Atoi("0" + s[:digits])
		if err != nil {
			fail("%q is no format", whole)
		}
		s = s[digits:]
		return v
	}
	l.width = int64(number())
	if c := take(",_"); c != 0 {
		l.group = string(c)
	}
	if take(".") != 0 {
		l.precision = number()
	}
	l.kind = take("sdboxXcneEfFgG%")
	if s != "" {
		fail("%q is no format", whole)
	}
	return l
}

// bases of the kinds of integers.
var bases = map[byte]int{0: 10, 'd': 10, 'n': 10, 'b': 2, 'o': 8, 'x': 16, 'X': 16}

// formatted returns a value in a layout.
func (r *run) formatted(v Value, l layout) Text {
	if l.precision > maxDigits {
		fail("%w: a precision of %d digits", ErrLimit, l.precision)
	}
	f, isNumber := number(v)
	switch base, isBase := bases[l.kind]; {
	case l.bare:
		return r.padded(r.str(v), l, '<')
	case !isNumber || l.kind == 's':
		t, ok := v.(Text)
		if !ok || l.kind != 0 && l.kind != 's' {
			fail("a %s cannot be formatted as %q", v.kind(), l.kind)
		}
		if at := t.characters(); l.precision >= 0 && l.precision < len(at)-1 {
			r.alloc(8 * len(at))
			t = r.cut(t, 0, at[l.precision])
		}
		return r.padded(t, l, '<')
	case l.kind == 'c':
		i, ok := integer(v)
		if !ok || !utf8.ValidRune(rune(i)) || int64(rune(i)) != i {
			fail("%s is no character", r.str(v))
		}
		return r.padded(Plain(string(rune(i))), l, '<')
	case isBase && whole(v) != nil:
		i := whole(v)
		r.scalar(v) // counts the steps
		digits := new(big.Int).Abs(i).Text(base)
		if l.kind == 'X' {
			digits = strings.ToUpper(digits)
		}
		prefix := ""
		if l.alternate && base != 10 {
			prefix = "0" + string(l.kind)
		}
		return r.signed(i.Sign() < 0, prefix, digits, l)
	case isBase && l.kind != 0 && l.kind != 'n':
		fail("a %s cannot be formatted as %q", v.kind(), l.kind)
	}
	return r.signed(f < 0, "", l.float(math.Abs(f)), l)
}

// float returns the digits of a number that is not negative.
func (l *layout) float(f float64) string {
	kind, precision := l.kind|0x20, l.precision
	switch {
	case math.IsInf(f, 0), math.IsNaN(f), l.kind == 0 && precision < 0:
		return formatFloat(f)
	case l.kind == 0, kind == 'n':
		kind = 'g'
	case l.kind == '%':
		f, kind = f*100, 'f'
	}
	if precision < 0 {
		precision = 6
	}
	if kind == 'g' {
		precision = max(precision, 1)
	}
	s := strconv.FormatFloat(f, kind, precision, 64)
	switch l.kind {
	case '%':
		s += "%"
	case 'E', 'F', 'G':
		s = strings.ToUpper(s)
	}
	return s
}

// signed returns a number with its sign, grouped and padded.
func (r *run) signed(negative bool, prefix, digits string, l layout) Text {
	if negative {
		prefix = "-" + prefix
	} else if l.sign != 0 && l.sign != '-' {
		prefix = string(l.sign) + prefix
	}
	if l.group != "" {
		n := len(digits) - len(strings.TrimLeft(digits, "0123456789"))
		for i := n - 3; i > 0; i -= 3 {
			digits = digits[:i] + l.group + digits[i:]
		}
	}
	if l.align != '=' {
		return r.padded(Plain(prefix+digits), l, '>')
	}
	l.align, l.width = 0, l.width-int64(len(prefix))
	return r.join(Plain(prefix), r.padded(Plain(digits), l, '>'))
}

// padded returns a text padded to the layout's width.
func (r *run) padded(t Text, l layout, align byte) Text {
	n := l.width - int64(t.length())
	if l.align != 0 && l.align != '=' {
		align = l.align
	}
	left := int64(0)
	switch {
	case n <= 0:
		return t
	case align == '>':
		left = n
	case align == '^':
		left = n / 2
	}
	return r.join(r.repeat(Plain(l.fill), left), t, r.repeat(Plain(l.fill), n-left))
}

// printf formats values by a text with directives such as %s and %(name)05.1f.
func (r *run) printf(t Text, v Value) Text {
	r.scan(len(t.s))
	mapping, _ := v.(*Dict)
	list, isList := v.(*List)
	values := []Value{v}
	if isList && list.isTuple() {
		values = list.Items
	}
	used := 0
	next := func() Value {
		if used++; used > len(values) {
			fail("there are fewer values than %% in the format")
		}
		return values[used-1]
	}
	var b builder
	rest := t
	for {
		i := strings.IndexByte(rest.s, '%')
		if i < 0 {
			break
		}
		b.text(r.cut(rest, 0, i))
		s := rest.s[i+1:]
		var of Value
		if strings.HasPrefix(s, "(") {
			key, after, ok := strings.Cut(s[1:], ")")
			if !ok || mapping == nil {
				fail("%%(name) in a format wants a mapping, not a %s", v.kind())
			}
			of, _ = mapping.Get(key)
			s = after
		}
		l := layout{fill: " ", align: '>', precision: -1}
		for ; s != "" && strings.IndexByte("#0- +", s[0]) >= 0; s = s[1:] {
			switch s[0] {
			case '#':
				l.alternate = true
			case '0':
				l.fill = "0"
			case '-':
				l.align = '<'
			default:
				l.sign = max(l.sign, s[0])
			}
		}
		number := func() int64 {
			if strings.HasPrefix(s, "*") {
				s = s[1:]
				n, ok := integer(next())
				if !ok {
					fail("* in a format wants an integer")
				}
				return n
			}
			digits := len(s) - len(strings.TrimLeft(s, "0123456789"))
			n, err := strconv.ParseInt("0"+s[:digits], 10, 64)
			if err != nil {
				fail("format: %w", err)
			}
			s = s[digits:]
			return n
		}
		if l.width = number(); l.width < 0 {
			l.width, l.align = max(-l.width, 0), '<'
		}
		if strings.HasPrefix(s, ".") {
			s = s[1:]
			l.precision = int(min(number(), maxDigits+1))
		}
		if s = strings.TrimLeft(s, "hlL"); s == "" {
			fail("the format ends within a directive")
		}
		l.kind, s = s[0], s[1:]
		rest = r.cut(rest, len(rest.s)-len(s), len(rest.s))
		if l.kind == '%' {
			b.string("%", false)
			continue
		}
		if of == nil {
			of = next()
		}
		b.text(r.made(r.directive(of, l)))
	}
	b.text(rest)
	if used < len(values) && mapping == nil && (!isList || list.isTuple()) {
		fail("there are more values than %% in the format")
	}
	return r.made(b.done())
}

// directive formats the value of a directive.
func (r *run) directive(v Value, l layout) Text {
	switch l.kind {
	case 's':
		v = r.str(v)
	case 'r', 'a':
		v = r.quotedAs(v, l.kind)
	case 'd', 'i', 'u':
		if f, ok := v.(Float); ok {
			v = truncated(f)
		}
		if whole(v) == nil {
			fail("%%%c in a format wants a number, not a %s", l.kind, v.kind())
		}
		l.kind = 'd'
	case 'c':
		if t, ok := v.(Text); ok && t.length() == 1 {
			l.kind, v = 's', t
		}
	default:
		if strings.IndexByte("oxXeEfFgG", l.kind) < 0 {
			fail("%%%c is no directive of a format", l.kind)
		}
	}
	if _, ok := v.(Text); ok {
		l.kind, l.fill = 's', " "
	} else if l.fill == "0" {
		if l.align == '<' {
			l.fill = " "
		} else {
			l.align = '='
		}
	}
	if i, ok := v.(Bool); ok {
		v = integer64(whole(i))
	}
	return r.formatted(v, l)
}

// quotedAs returns a value in Python's notation: r as it is, a in ASCII, s as a text.
func (r *run) quotedAs(v Value, kind byte) Text {
	if kind == 's' {
		return r.str(v)
	}
	w := pythonWriter{run: r, ascii: kind == 'a'}
	w.value(v, 0)
	return w.out.done()
}

// format replaces the fields of a text, such as {}, {0:>5} and {name.of[0]!r}.
func (r *run) format(t Text, a args, depth int) Text {
	r.scan(len(t.s))
	var b builder
	at := 0
	for rest := t; ; {
		i := strings.IndexAny(rest.s, "{}")
		if i < 0 {
			b.text(rest)
			return r.made(b.done())
		}
		b.text(r.cut(rest, 0, i))
		s := rest.s[i:]
		end := 0
		switch {
		case strings.HasPrefix(s, "{{"), strings.HasPrefix(s, "}}"):
			b.text(r.cut(rest, i, i+1))
			end = 2
		case s[0] == '}', depth > 1:
			fail("a single %c in a format", s[0])
		default:
			for open := 0; ; end++ {
				if end == len(s) {
					fail("a { without } in a format")
				}
				if s[end] == '{' {
					open++
				} else if s[end] == '}' {
					if open--; open == 0 {
						break
					}
				}
			}
			end++
			field := s[1 : end-1]
			var spec, conversion string
			if j := strings.IndexAny(field, ":!"); j >= 0 {
				if field[j] == '!' {
					conversion, spec, _ = strings.Cut(field[j+1:], ":")
				} else {
					spec = field[j+1:]
				}
				field = field[:j]
			}
			v := r.field(field, a, &at)
			if strings.Contains(spec, "{") {
				spec = r.format(Plain(spec), args{pos: a.pos[min(at, len(a.pos)):], kw: a.kw}, depth+1).s
			}
			if conversion != "" {
				if conversion != "r" && conversion != "s" && conversion != "a" {
					fail("!%s is no conversion of a format", conversion)
				}
				v = r.quotedAs(v, conversion[0])
			}
			b.text(r.made(r.formatted(v, specified(spec))))
		}
		rest = r.cut(rest, i+end, len(rest.s))
	}
}

// field returns the value of a field's name; at is the index of the next field without one.
func (r *run) field(name string, a args, at *int) Value {
	n := strings.IndexAny(name, ".[")
	if n < 0 {
		n = len(name)
	}
	first, rest := name[:n], name[n:]
	i, err := strconv.Atoi(first)
	if first == "" {
		i, err = *at, nil
		*at++
	}
	var v Value = Undefined{}
	switch {
	case err == nil && i >= 0 && i < len(a.pos):
		v = a.pos[i]
	case err == nil:
		fail("the format has no value %d", i)
	default:
		ok := false
		if v, ok = a.kw.Get(first); !ok {
			fail("the format has no value %q", first)
		}
	}
	for rest != "" {
		r.step(1)
		if rest[0] == '.' {
			n = 1 + strings.IndexAny(rest[1:]+".", ".[")
			v, rest = r.attribute(v, rest[1:n], false), rest[n:]
			continue
		}
		key, after, ok := strings.Cut(rest[1:], "]")
		if !ok || rest[0] != '[' {
			fail("%q is no field of a format", name)
		}
		var of Value = Plain(key)
		if i, err := strconv.ParseInt(key, 10, 64); err == nil {
			of = Int(i)
		}
		v, rest = r.indexed(v, of), after
	}
	return v
}
