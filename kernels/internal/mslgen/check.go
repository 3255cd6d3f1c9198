package mslgen

import (
	"maps"
	"regexp"
	"slices"
	"strings"
)

// positions maps the attributes that place a thread to the widest vector each may
// have, and to the C++ that yields it from a msl::Thread.
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

var positionType = regexp.MustCompile(`^(metal::)?(uint|ushort|uint32_t|uint16_t)([23]?)$`)

// synchronises reports whether a call of the built-in function lets threads meet,
// or may wait for another thread.
func synchronises(name string) bool {
	switch name {
	case "threadgroup_barrier", "simdgroup_barrier", "thread_elements", "atomic_load_explicit",
		"atomic_compare_exchange_weak_explicit":
		return true
	}
	return strings.HasPrefix(name, "simd_") || strings.HasPrefix(name, "quad_")
}

// facts about one function body.
type facts struct {
	calls     []call
	names     map[string]bool // every identifier: for the closures
	asked     map[string]bool // in is_function_constant_defined
	constants map[string]bool
	sync      bool
	locals    map[string][]token // constants of the body
}

type call struct {
	Pos
	name     string
	args     int
	template string // explicit template arguments
}

func (p *parser) body(f *function) (*facts, error) {
	c := &facts{names: map[string]bool{}, asked: map[string]bool{}, constants: map[string]bool{}, locals: map[string][]token{}}
	for _, q := range f.params {
		if p.constantNamed(q.name) != nil || p.derived[q.name] != nil {
			return nil, errorAt(q.Pos, "parameter %s hides a function constant", q.name)
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
		if begins && (t.is("constexpr") || t.is("const")) {
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

// groupVariables reads `threadgroup T a[N], b;` at token i of f's body and leaves
// its C++ in the edits. A pointer or reference to threadgroup memory is no variable.
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
		q, dims, err := declarator(bare)
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
	var b strings.Builder
	for _, v := range vars {
		f.vars = append(f.vars, v)
		p.writeVariable(&b, f, len(f.vars)-1)
	}
	p.edits[i] = b.String()
	return nil
}

// check walks the bodies and builds the kernels.
func (p *parser) check() error {
	known := map[*function]*facts{}
	for _, f := range p.funcs {
		c, err := p.body(f)
		if err != nil {
			return err
		}
		known[f] = c
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
		if f.kernel && f.template != nil && !used[f.name] {
			return errorAt(f.Pos, "kernel template %s is never instantiated with a host name", f.name)
		}
	}
	return nil
}

// bind gives the template parameters of f their arguments.
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

// substitute writes a type with the template parameters replaced.
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
				t.kind, t.text = number, itoa(v)
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
			m := positionType.FindStringSubmatch(a.Type)
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

// closure collects what a kernel reaches through helpers: function constants and
// whether threads meet. It goes by name, so an overload counts with its namesakes.
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
			if p.structs[name] != nil && !seen["struct "+name] { // constructors share its name; methods are found by theirs
				seen["struct "+name] = true
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

// recursion refuses cycles of calls. A call that overload resolution would have to
// decide is left alone, and so is a template that instantiates itself with other
// arguments.
func (p *parser) recursion(known map[*function]*facts) error {
	edges := func(f *function) (out []struct {
		to *function
		at Pos
	}) {
		for _, c := range known[f].calls {
			var to *function
			candidates := 0
			for _, g := range p.byName[c.name] {
				least := 0
				for _, q := range g.params {
					if !slices.ContainsFunc(q.tokens, func(t token) bool { return t.is("=") }) {
						least++
					}
				}
				if c.args >= least && c.args <= len(g.params) {
					to = g
					candidates++
				}
			}
			if candidates != 1 {
				continue
			}
			if to == f && f.template != nil && c.template != "" && c.template != templateNames(f) {
				continue
			}
			out = append(out, struct {
				to *function
				at Pos
			}{to, c.Pos})
		}
		return out
	}
	const (
		unseen = iota
		open
		done
	)
	state := map[*function]int{}
	var visit func(f *function) error
	visit = func(f *function) error {
		state[f] = open
		for _, e := range edges(f) {
			if state[e.to] == open {
				return errorAt(e.at, "recursion: %s calls %s, which is already running", f.name, e.to.name)
			}
			if state[e.to] == unseen {
				if err := visit(e.to); err != nil {
					return err
				}
			}
		}
		state[f] = done
		return nil
	}
	for _, f := range p.funcs {
		if state[f] == unseen {
			if err := visit(f); err != nil {
				return err
			}
		}
	}
	return nil
}

func templateNames(f *function) string {
	var names []string
	for _, q := range f.template {
		names = append(names, q.name)
	}
	return strings.Join(names, ", ")
}

// dropTwins removes an overload that differs from an earlier one in address spaces
// only, which C++ would take for the same function.
func (p *parser) dropTwins() error {
	text := func(first, last int) string {
		var out []token
		for i := first; i <= last; {
			s, next := p.translate(i)
			if s != "" {
				t := p.tok(i)
				t.text = s
				out = append(out, t)
			}
			i = next
		}
		return strings.TrimSpace(join(out))
	}
	seen := map[string]*function{}
	for _, f := range p.funcs {
		if f.method || len(p.byName[f.name]) < 2 {
			continue
		}
		signature := text(f.first, f.open-1)
		twin := seen[signature]
		if twin == nil {
			seen[signature] = f
			continue
		}
		for i := f.open; i <= f.close; i++ { // numbers of meetings are no difference
			delete(p.meetings, i)
		}
		numbered := p.meetings
		p.meetings = nil
		same := text(f.open, f.close) == text(twin.open, twin.close)
		p.meetings = numbered
		if !same {
			return errorAt(f.Pos, "%s differs from the one at %s in address spaces and in its body; give it another name", f.name, twin.Pos)
		}
		p.remove(f.first, f.close)
	}
	return nil
}
