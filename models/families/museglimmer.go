package families

import (
	"slices"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/models"
)

// museGlimmerFamily is the text model of Muse Glimmer: dense layers like Trinity's, behind a norm of
// the embeddings.
var museGlimmerFamily = models.Family{
	Title: "Muse Glimmer (text)",
	Name:  "muse-glimmer", HF: "MuseGlimmerForConditionalGeneration", Define: museGlimmer,
	Fields: slices.Concat(models.ByWidth, []models.Field{models.RMSEps, models.WholeRope, models.Tied(false), models.NoExperts,
		{HF: "hidden_activation", Only: "silu"}, {HF: "attention_bias", Only: false},
		{GGUF: "attention.sliding_window", HF: "sliding_window", Size: func(c *models.Config) *int { return &c.Window }}, models.Windowed(4),
		windowTheta, someWindow,
		{GGUF: "logit_scale", HF: "output_multiplier", Number: func(c *models.Config) *float64 { return &c.LogitScale }},
		{GGUF: models.LogitCap.GGUF, HF: models.LogitCap.HF, Number: models.LogitCap.Number, Optional: true}, {Read: museGlimmerFolder}}),
	Prefixes: qwen3vlFamily.Prefixes,
	Tensors: models.DecoderTensors(map[string]models.Stored{
		"blk.#.attn_norm.weight":           models.Gain("model.layers.#.input_layernorm.weight"),
		"blk.#.attn_q_norm.weight":         constantNorm(queryScale),
		"blk.#.attn_k_norm.weight":         constantNorm(1),
		"blk.#.attn_gate.weight":           models.As("model.layers.#.self_attn.gate_proj.weight"),
		"blk.#.post_attention_norm.weight": models.Gain("model.layers.#.post_attention_layernorm.weight"),
		"blk.#.ffn_norm.weight":            models.Gain("model.layers.#.pre_feedforward_layernorm.weight"),
		"blk.#.post_ffw_norm.weight":       models.Gain("model.layers.#.post_feedforward_layernorm.weight"),
	}),
	Ignorable: []string{"model.vision_tower.*", "model.vision_adapter.*", "model.vision_projection.*"},
	// Only layers with a window rotate, and llama.cpp scales none of them.
	Given: func(c *models.Config) { c.Rope = *unscaled(c, c.Rope.Theta) },
	Layer: func(c *models.Config, i int, l *models.Layer) {
		if l.Rope = c.Rope.Still(); c.SeesWindow(i) {
			l.Window, l.Rope = c.Window, windowRope(c)
		}
	},
	GGUFInterleaved: true,
	Shapes: []models.Shape{
		{Parameters: 27_854_794_240, Config: models.Config{Name: "muse-glimmer-30b", Layers: 52, Width: 6656, Heads: 32, KVHeads: 2, Head: 128, FFN: 19968, Vocab: 202048, Context: 131072, Eps: 1e-5,
			Rope: models.Rope{Theta: 5e5}, LogitScale: 0.19611613513818404, LogitCap: 20, Window: 2048, Windowed: models.AllButEvery(4, 52)}},
	},
}

// postNormEps is Muse Glimmer's epsilon of norms behind attention and feed-forward network, queryScale
// the factor of its normalised queries. GGUF files have it as the gain of the queries' norm.
const (
	postNormEps = 1e-8
	queryScale  = 3.87
)

// constantNorm is the gain of a norm of heads that folders do not have.
func constantNorm(gain float32) models.Stored {
	return models.Stored{Names: []string{"model.layers.#.input_layernorm.weight"}, Rows: func(c *models.Config) (first, n int) { return 0, c.Head },
		Value: func(float32) float32 { return gain }}
}

// museGlimmerFolder refuses folders of other numbers than the published model's, which its code has
// where GGUF files have none, and of layers that rotate without a window or do not with one.
func museGlimmerFolder(d models.Description, c *models.Config) {
	if d.Format() == models.GGUF {
		return
	}
	for name, want := range map[string]float64{"qk_scale_factor": queryScale, "post_norm_eps": postNormEps} {
		if is := d.Number(name, want); is != want {
			d.Fail(models.ConfigError("%s is %g, not %g", name, is, want))
		}
	}
	rotating := lo.Map(c.Windowed, func(window bool, _ int) float64 { return lo.Ternary(window, c.Rope.Theta, 0) })
	if bases := d.Numbers("layer_rope_theta"); bases != nil && !slices.Equal(bases, rotating) {
		d.Fail(models.ConfigError("layer_rope_theta is %v, where layers with a window have %g and the others 0", bases, c.Rope.Theta))
	}
	if !d.Has("layer_types") && c.Layers%4 != 0 {
		d.Fail(models.ConfigError("layer_types is missing"))
	}
}

// museGlimmer is afmoe without experts, with the embeddings divided by their root mean square.
func museGlimmer(b *ir.Builder, c *models.Config) {
	ones := slices.Repeat([]float32{1}, c.Width)
	models.Decode(b, c, models.RMSNorm, func(l *models.LayerBuilder, x *ir.Value) *ir.Value {
		if l.Index == 0 {
			x = b.RMSNorm(x, b.Const(ones), c.Eps)
		}
		after := func(role string, y *ir.Value) *ir.Value { return models.RMSNorm(b, l.Name(role), y, postNormEps) }
		x = b.Add(x, after("post_attention_norm", gatedHeads(l, l.Norm("attn_norm", x))))
		return b.Add(x, after("post_ffw_norm", models.Gated(l, l.Norm("ffn_norm", x), ir.SiLU)))
	})
}
