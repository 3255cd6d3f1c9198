package models

import (
	"slices"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/ir"
)

// llamaFamily is Llama 2 and 3, and the many models built like them: Mistral, whose layers may
// see a window, and Mixtral, whose layers are mixtures, have no other name in GGUF files.
var llamaFamily = Family{
	Title: "Llama 2, 3, 3.1 and 3.2, TinyLlama, Mistral, Mixtral",
	Name:  "llama", HF: "LlamaForCausalLM", Alias: []string{"MistralForCausalLM", "MinistralForCausalLM", "MixtralForCausalLM"}, Define: llama,
	Fields: slices.Concat(shapeFields(widthByHeads), biased, []Field{rmsEps, ropes, tied(false), activation("silu"), window, windowed(0),
		{GGUF: "expert_count", HF: "num_local_experts", Size: func(c *Config) *int { return &c.Experts.Count }, Optional: true},
		{GGUF: "expert_used_count", HF: "num_experts_per_tok", Size: func(c *Config) *int { return &c.Experts.Chosen }, Optional: true}}),
	Given: func(c *Config) {
		if c.Experts.Count > 0 {
			c.Experts.FFN = c.FFN
		}
	},
	Layer:   withWindow,
	Tensors: lo.Assign(decoderTensors(nil), expertTensors("block_sparse_moe", "w1", "w3", "w2")),
	// llama.cpp's converter puts the two elements that RoPE rotates together side by
	// side; folders keep them half a head apart.
	Interleaved: true,
	Ignorable:   []string{"blk.*.attn_rot_embd.weight"},
}

// llama adds two things to the residual stream x in each layer:
//
//	x += Wo · attention(rope(Wq·n), rope(Wk·n), Wv·n)   n = RMSNorm(x)
//	x += Wdown · (silu(Wgate·n) ∘ Wup·n)                n = RMSNorm(x)
//
// or, of experts, what the chosen ones give (Jiang et al., "Mixtral of Experts", 2024):
//
//	x += Σ wᵢ · Wdownᵢ · (silu(Wgateᵢ·n) ∘ Wupᵢ·n)      w = softmax(the largest of R·n)
func llama(b *ir.Builder, c *Config) {
	decode(b, c, rmsNorm, func(l *layer, x *ir.Value) *ir.Value {
		x = b.Add(x, attention(l, l.norm("attn_norm", x), asItIs))
		n := l.norm("ffn_norm", x)
		if c.Experts.Count > 0 {
			return b.Add(x, mixed(l, n, shareChosen, ir.SiLU))
		}
		return b.Add(x, gated(l, n, ir.SiLU))
	})
}
