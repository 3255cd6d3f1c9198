package models

import "slices"

// smollm3Family is SmolLM3: Llama in which every fourth layer has no positions.
var smollm3Family = Family{
	Title: "SmolLM3",
	Name:  "smollm3", HF: "SmolLM3ForCausalLM", Define: llama,
	Fields: slices.Concat(decoderFields(widthByHeads), []Field{{Read: demandEveryFourth}}),
	Layer: func(_ *Config, i int, l *Layer) {
		if (i+1)%4 == 0 {
			l.Rope = nil
		}
	},
	Tensors: decoderTensors(nil), Interleaved: true,
}

// demandEveryFourth refuses folders in which other layers than each fourth have no
// positions, which GGUF files cannot say.
func demandEveryFourth(d description, c *Config) {
	f, ok := d.(*folder)
	if !ok || !f.has("no_rope_layers") {
		return
	}
	rotated := f.Sizes("no_rope_layers") // 1 for a layer with positions
	for i := range min(c.Layers, maxLayers) {
		if i >= len(rotated) || (rotated[i] == 0) != ((i+1)%4 == 0) {
			d.fail(configError("no_rope_layers is %v, not every fourth", rotated))
			return
		}
	}
}
