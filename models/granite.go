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

// granite is llama with embeddings multiplied by EmbeddingScale, what layers add by
// ResidualScale, and logits divided by LogitScale. The residual stream is written down
// divided by ResidualScale, s, as a product then adds to it what it computes: norms are all
// that reads it, and norm(s·y) with ε is norm(y) with ε/s².
func granite(b *ir.Builder, c *Config) {
	llamaLike, s := *c, cmp.Or(c.ResidualScale, 1)
	llamaLike.EmbeddingScale, llamaLike.ResidualScale, llamaLike.Eps = cmp.Or(c.EmbeddingScale, 1)/s, 0, c.Eps/(s*s)
	llamaLike.LogitScale = 1 / cmp.Or(c.LogitScale, 1)
	llama(b, &llamaLike)
}
