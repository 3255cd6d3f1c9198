package families

import (
	"slices"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/models"
)

// phi2Family is Phi-1, 1.5 and 2: one norm a layer, which attention and feed-forward network share.
var phi2Family = models.Family{
	Title: "Phi-1, Phi-1.5, Phi-2",
	Name:  "phi2", HF: "PhiForCausalLM", Define: phi2,
	Fields: slices.Concat(models.ByWidth, []models.Field{models.LayerEps("layer_norm_eps", 1e-5), models.PartOfHeads(0.5), {HF: "tie_word_embeddings", Only: false},
		models.Activation("gelu_new"), {HF: "qk_layernorm", Only: false}}),
	Given: func(c *models.Config) { c.Biases = models.Biases{QKV: true, Output: true, FFN: true, Head: true} },
	Tensors: models.DecoderTensors(map[string]models.Stored{
		"output_norm.weight":       models.As("model.final_layernorm.weight"),
		"blk.#.attn_output.weight": models.As("model.layers.#.self_attn.dense.weight"),
		"blk.#.ffn_up.weight":      models.As("model.layers.#.mlp.fc1.weight"),
		"blk.#.ffn_down.weight":    models.As("model.layers.#.mlp.fc2.weight"),
	}, "blk.#.ffn_gate.weight", "blk.#.ffn_norm.weight"),
	Shapes: []models.Shape{
		{Parameters: 2_779_683_840, Config: models.Config{Name: "phi2", Layers: 32, Width: 2560, Heads: 32, KVHeads: 32, Head: 80, FFN: 10240, Vocab: 51200, Context: 2048, Eps: 1e-5,
			Rope: models.Rope{Theta: 1e4, Rotated: 32}}},
	},
}

// phi2 is x += Wo · attention(rope(Wq·n), rope(Wk·n), Wv·n) + Wdown · gelu(Wup·n) with
// n = LayerNorm(x) and biases in all products, the head's too.
func phi2(b *ir.Builder, c *models.Config) {
	models.Decode(b, c, models.LayerNorm, func(l *models.LayerBuilder, x *ir.Value) *ir.Value {
		n := l.Norm("attn_norm", x)
		return b.Add(b.Add(x, models.Attention(l, n, models.AsIs)), models.Ungated(l, n, ir.GELUTanh))
	})
}
