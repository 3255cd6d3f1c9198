package families

import (
	"slices"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/models"
)

// stablelmFamily is StableLM 2, Zephyr 3B and StableLM 3B: Llama with LayerNorm and part of each
// head rotated. Some models have biases on Q, K and V; the one of 12B normalises heads, with a
// tensor for each in folders.
var stablelmFamily = models.Family{
	Title: "StableLM",
	Name:  "stablelm", HF: "StableLmForCausalLM", Define: stablelm,
	Fields: slices.Concat(models.ByWidth, []models.Field{models.LayerEps("layer_norm_eps", 1e-5), models.PartOfHeads(0.25), models.Tied(false), models.Activation("silu"),
		{HF: "use_qkv_bias", GGUFTensor: "blk.0.attn_q.bias", Flag: func(c *models.Config) *bool { return &c.Biases.QKV }},
		{GGUF: "use_parallel_residual", HF: "use_parallel_residual", Flag: func(c *models.Config) *bool { return &c.Parallel }},
		models.HeadNorms("qk_layernorm")}),
	Tensors: models.DecoderTensors(map[string]models.Stored{
		"blk.#.attn_q_norm.weight": {Names: []string{"model.layers.#.self_attn.q_layernorm.norms.%.weight"}, Each: func(c *models.Config) int { return c.Heads }},
		"blk.#.attn_k_norm.weight": {Names: []string{"model.layers.#.self_attn.k_layernorm.norms.%.weight"}, Each: func(c *models.Config) int { return c.KVHeads }},
	}),
	Shapes: []models.Shape{
		{Parameters: 1_644_515_328, Config: models.Config{Name: "stablelm2-1.6b", Layers: 24, Width: 2048, Heads: 32, KVHeads: 32, Head: 64, FFN: 5632, Vocab: 100352, Context: 4096, Eps: 1e-5,
			Rope: models.Rope{Theta: 1e4, Rotated: 16}, Biases: models.Biases{QKV: true}}},
	},
}

// stablelm is, with n = LayerNorm(x),
//
//	x += Wo · attention(rope(Wq·n), rope(Wk·n), Wv·n)
//	x += Wdown · (silu(Wgate·n) ∘ Wup·n)
//
// where Parallel models have one norm a layer, which attention and feed-forward network share.
func stablelm(b *ir.Builder, c *models.Config) {
	models.Decode(b, c, models.LayerNorm, func(l *models.LayerBuilder, x *ir.Value) *ir.Value {
		n := l.Norm("attn_norm", x)
		x = b.Add(x, models.Attention(l, n, l.NormedHeads()))
		if !c.Parallel {
			n = l.Norm("ffn_norm", x)
		}
		return b.Add(x, models.Gated(l, n, ir.SiLU))
	})
}
