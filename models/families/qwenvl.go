package families

import (
	"slices"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/models"
	"github.com/smelt-ml/smelt/models/gguf"
)

// qwen2vlFamily, qwen3vlFamily and qwen3vlmoeFamily are the text models of Qwen2-VL, Qwen2.5-VL and
// Qwen3-VL. The vision encoder is a GGUF file of its own, or beside the text model in a folder; it is
// not read.
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
		Name:  "qwen3vl", HF: "Qwen3VLForConditionalGeneration", Define: qwen3,
		Fields:    slices.Concat(qwen3Family.Fields, []models.Field{sections, deepstack}),
		Given:     qwen3Family.Given,
		Judge:     &models.Judge{Name: "qwen3-vl-reranker", Words: qwen3Family.Judge.Words, Template: qwen3Judge},
		Prefixes:  []string{"language_model."},
		Tensors:   qwen3Family.Tensors,
		Ignorable: []string{"model.visual.*", "visual.*"},
		Shapes: []models.Shape{
			{Parameters: 4_022_468_096, Config: models.Config{Name: "qwen3-vl-4b", Layers: 36, Width: 2560, Heads: 32, KVHeads: 8, Head: 128, FFN: 9728, Vocab: 151936, Context: 262144, Eps: 1e-6,
				Rope: models.Rope{Theta: 5e6}, Tied: true, Sections: []int{24, 20, 20, 0}}},
		},
	}
	qwen3vlmoeFamily = models.Family{
		Title: "Qwen3-VL MoE (text)",
		Name:  "qwen3vlmoe", HF: "Qwen3VLMoeForConditionalGeneration", Define: qwen3moe,
		Fields:   slices.Concat(qwen3moeFamily.Fields, []models.Field{sections, deepstack}),
		Router:   qwen3moeFamily.Router,
		Prefixes: qwen3vlFamily.Prefixes,
		Tensors:  lo.Assign(lo.OmitByKeys(qwen3Family.Tensors, models.DenseFFN), models.StackedExpertTensors("mlp")),
		Stacks: []models.Stack{
			{Name: "experts.gate_up_proj", Roles: []string{"experts.gate_proj", "experts.up_proj"}, Apart: true, Either: true},
			{Name: "experts.down_proj", Roles: []string{"experts.down_proj"}, Either: true},
		},
		Ignorable: qwen3vlFamily.Ignorable,
		Shapes: []models.Shape{
			{Parameters: 30_532_122_624, Config: models.Config{Name: "qwen3-vl-30b-a3b", Layers: 48, Width: 2048, Heads: 32, KVHeads: 4, Head: 128, FFN: 6144, Vocab: 151936, Context: 262144, Eps: 1e-6,
				Rope: models.Rope{Theta: 5e6}, Sections: []int{24, 20, 20, 0}, Experts: models.Experts{Count: 128, Chosen: 8, FFN: 768}}},
		},
	}
)

// deepstack is the number of first layers that image features are added to; texts have none.
var deepstack = models.Field{GGUF: "n_deepstack_layers", Size: func(c *models.Config) *int { return new(int) }, Optional: true}

// sections divide the pairs of a head among three axes of an image, along each of which a token has
// a position. A text's positions are equal on all axes, so that its angles are those of plain RoPE.
var sections = models.Field{
	Read: func(d models.Description, c *models.Config) {
		c.Sections = d.Sections()
		if d.Format() == models.Folder && c.Sections == nil { // which texts do not need
			pairs := c.Rope.Rotated / 2
			c.Sections = []int{(pairs + 2) / 3, (pairs + 1) / 3, pairs / 3, 0}
		}
		if lo.Sum(c.Sections) < 1 {
			d.Fail(models.ConfigError("%s is %v, want a positive number of pairs", d.FullName(models.KeySections), c.Sections))
		}
	},
	Write: func(c *models.Config) (string, gguf.Value, bool) {
		list := lo.Map(c.Sections, func(n, _ int) int32 { return int32(n) })
		return models.KeySections, gguf.Int32Array(list), true
	},
}
