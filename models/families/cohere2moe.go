package families

import (
	"cmp"
	"slices"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/models"
	"github.com/smelt-ml/smelt/models/gguf"
)

// cohere2moeFamily is Cohere's mixtures: Command-R7B's layers with experts chosen by sigmoids in
// place of the feed-forward network behind the first layers, which rotate whether they have a
// sliding window or not. Some models have RMSNorm.
var cohere2moeFamily = models.Family{
	Title: "North Mini Code, Command A+",
	Name:  "cohere2moe", HF: "Cohere2MoeForCausalLM", Define: cohere2moe,
	Fields: slices.Concat(models.Without(models.ByWidth, "feed_forward_length"),
		models.ExpertFields("num_experts", "intermediate_size", func(*models.Config) int { return 0 }), []models.Field{
			{GGUF: "feed_forward_length", HF: "prefix_dense_intermediate_size", Size: func(c *models.Config) *int { return &c.FFN },
				Absent: func(c *models.Config, _ models.Format) float64 { return float64(c.Experts.FFN) }},
			eitherNorm, models.WholeRope, models.Tied(true), models.Activation("silu"),
			{GGUF: "logit_scale", HF: "logit_scale", Number: func(c *models.Config) *float64 { return &c.LogitScale }},
			{GGUF: models.Window.GGUF, HF: models.Window.HF, Size: models.Window.Size}, models.Windowed(-4),
			{HF: "shared_expert_combination_strategy", Only: "average"}, {HF: "prefix_dense_sliding_window_pattern", Only: 1},
			{GGUF: keyDense, HF: "first_k_dense_replace", Size: func(c *models.Config) *int { return &c.Experts.Dense }, Optional: true}, noDense,
			{Read: cohere2moeExperts, Write: func(c *models.Config) (string, gguf.Value, bool) {
				return keySharedExperts, gguf.Uint32(uint32(min(c.Experts.Shared, 1))), true
			}},
			{Write: func(c *models.Config) (string, gguf.Value, bool) {
				return keySharedLength, gguf.Uint32(uint32(c.Experts.Shared)), true
			}}}, models.Biased[:2]),
	Router: models.RouterKeys{Router: models.Router{Score: ir.SigmoidScore}, HFNormalises: true, Keyed: true, HFNormalised: "norm_topk_prob"},
	Layer: func(c *models.Config, i int, l *models.Layer) {
		switch {
		case c.SeesWindow(i):
			l.Window = c.Window
		case i >= c.Experts.Dense:
			l.Rope = nil
		}
	},
	Tensors: lo.OmitByKeys(lo.Assign(cohereTensors(), models.ExpertTensors("mlp", "gate_proj", "up_proj", "down_proj"), sharedTensors), []string{"blk.#.exp_probs_b.bias"}),
	Stacks:  gateUpStacks, GGUFInterleaved: true, FolderInterleaved: true,
	Shapes: []models.Shape{
		{Parameters: 30_484_303_872, Config: models.Config{Name: "north-mini-code", Layers: 49, Width: 2048, Heads: 32, KVHeads: 4, Head: 128, FFN: 3072, Vocab: 262144, Context: 500000, Eps: 1e-6, RMS: true,
			Rope: models.Rope{Theta: 5e4}, Tied: true, LogitScale: 1, Window: 4096, Windowed: models.AllButEvery(-4, 49),
			Experts: models.Experts{Count: 128, Chosen: 8, FFN: 768, Dense: 1}}},
	},
}

const keyDense = "leading_dense_block_count"

// noDense writes to GGUF files that there are no dense layers, which llama.cpp wants to be said.
var noDense = models.Field{Write: func(c *models.Config) (string, gguf.Value, bool) {
	return keyDense, gguf.Uint32(0), c.Experts.Dense == 0
}}

// keySharedLength is the width of a shared expert in GGUF files.
const keySharedLength = "expert_shared_feed_forward_length"

// eitherNorm is the epsilon of RMSNorm, or that of LayerNorm in files without it.
var eitherNorm = models.Field{
	Read: func(d models.Description, c *models.Config) {
		rms, layer := models.RMSEps, models.LayerEps("layer_norm_eps", 1e-5)
		key := map[models.Format]string{models.GGUF: rms.GGUF, models.Folder: rms.HF}[d.Format()]
		if c.RMS = d.Has(key) && d.Number(key, 0) != 0; c.RMS {
			layer = rms
		}
		layer.ReadFrom(d, c)
	},
	Write: func(c *models.Config) (string, gguf.Value, bool) {
		return lo.Ternary(c.RMS, models.RMSEps.GGUF, models.LayerEps("", 0).GGUF), gguf.Float32(float32(c.Eps)), true
	},
}

// cohere2moeExperts refuses files without a sliding window, and reads the width of the shared experts and, from folders, the score, which by
// default is the softmax over the chosen experts, and the layers without experts.
func cohere2moeExperts(d models.Description, c *models.Config) {
	e := &c.Experts
	if c.Window == 0 {
		d.Fail(models.ConfigError("%s is 0", d.FullName(models.Window.GGUF)))
	}
	if d.Format() == models.GGUF {
		if n := max(d.Size(keySharedExperts, models.Unset), 0); n > 0 {
			e.Shared = cmp.Or(max(d.Size(keySharedLength, models.Unset), 0), min(n, models.MaxExperts)*e.FFN)
		}
		return
	}
	e.Shared = min(max(d.Size("num_shared_experts", models.Unset), 0), models.MaxExperts) * e.FFN
	switch score := d.Text("expert_selection_fn"); score {
	case "sigmoid":
		e.Router.Score = ir.SigmoidScore
	case "softmax", "":
		e.Router.Score = ir.ChosenSoftmaxScore
	default:
		d.Fail(models.ConfigError("expert_selection_fn: no router scores experts by %s", score))
	}
	leadingDense(d, c)
	if !d.Has("layer_types") {
		d.Fail(models.ConfigError("layer_types is missing"))
	}
}

// leadingDense reads from a folder which layers have no experts; they must be the first ones.
func leadingDense(d models.Description, c *models.Config) {
	if kinds := d.Texts("mlp_layer_types"); kinds != nil {
		c.Experts.Dense = lo.IndexOf(append(kinds, "sparse"), "sparse")
		if lo.Contains(kinds[c.Experts.Dense:], "dense") {
			d.Fail(models.ConfigError("mlp_layer_types has dense layers behind mixtures"))
		}
	}
}

// cohere2moe is cohere with mixtures: x += m + Wo · attention(rope(Wq·n), rope(Wk·n), Wv·n) with
//
//	m = Σ wᵢ · Wdownᵢ · (silu(Wgateᵢ·n) ∘ Wupᵢ·n)
//
// where n = RMSNorm(x), or LayerNorm(x) with a gain and no bias. With a shared expert, m is the mean
// of both.
func cohere2moe(b *ir.Builder, c *models.Config) {
	halved := *c
	if c.Experts.Shared > 0 {
		halved.Experts.Router.Scale = cmp.Or(c.Experts.Router.Scale, 1) / 2
	}
	norm := lo.Ternary(c.RMS, models.RMSNorm, models.GainNorm)
	models.Decode(b, &halved, norm, func(l *models.LayerBuilder, x *ir.Value) *ir.Value {
		n := l.Norm("attn_norm", x)
		if l.Dense() {
			x = b.Add(x, models.Gated(l, n, ir.SiLU))
		} else {
			x = b.Add(x, models.Mixture(l, n, ir.SiLU))
			if c.Experts.Shared > 0 {
				x = b.Add(x, b.Scale(models.GatedBy(l, "_shexp", n, c.Experts.Shared, ir.SiLU), 0.5))
			}
		}
		return b.Add(x, models.Attention(l, n, models.AsIs))
	})
}
