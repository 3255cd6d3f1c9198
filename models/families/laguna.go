package families

import (
	"cmp"
	"slices"
	"strings"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/sym"
	"github.com/smelt-ml/smelt/models"
	"github.com/smelt-ml/smelt/models/gguf"
)

// lagunaFamily is Poolside's Laguna: mixtures behind dense layers, attention with a gate for each
// head or each element. In most models three layers of four have a sliding window, a RoPE of their
// own, and another number of heads.
var lagunaFamily = models.Family{
	Title: "Laguna XS, S and M",
	Name:  "laguna", HF: "LagunaForCausalLM", Define: laguna,
	Fields: slices.Concat([]models.Field{headCounts}, models.Without(models.ByWidth, keyHeads), []models.Field{models.RMSEps, models.Tied(false), models.Activation("silu"),
		models.Window, models.Windowed(-4),
		windowTheta,
		{GGUF: models.KeyWindowRotated, Size: func(c *models.Config) *int { return &c.WindowRope.Rotated }, Optional: true},
		{Read: lagunaRope}, {HF: "attention_bias", Only: false}, {HF: "moe_apply_router_weight_on_input", Only: false},
		{GGUF: keyDense, Size: func(c *models.Config) *int { return &c.Experts.Dense }, Optional: true}, noDense,
	}, models.ExpertFields("num_experts", "moe_intermediate_size", func(*models.Config) int { return 0 }), []models.Field{
		{GGUF: keySharedLength, HF: "shared_expert_intermediate_size", Size: func(c *models.Config) *int { return &c.Experts.Shared }, Optional: true},
		{Read: lagunaExperts}, {Read: lagunaGate}}),
	Router: models.RouterKeys{Router: models.Router{Score: ir.SigmoidScore, Biased: true}, HFNormalises: true, Keyed: true,
		HFNormalised: "norm_topk_prob", HFScale: "moe_routed_scaling_factor"},
	Layer: lagunaLayer,
	Tensors: lo.Assign(models.DecoderTensors(map[string]models.Stored{
		"blk.#.attn_q_norm.weight": models.As("model.layers.#.self_attn.q_norm.weight"),
		"blk.#.attn_k_norm.weight": models.As("model.layers.#.self_attn.k_norm.weight"),
		"blk.#.attn_gate.weight":   models.As("model.layers.#.self_attn.g_proj.weight"),
	}), models.ExpertTensors("mlp", "gate_proj", "up_proj", "down_proj"), lo.OmitByKeys(gatedShared, []string{"blk.#.ffn_gate_inp_shexp.weight"}), map[string]models.Stored{
		"blk.#.exp_probs_b.bias": models.As("model.layers.#.mlp.experts.e_score_correction_bias"),
	}),
	Stacks: gateUpStacks,
	Shapes: []models.Shape{
		{Parameters: 33_442_617_088, Config: models.Config{Name: "laguna-xs", Layers: 40, Width: 2048, Heads: 64, KVHeads: 8, Head: 128, FFN: 8192, Vocab: 100352, Context: 131072, Eps: 1e-6,
			Rope:   models.Rope{Theta: 5e5, Rotated: 64, YaRN: &models.YaRNRope{Factor: 32, FastBeta: 64, SlowBeta: 1, OldContext: 4096}},
			Window: 512, Windowed: models.AllButEvery(-4, 40), WindowRope: models.Rope{Theta: 1e4, Rotated: 128},
			HeadCounts: lo.Times(40, func(i int) int { return lo.Ternary(i%4 == 0, 48, 64) }),
			Experts:    models.Experts{Count: 256, Chosen: 8, FFN: 512, Shared: 512, Dense: 1, Router: models.Router{Score: ir.SigmoidScore, Normalised: true, Biased: true, Scale: 2.5}}}},
	},
}

const keyHeads = "attention.head_count"

// headCounts is the number of query heads, of all layers or of each.
var headCounts = byLayer(keyHeads, func(d models.Description, _ *models.Config) []int {
	if d.Has("num_attention_heads_per_layer") {
		return d.Sizes("num_attention_heads_per_layer")
	}
	return []int{d.Size("num_attention_heads", 0)}
}, func(c *models.Config) (*int, *[]int) { return &c.Heads, &c.HeadCounts })

// byLayer is a size of all layers or of each: the largest, and the list where they differ. folder returns
// the list from a folder.
func byLayer(key string, folder func(d models.Description, c *models.Config) []int, size func(c *models.Config) (most *int, list *[]int)) models.Field {
	return models.Field{
		Read: func(d models.Description, c *models.Config) {
			read := func(d models.Description, _ *models.Config) []int { return d.Sizes(key) }
			if d.Format() == models.Folder {
				read = folder
			}
			all := read(d, c)
			most, list := size(c)
			if *most = lo.Max(all); len(lo.Uniq(all)) > 1 {
				*list = all
			}
		},
		Write: func(c *models.Config) (string, gguf.Value, bool) {
			most, list := size(c)
			if *list == nil {
				return key, gguf.Uint32(uint32(*most)), true
			}
			return key, gguf.Uint32Array(lo.Map(*list, func(n, _ int) uint32 { return uint32(n) })), true
		},
	}
}

// lagunaRope reads RoPE; folders have one for each kind of layers. That of layers with a window is
// not scaled.
func lagunaRope(d models.Description, c *models.Config) {
	if d.Format() == models.GGUF {
		d.ReadRope(c)
		return
	}
	d.ReadRopeOf("full_attention", c, &c.Rope)
	if !lo.Contains(c.Windowed, true) {
		return
	}
	r := models.Rope{}
	d.ReadRopeOf("sliding_attention", c, &r)
	if c.WindowRope = (models.Rope{Theta: r.Theta, Rotated: r.Rotated}); *c.WindowRope.Unscaled(r.Theta) != r {
		d.Fail(models.ConfigError("RoPE of layers with a sliding window is scaled"))
	}
}

// lagunaExperts reads the width of the shared expert where GGUF files do not say it, and what
// folders say of experts.
func lagunaExperts(d models.Description, c *models.Config) {
	if d.Format() == models.GGUF {
		if c.Experts.Shared == 0 {
			c.Experts.Shared = min(max(d.Size(keySharedExperts, 1), 1), models.MaxExperts) * c.Experts.FFN
		}
		return
	}
	leadingDense(d, c)
	if limit := d.Word("moe_router_logit_softcapping"); !slices.Contains([]string{"", "0", "0.0"}, limit) {
		d.Fail(models.ConfigError("moe_router_logit_softcapping is %s, not 0", limit))
	}
}

// lagunaGate reads whether the gate has a value for each element of a head, or one for each head.
func lagunaGate(d models.Description, c *models.Config) {
	if d.Format() == models.GGUF {
		rows, ok := d.Rows("blk.0.attn_gate.weight")
		c.ElementGate = ok && rows != append(c.HeadCounts, c.Heads)[0]
		return
	}
	kinds := lo.Uniq(append(d.Texts("gating_types"), d.Word("gating")))
	kinds = lo.Uniq(lo.Map(lo.Compact(kinds), func(kind string, _ int) string { return strings.ReplaceAll(kind, "-", "_") }))
	switch {
	case slices.Equal(kinds, []string{"per_element"}):
		c.ElementGate = true
	case len(lo.Without(kinds, "true", "per_head")) > 0:
		d.Fail(models.ConfigError("gates of attention are %s", strings.Join(kinds, ", ")))
	}
}

// lagunaLayer has layers with a sliding window rotate in their own way.
func lagunaLayer(c *models.Config, i int, l *models.Layer) {
	if c.HeadCounts != nil {
		l.Heads = c.HeadCounts[i]
	}
	if c.SeesWindow(i) {
		l.Window, l.Rope = c.Window, c.Rope.Unscaled(cmp.Or(c.WindowRope.Theta, c.Rope.Theta))
		l.Rope.Rotated = cmp.Or(c.WindowRope.Rotated, c.Rope.Rotated)
	}
}

// laguna is glm4moe with norms of heads in all models, and with a gate on attention:
//
//	x += Wo · (attention(rope(norm(Wq·n)), rope(norm(Wk·n)), Wv·n) ∘ softplus(Wg·n))    n = RMSNorm(x)
//	x += Σ wᵢ · Wdownᵢ · (silu(Wgateᵢ·n) ∘ Wupᵢ·n) + Wdown · (silu(Wgate·n) ∘ Wup·n)   n = RMSNorm(x)
//
// where an element of the gate multiplies a head, or an element of one.
func laguna(b *ir.Builder, c *models.Config) {
	models.Decode(b, c, models.RMSNorm, func(l *models.LayerBuilder, x *ir.Value) *ir.Value {
		n := l.Norm("attn_norm", x)
		heads := models.AttentionHeads(l, n, l.NormHeads)
		if c.ElementGate {
			heads = b.Mul(heads, b.Activate(ir.Softplus, l.Linear("attn_gate", n, l.Heads*l.Head, false)))
		} else {
			gate := b.Activate(ir.Softplus, l.Linear("attn_gate", n, l.Heads, false))
			all, _ := ir.Var(sym.T).Times(ir.Const(l.Heads)) // heads of all tokens, each a sum of one
			heads = b.WeightedSum(b.Reshape(heads, all, ir.Const(1), ir.Const(l.Head)), b.Reshape(gate, all, ir.Const(1)))
			heads = b.Reshape(heads, ir.Var(sym.T), ir.Const(l.Heads*l.Head))
		}
		x = b.Add(x, l.Linear("attn_output", heads, c.Width, false))
		return models.AddFeedForward(l, x, l.Norm("ffn_norm", x), ir.SiLU)
	})
}
