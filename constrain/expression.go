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
	opEdge      // \b
	opNoEdge    // \B
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
		if p.skip("b") { // behind [ it is a backspace
			return &expression{op: opEdge, checks: true}, nil
		}
		if p.skip("B") {
			return &expression{op: opNoEdge, checks: true}, nil
		}
		s, err := p.escape()
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
func (p *exprParser) escape() (runes, error) {
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
		return one('\b')
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
		return p.escape()
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
	all, err := p.before(concatenation([]*expression{{op: opSomewhere, checks: true}, e}), anywhere(p.text))
	return all[atStart], err
}

// whole returns the expression for texts that e matches from start to end.
func (p *pool) whole(e *expression) (re, error) {
	all, err := p.before(e, anywhere(reEps))
	return all[atStart], err
}

// follow holds the expressions for the rest of a text, to its end, by what precedes the rest: ^ and
// \b depend on nothing else.
type follow [5]re

const (
	atStart     = iota // nothing: the start of the text
	behindWord         // a character of \w, read before the current turn of a repetition
	behindOther        // another character, likewise
	movedWord          // a character of \w, read within the turn; equals behindWord outside of repetitions
	movedOther         // another character, likewise
)

func anywhere(r re) follow { return follow{r, r, r, r, r} }

// before returns the expressions for a match of e followed by rest.
func (p *pool) before(e *expression, rest follow) (all follow, err error) {
	p.spend(derivation)
	if !e.checks {
		r, err := p.plain(e)
		return p.consumed(r, rest), err
	}
	switch e.op {
	case opSomewhere:
		return p.consumed(p.text, rest), nil
	case opStart:
		all[atStart] = rest[atStart]
	case opEnd:
		for i, r := range rest {
			if p.at(r).nullable {
				all[i] = reEps
			}
		}
	case opEdge, opNoEdge:
		word, other := p.cat2(p.class(words), p.text), p.optional(p.cat2(p.class(words.negate()), p.text))
		for i, r := range rest {
			if (i == behindWord || i == movedWord) == (e.op == opEdge) {
				all[i] = p.and(r, other)
			} else {
				all[i] = p.and(r, word)
			}
		}
	case opAhead, opNotAhead:
		ahead, err := p.before(e.kids[0], anywhere(p.text))
		for i, r := range ahead {
			if e.op == opNotAhead {
				r = p.not(r)
			}
			all[i] = p.and(rest[i], r)
		}
		return all, err
	case opAlt:
		for _, k := range e.kids {
			one, err := p.before(k, rest)
			if err != nil {
				return all, err
			}
			for i, r := range one {
				all[i] = p.or(all[i], r)
			}
		}
	case opCat:
		all = rest
		for _, k := range slices.Backward(e.kids) {
			if all, err = p.before(k, all); err != nil {
				return all, err
			}
		}
	case opRepeat:
		return p.turns(e, rest)
	}
	return all, nil
}

// consumed returns the expressions for a text of r followed by rest.
func (p *pool) consumed(r re, rest follow) (all follow) {
	some := r
	if p.at(r).nullable {
		some = p.and(r, p.repeat(p.char, 1, unlimited))
	}
	then := rest[movedWord]
	split := then != rest[movedOther]
	if split {
		last := func(s runes) re { return p.and(some, p.cat2(p.text, p.class(s))) }
		some = p.or(p.cat2(last(words), then), p.cat2(last(words.negate()), rest[movedOther]))
	} else {
		some = p.cat2(some, then)
	}
	for i, then := range rest {
		switch {
		case !p.at(r).nullable:
			all[i] = some
		case !split && p.or(then, rest[movedWord]) == then: // r may match nothing here too
			all[i] = p.or(p.cat2(r, rest[movedWord]), then)
		default:
			all[i] = p.or(some, then)
		}
	}
	return all
}

// turns returns the expressions for a repetition with checks, followed by rest. A turn that reads
// nothing adds nothing behind the least number of turns, so an unlimited repetition is a loop whose
// turns all read.
func (p *pool) turns(e *expression, rest follow) (all follow, err error) {
	k := e.kids[0]
	all = rest
	if e.hi == unlimited {
		loop := follow{movedWord: p.loop(e, rest, movedWord), movedOther: p.loop(e, rest, movedOther)}
		turn, err := p.before(k, loop)
		if err != nil {
			return all, err
		}
		for i, r := range rest {
			all[i] = p.or(r, turn[[...]int{atStart, behindWord, behindOther, behindWord, behindOther}[i]])
		}
		p.close(loop[movedWord], all[movedWord])
		p.close(loop[movedOther], all[movedOther])
	} else if e.hi > maxTurns {
		return all, fmt.Errorf("an anchor, a boundary or a lookahead within a repetition of up to %d turns, more than %d, is not supported", e.hi, maxTurns)
	}
	for n := max(e.lo, e.hi); n > 0; n-- {
		turn, err := p.before(k, all)
		if err != nil {
			return all, err
		}
		for i, r := range rest {
			if n > e.lo {
				turn[i] = p.or(turn[i], r)
			}
		}
		all = turn
	}
	return all, nil
}

// loop returns the expression of a repetition of e, which close gives its first turn and what follows
// it; i is what precedes it.
func (p *pool) loop(e *expression, rest follow, i int) re {
	var name strings.Builder
	fmt.Fprint(&name, i)
	for _, r := range rest {
		fmt.Fprintf(&name, " %x", p.at(r).hash)
	}
	cuts := p.at(p.or(p.class(words), p.class(words.negate()))).cuts.or(p.at(rest[i]).cuts)
	var add func(e *expression)
	add = func(e *expression) {
		fmt.Fprintf(&name, " %d(%v %d %d", e.op, e.set, e.lo, e.hi)
		cuts = cuts.or(p.at(p.class(e.set)).cuts)
		for _, k := range e.kids {
			add(k)
		}
		name.WriteByte(')')
	}
	add(e)
	nullable := p.at(rest[i]).nullable
	return p.intern(reNode{kind: kindLoop, name: name.String(), cuts: cuts, nullable: nullable, sure: nullable, negative: true, loops: true})
}

func (p *pool) close(loop, body re) { p.nodes[loop].a = body }

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
