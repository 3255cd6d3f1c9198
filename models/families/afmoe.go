package families

import (
	"cmp"
	"math"
	"slices"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/models"
)

// afmoeFamily is Arcee's Trinity: mixtures behind dense layers, attention with a gate, norms before
// and after both. Three layers of four have a sliding window, and only these rotate.
var afmoeFamily = models.Family{
	Title: "Trinity Nano, Mini and Large",
	Name:  "afmoe", HF: "AfmoeForCausalLM", Define: afmoe,
	Fields: slices.Concat(models.ByWidth, []models.Field{models.RMSEps, models.WholeRope, models.Tied(false), models.Activation("silu"), models.Window, models.Windowed(4),
		windowTheta,
		{HF: "attention_bias", Only: false}, {HF: "global_attn_every_n_layers", Only: 4}, {Read: afmoeFolder},
		{GGUF: keyDense, HF: "num_dense_layers", Size: func(c *models.Config) *int { return &c.Experts.Dense }, Optional: true},
	}, models.ExpertFields("num_experts", "moe_intermediate_size", func(*models.Config) int { return 0 }), []models.Field{sharedCountAs("num_shared_experts")}),
	Router: models.RouterKeys{Router: models.Router{Score: ir.SigmoidScore, Biased: true}, HFNormalises: true, Keyed: true,
		HFScore: "score_func", HFNormalised: "route_norm", HFScale: "route_scale", HFGroups: "n_group", HFUsedGroups: "topk_group"},
	Given: func(c *models.Config) { c.EmbeddingScale = math.Sqrt(float64(c.Width)) },
	Layer: afmoeLayer,
	Tensors: lo.Assign(models.DecoderTensors(map[string]models.Stored{
		"blk.#.attn_q_norm.weight":         models.As("model.layers.#.self_attn.q_norm.weight"),
		"blk.#.attn_k_norm.weight":         models.As("model.layers.#.self_attn.k_norm.weight"),
		"blk.#.attn_gate.weight":           models.As("model.layers.#.self_attn.gate_proj.weight"),
		"blk.#.post_attention_norm.weight": models.As("model.layers.#.post_attention_layernorm.weight"),
		"blk.#.ffn_norm.weight":            models.As("model.layers.#.pre_mlp_layernorm.weight"),
		"blk.#.post_ffw_norm.weight":       models.As("model.layers.#.post_mlp_layernorm.weight"),
	}), models.ExpertTensors("mlp", "gate_proj", "up_proj", "down_proj"), sharedTensors, map[string]models.Stored{
		"blk.#.ffn_gate_inp.weight": models.As("model.layers.#.mlp.router.gate.weight"),
		"blk.#.exp_probs_b.bias":    models.As("model.layers.#.mlp.expert_bias"),
	}),
	Shapes: []models.Shape{
		{Parameters: 6_120_003_328, Config: models.Config{Name: "trinity-nano", Layers: 56, Width: 1024, Heads: 8, KVHeads: 2, Head: 128, FFN: 3072, Vocab: 200192, Context: 131072, Eps: 1e-5,
			Rope: models.Rope{Theta: 1e4}, Window: 2048, Windowed: models.AllButEvery(4, 56),
			Experts: models.Experts{Count: 128, Chosen: 8, FFN: 256, Shared: 256, Dense: 2, Router: models.Router{Score: ir.SigmoidScore, Normalised: true, Biased: true, Scale: 2.826}}}},
	},
}

// afmoeLayer has every fourth layer not rotate, as llama.cpp does whatever the windows are.
func afmoeLayer(c *models.Config, i int, l *models.Layer) {
	if c.SeesWindow(i) {
		l.Window, l.Rope = c.Window, windowRope(c)
	}
	if (i+1)%4 == 0 {
		l.Rope = c.Rope.Still()
	}
}

// windowTheta is RoPE's base in layers with a sliding window, where GGUF files have one of its own.
var windowTheta = models.Field{GGUF: "rope.freq_base_swa", Number: func(c *models.Config) *float64 { return &c.WindowRope.Theta }, Optional: true}

// windowRope is RoPE of layers with a sliding window, of models that scale it like that of others.
func windowRope(c *models.Config) *models.Rope {
	r := c.Rope
	r.Theta = cmp.Or(c.WindowRope.Theta, r.Theta)
	return &r
}

// unscaled is RoPE of layers with a sliding window, of models that do not scale it there. As in llama.cpp
// it keeps the factor of cosine and sine that files add to a scaling's.
func unscaled(c *models.Config, theta float64) *models.Rope {
	r := c.Rope.Unscaled(theta)
	if magnitude, _ := c.Rope.InFile(); magnitude != 1 {
		r.Magnitude = magnitude
	}
	return r
}

// someWindow refuses GGUF files that say of their windows that they have no keys.
var someWindow = models.Field{Read: func(d models.Description, c *models.Config) {
	if d.Format() == models.GGUF && d.Has(models.Window.GGUF) && c.Window == 0 {
		d.Fail(models.ConfigError("%s is 0", d.FullName(models.Window.GGUF)))
	}
}}

// afmoeFolder refuses folders that GGUF files cannot hold: with other layers than every fourth
// without a window and RoPE, or without the scale of embeddings.
func afmoeFolder(d models.Description, c *models.Config) {
	switch {
	case d.Format() != models.Folder:
	case !d.Flag("mup_enabled"):
		d.Fail(models.ConfigError("mup_enabled is false, not true"))
	case !slices.Equal(c.Windowed, models.AllButEvery(4, len(c.Windowed))):
		d.Fail(models.ConfigError("layers other than every fourth lack a sliding window"))
	}
}

// afmoe is, with σ the sigmoid,
//
//	x += norm(Wo · (attention(rope(norm(Wq·n)), rope(norm(Wk·n)), Wv·n) ∘ σ(Wg·n)))         n = RMSNorm(x)
//	x += norm(Σ wᵢ · Wdownᵢ · (silu(Wgateᵢ·n) ∘ Wupᵢ·n) + Wdown · (silu(Wgate·n) ∘ Wup·n))   n = RMSNorm(x)
func afmoe(b *ir.Builder, c *models.Config) {
	models.Decode(b, c, models.RMSNorm, func(l *models.LayerBuilder, x *ir.Value) *ir.Value {
		x = b.Add(x, l.Norm("post_attention_norm", gatedHeads(l, l.Norm("attn_norm", x))))
		return b.Add(x, l.Norm("post_ffw_norm", models.FeedForward(l, l.Norm("ffn_norm", x), ir.SiLU)))
	})
}

// gatedHeads returns Wo · (attention(rope(norm(Wq·n)), rope(norm(Wk·n)), Wv·n) ∘ σ(Wg·n)), [T, Width].
func gatedHeads(l *models.LayerBuilder, n *ir.Value) *ir.Value {
	heads := models.AttentionHeads(l, n, l.NormHeads)
	gate := l.Builder.Activate(ir.Sigmoid, l.Linear("attn_gate", n, l.Heads*l.Head, false))
	return l.Linear("attn_output", l.Builder.Mul(heads, gate), l.Config.Width, false)
}
