// Package ir is the graph that everything else in smelt works on.
//
// A [Func] is a list of [Value]s in program order. A value is one operation: an
// [Op], ordered operands, a comparable attribute, and a [Type] that follows from
// them by a rule of the op table. There is no control flow. Weights, per-step
// inputs and caches are values without operands.
//
// Sizes that differ from step to step are symbols of package sym (T tokens, B sequences, R rows
// of logits, NB blocks, Smax as a bound on the context, C blocks that are copied); a
// [Dim] is a constant, a product of symbols, or such a product plus a constant. The tokens of a step are
// packed: activations are [T, …] with no batch axis, and what belongs to which
// sequence is data, in the inputs positions, slots, cu_seqlens, context_lens and
// block_table.
//
// The KV cache is a value too. A [State] is one version of a layer's cache; a
// write takes a version and returns the next, so that what must happen in order is
// ordered by data dependence and by nothing else. Verify sees to it that a version
// is replaced once and not read afterwards, which is what lets it live in place. So is a
// [Recurrent] state, what a layer keeps of a sequence that is no longer the longer that is:
// the last inputs of a short convolution. An op takes it over the tokens of a step and
// returns the next version.
//
// A graph is at one of two stages. [Source] graphs hold what a paper would write:
// attention, for example, is repeat_kv, matmul, scale, mask, softmax, matmul.
// [Fused] graphs may also hold ops that do many of these at once.
//
// The [Builder] is the core of the DSL that models are written in:
//
//	f, err := ir.Build("tiny", weights, ir.Options{Block: 512}, func(b *ir.Builder) {
//		x := b.Embed(b.Input(sym.Tokens), b.Weight("token_embd.weight", 1024, 256))
//		x = b.RMSNorm(x, b.Weight("output_norm.weight", 256), 1e-6)
//		b.Return("logits", b.Linear(b.GatherRows(x), b.Weight("output.weight", 1024, 256)))
//	})
//
// Every graph has a text form ([Func.String], [Parse]); [Func.Verify] states and checks the laws. Element types
// (ir/dtype) and symbols (ir/sym) are leaves that every room may import; the package imports
// nothing else of smelt.
package ir
