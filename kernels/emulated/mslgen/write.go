package mslgen

import (
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const components = "xyzwrgba"

// swizzle returns the components that a member name selects, or nil.
func swizzle(name string) []int {
	if len(name) < 1 || len(name) > 4 {
		return nil
	}
	var out []int
	set := -1
	for i := 0; i < len(name); i++ {
		c := strings.IndexByte(components, name[i])
		if c < 0 || set >= 0 && c/4 != set {
			return nil
		}
		set = c / 4
		out = append(out, c%4)
	}
	return out
}

func assigns(t token) bool {
	switch t.text {
	case "=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=":
		return t.kind == punct
	}
	return false
}

// writeVariables declares f's threadgroup variables as references into the threadgroup's
// memory. Their sizes are C++'s: a static assertion compares them with the table if all
// instances have the same size, else a check at run time.
func (p *parser) writeVariables(f *function) {
	end := "0"
	for n, v := range f.vars {
		dims := ""
		for _, d := range v.dims {
			dims += "[" + p.rewrite(d) + "]"
		}
		p.edits[v.at] += fmt.Sprintf("using msl_type_%d = %s%s; ", n, p.rewrite(v.typ), dims)
		if len(slices.Compact(slices.Clone(v.size))) == 1 {
			p.edits[v.at] += fmt.Sprintf("static_assert(sizeof(msl_type_%d) == %d, %q); ", n, v.size[0], v.name)
		}
		p.edits[v.at] += fmt.Sprintf("constexpr uint32_t msl_at_%d = msl::place(%s), msl_end_%d = msl_at_%d + sizeof(msl_type_%d); ", n, end, n, n, n)
		p.edits[v.at] += fmt.Sprintf("msl_type_%d &%s = msl::group_variable<msl_type_%d>(msl_at_%d, %d); ", n, v.name, n, n, n)
		end = fmt.Sprintf("msl_end_%d", n)
	}
}

// rewrite returns the C++ of tokens that no edit applies to.
func (p *parser) rewrite(tokens []token) string {
	q := &parser{unit: p.unit, tokens: tokens, fields: p.fields, derived: p.derived}
	var out []token
	for i := 0; i < len(tokens); {
		s, next := q.translate(i)
		if s != "" {
			t := tokens[i]
			t.text = s
			out = append(out, t)
		}
		i = next
	}
	return strings.TrimSpace(join(out))
}

// translate returns the C++ for the token at i and the index of the next one.
func (p *parser) translate(i int) (string, int) {
	if s, ok := p.edits[i]; ok {
		return s, i + 1
	}
	t := p.tok(i)
	switch t.kind {
	case number:
		return literal(t.text), i + 1
	case text:
		return t.text, i + 1
	case punct:
		if n, ok := p.meetings[i]; ok {
			if p.tok(i - 1).is("(") {
				return fmt.Sprintf("%d)", n), i + 1
			}
			return fmt.Sprintf(", %d)", n), i + 1
		}
		if p.isAttribute(i) {
			if end, err := p.match(i); err == nil {
				return "", end + 1
			}
		}
		if (t.is(".") || t.is("->")) && p.tok(i+1).kind == ident {
			if s := p.member(i); s != "" {
				return s, i + 2
			}
			return t.text + p.tok(i+1).text, i + 2
		}
		return t.text, i + 1
	}
	switch t.text {
	case "kernel", "device", "thread", "threadgroup":
		return "", i + 1
	case "constant":
		if p.tok(i+1).is("const") || i > 0 && p.tok(i-1).is("const") {
			return "", i + 1
		}
		return "const", i + 1
	case "const":
		if p.tok(i + 1).is("const") {
			return "", i + 1
		}
		return "const", i + 1
	case "char":
		if i > 0 && (p.tok(i-1).is("unsigned") || p.tok(i-1).is("signed")) {
			return "char", i + 1
		}
		return "int8_t", i + 1
	case "is_function_constant_defined":
		if c := p.constantNamed(p.tok(i + 2).text); c != nil {
			return fmt.Sprintf("msl::is_constant_defined(%d)", c.Index), i + 4
		}
	}
	if p.constantNamed(t.text) != nil || p.derived[t.text] != nil {
		return "msl_constant_" + t.text + "()", i + 1
	}
	return t.text, i + 1
}

// member rewrites a swizzle at the '.' or '->' at i; "" if it is an ordinary member.
func (p *parser) member(i int) string {
	name := p.tok(i + 1)
	if _, field := p.fields[name.text]; field || p.tok(i+2).is("(") {
		return ""
	}
	s := swizzle(name.text)
	if s == nil {
		return ""
	}
	if len(s) == 1 {
		return p.tok(i).text + string(components[s[0]])
	}
	list := make([]string, len(s))
	for k, c := range s {
		list[k] = strconv.Itoa(c)
	}
	function := "swizzle"
	if assigns(p.tok(i + 2)) {
		function = "swizzle_ref"
	}
	return fmt.Sprintf("%stemplate %s<%s>()", p.tok(i).text, function, strings.Join(list, ", "))
}

// literal returns a floating literal with the suffix of its type in MSL.
func literal(s string) string {
	if len(s) > 1 && s[0] == '0' && s[1]|0x20 == 'x' && !strings.ContainsAny(s, "pP") {
		return s
	}
	switch {
	case strings.HasSuffix(s, "bf") || strings.HasSuffix(s, "BF"):
		return "bfloat(" + floating(s[:len(s)-2]) + ")"
	case strings.HasSuffix(s, "h") || strings.HasSuffix(s, "H"):
		return "half(" + floating(s[:len(s)-1]) + ")"
	case strings.HasSuffix(s, "f") || strings.HasSuffix(s, "F"):
		return s
	}
	if strings.ContainsAny(s, ".eEpP") {
		return s + "f"
	}
	return s
}

func floating(s string) string {
	if !strings.ContainsAny(s, ".eEpP") {
		s += ".0"
	}
	return s + "f"
}

// writer lays tokens out so that each stands on its source line.
type writer struct {
	strings.Builder
	path  string // of the generated file
	line  int    // of the generated file, from 1
	at    Pos    // the source line that #line gives the current line
	empty bool   // nothing on the current line yet
}

func (w *writer) newline() {
	w.WriteByte('\n')
	w.line++
	w.at.Line++
	w.empty = true
}

// locate makes the compiler take the current output line for pos.
func (w *writer) locate(pos Pos) {
	if w.at == pos {
		return
	}
	if !w.empty {
		w.newline()
	}
	if w.at.File == pos.File && pos.Line > w.at.Line && pos.Line-w.at.Line <= 4 {
		for w.at.Line < pos.Line {
			w.newline()
		}
		return
	}
	if w.at == pos {
		return
	}
	fmt.Fprintf(w, "#line %d %q\n", pos.Line, pos.File)
	w.line++
	w.at = pos
}

// own restores the generated file's own line numbers.
func (w *writer) own() {
	if !w.empty {
		w.newline()
	}
	fmt.Fprintf(w, "#line %d %q\n", w.line+1, w.path)
	w.line++
	w.at = Pos{w.path, w.line}
}

func (w *writer) lines(format string, args ...any) {
	for l := range strings.Lines(fmt.Sprintf(format, args...)) {
		w.WriteString(strings.TrimSuffix(l, "\n"))
		w.newline()
	}
}

// writeTokens writes the tokens from one index to another.
func (p *parser) writeTokens(w *writer, from, to int) {
	var last token
	for i := from; i < to; {
		t := p.tok(i)
		s, next := p.translate(i)
		if s == "" || !translated(t) {
			i = next
			continue
		}
		s = p.before[i] + s
		w.locate(t.Pos)
		out := token{text: s, kind: t.kind, space: t.space}
		if !w.empty && (out.space || t.start || glues(last, out)) {
			w.WriteByte(' ')
		}
		w.WriteString(s)
		w.empty = false
		last = out
		i = next
	}
	if !w.empty {
		w.newline()
	}
}

// identifier converts a file name to a C++ identifier.
func identifier(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, name)
}

func unitName(source string) string {
	return identifier(strings.TrimSuffix(path.Base(source), ".metal"))
}

// isCPlusPlus reports whether a header is valid C++ untranslated, as those of package abi are.
// Generated files include such headers instead of repeating them.
func isCPlusPlus(file string) bool { return path.Base(path.Dir(file)) == "abi" }

// translated reports whether a generated file has the C++ of a token.
func translated(t token) bool { return !isCPlusPlus(t.File) }

// plainHeaders returns the headers that are valid C++ untranslated and declare something.
func (p *parser) plainHeaders() (out []string) {
	for _, t := range p.tokens {
		if isCPlusPlus(t.File) && !slices.Contains(out, t.File) {
			out = append(out, t.File)
		}
	}
	return out
}

// relative returns the path by which a file in the folder `from` includes a header. Both are
// relative to the root of the repository.
func relative(from, header string) string {
	rel, err := filepath.Rel(path.Dir(from), header)
	if err != nil {
		panic(err) // both are relative
	}
	return filepath.ToSlash(rel)
}

// CPlusPlus returns the unit as C++ for the file at output, which includes metal_stdlib by the
// path shim, and headers of package abi by paths relative to itself.
func (u *Unit) CPlusPlus(output, shim string) []byte { return u.write(output, shim, "") }

// leadText returns the C++ of the header whose tokens come first in the unit.
func (u *Unit) leadText() []byte {
	w := &writer{line: 1, empty: true}
	w.lines("// clang-format off\n// Code generated by mslgen from %s. DO NOT EDIT.\n", u.lead)
	u.parser.writeTokens(w, 0, u.leadEnd)
	return []byte(w.String())
}

// write is CPlusPlus for a file that includes `lead`, a file of [Unit.leadText] in its folder,
// unless that is "".
func (u *Unit) write(output, shim, lead string) []byte {
	p := u.parser
	w := &writer{path: output, line: 1, empty: true, at: Pos{output, 1}}
	w.lines("// Code generated by mslgen from %s. DO NOT EDIT.\n", u.Path)
	if !slices.ContainsFunc(p.tokens, func(t token) bool { return t.is("thread_elements") }) {
		w.lines("#define MSL_WHOLE_TILES\n")
	}
	w.lines("#include %q\nnamespace {\n", shim)
	for _, header := range p.plainHeaders() {
		w.lines("#include %q\n", relative(output, header))
	}
	from := 0
	if lead != "" {
		w.lines("#include %q\n", lead)
		from = u.leadEnd
	}
	p.writeTokens(w, from, len(p.tokens))
	w.own()
	for n, k := range u.Kernels {
		p.writeThunk(w, n, k)
	}
	if len(u.Kernels) > 0 {
		w.lines("const msl::Kernel kernels[] = {\n")
		for n, k := range u.Kernels {
			writeEntry(w, n, k)
		}
		w.lines("};\n")
	} else {
		w.lines("const msl::Kernel *const kernels = nullptr;\n")
	}
	w.lines("} // namespace\n")
	name := unitName(u.Path)
	w.lines("namespace msl {\ninline namespace MSL_VARIANT {\nextern const Unit unit_%s;\nconst Unit unit_%s = {kernels, %d};\n} // namespace MSL_VARIANT\n} // namespace msl\n",
		name, name, len(u.Kernels))
	return []byte(w.String())
}

func (p *parser) writeThunk(w *writer, n int, k *Kernel) {
	f := p.byName[k.Function][0]
	s := &scope{p: p, types: map[string][]token{}, values: map[string][]token{}}
	for _, inst := range p.instances {
		if inst.host == k.Name {
			s, _, _ = p.bind(f, inst, nil)
		}
	}
	call := k.Function
	if k.TemplateArgs != nil {
		call += "<" + strings.Join(k.TemplateArgs, ", ") + ">"
	}
	var args, buffers []string
	for i, a := range k.Args {
		typ := p.rewrite(s.substitute(f.params[i].typ))
		switch a.Kind {
		case Position:
			args = append(args, fmt.Sprintf("msl::position<%s>(%s)", typ, positions[a.Attribute].expr))
			continue
		case Buffer:
			size := "0"
			if a.Reference {
				size = "sizeof(" + typ + ")"
			}
			buffers = append(buffers, fmt.Sprintf("{%d, %s, %q}", a.Index, size, a.Name))
		}
		konst := ""
		if a.Const {
			konst = "const "
		}
		source := fmt.Sprintf("t.worker->%s[%d]", map[ArgKind]string{Buffer: "buffers", Threadgroup: "dynamic"}[a.Kind], a.Index)
		cast := fmt.Sprintf("static_cast<%s%s *>(%s)", konst, typ, source)
		if a.Reference {
			cast = "*" + cast
		}
		args = append(args, cast)
	}
	w.lines("void thread_%d(const msl::Thread &t) {\n    %s(%s);\n}\n", n, call, strings.Join(args, ",\n        "))
	if len(buffers) > 0 {
		w.lines("const msl::BufferArgument buffers_%d[] = {%s};\n", n, strings.Join(buffers, ", "))
	}
	if len(k.Threadgroup) > 0 {
		var sizes []string
		for _, v := range k.Threadgroup {
			sizes = append(sizes, strconv.Itoa(v.Bytes))
		}
		w.lines("const uint32_t variables_%d[] = {%s};\n", n, strings.Join(sizes, ", "))
	}
}

func writeEntry(w *writer, n int, k *Kernel) {
	required, dynamic, bufs := 0, 0, 0
	for _, c := range k.Required {
		required |= 1 << c
	}
	for _, a := range k.Args {
		switch a.Kind {
		case Threadgroup:
			dynamic |= 1 << a.Index
		case Buffer:
			bufs++
		}
	}
	table := func(name string, count int) string {
		if count == 0 {
			return "nullptr, 0"
		}
		return fmt.Sprintf("%s_%d, %d", name, n, count)
	}
	plain := fmt.Sprintf("msl::run_threads<thread_%d>", n)
	if k.Sync {
		plain = "nullptr"
	}
	limit := k.MaxThreads
	if limit == 0 {
		limit = MaxThreads
	}
	w.lines("    {%q, %q, %d, thread_%d, %s, %d, %#xu, %#xu, %s, %s},\n", k.Name, k.File, k.Line, n, plain, limit, required, dynamic,
		table("buffers", bufs), table("variables", len(k.Threadgroup)))
}
