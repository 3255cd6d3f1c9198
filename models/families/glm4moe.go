package families

import (
	"slices"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/models"
)

// glm4moeFamily is GLM-4.5's mixtures and those built like them: experts chosen by sigmoids with a
// bias, and a shared one, behind dense layers; half of each head rotated.
var glm4moeFamily = models.Family{
	Title: "GLM-4.5, 4.6 and 4.7, Solar Open",
	Name:  "glm4moe", HF: "Glm4MoeForCausalLM", Alias: []string{"SolarOpenForCausalLM"}, Define: glm4moe,
	Fields: slices.Concat(models.ByWidth, models.Biased[:1], []models.Field{models.RMSEps, models.PartOfHeads(0.5), models.HeadNorms("use_qk_norm"),
		models.Tied(false), models.Activation("silu"), models.NoWindow,
		{GGUF: keyDense, HF: "first_k_dense_replace", Size: func(c *models.Config) *int { return &c.Experts.Dense }, Optional: true},
	}, models.ExpertFields("n_routed_experts", "moe_intermediate_size", models.PartOfFFN), []models.Field{sharedCount}),
	Router: models.RouterKeys{Router: models.Router{Score: ir.SigmoidScore, Biased: true}, HFNormalises: true, Keyed: true,
		HFScore: "scoring_func", HFNormalised: "norm_topk_prob", HFScale: "routed_scaling_factor", HFGroups: "n_group", HFUsedGroups: "topk_group"},
	Tensors: lo.Assign(models.DecoderTensors(map[string]models.Stored{
		"blk.#.attn_q_norm.weight":         models.As("model.layers.#.self_attn.q_norm.weight"),
		"blk.#.attn_k_norm.weight":         models.As("model.layers.#.self_attn.k_norm.weight"),
		"blk.#.post_attention_norm.weight": models.As("model.layers.#.post_attention_layernorm.weight"),
	}, "blk.#.ffn_norm.weight"), models.ExpertTensors("mlp", "gate_proj", "up_proj", "down_proj"), sharedTensors),
	Shapes: []models.Shape{
		{Parameters: 106_852_251_264, Config: models.Config{Name: "glm4.5-air", Layers: 46, Width: 4096, Heads: 96, KVHeads: 8, Head: 128, FFN: 10944, Vocab: 151552, Context: 131072, Eps: 1e-5,
			Rope: models.Rope{Theta: 1e6, Rotated: 64}, Biases: models.Biases{QKV: true},
			Experts: models.Experts{Count: 128, Chosen: 8, FFN: 1408, Shared: 1408, Dense: 1, Router: models.Router{Score: ir.SigmoidScore, Normalised: true, Biased: true}}}},
	},
}

// glm4moe is llama with a mixture and a shared expert behind the first layers:
//
//	x += Wo · attention(rope(norm(Wq·n)), rope(norm(Wk·n)), Wv·n)                       n = RMSNorm(x)
//	x += Σ wᵢ · Wdownᵢ · (silu(Wgateᵢ·n) ∘ Wupᵢ·n) + Wdown · (silu(Wgate·n) ∘ Wup·n)   n = RMSNorm(x)
//
// where w = the sigmoids of R·n of the experts with the largest sigmoids plus bias, over their sum.
// Some models have no norms of heads.
func glm4moe(b *ir.Builder, c *models.Config) {
	models.Decode(b, c, models.RMSNorm, func(l *models.LayerBuilder, x *ir.Value) *ir.Value {
		norm := lo.Ternary(c.HeadNorms, l.NormHeads, models.AsIs)
		x = b.Add(x, models.Attention(l, l.Norm("attn_norm", x), norm))
		return models.AddFeedForward(l, x, l.Norm("post_attention_norm", x), ir.SiLU)
	})
}
