package mslgen

import (
	"fmt"
	"slices"
)

// typeDefinition parses a struct, union or enum with a body; ok is false if the tokens only
// name a type.
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
		f, d, err := declarator(tokens[0].Pos, part)
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

// declarator reads one `space const T *name[dims]` at a place; in a list, the later
// ones have no type.
func declarator(at Pos, tokens []token) (parameter, [][]token, error) {
	var q parameter
	var dims [][]token
	if len(tokens) == 0 {
		return q, nil, errorAt(at, "a name was expected")
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
