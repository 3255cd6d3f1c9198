package families

import (
	"slices"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/models"
)

// glm4Family is GLM-4-0414: four norms a layer as in Gemma 2, half of each head rotated; some
// models have biases on Q, K and V.
var glm4Family = models.Family{
	Title: "GLM-4-0414",
	Name:  "glm4", HF: "Glm4ForCausalLM", Define: glm4,
	Fields: slices.Concat(models.ByWidth, models.Biased[:1], []models.Field{models.RMSEps, models.PartOfHeads(0.5), {Read: glm4Sections}, models.Tied(false), models.Activation("silu"), models.NoExperts}),
	Joined: []string{"ffn_up"},
	Tensors: models.DecoderTensors(lo.Assign(models.Cut("ffn_up", models.As("model.layers.#.mlp.gate_up_proj.weight")), map[string]models.Stored{
		"blk.#.post_attention_norm.weight": models.As("model.layers.#.post_self_attn_layernorm.weight"),
		"blk.#.ffn_norm.weight":            models.As("model.layers.#.post_attention_layernorm.weight"),
		"blk.#.post_ffw_norm.weight":       models.As("model.layers.#.post_mlp_layernorm.weight"),
	})),
	GGUFInterleaved: true, FolderInterleaved: true,
	Shapes: []models.Shape{
		{Parameters: 9_400_279_040, Config: models.Config{Name: "glm4-9b", Layers: 40, Width: 4096, Heads: 32, KVHeads: 2, Head: 128, FFN: 13696, Vocab: 151552, Context: 32768, Eps: 1e-5,
			Rope: models.Rope{Theta: 1e4, Rotated: 64}, Biases: models.Biases{QKV: true}}},
	},
}

// glm4Sections reads whether the elements of a pair are half the rotated part apart: in GGUF files of
// models that see, GLM-4.1V, which have sections. A text's positions are equal on all axes.
func glm4Sections(d models.Description, c *models.Config) {
	if d.Format() != models.GGUF || !d.Has(models.KeySections) {
		return
	}
	if n := d.Sizes(models.KeySections); len(n) > 1 && n[0] > 0 && n[1] > 0 {
		c.Rope.Interleaved = false
	}
}

// glm4 is
//
//	x += norm(Wo · attention(rope(Wq·n), rope(Wk·n), Wv·n))   n = RMSNorm(x)
//	x += norm(Wdown · (silu(Wgate·n) ∘ Wup·n))                n = RMSNorm(x)
func glm4(b *ir.Builder, c *models.Config) {
	models.Decode(b, c, models.RMSNorm, func(l *models.LayerBuilder, x *ir.Value) *ir.Value {
		x = b.Add(x, l.Norm("post_attention_norm", models.Attention(l, l.Norm("attn_norm", x), models.AsIs)))
		return b.Add(x, l.Norm("post_ffw_norm", models.Gated(l, l.Norm("ffn_norm", x), ir.SiLU)))
	})
}
