package families

import (
	"slices"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/models"
	"github.com/smelt-ml/smelt/models/gguf"
)

// qwen2vlFamily and qwen3vlFamily are the text models of Qwen2-VL, Qwen2.5-VL and Qwen3-VL. The
// vision encoder is a file of its own, which is not read.
var (
	qwen2vlFamily = models.Family{
		Title: "Qwen2-VL, Qwen2.5-VL (text)",
		Name:  "qwen2vl", Define: llama,
		Fields: slices.Concat(qwen2Family.Fields, []models.Field{sections}),
		Given:  qwen2Family.Given,
		Shapes: []models.Shape{
			{Parameters: 3_085_938_688, Config: models.Config{Name: "qwen2.5-vl-3b", Layers: 36, Width: 2048, Heads: 16, KVHeads: 2, Head: 128, FFN: 11008, Vocab: 151936, Context: 128000, Eps: 1e-6,
				Rope: models.Rope{Theta: 1e6}, Tied: true, Sections: []int{16, 24, 24, 0}}},
		},
	}
	qwen3vlFamily = models.Family{
		Title: "Qwen3-VL (text)",
		Name:  "qwen3vl", Define: qwen3,
		Fields: slices.Concat(qwen3Family.Fields, []models.Field{sections,
			// The number of first layers that image features are added to is ignored.
			{GGUF: "n_deepstack_layers", Size: func(c *models.Config) *int { return new(int) }, Optional: true}}),
		Shapes: []models.Shape{
			{Parameters: 4_022_468_096, Config: models.Config{Name: "qwen3-vl-4b", Layers: 36, Width: 2560, Heads: 32, KVHeads: 8, Head: 128, FFN: 9728, Vocab: 151936, Context: 262144, Eps: 1e-6,
				Rope: models.Rope{Theta: 5e6}, Tied: true, Sections: []int{24, 20, 20, 0}}},
		},
	}
)

// sections divide the pairs of a head among three axes of an image, along each of which a token has
// a position. A text's positions are equal on all axes, so that its angles are those of plain RoPE.
var sections = models.Field{
	Read: func(d models.Description, c *models.Config) {
		if d.Format() == models.Folder { // the entry is optional there, since texts do not need it
			pairs := c.Rope.Rotated / 2
			c.Sections = []int{(pairs + 2) / 3, (pairs + 1) / 3, pairs / 3, 0}
			return
		}
		c.Sections = d.Sizes(models.KeySections)
		if lo.Sum(c.Sections) < 1 {
			d.Fail(models.ConfigError("%s is %v, want a positive number of pairs", d.FullName(models.KeySections), c.Sections))
		}
	},
	Write: func(c *models.Config) (string, gguf.Value, bool) {
		list := lo.Map(c.Sections, func(n, _ int) int32 { return int32(n) })
		return models.KeySections, gguf.Int32Array(list), true
	},
}
