package models

import (
	"math"
	"slices"

	"github.com/smelt-ml/smelt/ir"
)

// gemmaEmbeddingFamily is EmbeddingGemma: Gemma 3 with attention both ways. Folders have what
// comes behind the pooling in folders of their own, which are not read.
var gemmaEmbeddingFamily = Family{
	Title: "EmbeddingGemma (embeddings)",
	Name:  "gemma-embedding", Define: gemmaEmbedding, Encodes: true,
	Fields: slices.Concat(gemma3Family.Fields, []Field{
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
}

// gemmaEmbedding is gemma3 without a head.
func gemmaEmbedding(b *ir.Builder, c *Config) {
	encoder := *c
	encoder.embeddings = true
	gemma3(b, &encoder)
}
