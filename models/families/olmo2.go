package families

import (
	"slices"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/models"
)

// olmo2Family is OLMo 2 and OLMo 3. Three layers of four of OLMo 3 have a sliding window and an
// unscaled RoPE.
var olmo2Family = models.Family{
	Title: "OLMo 2, OLMo 3",
	Name:  "olmo2", HF: "Olmo2ForCausalLM", Alias: []string{"Olmo3ForCausalLM"}, Define: olmo2,
	Fields: slices.Concat(models.ByWidth, []models.Field{models.RMSEps, models.WholeRope, models.Tied(false), models.Activation("silu"),
		models.Window, models.Windowed(4)}, models.Biased),
	Layer: func(c *models.Config, i int, l *models.Layer) {
		if c.SeesWindow(i) {
			l.Window = c.Window
			l.Rope = c.Rope.Unscaled(c.Rope.Theta)
		}
	},
	Tensors: afterTensors(),
	Shapes: []models.Shape{
		{Parameters: 1_484_916_736, Config: models.Config{Name: "olmo2-1b", Layers: 16, Width: 2048, Heads: 16, KVHeads: 16, Head: 128, FFN: 8192, Vocab: 100352, Context: 4096, Eps: 1e-6,
			Rope: models.Rope{Theta: 5e5}}},
	},
}

// afterTensors returns the tensors of models that normalise the outputs of attention and
// feed-forward network, and Q and K.
func afterTensors() map[string]models.Stored {
	tensors := models.DecoderTensors(map[string]models.Stored{
		"blk.#.post_attention_norm.weight": models.As("model.layers.#.post_attention_layernorm.weight"),
		"blk.#.post_ffw_norm.weight":       models.As("model.layers.#.post_feedforward_layernorm.weight"),
		"blk.#.attn_q_norm.weight":         models.As("model.layers.#.self_attn.q_norm.weight"),
		"blk.#.attn_k_norm.weight":         models.As("model.layers.#.self_attn.k_norm.weight"),
	})
	delete(tensors, "blk.#.attn_norm.weight")
	delete(tensors, "blk.#.ffn_norm.weight")
	return tensors
}

// olmo2 normalises the outputs of attention and feed-forward network but not their inputs, and Q
// and K over all their heads:
//
//	x += norm(Wo · attention(rope(norm(Wq·x)), rope(norm(Wk·x)), Wv·x))
//	x += norm(Wdown · (silu(Wgate·x) ∘ Wup·x))
func olmo2(b *ir.Builder, c *models.Config) {
	models.Decode(b, c, models.RMSNorm, func(l *models.LayerBuilder, x *ir.Value) *ir.Value { return normedAfter(l, x, l.NormAllHeads) })
}

func normedAfter(l *models.LayerBuilder, x *ir.Value, prepare models.Prepare) *ir.Value {
	x = l.Builder.Add(x, l.Norm("post_attention_norm", models.Attention(l, x, prepare)))
	return l.Builder.Add(x, l.Norm("post_ffw_norm", models.Gated(l, x, ir.SiLU)))
}
