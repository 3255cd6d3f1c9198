// Package pages gives out the blocks of a paged cache: which block holds which tokens of
// which sequence, who may read it and who may write.
//
// A [Pool] owns the blocks, a [Table] is those of one sequence in their order. What a full
// block holds follows from its tokens, from all before them and from a salt; a hash over
// these is its [Identity], and whoever needs a block of an identity that the pool knows
// shares it instead of computing it again, while others use it and after they ended:
//
//	pool := pages.NewPool(512, 16)
//	t := pool.NewTable("")
//	cached, ok := t.Begin(prompt, len(prompt)) // blocks for the prompt, the first with tokens that are there already
//	...                                        // a step computes prompt[cached:] into t.Blocks()
//	t.Commit(prompt, len(prompt))              // its full blocks can be shared from here on
//	t.Release()
//
// Laws:
//
//   - A block that is known by an identity is never written again, and neither is one that
//     two tables hold: a table that writes there gets a copy first. Copies are handed to
//     whoever runs steps, by [Pool.Copies], and their sources are kept until then.
//   - No two blocks have one identity: a sequence that has computed what is known already
//     goes on with the known block.
//   - Blocks that nobody holds stay known until they are needed. Those without an identity
//     go first, then those that were not used for longest, of a sequence its last ones
//     before its first: what is known can always be reached.
//   - A table gets all the blocks that it asks for or none, and where it gets none nothing
//     has changed, the order of eviction included.
//
// Salts keep tenants apart: a block is only found by who gives the salt that it was made
// with. A recurrent state lies in blocks, beside keys and values: that of a full block is gone on
// from behind it.
package pages
