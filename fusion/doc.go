// Package fusion rewrites graphs by rules: several ops that a model spells out
// become one that a target computes in a single dispatch.
//
// A [Rule] is data: a pattern, what the replacement provides, and how to emit it.
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
// Whether it may be applied is the engine's business ([Apply]), the same for
// every rule:
//
//   - a capture that stands twice in a pattern is one value, and two different
//     Op patterns are two values,
//   - nothing escapes: a value that goes away has no reader but the match and is
//     no result; what others read must be yielded,
//   - the match is convex: no path leaves it and comes back, or the replacement
//     would wait for itself,
//   - all that goes away has one precision.
//
// The laws of patterns: the graph is matched from the anchor towards its
// operands; operands of mul and add match in either order, with full backtracking
// into the guards; where the parts of a match meet only in their operands, further
// roots ([Rule.Joins]) are found by climbing from a captured value to its readers.
//
// Each file named after a rule holds it, with a drawing. decompose.go holds the
// way back, for targets that lack an op and as the oracle in tests. The package
// imports only ir.
package fusion
