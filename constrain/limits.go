package constrain

import (
	"context"
	"errors"
	"fmt"
)

// Bounds on the size of one constraint. They count parts and not time, so that a constraint is
// refused on every machine or on none.
const (
	maxSource   = 4 << 20  // bytes of a schema, an expression or a grammar
	maxDepth    = 500      // nesting of an expression, a grammar or a schema
	maxRepeat   = 100_000  // a count in an expression
	maxTurns    = 100      // a count of what has an anchor, a boundary or a lookahead
	maxNames    = 10_000   // of properties, values or items of one schema
	maxNodes    = 200_000  // parts of regular expressions
	maxRows     = 24_000   // rows of transitions, a kibibyte each, dropped when there are more
	maxSearch   = 20_000   // states looked through for one match
	maxStates   = 1 << 17  // states of the lexer
	maxPlaces   = 1 << 20  // places of a grammar
	maxAtOnce   = 1024     // exclusions from one string or number; other conditions count 64 times
	maxReadings = 1 << 16  // cached readings, cleared when there are more
	maxHeld     = 1 << 19  // threads of cached readings, cleared when there are more
	maxShapes   = 30_000   // schemas after resolving references and combinations
	maxBranches = 400      // alternatives of one schema
	maxCombined = 1 << 18  // combinations of alternatives
	maxWork     = 1 << 25  // steps of one call, some 5 ns each
	lookEvery   = 1 << 14  // steps between two looks at the caller's context
	maxCaches   = 64 << 20 // bytes of masks cached by a vocabulary, and by a constraint
)

// ErrLimit is wrapped where a constraint exceeds a bound, when it is made or within a text.
var ErrLimit = errors.New("constraint too large")

// limitError is a bound that a constraint exceeded.
type limitError struct{ what string }

func (e limitError) Unwrap() error { return ErrLimit }

func (e limitError) Error() string { return ErrLimit.Error() + ": " + e.what }

// stopped is the end of the caller's context.
type stopped struct{ error }

// budget counts the steps of a call. All work whose size a source determines is counted, in
// proportion to its cost.
type budget struct {
	ctx  context.Context // of the call; nil: it does not end
	work int             // steps that the call has taken
	look int             // steps at which overspent is called
}

// open begins a call.
func (b *budget) open(ctx context.Context) { *b = budget{ctx: ctx} }

// spend counts steps. It fails beyond maxWork, before the call takes seconds, and when its context
// ends.
func (b *budget) spend(steps int) {
	if b.work += steps; b.work >= b.look {
		b.overspent()
	}
}

func (b *budget) overspent() {
	if b.work > maxWork {
		panic(limit("more than %d steps in one call", maxWork))
	}
	b.look = min(b.work+lookEvery, maxWork+1)
	if b.ctx != nil && b.ctx.Err() != nil {
		panic(stopped{context.Cause(b.ctx)})
	}
}

func limit(format string, args ...any) limitError { return limitError{fmt.Sprintf(format, args...)} }

// bounded recovers the panic of a bound and stores it as an error. All entry points defer it.
func bounded(err *error) {
	switch r := recover().(type) {
	case nil:
	case limitError:
		*err = r
	case refusal:
		*err = r
	case stopped:
		*err = r.error
	default:
		panic(r)
	}
}
