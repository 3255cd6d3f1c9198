// Package engine runs sequences of tokens: a [Runner] takes any mixture of sequences
// through a step of a Plan, in the phase that the Plan has for such steps; a [Sequence]
// is one sequence with a cache to itself, keeps the count of what is in it and cuts what
// it is fed into steps; an [Engine] runs many over one cache, and verifies guesses of what
// follows in the same steps; a [Sampler] chooses the next token from logits.
//
// Package batch writes the inputs of a step. A Runner knows of no sequence longer than
// for a step: which blocks of the cache are whose is decided above it, for an Engine by
// packages pages and schedule below this one.
package engine
