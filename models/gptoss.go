package models

import (
	"slices"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/ir"
)

// gptossFamily is gpt-oss: mixtures with biases everywhere, whose heads have sinks, and of whose
// layers every second one sees a window.
var gptossFamily = Family{
	Title: "gpt-oss",
	Name:  "gpt-oss", HF: "GptOssForCausalLM", Define: gptoss,
	Fields: slices.Concat(shapeFields(widthByHeads), []Field{rmsEps, ropes, tied(false), activation("silu"), window, windowed(2)},
		expertFields("num_local_experts", "intermediate_size", wholeFFN), []Field{{HF: "attention_bias", Only: true}, {Read: refuseOtherLimit}}),
	Given: func(c *Config) { c.Biases = Biases{QKV: true, Output: true, FFN: true} },
	Layer: func(c *Config, i int, l *Layer) {
		withWindow(c, i, l)
		l.Sinks = true
	},
	Tensors: lo.Assign(
		decoderTensors(map[string]Stored{
			"blk.#.attn_sinks.weight":          as("model.layers.#.self_attn.sinks"),
			"blk.#.post_attention_norm.weight": as("model.layers.#.post_attention_layernorm.weight"),
		}, append(denseFFN, "blk.#.ffn_norm.weight")...),
		map[string]Stored{
			"blk.#.ffn_gate_inp.weight":  as("model.layers.#.mlp.router.weight"),
			"blk.#.ffn_gate_exps.weight": as("model.layers.#.mlp.experts.gate_proj.weight"),
			"blk.#.ffn_up_exps.weight":   as("model.layers.#.mlp.experts.up_proj.weight"),
			"blk.#.ffn_down_exps.weight": as("model.layers.#.mlp.experts.down_proj.weight"),
		},
	),
	Unpack: gptossExperts,
}

// refuseOtherLimit is for folders that name the bounds of the experts' gates.
func refuseOtherLimit(d description, _ *Config) {
	const limit = 7 // see ir.ClampedSwiGLU
	if d.form() != Folder {
		return
	}
	if have := d.number("swiglu_limit", limit); have != limit {
		d.fail(configError("swiglu_limit is %g, not %d", have, limit))
	}
}

// gptoss is llama with sinks, biases, and experts whose gate has bounds (OpenAI, "gpt-oss-120b &
// gpt-oss-20b Model Card", 2025):
//
//	x += Wo · attention(rope(Wq·n), rope(Wk·n), Wv·n)       n = RMSNorm(x)
//	x += Σ wᵢ · Wdownᵢ · clamped_swiglu(Wgateᵢ·n, Wupᵢ·n)   n = RMSNorm(x), w = softmax(the largest of R·n)
func gptoss(b *ir.Builder, c *Config) {
	decode(b, c, rmsNorm, func(l *layer, x *ir.Value) *ir.Value {
		x = b.Add(x, attention(l, l.norm("attn_norm", x), asItIs))
		return b.Add(x, mixed(l, l.norm("post_attention_norm", x), shareChosen, ir.ClampedSwiGLU))
	})
}
