package constrain

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// expression is the syntax tree of a regular expression.
type expression struct {
	op     exprOp
	set    runes // opClass
	kids   []*expression
	lo, hi int // opRepeat
	checks bool
}

type exprOp uint8

const (
	opClass exprOp = iota
	opCat
	opAlt
	opRepeat
	opStart     // ^
	opEnd       // $
	opAhead     // (?=…)
	opNotAhead  // (?!…)
	opSomewhere // any text, the beginning of a search
)

// parseExpression parses a regular expression of ECMA-262 with the flag u, as JSON Schema uses
// them. Escapes of letters that the flag forbids are errors, since other languages give them other
// meanings.
func parseExpression(text string) (*expression, error) {
	if !utf8.ValidString(text) {
		return nil, fmt.Errorf("regular expression %q is not valid UTF-8", text)
	}
	p := &exprParser{rest: text, all: text}
	e, err := p.alternatives(0)
	if err == nil && p.rest != "" {
		err = p.errorf("%q without an opening parenthesis", p.rest[:1])
	}
	if err != nil {
		return nil, err
	}
	return e, nil
}

type exprParser struct{ rest, all string }

func (p *exprParser) errorf(format string, args ...any) error {
	all := p.all
	if len(all) > 200 {
		all = all[:200] + "…"
	}
	return fmt.Errorf("regular expression %q, byte %d: %s", all, len(p.all)-len(p.rest), fmt.Sprintf(format, args...))
}

func (p *exprParser) next() rune {
	c, n := utf8.DecodeRuneInString(p.rest)
	p.rest = p.rest[n:]
	return c
}

func (p *exprParser) skip(prefix string) bool {
	rest, ok := strings.CutPrefix(p.rest, prefix)
	p.rest = rest
	return ok
}

func (p *exprParser) alternatives(depth int) (*expression, error) {
	if depth > maxDepth {
		return nil, p.errorf("more than %d groups within each other", maxDepth)
	}
	var kids []*expression
	for {
		seq, err := p.sequence(depth)
		if err != nil {
			return nil, err
		}
		kids = append(kids, seq)
		if !p.skip("|") {
			break
		}
	}
	return alternation(kids), nil
}

func alternation(kids []*expression) *expression {
	if len(kids) == 1 {
		return kids[0]
	}
	e := &expression{op: opAlt, kids: kids}
	e.checks = slices.ContainsFunc(kids, func(k *expression) bool { return k.checks })
	return e
}

func concatenation(kids []*expression) *expression {
	if len(kids) == 1 {
		return kids[0]
	}
	e := &expression{op: opCat, kids: kids}
	e.checks = slices.ContainsFunc(kids, func(k *expression) bool { return k.checks })
	return e
}

func (p *exprParser) sequence(depth int) (*expression, error) {
	var kids []*expression
	for p.rest != "" && p.rest[0] != '|' && p.rest[0] != ')' {
		atom, err := p.atom(depth)
		if err != nil {
			return nil, err
		}
		for first := true; ; first = false {
			lo, hi, ok, err := p.quantifier()
			if err != nil {
				return nil, err
			}
			if !ok {
				break
			}
			if !first {
				return nil, p.errorf("two quantifiers in a row")
			}
			p.skip("?") // a lazy quantifier matches the same texts
			atom = &expression{op: opRepeat, kids: []*expression{atom}, lo: lo, hi: hi, checks: atom.checks}
		}
		kids = append(kids, atom)
	}
	return concatenation(kids), nil
}

func (p *exprParser) quantifier() (lo, hi int, ok bool, err error) {
	switch {
	case p.skip("*"):
		return 0, unlimited, true, nil
	case p.skip("+"):
		return 1, unlimited, true, nil
	case p.skip("?"):
		return 0, 1, true, nil
	}
	if !strings.HasPrefix(p.rest, "{") {
		return 0, 0, false, nil
	}
	body, _, closed := strings.Cut(p.rest[1:], "}")
	low, high, comma := strings.Cut(body, ",")
	lo, e1 := strconv.Atoi(low)
	hi = lo
	var e2 error
	if comma {
		hi = unlimited
		if high != "" {
			hi, e2 = strconv.Atoi(high)
		}
	}
	if !closed || e1 != nil || e2 != nil || strings.ContainsAny(body, "+-") {
		return 0, 0, false, nil // a literal brace, as in browsers
	}
	if hi != unlimited && hi < lo {
		return 0, 0, false, p.errorf("the bounds of {%s} are out of order", body)
	}
	if max(lo, hi) > maxRepeat {
		return 0, 0, false, p.errorf("{%s} is more than %d", body, maxRepeat)
	}
	p.rest = p.rest[len(body)+2:]
	return lo, hi, true, nil
}

func class(s runes) *expression { return &expression{op: opClass, set: s} }

var lineEnds = runes{{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}

func (p *exprParser) atom(depth int) (*expression, error) {
	switch c := p.next(); c {
	case '.':
		return class(lineEnds.negate()), nil
	case '^':
		return &expression{op: opStart, checks: true}, nil
	case '$':
		return &expression{op: opEnd, checks: true}, nil
	case '[':
		return p.brackets()
	case '\\':
		s, err := p.escape(false)
		return class(s), err
	case '*', '+', '?':
		return nil, p.errorf("%q repeats nothing", c)
	case '(':
		op := opCat
		switch {
		case p.skip("?:"):
		case p.skip("?="):
			op = opAhead
		case p.skip("?!"):
			op = opNotAhead
		case strings.HasPrefix(p.rest, "?<=") || strings.HasPrefix(p.rest, "?<!"):
			return nil, p.errorf("lookbehind is not supported")
		case strings.HasPrefix(p.rest, "?<") && strings.Contains(p.rest, ">"):
			p.rest = p.rest[strings.IndexByte(p.rest, '>')+1:]
		case strings.HasPrefix(p.rest, "?"):
			return nil, p.errorf("a group that begins with (%s is not of ECMA-262", p.rest[:min(2, len(p.rest))])
		}
		e, err := p.alternatives(depth + 1)
		if err != nil {
			return nil, err
		}
		if !p.skip(")") {
			return nil, p.errorf("a group is not closed")
		}
		if op != opCat {
			return &expression{op: op, kids: []*expression{e}, checks: true}, nil
		}
		return e, nil
	default:
		return class(runes{{c, c}}), nil
	}
}

var (
	digits = runes{{'0', '9'}}
	words  = runes{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}
	spaces = runes{{'\t', '\r'}, {' ', ' '}, {0xA0, 0xA0}, {0x1680, 0x1680}, {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}}
)

var controlEscapes = map[rune]rune{'t': '\t', 'n': '\n', 'v': '\v', 'f': '\f', 'r': '\r', '0': 0}

// escape parses the escape behind a backslash and returns its set of characters.
func (p *exprParser) escape(inClass bool) (runes, error) {
	if p.rest == "" {
		return nil, p.errorf("ends with a backslash")
	}
	c := p.next()
	one := func(c rune) (runes, error) { return runes{{c, c}}, nil }
	switch c {
	case 'd':
		return digits, nil
	case 'D':
		return digits.negate(), nil
	case 'w':
		return words, nil
	case 'W':
		return words.negate(), nil
	case 's':
		return spaces, nil
	case 'S':
		return spaces.negate(), nil
	case 'b':
		if inClass {
			return one('\b')
		}
		return nil, p.errorf(`\b is not supported`)
	case 'c':
		if p.rest != "" && (p.rest[0]|0x20 >= 'a' && p.rest[0]|0x20 <= 'z') {
			return one(p.next() & 31)
		}
		return nil, p.errorf(`\c wants a letter`)
	case 'x':
		return p.hex(2, one)
	case 'u':
		if strings.HasPrefix(p.rest, "{") {
			body, after, ok := strings.Cut(p.rest[1:], "}")
			v, err := strconv.ParseUint(body, 16, 32)
			if !ok || err != nil || v > unicode.MaxRune {
				return nil, p.errorf(`\u{…} wants a number of Unicode`)
			}
			p.rest = after
			return one(rune(v))
		}
		high, err := p.hex(4, one)
		if err != nil || high[0][0] < surrogateMin || high[0][0] > surrogateMax {
			return high, err
		}
		if p.skip(`\u`) {
			if low, err := p.hex(4, one); err == nil {
				if c := decodeSurrogates(high[0][0], low[0][0]); c != unicode.ReplacementChar {
					return one(c)
				}
			}
		}
		return nil, p.errorf("half of a surrogate pair")
	case 'p', 'P':
		body, after, ok := strings.Cut(strings.TrimPrefix(p.rest, "{"), "}")
		if !strings.HasPrefix(p.rest, "{") || !ok {
			return nil, p.errorf(`\%c wants {a property}`, c)
		}
		s, ok := property(body)
		if !ok {
			return nil, p.errorf(`\%c{%s} is unknown`, c, body)
		}
		p.rest = after
		if c == 'P' {
			s = s.negate()
		}
		return s, nil
	}
	if v, ok := controlEscapes[c]; ok {
		return one(v)
	}
	if c >= '1' && c <= '9' || c == 'k' {
		return nil, p.errorf(`\%c: backreferences are not regular`, c)
	}
	if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' {
		return nil, p.errorf(`\%c is not of ECMA-262`, c)
	}
	return one(c)
}

func decodeSurrogates(high, low rune) rune {
	if high < surrogateMin || high > 0xDBFF || low < 0xDC00 || low > surrogateMax {
		return unicode.ReplacementChar
	}
	return (high-surrogateMin)<<10 | (low - 0xDC00) + 0x10000
}

func (p *exprParser) hex(n int, one func(rune) (runes, error)) (runes, error) {
	if len(p.rest) >= n {
		if v, err := strconv.ParseUint(p.rest[:n], 16, 32); err == nil {
			p.rest = p.rest[n:]
			return one(rune(v))
		}
	}
	return nil, p.errorf("want %d hexadecimal digits", n)
}

// properties are the results of property, which take long to make, by name.
var properties sync.Map

func property(name string) (runes, bool) {
	if s, ok := properties.Load(name); ok {
		return s.(runes), true
	}
	s, ok := propertyOf(name)
	if ok {
		properties.Store(name, s)
	}
	return s, ok
}

func propertyOf(name string) (runes, bool) {
	key, value, ok := strings.Cut(name, "=")
	if !ok {
		key, value = "General_Category", name
	}
	if long, ok := categoryNames[value]; ok {
		value = long
	}
	switch key {
	case "General_Category", "gc":
		if value == "Any" {
			return runes{{0, unicode.MaxRune}}, true
		}
		if value == "ASCII" {
			return runes{{0, 0x7F}}, true
		}
		if t, ok := unicode.Categories[value]; ok {
			return fromTable(t), true
		}
		if t, ok := unicode.Properties[value]; ok {
			return fromTable(t), true
		}
		if value == "Alphabetic" {
			return append(append(fromTable(unicode.L), fromTable(unicode.Nl)...), fromTable(unicode.Other_Alphabetic)...).normal(), true
		}
	case "Script", "sc":
		if t, ok := unicode.Scripts[value]; ok {
			return fromTable(t), true
		}
	}
	return nil, false
}

var categoryNames = map[string]string{
	"Letter": "L", "Uppercase_Letter": "Lu", "Lowercase_Letter": "Ll", "Titlecase_Letter": "Lt", "Modifier_Letter": "Lm", "Other_Letter": "Lo",
	"Mark": "M", "Number": "N", "Decimal_Number": "Nd", "Punctuation": "P", "Symbol": "S", "Separator": "Z", "Space_Separator": "Zs", "Other": "C", "Control": "Cc",
}

func (p *exprParser) brackets() (*expression, error) {
	negate := p.skip("^")
	var set runes
	single := func() (runes, error) {
		if p.rest == "" {
			return nil, p.errorf("a class is not closed")
		}
		if c := p.next(); c != '\\' {
			return runes{{c, c}}, nil
		}
		return p.escape(true)
	}
	for !p.skip("]") {
		from, err := single()
		if err != nil {
			return nil, err
		}
		if strings.HasPrefix(p.rest, "-") && !strings.HasPrefix(p.rest, "-]") {
			before := p.rest
			p.rest = p.rest[1:]
			to, err := single()
			if err != nil {
				return nil, err
			}
			isOne := func(s runes) bool { return len(s) == 1 && s[0][0] == s[0][1] }
			if isOne(from) && isOne(to) {
				if from[0][0] > to[0][0] {
					p.rest = before
					return nil, p.errorf("a class range is out of order")
				}
				set = append(set, [2]rune{from[0][0], to[0][0]})
				continue
			}
			// A class such as \d is no end of a range, so the hyphen is a character.
			set = append(append(append(set, from...), to...), [2]rune{'-', '-'})
			continue
		}
		set = append(set, from...)
	}
	if negate {
		set = set.negate()
	}
	return class(set.normal()), nil
}

// search returns the expression for texts in which e matches somewhere.
func (p *pool) search(e *expression) (re, error) {
	return p.before(concatenation([]*expression{{op: opSomewhere, checks: true}, e}), p.text, true)
}

// whole returns the expression for texts that e matches from start to end.
func (p *pool) whole(e *expression) (re, error) { return p.before(e, reEps, true) }

// before returns the expression for a match of e followed by rest, which reaches to the end of the
// text. start reports whether e is at the start of the text, where ^ matches.
func (p *pool) before(e *expression, rest re, start bool) (re, error) {
	p.spend(derivation)
	if !e.checks {
		r, err := p.plain(e)
		return p.cat2(r, rest), err
	}
	switch e.op {
	case opSomewhere:
		return p.cat2(p.text, rest), nil
	case opStart:
		if start {
			return rest, nil
		}
		return reNone, nil
	case opEnd:
		if p.at(rest).nullable {
			return reEps, nil
		}
		return reNone, nil
	case opAhead, opNotAhead:
		r, err := p.before(e.kids[0], p.text, start)
		if err != nil {
			return reNone, err
		}
		if e.op == opNotAhead {
			r = p.not(r)
		}
		return p.and(rest, r), nil
	case opAlt:
		var parts []re
		for _, k := range e.kids {
			r, err := p.before(k, rest, start)
			if err != nil {
				return reNone, err
			}
			parts = append(parts, r)
		}
		return p.or(parts...), nil
	case opCat:
		// Parts are composed from the right. A part is also possibly at the start of the text if
		// all parts before it can match nothing.
		atStart := make([]bool, len(e.kids))
		for i, ok := 0, start; i < len(e.kids); i++ {
			atStart[i] = ok
			ok = ok && mayBeEmpty(e.kids[i])
		}
		later := rest
		first := rest // rest if nothing has been matched before it
		for i := len(e.kids) - 1; i >= 0; i-- {
			k := e.kids[i]
			var opening re
			if atStart[i] {
				// Either k matches at least one character, and later parts are not at the start, or
				// k matches nothing.
				r, err := p.before(k, later, true)
				if err != nil {
					return reNone, err
				}
				opening = r
				if mayBeEmpty(k) {
					empty, err := p.emptyBefore(k, first)
					if err != nil {
						return reNone, err
					}
					opening = p.or(opening, empty)
				}
			}
			r, err := p.before(k, later, false)
			if err != nil {
				return reNone, err
			}
			later, first = r, opening
		}
		if start {
			return first, nil
		}
		return later, nil
	case opRepeat:
		k := e.kids[0]
		if e.hi == unlimited || e.hi > 4 {
			return reNone, fmt.Errorf("an anchor or a lookahead within a repetition is not supported")
		}
		var kids []*expression
		for i := range e.hi {
			if i < e.lo {
				kids = append(kids, k)
				continue
			}
			kids = append(kids, alternation([]*expression{k, {op: opCat}}))
		}
		return p.before(&expression{op: opCat, kids: kids, checks: true}, rest, start)
	}
	return reNone, fmt.Errorf("unknown part of an expression")
}

// emptyBefore returns rest restricted by k, where k is at the start of the text and matches no
// character.
func (p *pool) emptyBefore(k *expression, rest re) (re, error) {
	switch k.op {
	case opAlt:
		var parts []re
		for _, q := range k.kids {
			if mayBeEmpty(q) {
				r, err := p.emptyBefore(q, rest)
				if err != nil {
					return reNone, err
				}
				parts = append(parts, r)
			}
		}
		return p.or(parts...), nil
	case opCat:
		for i := len(k.kids) - 1; i >= 0; i-- {
			r, err := p.emptyBefore(k.kids[i], rest)
			if err != nil {
				return reNone, err
			}
			rest = r
		}
		return rest, nil
	case opRepeat:
		r, err := rest, error(nil)
		if mayBeEmpty(k.kids[0]) && k.lo > 0 {
			r, err = p.emptyBefore(k.kids[0], rest)
		}
		return r, err
	case opEnd, opAhead, opNotAhead:
		return p.before(k, rest, true)
	}
	return rest, nil
}

// mayBeEmpty reports whether e can match the empty text.
func mayBeEmpty(e *expression) bool {
	switch e.op {
	case opClass:
		return false
	case opCat:
		return !slices.ContainsFunc(e.kids, func(k *expression) bool { return !mayBeEmpty(k) })
	case opAlt:
		return slices.ContainsFunc(e.kids, mayBeEmpty)
	case opRepeat:
		return e.lo == 0 || mayBeEmpty(e.kids[0])
	}
	return true
}

func (p *pool) plain(e *expression) (re, error) {
	switch e.op {
	case opClass:
		return p.class(e.set), nil
	case opCat, opAlt:
		parts := make([]re, len(e.kids))
		for i, k := range e.kids {
			r, err := p.plain(k)
			if err != nil {
				return reNone, err
			}
			parts[i] = r
		}
		if e.op == opAlt {
			return p.or(parts...), nil
		}
		return p.cat(parts...), nil
	case opRepeat:
		r, err := p.plain(e.kids[0])
		return p.repeat(r, e.lo, e.hi), err
	}
	return reNone, fmt.Errorf("unknown part of an expression")
}
