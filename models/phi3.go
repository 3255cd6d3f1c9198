package models

import (
	"slices"

	"github.com/samber/lo"
)

// phi3Family is Phi-3, Phi-3.5 and Phi-4-mini: Llama whose files have Q, K and V in one tensor,
// and gate and up in another; part of each head may rotate, and layers may see a window.
var phi3Family = Family{
	Title: "Phi-3, Phi-3.5, Phi-4-mini",
	Name:  "phi3", HF: "Phi3ForCausalLM", Define: llama,
	Fields: slices.Concat(shapeFields(widthByHeads), []Field{rmsEps, partOfHeads(1), tied(false), activation("silu"),
		{HF: "attention_bias", Only: false}, noExperts, window, windowed(0)}),
	Layer:  withWindow,
	Joined: []string{"attn_qkv", "ffn_up"},
	Tensors: decoderTensors(lo.Assign(cut("attn_qkv", as("model.layers.#.self_attn.qkv_proj.weight")),
		cut("ffn_up", as("model.layers.#.mlp.gate_up_proj.weight")))),
}
