package families

import (
	"math"
	"slices"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/models"
)

// gemmaEmbeddingFamily is EmbeddingGemma: Gemma 3 with bidirectional attention. Folders keep the
// dense layers behind the pooling in subfolders.
var gemmaEmbeddingFamily = models.Family{
	Title: "EmbeddingGemma (embeddings)",
	Name:  "gemma-embedding", HF: "Gemma3TextModel", Define: gemmaEmbedding, Encodes: true,
	Fields: slices.Concat(gemma3Family.Fields, []models.Field{
		{HF: "use_bidirectional_attention", Only: true},
		{Read: func(d models.Description, c *models.Config) {
			if d.Format() == models.GGUF {
				c.Dense, _ = d.Rows("dense_2.weight")
			}
		}},
		latentSize("dense_2_feat_out", denseWidth), latentSize("dense_3_feat_in", denseWidth), latentSize("dense_2_feat_in", denseOuter), latentSize("dense_3_feat_out", denseOuter),
	}),
	Given: func(c *models.Config) {
		gemma3Family.Given(c)
		c.AttentionScale = 1 / math.Sqrt(float64(max(1, c.Head)))
		c.Both, c.Tied = true, true
	},
	Layer: gemma3Family.Layer,
	Tensors: lo.Assign(gemma3Family.Tensors, map[string]models.Stored{
		"dense_2.weight": models.As("2_Dense.linear.weight"),
		"dense_3.weight": models.As("3_Dense.linear.weight"),
	}),
	Shapes: []models.Shape{
		{Parameters: 302_863_104 + 2*768*3072, Config: models.Config{Name: "embeddinggemma-300m", Layers: 24, Width: 768, Heads: 3, KVHeads: 1, Head: 256, FFN: 1152, Vocab: 262144, Context: 2048, Eps: 1e-6,
			Rope: models.Rope{Theta: 1e6}, Window: 512, Windowed: models.AllButEvery(6, 24), Pooling: "mean", Dense: 3072}},
	},
}

// gemmaEmbedding is gemma3 without a head.
func gemmaEmbedding(b *ir.Builder, c *models.Config) {
	encoder := *c
	encoder.Embeds = true
	gemma3(b, &encoder)
}

// denseWidth and denseOuter are the sizes of the dense layers, 0 where there are none.
func denseWidth(c *models.Config) int { return c.Dense }
func denseOuter(c *models.Config) int { return lo.Ternary(c.Dense > 0, c.Width, 0) }
