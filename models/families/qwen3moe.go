package families

import (
	"slices"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/models"
)

// qwen3moeFamily is the mixtures of experts of Qwen3, in which every layer is a mixture.
var qwen3moeFamily = models.Family{
	Title: "Qwen3 MoE",
	Name:  "qwen3moe", HF: "Qwen3MoeForCausalLM", Define: qwen3moe,
	Fields: slices.Concat(models.Without(qwen3Family.Fields, models.NoExperts.GGUF), models.ExpertFields("num_experts", "moe_intermediate_size", models.PartOfFFN), []models.Field{
		{HF: "decoder_sparse_step", Only: 1}, {Read: refuseDenseLayers}}),
	Router:  models.RouterKeys{Router: models.Router{Score: ir.SoftmaxScore, Normalised: true}, HFNormalised: "norm_topk_prob"},
	Tensors: lo.Assign(lo.OmitByKeys(qwen3Family.Tensors, models.DenseFFN), models.ExpertTensors("mlp", "gate_proj", "up_proj", "down_proj")),
	Shapes: []models.Shape{
		{Parameters: 30_532_122_624, Config: models.Config{Name: "qwen3-30b-a3b", Layers: 48, Width: 2048, Heads: 32, KVHeads: 4, Head: 128, FFN: 6144, Vocab: 151936, Context: 40960, Eps: 1e-6,
			Rope: models.Rope{Theta: 1e6}, Experts: models.Experts{Count: 128, Chosen: 8, FFN: 768}}},
	},
}

// refuseDenseLayers refuses folders with dense layers among the mixtures; GGUF files cannot have
// them.
func refuseDenseLayers(d models.Description, _ *models.Config) {
	if d.Format() != models.Folder || !d.Has("mlp_only_layers") {
		return
	}
	if dense := d.Sizes("mlp_only_layers"); len(dense) > 0 {
		d.Fail(models.ConfigError("mlp_only_layers is %v, want none", dense))
	}
}

// qwen3moe is qwen3 with a mixture in place of each feed-forward network:
//
//	x += Σ wᵢ · Wdownᵢ · (silu(Wgateᵢ·n) ∘ Wupᵢ·n)   n = RMSNorm(x), w = the largest of softmax(R·n), normalised
func qwen3moe(b *ir.Builder, c *models.Config) {
	models.Decode(b, c, models.RMSNorm, func(l *models.LayerBuilder, x *ir.Value) *ir.Value {
		x = b.Add(x, models.Attention(l, l.Norm("attn_norm", x), l.NormHeads))
		return models.AddFeedForward(l, x, l.Norm("ffn_norm", x), ir.SiLU)
	})
}
