package models

import (
	"slices"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/ir"
)

// olmoeFamily is OLMoE.
var olmoeFamily = Family{
	Title: "OLMoE",
	Name:  "olmoe", HF: "OlmoeForCausalLM", Define: olmoe,
	Fields: slices.Concat(shapeFields(widthByHeads), []Field{rmsEps, ropes, tied(false), activation("silu"), noWindow,
		{HF: "attention_bias", Only: false}, {HF: "norm_topk_prob", Only: false}}, expertFields("num_experts", "intermediate_size", wholeFFN)),
	Tensors: lo.Assign(decoderTensors(map[string]Stored{
		"blk.#.attn_q_norm.weight": as("model.layers.#.self_attn.q_norm.weight"),
		"blk.#.attn_k_norm.weight": as("model.layers.#.self_attn.k_norm.weight"),
	}, denseFFN...), expertTensors("mlp", "gate_proj", "up_proj", "down_proj")),
}

// olmoe is llama with norms of Q and K over all their heads, and a mixture whose experts are
// weighted by the softmax over all of them:
//
//	x += Σ wᵢ · Wdownᵢ · (silu(Wgateᵢ·n) ∘ Wupᵢ·n)   n = RMSNorm(x), w = the largest of softmax(R·n)
func olmoe(b *ir.Builder, c *Config) {
	decode(b, c, rmsNorm, func(l *layer, x *ir.Value) *ir.Value {
		x = b.Add(x, attention(l, l.norm("attn_norm", x), l.normAllHeads))
		return b.Add(x, mixed(l, l.norm("ffn_norm", x), shareAll, ir.SiLU))
	})
}
