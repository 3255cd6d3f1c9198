package models

import (
	"slices"

	"github.com/smelt-ml/smelt/ir"
)

// phi2Family is Phi-1, 1.5 and 2: one norm a layer, whose result both halves read.
var phi2Family = Family{
	Title: "Phi-1, Phi-1.5, Phi-2",
	Name:  "phi2", HF: "PhiForCausalLM", Define: phi2,
	Fields: slices.Concat(shapeFields(widthByHeads), []Field{layerEps("layer_norm_eps", 1e-5), partOfHeads(0.5), {HF: "tie_word_embeddings", Only: false},
		activation("gelu_new"), {HF: "qk_layernorm", Only: false}}),
	Given: func(c *Config) { c.Biases = Biases{QKV: true, Output: true, FFN: true, Head: true} },
	Tensors: decoderTensors(map[string]Stored{
		"output_norm.weight":       as("model.final_layernorm.weight"),
		"blk.#.attn_output.weight": as("model.layers.#.self_attn.dense.weight"),
		"blk.#.ffn_up.weight":      as("model.layers.#.mlp.fc1.weight"),
		"blk.#.ffn_down.weight":    as("model.layers.#.mlp.fc2.weight"),
	}, "blk.#.ffn_gate.weight", "blk.#.ffn_norm.weight"),
}

// phi2 is x += Wo · attention(rope(Wq·n), rope(Wk·n), Wv·n) + Wdown · gelu(Wup·n) with
// n = LayerNorm(x) and biases in all products, the head's too.
func phi2(b *ir.Builder, c *Config) {
	decode(b, c, layerNorm, func(l *layer, x *ir.Value) *ir.Value {
		n := l.norm("attn_norm", x)
		return b.Add(b.Add(x, attention(l, n, asItIs)), ungated(l, n, ir.GELUTanh))
	})
}
