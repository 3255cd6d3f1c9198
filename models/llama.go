package models

import "github.com/smelt-ml/smelt/ir"

// llamaFamily is Llama 2 and 3, and the many models built like them.
var llamaFamily = Family{
	Name: "llama", HF: "LlamaForCausalLM", Define: llama,
	Fields:  decoderFields(widthByHeads),
	Tensors: decoderTensors(nil),
	// llama.cpp's converter puts the two elements that RoPE rotates together side by
	// side; folders keep them half a head apart.
	Interleaved: true,
	Ignorable:   []string{"blk.*.attn_rot_embd.weight", "*.rotary_emb.inv_freq"},
}

// llama adds two things to the residual stream x in each layer:
//
//	x += Wo · attention(rope(Wq·n), rope(Wk·n), Wv·n)   n = RMSNorm(x)
//	x += Wdown · (silu(Wgate·n) ∘ Wup·n)                n = RMSNorm(x)
func llama(b *ir.Builder, c *Config) {
	decode(b, c, func(l *layer, x *ir.Value) *ir.Value {
		x = b.Add(x, attention(l, l.norm("attn_norm", x), asItIs))
		return b.Add(x, gated(l, l.norm("ffn_norm", x), ir.SiLU))
	})
}
