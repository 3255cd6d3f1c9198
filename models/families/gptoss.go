package families

import (
	"slices"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/models"
)

// gptossFamily is gpt-oss: mixtures with biases in all products, attention with sinks, and a
// sliding window in every second layer.
var gptossFamily = models.Family{
	Title: "gpt-oss",
	Name:  "gpt-oss", HF: "GptOssForCausalLM", Define: gptoss,
	Fields: slices.Concat(models.ByWidth, []models.Field{models.RMSEps, models.WholeRope, models.Tied(false), models.Activation("silu"), models.Window, models.Windowed(2), windowTheta, someWindow},
		models.ExpertFields("num_local_experts", "intermediate_size", models.WholeFFN), []models.Field{{HF: "attention_bias", Only: true}, {Read: refuseOtherLimit}}),
	Router: models.RouterKeys{Router: models.Router{Score: ir.ChosenSoftmaxScore}},
	Given:  func(c *models.Config) { c.Biases = models.Biases{QKV: true, Output: true, FFN: true} },
	Layer: func(c *models.Config, i int, l *models.Layer) {
		if l.Sinks = true; c.SeesWindow(i) {
			l.Window, l.Rope = c.Window, windowRope(c)
		}
	},
	Tensors: lo.Assign(
		models.DecoderTensors(map[string]models.Stored{
			"blk.#.attn_sinks.weight":          models.As("model.layers.#.self_attn.sinks"),
			"blk.#.post_attention_norm.weight": models.As("model.layers.#.post_attention_layernorm.weight"),
		}, append(models.DenseFFN, "blk.#.ffn_norm.weight")...),
		map[string]models.Stored{
			"blk.#.ffn_gate_inp.weight":  models.As("model.layers.#.mlp.router.weight"),
			"blk.#.ffn_gate_exps.weight": models.As("model.layers.#.mlp.experts.gate_proj.weight"),
			"blk.#.ffn_up_exps.weight":   models.As("model.layers.#.mlp.experts.up_proj.weight"),
			"blk.#.ffn_down_exps.weight": models.As("model.layers.#.mlp.experts.down_proj.weight"),
		},
	),
	Stacks: []models.Stack{
		{Name: "experts.gate_up_proj", Roles: []string{"experts.gate_proj", "experts.up_proj"}},
		{Name: "experts.down_proj", Roles: []string{"experts.down_proj"}},
	},
	Shapes: []models.Shape{
		{Parameters: 20_914_757_184, Config: models.Config{Name: "gpt-oss-20b", Layers: 24, Width: 2880, Heads: 64, KVHeads: 8, Head: 64, FFN: 2880, Vocab: 201088, Context: 131072, Eps: 1e-5,
			Rope:   models.Rope{Theta: 150000, YaRN: &models.YaRNRope{Factor: 32, FastBeta: 32, SlowBeta: 1, OldContext: 4096}},
			Window: 128, Windowed: models.AllButEvery(2, 24), Experts: models.Experts{Count: 32, Chosen: 4, FFN: 2880}}},
	},
}

// refuseOtherLimit refuses folders with another bound on the experts' gates than the kernels have.
func refuseOtherLimit(d models.Description, _ *models.Config) {
	const limit = 7 // see ir.ClampedSwiGLU
	if d.Format() != models.Folder {
		return
	}
	if have := d.Number("swiglu_limit", limit); have != limit {
		d.Fail(models.ConfigError("swiglu_limit is %g, not %d", have, limit))
	}
}

// gptoss is llama with sinks, biases, and experts with a clamped gate (OpenAI, "gpt-oss-120b &
// gpt-oss-20b Model Card", 2025):
//
//	x += Wo · attention(rope(Wq·n), rope(Wk·n), Wv·n)       n = RMSNorm(x)
//	x += Σ wᵢ · Wdownᵢ · clamped_swiglu(Wgateᵢ·n, Wupᵢ·n)   n = RMSNorm(x), w = softmax(the largest of R·n)
func gptoss(b *ir.Builder, c *models.Config) {
	models.Decode(b, c, models.RMSNorm, func(l *models.LayerBuilder, x *ir.Value) *ir.Value {
		x = b.Add(x, models.Attention(l, l.Norm("attn_norm", x), models.AsIs))
		return models.AddFeedForward(l, x, l.Norm("post_attention_norm", x), ir.ClampedSwiGLU)
	})
}
