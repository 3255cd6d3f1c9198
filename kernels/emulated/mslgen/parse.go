package mslgen

import (
	"slices"
	"strings"
)

// parameter of a function or template.
type parameter struct {
	Pos
	name    string
	typ     []token // without address space, cv and attributes
	space   string
	konst   bool
	pointer int
	ref     bool
	attrs   []attribute
	deflt   []token // default argument of a template parameter
	isType  bool    // typename T
	tokens  []token
}

type attribute struct {
	Pos
	name string
	args []token
}

type function struct {
	Pos
	name     string
	template []parameter // nil: not a template
	kernel   bool
	method   bool
	spaces   map[string]bool // address spaces of objects that a method can be called on
	attrs    []attribute
	params   []parameter
	open     int // token index of the body's braces
	close    int
	first    int // token index of the declaration's first token
	vars     []*groupVar
}

// groupVar is a threadgroup variable as declared; its size depends on the instance.
type groupVar struct {
	Pos
	name string
	typ  []token
	dims [][]token
	at   int   // token index of its statement
	size []int // in each instance of the kernel
}

type instance struct {
	Pos
	host string
	name string
	args [][]token
}

type structure struct {
	fields  []parameter
	dims    [][][]token
	isUnion bool
	packed  bool
}

type parser struct {
	unit      *Unit
	tokens    []token
	edits     map[int]string // replacement text by token index
	meetings  map[int]int    // number of the call by index of its closing parenthesis
	before    map[int]string // macros of instrumented builds before a token: see mark
	marks     int
	funcs     []*function
	structs   map[string]*structure
	enums     map[string]bool
	aliases   map[string][]token
	fields    map[string]Pos // all field names of all structs
	defines   map[string][]token
	derived   map[string][]token // constants computed from function constants
	derivedAt map[string]string  // their types
	instances []instance
	byName    map[string][]*function
}

func newParser(u *Unit, tokens []token) *parser {
	return &parser{
		unit: u, tokens: tokens, edits: map[int]string{}, meetings: map[int]int{}, before: map[int]string{}, structs: map[string]*structure{}, enums: map[string]bool{}, aliases: map[string][]token{},
		fields: map[string]Pos{}, defines: map[string][]token{}, derived: map[string][]token{},
		derivedAt: map[string]string{}, byName: map[string][]*function{},
	}
}

func (p *parser) tok(i int) token {
	if i >= 0 && i < len(p.tokens) {
		return p.tokens[i]
	}
	return token{Pos: p.end(), kind: punct}
}

func (p *parser) end() Pos {
	if n := len(p.tokens); n > 0 {
		return p.tokens[n-1].Pos
	}
	return Pos{p.unit.Path, 1}
}

var closers = map[string]string{"(": ")", "[": "]", "{": "}"}

// match returns the index of the bracket that closes the one at i.
func (p *parser) match(i int) (int, error) {
	if t := p.tok(i); t.kind != punct || closers[t.text] == "" {
		return 0, errorAt(t.Pos, "a bracket was expected, not %q", t.text)
	}
	var stack []string
	for j := i; j < len(p.tokens); j++ {
		t := p.tokens[j]
		if t.kind != punct {
			continue
		}
		if c, ok := closers[t.text]; ok {
			stack = append(stack, c)
		} else if t.text == ")" || t.text == "]" || t.text == "}" {
			if t.text != stack[len(stack)-1] {
				return 0, errorAt(t.Pos, "%q where %q was expected (opened at %s)", t.text, stack[len(stack)-1], p.tokens[i].Pos)
			}
			if stack = stack[:len(stack)-1]; len(stack) == 0 {
				return j, nil
			}
		}
	}
	return 0, errorAt(p.tokens[i].Pos, "%q is never closed", p.tokens[i].text)
}

// angle returns the index of the '>' that closes the '<' at i, or -1 if it reads
// as a comparison.
func angle(tokens []token, i int) int {
	depth, paren := 0, 0
	for j := i; j < len(tokens); j++ {
		switch t := tokens[j]; {
		case t.is("(") || t.is("["):
			paren++
		case t.is(")") || t.is("]"):
			if paren--; paren < 0 {
				return -1
			}
		case t.is("{") || t.is("}") || t.is(";"):
			return -1
		case t.is("<") && paren == 0:
			depth++
		case t.is(">") && paren == 0:
			if depth--; depth == 0 {
				return j
			}
		}
	}
	return -1
}

func (p *parser) isAttribute(i int) bool {
	return p.tok(i).is("[") && p.tok(i+1).is("[") && !p.tok(i+1).space
}

// attribute reads [[a, b(c)]] at i and returns the index after it.
func (p *parser) attribute(i int) ([]attribute, int, error) {
	end, err := p.match(i)
	if err != nil {
		return nil, 0, err
	}
	if !p.tok(end - 1).is("]") {
		return nil, 0, errorAt(p.tok(i).Pos, "attribute is not closed by ]]")
	}
	var out []attribute
	for j := i + 2; j < end-1; {
		a := attribute{Pos: p.tok(j).Pos, name: p.tok(j).text}
		if p.tok(j).kind != ident {
			return nil, 0, errorAt(a.Pos, "attribute name expected, not %q", a.name)
		}
		if j++; p.tok(j).is("::") {
			a.name += "::" + p.tok(j+1).text
			j += 2
		}
		if p.tok(j).is("(") {
			close, err := p.match(j)
			if err != nil {
				return nil, 0, err
			}
			a.args = p.tokens[j+1 : close]
			j = close + 1
		}
		out = append(out, a)
		if p.tok(j).is(",") {
			j++
		} else if j < end-1 {
			return nil, 0, errorAt(p.tok(j).Pos, "%q in an attribute list", p.tok(j).text)
		}
	}
	return out, end + 1, nil
}

func (a attribute) integer() (int, error) {
	v, err := evaluate(a.args, func(string) (int64, bool) { return 0, false })
	if err != nil || v < 0 || v > 1<<20 {
		return 0, errorAt(a.Pos, "%s takes an index: %q", a.name, join(a.args))
	}
	return int(v), nil
}

func (p *parser) parse() error {
	i, err := p.declarations(0, false)
	if err != nil {
		return err
	}
	if i >= 0 && i < len(p.tokens) {
		return errorAt(p.tok(i).Pos, "unexpected %q", p.tok(i).text)
	}
	return nil
}

// declarations parses until the end of the file or of a namespace.
func (p *parser) declarations(i int, nested bool) (int, error) {
	for i < len(p.tokens) {
		t := p.tok(i)
		var err error
		switch {
		case t.is(";"):
			i++
		case t.is("}") && nested:
			return i, nil
		case t.is("namespace") || t.is("inline") && p.tok(i+1).is("namespace"):
			for i < len(p.tokens) && !p.tok(i).is("{") && !p.tok(i).is(";") {
				i++
			}
			if p.tok(i).is(";") {
				continue
			}
			if i, err = p.declarations(i+1, true); err == nil && !p.tok(i).is("}") {
				err = errorAt(t.Pos, "namespace is never closed")
			}
			i++
		case t.is("using") || t.is("typedef") || t.is("static_assert"):
			i, err = p.alias(i)
		case t.is("template"):
			i, err = p.template(i)
		default:
			i, err = p.declaration(i, i, nil)
		}
		if err != nil {
			return 0, err
		}
	}
	if nested {
		return i, errorAt(p.end(), "namespace is never closed")
	}
	return i, nil
}

// statement returns the index of the ';' that ends the statement at i.
func (p *parser) statement(i int) (int, error) {
	for j := i; j < len(p.tokens); j++ {
		switch t := p.tok(j); {
		case t.is(";"):
			return j, nil
		case t.kind == punct && closers[t.text] != "":
			var err error
			if j, err = p.match(j); err != nil {
				return 0, err
			}
		case t.is("}"):
			return 0, errorAt(t.Pos, "missing ;")
		}
	}
	return 0, errorAt(p.tok(i).Pos, "missing ;")
}

func (p *parser) alias(i int) (int, error) {
	end, err := p.statement(i)
	if err != nil {
		return 0, err
	}
	s := p.tokens[i:end]
	switch {
	case s[0].is("using") && len(s) > 3 && s[2].is("="):
		p.aliases[s[1].text] = s[3:]
	case s[0].is("typedef") && len(s) > 2 && s[len(s)-1].kind == ident:
		p.aliases[s[len(s)-1].text] = s[1 : len(s)-1]
	}
	return end + 1, nil
}

func (p *parser) template(i int) (int, error) {
	first := i
	i++
	if !p.tok(i).is("<") {
		return p.instantiation(first)
	}
	end := angle(p.tokens, i)
	if end < 0 {
		return 0, errorAt(p.tok(i).Pos, "template parameter list is never closed")
	}
	params := []parameter{}
	for _, part := range split(p.tokens[i+1 : end]) {
		q := parameter{Pos: part[0].Pos, tokens: part}
		if eq := slices.IndexFunc(part, func(t token) bool { return t.is("=") }); eq >= 0 {
			q.deflt = part[eq+1:]
			part = part[:eq]
		}
		if len(part) == 0 {
			return 0, errorAt(q.Pos, "template parameter")
		}
		q.isType = part[0].is("typename") || part[0].is("class")
		if last := part[len(part)-1]; last.kind == ident && (len(part) > 1) {
			q.name = last.text
			q.typ = part[:len(part)-1]
		}
		params = append(params, q)
	}
	if p.tok(end+1).is("using") || p.tok(end+1).is("static_assert") {
		j, err := p.statement(end + 1)
		return j + 1, err
	}
	if p.tok(end + 1).is("template") {
		return 0, errorAt(p.tok(end+1).Pos, "nested template parameter lists are not supported")
	}
	return p.declaration(first, end+1, params)
}

// split cuts tokens at the commas outside brackets and template arguments.
func split(tokens []token) [][]token {
	var out [][]token
	depth, last := 0, 0
	for i := 0; i < len(tokens); i++ {
		switch t := tokens[i]; {
		case t.kind == punct && closers[t.text] != "":
			depth++
		case t.is(")") || t.is("]") || t.is("}"):
			depth--
		case t.is("<") && i > 0 && tokens[i-1].kind == ident:
			if j := angle(tokens, i); j > 0 {
				i = j
			}
		case t.is(",") && depth == 0:
			out = append(out, tokens[last:i])
			last = i + 1
		}
	}
	if last < len(tokens) {
		out = append(out, tokens[last:])
	}
	return slices.DeleteFunc(out, func(s []token) bool { return len(s) == 0 })
}

// instantiation reads `template [[host_name("x")]] kernel void f<half>(…);` or the
// same with decltype(f<half>) in front.
func (p *parser) instantiation(first int) (int, error) {
	end, err := p.statement(first)
	if err != nil {
		return 0, err
	}
	inst := instance{Pos: p.tok(first).Pos}
	i := first + 1
	for p.isAttribute(i) {
		attrs, next, err := p.attribute(i)
		if err != nil {
			return 0, err
		}
		for _, a := range attrs {
			if a.name != "host_name" {
				continue
			}
			for _, t := range a.args {
				if t.kind != text {
					return 0, errorAt(a.Pos, "host_name takes a string")
				}
				inst.host += strings.Trim(t.text, `"`)
			}
		}
		i = next
	}
	if inst.host == "" {
		return 0, errorAt(inst.Pos, "explicit instantiation without [[host_name(\"…\")]]")
	}
	for ; i < end; i++ {
		if p.tok(i).is("(") {
			break // the parameters: they repeat the template's
		}
		if p.tok(i).is("decltype") && p.tok(i+1).is("(") {
			if i, err = p.match(i + 1); err != nil {
				return 0, err
			}
			continue
		}
		if p.tok(i).kind == ident && p.tok(i+1).is("<") {
			j := angle(p.tokens[:end], i+1)
			if j < 0 {
				return 0, errorAt(p.tok(i).Pos, "template arguments are never closed")
			}
			inst.name, inst.args = p.tok(i).text, split(p.tokens[i+2:j])
			i = j
		}
	}
	if inst.name == "" {
		return 0, errorAt(inst.Pos, "instantiation %q must spell the template arguments: kernel void f<half>(…)", inst.host)
	}
	p.instances = append(p.instances, inst)
	p.remove(first, end)
	return end + 1, nil
}

// remove drops tokens first … last from the output.
func (p *parser) remove(first, last int) {
	for i := first; i <= last; i++ {
		p.edits[i] = ""
	}
}

var spaces = map[string]bool{"device": true, "constant": true, "threadgroup": true, "thread": true, "threadgroup_imageblock": true}

var qualifiers = map[string]bool{"static": true, "inline": true, "constexpr": true, "const": true, "volatile": true, "extern": true}

// declaration reads a function, a type or a variable at program scope. first is
// where it begins, `template <…>` included.
func (p *parser) declaration(first, i int, template []parameter) (int, error) {
	f := &function{Pos: p.tok(i).Pos, first: first, template: template}
	start := i
	for {
		t := p.tok(i)
		switch {
		case p.isAttribute(i):
			attrs, next, err := p.attribute(i)
			if err != nil {
				return 0, err
			}
			f.attrs = append(f.attrs, attrs...)
			i = next
			continue
		case t.is("kernel"):
			f.kernel = true
			f.Pos = t.Pos
			i++
			continue
		case t.is("vertex") || t.is("fragment"):
			return 0, errorAt(t.Pos, "only kernel functions are supported")
		case t.kind == ident && (qualifiers[t.text] || spaces[t.text]):
			i++
			continue
		}
		break
	}
	if slices.ContainsFunc(f.attrs, func(a attribute) bool { return a.name == "kernel" }) {
		f.kernel = true
	}
	if t := p.tok(i); t.is("struct") || t.is("class") || t.is("union") || t.is("enum") {
		if next, ok, err := p.typeDefinition(i, len(template) > 0); ok || err != nil {
			return next, err
		}
	}
	typeAt := i
	nameAt := -1 // the last identifier, as attributes may stand between it and '('
	for ; i < len(p.tokens); i++ {
		t := p.tok(i)
		switch {
		case t.is("<"):
			j := angle(p.tokens, i)
			if j < 0 {
				return 0, errorAt(t.Pos, "template arguments are never closed")
			}
			i = j
			continue
		case t.is("decltype") && p.tok(i+1).is("("):
			j, err := p.match(i + 1)
			if err != nil {
				return 0, err
			}
			i = j
			continue
		case t.is("operator"):
			j := i + 1
			for j < len(p.tokens) && (!p.tok(j).is("(") || p.tok(j-1).is("operator")) {
				j++
			}
			f.name = join(p.tokens[i:j])
			i = j - 1
			continue
		case p.isAttribute(i):
			attrs, next, err := p.attribute(i)
			if err != nil {
				return 0, err
			}
			f.attrs = append(f.attrs, attrs...)
			i = next - 1
			continue
		case t.is("("):
			if f.name == "" {
				if nameAt < 0 {
					return 0, errorAt(t.Pos, "function name expected before (")
				}
				f.name = p.tok(nameAt).text
			}
			if f.kernel && !(p.tok(typeAt).is("void") && nameAt == typeAt+1) {
				return 0, errorAt(p.tok(typeAt).Pos, "kernel %s must return void", f.name)
			}
			return p.function(f, i)
		case t.is("=") || t.is(";") || t.is("[") || t.is("{"):
			if template != nil {
				return 0, errorAt(f.Pos, "variable templates are not supported")
			}
			return p.variable(f, start, typeAt, i)
		case t.is("}") || t.is(")"):
			return 0, errorAt(t.Pos, "unexpected %q", t.text)
		case t.kind == ident:
			nameAt = i
		default:
			nameAt = -1
		}
	}
	return 0, errorAt(p.tok(start).Pos, "declaration is never ended")
}
