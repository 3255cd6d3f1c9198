package constrain

import "fmt"

// Bounds on what one constraint may take. They count parts, not time, so that the same
// constraint is refused everywhere or nowhere.
const (
	maxSource   = 4 << 20  // bytes of a schema, an expression or a grammar
	maxDepth    = 500      // nesting of an expression, a grammar or a schema
	maxRepeat   = 100_000  // a count in an expression
	maxNames    = 10_000   // of properties, values or items of one schema
	maxNodes    = 200_000  // parts of regular expressions
	maxRows     = 24_000   // states of regular expressions, a kibibyte each
	maxSearch   = 20_000   // states looked through for one match
	maxStates   = 24_000   // states of the lexer, a kibibyte each
	maxPlaces   = 1 << 18  // places of the grammar
	maxThreads  = 4_000    // ways to read a text that are followed beside each other
	maxReadings = 1 << 16  // what can follow at places, kept until there are more
	maxShapes   = 30_000   // schemas after references and combinations are followed
	maxBranches = 400      // alternatives that one schema comes to
	maxCombined = 1 << 18  // combinations of alternatives
	maxWork     = 1 << 25  // steps of one call
	maxCaches   = 64 << 20 // bytes of masks that a vocabulary keeps, and a constraint
)

// limitError says which bound a constraint went over.
type limitError struct{ what string }

func (e limitError) Error() string { return "too large a constraint: " + e.what }

func limit(format string, args ...any) limitError { return limitError{fmt.Sprintf(format, args...)} }

// bounded turns the panic of a bound into an error: the one place where they end.
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
