// Package models holds the model families, written in the DSL of package ir, and
// opens model files for them.
//
// A family is one file, llama.go or qwen3.go, that reads from top to bottom as a
// paper would describe the model, and one row of the table in family.go. What
// its graphs depend on is a [Config], read from a GGUF file's metadata or from a
// Hugging Face folder's config.json; weights bear the names they have in GGUF
// files, whatever form they come in.
//
//	m, err := models.Open("qwen3-0.6b-q4_0.gguf") // or a folder
//	if err != nil {
//		return err
//	}
//	defer m.Close()
//	f, err := m.Build(ir.Options{KV: ir.F16, Block: 4096})
//
// Build reports every tensor that is missing, misshapen or of a type we cannot
// read, and every one that the family has no use for, at once: a file that only
// looks like a model of the family never runs.
//
// [Arch] gives the shapes of well-known models without their weights, for
// compiling, drawing and measuring.
package models
