package families

import (
	"slices"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/models"
)

// starcoder2Family is StarCoder 2: LayerNorm, biases in all products, no gate; layers may have a
// sliding window, which llama.cpp's files omit.
var starcoder2Family = models.Family{
	Title: "StarCoder2",
	Name:  "starcoder2", HF: "Starcoder2ForCausalLM", Define: starcoder2,
	Fields: slices.Concat(models.ByWidth, []models.Field{models.LayerEps("norm_epsilon", 1e-5), models.WholeRope, models.Tied(true), models.Activation("gelu_pytorch_tanh"),
		{HF: "use_bias", Only: true}, models.Window, models.Windowed(0)}),
	Layer: models.WithWindow,
	Given: func(c *models.Config) { c.Biases = models.Biases{QKV: true, Output: true, FFN: true} },
	Tensors: models.DecoderTensors(map[string]models.Stored{
		"blk.#.ffn_up.weight":   models.As("model.layers.#.mlp.c_fc.weight"),
		"blk.#.ffn_down.weight": models.As("model.layers.#.mlp.c_proj.weight"),
	}, "blk.#.ffn_gate.weight"),
	Shapes: []models.Shape{
		{Parameters: 3_030_371_328, Config: models.Config{Name: "starcoder2-3b", Layers: 30, Width: 3072, Heads: 24, KVHeads: 2, Head: 128, FFN: 12288, Vocab: 49152, Context: 16384, Eps: 1e-5,
			Rope: models.Rope{Theta: 999999.4420358813}, Tied: true}},
	},
}

// starcoder2 is, with n = LayerNorm(x) and biases in all products,
//
//	x += Wo · attention(rope(Wq·n), rope(Wk·n), Wv·n)
//	x += Wdown · gelu(Wup·n)
func starcoder2(b *ir.Builder, c *models.Config) {
	models.Decode(b, c, models.LayerNorm, func(l *models.LayerBuilder, x *ir.Value) *ir.Value {
		x = b.Add(x, models.Attention(l, l.Norm("attn_norm", x), models.AsIs))
		return b.Add(x, models.Ungated(l, l.Norm("ffn_norm", x), ir.GELUTanh))
	})
}
