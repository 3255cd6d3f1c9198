package models

import (
	"slices"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/ir"
)

// qwen3moeFamily is the mixtures of experts of Qwen3, all of whose layers are.
var qwen3moeFamily = Family{
	Title: "Qwen3 MoE",
	Name:  "qwen3moe", HF: "Qwen3MoeForCausalLM", Define: qwen3moe,
	Fields: slices.Concat(without(qwen3Family.Fields, noExperts.GGUF), expertFields("num_experts", "moe_intermediate_size", partOfFFN), []Field{
		{HF: "norm_topk_prob", Only: true}, {HF: "decoder_sparse_step", Only: 1}, {Read: refuseDenseLayers}}),
	Tensors: lo.Assign(lo.OmitByKeys(qwen3Family.Tensors, denseFFN), expertTensors("mlp", "gate_proj", "up_proj", "down_proj")),
}

// refuseDenseLayers is for families whose folders may name layers that are no mixture, which
// GGUF files cannot say.
func refuseDenseLayers(d description, _ *Config) {
	f, ok := d.(*folder)
	if !ok || !f.has("mlp_only_layers") {
		return
	}
	if dense := f.Sizes("mlp_only_layers"); len(dense) > 0 {
		d.fail(configError("mlp_only_layers is %v, not empty", dense))
	}
}

// qwen3moe is qwen3 with a mixture in place of each feed-forward network:
//
//	x += Σ wᵢ · Wdownᵢ · (silu(Wgateᵢ·n) ∘ Wupᵢ·n)   n = RMSNorm(x), w = softmax(the largest of R·n)
func qwen3moe(b *ir.Builder, c *Config) {
	decode(b, c, rmsNorm, func(l *layer, x *ir.Value) *ir.Value {
		x = b.Add(x, attention(l, l.norm("attn_norm", x), l.normHeads))
		return b.Add(x, mixed(l, l.norm("ffn_norm", x), shareChosen, ir.SiLU))
	})
}
