package families

import (
	"slices"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/models"
)

// granitemoeFamily is the mixtures of Granite 3, some with a shared expert. Folders have the rows of
// an expert's gate before those of up in one tensor.
var granitemoeFamily = models.Family{
	Title: "Granite 3 MoE",
	Name:  "granitemoe", HF: "GraniteMoeForCausalLM", Alias: []string{"GraniteMoeSharedForCausalLM"}, Define: granite,
	Fields: slices.Concat(models.Without(graniteFields, models.NoExperts.GGUF), []models.Field{
		{GGUF: "expert_count", HF: "num_local_experts", Size: func(c *models.Config) *int { return &c.Experts.Count }},
		{GGUF: "expert_used_count", HF: "num_experts_per_tok", Size: func(c *models.Config) *int { return &c.Experts.Chosen }},
		{GGUF: keySharedLength, HF: "shared_intermediate_size", Size: func(c *models.Config) *int { return &c.Experts.Shared }, Optional: true}}),
	Router: models.RouterKeys{Router: models.Router{Score: ir.SoftmaxScore, Normalised: true}},
	Given:  func(c *models.Config) { c.Experts.FFN = c.FFN },
	Tensors: lo.Assign(lo.OmitByKeys(graniteFamily.Tensors, models.DenseFFN), map[string]models.Stored{
		"blk.#.ffn_gate_inp.weight":   models.As("model.layers.#.block_sparse_moe.router.layer.weight"),
		"blk.#.ffn_gate_exps.weight":  models.As("model.layers.#.block_sparse_moe.experts.w1.weight"),
		"blk.#.ffn_up_exps.weight":    models.As("model.layers.#.block_sparse_moe.experts.w3.weight"),
		"blk.#.ffn_down_exps.weight":  models.As("model.layers.#.block_sparse_moe.output_linear.weight"),
		"blk.#.ffn_gate_shexp.weight": sharedPart(0, widthOfShared),
		"blk.#.ffn_up_shexp.weight":   sharedPart(1, widthOfShared),
		"blk.#.ffn_down_shexp.weight": models.As("model.layers.#.shared_mlp.output_linear.weight"),
	}),
	Stacks: []models.Stack{{Name: "block_sparse_moe.input_linear.weight", RowMajor: true,
		Roles: []string{"block_sparse_moe.experts.w1", "block_sparse_moe.experts.w3"}}},
	GGUFInterleaved: true,
	Shapes: []models.Shape{
		{Parameters: 1_334_628_352, Config: models.Config{Name: "granite3.1-1b-a400m", Layers: 24, Width: 1024, Heads: 16, KVHeads: 8, Head: 64, FFN: 512, Vocab: 49155, Context: 131072, Eps: 1e-6,
			Rope: models.Rope{Theta: 1.5e6}, Tied: true, EmbeddingScale: 12, ResidualScale: 0.22, AttentionScale: 0.015625, LogitDivisor: 6,
			Experts: models.Experts{Count: 32, Chosen: 8}}},
	},
}

func widthOfShared(c *models.Config) int { return c.Experts.Shared }

// sharedPart is the gate, part 0, or up, part 1, of a shared expert of some width, which folders have
// in one tensor.
func sharedPart(i int, width func(c *models.Config) int) models.Stored {
	return models.Stored{Names: []string{"model.layers.#.shared_mlp.input_linear.weight"},
		Rows: func(c *models.Config) (first, n int) { return i * width(c), width(c) }}
}
