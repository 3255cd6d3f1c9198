package models

import (
	"slices"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/ir"
)

// gptneoxFamily is GPT-NeoX and Pythia: LayerNorm, biases, part of each head rotated. Folders
// have Q, K and V in one tensor, head by head.
var gptneoxFamily = Family{
	Title: "GPT-NeoX, Pythia",
	Name:  "gptneox", HF: "GPTNeoXForCausalLM", Define: gptneox,
	Fields: slices.Concat(shapeFields(widthByHeads), []Field{layerEps("layer_norm_eps", 1e-5), {Read: rotaryPart}, tied(false), activation("gelu"),
		{GGUF: "use_parallel_residual", HF: "use_parallel_residual", Flag: func(c *Config) *bool { return &c.Parallel }, Unsaid: true},
		{HF: "attention_bias", Only: true}}),
	Given:  func(c *Config) { c.Biases = Biases{QKV: true, Output: true, FFN: true} },
	Joined: []string{"attn_qkv"},
	Tensors: lo.Assign(cut("attn_qkv", Stored{Names: []string{"gpt_neox.layers.#.attention.query_key_value.weight"}, Order: headByHead}),
		map[string]Stored{
			"token_embd.weight":        as("gpt_neox.embed_in.weight"),
			"output_norm.weight":       as("gpt_neox.final_layer_norm.weight"),
			"output.weight":            as("embed_out.weight"),
			"blk.#.attn_norm.weight":   as("gpt_neox.layers.#.input_layernorm.weight"),
			"blk.#.attn_output.weight": as("gpt_neox.layers.#.attention.dense.weight"),
			"blk.#.ffn_norm.weight":    as("gpt_neox.layers.#.post_attention_layernorm.weight"),
			"blk.#.ffn_up.weight":      as("gpt_neox.layers.#.mlp.dense_h_to_4h.weight"),
			"blk.#.ffn_down.weight":    as("gpt_neox.layers.#.mlp.dense_4h_to_h.weight"),
		}),
	Ignorable: []string{"gpt_neox.layers.*.attention.bias", "gpt_neox.layers.*.attention.masked_bias"},
}

// headByHead is where folders have row i of Q, K and V, one after the other: those of the
// first head, of the second, and so on.
func headByHead(c *Config, i int) int {
	all := c.Heads * c.Head
	which, head, at := i/all, i%all/c.Head, i%c.Head
	return (3*head+which)*c.Head + at
}

// rotaryPart reads RoPE as these folders call it.
func rotaryPart(d description, c *Config) {
	d.rope(c)
	if d.form() == Folder {
		c.Rope.Theta = d.number("rotary_emb_base", 10000)
		c.Rope.Rotated = int(d.number("rotary_pct", 0.25) * float64(c.Head))
	}
}

// gptneox is, with n = LayerNorm(x) and biases in all products,
//
//	x += Wo · attention(rope(Wq·n), rope(Wk·n), Wv·n)
//	x += Wdown · gelu(Wup·n)
//
// where the second half of Parallel models sees the x of the first.
func gptneox(b *ir.Builder, c *Config) {
	decode(b, c, layerNorm, func(l *layer, x *ir.Value) *ir.Value {
		after := b.Add(x, attention(l, l.norm("attn_norm", x), asItIs))
		if !c.Parallel {
			x = after
		}
		return b.Add(after, ungated(l, l.norm("ffn_norm", x), ir.GELU))
	})
}
