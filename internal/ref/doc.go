// Package ref interprets graphs in Go, in float64: the oracle of every other way
// to run them. It follows the op table of package ir to the letter and is written
// to be read; each op, fused ones included, is computed from its definition and
// shares no code with its decomposition, so that each checks the other.
//
//	out, err := ref.Run(f, ref.Env{
//		Sizes:  ref.SizesFor(inputs, 512),
//		Inputs: inputs,          // tokens, positions, slots, …
//		Weight: weights.Load,    // by name, dequantized
//		Caches: caches,          // by layer; writes happen in place
//	})
//	logits := out.Tensors["logits"]
//
// Element types of activations are ignored: everything between weights and
// results is float64, and so is the KV cache unless [Env.RoundCache] is set. What
// a graph computes on a target differs from this by rounding alone.
//
// With [Env.Followed] it follows a device op by op instead: each op is computed from what
// the device itself has for its operands, products round activations and weights where
// the device rounds them, and every element comes with a bound on what float arithmetic
// may change.
//
// Nothing an input says is trusted: an id outside the vocabulary, a slot outside
// the cache or a sequence boundary out of order is an error that names the value
// that met it.
package ref
