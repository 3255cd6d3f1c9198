// Package ref interprets graphs in Go, in float64: the oracle for all other ways
// to run them. It follows the op table of package ir exactly and is written to be
// read. Each op, fused ones included, is computed from its definition and shares no
// code with its decomposition, so that each checks the other.
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
// results is float64, and so is the KV cache unless [Env.RoundCache] is set. A
// target's results differ from these by rounding alone.
//
// With [Env.Followed] the interpreter follows a device op by op: each op is computed from
// the device's own operands, products round activations and weights where the device
// rounds them, and every element has a bound on its error from float arithmetic.
//
// Inputs are not trusted: an id outside the vocabulary, a slot outside the cache or a
// sequence boundary out of order is an error that names the value.
package ref
