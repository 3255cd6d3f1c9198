package families

import (
	"slices"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/models"
)

// gptneoxFamily is GPT-NeoX and Pythia: LayerNorm, biases, part of each head rotated. Folders store
// Q, K and V in one tensor, head by head.
var gptneoxFamily = models.Family{
	Title: "GPT-NeoX, Pythia",
	Name:  "gptneox", HF: "GPTNeoXForCausalLM", Define: gptneox,
	Fields: slices.Concat(models.ByWidth, []models.Field{models.LayerEps("layer_norm_eps", 1e-5), {Read: rotaryPart}, models.Tied(false), models.Activation("gelu"),
		{GGUF: "use_parallel_residual", HF: "use_parallel_residual", Flag: func(c *models.Config) *bool { return &c.Parallel }, Unsaid: true},
		{HF: "attention_bias", Only: true}}),
	Given:  func(c *models.Config) { c.Biases = models.Biases{QKV: true, Output: true, FFN: true} },
	Joined: []string{"attn_qkv"},
	Tensors: lo.Assign(models.Cut("attn_qkv", models.Stored{Names: []string{"gpt_neox.layers.#.attention.query_key_value.weight"}, Order: headByHead}),
		map[string]models.Stored{
			"token_embd.weight":        models.As("gpt_neox.embed_in.weight"),
			"output_norm.weight":       models.As("gpt_neox.final_layer_norm.weight"),
			"output.weight":            models.As("embed_out.weight"),
			"blk.#.attn_norm.weight":   models.As("gpt_neox.layers.#.input_layernorm.weight"),
			"blk.#.attn_output.weight": models.As("gpt_neox.layers.#.attention.dense.weight"),
			"blk.#.ffn_norm.weight":    models.As("gpt_neox.layers.#.post_attention_layernorm.weight"),
			"blk.#.ffn_up.weight":      models.As("gpt_neox.layers.#.mlp.dense_h_to_4h.weight"),
			"blk.#.ffn_down.weight":    models.As("gpt_neox.layers.#.mlp.dense_4h_to_h.weight"),
		}),
	Ignorable: []string{"gpt_neox.layers.*.attention.bias", "gpt_neox.layers.*.attention.masked_bias"},
	Shapes: []models.Shape{
		{Parameters: 162_322_944, Config: models.Config{Name: "pythia-160m", Layers: 12, Width: 768, Heads: 12, KVHeads: 12, Head: 64, FFN: 3072, Vocab: 50304, Context: 2048, Eps: 1e-5,
			Rope: models.Rope{Theta: 1e4, Rotated: 16}, Parallel: true}},
	},
}

// headByHead returns the stored row of row i of Q, K and V concatenated: folders have Q, K and V of
// the first head, then those of the second, and so on.
func headByHead(c *models.Config, i int) int {
	all := c.Heads * c.Head
	which, head, at := i/all, i%all/c.Head, i%c.Head
	return (3*head+which)*c.Head + at
}

// rotaryPart reads RoPE by the names in these folders.
func rotaryPart(d models.Description, c *models.Config) {
	d.ReadRope(c)
	if d.Format() == models.Folder {
		c.Rope.Theta = d.Number("rotary_emb_base", 10000)
		c.Rope.Rotated = int(d.Number("rotary_pct", 0.25) * float64(c.Head))
	}
}

// gptneox is, with n = LayerNorm(x) and biases in all products,
//
//	x += Wo · attention(rope(Wq·n), rope(Wk·n), Wv·n)
//	x += Wdown · gelu(Wup·n)
//
// where the feed-forward network of Parallel models reads the layer's input.
func gptneox(b *ir.Builder, c *models.Config) {
	models.Decode(b, c, models.LayerNorm, func(l *models.LayerBuilder, x *ir.Value) *ir.Value {
		after := b.Add(x, models.Attention(l, l.Norm("attn_norm", x), models.AsIs))
		if !c.Parallel {
			x = after
		}
		return b.Add(after, models.Ungated(l, l.Norm("ffn_norm", x), ir.GELU))
	})
}
