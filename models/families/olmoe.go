package families

import (
	"slices"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/models"
)

// olmoeFamily is OLMoE.
var olmoeFamily = models.Family{
	Title: "OLMoE",
	Name:  "olmoe", HF: "OlmoeForCausalLM", Define: olmoe,
	Fields: slices.Concat(models.ByWidth, []models.Field{models.RMSEps, models.WholeRope, models.Tied(false), models.Activation("silu"), models.NoWindow,
		{HF: "attention_bias", Only: false}}, models.ExpertFields("num_experts", "intermediate_size", models.WholeFFN)),
	Router: models.RouterKeys{Router: models.Router{Score: ir.SoftmaxScore}, HFNormalised: "norm_topk_prob"},
	Tensors: lo.Assign(models.DecoderTensors(map[string]models.Stored{
		"blk.#.attn_q_norm.weight": models.As("model.layers.#.self_attn.q_norm.weight"),
		"blk.#.attn_k_norm.weight": models.As("model.layers.#.self_attn.k_norm.weight"),
	}, models.DenseFFN...), models.ExpertTensors("mlp", "gate_proj", "up_proj", "down_proj")),
	Shapes: []models.Shape{
		{Parameters: 6_919_161_856, Config: models.Config{Name: "olmoe-1b-7b", Layers: 16, Width: 2048, Heads: 16, KVHeads: 16, Head: 128, FFN: 1024, Vocab: 50304, Context: 4096, Eps: 1e-5,
			Rope: models.Rope{Theta: 1e4}, Experts: models.Experts{Count: 64, Chosen: 8, FFN: 1024}}},
	},
}

// olmoe is llama with norms of Q and K over all their heads, and a mixture whose experts are
// weighted by the softmax over all of them:
//
//	x += Σ wᵢ · Wdownᵢ · (silu(Wgateᵢ·n) ∘ Wupᵢ·n)   n = RMSNorm(x), w = the largest of softmax(R·n)
func olmoe(b *ir.Builder, c *models.Config) {
	models.Decode(b, c, models.RMSNorm, func(l *models.LayerBuilder, x *ir.Value) *ir.Value {
		x = b.Add(x, models.Attention(l, l.Norm("attn_norm", x), l.NormAllHeads))
		return models.AddFeedForward(l, x, l.Norm("ffn_norm", x), ir.SiLU)
	})
}
