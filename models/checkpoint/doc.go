// Package checkpoint opens model files for the families of package families.
//
//	m, err := checkpoint.Open("qwen3-0.6b-q4_0.gguf") // or a folder
//	if err != nil {
//		return err
//	}
//	defer m.Close()
//	f, err := m.Build(ir.Options{KV: dtype.F16, Block: 4096})
//
// Build reports every tensor that is missing, misshapen or of a type we cannot
// read, and every one that the family has no use for, at once: a file that only
// looks like a model of the family never runs.
//
// [Arch] gives the shapes of well-known models without their weights, for
// compiling, drawing and measuring. [Checkpoint.Rewrite] says what a GGUF file of a model holds
// once its weights have another type, and [Checkpoint.Identity] is what a compiled Plan
// recognises its model by.
package checkpoint
