package families

import (
	"math"
	"slices"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/models"
)

// gemmaFamily is the first Gemma and CodeGemma: Llama with GELU, and embeddings that grow with the
// width. Folders store the gains of norms minus one.
var gemmaFamily = models.Family{
	Title: "Gemma, CodeGemma",
	Name:  "gemma", HF: "GemmaForCausalLM", Define: gemma,
	Fields: slices.Concat(models.ShapeFields(gemmaHead), models.Biased[:2], []models.Field{models.RMSEps, models.WholeRope, models.Tied(true),
		{HF: "hidden_activation", Only: "gelu_pytorch_tanh"}, models.NoWindow, models.NoExperts}),
	Given: func(c *models.Config) { c.EmbeddingScale = math.Sqrt(float64(c.Width)) },
	Tensors: models.DecoderTensors(map[string]models.Stored{
		"output_norm.weight":     models.Gain("model.norm.weight"),
		"blk.#.attn_norm.weight": models.Gain("model.layers.#.input_layernorm.weight"),
		"blk.#.ffn_norm.weight":  models.Gain("model.layers.#.post_attention_layernorm.weight"),
	}),
	Shapes: []models.Shape{
		{Parameters: 2_506_172_416, Config: models.Config{Name: "gemma-2b", Layers: 18, Width: 2048, Heads: 8, KVHeads: 1, Head: 256, FFN: 16384, Vocab: 256000, Context: 8192, Eps: 1e-6,
			Rope: models.Rope{Theta: 1e4}, Tied: true}},
	},
}

// gemma adds two terms to the residual stream x in each layer:
//
//	x += Wo · attention(rope(Wq·n), rope(Wk·n), Wv·n)   n = RMSNorm(x)
//	x += Wdown · (gelu(Wgate·n) ∘ Wup·n)                n = RMSNorm(x)
func gemma(b *ir.Builder, c *models.Config) {
	models.Decode(b, c, models.RMSNorm, func(l *models.LayerBuilder, x *ir.Value) *ir.Value {
		x = b.Add(x, models.Attention(l, l.Norm("attn_norm", x), models.AsIs))
		return b.Add(x, models.Gated(l, l.Norm("ffn_norm", x), ir.GELUTanh))
	})
}

// gemmaHead is the size of heads in files without it.
func gemmaHead(c *models.Config, format models.Format) float64 {
	return lo.Ternary(format == models.Folder, 256, models.WidthByHeads(c, format))
}
