package families

import (
	"cmp"
	"slices"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/models"
)

// gemma3Family is the text models of Gemma 3: five layers of six have a sliding window and a
// smaller RoPE base; heads of Q and K are normalised in place of a soft cap on scores.
var gemma3Family = models.Family{
	Title: "Gemma 3 (text)",
	Name:  "gemma3", HF: "Gemma3ForCausalLM", Define: gemma3,
	Fields: slices.Concat(gemmaFields(0, 6), []models.Field{
		{GGUF: "rope.freq_base_swa", HF: "rope_local_base_freq", Number: func(c *models.Config) *float64 { return &c.WindowRope.Theta }, Optional: true}}),
	Given: func(c *models.Config) {
		gemmaGiven(62)(c)
		c.WindowRope.Theta = cmp.Or(c.WindowRope.Theta, 10000)
	},
	Layer: func(c *models.Config, i int, l *models.Layer) {
		if c.SeesWindow(i) {
			l.Window, l.Rope = c.Window, unscaled(c, c.WindowRope.Theta)
		}
	},
	Tensors: gemmaTensors(map[string]models.Stored{
		"blk.#.attn_q_norm.weight": models.As("model.layers.#.self_attn.q_norm.weight"),
		"blk.#.attn_k_norm.weight": models.As("model.layers.#.self_attn.k_norm.weight"),
	}),
	Shapes: []models.Shape{
		{Parameters: 999_885_952, Config: models.Config{Name: "gemma3-1b", Layers: 26, Width: 1152, Heads: 4, KVHeads: 1, Head: 256, FFN: 6912, Vocab: 262144, Context: 32768, Eps: 1e-6,
			Rope: models.Rope{Theta: 1e6}, Tied: true, Window: 512, Windowed: models.AllButEvery(6, 26)}},
	},
}

// gemma3 is gemma2 with heads of Q and K normalised before RoPE.
func gemma3(b *ir.Builder, c *models.Config) {
	models.Decode(b, c, models.RMSNorm, func(l *models.LayerBuilder, x *ir.Value) *ir.Value { return gemmaLayer(l, x, l.NormHeads) })
}
