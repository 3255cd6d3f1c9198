package models

import (
	"slices"

	"github.com/smelt-ml/smelt/ir"
)

// mptFamily is MPT: scores that fall with distance in place of positions, LayerNorm with a
// gain alone. Folders describe attention in an object of its own, which is not read.
var mptFamily = Family{
	Title: "MPT",
	Name:  "mpt", Define: mpt,
	Fields: slices.Concat(shapeFields(widthByHeads), []Field{layerEps("", 0),
		{GGUF: "attention.max_alibi_bias", Number: func(c *Config) *float64 { return &c.ALiBi }},
		{Read: func(d description, _ *Config) {
			const clamp = "attention.clamp_kqv"
			if d.has(clamp) && d.number(clamp, 0) != 0 {
				d.fail(configError("%s is %g", d.fullName(clamp), d.number(clamp, 0)))
			}
		}}}),
	Given: func(c *Config) { c.Rope = Rope{} },
	Layer: withoutRope, Joined: []string{"attn_qkv"},
}

// mpt is, with n = LayerNorm(x),
//
//	x += Wo · attention(Wq·n, Wk·n, Wv·n)
//	x += Wdown · gelu(Wup·n)
func mpt(b *ir.Builder, c *Config) {
	decode(b, c, gainNorm, func(l *layer, x *ir.Value) *ir.Value {
		x = b.Add(x, attention(l, l.norm("attn_norm", x), asItIs))
		return b.Add(x, ungated(l, l.norm("ffn_norm", x), ir.GELU))
	})
}
