package families

import (
	"slices"

	"github.com/smelt-ml/smelt/models"
)

// qwen2Family is Qwen2 and Qwen2.5: Llama with biases on Q, K and V.
var qwen2Family = models.Family{
	Title: "Qwen2, Qwen2.5",
	Name:  "qwen2", HF: "Qwen2ForCausalLM", Define: llama,
	Fields: slices.Concat(models.ByWidth, []models.Field{models.RMSEps, models.WholeRope, models.Tied(false), models.Activation("silu"), models.NoWindow, models.NoExperts,
		{Read: models.RefuseWindow}, {GGUFTensor: "output.bias", Flag: func(c *models.Config) *bool { return &c.Biases.Head }}}),
	Given:   func(c *models.Config) { c.Biases.QKV = true },
	Tensors: models.DecoderTensors(nil),
	Shapes: []models.Shape{
		{Parameters: 494_032_768, Config: models.Config{Name: "qwen2.5-0.5b", Layers: 24, Width: 896, Heads: 14, KVHeads: 2, Head: 64, FFN: 4864, Vocab: 151936, Context: 32768, Eps: 1e-6,
			Rope: models.Rope{Theta: 1e6}, Tied: true}},
		{Parameters: 7_615_616_512, Config: models.Config{Name: "qwen2.5-7b", Layers: 28, Width: 3584, Heads: 28, KVHeads: 4, Head: 128, FFN: 18944, Vocab: 152064, Context: 32768, Eps: 1e-6,
			Rope: models.Rope{Theta: 1e6}}},
	},
}
