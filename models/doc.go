// Package models holds what model families are written with: the blocks of the DSL, the
// configuration of a model, and the words in which a family says what its files are called.
//
//	checkpoint   opens files, makes weights of what they store, builds graphs
//	families     a file for each family, and the table of them
//	models       blocks, Config, Field, Stored, Family
//
// Each imports what stands below it. A [Family] says what the configuration is called in a
// GGUF file's metadata and in a Hugging Face folder's config.json ([Field]), where folders
// have each weight and in what form ([Stored]), which models of it are well known ([Shape]), and
// what is computed, from top to bottom as a paper would describe it. What a graph depends on
// besides weights is a [Config], in which layers may differ. Weights bear the names they have in
// GGUF files, whatever form they come in; where a file has several as one, a definition asks
// for the parts.
//
//	var qwen3Family = models.Family{
//		Title: "Qwen3", Name: "qwen3", HF: "Qwen3ForCausalLM",
//		Fields:  models.DecoderFields(models.WidthByHeads),
//		Tensors: models.DecoderTensors(nil),
//		Define: func(b *ir.Builder, c *models.Config) {
//			models.Decode(b, c, models.RMSNorm, func(l *models.LayerBuilder, x *ir.Value) *ir.Value {
//				x = b.Add(x, models.Attention(l, l.Norm("attn_norm", x), l.NormHeads))
//				return b.Add(x, models.Gated(l, l.Norm("ffn_norm", x), ir.SiLU))
//			})
//		},
//	}
//
// docs/guides/add-a-family.md shows the rest. Package synth gives shapes random weights, and
// package quantize writes a model with another type of weights. What llama.cpp computes for each
// family is kept by internal/tools/parity.
package models
