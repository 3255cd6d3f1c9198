package families

import (
	"slices"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/models"
)

// seedossFamily is Seed-OSS: Llama with biases on Q, K and V.
var seedossFamily = models.Family{
	Title: "Seed-OSS",
	Name:  "seed_oss", HF: "SeedOssForCausalLM", Define: seedoss,
	Fields: slices.Concat(models.ByWidth, models.Biased[:1], []models.Field{models.RMSEps, models.WholeRope, models.Tied(false), models.Activation("silu"),
		{HF: "attention_out_bias", Only: false}, {HF: "mlp_bias", Only: false}, models.NoWindow, models.NoExperts}),
	Tensors: models.DecoderTensors(map[string]models.Stored{
		"blk.#.post_attention_norm.weight": models.As("model.layers.#.post_attention_layernorm.weight"),
	}, "blk.#.ffn_norm.weight"),
	Shapes: []models.Shape{
		{Parameters: 36_151_104_512, Config: models.Config{Name: "seed-oss-36b", Layers: 64, Width: 5120, Heads: 80, KVHeads: 8, Head: 128, FFN: 27648, Vocab: 155136, Context: 524288, Eps: 1e-6,
			Rope: models.Rope{Theta: 1e7}, Biases: models.Biases{QKV: true}}},
	},
}

// seedoss is llama with another name of the second norm.
func seedoss(b *ir.Builder, c *models.Config) {
	models.Decode(b, c, models.RMSNorm, func(l *models.LayerBuilder, x *ir.Value) *ir.Value {
		x = b.Add(x, models.Attention(l, l.Norm("attn_norm", x), models.AsIs))
		return b.Add(x, models.Gated(l, l.Norm("post_attention_norm", x), ir.SiLU))
	})
}
