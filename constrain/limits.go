package constrain

import "fmt"

// Bounds on what one constraint may take. They count parts, not time, so that the same
// constraint is refused everywhere or nowhere.
const (
	maxNodes    = 400_000  // parts of regular expressions
	maxRows     = 40_000   // states of regular expressions, a kibibyte each
	maxSearch   = 20_000   // states looked through for one match
	maxStates   = 40_000   // states of the lexer, a kibibyte each
	maxOps      = 1 << 20  // steps of the grammar
	maxThreads  = 4_000    // ways to read a text that are followed beside each other
	maxSource   = 16 << 20 // bytes of a schema, an expression or a grammar
	maxDepth    = 500      // nesting of an expression, a grammar or a schema
	maxShapes   = 30_000   // schemas after references and combinations are followed
	maxBranches = 400      // alternatives that one schema comes to
	maxRepeat   = 100_000  // a count in an expression
	maxCaches   = 128 << 20
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
