package models

import (
	"cmp"
	"slices"

	"github.com/smelt-ml/smelt/ir"
)

// gemma3Family is the text models of Gemma 3: five layers of six see a window and rotate
// faster; heads of Q and K are normalised in place of a cap on scores.
var gemma3Family = Family{
	Title: "Gemma 3 (text)",
	Name:  "gemma3", HF: "Gemma3ForCausalLM", Define: gemma3,
	Fields: slices.Concat(gemmaFields(0, 6), []Field{
		{GGUF: "rope.freq_base_swa", HF: "rope_local_base_freq", Number: func(c *Config) *float64 { return &c.WindowRope.Theta }, Optional: true}}),
	Given: func(c *Config) {
		gemmaGiven(62)(c)
		c.WindowRope.Theta = cmp.Or(c.WindowRope.Theta, 10000)
	},
	Layer: func(c *Config, i int, l *Layer) {
		if c.seesWindow(i) {
			l.Window = c.Window
			l.Rope = c.Rope.unscaled(c.WindowRope.Theta)
		}
	},
	Tensors: gemmaTensors(map[string]Stored{
		"blk.#.attn_q_norm.weight": as("model.layers.#.self_attn.q_norm.weight"),
		"blk.#.attn_k_norm.weight": as("model.layers.#.self_attn.k_norm.weight"),
	}),
}

// gemma3 is gemma2 with heads of Q and K that are normalised before they rotate.
func gemma3(b *ir.Builder, c *Config) {
	decode(b, c, rmsNorm, func(l *layer, x *ir.Value) *ir.Value { return gemmaLayer(l, x, l.normHeads) })
}
