// Package pages assigns the blocks of a paged cache: which block holds which tokens of which
// sequence, who may read it and who may write it.
//
// A [Pool] owns the blocks, a [Table] lists those of one sequence in order. The contents of a
// full block follow from its tokens, all tokens before them and a salt; a hash over these is its
// [Identity]. A sequence that needs a block whose identity the pool knows shares that block
// instead of computing it again, even after the sequence that computed it has ended:
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
//   - A block with a known identity, or one that two tables hold, is never written: a table that
//     writes there gets a copy first. [Pool.Copies] returns these copies for the step to make,
//     and the pool keeps their sources until then.
//   - No two blocks have the same identity: a sequence that has computed a known block goes on
//     with the known one.
//   - Blocks that no table holds stay known until they are needed. Blocks without an identity are
//     evicted first, then the least recently used, and of a sequence its last blocks before its
//     first, so that every known block can be found.
//   - Layers whose tokens see the last keys only have blocks of their own ([Group]). A table gives those
//     back that no later token sees, and takes new ones step by step. Such a block is one of a prefix
//     that is found only if each group knows what is still seen of the prefix: in groups without a
//     window all of its blocks, in others the last ones. Where sequences begin is not known ahead, but
//     prompts end there, and where the first group knows a longer prefix, others began alike: what is
//     seen behind these ends is evicted after what windows have passed elsewhere.
//   - Groups but the first never lack a block that a step needs: they have [Reserve], or as many blocks
//     as the first. Of the latter, a sequence holds there a block for each that it holds here.
//   - A sequence never lacks a recurrent state: there are two for each ([States]).
//   - A table gets all the blocks that it requests or none, and a failed request changes nothing,
//     not even the eviction order.
//
// Recurrent states lie beside the blocks. A sequence has one, which its steps read and write. The one at
// the end of a full block is known by that block's identity, so that others can go on from there; it is
// never written, the next step writes another. Steps end where that is of use ([Table.Stop]): at the last
// full block of a prompt, where the first group knew a longer prefix than there was a state for, and where
// another sequence waits to go on ([Table.Leave]).
//
// Salts separate tenants: a block is found only with the salt that it was computed under.
package pages
