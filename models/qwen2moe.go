package models

import (
	"slices"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/ir"
)

// qwen2moeFamily is the mixtures of experts of Qwen1.5 and Qwen2, with one more expert that all
// tokens go to.
var qwen2moeFamily = Family{
	Title: "Qwen1.5 MoE, Qwen2 MoE",
	Name:  "qwen2moe", HF: "Qwen2MoeForCausalLM", Define: qwen2moe,
	Fields: slices.Concat(without(qwen2Family.Fields, noExperts.GGUF), expertFields("num_experts", "moe_intermediate_size", partOfFFN), []Field{
		{GGUF: "expert_shared_feed_forward_length", HF: "shared_expert_intermediate_size", Size: func(c *Config) *int { return &c.Experts.Shared },
			Absent: inFiles(wholeFFN)},
		{HF: "norm_topk_prob", Only: false}, {HF: "decoder_sparse_step", Only: 1}, {Read: refuseDenseLayers}}),
	Given: qwen2Family.Given,
	Tensors: lo.Assign(lo.OmitByKeys(qwen2Family.Tensors, denseFFN), expertTensors("mlp", "gate_proj", "up_proj", "down_proj"), map[string]Stored{
		"blk.#.ffn_gate_inp_shexp.weight": as("model.layers.#.mlp.shared_expert_gate.weight"),
		"blk.#.ffn_gate_shexp.weight":     as("model.layers.#.mlp.shared_expert.gate_proj.weight"),
		"blk.#.ffn_up_shexp.weight":       as("model.layers.#.mlp.shared_expert.up_proj.weight"),
		"blk.#.ffn_down_shexp.weight":     as("model.layers.#.mlp.shared_expert.down_proj.weight"),
	}),
}

// qwen2moe is llama with biases on Q, K and V, and a mixture beside an expert that sees all
// tokens, weighted by a gate of its own:
//
//	x += Σ wᵢ · Wdownᵢ · (silu(Wgateᵢ·n) ∘ Wupᵢ·n) + sigmoid(s·n) · Wdown · (silu(Wgate·n) ∘ Wup·n)
//
// where n = RMSNorm(x) and w = the largest of softmax(R·n).
func qwen2moe(b *ir.Builder, c *Config) {
	decode(b, c, rmsNorm, func(l *layer, x *ir.Value) *ir.Value {
		x = b.Add(x, attention(l, l.norm("attn_norm", x), asItIs))
		n := l.norm("ffn_norm", x)
		x = b.Add(x, mixed(l, n, shareAll, ir.SiLU))
		return b.Add(x, shared(l, n, ir.SiLU))
	})
}
