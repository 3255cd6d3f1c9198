package families

import (
	"slices"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/models"
)

// phimoeFamily is the mixtures of Phi-3.5 as llama.cpp computes their GGUF files: see
// docs/rationale.md for why folders are refused.
var phimoeFamily = models.Family{
	Title: "Phi-3.5-MoE",
	Name:  "phimoe", Define: phimoe,
	Fields: slices.Concat(models.ByWidth, []models.Field{models.RMSEps, models.PartOfHeads(1), models.Window, models.Windowed(0),
		{GGUFTensor: "blk.0.attn_q.bias", Flag: func(c *models.Config) *bool { return &c.Biases.QKV }},
		{GGUF: "expert_count", Size: func(c *models.Config) *int { return &c.Experts.Count }},
		{GGUF: "expert_used_count", Size: func(c *models.Config) *int { return &c.Experts.Chosen }}}),
	Router: models.RouterKeys{Router: models.Router{Score: ir.SoftmaxScore, Normalised: true}},
	Given: func(c *models.Config) {
		c.Experts.FFN, c.Biases.Output, c.Biases.Head, c.Tied = c.FFN, true, true, false
	},
	Layer: models.WithWindow,
	Shapes: []models.Shape{
		{Parameters: 41_873_153_344, Config: models.Config{Name: "phi3.5-moe", Layers: 32, Width: 4096, Heads: 32, KVHeads: 8, Head: 128, FFN: 6400, Vocab: 32064, Context: 131072, Eps: 1e-5,
			Rope: models.Rope{Theta: 1e4}, Biases: models.Biases{QKV: true}, Experts: models.Experts{Count: 16, Chosen: 2}}},
	},
}

// phimoe is llama with a vector added behind each norm, and with biases in attention and the head:
//
//	x += Wo · attention(rope(Wq·n), rope(Wk·n), Wv·n) + b   n = RMSNorm(x) + b
//	x += Σ wᵢ · Wdownᵢ · (silu(Wgateᵢ·n) ∘ Wupᵢ·n)          n = RMSNorm(x) + b
func phimoe(b *ir.Builder, c *models.Config) {
	norm := func(b *ir.Builder, name string, x *ir.Value, eps float64) *ir.Value {
		return b.Shift(models.RMSNorm(b, name, x, eps), b.Weight(name+".bias", c.Width))
	}
	models.Decode(b, c, norm, func(l *models.LayerBuilder, x *ir.Value) *ir.Value {
		x = b.Add(x, models.Attention(l, l.Norm("attn_norm", x), models.AsIs))
		return models.AddFeedForward(l, x, l.Norm("ffn_norm", x), ir.SiLU)
	})
}
