package families

import (
	"cmp"
	"math"
	"slices"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/sym"
	"github.com/smelt-ml/smelt/models"
)

// gemma4Family is Gemma 4: layers with a sliding window have heads, KV heads and a RoPE of their own; the
// last layers of some models read the keys and values of earlier ones. Small models add an embedding of
// each token to each layer; one has a mixture beside the dense network.
var gemma4Family = models.Family{
	Title: "Gemma 4 (text)",
	Name:  "gemma4", HF: "Gemma4ForCausalLM", Alias: []string{"Gemma4ForConditionalGeneration", "Gemma4UnifiedForConditionalGeneration"}, Define: gemma4,
	Fields: slices.Concat(models.Without(models.ShapeFields(nil), keyFFN, keyKVHeads, "attention.key_length", "attention.value_length"), []models.Field{
		models.RMSEps, models.Tied(true), {HF: "hidden_activation", Only: "gelu_pytorch_tanh"}, {HF: "attention_bias", Only: false}, models.LogitCap,
		{GGUF: "attention.sliding_window", HF: "sliding_window", Size: func(c *models.Config) *int { return &c.Window }},
		{Read: listedWindows}, models.Windowed(6),
		{GGUF: "attention.shared_kv_layers", HF: "num_kv_shared_layers", Size: func(c *models.Config) *int { return &c.Sharing }, Optional: true},
		{GGUF: "embedding_length_per_layer_input", HF: "hidden_size_per_layer_input", Size: func(c *models.Config) *int { return &c.PerLayer }, Optional: true,
			Absent: func(*models.Config, models.Format) float64 { return 0 }}, // which llama.cpp wants to be said
		{HF: "vocab_size_per_layer_input", Repeats: func(c *models.Config) int { return c.Vocab }},
		{GGUF: "attention.key_length", HF: "global_head_dim", Size: func(c *models.Config) *int { return &c.Head }},
		{GGUF: "attention.value_length", Repeats: func(c *models.Config) int { return c.Head }},
		{GGUF: "attention.key_length_swa", HF: "head_dim", Size: func(c *models.Config) *int { return &c.WindowHead }},
		{GGUF: "attention.value_length_swa", Repeats: func(c *models.Config) int { return c.WindowHead }},
		byLayer(keyKVHeads, gemma4KVHeads, func(c *models.Config) (*int, *[]int) { return &c.KVHeads, &c.KVCounts }),
		byLayer(keyFFN, gemma4FFN, func(c *models.Config) (*int, *[]int) { return &c.FFN, &c.FFNs }),
		windowTheta,
		{GGUF: models.KeyWindowRotated, Size: func(c *models.Config) *int { return &c.WindowRope.Rotated }, Optional: true},
		{Read: gemma4Rope}, {Read: gemma4Values}, {Read: gemma4Bidirectional},
		{GGUF: "expert_count", HF: "num_experts", Size: func(c *models.Config) *int { return &c.Experts.Count }, Optional: true},
		{GGUF: "expert_used_count", HF: "top_k_experts", Size: func(c *models.Config) *int { return &c.Experts.Chosen }, Optional: true},
		{GGUF: "expert_feed_forward_length", HF: "moe_intermediate_size", Size: func(c *models.Config) *int { return &c.Experts.FFN }, Optional: true},
		{Read: gemma4Experts}}),
	Router: models.RouterKeys{Router: models.Router{Score: ir.SoftmaxScore, Normalised: true}},
	Given: func(c *models.Config) {
		c.EmbeddingScale, c.AttentionScale = math.Sqrt(float64(c.Width)), 1
		c.KVHeads, c.FFN = max(c.KVHeads, lo.Max(c.KVCounts)), max(c.FFN, lo.Max(c.FFNs))
		c.WindowHead = cmp.Or(c.WindowHead, c.Head)
		c.WindowRope = models.Rope{Theta: cmp.Or(c.WindowRope.Theta, 10000), Rotated: cmp.Or(c.WindowRope.Rotated, c.WindowHead)}
		c.Rope.Turned = cmp.Or(c.Rope.Turned, max(1, c.Rope.Rotated/8)) // GGUF files have factors only
	},
	Layer:    gemma4Layer,
	Check:    gemma4Check,
	Prefixes: qwen3vlFamily.Prefixes,
	Tensors: models.DecoderTensors(map[string]models.Stored{
		"blk.#.attn_q_norm.weight":         models.As("model.layers.#.self_attn.q_norm.weight"),
		"blk.#.attn_k_norm.weight":         models.As("model.layers.#.self_attn.k_norm.weight"),
		"blk.#.post_attention_norm.weight": models.As("model.layers.#.post_attention_layernorm.weight"),
		"blk.#.ffn_norm.weight":            models.As("model.layers.#.pre_feedforward_layernorm.weight"),
		"blk.#.post_ffw_norm.weight":       models.As("model.layers.#.post_feedforward_layernorm.weight"),
		"blk.#.layer_output_scale.weight":  models.As("model.layers.#.layer_scalar"),

		"per_layer_token_embd.weight": models.As("model.embed_tokens_per_layer.weight"),
		"per_layer_model_proj.weight": models.As("model.per_layer_model_projection.weight"),
		"per_layer_proj_norm.weight":  models.As("model.per_layer_projection_norm.weight"),
		"blk.#.inp_gate.weight":       models.As("model.layers.#.per_layer_input_gate.weight"),
		"blk.#.proj.weight":           models.As("model.layers.#.per_layer_projection.weight"),
		"blk.#.post_norm.weight":      models.As("model.layers.#.post_per_layer_input_norm.weight"),

		"blk.#.pre_ffw_norm_2.weight":  models.As("model.layers.#.pre_feedforward_layernorm_2.weight"),
		"blk.#.post_ffw_norm_1.weight": models.As("model.layers.#.post_feedforward_layernorm_1.weight"),
		"blk.#.post_ffw_norm_2.weight": models.As("model.layers.#.post_feedforward_layernorm_2.weight"),
		"blk.#.ffn_gate_inp.weight":    models.As("model.layers.#.router.proj.weight"),
		"blk.#.ffn_gate_inp.scale":     models.As("model.layers.#.router.scale"),
		"blk.#.ffn_gate_exps.weight":   models.As("model.layers.#.experts.gate_proj.weight"),
		"blk.#.ffn_up_exps.weight":     models.As("model.layers.#.experts.up_proj.weight"),
		"blk.#.ffn_down_exps.weight":   models.As("model.layers.#.experts.down_proj"),
		"blk.#.ffn_down_exps.scale":    models.As("model.layers.#.router.per_expert_scale"),
	}),
	Stacks: []models.Stack{{Name: "experts.gate_up_proj", RowMajor: true, Roles: []string{"experts.gate_proj", "experts.up_proj"}}},
	Shapes: []models.Shape{
		{Parameters: 30_697_345_340, Config: gemma4Shape("gemma4-31b", 60, 5376, 32, 16, 4, 21504, models.Config{})},
		{Parameters: 25_233_141_790, Config: gemma4Shape("gemma4-26b-a4b", 30, 2816, 16, 8, 2, 2112, models.Config{Experts: models.Experts{Count: 128, Chosen: 8, FFN: 704}})},
		{Parameters: 7_463_013_418, Config: gemma4Shape("gemma4-e4b", 42, 2560, 8, 2, 2, 10240, models.Config{Sharing: 18, PerLayer: 256})},
		{Parameters: 4_628_569_379, Config: gemma4Shape("gemma4-e2b", 35, 1536, 8, 1, 1, 6144, models.Config{Sharing: 20, PerLayer: 256, Windowed: models.AllButEvery(5, 35),
			FFNs: lo.Times(35, func(i int) int { return lo.Ternary(i < 15, 6144, 2*6144) })})},
	},
	Ignorable: []string{"model.vision_tower.*", "model.audio_tower.*", "model.embed_vision.*", "model.embed_audio.*"},
}

// gemma4Shape completes the shape of a model. Every sixth layer has no sliding window, and KV heads of its
// own number; those of models with embeddings for each layer have values and a shorter window.
func gemma4Shape(name string, layers, width, heads, kvHeads, whole, ffn int, c models.Config) models.Config {
	c.Name, c.Layers, c.Width, c.Heads, c.KVHeads, c.FFN = name, layers, width, heads, kvHeads, ffn
	c.Vocab, c.Context, c.Eps, c.Tied, c.LogitCap = 262144, 262144, 1e-6, true, 30
	c.Head, c.WindowHead, c.Window, c.KeyIsValue = 512, 256, 1024, c.PerLayer == 0
	if c.PerLayer > 0 {
		c.Context, c.Window = 131072, 512
	}
	if c.Windowed == nil {
		c.Windowed = models.AllButEvery(6, layers)
	}
	c.Rope, c.WindowRope = models.Rope{Theta: 1e6}, models.Rope{Theta: 1e4}
	if whole != kvHeads {
		c.KVCounts = lo.Map(c.Windowed, func(window bool, _ int) int { return lo.Ternary(window, kvHeads, whole) })
	}
	return c
}

const (
	keyFFN     = "feed_forward_length"
	keyKVHeads = "attention.head_count_kv"
)

// listedWindows refuses files that do not say which layers have a sliding window.
func listedWindows(d models.Description, _ *models.Config) {
	key := lo.Ternary(d.Format() == models.GGUF, "attention.sliding_window_pattern", "layer_types")
	if !d.Has(key) {
		d.Fail(models.ConfigError("%s is missing", d.FullName(key)))
	}
}

// gemma4KVHeads returns the KV heads of each layer of a folder, of which layers without a window may have
// a number of their own.
func gemma4KVHeads(d models.Description, c *models.Config) []int {
	window := d.Size("num_key_value_heads", 0)
	whole := d.Size("num_global_key_value_heads", window)
	return lo.Map(c.Windowed, func(is bool, _ int) int { return lo.Ternary(is, window, whole) })
}

// gemma4FFN returns the feed-forward widths of a folder, which layers that read others' keys and values
// may double.
func gemma4FFN(d models.Description, c *models.Config) []int {
	ffn, wide := d.Size("intermediate_size", 0), d.Has("use_double_wide_mlp") && d.Flag("use_double_wide_mlp")
	return lo.Times(min(c.Layers, models.MaxLayers), func(i int) int { return lo.Ternary(wide && i >= c.Layers-c.Sharing, 2*ffn, ffn) })
}

// gemma4Rope reads RoPE. That of layers without a sliding window rotates a part of the pairs; GGUF files
// have it as factors.
func gemma4Rope(d models.Description, c *models.Config) {
	if d.Format() == models.GGUF {
		d.ReadRope(c)
		if _, ok := d.Rows(models.RopeFreqs); !ok {
			d.Fail(models.ConfigError("the tensor %s is missing", models.RopeFreqs))
		}
		return
	}
	d.ReadRopeOf("full_attention", c, &c.Rope)
	if c.Rope.Turned == 0 {
		d.Fail(models.ConfigError("RoPE of layers without a sliding window is not proportional"))
	}
	window, r := *c, models.Rope{}
	window.Head = c.WindowHead
	d.ReadRopeOf("sliding_attention", &window, &r)
	if c.WindowRope = (models.Rope{Theta: r.Theta, Rotated: r.Rotated}); *c.WindowRope.Unscaled(r.Theta) != r {
		d.Fail(models.ConfigError("RoPE of layers with a sliding window is scaled"))
	}
}

// gemma4Values reads whether layers without a sliding window have no values of their own.
func gemma4Values(d models.Description, c *models.Config) {
	if d.Format() == models.Folder {
		c.KeyIsValue = d.Has("attention_k_eq_v") && d.Flag("attention_k_eq_v")
		return
	}
	for i := range min(len(c.Windowed), max(c.Layers-c.Sharing, 0)) {
		if !c.Windowed[i] {
			_, has := d.Rows((&models.LayerBuilder{Index: i}).Name("attn_v.weight"))
			c.KeyIsValue = c.KeyIsValue || !has
		}
	}
}

// gemma4Bidirectional refuses folders of models in which tokens see later ones, other than those of a
// picture.
func gemma4Bidirectional(d models.Description, _ *models.Config) {
	const key = "use_bidirectional_attention"
	if is := d.Word(key); d.Format() == models.Folder && !slices.Contains([]string{"", "false", "vision"}, is) {
		d.Fail(models.ConfigError("%s is %q", key, is))
	}
}

// gemma4Experts drops a mixture that a folder describes and does not have.
func gemma4Experts(d models.Description, c *models.Config) {
	if d.Format() == models.Folder && !(d.Has("enable_moe_block") && d.Flag("enable_moe_block")) || c.Experts.Count == 0 {
		c.Experts = models.Experts{}
	}
}

// gemma4Layer describes the two kinds of layers. The last ones read the keys and values of the last layer
// of their kind before them, in the order that all models have: llama.cpp takes the layer with a window
// to be the second to last of those, and the other the last.
func gemma4Layer(c *models.Config, i int, l *models.Layer) {
	if c.KVCounts != nil {
		l.KVHeads = c.KVCounts[i]
	}
	if c.FFNs != nil {
		l.FFN = c.FFNs[i]
	}
	back := 1
	if c.SeesWindow(i) {
		l.Window, l.Head, back = c.Window, c.WindowHead, 2
		l.Rope = unscaled(c, c.WindowRope.Theta)
		l.Rope.Rotated = c.WindowRope.Rotated
	}
	if own := c.Layers - c.Sharing; i >= own {
		l.Back = i - own + back
	}
}

// gemma4Check checks that layers have an earlier one of their kind to read.
func gemma4Check(c *models.Config) error {
	own := c.Layers - c.Sharing
	switch {
	case c.PerLayer < 0 || c.PerLayer*c.Layers > models.MaxExtent:
		return models.ConfigError("embeddings of each layer have %d elements", c.PerLayer)
	case c.Sharing == 0:
		return nil
	case c.Sharing < 0 || own < 2:
		return models.ConfigError("%d layers of %d read the keys and values of earlier ones, which must be two or more", c.Sharing, c.Layers)
	case !c.SeesWindow(own-2) || c.SeesWindow(own-1):
		return models.ConfigError("layer %d has no sliding window, or layer %d has one; later layers read the keys and values of both", own-2, own-1)
	}
	return nil
}

// gemma4 computes, for the residual stream x:
//
//	x += norm(Wo · attention(rope(norm(Wq·n)), rope(norm(Wk·n)), rms(Wv·n)))   n = RMSNorm(x)
//	x += norm(Wdown · (gelu(Wgate·n) ∘ Wup·n))                                 n = RMSNorm(x)
//	x += norm(Wp · (gelu(Wi·x) ∘ e))                                           e: the token's embedding for the layer
//	x  = s · x
//
// where rms has no weights, and scores are not scaled. Some layers take Wk·n for Wv·n, and some the keys
// and values of an earlier one. In mixtures the second term is the norm of a sum:
//
//	norm(Wdown · (gelu(Wgate·n) ∘ Wup·n)) + norm(Σ wᵢ · Wdownᵢ · (gelu(Wgateᵢ·m) ∘ Wupᵢ·m))   m = RMSNorm(x)
//
// in which the router reads x/√mean(x²) · g/√Width, and multiplies the weight of each expert by a
// number. Source: Hugging Face's transformers, models/gemma4.
func gemma4(b *ir.Builder, c *models.Config) {
	var embeddings *ir.Value
	models.Decode(b, c, models.RMSNorm, func(l *models.LayerBuilder, x *ir.Value) *ir.Value {
		if c.PerLayer > 0 && l.Index == 0 {
			b.Outside(func() { embeddings = layerEmbeddings(b, c, x) })
		}
		heads := gemma4Heads(l, l.Norm("attn_norm", x))
		x = b.Add(x, l.Norm("post_attention_norm", l.Linear("attn_output", heads, c.Width, false)))
		x = b.Add(x, l.Norm("post_ffw_norm", gemma4Network(l, x)))
		if c.PerLayer > 0 {
			own := b.Slice(embeddings, l.Index*c.PerLayer, (l.Index+1)*c.PerLayer)
			gated := b.Mul(b.Activate(ir.GELUTanh, l.Linear("inp_gate", x, c.PerLayer, false)), own)
			x = b.Add(x, l.Norm("post_norm", l.Linear("proj", gated, c.Width, false)))
		}
		return b.Gain(x, b.Weight(l.Name("layer_output_scale.weight"), 1))
	})
}

// layerEmbeddings returns a token's embeddings for all layers, [T, Layers·PerLayer]: rows of a table, plus
// a normalised product of the token's embedding x, [T, Width].
func layerEmbeddings(b *ir.Builder, c *models.Config, x *ir.Value) *ir.Value {
	n := c.Layers * c.PerLayer
	product := b.Scale(b.Linear(x, b.Weight("per_layer_model_proj.weight", n, c.Width)), 1/math.Sqrt(float64(c.Width)))
	product = b.MergeHeads(models.RMSNorm(b, "per_layer_proj_norm", b.SplitHeads(product, c.Layers), c.Eps))
	rows := b.Scale(b.Embed(b.Input(sym.Tokens), b.Weight("per_layer_token_embd.weight", c.Vocab, n)), math.Sqrt(float64(c.PerLayer)))
	return b.Scale(b.Add(product, rows), math.Sqrt(0.5))
}

// gemma4Heads is the result of attention, [T, Heads·Head].
func gemma4Heads(l *models.LayerBuilder, n *ir.Value) *ir.Value {
	b := l.Builder
	project := func(role string, heads int) *ir.Value {
		return b.SplitHeads(l.Linear(role, n, heads*l.Head, false), heads)
	}
	q := project("attn_q", l.Heads)
	if l.Back > 0 {
		return models.AttendOver(l, l.Rotate(l.NormHeads("attn_q", q)), b.CacheOf(l.Index-l.Back))
	}
	k := project("attn_k", l.KVHeads)
	v := k
	if l.Window > 0 || !l.Config.KeyIsValue {
		v = project("attn_v", l.KVHeads)
	}
	q, k = l.Rotate(l.NormHeads("attn_q", q)), l.Rotate(l.NormHeads("attn_k", k))
	return models.Attend(l, q, k, b.RMSNorm(v, b.Const(slices.Repeat([]float32{1}, l.Head)), l.Config.Eps))
}

// gemma4Network is the dense network, or its sum with a mixture, before the last norm, [T, Width].
func gemma4Network(l *models.LayerBuilder, x *ir.Value) *ir.Value {
	b, c := l.Builder, l.Config
	dense := models.Gated(l, l.Norm("ffn_norm", x), ir.GELUTanh)
	if c.Experts.Count == 0 {
		return dense
	}
	logits := l.Linear("ffn_gate_inp", b.RMSNorm(x, b.Weight(l.Name("ffn_gate_inp.scale"), c.Width), c.Eps), c.Experts.Count, false)
	mixed := models.MixtureBy(l, logits, 1/math.Sqrt(float64(c.Width)), b.Weight(l.Name("ffn_down_exps.scale"), c.Experts.Count),
		l.Norm("pre_ffw_norm_2", x), ir.GELUTanh)
	return b.Add(l.Norm("post_ffw_norm_1", dense), l.Norm("post_ffw_norm_2", mixed))
}
