package constrain

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// grammarText is the source of a grammar and the position of its parser.
type grammarText struct {
	*budget
	rest, all string
	comment   string
	depth     int
}

func (p *grammarText) errorf(format string, args ...any) error {
	line := 1 + strings.Count(p.all[:len(p.all)-len(p.rest)], "\n")
	return fmt.Errorf("grammar, line %d: %s", line, fmt.Sprintf(format, args...))
}

// space skips white space and comments, and line ends if lines is set.
func (p *grammarText) space(lines bool) {
	for {
		p.rest = strings.TrimLeft(p.rest, " \t\r")
		switch {
		case strings.HasPrefix(p.rest, p.comment):
			i := strings.IndexByte(p.rest, '\n')
			if i < 0 {
				i = len(p.rest)
			}
			p.rest = p.rest[i:]
		case lines && strings.HasPrefix(p.rest, "\n"):
			p.rest = p.rest[1:]
		default:
			return
		}
	}
}

func (p *grammarText) skip(prefix string) bool {
	rest, ok := strings.CutPrefix(p.rest, prefix)
	p.rest = rest
	return ok
}

func (p *grammarText) word(also string) string {
	n := 0
	for n < len(p.rest) && (isWordByte(p.rest[n]) || strings.IndexByte(also, p.rest[n]) >= 0) {
		n++
	}
	w := p.rest[:n]
	p.rest = p.rest[n:]
	return w
}

func isWordByte(b byte) bool {
	return b >= '0' && b <= '9' || b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b == '_'
}

func (p *grammarText) enter() error {
	p.spend(derivation)
	if p.depth++; p.depth > maxDepth {
		return p.errorf("more than %d groups within each other", maxDepth)
	}
	return nil
}

func terminal(e *expression) *rule { return &rule{op: ruleTerm, term: e} }

func literalText(text string, fold bool) *rule {
	var kids []*expression
	for _, c := range text {
		s := runes{{c, c}}
		if fold {
			for f := unicode.SimpleFold(c); f != c; f = unicode.SimpleFold(f) {
				s = append(s, [2]rune{f, f})
			}
		}
		kids = append(kids, class(s.normal()))
	}
	return terminal(concatenation(kids))
}

func (p *grammarText) number() (int, bool) {
	n := 0
	for n < len(p.rest) && p.rest[n] >= '0' && p.rest[n] <= '9' {
		n++
	}
	v, err := strconv.Atoi(p.rest[:n])
	p.rest = p.rest[n:]
	return v, err == nil
}

// repeated returns x repeated lo to hi times.
func (p *grammarText) repeated(x *rule, lo, hi int) (*rule, error) {
	if hi != unlimited && hi < lo || max(lo, hi) > maxRepeat {
		return nil, p.errorf("the count {%d,%d} is out of order or too large", lo, hi)
	}
	return &rule{op: ruleRepeat, kids: []*rule{x}, lo: lo, hi: hi}, nil
}

// parseGBNF parses llama.cpp's grammar format.
func parseGBNF(text string, b *budget) (map[string]*rule, error) {
	if !utf8.ValidString(text) {
		return nil, fmt.Errorf("the grammar is not valid UTF-8")
	}
	p := &gbnf{grammarText{budget: b, rest: text, all: text, comment: "#"}}
	rules := map[string]*rule{}
	for p.space(true); p.rest != ""; p.space(true) {
		name := p.word("-")
		p.space(true)
		if name == "" || !p.skip("::=") {
			return nil, p.errorf("want a rule: a name and ::=")
		}
		x, err := p.alternatives()
		if err != nil {
			return nil, err
		}
		if rules[name] != nil {
			return nil, p.errorf("rule %s is defined twice", name)
		}
		rules[name] = x
	}
	return rules, nil
}

type gbnf struct{ grammarText }

func (p *gbnf) alternatives() (*rule, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer func() { p.depth-- }()
	x := &rule{op: ruleAlt}
	for {
		s := &rule{op: ruleSeq}
		for {
			p.space(true)
			if p.rest == "" || strings.HasPrefix(p.rest, "|") || strings.HasPrefix(p.rest, ")") || p.beginsRule() {
				break
			}
			item, err := p.item()
			if err != nil {
				return nil, err
			}
			s.kids = append(s.kids, item)
		}
		x.kids = append(x.kids, s)
		if !p.skip("|") {
			return x, nil
		}
	}
}

// beginsRule reports whether a rule begins at the current position.
func (p *gbnf) beginsRule() bool {
	q := *p
	if q.word("-") == "" {
		return false
	}
	q.space(true)
	return strings.HasPrefix(q.rest, "::=")
}

func (p *gbnf) item() (*rule, error) {
	var x *rule
	switch {
	case p.skip(`"`):
		var text []rune
		for !p.skip(`"`) {
			c, err := p.char()
			if err != nil {
				return nil, err
			}
			text = append(text, c)
		}
		x = literalText(string(text), false)
	case p.skip("["):
		negate := p.skip("^")
		var s runes
		for !p.skip("]") {
			from, err := p.char()
			if err != nil {
				return nil, err
			}
			to := from
			if strings.HasPrefix(p.rest, "-") && !strings.HasPrefix(p.rest, "-]") {
				p.rest = p.rest[1:]
				if to, err = p.char(); err != nil {
					return nil, err
				}
			}
			if to < from {
				return nil, p.errorf("a class range is out of order")
			}
			s = append(s, [2]rune{from, to})
		}
		if negate {
			s = s.negate()
		}
		x = terminal(class(s.normal()))
	case p.skip("("):
		inner, err := p.alternatives()
		if err != nil {
			return nil, err
		}
		if !p.skip(")") {
			return nil, p.errorf("a group is not closed")
		}
		x = inner
	case p.skip("."):
		x = terminal(class(runes{{0, unicode.MaxRune}}))
	default:
		name := p.word("-")
		if name == "" {
			return nil, p.errorf("unexpected %q", p.rest[:min(10, len(p.rest))])
		}
		x = &rule{op: ruleName, name: name}
	}
	for {
		p.space(false)
		lo, hi := 0, unlimited
		switch {
		case p.skip("*"):
		case p.skip("+"):
			lo = 1
		case p.skip("?"):
			hi = 1
		case p.skip("{"):
			var ok bool
			p.space(false)
			lo, ok = p.number()
			p.space(false)
			hi = lo
			if p.skip(",") {
				p.space(false)
				hi = unlimited
				if n, is := p.number(); is {
					hi, ok = n, true
				}
			}
			p.space(false)
			if !p.skip("}") || !ok {
				return nil, p.errorf("want {count}, {from,} or {from,to}")
			}
		default:
			return x, nil
		}
		var err error
		if x, err = p.repeated(x, lo, hi); err != nil {
			return nil, err
		}
	}
}

// char parses one character of a literal or a class.
func (p *gbnf) char() (rune, error) {
	c, n := utf8.DecodeRuneInString(p.rest)
	if n == 0 || c == '\n' {
		return 0, p.errorf("a literal or a class is not closed")
	}
	p.rest = p.rest[n:]
	if c != '\\' {
		return c, nil
	}
	if p.rest == "" {
		return 0, p.errorf("ends with a backslash")
	}
	e := p.rest[0]
	p.rest = p.rest[1:]
	digits := map[byte]int{'x': 2, 'u': 4, 'U': 8}[e]
	if digits > 0 {
		if len(p.rest) >= digits {
			if v, err := strconv.ParseUint(p.rest[:digits], 16, 32); err == nil && utf8.ValidRune(rune(v)) {
				p.rest = p.rest[digits:]
				return rune(v), nil
			}
		}
		return 0, p.errorf(`\%c wants %d hexadecimal digits of a character`, e, digits)
	}
	if i := strings.IndexByte(`nrt\"[]-^`, e); i >= 0 {
		return rune("\n\r\t\\\"[]-^"[i]), nil
	}
	return 0, p.errorf(`unknown escape \%c`, e)
}
