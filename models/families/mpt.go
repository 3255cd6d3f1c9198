package families

import (
	"slices"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/models"
)

// mptFamily is MPT: ALiBi in place of positions, LayerNorm with a gain and no bias. GGUF files may have
// biases and embeddings of positions; with norms of Q and K llama.cpp stops.
var mptFamily = models.Family{
	Title: "MPT",
	Name:  "mpt", HF: "MPTForCausalLM", Alias: []string{"MptForCausalLM"}, Define: mpt,
	Fields: slices.Concat(models.Renamed(models.FourWidths(models.ByWidth), map[string]string{"max_position_embeddings": "max_seq_len", "hidden_size": "d_model",
		"num_hidden_layers": "n_layers", "num_attention_heads": "n_heads", "num_key_value_heads": "attn_config.kv_n_heads"}), []models.Field{
		{HF: "expansion_ratio", Only: 4}, models.LayerEps("layer_norm_epsilon", 1e-5), models.Tied(true),
		{GGUF: "attention.max_alibi_bias", HF: "attn_config.alibi_bias_max", Number: func(c *models.Config) *float64 { return &c.ALiBi }, Optional: true, Absent: models.InFolders(8)},
		{GGUFTensor: "position_embd.weight", Flag: func(c *models.Config) *bool { return &c.Positions }},
		{GGUFTensor: "blk.0.attn_output.bias", Flag: func(c *models.Config) *bool { return &c.Biases.Output }}, {GGUFTensor: "blk.0.ffn_up.bias", Flag: func(c *models.Config) *bool { return &c.Biases.FFN }},
		{HF: "attn_config.alibi", Only: true}, {HF: "attn_config.qk_ln", Only: false}, {HF: "attn_config.prefix_lm", Only: false},
		{HF: "no_bias", Only: true}, {HF: "logit_scale", Only: false}, {HF: "norm_type", Only: "low_precision_layernorm"},
		{Read: refuseClamp}}),
	Given: func(c *models.Config) { c.Rope = models.Rope{} },
	Layer: withoutRope, Joined: []string{"attn_qkv"}, Prefixes: []string{"transformer."},
	Tensors: lo.Assign(models.Cut("attn_qkv", models.As("transformer.blocks.#.attn.Wqkv.weight")), map[string]models.Stored{
		"token_embd.weight":        models.As("transformer.wte.weight"),
		"output_norm.weight":       models.As("transformer.norm_f.weight"),
		"output.weight":            models.As("lm_head.weight"),
		"blk.#.attn_norm.weight":   models.As("transformer.blocks.#.norm_1.weight"),
		"blk.#.attn_output.weight": models.As("transformer.blocks.#.attn.out_proj.weight"),
		"blk.#.ffn_norm.weight":    models.As("transformer.blocks.#.norm_2.weight"),
		"blk.#.ffn_up.weight":      models.As("transformer.blocks.#.ffn.up_proj.weight"),
		"blk.#.ffn_down.weight":    models.As("transformer.blocks.#.ffn.down_proj.weight"),
	}),
	Shapes: []models.Shape{
		{Parameters: 6_649_286_656, Config: models.Config{Name: "mpt-7b", Layers: 32, Width: 4096, Heads: 32, KVHeads: 32, Head: 128, FFN: 16384, Vocab: 50432, Context: 2048, Eps: 1e-5,
			Tied: true, ALiBi: 8}},
	},
}

// refuseClamp refuses models that clamp Q, K and V.
func refuseClamp(d models.Description, _ *models.Config) {
	clamp := map[models.Format]string{models.GGUF: "attention.clamp_kqv", models.Folder: "attn_config.clip_qkv"}[d.Format()]
	if d.Has(clamp) && d.Number(clamp, 0) != 0 {
		d.Fail(models.ConfigError("%s is %g, want 0", d.FullName(clamp), d.Number(clamp, 0)))
	}
}

// mptNorm has a bias where the file has one.
func mptNorm(b *ir.Builder, name string, x *ir.Value, eps float64) *ir.Value {
	if b.HasWeight(name + ".bias") {
		return models.LayerNorm(b, name, x, eps)
	}
	return models.GainNorm(b, name, x, eps)
}

// mpt is, with n = LayerNorm(x),
//
//	x += Wo · attention(Wq·n, Wk·n, Wv·n)
//	x += Wdown · gelu(Wup·n)
func mpt(b *ir.Builder, c *models.Config) {
	models.Decode(b, c, mptNorm, func(l *models.LayerBuilder, x *ir.Value) *ir.Value {
		x = b.Add(x, models.Attention(l, l.Norm("attn_norm", x), models.AsIs))
		return b.Add(x, models.Ungated(l, l.Norm("ffn_norm", x), ir.GELU))
	})
}
