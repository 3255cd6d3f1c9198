package models

import (
	"slices"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/ir"
)

// glm4Family is GLM-4-0414: four norms a layer as in Gemma 2, half of each head rotated, and
// biases on Q, K and V alone in some.
var glm4Family = Family{
	Title: "GLM-4-0414",
	Name:  "glm4", HF: "Glm4ForCausalLM", Define: glm4,
	Fields: slices.Concat(shapeFields(widthByHeads), biased[:1], []Field{rmsEps, partOfHeads(0.5), tied(false), activation("silu"), noExperts}),
	Joined: []string{"ffn_up"},
	Tensors: decoderTensors(lo.Assign(cut("ffn_up", as("model.layers.#.mlp.gate_up_proj.weight")), map[string]Stored{
		"blk.#.post_attention_norm.weight": as("model.layers.#.post_self_attn_layernorm.weight"),
		"blk.#.ffn_norm.weight":            as("model.layers.#.post_attention_layernorm.weight"),
		"blk.#.post_ffw_norm.weight":       as("model.layers.#.post_mlp_layernorm.weight"),
	})),
	Interleaved: true, FolderInterleaved: true,
}

// glm4 is
//
//	x += norm(Wo · attention(rope(Wq·n), rope(Wk·n), Wv·n))   n = RMSNorm(x)
//	x += norm(Wdown · (silu(Wgate·n) ∘ Wup·n))                n = RMSNorm(x)
func glm4(b *ir.Builder, c *Config) {
	decode(b, c, rmsNorm, func(l *layer, x *ir.Value) *ir.Value {
		x = b.Add(x, l.norm("post_attention_norm", attention(l, l.norm("attn_norm", x), asItIs)))
		return b.Add(x, l.norm("post_ffw_norm", gated(l, l.norm("ffn_norm", x), ir.SiLU)))
	})
}
