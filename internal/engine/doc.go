// Package engine runs sequences of tokens. A [Runner] runs steps with any mixture of sequences,
// each in the phase of the Plan that fits its sizes; a [Sequence] is one sequence with a cache
// of its own, and splits its input into steps; an [Engine] runs many sequences over one cache,
// and verifies guessed tokens in the same steps; a [Sampler] chooses the next token from logits.
//
// Package batch writes the inputs of a step. A Runner keeps no sequence beyond a step: its user
// assigns cache blocks to sequences. An Engine does so with packages pages and schedule below
// this one.
package engine
