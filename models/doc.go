// Package models defines what model families are written with: the blocks of the DSL, the
// configuration of a model ([Config]), and the tables that map a family's file formats to it.
//
//	checkpoint   opens files, derives weights from stored tensors, builds graphs
//	families     one file for each family, and the table of families
//	models       blocks, Config, Field, Stored, Family
//
// Each package imports only those listed below it. A [Family] names the configuration's keys in a
// GGUF file's metadata and in a Hugging Face folder's config.json ([Field]), locates each weight in
// folders ([Stored]), lists well-known models ([Shape]), and defines the graph from top to bottom
// as a paper would describe it. A [Config] holds everything besides weights that a graph depends
// on; layers may differ in it. Weights have their GGUF names, whatever format they come from. Where
// a file stores several weights as one tensor, a definition asks for the parts.
//
//	var qwen3Family = models.Family{
//	Title: "Qwen3", Name: "qwen3", HF: "Qwen3ForCausalLM",
//	Fields:  models.DecoderFields(models.WidthByHeads),
//	Tensors: models.DecoderTensors(nil),
//	Define: func(b *ir.Builder, c *models.Config) {
//	models.Decode(b, c, models.RMSNorm, func(l *models.LayerBuilder, x *ir.Value) *ir.Value {
//	x = b.Add(x, models.Attention(l, l.Norm("attn_norm", x), l.NormHeads))
//	return b.Add(x, models.Gated(l, l.Norm("ffn_norm", x), ir.SiLU))
//	})
//	},
//	}
//
// docs/guides/add-a-family.md describes the remaining members. Package synth fills shapes with
// random weights, and package quantize writes a model with another type of weights.
// internal/tools/parity records what llama.cpp computes for each family.
package models
