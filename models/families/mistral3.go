package families

import (
	"cmp"
	"math"
	"slices"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/sym"
	"github.com/smelt-ml/smelt/models"
	"github.com/smelt-ml/smelt/models/gguf"
)

// mistral3Family is Ministral 3 and the text models of Mistral Small 3.1 and later: Llama, in newer
// models with queries that grow with their position.
var mistral3Family = models.Family{
	Title: "Ministral 3, Mistral Small 3.1 and 3.2 (text)",
	Name:  "mistral3", HF: "Ministral3ForCausalLM", Alias: []string{"Mistral3ForConditionalGeneration"}, Define: mistral3,
	Fields: slices.Concat(models.ByWidth, models.Biased, []models.Field{models.RMSEps, models.WholeRope, models.Tied(false), models.Activation("silu"), models.NoWindow, models.NoExperts,
		{Read: models.RefuseWindow}, {Read: yarnStrength}, temperature}),
	Given: func(c *models.Config) {
		if c.Temperature != 0 {
			c.GrowsEvery = cmp.Or(c.GrowsEvery, int(c.Rope.OldContext(float64(c.Context))))
		}
	},
	Tensors:         models.DecoderTensors(nil),
	Prefixes:        []string{"language_model."},
	GGUFInterleaved: true,
	Ignorable:       []string{"vision_tower.*", "multi_modal_projector.*"},
	Shapes: []models.Shape{
		{Parameters: 3_429_006_336, Config: models.Config{Name: "ministral3-3b", Layers: 26, Width: 3072, Heads: 32, KVHeads: 8, Head: 128, FFN: 9216, Vocab: 131072, Context: 262144, Eps: 1e-5,
			Rope: models.Rope{Theta: 1e6, YaRN: &models.YaRNRope{Factor: 16, FastBeta: 32, SlowBeta: 1, OldContext: 16384, Magnitude: 1}}, Tied: true, Temperature: 0.1}},
	},
}

// yarnStrength divides YaRN's magnitude by that of the strength that a GGUF file may have.
func yarnStrength(d models.Description, c *models.Config) {
	if y := c.Rope.YaRN; y != nil && d.Format() == models.GGUF && d.Has(models.KeyStrength) {
		y.Magnitude = cmp.Or(y.Magnitude, models.YaRNMagnitude(y.Factor, 1)) / models.YaRNMagnitude(y.Factor, d.Number(models.KeyStrength, 0))
	}
}

// temperature is the growth of queries with their position.
var temperature = models.Field{
	Read: func(d models.Description, c *models.Config) {
		if d.Format() == models.Folder {
			c.Temperature = d.Scaling("llama_4_scaling_beta")
		} else if d.Has(keyTemperature) {
			c.Temperature, c.GrowsEvery = d.Number(keyTemperature, 0), d.Size(models.KeyOldContext, c.Context)
		}
	},
	Write: func(c *models.Config) (string, gguf.Value, bool) {
		return keyTemperature, gguf.Float32(float32(c.Temperature)), c.Temperature != 0
	},
}

const keyTemperature = "attention.temperature_scale"

// mistral3 is llama, except that queries grow.
func mistral3(b *ir.Builder, c *models.Config) {
	grown := growing(b, c)
	prepare := func(role string, heads *ir.Value) *ir.Value {
		if role != "attn_q" {
			return heads
		}
		return grown(heads)
	}
	models.Decode(b, c, models.RMSNorm, func(l *models.LayerBuilder, x *ir.Value) *ir.Value {
		x = b.Add(x, models.Attention(l, l.Norm("attn_norm", x), prepare))
		return b.Add(x, models.Gated(l, l.Norm("ffn_norm", x), ir.SiLU))
	})
}

// growing returns a function that multiplies queries at position p, [T, Heads, Head], by 1 + Temperature
// · ln(1 + ⌊p/o⌋), o being GrowsEvery: by one within it.
func growing(b *ir.Builder, c *models.Config) func(heads *ir.Value) *ir.Value {
	from := c.GrowsEvery
	if c.Temperature == 0 || c.MaxContext <= from {
		return func(heads *ir.Value) *ir.Value { return heads }
	}
	growth := b.Embed(b.Input(sym.Stretch(from)), growths(b, c, (c.MaxContext-1)/from+1))
	return func(heads *ir.Value) *ir.Value { return b.SplitHeads(b.Mul(b.MergeHeads(heads), growth), c.Heads) }
}

// growths returns the multipliers of queries in each stretch of o positions, repeated for each
// element: [stretches, Heads·Head].
func growths(b *ir.Builder, c *models.Config, stretches int) *ir.Value {
	width := c.Heads * c.Head
	table := make([]float32, 0, stretches*width)
	for i := range stretches {
		by := float32(1 + c.Temperature*math.Log(1+float64(i)))
		table = append(table, slices.Repeat([]float32{by}, width)...)
	}
	return b.Reshape(b.Const(table), ir.Const(stretches), ir.Const(width))
}
