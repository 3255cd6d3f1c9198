package models

import (
	"cmp"
	"math"
	"slices"

	"github.com/smelt-ml/smelt/ir"
)

// gemma2Family is Gemma 2: every second layer sees a window, scores and logits are capped.
var gemma2Family = Family{
	Title: "Gemma 2",
	Name:  "gemma2", HF: "Gemma2ForCausalLM", Define: gemma2,
	Fields:  slices.Concat(gemmaFields(4096, 2), []Field{softCap}),
	Given:   gemmaGiven(46),
	Layer:   withWindow,
	Tensors: gemmaTensors(nil),
}

// gemmaFields are those of Gemma 2 and 3. Files may leave out the window, which is then this
// one or, at 0, none, and which layers have none: every so many.
func gemmaFields(unsaid, every int) []Field {
	return slices.Concat(shapeFields(func(*Config, Form) float64 { return 256 }), biased, []Field{
		rmsEps, ropes, tied(true), {HF: "hidden_activation", Only: "gelu_pytorch_tanh"}, logitCap,
		{GGUF: window.GGUF, HF: window.HF, Size: window.Size, Optional: unsaid == 0,
			Absent: func(*Config, Form) float64 { return float64(unsaid) }},
		windowed(every),
		{Read: func(d description, c *Config) {
			if d.form() == Folder && d.has("query_pre_attn_scalar") {
				c.AttentionScale = 1 / math.Sqrt(d.number("query_pre_attn_scalar", 0))
			}
		}},
	})
}

// gemmaGiven scales embeddings to the size of what layers add to them, and scores by the
// size of heads, or in the largest model, which is known by its number of layers, by the
// width.
func gemmaGiven(largest int) func(c *Config) {
	return func(c *Config) {
		c.EmbeddingScale = math.Sqrt(float64(c.Width))
		over := c.Head
		if c.Layers == largest {
			over = c.Width / max(1, c.Heads)
		}
		c.AttentionScale = cmp.Or(c.AttentionScale, 1/math.Sqrt(float64(max(1, over))))
	}
}

// gain is that of a norm, which folders have less one.
func gain(name string) Stored { return Stored{Names: []string{name}, Value: plusOne} }

// gemmaTensors are those of Gemma 2 and 3, with more. Folders have the gains of norms less one.
func gemmaTensors(more map[string]Stored) map[string]Stored {
	tensors := decoderTensors(map[string]Stored{
		"output_norm.weight":               gain("model.norm.weight"),
		"blk.#.attn_norm.weight":           gain("model.layers.#.input_layernorm.weight"),
		"blk.#.post_attention_norm.weight": gain("model.layers.#.post_attention_layernorm.weight"),
		"blk.#.ffn_norm.weight":            gain("model.layers.#.pre_feedforward_layernorm.weight"),
		"blk.#.post_ffw_norm.weight":       gain("model.layers.#.post_feedforward_layernorm.weight"),
	})
	for name, s := range more {
		s.Value = plusOne
		tensors[name] = s
	}
	return tensors
}

// gemma2 normalises what it adds to the residual stream, too:
//
//	x += norm(Wo · attention(rope(Wq·n), rope(Wk·n), Wv·n))   n = RMSNorm(x)
//	x += norm(Wdown · (gelu(Wgate·n) ∘ Wup·n))                n = RMSNorm(x)
func gemma2(b *ir.Builder, c *Config) {
	decode(b, c, rmsNorm, func(l *layer, x *ir.Value) *ir.Value { return gemmaLayer(l, x, asItIs) })
}

func gemmaLayer(l *layer, x *ir.Value, prepare prepare) *ir.Value {
	x = l.b.Add(x, l.norm("post_attention_norm", attention(l, l.norm("attn_norm", x), prepare)))
	return l.b.Add(x, l.norm("post_ffw_norm", gated(l, l.norm("ffn_norm", x), ir.GELUTanh)))
}
