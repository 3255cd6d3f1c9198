package mslgen

import (
	"fmt"
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
}

// define is `constexpr T name = value` at program scope or in a kernel body.
type define struct {
	name  string
	value []token
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
		unit: u, tokens: tokens, edits: map[int]string{}, meetings: map[int]int{}, structs: map[string]*structure{}, enums: map[string]bool{}, aliases: map[string][]token{},
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

// declarations reads until the end of the file or of a namespace.
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

// statement returns the index of the ';' that ends what begins at i.
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

// typeDefinition reads a struct, union or enum with a body; ok is false when what
// is there only names a type.
func (p *parser) typeDefinition(i int, template bool) (next int, ok bool, err error) {
	kind := p.tok(i).text
	j := i + 1
	packed := false
	if kind == "enum" && (p.tok(j).is("class") || p.tok(j).is("struct")) {
		j++
	}
	for p.isAttribute(j) {
		attrs, next, err := p.attribute(j)
		if err != nil {
			return 0, true, err
		}
		packed = packed || slices.ContainsFunc(attrs, func(a attribute) bool { return a.name == "packed" })
		j = next
	}
	for p.tok(j).is("__attribute__") {
		end, err := p.match(j + 1)
		if err != nil {
			return 0, true, err
		}
		packed = packed || slices.ContainsFunc(p.tokens[j:end], func(t token) bool { return t.is("packed") || t.is("__packed__") })
		j = end + 1
	}
	name := ""
	if p.tok(j).kind == ident {
		name = p.tok(j).text
		j++
	}
	for j < len(p.tokens) && !p.tok(j).is("{") {
		if p.tok(j).is(";") {
			return j + 1, true, nil // a forward declaration
		}
		if p.tok(j).is("(") || p.tok(j).is("=") || p.tok(j).is("*") {
			return 0, false, nil
		}
		j++
	}
	if j == len(p.tokens) {
		return 0, true, errorAt(p.tok(i).Pos, "%s %s is never ended", kind, name)
	}
	close, err := p.match(j)
	if err != nil {
		return 0, true, err
	}
	if kind == "enum" {
		p.enums[name] = true
		next := int64(0)
		for _, part := range split(p.tokens[j+1 : close]) {
			value := []token{{kind: number, text: fmt.Sprint(next)}}
			if len(part) > 2 && part[1].is("=") {
				value = part[2:]
			}
			if v, err := evaluate(value, p.constant(nil)); err == nil {
				next = v + 1
				p.defines[part[0].text] = []token{{kind: number, text: fmt.Sprint(v)}}
			}
		}
	} else {
		s := &structure{isUnion: kind == "union", packed: packed}
		if err := p.members(s, name, j+1, close); err != nil {
			return 0, true, err
		}
		if name != "" && !template {
			p.structs[name] = s
		}
	}
	end, err := p.statement(close + 1)
	if err != nil {
		return 0, true, err
	}
	if s := p.tokens[close+1 : end]; len(s) > 0 {
		return 0, true, errorAt(s[0].Pos, "a variable of a new type needs a declaration of its own")
	}
	return end + 1, true, nil
}

// members reads the body of a struct: fields for its layout, methods for the call graph.
func (p *parser) members(s *structure, name string, i, end int) error {
	for i < end {
		t := p.tok(i)
		switch {
		case t.is(";"):
			i++
			continue
		case (t.is("public") || t.is("private") || t.is("protected")) && p.tok(i+1).is(":"):
			i += 2
			continue
		case t.is("using") || t.is("typedef") || t.is("static_assert") || t.is("friend"):
			j, err := p.statement(i)
			if err != nil {
				return err
			}
			i = j + 1
			continue
		}
		if (t.is("struct") || t.is("union") || t.is("enum")) && (p.tok(i+1).is("{") || p.tok(i+2).is("{")) {
			return errorAt(t.Pos, "types inside types are not supported")
		}
		first := i
		var template []parameter
		if t.is("template") {
			j := angle(p.tokens, i+1)
			if j < 0 {
				return errorAt(t.Pos, "template parameter list is never closed")
			}
			i, template = j+1, []parameter{}
		}
		start, paren := i, -1
		static := false
		for ; i < end; i++ {
			t := p.tok(i)
			if t.is("static") {
				static = true
			}
			if p.isAttribute(i) {
				_, next, err := p.attribute(i)
				if err != nil {
					return err
				}
				i = next - 1
				continue
			}
			if t.is("<") {
				if j := angle(p.tokens, i); j > 0 {
					i = j
					continue
				}
			}
			if t.is("(") {
				paren = i
				break
			}
			if t.is(";") || t.is("=") || t.is("{") {
				break
			}
		}
		if paren >= 0 {
			f := &function{Pos: p.tok(start).Pos, name: p.tok(paren - 1).text, first: first, template: template, method: true}
			next, err := p.function(f, paren)
			if err != nil {
				return err
			}
			i = next
			continue
		}
		stop, err := p.statement(i)
		if err != nil {
			return err
		}
		if static {
			if k := slices.IndexFunc(p.tokens[start:stop], func(t token) bool { return t.is("=") }); k > 0 {
				p.defines[p.tok(start+k-1).text] = p.tokens[start+k+1 : stop]
			}
		} else {
			fields, dims, err := p.declarators(p.tokens[start:stop])
			if err != nil {
				return err
			}
			for _, f := range fields {
				if swizzle(f.name) != nil && len(f.name) > 1 {
					return errorAt(f.Pos, "field %s.%s reads as a swizzle; give it another name", name, f.name)
				}
				p.fields[f.name] = f.Pos
			}
			s.fields = append(s.fields, fields...)
			s.dims = append(s.dims, dims...)
		}
		i = stop + 1
	}
	return nil
}

// declarators reads `T a, *b, c[2][3]`.
func (p *parser) declarators(tokens []token) ([]parameter, [][][]token, error) {
	var fields []parameter
	var dims [][][]token
	var typ []token
	for n, part := range split(tokens) {
		part = withoutAttributes(part)
		if eq := slices.IndexFunc(part, func(t token) bool { return t.is("=") }); eq >= 0 {
			part = part[:eq]
		}
		f, d, err := declarator(part)
		if err != nil {
			return nil, nil, err
		}
		if n == 0 {
			typ = f.typ
		}
		f.typ = typ
		fields, dims = append(fields, f), append(dims, d)
	}
	return fields, dims, nil
}

func withoutAttributes(tokens []token) []token {
	var out []token
	for i := 0; i < len(tokens); i++ {
		if tokens[i].is("[") && i+1 < len(tokens) && tokens[i+1].is("[") && !tokens[i+1].space {
			for i++; i < len(tokens) && !tokens[i].is("]"); i++ {
			}
			i++
			continue
		}
		out = append(out, tokens[i])
	}
	return out
}

// declarator reads one `space const T *name[dims]`; in a list, the later ones have no type.
func declarator(tokens []token) (parameter, [][]token, error) {
	var q parameter
	var dims [][]token
	if len(tokens) == 0 {
		return q, nil, fmt.Errorf("empty declaration")
	}
	q.tokens = tokens
	for len(tokens) > 0 && tokens[len(tokens)-1].is("]") {
		open := len(tokens) - 1
		for depth := 0; open >= 0; open-- {
			if tokens[open].is("]") {
				depth++
			} else if tokens[open].is("[") {
				if depth--; depth == 0 {
					break
				}
			}
		}
		if open <= 0 {
			break
		}
		dims = append([][]token{tokens[open+1 : len(tokens)-1]}, dims...)
		tokens = tokens[:open]
	}
	last := tokens[len(tokens)-1]
	if last.kind != ident {
		return q, nil, errorAt(last.Pos, "name expected, not %q", last.text)
	}
	q.name, q.Pos = last.text, last.Pos
	for i := 0; i < len(tokens)-1; i++ {
		switch t := tokens[i]; {
		case spaces[t.text]:
			if q.pointer == 0 && !q.ref {
				q.space = t.text
			}
		case t.is("const"):
			if q.pointer == 0 {
				q.konst = true
			}
		case t.is("volatile") || t.is("static") || t.is("constexpr") || t.is("coherent") || t.is("restrict") || t.is("__restrict"):
		case t.is("*"):
			q.pointer++
		case t.is("&") || t.is("&&"):
			q.ref = true
		default:
			q.typ = append(q.typ, t)
		}
	}
	return q, dims, nil
}

// function reads parameters and body; paren is the index of '('.
func (p *parser) function(f *function, paren int) (int, error) {
	close, err := p.match(paren)
	if err != nil {
		return 0, err
	}
	for _, part := range split(p.tokens[paren+1 : close]) {
		if len(part) == 1 && part[0].is("void") {
			continue
		}
		q := parameter{Pos: part[0].Pos}
		bare := part
		if k := slices.IndexFunc(part, func(t token) bool { return t.is("=") }); k >= 0 {
			bare = part[:k]
		}
		bare = withoutAttributes(bare)
		if len(bare) > 0 && bare[len(bare)-1].kind == ident {
			if q, _, err = declarator(bare); err != nil {
				return 0, err
			}
		} else if f.kernel {
			return 0, errorAt(q.Pos, "kernel %s: argument without a name", f.name)
		}
		q.tokens = part
		f.params = append(f.params, q)
	}
	if f.kernel {
		n := 0
		for i := paren + 1; i < close; i++ { // attributes, in the order of the parameters
			if p.tok(i).is("(") || p.tok(i).is("{") {
				if i, err = p.match(i); err != nil {
					return 0, err
				}
				continue
			}
			if p.tok(i).is("<") {
				if j := angle(p.tokens, i); j > 0 {
					i = j
				}
				continue
			}
			if p.tok(i).is(",") {
				n++
				continue
			}
			if p.isAttribute(i) {
				attrs, next, err := p.attribute(i)
				if err != nil {
					return 0, err
				}
				if n < len(f.params) {
					f.params[n].attrs = append(f.params[n].attrs, attrs...)
				}
				i = next - 1
			}
		}
	}
	i := close + 1
	for i < len(p.tokens) && !p.tok(i).is("{") && !p.tok(i).is(";") {
		switch {
		case p.isAttribute(i):
			_, next, err := p.attribute(i)
			if err != nil {
				return 0, err
			}
			i = next
		case p.tok(i).is(":") && f.method: // constructor initialisers
			for i < len(p.tokens) && !p.tok(i).is("{") {
				i++
				if p.tok(i).is("{") && p.tok(i-1).kind == ident || p.tok(i).is("(") {
					if i, err = p.match(i); err != nil {
						return 0, err
					}
					i++
				}
			}
		default:
			i++
		}
	}
	if p.tok(i).is(";") {
		return i + 1, nil // a prototype
	}
	if i == len(p.tokens) {
		return 0, errorAt(f.Pos, "function %s has no body", f.name)
	}
	f.open = i
	if f.close, err = p.match(i); err != nil {
		return 0, err
	}
	p.funcs = append(p.funcs, f)
	p.byName[f.name] = append(p.byName[f.name], f)
	return f.close + 1, nil
}

// variable reads a program-scope variable; at is the index of '=', ';', '[' or '{'.
func (p *parser) variable(f *function, start, typeAt, at int) (int, error) {
	end, err := p.statement(at)
	if err != nil {
		return 0, err
	}
	// Step back over an attribute between the name and what follows.
	nameAt := at - 1
	for nameAt > typeAt && p.tok(nameAt).is("]") {
		for nameAt > typeAt && !p.isAttribute(nameAt) {
			nameAt--
		}
		nameAt--
	}
	name := p.tok(nameAt)
	if name.kind != ident || nameAt == typeAt {
		return 0, errorAt(p.tok(start).Pos, "declaration is not understood")
	}
	constant, constexpr, spaceAt := false, false, -1
	for i := start; i < nameAt; i++ {
		if p.tok(i).is("constant") {
			constant, spaceAt = true, i
		}
		constexpr = constexpr || p.tok(i).is("constexpr")
	}
	if !constant && !constexpr {
		return 0, errorAt(name.Pos, "program-scope variable %s must be in the constant address space", name.text)
	}
	var typ []token
	for i := start; i < nameAt; i++ {
		if t := p.tok(i); !qualifiers[t.text] && !spaces[t.text] {
			typ = append(typ, t)
		}
	}
	for _, a := range f.attrs {
		if a.name != "function_constant" {
			continue
		}
		index, err := a.integer()
		if err != nil {
			return 0, err
		}
		if index >= MaxConstants {
			return 0, errorAt(a.Pos, "function constant index %d: at most %d", index, MaxConstants-1)
		}
		if p.tok(at).is("=") || !p.tok(end-1).is("]") {
			return 0, errorAt(name.Pos, "function constant %s takes no value", name.text)
		}
		c := Constant{Pos: name.Pos, Name: name.text, Type: join(typ), Index: index}
		if !constantTypes[c.Type] {
			return 0, errorAt(name.Pos, "function constant %s: type %s is not supported", c.Name, c.Type)
		}
		for _, o := range p.unit.Constants {
			if o.Index == index {
				return 0, errorAt(name.Pos, "function constants %s and %s share index %d", o.Name, c.Name, index)
			}
		}
		p.unit.Constants = append(p.unit.Constants, c)
		p.remove(start, end)
		p.edits[start] = fmt.Sprintf("static inline %s msl_constant_%s() { return msl::constant<%s>(%d); }", c.Type, c.Name, c.Type, index)
		return end + 1, nil
	}
	if p.tok(at).is(";") {
		return 0, errorAt(name.Pos, "constant %s has no value", name.text)
	}
	eq := at
	for eq < end && !p.tok(eq).is("=") {
		eq++
	}
	if eq == end {
		eq = at // constant T x{…}
	}
	value := p.tokens[min(eq+1, end):end]
	if slices.ContainsFunc(value, func(t token) bool {
		return t.kind == ident && (p.constantNamed(t.text) != nil || p.derived[t.text] != nil)
	}) {
		if p.tok(at).is("[") {
			return 0, errorAt(name.Pos, "an array cannot depend on function constants")
		}
		p.derived[name.text] = value
		p.derivedAt[name.text] = join(typ)
		for i := start; i <= eq; i++ {
			p.edits[i] = ""
		}
		p.edits[start] = fmt.Sprintf("static inline %s msl_constant_%s() { return (", join(typ), name.text)
		p.edits[end] = "); }"
		return end + 1, nil
	}
	if !p.tok(at).is("[") {
		p.defines[name.text] = value
	}
	for i := start; i < nameAt; i++ {
		if t := p.tok(i); t.is("static") || t.is("inline") || t.is("const") || t.is("constant") {
			p.edits[i] = ""
		}
	}
	if spaceAt >= 0 {
		p.edits[spaceAt] = "static const"
		if constexpr {
			p.edits[spaceAt] = "static"
		}
	}
	return end + 1, nil
}

func (p *parser) constantNamed(name string) *Constant {
	for i := range p.unit.Constants {
		if p.unit.Constants[i].Name == name {
			return &p.unit.Constants[i]
		}
	}
	return nil
}

var constantTypes = map[string]bool{
	"bool": true, "char": true, "uchar": true, "short": true, "ushort": true, "int": true, "uint": true,
	"int32_t": true, "uint32_t": true, "float": true, "half": true,
}
