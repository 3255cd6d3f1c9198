// Package ir defines the op graph: definitions in Go build it, passes rewrite it, and package
// lower schedules it.
//
// A [Func] is a list of [Value]s in program order. A value is one operation: an
// [Op], ordered operands, a comparable attribute, and a [Type] that the op table
// infers from them. There is no control flow. Weights, per-step inputs and caches
// are values without operands.
//
// Sizes that differ from step to step are symbols of package sym (T tokens, B sequences, R rows
// of logits, NB blocks, Smax as a bound on the context, C copied blocks); a
// [Dim] is a constant, a product of symbols, or such a product plus a constant. The tokens of a
// step are packed: activations are [T, …] with no batch axis. The inputs positions, slots,
// cu_seqlens, context_lens, block_table and states map tokens to sequences, and these to caches and states.
//
// The KV cache is a value too. A [State] is one version of a layer's cache; a
// write consumes a version and returns the next, so that data dependence alone orders
// reads and writes. Verify checks that a version is replaced at most once and not read
// afterwards, which lets every version live in the same memory. A [Recurrent] state follows
// the same law: it is what a layer keeps of a sequence in memory of constant size, such as
// the last inputs of a short convolution. An op advances it over the tokens of a step.
//
// A graph is at one of two stages. [Source] graphs hold the ops of a paper's formulas:
// attention, for example, is repeat_kv, matmul, scale, mask, softmax, matmul.
// [Fused] graphs may also hold ops that compute several of these in one dispatch.
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
