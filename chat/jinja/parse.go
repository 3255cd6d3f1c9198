package jinja

import (
	"fmt"
	"slices"
	"strconv"
)

// Bounds on templates. The largest templates in use have 20 kB and a nesting depth of 12.
const (
	maxSource  = 256 << 10
	maxSyntax  = 200     // nesting depth of parentheses and blocks
	maxNodes   = 100_000 // tokens of a template
	maxChained = 500     // consecutive operators, filters or attributes
)

// Template is a parsed template. It is safe for concurrent use.
type Template struct{ body []stmt }

// Parse parses a template. Errors name the line.
func Parse(source string) (t *Template, err error) {
	if len(source) > maxSource {
		return nil, fmt.Errorf("%w: the template has %d bytes, more than %d", ErrLimit, len(source), maxSource)
	}
	tokens, err := lex(source)
	if err != nil {
		return nil, err
	}
	if len(tokens) > maxNodes {
		return nil, fmt.Errorf("%w: the template has %d tokens, more than %d", ErrLimit, len(tokens), maxNodes)
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
	loops  int // number of enclosing loops
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
		p.fail("unexpected %v, want %q", p.peek(), text)
	}
}

func (p *parser) expectName() string {
	t := p.take()
	if t.kind != nameToken {
		p.fail("unexpected %v, want a name", t)
	}
	return t.text
}

func (p *parser) close(text string) {
	if t := p.take(); t.kind != closeToken || t.text != text {
		p.fail("unexpected %v, want %q", t, text)
	}
}

// within calls parse one level deeper.
func within[T any](p *parser, parse func() T) T {
	if p.depth++; p.depth > maxSyntax {
		fail("%w: more than %d levels", ErrLimit, maxSyntax)
	}
	v := parse()
	p.depth--
	return v
}

// statement reports whether the next tag is one of these statements.
func (p *parser) statement(names ...string) bool {
	return p.is(openToken, "{%") && p.tokens[p.at+1].kind == nameToken && slices.Contains(names, p.tokens[p.at+1].text)
}

// block parses statements and text up to one of the statements in ends.
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
					p.at-- // so that the error names this line
					p.fail("unknown statement %q", word)
				}
				list = append(list, parse(p)...)
			default:
				if len(ends) > 0 && t.kind == endToken {
					p.fail("unexpected end of the template, want %q", ends[len(ends)-1])
				}
				return list
			}
		}
	})
}

// end parses the statement that ends a block.
func (p *parser) end(name string) {
	p.take()
	if got := p.expectName(); got != name {
		p.fail("unexpected %q, want %q", got, name)
	}
	p.close("%}")
}

// statements parse the rest of a statement behind its name. Set by init, since they refer to the
// table.
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
		return []stmt{s} // its last branch has parsed the endif
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
		p.fail("unexpected %v, want \"in\"", p.peek())
	}
	s.of = p.tupleOf(p.or)
	if p.keyword("if") {
		s.test = p.or()
		if p.keyword("else") { // `for x in a if c else b`
			s.of, s.test = &condExpr{s.test, s.of, p.expr()}, nil
		}
	}
	s.recursive = p.keyword("recursive")
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

// names parses variables separated by commas, optionally in parentheses.
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
		p.fail("set with a block takes one variable")
	}
	s := &setBlockStmt{target: targets[0], filter: p.filters()}
	p.close("%}")
	s.body = p.body("endset")
	return []stmt{s}
}

// body parses a block across which no break or continue reaches.
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

// filters parses the filters of a block: `| a | b`.
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
			p.fail("duplicate parameter %q", name)
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
			p.fail("unexpected %v, want \")\"", p.peek())
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
		p.fail("break or continue outside of a loop")
	}
	p.close("%}")
	return []stmt{signalStmt{s}}
}

// generationStatement parses generation, which marks the model's text for training and renders its
// body.
func (p *parser) generationStatement() []stmt {
	p.close("%}")
	list := p.block("endgeneration")
	p.end("endgeneration")
	return list
}

// tuple parses one expression, or several separated by commas.
func (p *parser) tuple() expr { return p.tupleOf(p.expr) }

func (p *parser) tupleOf(parse func() expr) expr {
	e := parse()
	if !p.is(operatorToken, ",") {
		return e
	}
	l := &listExpr{items: []expr{e}, form: tuple}
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

// chained bounds left-recursive expressions, which do not nest.
func (p *parser) chained(n *int) {
	if *n++; *n > maxChained {
		fail("%w: more than %d consecutive operators", ErrLimit, maxChained)
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
	c := &compareExpr{of: p.sum()}
	for n := 0; ; p.chained(&n) {
		t := p.peek()
		op := t.text
		switch {
		case t.kind == nameToken && op == "not" && p.tokens[p.at+1] == token{nameToken, "in", p.tokens[p.at+1].line}:
			p.at += 2
			op = "not in"
		case t.kind == nameToken && op == "in",
			t.kind == operatorToken && slices.Contains([]string{"==", "!=", "<", "<=", ">", ">="}, op):
			p.at++
		case len(c.with) == 0:
			return c.of
		default:
			return c
		}
		c.with = append(c.with, comparand{op, binaryOps[op], p.sum()})
	}
}

func (p *parser) binary(op string, a, b expr) expr {
	return &binaryExpr{a, b, op, binaryOps[op]}
}

// level parses left-associative operators of one precedence.
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

// filtered parses an expression with its filters and tests.
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
		p.fail("unknown filter %q", f.name)
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
		p.fail("unknown test %q", name)
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
				p.fail("unexpected %v, want a name", t)
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
			p.fail("unexpected %v, want \"]\"", p.peek())
		}
		parts[n] = p.expr()
	}
	switch {
	case colons > 2:
		p.fail("a slice has at most three parts")
	case colons > 0:
		return &sliceExpr{of, parts[0], parts[1], parts[2]}
	case parts[0] == nil:
		p.fail("empty index")
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
				p.fail("duplicate *")
			}
			a.pos = append(a.pos, p.expr())
			a.spread = len(a.pos)
		default:
			e := p.expr()
			if !p.op("=") {
				if len(a.names) > 0 || a.kwMap != nil {
					p.fail("positional argument behind a named one")
				}
				a.pos = append(a.pos, e)
				break
			}
			key, ok := e.(*name)
			if !ok {
				p.fail("want a name before =")
			}
			if slices.Contains(a.names, key.name) {
				p.fail("duplicate argument %q", key.name)
			}
			a.names = append(a.names, key.name)
			a.kw = append(a.kw, p.expr())
		}
		if !p.op(",") && !p.is(operatorToken, ")") {
			p.fail("unexpected %v, want \")\"", p.peek())
		}
	}
	return a
}

// constants are names whose value is fixed.
var constants = map[string]Value{
	"true": Bool(true), "True": Bool(true), "false": Bool(false), "False": Bool(false), "none": None{}, "None": None{},
}

func number64(t token) *literal {
	i, err := integerOf(t.text)
	if err != nil {
		fail("%w", err)
	}
	if i != nil {
		return &literal{i}
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
				return &listExpr{form: tuple}
			}
			e := p.tuple()
			p.expectOp(")")
			return e
		case "[":
			l := &listExpr{}
			for !p.op("]") {
				l.items = append(l.items, p.expr())
				if !p.op(",") && !p.is(operatorToken, "]") {
					p.fail("unexpected %v, want \"]\"", p.peek())
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
					p.fail("unexpected %v, want \"}\"", p.peek())
				}
			}
			return d
		}
		p.fail("unexpected %v, want an expression", t)
	default:
		p.fail("unexpected %v, want an expression", t)
	}
	return nil
}
