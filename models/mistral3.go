package models

import (
	"math"
	"slices"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/models/gguf"
)

// mistral3Family is Ministral 3 and the text models of Mistral Small 3.1 and later: Llama, in
// newer ones with queries that grow with their position.
var mistral3Family = Family{
	Title: "Ministral 3, Mistral Small 3.1 and 3.2 (text)",
	Name:  "mistral3", HF: "Ministral3ForCausalLM", Alias: []string{"Mistral3ForConditionalGeneration"}, Define: mistral3,
	Fields: slices.Concat(shapeFields(widthByHeads), biased, []Field{rmsEps, ropes, tied(false), activation("silu"), noWindow, noExperts,
		{Read: refuseWindow}, temperature}),
	Tensors:     decoderTensors(nil),
	Prefix:      "language_model.",
	Interleaved: true,
	Ignorable:   []string{"vision_tower.*", "multi_modal_projector.*"},
}

// temperature is by how much queries grow.
var temperature = Field{
	Read: func(d description, c *Config) {
		if f, ok := d.(*folder); ok {
			if s := f.Rope().Scaling; s != nil {
				c.Temperature = s.Numbers["llama_4_scaling_beta"]
			}
		} else if d.has(keyTemperature) {
			c.Temperature = d.number(keyTemperature, 0)
		}
	},
	Write: func(c *Config) (string, gguf.Value, bool) {
		return keyTemperature, gguf.Float32(float32(c.Temperature)), c.Temperature != 0
	},
}

const keyTemperature = "attention.temperature_scale"

// mistral3 is llama. Queries at position p are multiplied by 1 + Temperature · ln(1 + ⌊p/o⌋),
// o being the context that the model was first trained for: within o by one.
func mistral3(b *ir.Builder, c *Config) {
	prepare := asItIs
	if old := int(c.Rope.oldContext(float64(c.Context))); c.Temperature != 0 && c.context > old {
		growth := b.Embed(b.Input(ir.Stretch(old)), growths(b, c, (c.context-1)/old+1))
		prepare = func(role string, heads *ir.Value) *ir.Value {
			if role != "attn_q" {
				return heads
			}
			return b.SplitHeads(b.Mul(b.MergeHeads(heads), growth), c.Heads)
		}
	}
	decode(b, c, rmsNorm, func(l *layer, x *ir.Value) *ir.Value {
		x = b.Add(x, attention(l, l.norm("attn_norm", x), prepare))
		return b.Add(x, gated(l, l.norm("ffn_norm", x), ir.SiLU))
	})
}

// growths are what queries are multiplied by, element by element, in each of so many stretches
// of the context of the first training: [stretches, Heads·Head].
func growths(b *ir.Builder, c *Config, stretches int) *ir.Value {
	width := c.Heads * c.Head
	table := make([]float32, 0, stretches*width)
	for i := range stretches {
		by := float32(1 + c.Temperature*math.Log(1+float64(i)))
		table = append(table, slices.Repeat([]float32{by}, width)...)
	}
	return b.Reshape(b.Const(table), ir.Const(stretches), ir.Const(width))
}
