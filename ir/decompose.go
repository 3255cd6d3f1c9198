package ir

import "fmt"

// Decomposition appends to f the source ops that compute what v computes, and
// returns their results: one value for a tensor or a state, one for each element
// of a tuple. It replaces nothing. The results have v's types.
type Decomposition func(f *Func, v *Value) ([]*Value, error)

// decompositions is the column of the op table that package fusion fills, since
// a decomposition belongs beside the rule that makes the fused op.
var decompositions [numOps]Decomposition

// RegisterDecompose sets the decomposition of a fused op. It panics if the op has one.
func RegisterDecompose(op Op, d Decomposition) {
	if decompositions[op] != nil {
		panic(fmt.Sprintf("ir: %s has two decompositions", op))
	}
	decompositions[op] = d
}

// CanDecompose reports whether the op can be written as source ops.
func (op Op) CanDecompose() bool { return decompositions[op] != nil }

// Decompose runs the decomposition of v's op.
func (op Op) Decompose(f *Func, v *Value) ([]*Value, error) {
	if !op.CanDecompose() {
		return nil, fmt.Errorf("%s: %s is not made of other ops", v, op)
	}
	return decompositions[op](f, v)
}
