package families

import (
	"slices"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/models"
)

// falconH1Family is Falcon-H1, in whose layers attention and Mamba-2 stand side by side. GGUF files have
// the multipliers of its folders in the weights.
var falconH1Family = models.Family{
	Title: "Falcon-H1",
	Name:  "falcon-h1", Define: falconH1,
	Fields: slices.Concat(models.ByWidth, mambaFields(nil), []models.Field{models.RMSEps, models.WholeRope, models.NoWindow, models.NoExperts,
		{GGUFTensor: "blk.0.ssm_norm.weight", Flag: func(c *models.Config) *bool { return &c.GateNorm }}}),
	Check: checkMamba,
	Shapes: []models.Shape{
		{Parameters: 521_411_104, Config: models.Config{Name: "falcon-h1-0.5b", Layers: 36, Width: 1024, Heads: 8, KVHeads: 2, Head: 64, FFN: 2048, Vocab: 32784, Context: 16384, Eps: 1e-5,
			Rope: models.Rope{Theta: 1e11}, Taps: 4, Mamba: models.Mamba{Heads: 24, Head: 64, Groups: 1, States: 128}}},
	},
}

// falconH1 is, with n = RMSNorm(x),
//
//	x += Wo · attention(rope(Wq·n), rope(Wk·n), Wv·n) + Mamba-2(n)
//	x += Wdown · (silu(Wgate·n) ∘ Wup·n)
func falconH1(b *ir.Builder, c *models.Config) {
	models.Decode(b, c, models.RMSNorm, func(l *models.LayerBuilder, x *ir.Value) *ir.Value {
		n := l.Norm("attn_norm", x)
		x = b.Add(x, models.Attention(l, n, models.AsIs))
		x = b.Add(x, stateSpace(l, n, c.Eps, c.GateNorm))
		return b.Add(x, models.Gated(l, b.RMSNorm(x, b.Weight(l.Name("ffn_norm"), c.Width), c.Eps), ir.SiLU))
	})
}
