package families

import (
	"slices"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/models"
)

// qwen2moeFamily is the mixtures of experts of Qwen1.5 and Qwen2, with a gated shared expert.
var qwen2moeFamily = models.Family{
	Title: "Qwen1.5 MoE, Qwen2 MoE",
	Name:  "qwen2moe", HF: "Qwen2MoeForCausalLM", Define: qwen2moe,
	Fields: slices.Concat(models.Without(qwen2Family.Fields, models.NoExperts.GGUF), models.ExpertFields("num_experts", "moe_intermediate_size", models.PartOfFFN), []models.Field{sharedWidth, {HF: "decoder_sparse_step", Only: 1}, {Read: refuseDenseLayers}}),
	Router: models.RouterKeys{Router: models.Router{Score: ir.SoftmaxScore}, HFNormalised: "norm_topk_prob"},
	Given: func(c *models.Config) {
		qwen2Family.Given(c)
		c.Experts.SharedGate = true
	},
	Tensors: lo.Assign(lo.OmitByKeys(qwen2Family.Tensors, models.DenseFFN), models.ExpertTensors("mlp", "gate_proj", "up_proj", "down_proj"), gatedShared),
	Shapes: []models.Shape{
		{Parameters: 14_315_784_192, Config: models.Config{Name: "qwen1.5-moe-a2.7b", Layers: 24, Width: 2048, Heads: 16, KVHeads: 16, Head: 128, FFN: 5632, Vocab: 151936, Context: 8192, Eps: 1e-6,
			Rope: models.Rope{Theta: 1e6}, Experts: models.Experts{Count: 60, Chosen: 4, FFN: 1408, Shared: 5632}}},
	},
}

// sharedWidth is the width of a shared expert.
var sharedWidth = models.Field{GGUF: keySharedLength, HF: "shared_expert_intermediate_size", Size: func(c *models.Config) *int { return &c.Experts.Shared },
	Absent: models.InFiles(models.WholeFFN)}

// gatedShared are the tensors of a shared expert with a gate.
var gatedShared = map[string]models.Stored{
	"blk.#.ffn_gate_inp_shexp.weight": models.As("model.layers.#.mlp.shared_expert_gate.weight"),
	"blk.#.ffn_gate_shexp.weight":     models.As("model.layers.#.mlp.shared_expert.gate_proj.weight"),
	"blk.#.ffn_up_shexp.weight":       models.As("model.layers.#.mlp.shared_expert.up_proj.weight"),
	"blk.#.ffn_down_shexp.weight":     models.As("model.layers.#.mlp.shared_expert.down_proj.weight"),
}

// qwen2moe is llama with biases on Q, K and V, and a mixture plus a shared expert with a gate of
// its own:
//
//	x += Σ wᵢ · Wdownᵢ · (silu(Wgateᵢ·n) ∘ Wupᵢ·n) + sigmoid(s·n) · Wdown · (silu(Wgate·n) ∘ Wup·n)
//
// where n = RMSNorm(x) and w = the largest of softmax(R·n).
func qwen2moe(b *ir.Builder, c *models.Config) {
	models.Decode(b, c, models.RMSNorm, func(l *models.LayerBuilder, x *ir.Value) *ir.Value {
		x = b.Add(x, models.Attention(l, l.Norm("attn_norm", x), models.AsIs))
		return models.AddFeedForward(l, x, l.Norm("ffn_norm", x), ir.SiLU)
	})
}
