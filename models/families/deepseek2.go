package families

import (
	"cmp"
	"math"
	"slices"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/models"
	"github.com/smelt-ml/smelt/models/gguf"
)

// deepseek2Family is the models of DeepSeek-V2 and V3's shape with multi-head latent attention: K and
// V of all heads are projected from one short vector a token, and all heads share the rotated
// elements of K.
var deepseek2Family = models.Family{
	Title: "DeepSeek-V2-Lite, V3, R1, Kimi K2, Moonlight, GLM-4.7-Flash",
	Name:  "deepseek2", HF: "DeepseekV2ForCausalLM", Alias: []string{"DeepseekV3ForCausalLM", "Glm4MoeLiteForCausalLM"}, Define: deepseek2,
	GGUFInterleaved: true, FolderInterleaved: true,
	Fields: slices.Concat(models.Without(models.ShapeFields(nil), "attention.head_count_kv", "attention.key_length", "attention.value_length"), []models.Field{
		models.RMSEps, models.Tied(false), models.Activation("silu"), {HF: "attention_bias", Only: false}, models.NoWindow,
		{GGUF: "attention.q_lora_rank", HF: "q_lora_rank", Size: func(c *models.Config) *int { return &c.Latent.Query }, Optional: true},
		{Write: func(c *models.Config) (string, gguf.Value, bool) { // llama.cpp decides by the number of layers whether it is optional
			return "attention.q_lora_rank", gguf.Uint32(0), c.Latent.Query == 0
		}},
		{GGUF: "attention.kv_lora_rank", HF: "kv_lora_rank", Size: func(c *models.Config) *int { return &c.Latent.KV }},
		{GGUFTensor: "blk.0.attn_kv_b.weight", Flag: func(c *models.Config) *bool { return &c.Latent.Joined }},
		{Read: latentHeads, Write: func(c *models.Config) (string, gguf.Value, bool) {
			return "attention.head_count_kv", gguf.Uint32(uint32(lo.Ternary(c.Latent.Joined, c.Heads, 1))), true
		}},
		latentSize("attention.key_length", func(c *models.Config) int { return lo.Ternary(c.Latent.Joined, c.Head, c.Latent.KV+c.Rope.Rotated) }),
		latentSize("attention.value_length", func(c *models.Config) int { return lo.Ternary(c.Latent.Joined, c.Latent.Value, c.Latent.KV) }),
		latentSize(keyLatentKey, func(c *models.Config) int { return lo.Ternary(c.Latent.Joined, 0, c.Head) }),
		latentSize(keyLatentValue, func(c *models.Config) int { return lo.Ternary(c.Latent.Joined, 0, c.Latent.Value) }),
		{Read: latentTemperature},
		{GGUF: keyDense, HF: "first_k_dense_replace", Size: func(c *models.Config) *int { return &c.Experts.Dense }, Optional: true},
	}, models.ExpertFields("n_routed_experts", "moe_intermediate_size", func(*models.Config) int { return 0 }), []models.Field{
		sharedCount, {Read: unsaidScore},
		{HF: "moe_layer_freq", Only: 1}}),
	Router: models.RouterKeys{Router: models.Router{Score: ir.SoftmaxScore}, Keyed: true,
		HFScore: "scoring_func", HFNormalised: "norm_topk_prob", HFScale: "routed_scaling_factor", HFGroups: "n_group", HFUsedGroups: "topk_group"},
	Given:   latentGiven,
	Check:   checkLatent,
	Sources: latentSources,
	Tensors: lo.Assign(models.DecoderTensors(latentTensors, "blk.#.attn_k.weight", "blk.#.attn_v.weight"), models.ExpertTensors("mlp", "gate_proj", "up_proj", "down_proj"), sharedTensors),
	Shapes: []models.Shape{
		{Parameters: 15_706_484_224, Config: models.Config{Name: "deepseek-v2-lite", Layers: 27, Width: 2048, Heads: 16, KVHeads: 16, Head: 192, FFN: 10944, Vocab: 102400, Context: 163840, Eps: 1e-6,
			Rope:   models.Rope{Theta: 1e4, Rotated: 64, YaRN: &models.YaRNRope{Factor: 40, FastBeta: 32, SlowBeta: 1, OldContext: 4096, Magnitude: 1}, Scores: math.Pow(models.YaRNMagnitude(40, 0.707), 2)},
			Latent: models.Latent{KV: 512, Value: 128}, Experts: models.Experts{Count: 64, Chosen: 6, FFN: 1408, Shared: 2816, Dense: 1, Router: models.Router{Scale: 1}}}},
		{Parameters: 15_960_110_208, Config: models.Config{Name: "moonlight-16b-a3b", Layers: 27, Width: 2048, Heads: 16, KVHeads: 16, Head: 192, FFN: 11264, Vocab: 163840, Context: 8192, Eps: 1e-5,
			Rope: models.Rope{Theta: 5e4, Rotated: 64}, Latent: models.Latent{KV: 512, Value: 128},
			Experts: models.Experts{Count: 64, Chosen: 6, FFN: 1408, Shared: 2816, Dense: 1, Router: models.Router{Score: ir.SigmoidScore, Normalised: true, Biased: true, Scale: 2.446}}}},
	},
}

// latentTensors are the weights of latent attention in folders.
var latentTensors = map[string]models.Stored{
	"blk.#.attn_q_a.weight":       models.As("model.layers.#.self_attn.q_a_proj.weight"),
	"blk.#.attn_q_a_norm.weight":  models.As("model.layers.#.self_attn.q_a_layernorm.weight"),
	"blk.#.attn_q_b.weight":       models.As("model.layers.#.self_attn.q_b_proj.weight"),
	"blk.#.attn_kv_a_mqa.weight":  models.As("model.layers.#.self_attn.kv_a_proj_with_mqa.weight"),
	"blk.#.attn_kv_a_norm.weight": models.As("model.layers.#.self_attn.kv_a_layernorm.weight"),
	"blk.#.attn_kv_b.weight":      models.As("model.layers.#.self_attn.kv_b_proj.weight"),
}

// GGUF keys of the head sizes where attn_k_b and attn_v_b are separate, and of the number of shared
// experts.
const (
	keyLatentKey     = "attention.key_length_mla"
	keyLatentValue   = "attention.value_length_mla"
	keySharedExperts = "expert_shared_count"
)

// checkLatent returns an error for a configuration that no graph can be built from.
func checkLatent(c *models.Config) error {
	l := &c.Latent
	if err := models.CheckExtents(models.Extent{Name: "rank of K and V", N: l.KV, Max: models.MaxExtent}, models.Extent{Name: "size of values", N: l.Value, Max: models.MaxExtent}); err != nil {
		return err
	}
	switch {
	case l.Query < 0 || l.Query > models.MaxExtent:
		return models.ConfigError("the rank of Q is %d", l.Query)
	case l.Value > c.Head:
		return models.ConfigError("heads have values of %d elements, more than the %d of keys", l.Value, c.Head)
	case c.Rope.Rotated >= c.Head:
		return models.ConfigError("RoPE of %d elements of a head of %d leaves none for the rest of a key", c.Rope.Rotated, c.Head)
	}
	return nil
}

// latentSize writes a size to GGUF files that other fields have read; 0: no entry.
func latentSize(key string, size func(c *models.Config) int) models.Field {
	return models.Field{Write: func(c *models.Config) (string, gguf.Value, bool) {
		return key, gguf.Uint32(uint32(size(c))), size(c) != 0
	}}
}

// latentHeads reads the sizes of heads, and RoPE.
func latentHeads(d models.Description, c *models.Config) {
	if d.Format() == models.Folder {
		rotated := d.Size("qk_rope_head_dim", 0)
		c.Head, c.Latent.Value = d.Size("qk_nope_head_dim", 0)+rotated, d.Size("v_head_dim", 0)
		c.Latent.Joined = true
		d.ReadRope(c)
		c.Rope.Rotated = rotated
	} else {
		key, value := keyLatentKey, keyLatentValue
		if c.Latent.Joined && !d.Has(key) {
			key, value = "attention.key_length", "attention.value_length"
		}
		c.Head, c.Latent.Value = d.Size(key, 0), d.Size(value, 0)
		d.ReadRope(c)
	}
	switch y := c.Rope.YaRN; {
	case c.Rope.Long != nil:
	case d.Format() == models.GGUF:
		strength := 0.0
		if d.Has(models.KeyStrength) {
			strength = d.Number(models.KeyStrength, 0)
		}
		c.Rope.FromFile(d.Number(models.KeyMagnitude, 1), strength)
	case y != nil:
		c.Rope.Scores = math.Pow(models.YaRNMagnitude(y.Factor, d.Scaling("mscale_all_dim")), 2)
	}
}

// latentGiven sets one head of K for each of Q, and the scale of attention, which RoPE's scaling may
// change.
func latentGiven(c *models.Config) {
	c.KVHeads, c.AttentionScale, c.Rope.Scores = c.Heads, 0, cmp.Or(c.Rope.Scores, 1)
	if c.Rope.Scores != 1 {
		c.AttentionScale = c.Rope.Scores / math.Sqrt(float64(c.Head))
	}
}

// unsaidScore is the router's score in GGUF files that do not name one: softmax, as DeepSeek-V2 has
// it, or the sigmoid of GLM-4.7-Flash, which llama.cpp knows by its sizes.
func unsaidScore(d models.Description, c *models.Config) {
	if d.Format() == models.GGUF && (c.Layers == 47 || c.Layers == 48) && c.Vocab == 154880 {
		c.Experts.Router.Score = ir.SigmoidScore
	}
}

// sharedCount is the number of shared experts, sharedTensors are their weights and the bias of the
// router beside them.
var (
	sharedCount   = sharedCountAs("n_shared_experts")
	sharedTensors = map[string]models.Stored{
		"blk.#.ffn_gate_shexp.weight": models.As("model.layers.#.mlp.shared_experts.gate_proj.weight"),
		"blk.#.ffn_up_shexp.weight":   models.As("model.layers.#.mlp.shared_experts.up_proj.weight"),
		"blk.#.ffn_down_shexp.weight": models.As("model.layers.#.mlp.shared_experts.down_proj.weight"),
		"blk.#.exp_probs_b.bias":      models.As("model.layers.#.mlp.gate.e_score_correction_bias"),
	}
)

// sharedCountAs is the number of shared experts, which the graph computes as one expert, by its name
// in folders.
func sharedCountAs(hf string) models.Field {
	return models.Field{
		Read: func(d models.Description, c *models.Config) {
			key := map[models.Format]string{models.GGUF: keySharedExperts, models.Folder: hf}[d.Format()]
			c.Experts.Shared = min(max(d.Size(key, models.Unset), 0), models.MaxExperts) * c.Experts.FFN
		},
		Write: func(c *models.Config) (string, gguf.Value, bool) {
			return keySharedExperts, gguf.Uint32(uint32(c.Experts.Shared / max(c.Experts.FFN, 1))), true
		},
	}
}

// latentTemperature reads by how much queries grow with their positions, as in Mistral Large 3.
func latentTemperature(d models.Description, c *models.Config) {
	if d.Format() == models.GGUF && d.Has(keyTemperature) {
		c.Temperature, c.GrowsEvery = d.Number(keyTemperature, 0), d.Size("attention.temperature_length", 0)
	}
}

// latentSources are the projections of K and V of files that store them as one tensor: of each head's
// rows those of K, transposed, which are multiplied with Q, and those of V.
func latentSources(c *models.Config) []models.Source {
	if !c.Latent.Joined {
		return nil
	}
	rest, value := c.Head-c.Rope.Rotated, c.Latent.Value
	of := func(first, n int) func(i int) int {
		return func(i int) int { return i/n*(rest+value) + first + i%n }
	}
	return []models.Source{{Role: "attn_kv_b.weight", Shape: []int{c.Heads * (rest + value), c.Latent.KV}, Makes: []models.Made{
		{Role: "attn_k_b.weight", Stack: c.Heads, Rows: c.Heads * rest, Row: of(0, rest), Turned: true},
		{Role: "attn_v_b.weight", Stack: c.Heads, Rows: c.Heads * value, Row: of(rest, value)},
	}}}
}

// deepseek2 is a mixture with shared experts, behind dense layers (DeepSeek-AI, "DeepSeek-V2: A
// Strong, Economical, and Efficient Mixture-of-Experts Language Model", 2024):
//
//	x += latentAttention(n)                                         n = RMSNorm(x)
//	x += Σ wᵢ · Wdownᵢ · (silu(Wgateᵢ·n) ∘ Wupᵢ·n) + Wdown · (silu(Wgate·n) ∘ Wup·n)
//
// where n = RMSNorm(x) and w = the largest of softmax(R·n), scaled; V3 and its like choose by
// sigmoids and a bias, in some models among groups of experts.
func deepseek2(b *ir.Builder, c *models.Config) {
	grown := growing(b, c)
	models.Decode(b, c, models.RMSNorm, func(l *models.LayerBuilder, x *ir.Value) *ir.Value {
		x = b.Add(x, latentAttention(l, l.Norm("attn_norm", x), c.Eps, grown))
		return models.AddFeedForward(l, x, l.Norm("ffn_norm", x), ir.SiLU)
	})
}

// latentAttention returns Wo · attend(q, k, v), [T, Width], where k and v of all heads are projections of
// one vector, c = RMSNorm(Wkv·n) by eps:
//
//	q = Wq·n, as grown returns it, and rope(the last elements)
//	k = Wk·c beside rope(Wpe·n), which all heads share
//	v = Wv·c
//
// The cache has c and the shared elements, and attention reads them alone: Wk is multiplied with q
// rather than with each c (q·(Wk·c) = (Wkᵀ·q)·c), and Wv with the weighted sum of c. A step of few
// tokens reads a tenth of what whole heads take; a prompt of many multiplies about three times as much
// in attention, which any other form for prompts would save at the cost of other bits
// (DeepSeek-AI, 2024, section 2.1.2).
func latentAttention(l *models.LayerBuilder, n *ir.Value, eps float64, grown func(heads *ir.Value) *ir.Value) *ir.Value {
	b, latent, rotated := l.Builder, l.Config.Latent, l.Config.Rope.Rotated
	rest, row := l.Head-rotated, latent.KV+rotated
	norm := func(role string, x *ir.Value) *ir.Value { return models.RMSNorm(b, l.Name(role), x, eps) }
	heads := b.Indices(l.Heads)
	each := func(role string, x *ir.Value, rows int) *ir.Value { // the product of each head with its matrix, [T, Heads, rows]
		w := b.Weight(l.Name(role+".weight"), l.Heads, rows, int(x.Type.Shape.Last()))
		return b.ExpertLinear(x, w, heads, nil)
	}
	role, from := "attn_q", n
	if latent.Query > 0 {
		role, from = "attn_q_b", norm("attn_q_a_norm", l.Linear("attn_q_a", n, latent.Query, false))
	}
	q := grown(b.SplitHeads(l.Linear(role, from, l.Heads*l.Head, false), l.Heads))
	both := l.Linear("attn_kv_a_mqa", n, row, false)
	c, shared := norm("attn_kv_a_norm", b.Slice(both, 0, latent.KV)), l.Rotate(b.SplitHeads(b.Slice(both, latent.KV, row), 1))
	q = b.Concat(each("attn_k_b", b.Slice(q, 0, rest), latent.KV), l.Rotate(b.Slice(q, rest, l.Head)))
	k := b.Concat(b.SplitHeads(c, 1), shared)
	out := models.AttendOver(l, q, b.CacheWrite(b.LatentCache(row), k, k))
	out = each("attn_v_b", b.Slice(b.SplitHeads(out, l.Heads), 0, latent.KV), latent.Value)
	return l.Linear("attn_output", b.MergeHeads(out), l.Config.Width, false)
}
