package models

import (
	"slices"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/ir"
)

// mptFamily is MPT: scores that fall with distance in place of positions, LayerNorm with a
// gain alone.
var mptFamily = Family{
	Title: "MPT",
	Name:  "mpt", HF: "MPTForCausalLM", Alias: []string{"MptForCausalLM"}, Define: mpt,
	Fields: slices.Concat(renamed(fourWidths(shapeFields(widthByHeads)), map[string]string{"max_position_embeddings": "max_seq_len", "hidden_size": "d_model",
		"num_hidden_layers": "n_layers", "num_attention_heads": "n_heads", "num_key_value_heads": "attn_config.kv_n_heads"}), []Field{
		{HF: "expansion_ratio", Only: 4}, layerEps("layer_norm_epsilon", 1e-5), tied(true),
		{GGUF: "attention.max_alibi_bias", HF: "attn_config.alibi_bias_max", Number: func(c *Config) *float64 { return &c.ALiBi }, Absent: inFolders(8)},
		{HF: "attn_config.alibi", Only: true}, {HF: "attn_config.qk_ln", Only: false}, {HF: "attn_config.prefix_lm", Only: false},
		{HF: "no_bias", Only: true}, {HF: "logit_scale", Only: false}, {HF: "norm_type", Only: "low_precision_layernorm"},
		{Read: refuseClamp}}),
	Given: func(c *Config) { c.Rope = Rope{} },
	Layer: withoutRope, Joined: []string{"attn_qkv"}, Prefix: "transformer.",
	Tensors: lo.Assign(cut("attn_qkv", as("transformer.blocks.#.attn.Wqkv.weight")), map[string]Stored{
		"token_embd.weight":        as("transformer.wte.weight"),
		"output_norm.weight":       as("transformer.norm_f.weight"),
		"output.weight":            as("lm_head.weight"),
		"blk.#.attn_norm.weight":   as("transformer.blocks.#.norm_1.weight"),
		"blk.#.attn_output.weight": as("transformer.blocks.#.attn.out_proj.weight"),
		"blk.#.ffn_norm.weight":    as("transformer.blocks.#.norm_2.weight"),
		"blk.#.ffn_up.weight":      as("transformer.blocks.#.ffn.up_proj.weight"),
		"blk.#.ffn_down.weight":    as("transformer.blocks.#.ffn.down_proj.weight"),
	}),
}

// refuseClamp refuses models that clamp what they multiply Q, K and V of.
func refuseClamp(d description, _ *Config) {
	clamp := map[Form]string{GGUF: "attention.clamp_kqv", Folder: "attn_config.clip_qkv"}[d.form()]
	if d.has(clamp) && d.number(clamp, 0) != 0 {
		d.fail(configError("%s is %g", d.fullName(clamp), d.number(clamp, 0)))
	}
}

// mpt is, with n = LayerNorm(x),
//
//	x += Wo · attention(Wq·n, Wk·n, Wv·n)
//	x += Wdown · gelu(Wup·n)
func mpt(b *ir.Builder, c *Config) {
	decode(b, c, gainNorm, func(l *layer, x *ir.Value) *ir.Value {
		x = b.Add(x, attention(l, l.norm("attn_norm", x), asItIs))
		return b.Add(x, ungated(l, l.norm("ffn_norm", x), ir.GELU))
	})
}
