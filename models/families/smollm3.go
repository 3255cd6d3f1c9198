package families

import (
	"slices"

	"github.com/smelt-ml/smelt/models"
)

// smollm3Family is SmolLM3: Llama without RoPE in every fourth layer.
var smollm3Family = models.Family{
	Title: "SmolLM3",
	Name:  "smollm3", HF: "SmolLM3ForCausalLM", Define: llama,
	Fields: slices.Concat(models.DecoderFields(models.WidthByHeads), []models.Field{{Read: demandEveryFourth}}),
	Layer: func(_ *models.Config, i int, l *models.Layer) {
		if (i+1)%4 == 0 {
			l.Rope = nil
		}
	},
	Tensors: models.DecoderTensors(nil), GGUFInterleaved: true,
	Shapes: []models.Shape{
		{Parameters: 3_075_098_624, Config: models.Config{Name: "smollm3-3b", Layers: 36, Width: 2048, Heads: 16, KVHeads: 4, Head: 128, FFN: 11008, Vocab: 128256, Context: 65536, Eps: 1e-6,
			Rope: models.Rope{Theta: 5e6}, Tied: true}},
	},
}

// demandEveryFourth refuses folders in which other layers than every fourth lack RoPE, since GGUF
// files cannot store the list.
func demandEveryFourth(d models.Description, c *models.Config) {
	if d.Format() != models.Folder || !d.Has("no_rope_layers") {
		return
	}
	rotated := d.Sizes("no_rope_layers") // 1 for a layer with RoPE
	for i := range min(c.Layers, models.MaxLayers) {
		if i >= len(rotated) || (rotated[i] == 0) != ((i+1)%4 == 0) {
			d.Fail(models.ConfigError("no_rope_layers is %v, want every fourth layer", rotated))
			return
		}
	}
}
