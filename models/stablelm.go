package models

import (
	"slices"

	"github.com/smelt-ml/smelt/ir"
)

// stablelmFamily is StableLM 2, Zephyr 3B and StableLM 3B: Llama with LayerNorm, part of
// each head rotated, biases on Q, K and V in some, and heads that are normed in the one of 12B, whose
// folders have a tensor for each.
var stablelmFamily = Family{
	Title: "StableLM",
	Name:  "stablelm", HF: "StableLmForCausalLM", Define: stablelm,
	Fields: slices.Concat(shapeFields(widthByHeads), []Field{layerEps("layer_norm_eps", 1e-5), partOfHeads(0.25), tied(false), activation("silu"),
		{HF: "use_qkv_bias", GGUFTensor: "blk.0.attn_q.bias", Flag: func(c *Config) *bool { return &c.Biases.QKV }},
		{GGUF: "use_parallel_residual", HF: "use_parallel_residual", Flag: func(c *Config) *bool { return &c.Parallel }},
		headNorms("qk_layernorm")}),
	Tensors: decoderTensors(map[string]Stored{
		"blk.#.attn_q_norm.weight": {Names: []string{"model.layers.#.self_attn.q_layernorm.norms.%.weight"}, Each: func(c *Config) int { return c.Heads }},
		"blk.#.attn_k_norm.weight": {Names: []string{"model.layers.#.self_attn.k_layernorm.norms.%.weight"}, Each: func(c *Config) int { return c.KVHeads }},
	}),
}

// stablelm is, with n = LayerNorm(x),
//
//	x += Wo · attention(rope(Wq·n), rope(Wk·n), Wv·n)
//	x += Wdown · (silu(Wgate·n) ∘ Wup·n)
//
// where Parallel models have one norm a layer, which both halves read.
func stablelm(b *ir.Builder, c *Config) {
	decode(b, c, layerNorm, func(l *layer, x *ir.Value) *ir.Value {
		n := l.norm("attn_norm", x)
		x = b.Add(x, attention(l, n, l.normedHeads()))
		if !c.Parallel {
			n = l.norm("ffn_norm", x)
		}
		return b.Add(x, gated(l, n, ir.SiLU))
	})
}
