package jinja

import (
	"fmt"
	"slices"
	"strconv"
)

// Bounds on templates; the longest in use have 20 kB and nest a dozen deep.
const (
	maxSource  = 256 << 10
	maxSyntax  = 200     // parentheses, blocks and the like within each other
	maxNodes   = 100_000 // words of a template
	maxChained = 500     // operators, filters, attributes in a row
)

// Template is a parsed template. It may be used by several goroutines.
type Template struct{ body []stmt }

// Parse reads a template.
func Parse(source string) (t *Template, err error) {
	if len(source) > maxSource {
		return nil, fmt.Errorf("%w: the template has %d bytes, at most %d are read", ErrLimit, len(source), maxSource)
	}
	tokens, err := lex(source)
	if err != nil {
		return nil, err
	}
	if len(tokens) > maxNodes {
		return nil, fmt.Errorf("%w: the template has %d words, at most %d are read", ErrLimit, len(tokens), maxNodes)
	}
	p := &parser{tokens: tokens}
	defer func() {
		if e := recovered(recover()); e != nil {
			t, err = nil, fmt.Errorf("line %d: %w", p.peek().line, e)
		}
	}()
	return &Template{p.block()}, nil
}

type parser struct {
	tokens []token
	at     int
	depth  int
	loops  int // that the place is in
}

func (p *parser) fail(format string, args ...any) { fail(format, args...) }

func (p *parser) peek() token { return p.tokens[p.at] }

func (p *parser) take() token {
	t := p.tokens[p.at]
	if t.kind != endToken {
		p.at++
	}
	return t
}

func (p *parser) is(kind tokenKind, text string) bool {
	t := p.peek()
	return t.kind == kind && t.text == text
}

func (p *parser) accept(kind tokenKind, text string) bool {
	if p.is(kind, text) {
		p.at++
		return true
	}
	return false
}

func (p *parser) op(text string) bool      { return p.accept(operatorToken, text) }
func (p *parser) keyword(text string) bool { return p.accept(nameToken, text) }

func (p *parser) expectOp(text string) {
	if !p.op(text) {
		p.fail("%v stands where %q is wanted", p.peek(), text)
	}
}

func (p *parser) expectName() string {
	t := p.take()
	if t.kind != nameToken {
		p.fail("%v stands where a name is wanted", t)
	}
	return t.text
}

func (p *parser) close(text string) {
	if t := p.take(); t.kind != closeToken || t.text != text {
		p.fail("%v stands where %q is wanted", t, text)
	}
}

// within counts one more level while something is parsed.
func within[T any](p *parser, parse func() T) T {
	if p.depth++; p.depth > maxSyntax {
		fail("%w: more than %d levels", ErrLimit, maxSyntax)
	}
	v := parse()
	p.depth--
	return v
}

// statement reports whether a statement of one of these names comes next.
func (p *parser) statement(names ...string) bool {
	return p.is(openToken, "{%") && p.tokens[p.at+1].kind == nameToken && slices.Contains(names, p.tokens[p.at+1].text)
}

// block parses up to a statement that is the end of something.
func (p *parser) block(ends ...string) []stmt {
	return within(p, func() []stmt {
		var list []stmt
		for {
			switch t := p.peek(); {
			case t.kind == textToken:
				list = append(list, textStmt{Plain(t.text)})
				p.at++
			case t.kind == openToken && t.text == "{{":
				p.at++
				list = append(list, outputStmt{p.tuple()})
				p.close("}}")
			case t.kind == openToken && !p.statement(ends...):
				p.at++
				word := p.expectName()
				parse, ok := statements[word]
				if !ok {
					p.at-- // the error names this line
					p.fail("there is no statement %q", word)
				}
				list = append(list, parse(p)...)
			default:
				if len(ends) > 0 && t.kind == endToken {
					p.fail("the template ends where %q is wanted", ends[len(ends)-1])
				}
				return list
			}
		}
	})
}

// end takes the statement that ends a block.
func (p *parser) end(name string) {
	p.take()
	if got := p.expectName(); got != name {
		p.fail("%q stands where %q is wanted", got, name)
	}
	p.close("%}")
}

// statements parse what follows their name. Filled by init, since they parse each other.
var statements map[string]func(*parser) []stmt

func init() {
	statements = map[string]func(*parser) []stmt{
		"if": (*parser).ifStatement, "for": (*parser).forStatement, "set": (*parser).setStatement,
		"macro": (*parser).macroStatement, "call": (*parser).callStatement, "filter": (*parser).filterStatement,
		"with":       (*parser).withStatement,
		"break":      func(p *parser) []stmt { return p.leave(breakLoop) },
		"continue":   func(p *parser) []stmt { return p.leave(continueLoop) },
		"generation": (*parser).generationStatement,
	}
}

func (p *parser) ifStatement() []stmt {
	s := &ifStmt{test: p.expr()}
	p.close("%}")
	s.then = p.block("elif", "else", "endif")
	switch {
	case p.statement("elif"):
		p.at += 2
		s.otherwise = within(p, p.ifStatement)
		return []stmt{s} // its last branch took the end
	case p.statement("else"):
		p.at += 2
		p.close("%}")
		s.otherwise = p.block("endif")
	}
	p.end("endif")
	return []stmt{s}
}

func (p *parser) forStatement() []stmt {
	s := &forStmt{vars: p.names()}
	if !p.keyword("in") {
		p.fail("%v stands where \"in\" is wanted", p.peek())
	}
	s.of = p.tupleOf(p.or)
	if p.keyword("if") {
		s.test = p.or()
		if p.keyword("else") { // `for x in a if c else b`
			s.of, s.test = &condExpr{s.test, s.of, p.expr()}, nil
		}
	}
	p.close("%}")
	p.loops++
	s.body = p.block("else", "endfor")
	p.loops--
	if p.statement("else") {
		p.at += 2
		p.close("%}")
		s.otherwise = p.block("endfor")
	}
	p.end("endfor")
	return []stmt{s}
}

// names are variables with commas between, in parentheses or not.
func (p *parser) names() []string {
	if p.op("(") {
		list := p.names()
		p.expectOp(")")
		return list
	}
	list := []string{p.expectName()}
	for p.op(",") {
		if p.peek().kind != nameToken {
			break
		}
		list = append(list, p.expectName())
	}
	return list
}

func (p *parser) setStatement() []stmt {
	targets := []target{p.target()}
	for p.op(",") {
		targets = append(targets, p.target())
	}
	if p.op("=") {
		s := &setStmt{targets, p.tuple()}
		p.close("%}")
		return []stmt{s}
	}
	if len(targets) > 1 {
		p.fail("a block is set to one variable")
	}
	s := &setBlockStmt{target: targets[0], filter: p.filters()}
	p.close("%}")
	s.body = p.body("endset")
	return []stmt{s}
}

// body is a block that no loop can be left from.
func (p *parser) body(end string) []stmt {
	loops := p.loops
	p.loops = 0
	list := p.block(end)
	p.loops = loops
	p.end(end)
	return list
}

func (p *parser) target() target {
	t := target{name: p.expectName()}
	if p.op(".") {
		t.attribute = p.expectName()
	}
	return t
}

// filters are those of a block: `| a | b`.
func (p *parser) filters() []filterCall {
	var list []filterCall
	for p.op("|") {
		list = append(list, p.filter())
	}
	return list
}

func (p *parser) macroStatement() []stmt {
	s := &macroStmt{name: p.expectName()}
	p.params(&s.macro)
	p.close("%}")
	s.body = p.body("endmacro")
	return []stmt{s}
}

func (p *parser) params(m *macro) {
	p.expectOp("(")
	for !p.op(")") {
		name := p.expectName()
		if slices.Contains(m.params, name) {
			p.fail("parameter %q stands twice", name)
		}
		m.params = append(m.params, name)
		var value expr
		if p.op("=") {
			value = p.expr()
		} else if n := len(m.defaults); n > 0 && m.defaults[n-1] != nil {
			p.fail("parameter %q needs a default, as the one before it has", name)
		}
		m.defaults = append(m.defaults, value)
		if !p.op(",") && !p.is(operatorToken, ")") {
			p.fail("%v stands where \")\" is wanted", p.peek())
		}
	}
}

func (p *parser) callStatement() []stmt {
	s := &callStmt{}
	if p.is(operatorToken, "(") {
		p.params(&s.caller)
	}
	call, ok := p.expr().(*callExpr)
	if !ok {
		p.fail("a call block needs a call")
	}
	s.call = call
	p.close("%}")
	s.caller.body = p.body("endcall")
	return []stmt{s}
}

func (p *parser) filterStatement() []stmt {
	s := &filterStmt{filters: []filterCall{p.filter()}}
	s.filters = append(s.filters, p.filters()...)
	p.close("%}")
	s.body = p.body("endfilter")
	return []stmt{s}
}

func (p *parser) withStatement() []stmt {
	s := &withStmt{}
	for !p.is(closeToken, "%}") {
		s.names = append(s.names, p.expectName())
		p.expectOp("=")
		s.values = append(s.values, p.expr())
		if !p.op(",") {
			break
		}
	}
	p.close("%}")
	s.body = p.block("endwith")
	p.end("endwith")
	return []stmt{s}
}

func (p *parser) leave(s signal) []stmt {
	if p.loops == 0 {
		p.fail("there is no loop to leave or go on with")
	}
	p.close("%}")
	return []stmt{signalStmt{s}}
}

// generationStatement: the tag tells trainers what a model wrote, and renders nothing.
func (p *parser) generationStatement() []stmt {
	p.close("%}")
	list := p.block("endgeneration")
	p.end("endgeneration")
	return list
}

// tuple is an expression, or several with commas between.
func (p *parser) tuple() expr { return p.tupleOf(p.expr) }

func (p *parser) tupleOf(parse func() expr) expr {
	e := parse()
	if !p.is(operatorToken, ",") {
		return e
	}
	l := &listExpr{items: []expr{e}}
	for p.op(",") {
		if t := p.peek(); t.kind == closeToken || t.kind == operatorToken && t.text == ")" {
			break
		}
		l.items = append(l.items, parse())
	}
	return l
}

func (p *parser) expr() expr {
	return within(p, func() expr {
		e := p.or()
		if !p.keyword("if") {
			return e
		}
		c := &condExpr{test: p.or(), then: e}
		if p.keyword("else") {
			c.otherwise = p.expr()
		}
		return c
	})
}

// chained bounds what grows to the left without a level of its own.
func (p *parser) chained(n *int) {
	if *n++; *n > maxChained {
		fail("%w: more than %d operators in a row", ErrLimit, maxChained)
	}
}

func (p *parser) or() expr {
	e, n := p.and(), 0
	for p.keyword("or") {
		p.chained(&n)
		e = &logicExpr{e, p.and(), true}
	}
	return e
}

func (p *parser) and() expr {
	e, n := p.not(), 0
	for p.keyword("and") {
		p.chained(&n)
		e = &logicExpr{e, p.not(), false}
	}
	return e
}

func (p *parser) not() expr {
	if p.keyword("not") {
		return within(p, func() expr { return &notExpr{p.not()} })
	}
	return p.comparison()
}

func (p *parser) comparison() expr {
	e := p.sum()
	for n := 0; ; p.chained(&n) {
		t := p.peek()
		switch {
		case t.kind == nameToken && t.text == "not" && p.tokens[p.at+1] == token{nameToken, "in", p.tokens[p.at+1].line}:
			p.at += 2
			e = &notExpr{p.binary("in", e, p.sum())}
		case t.kind == nameToken && t.text == "in",
			t.kind == operatorToken && slices.Contains([]string{"==", "!=", "<", "<=", ">", ">="}, t.text):
			p.at++
			e = p.binary(t.text, e, p.sum())
		default:
			return e
		}
	}
}

func (p *parser) binary(op string, a, b expr) expr {
	return &binaryExpr{a, b, op, binaryOps[op]}
}

// level parses operators of one rank, from left to right.
func (p *parser) level(next func() expr, ops ...string) expr {
	e := next()
	for n := 0; ; p.chained(&n) {
		t := p.peek()
		if t.kind != operatorToken || !slices.Contains(ops, t.text) {
			return e
		}
		p.at++
		e = p.binary(t.text, e, next())
	}
}

func (p *parser) sum() expr     { return p.level(p.product, "+", "-", "~") }
func (p *parser) product() expr { return p.level(p.power, "*", "/", "//", "%") }
func (p *parser) power() expr   { return p.level(p.filtered, "**") }

// filtered is what filters and tests follow.
func (p *parser) filtered() expr {
	e := p.sign()
	for n := 0; ; p.chained(&n) {
		switch {
		case p.op("|"):
			e = &filterExpr{e, p.filter()}
		case p.keyword("is"):
			e = p.test(e)
		default:
			return e
		}
	}
}

func (p *parser) filter() filterCall {
	f := filterCall{name: p.expectName()}
	var ok bool
	if f.filter, ok = filters[f.name]; !ok {
		p.fail("there is no filter %q", f.name)
	}
	if p.op("(") {
		f.args = p.arguments()
	}
	return f
}

// endsTest are names that cannot be a test's argument.
var endsTest = []string{"and", "or", "not", "if", "else", "is", "in"}

func (p *parser) test(of expr) expr {
	e := &testExpr{of: of, negate: p.keyword("not")}
	name := p.expectName()
	var ok bool
	if e.test, ok = tests[name]; !ok {
		p.fail("there is no test %q", name)
	}
	switch t := p.peek(); {
	case p.op("("):
		e.args = p.arguments()
	case t.kind == stringToken, t.kind == intToken, t.kind == floatToken,
		t.kind == nameToken && !slices.Contains(endsTest, t.text), t.kind == operatorToken && (t.text == "[" || t.text == "{"):
		e.args.pos = []expr{p.postfix()}
	}
	return e
}

func (p *parser) sign() expr {
	for _, minus := range []bool{true, false} {
		if p.op(map[bool]string{true: "-", false: "+"}[minus]) {
			return within(p, func() expr { return &signExpr{p.sign(), minus} })
		}
	}
	return p.postfix()
}

func (p *parser) postfix() expr {
	e := p.primary()
	for n := 0; ; p.chained(&n) {
		switch {
		case p.op("."):
			if t := p.take(); t.kind == intToken {
				e = &item{e, number64(t)}
			} else if t.kind == nameToken {
				e = &attribute{e, t.text}
			} else {
				p.fail("%v stands where a name is wanted", t)
			}
		case p.op("["):
			e = p.subscript(e)
		case p.op("("):
			e = &callExpr{e, p.arguments()}
		default:
			return e
		}
	}
}

func (p *parser) subscript(of expr) expr {
	var parts [3]expr
	n, colons := 0, 0
	for !p.op("]") {
		if p.op(":") {
			colons++
			n = colons
			continue
		}
		if n > 2 || parts[n] != nil {
			p.fail("%v stands where \"]\" is wanted", p.peek())
		}
		parts[n] = p.expr()
	}
	switch {
	case colons > 2:
		p.fail("a slice has three parts at most")
	case colons > 0:
		return &sliceExpr{of, parts[0], parts[1], parts[2]}
	case parts[0] == nil:
		p.fail("nothing stands between [ and ]")
	}
	return &item{of, parts[0]}
}

func (p *parser) arguments() arguments {
	var a arguments
	for !p.op(")") {
		switch {
		case p.op("**"):
			a.kwMap = p.expr()
		case p.op("*"):
			if a.spread > 0 {
				p.fail("* stands twice")
			}
			a.pos = append(a.pos, p.expr())
			a.spread = len(a.pos)
		default:
			e := p.expr()
			if !p.op("=") {
				if len(a.names) > 0 || a.kwMap != nil {
					p.fail("an argument without a name follows one with a name")
				}
				a.pos = append(a.pos, e)
				break
			}
			key, ok := e.(*name)
			if !ok {
				p.fail("what stands before = is no name")
			}
			if slices.Contains(a.names, key.name) {
				p.fail("argument %q stands twice", key.name)
			}
			a.names = append(a.names, key.name)
			a.kw = append(a.kw, p.expr())
		}
		if !p.op(",") && !p.is(operatorToken, ")") {
			p.fail("%v stands where \")\" is wanted", p.peek())
		}
	}
	return a
}

// constants are names with a value that cannot be set.
var constants = map[string]Value{
	"true": Bool(true), "True": Bool(true), "false": Bool(false), "False": Bool(false), "none": None{}, "None": None{},
}

func number64(t token) *literal {
	if i, err := strconv.ParseInt(t.text, 10, 64); err == nil {
		return &literal{Int(i)}
	}
	f, err := strconv.ParseFloat(t.text, 64)
	if err != nil {
		fail("number %s: %w", t.text, err)
	}
	return &literal{Float(f)}
}

func (p *parser) primary() expr {
	switch t := p.take(); t.kind {
	case nameToken:
		if v, ok := constants[t.text]; ok {
			return &literal{v}
		}
		return &name{t.text}
	case intToken, floatToken:
		return number64(t)
	case stringToken:
		s := t.text
		for p.peek().kind == stringToken {
			s += p.take().text
		}
		return &literal{Plain(s)}
	case operatorToken:
		switch t.text {
		case "(":
			if p.op(")") {
				return &listExpr{}
			}
			e := p.tuple()
			p.expectOp(")")
			return e
		case "[":
			l := &listExpr{}
			for !p.op("]") {
				l.items = append(l.items, p.expr())
				if !p.op(",") && !p.is(operatorToken, "]") {
					p.fail("%v stands where \"]\" is wanted", p.peek())
				}
			}
			return l
		case "{":
			d := &dictExpr{}
			for !p.op("}") {
				d.keys = append(d.keys, p.expr())
				p.expectOp(":")
				d.values = append(d.values, p.expr())
				if !p.op(",") && !p.is(operatorToken, "}") {
					p.fail("%v stands where \"}\" is wanted", p.peek())
				}
			}
			return d
		}
		p.fail("%v stands where an expression is wanted", t)
	default:
		p.fail("%v stands where an expression is wanted", t)
	}
	return nil
}
