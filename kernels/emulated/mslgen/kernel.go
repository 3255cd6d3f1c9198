package mslgen

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"sync"
)

// positions maps the attributes for a thread's position to the widest vector each may have,
// and to the C++ that computes it from a msl::Thread.
var positions = map[string]struct {
	wide int
	expr string
}{
	"thread_position_in_grid":             {3, "t.position_in_grid()"},
	"thread_position_in_threadgroup":      {3, "t.position"},
	"threadgroup_position_in_grid":        {3, "t.worker->group_id"},
	"threads_per_threadgroup":             {3, "t.worker->group"},
	"dispatch_threads_per_threadgroup":    {3, "t.worker->group"},
	"threadgroups_per_grid":               {3, "t.worker->grid"},
	"threads_per_grid":                    {3, "t.threads_per_grid()"},
	"thread_index_in_threadgroup":         {1, "t.index"},
	"thread_index_in_simdgroup":           {1, "(t.index % 32)"},
	"simdgroup_index_in_threadgroup":      {1, "(t.index / 32)"},
	"simdgroups_per_threadgroup":          {1, "t.worker->simdgroups"},
	"dispatch_simdgroups_per_threadgroup": {1, "t.worker->simdgroups"},
	"threads_per_simdgroup":               {1, "32u"},
	"thread_execution_width":              {1, "32u"},
	"thread_index_in_quadgroup":           {1, "(t.index % 4)"},
	"quadgroup_index_in_threadgroup":      {1, "(t.index / 4)"},
	"quadgroup_index_in_simdgroup":        {1, "(t.index % 32 / 4)"},
}

var positionType = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(metal::)?(uint|ushort|uint32_t|uint16_t)([23]?)$`) })

// bind binds the template parameters of f to the arguments of an instance.
func (p *parser) bind(f *function, inst instance, locals map[string][]token) (*scope, []string, error) {
	s := &scope{p: p, types: map[string][]token{}, values: map[string][]token{}}
	maps.Copy(s.values, locals)
	if len(inst.args) > len(f.template) {
		return nil, nil, errorAt(inst.Pos, "%s takes %d template arguments, not %d", f.name, len(f.template), len(inst.args))
	}
	var args []string
	for i, q := range f.template {
		value := q.deflt
		if i < len(inst.args) {
			value = inst.args[i]
			args = append(args, p.rewrite(value))
		}
		if value == nil {
			return nil, nil, errorAt(inst.Pos, "%s: template parameter %s has no argument", f.name, q.name)
		}
		if q.isType {
			s.types[q.name] = value
		} else {
			s.values[q.name] = value
		}
	}
	return s, args, nil
}

// substitute returns a type with the template parameters replaced by their arguments.
func (s *scope) substitute(typ []token) []token {
	var out []token
	for _, t := range typ {
		if r, ok := s.types[t.text]; ok && t.kind == ident {
			for n, x := range r {
				if n == 0 {
					x.space = t.space
				}
				out = append(out, x)
			}
			continue
		}
		if r, ok := s.values[t.text]; ok && t.kind == ident {
			if v, err := s.evaluate(r); err == nil {
				t.kind, t.text = number, strconv.FormatInt(v, 10)
			}
		}
		out = append(out, t)
	}
	return out
}

func (p *parser) kernel(f *function, known map[*function]*facts, host string, at Pos, s *scope) (*Kernel, error) {
	k := &Kernel{Pos: at, Name: host, Function: f.name}
	for _, a := range f.attrs {
		if a.name == "max_total_threads_per_threadgroup" {
			n, err := s.evaluate(a.args)
			if err != nil {
				return nil, errorAt(a.Pos, "kernel %s: %s: %v", host, a.name, err)
			}
			if n < 1 || n > MaxThreads {
				return nil, errorAt(a.Pos, "kernel %s: at most %d threads in a threadgroup", host, MaxThreads)
			}
			k.MaxThreads = int(n)
		}
	}
	for _, q := range f.params {
		a, err := p.argument(k, q, s)
		if err != nil {
			return nil, err
		}
		k.Args = append(k.Args, a)
	}
	for _, v := range f.vars {
		sized, err := s.variable(v)
		if err != nil {
			return nil, err
		}
		k.Threadgroup = append(k.Threadgroup, sized)
		v.size = append(v.size, sized.Bytes)
	}
	if n := k.ThreadgroupBytes(); n > MaxThreadgroupBytes {
		return nil, errorAt(at, "kernel %s: %d bytes of threadgroup memory, over the %d of every device", host, n, MaxThreadgroupBytes)
	}
	p.closure(k, f, known)
	return k, nil
}

func (p *parser) argument(k *Kernel, q parameter, s *scope) (Argument, error) {
	a := Argument{Pos: q.Pos, Name: q.name, Space: q.space, Const: q.konst || q.space == "constant", Reference: q.ref}
	a.Type = join(s.substitute(q.typ))
	fail := func(format string, args ...any) (Argument, error) {
		return a, errorAt(q.Pos, "kernel "+k.Name+": argument "+q.name+" "+format, args...)
	}
	bound := 0
	for _, at := range q.attrs {
		kind, limit := Buffer, MaxBuffers
		switch at.name {
		case "threadgroup":
			kind, limit = Threadgroup, MaxDynamic
			fallthrough
		case "buffer":
			n, err := at.integer()
			if err != nil {
				return a, err
			}
			if n >= limit {
				return fail("has %s index %d: at most %d", at.name, n, limit-1)
			}
			a.Kind, a.Index = kind, n
			for _, o := range k.Args {
				if o.Kind == kind && o.Index == n {
					return fail("has the same %s index %d as %s", at.name, n, o.Name)
				}
			}
			bound++
		case "function_constant": // present if the constant is true; a host may bind null
		default:
			pos, ok := positions[at.name]
			if !ok {
				return fail("has the unknown attribute [[%s]]", at.name)
			}
			m := positionType().FindStringSubmatch(a.Type)
			if m == nil || m[3] != "" && int(m[3][0]-'0') > pos.wide {
				return fail("of type %s cannot be [[%s]]", a.Type, at.name)
			}
			if q.pointer > 0 || q.ref {
				return fail("must be passed by value")
			}
			a.Kind, a.Attribute = Position, at.name
			bound++
		}
	}
	switch {
	case bound == 0:
		return fail("has no attribute: [[buffer(i)]], [[threadgroup(i)]] or a thread position")
	case bound > 1:
		return fail("has more than one binding")
	case a.Kind == Position:
		return a, nil
	case q.pointer+btoi(q.ref) != 1:
		return fail("must be a pointer or a reference")
	case a.Kind == Threadgroup && a.Space != "threadgroup":
		return fail("must point to threadgroup memory")
	case a.Kind == Buffer && a.Space != "device" && a.Space != "constant":
		return fail("must point to device or constant memory")
	}
	return a, nil
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// closure collects what a kernel uses through its helpers: function constants, and whether
// threads synchronise. It goes by name, so overloads are not told apart.
func (p *parser) closure(k *Kernel, f *function, known map[*function]*facts) {
	seen := map[string]bool{}
	read, asked := map[string]bool{}, map[string]bool{}
	var visitConstant func(name string)
	visitConstant = func(name string) {
		if read[name] {
			return
		}
		value, derived := p.derived[name]
		read[name] = true
		for i := 0; derived && i < len(value); i++ {
			switch t := value[i]; {
			case t.is("is_function_constant_defined") && i+2 < len(value):
				asked[value[i+2].text] = true
				i += 2
			case t.kind == ident && (p.constantNamed(t.text) != nil || p.derived[t.text] != nil):
				visitConstant(t.text)
			}
		}
	}
	var visit func(f *function)
	visit = func(f *function) {
		c := known[f]
		k.Sync = k.Sync || c.sync
		for name := range c.constants {
			visitConstant(name)
		}
		for name := range c.asked {
			asked[name] = true
		}
		for name := range c.names {
			if !seen[name] && len(p.byName[name]) > 0 {
				seen[name] = true
				for _, g := range p.byName[name] {
					visit(g)
				}
			}
		}
	}
	visit(f)
	for _, c := range p.unit.Constants {
		if read[c.Name] || asked[c.Name] {
			k.Constants = append(k.Constants, c.Index)
		}
		if read[c.Name] && !asked[c.Name] {
			k.Required = append(k.Required, c.Index)
		}
	}
	slices.Sort(k.Constants)
	slices.Sort(k.Required)
}
