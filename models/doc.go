// Package models holds the model families, written in the DSL of package ir, and
// opens model files for them.
//
// A family is one file, llama.go or qwen3.go, and one row of the table in family.go. The
// file says what the configuration is called in a GGUF file's metadata and in a Hugging
// Face folder's config.json ([Field]), where folders have each weight and in what form
// ([Stored]), and what is computed, from top to bottom as a paper would describe it. What
// families share are the functions of blocks.go; what a graph depends on besides weights
// is a [Config], in which layers may differ. Weights bear the names they have in GGUF
// files, whatever form they come in; where a file has several as one, a definition asks for
// the parts. What llama.cpp computes for each family is kept by internal/parity.
//
//	m, err := models.Open("qwen3-0.6b-q4_0.gguf") // or a folder
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
// compiling, drawing and measuring; package synth gives them random ones. Package quantize
// writes a model with another type of weights, as [Checkpoint.Rewrite] says. [Checkpoint.Identity]
// is what a compiled Plan recognises its model by.
package models
