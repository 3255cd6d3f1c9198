package families

import (
	"slices"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/models"
)

// qwen35moeFamily is the mixtures of Qwen3.5 and Qwen3.6: qwen35 with a mixture and a gated shared
// expert in place of each feed-forward network.
var qwen35moeFamily = models.Family{
	Title: "Qwen3.5 and Qwen3.6 MoE (text)",
	Name:  "qwen35moe", HF: "Qwen3_5MoeForCausalLM", Alias: []string{"Qwen3_5MoeForConditionalGeneration"}, Define: qwen35,
	Fields:    mixedDelta(qwen35Family.Fields),
	Router:    models.RouterKeys{Router: models.Router{Score: ir.SoftmaxScore, Normalised: true}, HFNormalised: "norm_topk_prob"},
	Given:     mixedGiven,
	Layer:     qwen35Family.Layer,
	Check:     qwen35Family.Check,
	Sources:   querySources,
	Prefixes:  qwen35Family.Prefixes,
	Tensors:   lo.Assign(lo.OmitByKeys(qwen35Family.Tensors, models.DenseFFN), models.StackedExpertTensors("mlp"), gatedShared),
	Stacks:    gateUpStacks,
	Ignorable: qwen35Family.Ignorable,
	Shapes: []models.Shape{
		{Parameters: 34_660_610_688, Config: models.Config{Name: "qwen3.6-35b-a3b", Layers: 40, Width: 2048, Heads: 16, KVHeads: 2, Head: 256, FFN: 512, Vocab: 248320, Context: 262144, Eps: 1e-6,
			Rope: models.Rope{Theta: 1e7, Rotated: 64}, Sections: []int{11, 11, 10, 0}, Taps: 4, Delta: models.Delta{Heads: 32, KeyHeads: 16, Head: 128}, Recurrent: models.AllButEvery(4, 40),
			Experts: models.Experts{Count: 256, Chosen: 8, FFN: 512, Shared: 512}}},
	},
}

// mixedDelta returns the fields of models with a mixture and a gated shared expert in place of each
// dense layer; mixedGiven is their [models.Family.Given].
func mixedDelta(fields []models.Field) []models.Field {
	return slices.Concat([]models.Field{{GGUF: "feed_forward_length", HF: "intermediate_size", Size: func(c *models.Config) *int { return &c.FFN }, Optional: true}},
		models.Without(fields, "feed_forward_length", models.NoExperts.GGUF),
		models.ExpertFields("num_experts", "moe_intermediate_size", models.PartOfFFN), []models.Field{sharedWidth, {HF: "decoder_sparse_step", Only: 1}, {Read: refuseDenseLayers}})
}

func mixedGiven(c *models.Config) {
	c.Experts.SharedGate = true
	if c.FFN == 0 { // no layer has it
		c.FFN = c.Experts.FFN
	}
}

// gateUpStacks are the experts of folders that stack them with the gate's rows before up's.
var gateUpStacks = []models.Stack{
	{Name: "experts.gate_up_proj", Roles: []string{"experts.gate_proj", "experts.up_proj"}, RowMajor: true},
	{Name: "experts.down_proj", Roles: []string{"experts.down_proj"}, RowMajor: true},
}
