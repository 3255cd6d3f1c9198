package models

import (
	"cmp"
	"slices"

	"github.com/smelt-ml/smelt/ir"
)

// graniteFamily is the dense models of Granite 3: Llama with four multipliers.
var graniteFamily = Family{
	Title: "Granite 3",
	Name:  "granite", HF: "GraniteForCausalLM", Define: granite,
	Fields: slices.Concat(decoderFields(widthByHeads), []Field{
		{GGUF: "embedding_scale", HF: "embedding_multiplier", Number: func(c *Config) *float64 { return &c.EmbeddingScale }, Optional: true},
		{GGUF: "residual_scale", HF: "residual_multiplier", Number: func(c *Config) *float64 { return &c.ResidualScale }, Optional: true},
		{GGUF: "attention.scale", HF: "attention_multiplier", Number: func(c *Config) *float64 { return &c.AttentionScale }, Optional: true},
		{GGUF: "logit_scale", HF: "logits_scaling", Number: func(c *Config) *float64 { return &c.LogitScale }},
	}),
	Tensors: decoderTensors(nil), Interleaved: true,
}

// granite is llama with its logits divided by LogitScale.
func granite(b *ir.Builder, c *Config) {
	divided := *c
	divided.LogitScale = 1 / cmp.Or(c.LogitScale, 1)
	llama(b, &divided)
}
