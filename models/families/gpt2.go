package families

import (
	"slices"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/models"
)

// gpt2Family is GPT-2: position embeddings, LayerNorm, biases, no gate. Folders store matrices
// transposed.
var gpt2Family = models.Family{
	Title: "GPT-2",
	Name:  "gpt2", HF: "GPT2LMHeadModel", Define: gpt2,
	Fields: slices.Concat(models.Renamed(models.FourWidths(models.ByWidth), map[string]string{"max_position_embeddings": "n_positions", "hidden_size": "n_embd",
		"num_hidden_layers": "n_layer", "intermediate_size": "n_inner", "num_attention_heads": "n_head"}), []models.Field{
		models.LayerEps("layer_norm_epsilon", 1e-5), models.Tied(true), {HF: "activation_function", Only: "gelu_new"}, {HF: "scale_attn_weights", Only: true},
		{HF: "scale_attn_by_inverse_layer_idx", Only: false}}),
	Given: func(c *models.Config) {
		c.Biases, c.Positions, c.Rope = models.Biases{QKV: true, Output: true, FFN: true}, true, models.Rope{}
	},
	Layer: withoutRope, Joined: []string{"attn_qkv"}, Prefixes: []string{"transformer."},
	Tensors: lo.Assign(models.Cut("attn_qkv", models.Stored{Names: []string{"transformer.h.#.attn.c_attn.weight"}, Transposed: true}), map[string]models.Stored{
		"token_embd.weight":        models.As("transformer.wte.weight"),
		"position_embd.weight":     models.As("transformer.wpe.weight"),
		"output_norm.weight":       models.As("transformer.ln_f.weight"),
		"output.weight":            models.As("lm_head.weight"),
		"blk.#.attn_norm.weight":   models.As("transformer.h.#.ln_1.weight"),
		"blk.#.attn_output.weight": {Names: []string{"transformer.h.#.attn.c_proj.weight"}, Transposed: true},
		"blk.#.ffn_norm.weight":    models.As("transformer.h.#.ln_2.weight"),
		"blk.#.ffn_up.weight":      {Names: []string{"transformer.h.#.mlp.c_fc.weight"}, Transposed: true},
		"blk.#.ffn_down.weight":    {Names: []string{"transformer.h.#.mlp.c_proj.weight"}, Transposed: true},
	}),
	Ignorable: []string{"*h.*.attn.bias", "*h.*.attn.masked_bias"},
	Shapes: []models.Shape{
		{Parameters: 124_439_808, Config: models.Config{Name: "gpt2", Layers: 12, Width: 768, Heads: 12, KVHeads: 12, Head: 64, FFN: 3072, Vocab: 50257, Context: 1024, Eps: 1e-5, Tied: true}},
	},
}

// withoutRope is the [models.Family.Layer] of families without RoPE.
func withoutRope(_ *models.Config, _ int, l *models.Layer) { l.Rope = nil }

// gpt2 is, with n = LayerNorm(x) and biases in all products,
//
//	x += Wo · attention(Wq·n, Wk·n, Wv·n)
//	x += Wdown · gelu(Wup·n)
func gpt2(b *ir.Builder, c *models.Config) {
	models.Decode(b, c, models.LayerNorm, func(l *models.LayerBuilder, x *ir.Value) *ir.Value {
		x = b.Add(x, models.Attention(l, l.Norm("attn_norm", x), models.AsIs))
		return b.Add(x, models.Ungated(l, l.Norm("ffn_norm", x), ir.GELUTanh))
	})
}
