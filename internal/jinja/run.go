package jinja

import (
	"errors"
	"fmt"
	"time"
)

var (
	// ErrLimit is wrapped where a template is larger, or does more, than it may.
	ErrLimit = errors.New("the template goes beyond its bounds")
	// ErrRaised is wrapped where a template itself refuses, by raise_exception.
	ErrRaised = errors.New("the template refuses this")
)

// Options are what a rendering depends on besides the variables. Zero fields take defaults.
type Options struct {
	// Now is what strftime_now tells.
	Now time.Time
	// Steps and Bytes bound what is done and what is made, each beside an allowance for
	// each byte of the variables.
	Steps, Bytes int
}

// Bounds of a rendering. The dearest of the public templates takes 17,000 steps for a
// conversation of 2 kB with tools, and makes 160 kB. Some go over all messages for each, or add
// each to a text that is made anew: so the allowances are large, and bounded.
const (
	defaultSteps = 400_000
	defaultBytes = 8 << 20
	stepsPerByte = 200
	bytesPerByte = 1000
	mostSteps    = 50_000_000 // that are allowed for variables, a few seconds
	mostBytes    = 248 << 20
	maxDepth     = 1500 // of expressions and blocks within each other, through macros
)

// run is one rendering.
type run struct {
	steps, bytes int // that are left
	depth        int
	now          time.Time
	scope        *scope
	out          *builder
}

// Render gives the text of a template. The variables are for this rendering alone: a template
// may change the lists in them.
func (t *Template) Render(variables *Dict, o Options) (text Text, err error) {
	if o.Steps == 0 {
		o.Steps = defaultSteps
	}
	if o.Bytes == 0 {
		o.Bytes = defaultBytes
	}
	n := size(variables)
	globals := &scope{vars: globalFunctions}
	r := &run{steps: o.Steps + min(stepsPerByte*n, mostSteps), bytes: o.Bytes + min(bytesPerByte*n, mostBytes), now: o.Now, out: &builder{}}
	defer func() {
		if e := recovered(recover()); e != nil {
			text, err = Text{}, e
		}
	}()
	r.scope = &scope{vars: make(map[string]Value, variables.Len()), parent: globals}
	for _, e := range variables.entries {
		r.scope.vars[r.str(e.key).s] = e.value
	}
	r.block(t.body)
	return r.out.done(), nil
}

// failure carries an error out of the depth of a template.
type failure struct{ error }

func fail(format string, args ...any) { panic(failure{fmt.Errorf(format, args...)}) }

// recovered is what failed, where e is one of our failures; faults of this package go on.
func recovered(e any) error {
	if e == nil {
		return nil
	}
	f, ok := e.(failure)
	if !ok {
		panic(e)
	}
	return f.error
}

func (r *run) step(n int) {
	if r.steps -= n; r.steps < 0 {
		fail("%w: too many steps", ErrLimit)
	}
}

// scan counts passing over so many bytes.
func (r *run) scan(n int) { r.step(1 + n>>6) }

// alloc counts memory that is made, garbage included, and the time to fill it.
func (r *run) alloc(n int) {
	if r.bytes -= n; n < 0 || r.bytes < 0 {
		fail("%w: too much text", ErrLimit)
	}
	r.scan(n)
}

const (
	valueSize = 32 // of a value that is made, or named
	itemSize  = 16 // of a value in a list
	spanSize  = 16
)

// made counts a text that is made.
func (r *run) made(t Text) Text {
	r.alloc(len(t.s) + spanSize*len(t.marks))
	return t
}

func (r *run) cut(t Text, from, to int) Text {
	cut := t.cut(from, to) // shares the bytes
	r.alloc(valueSize + spanSize*len(cut.marks))
	return cut
}

func (r *run) list(items []Value) *List {
	r.alloc(valueSize + itemSize*len(items))
	return &List{items}
}

// enter counts a level of depth.
func (r *run) enter() {
	if r.depth++; r.depth > maxDepth {
		fail("%w: more than %d levels", ErrLimit, maxDepth)
	}
}

// scope holds variables; what it has not, its parent may have.
type scope struct {
	vars   map[string]Value
	parent *scope
}

func (r *run) lookup(name string) Value {
	for s := r.scope; s != nil; s = s.parent {
		r.step(1)
		if v, ok := s.vars[name]; ok {
			return v
		}
	}
	return Undefined{}
}

func (r *run) set(name string, v Value) {
	r.alloc(valueSize)
	if r.scope.vars == nil {
		r.scope.vars = map[string]Value{}
	}
	r.scope.vars[name] = v
}

// scoped runs with variables of its own over those of a scope.
func (r *run) scoped(parent *scope, do func()) {
	old := r.scope
	r.alloc(valueSize)
	r.scope = &scope{parent: parent}
	do()
	r.scope = old
}

// capture returns what is written meanwhile.
func (r *run) capture(do func()) Text {
	old := r.out
	r.out = &builder{}
	do()
	t := r.out.done()
	r.out = old
	return r.made(t)
}

func (r *run) write(t Text) {
	r.alloc(len(t.s) + spanSize*len(t.marks))
	r.out.text(t)
}

func (r *run) block(list []stmt) signal {
	r.enter()
	for _, s := range list {
		r.step(1)
		if sig := s.exec(r); sig != goOn {
			r.depth--
			return sig
		}
	}
	r.depth--
	return goOn
}

func (r *run) eval(e expr) Value {
	r.step(1)
	r.enter()
	v := e.eval(r)
	r.depth--
	return v
}
