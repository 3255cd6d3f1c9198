package mslgen

import (
	"fmt"
	"slices"
)

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
			if q, _, err = declarator(q.Pos, bare); err != nil {
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
	f.spaces = map[string]bool{}
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
			if f.method && spaces[p.tok(i).text] {
				f.spaces[p.tok(i).text] = true
			}
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
