package models

import (
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
// o being the context that the model was first trained for: within o, which is all that is
// computed, by one.
func mistral3(b *ir.Builder, c *Config) {
	if old := c.Rope.oldContext(float64(c.Context)); c.Temperature != 0 && float64(c.context) > old {
		b.Fail("the queries of %s grow beyond %g tokens, which is not supported: compile it for a context of at most that", c.Name, old)
		return
	}
	llama(b, c)
}
