package models

import (
	"slices"

	"github.com/smelt-ml/smelt/ir"
)

// llamaFamily is Llama 2 and 3, and the many models built like them: Mistral, whose layers may
// see a window, has no other name in GGUF files.
var llamaFamily = Family{
	Title: "Llama 2, 3, 3.1 and 3.2, TinyLlama, Mistral",
	Name:  "llama", HF: "LlamaForCausalLM", Alias: []string{"MistralForCausalLM", "MinistralForCausalLM"}, Define: llama,
	Fields:  slices.Concat(shapeFields(widthByHeads), biased, []Field{rmsEps, ropes, tied(false), activation("silu"), window, windowed(0), noExperts}),
	Layer:   withWindow,
	Tensors: decoderTensors(nil),
	// llama.cpp's converter puts the two elements that RoPE rotates together side by
	// side; folders keep them half a head apart.
	Interleaved: true,
	Ignorable:   []string{"blk.*.attn_rot_embd.weight"},
}

// llama adds two things to the residual stream x in each layer:
//
//	x += Wo · attention(rope(Wq·n), rope(Wk·n), Wv·n)   n = RMSNorm(x)
//	x += Wdown · (silu(Wgate·n) ∘ Wup·n)                n = RMSNorm(x)
func llama(b *ir.Builder, c *Config) {
	decode(b, c, rmsNorm, func(l *layer, x *ir.Value) *ir.Value {
		x = b.Add(x, attention(l, l.norm("attn_norm", x), asItIs))
		return b.Add(x, gated(l, l.norm("ffn_norm", x), ir.SiLU))
	})
}
