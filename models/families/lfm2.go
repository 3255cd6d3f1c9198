package families

import (
	"slices"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/models"
	"github.com/smelt-ml/smelt/models/gguf"
)

// lfm2Family is Liquid AI's LFM2, in which most layers mix tokens by a gated short convolution, and
// the others by attention.
var lfm2Family = models.Family{
	Title: "LFM2 (dense)",
	Name:  "lfm2", HF: "Lfm2ForCausalLM", Alias: []string{"LFM2ForCausalLM"}, Define: lfm2,
	Fields: lfm2Fields(models.Field{GGUF: "feed_forward_length", Size: func(c *models.Config) *int { return &c.FFN }}, models.Field{Read: lfm2Width}, models.NoExperts, models.Window),
	Layer: func(c *models.Config, i int, l *models.Layer) {
		if l.Recurrent = c.Recurs(i); !l.Recurrent {
			l.Window = c.Window
		}
	},
	Tensors: models.DecoderTensors(map[string]models.Stored{
		"token_embd_norm.weight":          models.As("model.embedding_norm.weight"),
		"blk.#.attn_norm.weight":          models.As("model.layers.#.operator_norm.weight"),
		"blk.#.attn_output.weight":        models.As("model.layers.#.self_attn.out_proj.weight"),
		"blk.#.attn_q_norm.weight":        models.As("model.layers.#.self_attn.q_layernorm.weight"),
		"blk.#.attn_k_norm.weight":        models.As("model.layers.#.self_attn.k_layernorm.weight"),
		"blk.#.shortconv.conv.weight":     {Names: []string{"model.layers.#.conv.conv.weight"}, Depthwise: true},
		"blk.#.shortconv.in_proj.weight":  models.As("model.layers.#.conv.in_proj.weight"),
		"blk.#.shortconv.out_proj.weight": models.As("model.layers.#.conv.out_proj.weight"),
		"blk.#.ffn_norm.weight":           models.As("model.layers.#.ffn_norm.weight"),
		"blk.#.ffn_gate.weight":           models.As("model.layers.#.feed_forward.w1.weight"),
		"blk.#.ffn_up.weight":             models.As("model.layers.#.feed_forward.w3.weight"),
		"blk.#.ffn_down.weight":           models.As("model.layers.#.feed_forward.w2.weight"),
	}, "output_norm.weight"),
	Shapes: []models.Shape{
		{Parameters: 1_170_340_608, Config: models.Config{Name: "lfm2-1.2b", Layers: 16, Width: 2048, Heads: 32, KVHeads: 8, Head: 64, FFN: 8192, Vocab: 65536, Context: 128000, Eps: 1e-5,
			Rope: models.Rope{Theta: 1e6}, Tied: true, Taps: 3, Recurrent: allBut(16, 2, 5, 8, 10, 12, 14)}},
	},
}

// lfm2Fields returns the fields that dense models and mixtures share, and more.
func lfm2Fields(more ...models.Field) []models.Field {
	return slices.Concat(models.Without(models.ByWidth, "feed_forward_length", "attention.head_count_kv"), []models.Field{
		{HF: "num_key_value_heads", Size: func(c *models.Config) *int { return &c.KVHeads }},
		{Read: lfm2Layers, Write: lfm2HeadCounts},
		{GGUF: "shortconv.l_cache", HF: "conv_L_cache", Size: func(c *models.Config) *int { return &c.Taps }, Absent: models.InFolders(3)},
		{GGUF: "attention.layer_norm_rms_epsilon", HF: "norm_eps", Number: func(c *models.Config) *float64 { return &c.Eps }, Absent: models.InFolders(1e-5)},
		{HF: "conv_bias", Only: false}, models.WholeRope, {Read: lfm2Tied}}, more)
}

// lfm2 adds two terms to the residual stream x in each layer; the first is one of two:
//
//	x += Wout · (c ∘ conv(b ∘ u))                                   b, c, u = Win·n
//	x += Wo · attention(rope(norm(Wq·n)), rope(norm(Wk·n)), Wv·n)   n = RMSNorm(x)
//	x += Wdown · (silu(Wgate·n) ∘ Wup·n)                            n = RMSNorm(x)
//
// conv is a causal depthwise convolution.
func lfm2(b *ir.Builder, c *models.Config) {
	models.Decode(b, c, lfm2Norm, func(l *models.LayerBuilder, x *ir.Value) *ir.Value {
		n := l.Norm("attn_norm", x)
		if l.Recurrent {
			x = b.Add(x, gatedConv(l, n))
		} else {
			x = b.Add(x, models.Attention(l, n, l.NormHeads))
		}
		return models.AddFeedForward(l, x, l.Norm("ffn_norm", x), ir.SiLU)
	})
}

// gatedConv returns Wout · (c ∘ conv(b ∘ u)) of the normalised stream n, [T, Width].
func gatedConv(l *models.LayerBuilder, n *ir.Value) *ir.Value {
	b, width := l.Builder, l.Config.Width
	all := l.Linear("shortconv.in_proj", n, 3*width, false)
	part := func(i int) *ir.Value { return b.Slice(all, i*width, (i+1)*width) }
	before, after, u := part(0), part(1), part(2)
	w := b.Weight(l.Name("shortconv.conv.weight"), width, l.Config.Taps)
	mixed := b.ShortConv(b.Mul(before, u), w, b.State("conv", l.Config.Taps-1, width))
	return l.Linear("shortconv.out_proj", b.Mul(after, mixed), width, false)
}

// lfm2Norm names the last norm as GGUF files do, token_embd_norm.
func lfm2Norm(b *ir.Builder, name string, x *ir.Value, eps float64) *ir.Value {
	if name == "output_norm" {
		name = "token_embd_norm"
	}
	return models.RMSNorm(b, name, x, eps)
}

// lfm2Layers reads which layers have no attention; in GGUF files they have no KV heads.
func lfm2Layers(d models.Description, c *models.Config) {
	if d.Format() == models.Folder {
		c.Recurrent = models.RecurrentKinds(d, c, "conv")
		return
	}
	c.Recurrent = headless(d, c)
}

func lfm2HeadCounts(c *models.Config) (string, gguf.Value, bool) {
	return keyKVHeads, headsByLayer(c, c.KVHeads), true
}

// lfm2Width computes the feed-forward width from a folder's: two thirds of it, times a multiplier,
// rounded up to a multiple of block_multiple_of.
func lfm2Width(d models.Description, c *models.Config) {
	if d.Format() != models.Folder {
		return
	}
	key := lo.Ternary(d.Has("block_ff_dim"), "block_ff_dim", "intermediate_size")
	c.FFN = d.Size(key, 12288)
	if d.Has("block_auto_adjust_ff_dim") && !d.Flag("block_auto_adjust_ff_dim") {
		return
	}
	multiple := d.Size("block_multiple_of", 256)
	c.FFN = int(d.Number("block_ffn_dim_multiplier", 1) * float64(2*c.FFN/3))
	if multiple > 0 && c.FFN >= 0 {
		c.FFN = (c.FFN + multiple - 1) / multiple * multiple
	}
}

// lfm2Tied reads either of two names; the default is true.
func lfm2Tied(d models.Description, c *models.Config) {
	if d.Format() != models.Folder {
		return
	}
	c.Tied = true
	for _, key := range []string{"tie_embedding", "tie_word_embeddings"} {
		if d.Has(key) {
			c.Tied = d.Flag(key)
		}
	}
}

// allBut returns true for each layer but some.
func allBut(layers int, some ...int) []bool {
	return lo.Times(layers, func(i int) bool { return !slices.Contains(some, i) })
}
