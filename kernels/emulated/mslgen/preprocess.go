package mslgen

import (
	"path"
	"slices"
	"strings"
)

// Reader returns the text of a file by its slash-separated path.
type Reader func(path string) ([]byte, error)

type macro struct {
	params   []string
	function bool
	variadic bool
	body     []token
}

// hideSet lists the macros whose expansion produced a token; they do not expand it again.
type hideSet struct {
	name string
	next *hideSet
}

func (h *hideSet) has(name string) bool {
	for ; h != nil; h = h.next {
		if h.name == name {
			return true
		}
	}
	return false
}

func (h *hideSet) with(o *hideSet) *hideSet {
	for ; o != nil; o = o.next {
		if !h.has(o.name) {
			h = &hideSet{o.name, h}
		}
	}
	return h
}

type preprocessor struct {
	read    Reader
	macros  map[string]*macro
	once    map[string]bool
	headers []string // quoted includes, in order of first use
	depth   int
	out     []token
	lead    string // see Unit
	leadEnd int
}

const maxIncludeDepth = 32

// maxTokens bounds macro expansion, which can grow exponentially.
const maxTokens = 4 << 20

// file preprocesses one file into p.out.
func (p *preprocessor) file(name string, at Pos) error {
	if p.depth++; p.depth > maxIncludeDepth {
		return errorAt(at, "includes nest deeper than %d", maxIncludeDepth)
	}
	defer func() { p.depth-- }()
	src, err := p.read(name)
	if err != nil {
		return errorAt(at, "%v", err)
	}
	tokens, err := scan(name, string(src))
	if err != nil {
		return err
	}
	type branch struct {
		at           Pos
		taken, alive bool // some branch was taken; this one is
		outer        bool
		last         bool // after #else
	}
	var stack []branch
	alive := true
	for i := 0; i < len(tokens); {
		if !(tokens[i].start && tokens[i].is("#")) {
			j := i
			for j < len(tokens) && !(tokens[j].start && tokens[j].is("#")) {
				j++
			}
			if alive {
				expanded, err := p.expand(tokens[i:j])
				if err != nil {
					return err
				}
				if p.out = append(p.out, expanded...); len(p.out) > maxTokens {
					return errorAt(tokens[i].Pos, "more than %d tokens after macro expansion", maxTokens)
				}
			}
			i = j
			continue
		}
		hash := tokens[i]
		i++
		end := i
		for end < len(tokens) && !tokens[end].start {
			end++
		}
		line := tokens[i:end]
		i = end
		if len(line) == 0 {
			continue
		}
		name, args := line[0].text, line[1:]
		switch name {
		case "if", "ifdef", "ifndef":
			b := branch{at: hash.Pos, outer: alive}
			if alive {
				v, err := p.condition(name, args, hash.Pos)
				if err != nil {
					return err
				}
				b.alive, b.taken = v, v
			}
			stack = append(stack, b)
			alive = b.alive
		case "elif", "else", "endif":
			if len(stack) == 0 {
				return errorAt(hash.Pos, "#%s without #if", name)
			}
			b := &stack[len(stack)-1]
			if name != "endif" && b.last {
				return errorAt(hash.Pos, "#%s after #else", name)
			}
			switch {
			case name == "endif":
				alive = b.outer
				stack = stack[:len(stack)-1]
			case name == "else":
				b.last = true
				alive = b.outer && !b.taken
				b.taken = true
			case b.outer && !b.taken:
				if alive, err = p.condition("if", args, hash.Pos); err != nil {
					return err
				}
				b.taken = alive
			default:
				alive = false
			}
		default:
			if alive {
				if err := p.directive(name, args, hash.Pos); err != nil {
					return err
				}
			}
		}
	}
	if len(stack) > 0 {
		return errorAt(stack[len(stack)-1].at, "#if without #endif")
	}
	return nil
}

func (p *preprocessor) directive(name string, args []token, at Pos) error {
	switch name {
	case "define":
		return p.define(args, at)
	case "undef":
		if len(args) != 1 {
			return errorAt(at, "#undef takes one name")
		}
		delete(p.macros, args[0].text)
		return nil
	case "include":
		return p.include(args, at)
	case "pragma":
		if len(args) == 1 && args[0].is("once") {
			p.once[at.File] = true
		}
		return nil // the emulation ignores loop hints and the like
	case "error":
		return errorAt(at, "#error %s", join(args))
	case "warning", "line":
		return nil
	}
	return errorAt(at, "unknown directive #%s", name)
}

func (p *preprocessor) include(args []token, at Pos) error {
	if len(args) >= 2 && args[0].is("<") && args[len(args)-1].is(">") {
		header := ""
		for _, t := range args[1 : len(args)-1] {
			header += t.text
		}
		if strings.HasPrefix(header, "metal_") && !strings.Contains(header, "/") {
			return nil // the shim replaces all of them
		}
		return errorAt(at, "no header <%s> in Metal; only <metal_…> and quoted includes are supported", header)
	}
	if len(args) != 1 || args[0].kind != text {
		return errorAt(at, "#include takes a quoted or <metal_…> name")
	}
	name := path.Join(path.Dir(at.File), strings.Trim(args[0].text, `"`))
	if !slices.Contains(p.headers, name) {
		p.headers = append(p.headers, name)
	}
	if p.once[name] {
		return nil
	}
	start := len(p.out)
	err := p.file(name, at)
	if p.lead == "" && p.depth == 1 && !slices.ContainsFunc(p.out[:start], translated) && slices.ContainsFunc(p.out[start:], translated) {
		p.lead, p.leadEnd = name, len(p.out)
	}
	return err
}

func (p *preprocessor) define(args []token, at Pos) error {
	if len(args) == 0 || args[0].kind != ident {
		return errorAt(at, "#define takes a name")
	}
	m := &macro{}
	name, body := args[0].text, args[1:]
	if len(body) > 0 && body[0].is("(") && !body[0].space {
		m.function = true
		i := 1
		for ; i < len(body) && !body[i].is(")"); i++ {
			switch t := body[i]; {
			case t.is("..."):
				m.variadic = true
				m.params = append(m.params, "__VA_ARGS__")
			case t.kind == ident:
				m.params = append(m.params, t.text)
			case !t.is(","):
				return errorAt(at, "parameter list of macro %s", name)
			}
		}
		if i == len(body) {
			return errorAt(at, "parameter list of macro %s has no end", name)
		}
		body = body[i+1:]
	}
	m.body = body
	p.macros[name] = m
	return nil
}

func (p *preprocessor) condition(directive string, args []token, at Pos) (bool, error) {
	if directive != "if" {
		if len(args) != 1 || args[0].kind != ident {
			return false, errorAt(at, "#%s takes a name", directive)
		}
		_, ok := p.macros[args[0].text]
		return ok == (directive == "ifdef"), nil
	}
	var line []token
	for i := 0; i < len(args); i++ {
		if !args[i].is("defined") {
			line = append(line, args[i])
			continue
		}
		j := i + 1
		if j < len(args) && args[j].is("(") {
			j++
		}
		if j >= len(args) || args[j].kind != ident {
			return false, errorAt(at, "defined takes a name")
		}
		t := args[i]
		t.kind, t.text = number, "0"
		if _, ok := p.macros[args[j].text]; ok {
			t.text = "1"
		}
		line = append(line, t)
		if args[i+1].is("(") {
			if j++; j >= len(args) || !args[j].is(")") {
				return false, errorAt(at, "defined( without )")
			}
		}
		i = j
	}
	line, err := p.expand(line)
	if err != nil {
		return false, err
	}
	v, err := evaluate(line, func(string) (int64, bool) { return 0, true })
	if err != nil {
		return false, errorAt(at, "#if: %v", err)
	}
	return v != 0, nil
}

// expand expands macros in tokens (Prosser's algorithm). The tokens of an expansion have the
// line of the macro's use.
func (p *preprocessor) expand(in []token) ([]token, error) {
	rest := slices.Clone(in)
	slices.Reverse(rest) // a stack: the next token is last
	var out []token
	work := 0
	for len(rest) > 0 {
		t := rest[len(rest)-1]
		rest = rest[:len(rest)-1]
		if work++; work > maxTokens {
			return nil, errorAt(t.Pos, "macro expansion does not end within %d tokens", maxTokens)
		}
		if t.kind != ident {
			out = append(out, t)
			continue
		}
		if t.text == "_Pragma" && len(rest) >= 3 && rest[len(rest)-1].is("(") {
			rest = rest[:len(rest)-3]
			continue
		}
		m := p.macros[t.text]
		if m == nil || t.hide.has(t.text) {
			out = append(out, t)
			continue
		}
		var args [][]token
		if m.function {
			if len(rest) == 0 || !rest[len(rest)-1].is("(") {
				out = append(out, t)
				continue
			}
			left, list, err := macroArguments(rest, t, m)
			if err != nil {
				return nil, err
			}
			rest, args = left, list
		}
		body, err := p.substitute(m, args, t)
		if err != nil {
			return nil, err
		}
		hide := (&hideSet{name: t.text}).with(t.hide)
		for i := len(body) - 1; i >= 0; i-- {
			b := body[i]
			b.Pos = t.Pos
			b.start = false
			b.hide = hide.with(b.hide)
			if i == 0 {
				b.space, b.start = t.space, t.start
			}
			rest = append(rest, b)
		}
	}
	return out, nil
}

// macroArguments pops the arguments of a use of m from the reversed stack, and returns the
// rest of the stack.
func macroArguments(rest []token, use token, m *macro) ([]token, [][]token, error) {
	var args [][]token
	var arg []token
	depth := 0
	for i := len(rest) - 1; i >= 0; i-- {
		t := rest[i]
		switch {
		case t.is("("):
			if depth++; depth == 1 {
				continue
			}
		case t.is(")"):
			if depth--; depth == 0 {
				if len(m.params) > 0 || len(arg) > 0 {
					args = append(args, arg)
				}
				if m.variadic && len(args) == len(m.params)-1 {
					args = append(args, nil)
				}
				if len(args) != len(m.params) {
					return nil, nil, errorAt(use.Pos, "macro %s takes %d arguments, not %d", use.text, len(m.params), len(args))
				}
				return rest[:i], args, nil
			}
		case t.is(",") && depth == 1 && !(m.variadic && len(args) == len(m.params)-1):
			args = append(args, arg)
			arg = nil
			continue
		}
		arg = append(arg, t)
	}
	return nil, nil, errorAt(use.Pos, "use of macro %s has no closing parenthesis", use.text)
}

func (p *preprocessor) substitute(m *macro, args [][]token, use token) ([]token, error) {
	var out []token
	arg := func(t token) ([]token, bool) {
		if t.kind != ident {
			return nil, false
		}
		i := slices.Index(m.params, t.text)
		if i < 0 || !m.function {
			return nil, false
		}
		return args[i], true
	}
	for i := 0; i < len(m.body); i++ {
		t := m.body[i]
		if t.is("#") && m.function && i+1 < len(m.body) {
			if a, ok := arg(m.body[i+1]); ok {
				s := strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(join(a))
				out = append(out, token{Pos: use.Pos, kind: text, text: `"` + s + `"`, space: t.space})
				i++
				continue
			}
		}
		if t.is("##") && len(out) > 0 && i+1 < len(m.body) {
			i++
			right := []token{m.body[i]}
			if a, ok := arg(m.body[i]); ok {
				right = a
			}
			if len(right) == 0 {
				continue
			}
			glued, err := scan(use.File, out[len(out)-1].text+right[0].text)
			if err != nil || len(glued) != 1 {
				return nil, errorAt(use.Pos, "macro %s: %q ## %q is not one token", use.text, out[len(out)-1].text, right[0].text)
			}
			last := &out[len(out)-1]
			last.kind, last.text, last.hide = glued[0].kind, glued[0].text, nil
			out = append(out, right[1:]...)
			continue
		}
		a, ok := arg(t)
		if !ok {
			out = append(out, t)
			continue
		}
		if i+1 < len(m.body) && m.body[i+1].is("##") {
			if len(a) == 0 { // a placemarker: the following token stands alone
				i++
				if i+1 < len(m.body) {
					i++
					if b, ok := arg(m.body[i]); ok {
						out = append(out, b...)
					} else {
						out = append(out, m.body[i])
					}
				}
				continue
			}
		} else {
			var err error
			if a, err = p.expand(a); err != nil {
				return nil, err
			}
		}
		for k, b := range a {
			if k == 0 {
				b.space = t.space
			}
			out = append(out, b)
		}
	}
	return out, nil
}
