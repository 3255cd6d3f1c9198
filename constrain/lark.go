package constrain

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// larkCommon are the terminals that %import common provides, from Lark's common.lark.
var larkCommon = map[string]string{
	"DIGIT": `[0-9]`, "HEXDIGIT": `[a-fA-F0-9]`, "INT": `[0-9]+`, "SIGNED_INT": `[+-]?[0-9]+`,
	"DECIMAL": `[0-9]+\.[0-9]*|\.[0-9]+`, "FLOAT": larkFloat, "SIGNED_FLOAT": `[+-]?(?:` + larkFloat + `)`,
	"NUMBER": larkFloat + `|[0-9]+`, "SIGNED_NUMBER": `[+-]?(?:` + larkFloat + `|[0-9]+)`,
	"LCASE_LETTER": `[a-z]`, "UCASE_LETTER": `[A-Z]`, "LETTER": `[A-Za-z]`, "WORD": `[A-Za-z]+`, "CNAME": `[A-Za-z_][A-Za-z_0-9]*`,
	"WS_INLINE": `[ \t]+`, "WS": `[ \t\f\r\n]+`, "CR": `\r`, "LF": `\n`, "NEWLINE": `(?:\r?\n)+`,
	"ESCAPED_STRING": `"(?:[^"\\\n]|\\[^\n])*"`, "SH_COMMENT": `#[^\n]*`, "CPP_COMMENT": `//[^\n]*`, "SQL_COMMENT": `--[^\n]*`,
}

const larkFloat = `[0-9]+[eE][+-]?[0-9]+|(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?`

// ignored is the name of the rule for ignored text, which may precede any terminal.
const ignored = "%ignore"

// parseLark parses Lark's grammar format. Terminals match as in Lark's dynamic lexer: in every way
// that fits the rules.
func parseLark(text string, b *budget) (map[string]*rule, error) {
	if !utf8.ValidString(text) {
		return nil, fmt.Errorf("the grammar is not valid UTF-8")
	}
	p := &lark{grammarText: grammarText{budget: b, rest: text, all: text, comment: "//"}, rules: map[string]*rule{}}
	skip := &rule{op: ruleAlt}
	for p.space(true); p.rest != ""; p.space(true) {
		switch {
		case p.skip("%ignore"):
			p.inTerminal = true
			x, err := p.alternatives()
			if err != nil {
				return nil, err
			}
			skip.kids = append(skip.kids, x)
		case p.skip("%import"):
			if err := p.imports(); err != nil {
				return nil, err
			}
		case strings.HasPrefix(p.rest, "%"):
			return nil, p.errorf("%s is not supported", strings.Fields(p.rest)[0])
		default:
			if err := p.rule(); err != nil {
				return nil, err
			}
		}
	}
	p.rules[ignored] = &rule{op: ruleRepeat, kids: []*rule{skip}, lo: 0, hi: unlimited}
	if start := p.rules["start"]; start != nil {
		p.rules["start"] = &rule{op: ruleSeq, kids: []*rule{start, {op: ruleName, name: ignored}}}
	}
	return p.rules, nil
}

type lark struct {
	grammarText
	rules      map[string]*rule
	inTerminal bool
}

func isTerminalName(name string) bool {
	return strings.ToUpper(name) == name && strings.ToLower(name) != name
}

func (p *lark) define(name string, x *rule) error {
	if p.rules[name] != nil {
		return p.errorf("%s is defined twice", name)
	}
	p.rules[name] = x
	return nil
}

func (p *lark) imports() error {
	p.space(false)
	if !p.skip("common") {
		return p.errorf("%%import supports only the module common")
	}
	p.space(false)
	var names [][2]string
	one := func() error {
		p.space(false)
		name := p.word("")
		if _, ok := larkCommon[name]; !ok {
			return p.errorf("the terminal %q of the module common is not supported", name)
		}
		as := name
		p.space(false)
		if p.skip("->") {
			p.space(false)
			as = p.word("")
		}
		names = append(names, [2]string{name, as})
		p.space(false)
		return nil
	}
	if p.skip("(") {
		for {
			if err := one(); err != nil {
				return err
			}
			if p.skip(")") {
				break
			}
			if !p.skip(",") {
				return p.errorf("want a comma or a closing parenthesis")
			}
		}
	} else {
		if !p.skip(".") {
			return p.errorf("want common.NAME")
		}
		if err := one(); err != nil {
			return err
		}
	}
	for _, n := range names {
		e, err := parseExpression(larkCommon[n[0]])
		if err != nil {
			return err
		}
		if err := p.define(n[1], terminal(e)); err != nil {
			return err
		}
	}
	return nil
}

func (p *lark) rule() error {
	for p.skip("?") || p.skip("!") {
	}
	name := p.word("")
	if name == "" {
		return p.errorf("want a rule, not %q", p.rest[:min(10, len(p.rest))])
	}
	if p.skip(".") { // priorities rank parses; every parse counts here
		p.skip("-")
		p.number()
	}
	p.space(false)
	if strings.HasPrefix(p.rest, "{") {
		return p.errorf("templates are not supported")
	}
	if !p.skip(":") {
		return p.errorf("want a colon behind %s", name)
	}
	p.inTerminal = isTerminalName(name)
	x, err := p.alternatives()
	if err != nil {
		return err
	}
	return p.define(name, x)
}

func (p *lark) alternatives() (*rule, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer func() { p.depth-- }()
	x := &rule{op: ruleAlt}
	for {
		s := &rule{op: ruleSeq}
		for {
			p.space(false)
			if strings.HasPrefix(p.rest, "\n") {
				// A line continues the rule if it begins with a bar, or within a group.
				q := p.grammarText
				q.space(true)
				if p.depth == 1 && !strings.HasPrefix(q.rest, "|") && !strings.HasPrefix(q.rest, "->") {
					break
				}
				p.space(true)
			}
			if p.rest == "" || strings.IndexByte("|)]", p.rest[0]) >= 0 {
				break
			}
			if p.skip("->") {
				p.space(false)
				p.word("")
				continue
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

// token returns the rule of a terminal, with ignored text before it.
func (p *lark) token(x *rule) *rule {
	if p.inTerminal {
		return x
	}
	return &rule{op: ruleSeq, kids: []*rule{{op: ruleName, name: ignored}, x}}
}

func (p *lark) item() (*rule, error) {
	var x *rule
	switch c := p.rest[0]; {
	case c == '"':
		text, fold, err := p.quoted()
		if err != nil {
			return nil, err
		}
		p.space(false)
		if p.skip("..") {
			p.space(false)
			to, _, err := p.quoted()
			if err != nil {
				return nil, err
			}
			a, b := []rune(text), []rune(to)
			if len(a) != 1 || len(b) != 1 || a[0] > b[0] {
				return nil, p.errorf("%q..%q is no range", text, to)
			}
			x = p.token(terminal(class(runes{{a[0], b[0]}})))
			break
		}
		x = p.token(literalText(text, fold))
	case c == '/':
		e, err := p.regex()
		if err != nil {
			return nil, err
		}
		x = p.token(terminal(e))
	case c == '(' || c == '[':
		p.rest = p.rest[1:]
		inner, err := p.alternatives()
		if err != nil {
			return nil, err
		}
		if !p.skip(map[byte]string{'(': ")", '[': "]"}[c]) {
			return nil, p.errorf("a group is not closed")
		}
		x = inner
		if c == '[' {
			x = &rule{op: ruleRepeat, kids: []*rule{inner}, lo: 0, hi: 1}
		}
	default:
		name := p.word("")
		if name == "" {
			return nil, p.errorf("unexpected %q", p.rest[:min(10, len(p.rest))])
		}
		x = &rule{op: ruleName, name: name}
		if isTerminalName(name) {
			x = p.token(x)
		}
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
		case p.skip("~"):
			p.space(false)
			var ok bool
			if lo, ok = p.number(); !ok {
				return nil, p.errorf("want a count behind ~")
			}
			hi = lo
			if p.skip("..") {
				if hi, ok = p.number(); !ok {
					return nil, p.errorf("want a count behind ..")
				}
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

// quoted parses a literal and reports whether it has the flag i.
func (p *lark) quoted() (string, bool, error) {
	if !p.skip(`"`) {
		return "", false, p.errorf("want a literal")
	}
	var text []rune
	for !p.skip(`"`) {
		c, n := utf8.DecodeRuneInString(p.rest)
		if n == 0 || c == '\n' {
			return "", false, p.errorf("a literal is not closed")
		}
		p.rest = p.rest[n:]
		if c == '\\' {
			q := &exprParser{rest: p.rest, all: p.rest}
			s, err := q.escape()
			if err != nil || len(s) != 1 || s[0][0] != s[0][1] {
				return "", false, p.errorf("unknown escape")
			}
			c, p.rest = s[0][0], q.rest
		}
		text = append(text, c)
	}
	fold := strings.HasPrefix(p.rest, "i") && (len(p.rest) == 1 || !isWordByte(p.rest[1]))
	if fold {
		p.rest = p.rest[1:]
	}
	return string(text), fold, nil
}

func (p *lark) regex() (*expression, error) {
	end := 1
	for inClass := false; end < len(p.rest) && (p.rest[end] != '/' || inClass); end++ {
		switch p.rest[end] {
		case '\\':
			end++
		case '[':
			inClass = true
		case ']':
			inClass = false
		case '\n':
			return nil, p.errorf("an expression is not closed")
		}
	}
	if end >= len(p.rest) {
		return nil, p.errorf("an expression is not closed")
	}
	body := p.rest[1:end]
	p.rest = p.rest[end+1:]
	flags := p.word("")
	e, err := parseExpression(body)
	if err != nil {
		return nil, p.errorf("%v", err)
	}
	for i, f := range flags {
		switch f {
		case 'i':
			if strings.ContainsRune(flags[:i], f) {
				continue
			}
			var ok bool
			if e, ok = p.folded(e); !ok {
				return nil, p.errorf("the flag i is not supported with a class of this size")
			}
		case 's':
			e = dotAll(e)
		case 'u':
		default:
			return nil, p.errorf("the flag %c of an expression is not supported", f)
		}
	}
	return e, nil
}

// mapped returns a copy of e with change applied to each class.
func mapped(e *expression, change func(runes) runes) *expression {
	c := *e
	if e.op == opClass {
		c.set = change(e.set)
		return &c
	}
	c.kids = nil
	for _, k := range e.kids {
		c.kids = append(c.kids, mapped(k, change))
	}
	return &c
}

func isDot(s runes) bool { return slices.Equal(s, lineEnds.negate()) }

// folded returns e with letters of either case. ok is false if a class has a long range: it may be a
// complement, which is no longer distinguishable from other classes, and the caller decides.
func (p *lark) folded(e *expression) (_ *expression, ok bool) {
	ok = true
	e = mapped(e, func(s runes) runes {
		if isDot(s) {
			return s
		}
		out := append(runes{}, s...)
		for _, r := range s {
			if r[1]-r[0] > 2000 {
				ok = false
				return s
			}
			p.spend(int(r[1]-r[0]) + 1)
			for c := r[0]; c <= r[1]; c++ {
				for f := unicode.SimpleFold(c); f != c; f = unicode.SimpleFold(f) {
					out = append(out, [2]rune{f, f})
				}
			}
		}
		return out.normal()
	})
	return e, ok
}

// dotAll returns a copy of e in which a dot also matches line ends.
func dotAll(e *expression) *expression {
	return mapped(e, func(s runes) runes {
		if isDot(s) {
			return runes{{0, unicode.MaxRune}}
		}
		return s
	})
}
