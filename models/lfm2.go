package models

import (
	"slices"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/models/gguf"
)

// lfm2Family is Liquid AI's LFM2, where most layers mix tokens by a gated convolution over the
// last few of them, and the others by attention.
var lfm2Family = Family{
	Title: "LFM2 (dense)",
	Name:  "lfm2", HF: "Lfm2ForCausalLM", Alias: []string{"LFM2ForCausalLM"}, Define: lfm2,
	Fields: slices.Concat(without(shapeFields(widthByHeads), "feed_forward_length", "attention.head_count_kv"), []Field{
		{GGUF: "feed_forward_length", Size: func(c *Config) *int { return &c.FFN }},
		{Read: lfm2Width},
		{HF: "num_key_value_heads", Size: func(c *Config) *int { return &c.KVHeads }},
		{Read: lfm2Layers, Write: lfm2HeadCounts},
		{GGUF: "shortconv.l_cache", HF: "conv_L_cache", Size: func(c *Config) *int { return &c.Taps }, Absent: inFolders(3)},
		{GGUF: "attention.layer_norm_rms_epsilon", HF: "norm_eps", Number: func(c *Config) *float64 { return &c.Eps }, Absent: inFolders(1e-5)},
		{HF: "conv_bias", Only: false}, ropes, {Read: lfm2Tied}, noWindow, noExperts}),
	Layer: func(c *Config, i int, l *Layer) { l.Recurrent = c.recurs(i) },
	Tensors: decoderTensors(map[string]Stored{
		"token_embd_norm.weight":          as("model.embedding_norm.weight"),
		"blk.#.attn_norm.weight":          as("model.layers.#.operator_norm.weight"),
		"blk.#.attn_output.weight":        as("model.layers.#.self_attn.out_proj.weight"),
		"blk.#.attn_q_norm.weight":        as("model.layers.#.self_attn.q_layernorm.weight"),
		"blk.#.attn_k_norm.weight":        as("model.layers.#.self_attn.k_layernorm.weight"),
		"blk.#.shortconv.conv.weight":     {Names: []string{"model.layers.#.conv.conv.weight"}, Depthwise: true},
		"blk.#.shortconv.in_proj.weight":  as("model.layers.#.conv.in_proj.weight"),
		"blk.#.shortconv.out_proj.weight": as("model.layers.#.conv.out_proj.weight"),
		"blk.#.ffn_norm.weight":           as("model.layers.#.ffn_norm.weight"),
		"blk.#.ffn_gate.weight":           as("model.layers.#.feed_forward.w1.weight"),
		"blk.#.ffn_up.weight":             as("model.layers.#.feed_forward.w3.weight"),
		"blk.#.ffn_down.weight":           as("model.layers.#.feed_forward.w2.weight"),
	}, "output_norm.weight"),
}

// lfm2 adds two things to the residual stream x in each layer, of which the first is one of
// two:
//
//	x += Wout · (c ∘ conv(b ∘ u))                                   b, c, u = Win·n
//	x += Wo · attention(rope(norm(Wq·n)), rope(norm(Wk·n)), Wv·n)   n = RMSNorm(x)
//	x += Wdown · (silu(Wgate·n) ∘ Wup·n)                            n = RMSNorm(x)
//
// conv being a causal convolution of each element by itself.
func lfm2(b *ir.Builder, c *Config) {
	decode(b, c, lfm2Norm, func(l *layer, x *ir.Value) *ir.Value {
		n := l.norm("attn_norm", x)
		if l.Recurrent {
			x = b.Add(x, gatedConv(l, n))
		} else {
			x = b.Add(x, attention(l, n, l.normHeads))
		}
		return b.Add(x, gated(l, l.norm("ffn_norm", x), ir.SiLU))
	})
}

// gatedConv is Wout · (c ∘ conv(b ∘ u)) of the normalised stream n, [T, Width].
func gatedConv(l *layer, n *ir.Value) *ir.Value {
	b, width := l.b, l.c.Width
	all := l.linear("shortconv.in_proj", n, 3*width, false)
	part := func(i int) *ir.Value { return b.Slice(all, i*width, (i+1)*width) }
	before, after, u := part(0), part(1), part(2)
	w := b.Weight(l.name("shortconv.conv.weight"), width, l.c.Taps)
	mixed := b.ShortConv(b.Mul(before, u), w, b.State("conv", l.c.Taps-1, width))
	return l.linear("shortconv.out_proj", b.Mul(after, mixed), width, false)
}

// lfm2Norm calls the last norm what GGUF files do, as if it followed the embedding.
func lfm2Norm(b *ir.Builder, name string, x *ir.Value, eps float64) *ir.Value {
	if name == "output_norm" {
		name = "token_embd_norm"
	}
	return rmsNorm(b, name, x, eps)
}

// lfm2Layers reads which layers have no attention: in GGUF files those without KV heads.
func lfm2Layers(d description, c *Config) {
	if d.form() == Folder {
		c.Recurrent = recurrentKinds(d, c, "conv")
		return
	}
	for _, n := range d.sizes("attention.head_count_kv") {
		c.Recurrent = append(c.Recurrent, n == 0)
		c.KVHeads = max(c.KVHeads, n)
	}
	for _, n := range d.sizes("attention.head_count_kv") {
		if n != 0 && n != c.KVHeads {
			d.fail(configError("layers have %d KV heads, and %d", n, c.KVHeads))
		}
	}
}

func lfm2HeadCounts(c *Config) (string, gguf.Value, bool) {
	counts := lo.Times(len(c.Recurrent), func(i int) int32 { return int32(lo.Ternary(c.Recurrent[i], 0, c.KVHeads)) })
	return "attention.head_count_kv", gguf.Int32Array(counts), true
}

// lfm2Width computes what a folder's width is, of which two thirds are used, in whole
// multiples of another number.
func lfm2Width(d description, c *Config) {
	if d.form() != Folder {
		return
	}
	key := lo.Ternary(d.has("block_ff_dim"), "block_ff_dim", "intermediate_size")
	c.FFN = d.size(key, 12288)
	if d.has("block_auto_adjust_ff_dim") && !d.flag("block_auto_adjust_ff_dim") {
		return
	}
	multiple := d.size("block_multiple_of", 256)
	c.FFN = int(d.number("block_ffn_dim_multiplier", 1) * float64(2*c.FFN/3))
	if multiple > 0 && c.FFN >= 0 {
		c.FFN = (c.FFN + multiple - 1) / multiple * multiple
	}
}

// lfm2Tied is said in two ways, and true where it is not.
func lfm2Tied(d description, c *Config) {
	if d.form() != Folder {
		return
	}
	c.Tied = true
	for _, key := range []string{"tie_embedding", "tie_word_embeddings"} {
		if d.has(key) {
			c.Tied = d.flag(key)
		}
	}
}
