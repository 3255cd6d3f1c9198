package models

import "github.com/smelt-ml/smelt/ir"

// qwen3Family is the dense Qwen3 models. Folders of those that embed texts have no head, and
// names without "model.".
var qwen3Family = Family{
	Title: "Qwen3",
	Name:  "qwen3", HF: "Qwen3ForCausalLM", Define: qwen3,
	Fields: decoderFields(func(c *Config, form Form) float64 {
		if form == Folder {
			return 128
		}
		return widthByHeads(c, form)
	}),
	Tensors: decoderTensors(map[string]Stored{
		"blk.#.attn_q_norm.weight": as("model.layers.#.self_attn.q_norm.weight"),
		"blk.#.attn_k_norm.weight": as("model.layers.#.self_attn.k_norm.weight"),
	}),
}

// qwen3 differs from llama in that every head of Q and K is normalised by itself before
// it rotates, which keeps scores in bounds, and in that Heads·Head need not be Width:
//
//	x += Wo · attention(rope(norm(Wq·n)), rope(norm(Wk·n)), Wv·n)   n = RMSNorm(x)
//	x += Wdown · (silu(Wgate·n) ∘ Wup·n)                            n = RMSNorm(x)
func qwen3(b *ir.Builder, c *Config) {
	decode(b, c, rmsNorm, func(l *layer, x *ir.Value) *ir.Value {
		x = b.Add(x, attention(l, l.norm("attn_norm", x), l.normHeads))
		return b.Add(x, gated(l, l.norm("ffn_norm", x), ir.SiLU))
	})
}
