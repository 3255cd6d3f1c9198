package families

import (
	"math"
	"slices"

	"github.com/smelt-ml/smelt/models"
	"github.com/smelt-ml/smelt/models/gguf"
)

// minicpmFamily is MiniCPM and MiniCPM4: Llama with three of Granite's multipliers, which folders
// derive from other numbers.
var minicpmFamily = models.Family{
	Title: "MiniCPM, MiniCPM4",
	Name:  "minicpm", HF: "MiniCPMForCausalLM", Define: granite,
	Fields: slices.Concat(models.DecoderFields(models.WidthByHeads), []models.Field{
		{GGUF: "embedding_scale", HF: "scale_emb", Number: func(c *models.Config) *float64 { return &c.EmbeddingScale }, Absent: minicpmEmbedding},
		{Read: minicpmScales, Write: func(c *models.Config) (string, gguf.Value, bool) {
			return "residual_scale", gguf.Float32(float32(c.ResidualScale)), true
		}},
		{Write: func(c *models.Config) (string, gguf.Value, bool) {
			return "logit_scale", gguf.Float32(float32(c.LogitDivisor)), true
		}}}),
	Tensors: models.DecoderTensors(nil), GGUFInterleaved: true,
	Shapes: []models.Shape{
		{Parameters: 2_724_880_896, Config: models.Config{Name: "minicpm-2b", Layers: 40, Width: 2304, Heads: 36, KVHeads: 36, Head: 64, FFN: 5760, Vocab: 122753, Context: 4096, Eps: 1e-5,
			Rope: models.Rope{Theta: 1e4}, Tied: true, EmbeddingScale: 12, ResidualScale: 1.4 / math.Sqrt(40), LogitDivisor: 9}},
	},
}

// minicpmEmbedding is the scale of embeddings in files without one: that of the first models in GGUF
// files.
func minicpmEmbedding(_ *models.Config, format models.Format) float64 {
	if format == models.GGUF {
		return 12
	}
	return 1
}

// minicpmScales reads the scale of residuals and the divisor of logits. GGUF files without them are
// of the first models. llama.cpp multiplies the logits of such files by what they are to be divided
// by.
func minicpmScales(d models.Description, c *models.Config) {
	layers, width := math.Sqrt(float64(max(c.Layers, 1))), float64(c.Width)
	if d.Format() == models.Folder {
		c.ResidualScale, c.LogitDivisor = d.Number("scale_depth", 0)/layers, width/d.Number("dim_model_base", 0)
		return
	}
	c.ResidualScale, c.LogitDivisor = d.Number("residual_scale", 1.4/layers), d.Number("logit_scale", width/256)
}
