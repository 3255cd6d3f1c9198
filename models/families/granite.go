package families

import (
	"cmp"
	"slices"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/models"
	"github.com/smelt-ml/smelt/models/gguf"
)

// graniteFamily is the dense models of Granite 3: Llama with four multipliers.
var graniteFamily = models.Family{
	Title: "Granite 3",
	Name:  "granite", HF: "GraniteForCausalLM", Define: granite,
	Fields: slices.Concat(graniteFields, []models.Field{stillHeads}),
	Given: func(c *models.Config) {
		if c.Rope.Theta == 0 {
			c.Rope = models.Rope{}
		}
	},
	Layer: func(c *models.Config, _ int, l *models.Layer) {
		if c.Rope == (models.Rope{}) {
			l.Rope = nil
		}
	},
	Tensors: models.DecoderTensors(nil), GGUFInterleaved: true,
	Shapes: []models.Shape{
		{Parameters: 2_533_539_840, Config: models.Config{Name: "granite3.3-2b", Layers: 40, Width: 2048, Heads: 32, KVHeads: 8, Head: 64, FFN: 8192, Vocab: 49159, Context: 131072, Eps: 1e-5,
			Rope: models.Rope{Theta: 1e7}, Tied: true, EmbeddingScale: 12, ResidualScale: 0.22, AttentionScale: 0.015625, LogitDivisor: 8}},
	},
}

// stillHeads reads whether layers do not rotate: their files say that RoPE was not trained.
var stillHeads = models.Field{
	Read: func(d models.Description, c *models.Config) {
		if c.Rope.Theta == 0 {
			d.Fail(models.ConfigError("the base of RoPE's frequencies is 0"))
		}
		if d.Format() == models.GGUF && d.Has(keyFinetuned) && !d.Flag(keyFinetuned) {
			c.Rope = models.Rope{}
		}
	},
	Write: func(c *models.Config) (string, gguf.Value, bool) {
		return keyFinetuned, gguf.Bool(false), c.Rope == (models.Rope{})
	},
}

const keyFinetuned = "rope.scaling.finetuned"

// graniteFields are those of dense models that rotate their heads.
var graniteFields = slices.Concat(models.DecoderFields(models.WidthByHeads), multipliers)

// multipliers are Granite's.
var multipliers = []models.Field{
	{GGUF: "embedding_scale", HF: "embedding_multiplier", Number: func(c *models.Config) *float64 { return &c.EmbeddingScale }, Optional: true},
	{GGUF: "residual_scale", HF: "residual_multiplier", Number: func(c *models.Config) *float64 { return &c.ResidualScale }, Optional: true},
	{GGUF: "attention.scale", HF: "attention_multiplier", Number: func(c *models.Config) *float64 { return &c.AttentionScale }, Optional: true},
	{GGUF: "logit_scale", HF: "logits_scaling", Number: func(c *models.Config) *float64 { return &c.LogitDivisor }},
}

// granite is llama with embeddings multiplied by EmbeddingScale, each layer's outputs by
// ResidualScale, and logits divided by LogitDivisor.
func granite(b *ir.Builder, c *models.Config) { llama(b, multiplied(c)) }

// multiplied returns the configuration with Granite's multipliers in what a graph without them has:
// it holds the residual stream divided by s = ResidualScale, so that products add their results
// without scaling. The norms that read the stream are those of the configuration: norm(s·y) with ε
// equals norm(y) with ε/s².
func multiplied(c *models.Config) *models.Config {
	of, s := *c, cmp.Or(c.ResidualScale, 1)
	of.EmbeddingScale, of.ResidualScale, of.Eps = cmp.Or(c.EmbeddingScale, 1)/s, 0, c.Eps/(s*s)
	of.LogitScale = 1 / cmp.Or(c.LogitDivisor, 1)
	return &of
}
