package families

import (
	"slices"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/models"
)

// museGlimmerFamily is the text model of Muse Glimmer: dense layers like Trinity's, behind a norm of
// the embeddings.
var museGlimmerFamily = models.Family{
	Title: "Muse Glimmer (text)",
	Name:  "muse-glimmer", Define: museGlimmer,
	Fields: slices.Concat(models.ShapeFields(models.WidthByHeads), []models.Field{models.RMSEps, models.WholeRope, models.NoExperts,
		{GGUF: "attention.sliding_window", Size: func(c *models.Config) *int { return &c.Window }}, models.Windowed(4),
		windowTheta,
		{GGUF: "logit_scale", Number: func(c *models.Config) *float64 { return &c.LogitScale }},
		{GGUF: models.LogitCap.GGUF, Number: models.LogitCap.Number}}),
	Layer: func(c *models.Config, i int, l *models.Layer) {
		if l.Rope = c.Rope.Still(); c.SeesWindow(i) {
			l.Window, l.Rope = c.Window, windowRope(c)
		}
	},
	GGUFInterleaved: true,
	Shapes: []models.Shape{
		{Parameters: 27_854_794_240, Config: models.Config{Name: "muse-glimmer-30b", Layers: 52, Width: 6656, Heads: 32, KVHeads: 2, Head: 128, FFN: 19968, Vocab: 202048, Context: 131072, Eps: 1e-5,
			Rope: models.Rope{Theta: 5e5}, LogitScale: 0.19611613513818404, LogitCap: 20, Window: 2048, Windowed: models.AllButEvery(4, 52)}},
	},
}

// postNormEps is Muse Glimmer's epsilon of norms behind attention and feed-forward network.
const postNormEps = 1e-8

// museGlimmer is afmoe without experts, with the embeddings divided by their root mean square.
func museGlimmer(b *ir.Builder, c *models.Config) {
	ones := slices.Repeat([]float32{1}, c.Width)
	models.Decode(b, c, models.RMSNorm, func(l *models.LayerBuilder, x *ir.Value) *ir.Value {
		if l.Index == 0 {
			x = b.RMSNorm(x, b.Const(ones), c.Eps)
		}
		after := func(role string, y *ir.Value) *ir.Value { return models.RMSNorm(b, l.Name(role), y, postNormEps) }
		x = b.Add(x, after("post_attention_norm", gatedHeads(l, l.Norm("attn_norm", x))))
		return b.Add(x, after("post_ffw_norm", models.Gated(l, l.Norm("ffn_norm", x), ir.SiLU)))
	})
}
