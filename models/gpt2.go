package models

import (
	"slices"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/ir"
)

// gpt2Family is GPT-2: an embedding for each position, LayerNorm, biases, no gate. Folders
// have matrices transposed.
var gpt2Family = Family{
	Title: "GPT-2",
	Name:  "gpt2", HF: "GPT2LMHeadModel", Define: gpt2,
	Fields: slices.Concat(renamed(fourWidths(shapeFields(widthByHeads)), map[string]string{"max_position_embeddings": "n_positions", "hidden_size": "n_embd",
		"num_hidden_layers": "n_layer", "intermediate_size": "n_inner", "num_attention_heads": "n_head"}), []Field{
		layerEps("layer_norm_epsilon", 1e-5), tied(true), {HF: "activation_function", Only: "gelu_new"}, {HF: "scale_attn_weights", Only: true},
		{HF: "scale_attn_by_inverse_layer_idx", Only: false}}),
	Given: func(c *Config) {
		c.Biases, c.Positions, c.Rope = Biases{QKV: true, Output: true, FFN: true}, true, Rope{}
	},
	Layer: withoutRope, Joined: []string{"attn_qkv"}, Prefix: "transformer.",
	Tensors: lo.Assign(cut("attn_qkv", Stored{Names: []string{"transformer.h.#.attn.c_attn.weight"}, Transposed: true}), map[string]Stored{
		"token_embd.weight":        as("transformer.wte.weight"),
		"position_embd.weight":     as("transformer.wpe.weight"),
		"output_norm.weight":       as("transformer.ln_f.weight"),
		"output.weight":            as("lm_head.weight"),
		"blk.#.attn_norm.weight":   as("transformer.h.#.ln_1.weight"),
		"blk.#.attn_output.weight": {Names: []string{"transformer.h.#.attn.c_proj.weight"}, Transposed: true},
		"blk.#.ffn_norm.weight":    as("transformer.h.#.ln_2.weight"),
		"blk.#.ffn_up.weight":      {Names: []string{"transformer.h.#.mlp.c_fc.weight"}, Transposed: true},
		"blk.#.ffn_down.weight":    {Names: []string{"transformer.h.#.mlp.c_proj.weight"}, Transposed: true},
	}),
	Ignorable: []string{"*h.*.attn.bias", "*h.*.attn.masked_bias"},
}

// withoutRope is for families whose heads do not rotate.
func withoutRope(_ *Config, _ int, l *Layer) { l.Rope = nil }

// gpt2 is, with n = LayerNorm(x) and biases in all products,
//
//	x += Wo · attention(Wq·n, Wk·n, Wv·n)
//	x += Wdown · gelu(Wup·n)
func gpt2(b *ir.Builder, c *Config) {
	decode(b, c, layerNorm, func(l *layer, x *ir.Value) *ir.Value {
		x = b.Add(x, attention(l, l.norm("attn_norm", x), asItIs))
		return b.Add(x, ungated(l, l.norm("ffn_norm", x), ir.GELUTanh))
	})
}
