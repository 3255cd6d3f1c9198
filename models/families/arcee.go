package families

import (
	"slices"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/models"
)

// arceeFamily is Arcee's AFM: Llama with feed-forward networks without a gate, activated by the
// square of ReLU.
var arceeFamily = models.Family{
	Title: "Arcee AFM",
	Name:  "arcee", HF: "ArceeForCausalLM", Define: arcee,
	Fields: slices.Concat(models.ByWidth, []models.Field{models.RMSEps, models.WholeRope, models.Tied(false), models.Activation("relu2"),
		{HF: "attention_bias", Only: false}, {HF: "mlp_bias", Only: false}, models.NoWindow, models.NoExperts, {Read: models.RefuseWindow}}),
	// In GGUF files the two elements of a RoPE pair are adjacent, as in Llama's.
	Tensors: models.DecoderTensors(nil, "blk.#.ffn_gate.weight"), GGUFInterleaved: true,
	Shapes: []models.Shape{
		{Parameters: 4_619_184_640, Config: models.Config{Name: "afm-4.5b", Layers: 36, Width: 2560, Heads: 20, KVHeads: 4, Head: 128, FFN: 18432, Vocab: 128004, Context: 65536, Eps: 1e-5,
			Rope: models.Rope{Theta: 1e4, YaRN: &models.YaRNRope{Factor: 20, FastBeta: 32, SlowBeta: 1, OldContext: 4096}}}},
	},
}

// arcee is, with n = RMSNorm(x),
//
//	x += Wo · attention(rope(Wq·n), rope(Wk·n), Wv·n)
//	x += Wdown · max(Wup·n, 0)²
func arcee(b *ir.Builder, c *models.Config) {
	models.Decode(b, c, models.RMSNorm, func(l *models.LayerBuilder, x *ir.Value) *ir.Value {
		x = b.Add(x, models.Attention(l, l.Norm("attn_norm", x), models.AsIs))
		return b.Add(x, models.Ungated(l, l.Norm("ffn_norm", x), ir.ReLU2))
	})
}
