package families

import (
	"slices"
	"strings"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/models"
	"github.com/smelt-ml/smelt/models/gguf"
)

// nemotronHFamily is Nemotron-H, Nemotron Nano 2: each layer is Mamba-2, attention that does not rotate
// heads, or a feed-forward network.
var nemotronHFamily = models.Family{
	Title: "Nemotron-H, Nemotron Nano 2",
	Name:  "nemotron_h", HF: "NemotronHForCausalLM", Define: nemotronH,
	Variant: func(d models.Description) string {
		return lo.Ternary(d.Has("num_experts_per_tok"), "nemotron_h_moe", "")
	},
	Fields: slices.Concat(nemotronFields, []models.Field{{HF: "intermediate_size", Size: func(c *models.Config) *int { return &c.FFN }}, models.NoExperts}),
	Given:  func(c *models.Config) { c.Rope = models.Rope{} },
	Layer:  nemotronLayer,
	Check:  checkNemotron,
	Tensors: lo.Assign(nemotronTensors, map[string]models.Stored{
		"blk.#.ffn_up.weight":   models.As("backbone.layers.#.mixer.up_proj.weight"),
		"blk.#.ffn_down.weight": models.As("backbone.layers.#.mixer.down_proj.weight"),
	}),
	Shapes: []models.Shape{
		{Parameters: 8_888_227_328, Config: models.Config{Name: "nemotron-nano-9b-v2", Layers: 56, Width: 4480, Heads: 40, KVHeads: 8, Head: 128, FFN: 15680, Vocab: 131072, Context: 131072, Eps: 1e-5,
			Taps: 4, Mamba: models.Mamba{Heads: 128, Head: 80, Groups: 8, States: 128},
			Recurrent: layersOf(nano9b, 'M'), Networks: layersOf(nano9b, '-')}},
	},
}

const (
	nano9b  = "M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-"
	nano30b = "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME"
)

// layersOf returns which layers are of a kind, by a pattern with a letter for each.
func layersOf(pattern string, kind rune) []bool {
	return lo.Map([]rune(pattern), func(is rune, _ int) bool { return is == kind })
}

// nemotronFields are the fields of models of dense networks and of experts.
var nemotronFields = slices.Concat(models.Without(models.ByWidth, keyKVHeads, keyFFN), []models.Field{
	{HF: "num_key_value_heads", Size: func(c *models.Config) *int { return &c.KVHeads }},
	{Read: nemotronKinds, Write: lfm2HeadCounts},
	{Write: func(c *models.Config) (string, gguf.Value, bool) {
		return keyFFN, gguf.Int32Array(lo.Times(c.Layers, func(i int) int32 { return int32(lo.Ternary(c.Networks[i], c.FFN, 0)) })), true
	}},
	{GGUF: "attention.layer_norm_epsilon", Number: func(c *models.Config) *float64 { return &c.Eps }}, // all files have both, but for the oldest
	{GGUF: "attention.layer_norm_rms_epsilon", HF: "layer_norm_epsilon", Number: func(c *models.Config) *float64 { return &c.Eps }, Absent: models.InFolders(1e-5), Optional: true},
	models.Tied(false), models.NoWindow, {HF: "mlp_hidden_act", Only: "relu2"}, {HF: "mamba_hidden_act", Only: "silu"},
	{HF: "attention_bias", Only: false}, {HF: "mlp_bias", Only: false}, {HF: "use_bias", Only: false}, {HF: "mamba_proj_bias", Only: false},
}, mambaFields(map[string]string{"heads": "mamba_num_heads", "head": "mamba_head_dim", "groups": "n_groups", "states": "ssm_state_size", "taps": "conv_kernel", "bias": "use_conv_bias"}))

// nemotronKinds reads what each layer is: from a pattern, or by its heads and the width of its network.
func nemotronKinds(d models.Description, c *models.Config) {
	const key = "hybrid_override_pattern"
	switch {
	case d.Format() == models.GGUF:
		widths, still := d.Sizes(keyFFN), headless(d, c)
		c.FFN = lo.Max(widths)
		if len(widths) != len(still) {
			d.Fail(models.ConfigError("%s has %d layers, %s %d", d.FullName(keyFFN), len(widths), d.FullName(keyKVHeads), len(still)))
			return
		}
		for i, n := range widths {
			c.Networks, c.Recurrent = append(c.Networks, n > 0), append(c.Recurrent, n == 0 && still[i])
			if n != 0 && n != c.FFN {
				d.Fail(models.ConfigError("%s has %d and %d, want one width", d.FullName(keyFFN), n, c.FFN))
			}
		}
	case d.Has(key):
		pattern := d.Text(key)
		if rest := strings.Trim(pattern, "M*-E"); rest != "" {
			d.Fail(models.ConfigError("%s has the layer %.1s", key, rest))
		}
		network := lo.Ternary(d.Has("num_experts_per_tok"), 'E', '-')
		c.Recurrent, c.Networks = layersOf(pattern, 'M'), layersOf(pattern, network)
		if n := strings.Count(pattern, string('E'+'-'-network)); n > 0 {
			d.Fail(models.ConfigError("%s has networks and experts", key))
		}
	default:
		for _, kind := range d.Texts("layers_block_type") {
			if !slices.Contains([]string{"mamba", "linear_attention", "attention", "full_attention", "mlp", "moe"}, kind) {
				d.Fail(models.ConfigError("a layer is of type %q", kind))
			}
			c.Recurrent, c.Networks = append(c.Recurrent, kind == "mamba" || kind == "linear_attention"), append(c.Networks, kind == "mlp" || kind == "moe")
		}
	}
}

func checkNemotron(c *models.Config) error {
	if len(c.Networks) != c.Layers || len(c.Recurrent) != c.Layers {
		return models.ConfigError("it is not said which of %d layers are what", c.Layers)
	}
	return checkMamba(c)
}

func nemotronLayer(c *models.Config, i int, l *models.Layer) {
	l.Rope, l.Recurrent, l.Kind = nil, c.Recurs(i), models.MixerAlone
	if c.Networks != nil && c.Networks[i] {
		l.Kind = models.NetworkAlone
	}
}

// nemotronTensors are those of both.
var nemotronTensors = lo.Assign(mambaTensors("backbone.layers.#.mixer."), map[string]models.Stored{
	"token_embd.weight":        models.As("backbone.embeddings.weight"),
	"output_norm.weight":       models.As("backbone.norm_f.weight"),
	"output.weight":            models.As("lm_head.weight"),
	"blk.#.attn_norm.weight":   models.As("backbone.layers.#.norm.weight"),
	"blk.#.attn_q.weight":      models.As("backbone.layers.#.mixer.q_proj.weight"),
	"blk.#.attn_k.weight":      models.As("backbone.layers.#.mixer.k_proj.weight"),
	"blk.#.attn_v.weight":      models.As("backbone.layers.#.mixer.v_proj.weight"),
	"blk.#.attn_output.weight": models.As("backbone.layers.#.mixer.o_proj.weight"),
})

// nemotronHMoEFamily is Nemotron 3: Nemotron-H with mixtures in place of networks, whose experts may
// read a projection of the stream.
var nemotronHMoEFamily = models.Family{
	Title: "Nemotron 3",
	Name:  "nemotron_h_moe", HF: nemotronHFamily.HF, Define: nemotronH,
	Fields: slices.Concat(nemotronFields, models.ExpertFields("n_routed_experts", "moe_intermediate_size", models.PartOfFFN), []models.Field{
		{Read: func(_ models.Description, c *models.Config) { c.FFN = c.Experts.FFN }},
		{GGUF: keySharedLength, HF: "moe_shared_expert_intermediate_size", Size: func(c *models.Config) *int { return &c.Experts.Shared }},
		{GGUF: "moe_latent_size", HF: "moe_latent_size", Size: func(c *models.Config) *int { return &c.Experts.Latent }, Optional: true}}),
	Router: models.RouterKeys{Router: models.Router{Score: ir.SigmoidScore, Biased: true}, HFNormalises: true, Keyed: true,
		HFNormalised: "norm_topk_prob", HFScale: "routed_scaling_factor", HFGroups: "n_group", HFUsedGroups: "topk_group"},
	Given: nemotronHFamily.Given,
	Layer: nemotronLayer,
	Check: checkNemotron,
	Tensors: lo.Assign(nemotronTensors, map[string]models.Stored{
		"blk.#.ffn_gate_inp.weight":    models.As("backbone.layers.#.mixer.gate.weight"),
		"blk.#.exp_probs_b.bias":       models.As("backbone.layers.#.mixer.gate.e_score_correction_bias"),
		"blk.#.ffn_up_exps.weight":     {Names: []string{"backbone.layers.#.mixer.experts.%.up_proj.weight"}},
		"blk.#.ffn_down_exps.weight":   {Names: []string{"backbone.layers.#.mixer.experts.%.down_proj.weight"}},
		"blk.#.ffn_up_shexp.weight":    models.As("backbone.layers.#.mixer.shared_experts.up_proj.weight"),
		"blk.#.ffn_down_shexp.weight":  models.As("backbone.layers.#.mixer.shared_experts.down_proj.weight"),
		"blk.#.ffn_latent_down.weight": models.As("backbone.layers.#.mixer.fc1_latent_proj.weight"),
		"blk.#.ffn_latent_up.weight":   models.As("backbone.layers.#.mixer.fc2_latent_proj.weight"),
	}),
	Ignorable: []string{"mtp.*"},
	Shapes: []models.Shape{
		{Parameters: 31_577_940_288, Config: models.Config{Name: "nemotron3-nano-30b-a3b", Layers: 52, Width: 2688, Heads: 32, KVHeads: 2, Head: 128, FFN: 1856, Vocab: 131072, Context: 262144, Eps: 1e-5,
			Taps: 4, Mamba: models.Mamba{Heads: 64, Head: 64, Groups: 8, States: 128},
			Recurrent: layersOf(nano30b, 'M'), Networks: layersOf(nano30b, 'E'),
			Experts: models.Experts{Count: 128, Chosen: 6, FFN: 1856, Shared: 3712, Router: models.Router{Score: ir.SigmoidScore, Normalised: true, Biased: true, Scale: 2.5}}}},
	},
}

// nemotronH adds one term to the residual stream x in each layer, with n = RMSNorm(x), one of
//
//	x += Mamba-2(n)
//	x += Wo · attention(Wq·n, Wk·n, Wv·n)
//	x += Wdown · max(Wup·n, 0)²
//	x += Wu · Σ wᵢ · Wdownᵢ · max(Wupᵢ·Wl·n, 0)² + Wdown · max(Wup·n, 0)²
//
// where w = the sigmoids of R·n of the experts with the largest sigmoids plus bias, over their sum. Some
// models have no Wl and Wu.
func nemotronH(b *ir.Builder, c *models.Config) {
	models.Decode(b, c, models.RMSNorm, func(l *models.LayerBuilder, x *ir.Value) *ir.Value {
		n := l.Norm("attn_norm", x)
		switch {
		case l.Recurrent:
			return b.Add(x, stateSpace(l, n, c.Eps, true))
		case l.Kind != models.NetworkAlone:
			return b.Add(x, models.Attention(l, n, models.AsIs))
		case c.Experts.Count == 0:
			return b.Add(x, models.Ungated(l, n, ir.ReLU2))
		}
		if latent := c.Experts.Latent; latent > 0 {
			mixed := models.UngatedMixture(l, n, l.Linear("ffn_latent_down", n, latent, false), ir.ReLU2)
			x = b.Add(x, l.Linear("ffn_latent_up", mixed, c.Width, false))
		} else {
			x = b.Add(x, models.UngatedMixture(l, n, n, ir.ReLU2))
		}
		return b.Add(x, models.UngatedBy(l, "_shexp", n, c.Experts.Shared, ir.ReLU2))
	})
}
