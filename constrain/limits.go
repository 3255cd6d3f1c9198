package constrain

import "fmt"

// Bounds on the size of one constraint. They count parts and not time, so that a constraint is
// refused on every machine or on none.
const (
	maxSource   = 4 << 20  // bytes of a schema, an expression or a grammar
	maxDepth    = 500      // nesting of an expression, a grammar or a schema
	maxRepeat   = 100_000  // a count in an expression
	maxTurns    = 100      // a count of what has an anchor, a boundary or a lookahead
	maxNames    = 10_000   // of properties, values or items of one schema
	maxNodes    = 200_000  // parts of regular expressions
	maxRows     = 24_000   // states of regular expressions, a kibibyte each
	maxSearch   = 20_000   // states looked through for one match
	maxStates   = 24_000   // states of the lexer, a kibibyte each
	maxPlaces   = 1 << 18  // places of a grammar
	maxThreads  = 4_000    // threads of one reading
	maxReadings = 1 << 16  // cached readings, cleared when there are more
	maxShapes   = 30_000   // schemas after resolving references and combinations
	maxBranches = 400      // alternatives of one schema
	maxCombined = 1 << 18  // combinations of alternatives
	maxWork     = 1 << 25  // steps of one call
	maxCaches   = 64 << 20 // bytes of masks cached by a vocabulary, and by a constraint
)

// limitError is a bound that a constraint exceeded.
type limitError struct{ what string }

func (e limitError) Error() string { return "constraint too large: " + e.what }

func limit(format string, args ...any) limitError { return limitError{fmt.Sprintf(format, args...)} }

// bounded recovers the panic of a bound and stores it as an error. All entry points defer it.
func bounded(err *error) {
	switch r := recover().(type) {
	case nil:
	case limitError:
		*err = r
	case refusal:
		*err = r
	default:
		panic(r)
	}
}
