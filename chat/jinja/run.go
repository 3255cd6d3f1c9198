package jinja

import (
	"context"
	"errors"
	"fmt"
	"time"
)

var (
	// ErrLimit is wrapped where a template exceeds a bound on its size or its resources.
	ErrLimit = errors.New("the template exceeds a limit")
	// ErrRaised is wrapped where a template calls raise_exception.
	ErrRaised = errors.New("the template raised an exception")
)

// Options are the inputs of a rendering besides the variables. Zero fields take defaults.
type Options struct {
	// Context ends the rendering, with its cause; nil: it does not end.
	Context context.Context
	// Now is the time of strftime_now.
	Now time.Time
	// Steps and Bytes bound time and memory, each in addition to an allowance per byte of the
	// variables.
	Steps, Bytes int
}

// Bounds of a rendering. The most expensive public template takes 18,000 steps and allocates 160 kB
// for a conversation of 2 kB with tools. Some are quadratic in the number of messages, so the
// allowances per byte are large, and bounded in total.
const (
	defaultSteps = 400_000
	defaultBytes = 8 << 20
	stepsPerByte = 200
	bytesPerByte = 1000
	mostSteps    = 50_000_000 // maximum of the allowance for variables: a few seconds
	mostBytes    = 248 << 20
	maxDepth     = 1500 // nesting of expressions and blocks, including calls of macros
)

// run is the state of one rendering.
type run struct {
	steps, bytes int // remaining
	ctx          context.Context
	look         int // remaining steps at which ctx is looked at
	depth        int
	now          time.Time
	scope        *scope
	out          *builder
}

// Render renders a template. The template can modify lists in the variables, so they must not be
// shared with other renderings.
func (t *Template) Render(variables *Dict, o Options) (text Text, err error) {
	if o.Steps == 0 {
		o.Steps = defaultSteps
	}
	if o.Bytes == 0 {
		o.Bytes = defaultBytes
	}
	n := size(variables)
	globals := &scope{vars: globalFunctions}
	r := &run{steps: o.Steps + min(stepsPerByte*n, mostSteps), bytes: o.Bytes + min(bytesPerByte*n, mostBytes), ctx: o.Context, now: o.Now, out: &builder{}}
	r.look = r.steps
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

// failure carries an error as a panic to Render or Parse.
type failure struct{ error }

func fail(format string, args ...any) { panic(failure{fmt.Errorf(format, args...)}) }

// recovered returns the error of a failure and propagates any other panic.
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
	if r.steps -= n; r.steps > r.look {
		return
	}
	if r.steps < 0 {
		fail("%w: too many steps", ErrLimit)
	}
	r.look = max(r.steps-lookEvery, -1)
	if r.ctx != nil && r.ctx.Err() != nil {
		panic(failure{context.Cause(r.ctx)})
	}
}

const lookEvery = 10_000 // steps between two looks at the context

// scan counts the steps of reading n bytes.
func (r *run) scan(n int) { r.step(1 + n>>4) }

// alloc counts n allocated bytes, which are never given back, and the steps to fill them.
func (r *run) alloc(n int) {
	if r.bytes -= n; n < 0 || r.bytes < 0 {
		fail("%w: too much text", ErrLimit)
	}
	r.scan(n)
}

const (
	valueSize = 32 // of an allocated or named value
	itemSize  = 16 // of a value in a list
	spanSize  = 16
)

// made counts the memory of a text.
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
	return &List{Items: items}
}

// enter counts one level of depth.
func (r *run) enter() {
	if r.depth++; r.depth > maxDepth {
		fail("%w: more than %d levels", ErrLimit, maxDepth)
	}
}

// scope holds variables; names that it lacks are looked up in parent.
type scope struct {
	vars   map[string]Value
	parent *scope
}

func (r *run) lookup(name string) Value {
	for s := r.scope; s != nil; s = s.parent {
		r.scan(len(name))
		if v, ok := s.vars[name]; ok {
			return v
		}
	}
	return Undefined{}
}

func (r *run) set(name string, v Value) {
	r.alloc(valueSize)
	r.scan(len(name))
	if r.scope.vars == nil {
		r.scope.vars = map[string]Value{}
	}
	r.scope.vars[name] = v
}

// scoped calls do in a new scope below parent.
func (r *run) scoped(parent *scope, do func()) {
	old := r.scope
	r.alloc(valueSize)
	r.scope = &scope{parent: parent}
	do()
	r.scope = old
}

// capture returns the output of do.
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
