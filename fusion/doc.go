// Package fusion rewrites graphs by rules: each replaces several source ops by one
// fused op that a target computes in a single dispatch.
//
// A [Rule] is data: a pattern, the matched values that it replaces, and a function that emits
// the replacement.
//
//	a, b := Any(), Any()
//	activation := Op(ir.OpActivate, a)
//	product := Op(ir.OpMul, activation, b)
//	rule := &Rule{
//		Name:   "gated_activation",
//		Anchor: product,
//		Yields: []*Pat{product},
//		Build: func(e *Emitter, m Match) []*ir.Value {
//			return []*ir.Value{e.Emit(ir.OpGate, m[activation].Attr, m[a], m[b])}
//		},
//	}
//
// The engine ([Apply]) checks the same conditions for every rule:
//
//   - a capture that occurs twice in a pattern matches one value, and two different
//     Op patterns match two values,
//   - nothing escapes: a removed value is read only inside the match and is no
//     result; values with other readers must be yielded,
//   - the match is convex: no path leaves it and returns, since the replacement
//     would depend on itself,
//   - all removed values have one precision.
//
// The laws of patterns: the graph is matched from the anchor towards its
// operands; operands of commutative ops match in either order, with full backtracking
// that includes the guards; further roots ([Rule.Joins]), which share only operands with
// the rest of a match, are found by climbing from a captured value to its readers.
//
// Each rule has a file of its name, with its formula before and after. decompose.go holds
// the inverse, for targets that lack an op and as the oracle in tests. The package
// imports only ir.
package fusion
