package families

import (
	"slices"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/models"
	"github.com/smelt-ml/smelt/models/gguf"
)

// minimaxm2Family is MiniMax-M2: mixtures whose experts are chosen by sigmoids with a bias, Q and K
// normalised over all their heads, part of each head rotated.
var minimaxm2Family = models.Family{
	Title: "MiniMax-M2, M2.1 and M2.5",
	Name:  "minimax-m2", HF: "MiniMaxM2ForCausalLM", Define: olmoe,
	Fields: slices.Concat(models.ByWidth, []models.Field{models.RMSEps, {Read: rotaryDim}, models.Tied(false), models.Activation("silu"), models.NoWindow,
		{HF: "use_qk_norm", Only: true}, {HF: "qk_norm_type", Only: "per_layer"}, {HF: "use_routing_bias", Only: true}, {HF: "shared_intermediate_size", Only: 0}},
		models.ExpertFields("num_local_experts", "intermediate_size", models.WholeFFN), []models.Field{
			{Write: func(*models.Config) (string, gguf.Value, bool) {
				return "expert_gating_func", gguf.Uint32(uint32(ir.SigmoidScore)), true // which llama.cpp wants to be said
			}}}),
	Router: models.RouterKeys{Router: models.Router{Score: ir.SigmoidScore, Normalised: true, Biased: true}, HFScore: "scoring_func"},
	Tensors: lo.Assign(olmoeFamily.Tensors, models.ExpertTensors("block_sparse_moe", "w1", "w3", "w2"), map[string]models.Stored{
		"blk.#.exp_probs_b.bias": models.As("model.layers.#.block_sparse_moe.e_score_correction_bias"),
	}),
	Shapes: []models.Shape{
		{Parameters: 228_689_764_864, Config: models.Config{Name: "minimax-m2", Layers: 62, Width: 3072, Heads: 48, KVHeads: 8, Head: 128, FFN: 1536, Vocab: 200064, Context: 196608, Eps: 1e-6,
			Rope: models.Rope{Theta: 5e6, Rotated: 64}, Experts: models.Experts{Count: 256, Chosen: 8, FFN: 1536, Router: models.Router{Biased: true}}}},
	},
}

// rotaryDim reads RoPE of folders that say how many elements of a head rotate.
func rotaryDim(d models.Description, c *models.Config) {
	d.ReadRope(c)
	if d.Format() == models.Folder && d.Has("rotary_dim") {
		c.Rope.Rotated = d.Size("rotary_dim", 0)
	}
}
