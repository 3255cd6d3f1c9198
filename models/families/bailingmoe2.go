package families

import (
	"slices"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/models"
	"github.com/smelt-ml/smelt/models/gguf"
)

// bailingmoe2Family is Ling 2.0 and Ring 2.0: mixtures with groups of experts and a shared one behind
// dense layers, heads of Q and K normalised, half of each rotated.
var bailingmoe2Family = models.Family{
	Title: "Ling 2.0, Ring 2.0",
	Name:  "bailingmoe2", HF: "BailingMoeV2ForCausalLM", Define: bailingmoe2,
	Fields: slices.Concat(models.ByWidth, []models.Field{models.RMSEps, models.PartOfHeads(0.5), models.Tied(false), models.Activation("silu"), models.NoWindow,
		{HF: "use_bias", Only: false}, {HF: "use_qkv_bias", Only: false}, {HF: "use_qk_norm", Only: true}, {HF: "norm_head", Only: false},
		{GGUF: keyDense, HF: "first_k_dense_replace", Size: func(c *models.Config) *int { return &c.Experts.Dense }, Optional: true},
	}, models.ExpertFields("num_experts", "moe_intermediate_size", func(*models.Config) int { return 0 }), []models.Field{sharedCountAs("num_shared_experts"),
		{HF: "moe_shared_expert_intermediate_size", Repeats: func(c *models.Config) int { return c.Experts.FFN }},
		{Read: sharedLength, Write: func(c *models.Config) (string, gguf.Value, bool) {
			return keySharedLength, gguf.Uint32(uint32(c.Experts.FFN)), true
		}}}),
	Router: models.RouterKeys{Router: models.Router{Score: ir.SigmoidScore, Biased: true}, HFNormalises: true, Keyed: true,
		HFScore: "score_function", HFNormalised: "norm_topk_prob", HFScale: "routed_scaling_factor", HFGroups: "n_group", HFUsedGroups: "topk_group", HFBias: "moe_router_enable_expert_bias"},
	Joined: []string{"attn_qkv"},
	Tensors: lo.Assign(models.DecoderTensors(lo.Assign(models.Cut("attn_qkv", models.As("model.layers.#.attention.query_key_value.weight")), map[string]models.Stored{
		"token_embd.weight":        models.As("model.word_embeddings.weight"),
		"blk.#.attn_q_norm.weight": models.As("model.layers.#.attention.query_layernorm.weight"),
		"blk.#.attn_k_norm.weight": models.As("model.layers.#.attention.key_layernorm.weight"),
		"blk.#.attn_output.weight": models.As("model.layers.#.attention.dense.weight"),
	})), models.ExpertTensors("mlp", "gate_proj", "up_proj", "down_proj"), sharedTensors, map[string]models.Stored{
		"blk.#.exp_probs_b.bias": models.As("model.layers.#.mlp.gate.expert_bias"),
	}),
	Shapes: []models.Shape{
		{Parameters: 16_255_643_392, Config: models.Config{Name: "ling-mini-2.0", Layers: 20, Width: 2048, Heads: 16, KVHeads: 4, Head: 128, FFN: 5120, Vocab: 157184, Context: 32768, Eps: 1e-6,
			Rope: models.Rope{Theta: 6e5, Rotated: 64},
			Experts: models.Experts{Count: 256, Chosen: 8, FFN: 512, Shared: 512, Dense: 1,
				Router: models.Router{Score: ir.SigmoidScore, Normalised: true, Biased: true, Scale: 2.5, Groups: 8, UsedGroups: 4}}}},
	},
}

// sharedLength reads the width of each shared expert, where GGUF files have one of its own that is not 0.
func sharedLength(d models.Description, c *models.Config) {
	if d.Format() != models.GGUF || !d.Has(keySharedLength) || c.Experts.FFN == 0 {
		return
	}
	if n := d.Size(keySharedLength, models.Unset); n != 0 {
		c.Experts.Shared = c.Experts.Shared / c.Experts.FFN * n
	}
}

// bailingmoe2 is glm4moe with norms of heads in all models:
//
//	x += Wo · attention(rope(norm(Wq·n)), rope(norm(Wk·n)), Wv·n)                       n = RMSNorm(x)
//	x += Σ wᵢ · Wdownᵢ · (silu(Wgateᵢ·n) ∘ Wupᵢ·n) + Wdown · (silu(Wgate·n) ∘ Wup·n)   n = RMSNorm(x)
func bailingmoe2(b *ir.Builder, c *models.Config) {
	models.Decode(b, c, models.RMSNorm, func(l *models.LayerBuilder, x *ir.Value) *ir.Value {
		x = b.Add(x, models.Attention(l, l.Norm("attn_norm", x), l.NormHeads))
		return models.AddFeedForward(l, x, l.Norm("ffn_norm", x), ir.SiLU)
	})
}
