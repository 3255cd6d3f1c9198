package models

import (
	"slices"

	"github.com/smelt-ml/smelt/ir"
)

// olmo2Family is OLMo 2, and OLMo 3, three layers of four of which see a window and do not
// scale RoPE.
var olmo2Family = Family{
	Title: "OLMo 2, OLMo 3",
	Name:  "olmo2", HF: "Olmo2ForCausalLM", Alias: []string{"Olmo3ForCausalLM"}, Define: olmo2,
	Fields: slices.Concat(shapeFields(widthByHeads), []Field{rmsEps, ropes, tied(false), activation("silu"),
		window, windowed(4)}, biased),
	Layer: func(c *Config, i int, l *Layer) {
		if c.seesWindow(i) {
			l.Window = c.Window
			l.Rope = c.Rope.unscaled(c.Rope.Theta)
		}
	},
	Tensors: afterTensors(),
}

// afterTensors are those of models whose norms come after what is added, and over Q and K.
func afterTensors() map[string]Stored {
	tensors := decoderTensors(map[string]Stored{
		"blk.#.post_attention_norm.weight": as("model.layers.#.post_attention_layernorm.weight"),
		"blk.#.post_ffw_norm.weight":       as("model.layers.#.post_feedforward_layernorm.weight"),
		"blk.#.attn_q_norm.weight":         as("model.layers.#.self_attn.q_norm.weight"),
		"blk.#.attn_k_norm.weight":         as("model.layers.#.self_attn.k_norm.weight"),
	})
	delete(tensors, "blk.#.attn_norm.weight")
	delete(tensors, "blk.#.ffn_norm.weight")
	return tensors
}

// olmo2 normalises what it adds and not what it reads, and Q and K over all their heads:
//
//	x += norm(Wo · attention(rope(norm(Wq·x)), rope(norm(Wk·x)), Wv·x))
//	x += norm(Wdown · (silu(Wgate·x) ∘ Wup·x))
func olmo2(b *ir.Builder, c *Config) {
	decode(b, c, rmsNorm, func(l *layer, x *ir.Value) *ir.Value { return normedAfter(l, x, l.normAllHeads) })
}

func normedAfter(l *layer, x *ir.Value, prepare prepare) *ir.Value {
	x = l.b.Add(x, l.norm("post_attention_norm", attention(l, x, prepare)))
	return l.b.Add(x, l.norm("post_ffw_norm", gated(l, x, ir.SiLU)))
}
