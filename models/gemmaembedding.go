package models

import (
	"math"
	"slices"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/ir"
)

// gemmaEmbeddingFamily is EmbeddingGemma: Gemma 3 with attention both ways. Folders have what
// comes behind the pooling in folders of their own, see [modules].
var gemmaEmbeddingFamily = Family{
	Title: "EmbeddingGemma (embeddings)",
	Name:  "gemma-embedding", HF: "Gemma3TextModel", Define: gemmaEmbedding, Encodes: true,
	Fields: slices.Concat(gemma3Family.Fields, []Field{
		{HF: "use_bidirectional_attention", Only: true},
		{GGUF: "dense_2_feat_out", Size: func(c *Config) *int { return &c.Dense }, Optional: true},
		{GGUF: "dense_3_feat_in", Repeats: func(c *Config) int { return c.Dense }},
		{GGUF: "dense_2_feat_in", Repeats: func(c *Config) int { return c.Width }},
		{GGUF: "dense_3_feat_out", Repeats: func(c *Config) int { return c.Width }},
	}),
	Given: func(c *Config) {
		gemma3Family.Given(c)
		c.AttentionScale = 1 / math.Sqrt(float64(max(1, c.Head)))
		c.Both, c.Tied = true, true
	},
	Layer: gemma3Family.Layer,
	Tensors: lo.Assign(gemma3Family.Tensors, map[string]Stored{
		"dense_2.weight": as("2_Dense.linear.weight"),
		"dense_3.weight": as("3_Dense.linear.weight"),
	}),
}

// gemmaEmbedding is gemma3 without a head.
func gemmaEmbedding(b *ir.Builder, c *Config) {
	encoder := *c
	encoder.embeddings = true
	gemma3(b, &encoder)
}
