package families

import (
	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/models"
)

// lfm2moeFamily is LFM2's mixtures, which differ from the dense models in the feed-forward networks
// behind the first layers. Experts are chosen by sigmoids, with a bias.
var lfm2moeFamily = models.Family{
	Title: "LFM2 MoE, LFM2.5 MoE",
	Name:  "lfm2moe", HF: "Lfm2MoeForCausalLM", Define: lfm2,
	Fields: lfm2Fields(append(models.ExpertFields("num_experts", "moe_intermediate_size", models.PartOfFFN),
		models.Field{GGUF: "feed_forward_length", HF: "intermediate_size", Size: func(c *models.Config) *int { return &c.FFN }},
		models.NoWindow, models.Field{GGUF: keyDense, HF: "num_dense_layers", Size: func(c *models.Config) *int { return &c.Experts.Dense }, Optional: true})...),
	Router: models.RouterKeys{Router: models.Router{Score: ir.SigmoidScore, Normalised: true, Biased: true}, Keyed: true,
		HFNormalised: "norm_topk_prob", HFScale: "routed_scaling_factor", HFBias: "use_expert_bias"},
	Layer: lfm2Family.Layer,
	Tensors: lo.Assign(lfm2Family.Tensors, models.ExpertTensors("feed_forward", "w1", "w3", "w2"), map[string]models.Stored{
		"blk.#.exp_probs_b.bias": models.As("model.layers.#.feed_forward.expert_bias"),
	}),
	Shapes: []models.Shape{
		{Parameters: 8_339_930_560, Config: models.Config{Name: "lfm2.5-8b-a1b", Layers: 24, Width: 2048, Heads: 32, KVHeads: 8, Head: 64, FFN: 7168, Vocab: 65536, Context: 128000, Eps: 1e-5,
			Rope: models.Rope{Theta: 1e6}, Tied: true, Taps: 3, Recurrent: allBut(24, 2, 6, 10, 14, 18, 21),
			Experts: models.Experts{Count: 32, Chosen: 4, FFN: 1792, Dense: 2, Router: models.Router{Biased: true}}}},
	},
}
