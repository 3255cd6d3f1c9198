// Package checkpoint opens model files for the families of package families.
//
//	m, err := checkpoint.Open("qwen3-0.6b-q4_0.gguf") // or a folder
//	if err != nil {
//	return err
//	}
//	defer m.Close()
//	f, err := m.Build(ir.Options{KV: dtype.F16, Block: 4096})
//
// Weights have the names and shapes of GGUF files. Where a file stores a weight otherwise, rules
// derive it: a [Derivation] is a view of stored bytes where possible, else a copy in memory, and
// [Tensor.History] describes it.
//
// Build reports all tensors at once that are missing, misshapen, of an unsupported type, or that
// the family has no use for: a file that merely resembles a model of the family never runs.
//
// [Arch] returns the shapes of well-known models without their weights, to compile, draw and
// measure them. [Checkpoint.Rewrite] describes the GGUF file of a model with another type of
// weights, and [Checkpoint.Identity] identifies the model to a compiled Plan.
package checkpoint
