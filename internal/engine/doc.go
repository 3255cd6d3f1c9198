// Package engine runs sequences of tokens: a [Session] feeds tokens through a
// Plan in steps of the right phase and keeps the count of what its caches hold; a
// [Sampler] chooses the next token from logits.
//
// A step's inputs describe packed sequences (see [github.com/smelt-ml/smelt/ir]);
// a Session is the case of one.
package engine
