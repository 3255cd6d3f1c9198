package mslgen

import (
	"slices"
	"strings"
)

// synchronises reports whether the built-in function synchronises threads or may wait for
// another thread.
func synchronises(name string) bool {
	switch name {
	case "threadgroup_barrier", "simdgroup_barrier", "thread_elements", "atomic_load_explicit",
		"atomic_compare_exchange_weak_explicit":
		return true
	}
	return strings.HasPrefix(name, "simd_") || strings.HasPrefix(name, "quad_")
}

// facts holds what check collects about one function body.
type facts struct {
	calls     []call
	names     map[string]bool // every identifier: for the closures
	asked     map[string]bool // in is_function_constant_defined
	constants map[string]bool
	sync      bool
	spaces    map[string]string  // address spaces other than thread, by the name of a pointer or reference
	locals    map[string][]token // constants of the body
}

type call struct {
	Pos
	name     string
	args     int
	template string // explicit template arguments
}

func (p *parser) body(f *function) (*facts, error) {
	c := &facts{names: map[string]bool{}, asked: map[string]bool{}, constants: map[string]bool{}, spaces: map[string]string{}, locals: map[string][]token{}}
	for _, q := range f.params {
		if p.constantNamed(q.name) != nil || p.derived[q.name] != nil {
			return nil, errorAt(q.Pos, "parameter %s hides a function constant", q.name)
		}
	}
	for _, q := range f.params {
		if (q.pointer > 0 || q.ref) && q.space != "" && q.space != "thread" {
			c.spaces[q.name] = q.space
		}
	}
	depth := 0
	for i := f.open; i <= f.close; i++ {
		t := p.tok(i)
		switch {
		case t.is("{"):
			depth++
		case t.is("}"):
			depth--
		}
		if t.kind != ident {
			continue
		}
		begins := p.tok(i-1).is("{") || p.tok(i-1).is("}") || p.tok(i-1).is(";")
		if begins && depth == 1 && (t.is("constexpr") || t.is("const")) {
			end, err := p.statement(i)
			if err != nil {
				return nil, err
			}
			for _, part := range split(p.tokens[i:end]) {
				if eq := slices.IndexFunc(part, func(t token) bool { return t.is("=") }); eq > 0 {
					c.locals[part[eq-1].text] = part[eq+1:]
				}
			}
		}
		if t.is("threadgroup") && begins || t.is("threadgroup") && p.tok(i-1).is("volatile") {
			if err := p.groupVariables(f, i, depth); err != nil {
				return nil, err
			}
		}
		if spaces[t.text] && t.text != "thread" && begins {
			if name := p.pointerName(i); name != "" {
				c.spaces[name] = t.text
			}
		}
		if t.is("goto") {
			return nil, errorAt(t.Pos, "goto is not part of Metal")
		}
		member := p.tok(i-1).is(".") || p.tok(i-1).is("->")
		if t.is("is_function_constant_defined") {
			name := p.tok(i + 2)
			if !p.tok(i+1).is("(") || !p.tok(i+3).is(")") || p.constantNamed(name.text) == nil {
				return nil, errorAt(t.Pos, "is_function_constant_defined takes the name of a function constant")
			}
			c.asked[name.text] = true
			i += 3
			continue
		}
		if !member && (p.constantNamed(t.text) != nil || p.derived[t.text] != nil) {
			c.constants[t.text] = true
		}
		c.names[t.text] = true
		if member && p.tok(i+1).is("(") {
			if err := p.object(c, i); err != nil {
				return nil, err
			}
		}
		k := call{Pos: t.Pos, name: t.text}
		open := i + 1
		if p.tok(open).is("<") {
			if j := angle(p.tokens[:f.close], open); j > 0 {
				k.template = join(p.tokens[open+1 : j])
				open = j + 1
			}
		}
		if !p.tok(open).is("(") {
			continue
		}
		end, err := p.match(open)
		if err != nil {
			return nil, err
		}
		if len(p.byName[t.text]) == 0 {
			if synchronises(t.text) {
				c.sync = true
				if !strings.HasPrefix(t.text, "atomic_") && t.text != "simd_vote" {
					p.meetings[end] = len(p.meetings) + 1
				}
			}
			continue
		}
		k.args = len(split(p.tokens[open+1 : end]))
		c.calls = append(c.calls, k)
	}
	return c, nil
}

// pointerName returns the name that the declaration at i gives to a pointer or
// reference, or "".
func (p *parser) pointerName(i int) string {
	pointer := false
	for ; i < len(p.tokens); i++ {
		switch t := p.tok(i); {
		case t.is("*") || t.is("&"):
			pointer = true
		case t.is("<"):
			if j := angle(p.tokens, i); j > 0 {
				i = j
			}
		case t.kind == punct && !t.is("::"):
			if last := p.tok(i - 1); pointer && last.kind == ident && (t.is("=") || t.is(";") || t.is(",")) {
				return last.text
			}
			return ""
		}
	}
	return ""
}

// object checks the method call at i: an object's address space must be among those that the
// method is declared for.
func (p *parser) object(c *facts, i int) error {
	j := i - 2
	for j > 0 {
		if p.tok(j).is("]") {
			for depth := 0; j > 0; j-- {
				if p.tok(j).is("]") {
					depth++
				} else if p.tok(j).is("[") {
					if depth--; depth == 0 {
						break
					}
				}
			}
			j--
			continue
		}
		if p.tok(j).kind == ident && p.tok(j-1).is(".") {
			j -= 2
			continue
		}
		break
	}
	space := c.spaces[p.tok(j).text]
	if p.tok(j).kind != ident || p.tok(j-1).is("->") || p.tok(j-1).is("::") || space == "" {
		return nil
	}
	methods := 0
	for _, m := range p.byName[p.tok(i).text] {
		if m.method {
			methods++
			if m.spaces[space] {
				return nil
			}
		}
	}
	if methods > 0 {
		return errorAt(p.tok(i).Pos, "method %s is called on %s in %s memory; declare it for that address space or copy the object", p.tok(i).text, p.tok(j).text, space)
	}
	return nil
}

// groupVariables reads `threadgroup T a[N], b;` at token i of f's body. It skips pointers and references to threadgroup memory.
func (p *parser) groupVariables(f *function, i, depth int) error {
	end, err := p.statement(i)
	if err != nil {
		return err
	}
	parts := split(p.tokens[i:end])
	var typ []token
	var vars []*groupVar
	for n, part := range parts {
		bare := withoutAttributes(part)
		eq := slices.IndexFunc(bare, func(t token) bool { return t.is("=") })
		if eq >= 0 {
			bare = bare[:eq]
		}
		q, dims, err := declarator(p.tok(i).Pos, bare)
		if err != nil {
			return err
		}
		if n == 0 {
			typ = q.typ
			if q.pointer > 0 || q.ref {
				return nil
			}
		}
		switch {
		case !f.kernel:
			return errorAt(q.Pos, "threadgroup variable %s outside a kernel function (in %s)", q.name, f.name)
		case depth != 1:
			return errorAt(q.Pos, "threadgroup variable %s must be declared in the outermost block of its kernel", q.name)
		case eq >= 0:
			return errorAt(q.Pos, "threadgroup variable %s cannot be initialised", q.name)
		case q.pointer > 0 || q.ref:
			return errorAt(q.Pos, "declare the pointer %s in a statement of its own", q.name)
		}
		vars = append(vars, &groupVar{Pos: q.Pos, name: q.name, typ: typ, dims: dims})
	}
	p.remove(i, end)
	for _, v := range vars {
		v.at = i
		f.vars = append(f.vars, v)
	}
	return nil
}

// check walks the function bodies and builds the kernels.
func (p *parser) check() error {
	known := map[*function]*facts{}
	for _, f := range p.funcs {
		c, err := p.body(f)
		if err != nil {
			return err
		}
		known[f] = c
	}
	for _, f := range p.funcs {
		if err := p.mark(f, known[f].locals); err != nil {
			return err
		}
	}
	if err := p.recursion(known); err != nil {
		return err
	}
	if err := p.dropTwins(); err != nil {
		return err
	}
	used := map[string]bool{}
	hosts := map[string]Pos{}
	add := func(k *Kernel) error {
		if at, ok := hosts[k.Name]; ok {
			return errorAt(k.Pos, "kernel %s is already defined at %s", k.Name, at)
		}
		hosts[k.Name] = k.Pos
		p.unit.Kernels = append(p.unit.Kernels, k)
		return nil
	}
	for _, f := range p.funcs {
		if !f.kernel || f.template != nil {
			continue
		}
		if len(p.byName[f.name]) > 1 {
			return errorAt(f.Pos, "kernel %s is overloaded", f.name)
		}
		name := f.name
		for _, a := range f.attrs {
			if a.name == "host_name" && len(a.args) == 1 {
				name = strings.Trim(a.args[0].text, `"`)
			}
		}
		k, err := p.kernel(f, known, name, f.Pos, &scope{p: p, values: known[f].locals})
		if err != nil {
			return err
		}
		if err := add(k); err != nil {
			return err
		}
	}
	for _, inst := range p.instances {
		fs := p.byName[inst.name]
		if len(fs) != 1 || !fs[0].kernel || fs[0].template == nil {
			return errorAt(inst.Pos, "%s is not a kernel template", inst.name)
		}
		f := fs[0]
		used[f.name] = true
		s, args, err := p.bind(f, inst, known[f].locals)
		if err != nil {
			return err
		}
		k, err := p.kernel(f, known, inst.host, inst.Pos, s)
		if err != nil {
			return err
		}
		k.TemplateArgs = args
		if err := add(k); err != nil {
			return err
		}
	}
	for _, f := range p.funcs {
		p.writeVariables(f)
		if f.kernel && f.template != nil && !used[f.name] {
			return errorAt(f.Pos, "kernel template %s is never instantiated with a host name", f.name)
		}
	}
	return nil
}
