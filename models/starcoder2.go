package models

import (
	"slices"

	"github.com/smelt-ml/smelt/ir"
)

// starcoder2Family is StarCoder 2: LayerNorm, biases everywhere, no gate; layers may see
// a window, which files of llama.cpp do not name.
var starcoder2Family = Family{
	Title: "StarCoder2",
	Name:  "starcoder2", HF: "Starcoder2ForCausalLM", Define: starcoder2,
	Fields: slices.Concat(shapeFields(widthByHeads), []Field{layerEps("norm_epsilon", 1e-5), ropes, tied(true), activation("gelu_pytorch_tanh"),
		{HF: "use_bias", Only: true}, window, windowed(0)}),
	Layer: withWindow,
	Given: func(c *Config) { c.Biases = Biases{QKV: true, Output: true, FFN: true} },
	Tensors: decoderTensors(map[string]Stored{
		"blk.#.ffn_up.weight":   as("model.layers.#.mlp.c_fc.weight"),
		"blk.#.ffn_down.weight": as("model.layers.#.mlp.c_proj.weight"),
	}, "blk.#.ffn_gate.weight"),
}

// starcoder2 is, with n = LayerNorm(x) and biases in all products,
//
//	x += Wo · attention(rope(Wq·n), rope(Wk·n), Wv·n)
//	x += Wdown · gelu(Wup·n)
func starcoder2(b *ir.Builder, c *Config) {
	decode(b, c, layerNorm, func(l *layer, x *ir.Value) *ir.Value {
		x = b.Add(x, attention(l, l.norm("attn_norm", x), asItIs))
		return b.Add(x, ungated(l, l.norm("ffn_norm", x), ir.GELUTanh))
	})
}
