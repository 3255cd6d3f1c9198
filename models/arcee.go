package models

import (
	"slices"

	"github.com/smelt-ml/smelt/ir"
)

// arceeFamily is Arcee's AFM: Llama whose feed-forward networks have no gate and square what
// ReLU leaves.
var arceeFamily = Family{
	Title: "Arcee AFM",
	Name:  "arcee", HF: "ArceeForCausalLM", Define: arcee,
	Fields: slices.Concat(shapeFields(widthByHeads), []Field{rmsEps, ropes, tied(false), activation("relu2"),
		{HF: "attention_bias", Only: false}, {HF: "mlp_bias", Only: false}, noWindow, noExperts, {Read: refuseWindow}}),
	// As Llama's, files have the two elements that RoPE rotates together side by side.
	Tensors: decoderTensors(nil, "blk.#.ffn_gate.weight"), Interleaved: true,
}

// arcee is, with n = RMSNorm(x),
//
//	x += Wo · attention(rope(Wq·n), rope(Wk·n), Wv·n)
//	x += Wdown · max(Wup·n, 0)²
func arcee(b *ir.Builder, c *Config) {
	decode(b, c, rmsNorm, func(l *layer, x *ir.Value) *ir.Value {
		x = b.Add(x, attention(l, l.norm("attn_norm", x), asItIs))
		return b.Add(x, ungated(l, l.norm("ffn_norm", x), ir.ReLU2))
	})
}
