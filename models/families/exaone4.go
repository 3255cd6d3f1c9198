package families

import (
	"slices"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/models"
	"github.com/smelt-ml/smelt/models/gguf"
)

// exaone4Family is EXAONE 4.0. In its large model, recognised by its 64 layers, three layers of
// four have a sliding window, and only these rotate.
var exaone4Family = models.Family{
	Title: "EXAONE 4.0",
	Name:  "exaone4", HF: "Exaone4ForCausalLM", Define: exaone4,
	Fields: slices.Concat(models.ByWidth, []models.Field{models.RMSEps, models.WholeRope, models.Tied(false), models.Activation("silu"), {Read: exaoneWindow},
		{Write: func(c *models.Config) (string, gguf.Value, bool) {
			return "attention.sliding_window", gguf.Uint32(uint32(c.Window)), c.Window != 0
		}}, models.Windowed(4)}),
	Layer: func(c *models.Config, i int, l *models.Layer) {
		switch {
		case c.SeesWindow(i):
			l.Window = c.Window
		case c.Windowed != nil:
			l.Rope = c.Rope.Still()
		}
	},
	Tensors: afterTensors(),
	Shapes: []models.Shape{
		{Parameters: 1_279_391_488, Config: models.Config{Name: "exaone4-1.2b", Layers: 30, Width: 2048, Heads: 32, KVHeads: 8, Head: 64, FFN: 4096, Vocab: 102400, Context: 65536, Eps: 1e-5,
			Rope: models.Rope{Theta: 1e6, Llama3: &models.Llama3Rope{Factor: 16, LowFrequency: 1, HighFrequency: 4, OldContext: 8192}}, Tied: true}},
	},
}

// exaoneWindow reads the sliding window. GGUF files of the small models have the entry although the
// models have no window.
func exaoneWindow(d models.Description, c *models.Config) {
	if d.Format() == models.Folder || c.Layers == 64 {
		models.Window.ReadFrom(d, c)
	}
}

// exaone4 is olmo2 except that each head of Q and K is normalised by itself.
func exaone4(b *ir.Builder, c *models.Config) {
	models.Decode(b, c, models.RMSNorm, func(l *models.LayerBuilder, x *ir.Value) *ir.Value { return normedAfter(l, x, l.NormHeads) })
}
