package families

import (
	"slices"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/models"
	"github.com/smelt-ml/smelt/models/gguf"
)

// ernie45moeFamily is the mixtures of ERNIE 4.5, which equal Mixtral but for dense layers before
// them, shared experts, and a bias for the choice.
var ernie45moeFamily = models.Family{
	Title: "ERNIE 4.5 MoE",
	Name:  "ernie4_5-moe", HF: "Ernie4_5_MoeForCausalLM", Define: llama,
	Fields: slices.Concat(models.Without(ernie45Family.Fields, models.NoExperts.GGUF),
		models.Renamed(models.ExpertFields("moe_num_experts", "moe_intermediate_size", func(*models.Config) int { return 0 }), map[string]string{"num_experts_per_tok": "moe_k"}),
		[]models.Field{
			{GGUF: keySharedLength, Size: func(c *models.Config) *int { return &c.Experts.Shared }, Optional: true},
			{GGUF: keyDense, HF: "moe_layer_start_index", Size: func(c *models.Config) *int { return &c.Experts.Dense }, Optional: true},
			{GGUF: "interleave_moe_layer_step", HF: "moe_layer_interval", Only: 1},
			{Write: func(*models.Config) (string, gguf.Value, bool) {
				return "interleave_moe_layer_step", gguf.Uint32(1), true
			}},
			{Read: ernieFolder}}),
	Router: models.RouterKeys{Router: models.Router{Score: ir.SoftmaxScore, Normalised: true, Biased: true}},
	Tensors: lo.Assign(ernie45Family.Tensors, models.ExpertTensors("mlp", "gate_proj", "up_proj", "down_proj"), sharedTensors, map[string]models.Stored{
		"blk.#.exp_probs_b.bias": models.As("model.layers.#.mlp.moe_statics.e_score_correction_bias"),
	}),
	GGUFInterleaved: true, FolderInterleaved: true,
	Ignorable: []string{"model.mtp_*"},
	Shapes: []models.Shape{
		{Parameters: 21_825_437_888, Config: models.Config{Name: "ernie4.5-21b-a3b", Layers: 28, Width: 2560, Heads: 20, KVHeads: 4, Head: 128, FFN: 12288, Vocab: 103424, Context: 131072, Eps: 1e-5,
			Rope: models.Rope{Theta: 5e5}, Tied: true, Experts: models.Experts{Count: 64, Chosen: 6, FFN: 1536, Shared: 3072, Dense: 1, Router: models.Router{Biased: true}}}},
	},
}

// ernieFolder reads the width of the shared experts, and refuses dense layers behind the mixtures.
func ernieFolder(d models.Description, c *models.Config) {
	if d.Format() != models.Folder {
		return
	}
	c.Experts.Shared = min(max(d.Size("moe_num_shared_experts", models.Unset), 0), models.MaxExperts) * c.Experts.FFN
	if last := d.Size("moe_layer_end_index", models.Unset); last >= 0 && last < c.Layers-1 {
		d.Fail(models.ConfigError("moe_layer_end_index is %d, before the last of %d layers", last, c.Layers))
	}
}
