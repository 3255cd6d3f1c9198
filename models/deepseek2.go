package models

import (
	"math"
	"slices"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/models/gguf"
)

// deepseek2Family is DeepSeek-V2 with multi-head latent attention: K and V of all heads are
// products of one short vector a token, and what rotates of K is one head that all share. Routers
// that choose among groups, or by sigmoids, are not read.
var deepseek2Family = Family{
	Title: "DeepSeek-V2-Lite",
	Name:  "deepseek2", HF: "DeepseekV2ForCausalLM", Define: deepseek2,
	Interleaved: true, FolderInterleaved: true,
	Fields: slices.Concat(without(shapeFields(nil), "attention.head_count_kv", "attention.key_length", "attention.value_length"), []Field{
		rmsEps, tied(false), activation("silu"), {HF: "attention_bias", Only: false}, noWindow,
		{GGUF: "attention.q_lora_rank", HF: "q_lora_rank", Size: func(c *Config) *int { return &c.Latent.Query }, Optional: true},
		{Write: func(c *Config) (string, gguf.Value, bool) { // llama.cpp knows by the number of layers who may leave it out
			return "attention.q_lora_rank", gguf.Uint32(0), c.Latent.Query == 0
		}},
		{GGUF: "attention.kv_lora_rank", HF: "kv_lora_rank", Size: func(c *Config) *int { return &c.Latent.KV }},
		{GGUFTensor: "blk.0.attn_kv_b.weight", Flag: func(c *Config) *bool { return &c.Latent.Joined }},
		{Read: latentHeads, Write: func(c *Config) (string, gguf.Value, bool) {
			return "attention.head_count_kv", gguf.Uint32(uint32(lo.Ternary(c.Latent.Joined, c.Heads, 1))), true
		}},
		latentSize("attention.key_length", func(c *Config) int { return lo.Ternary(c.Latent.Joined, c.Head, c.Latent.KV+c.Rope.Rotated) }),
		latentSize("attention.value_length", func(c *Config) int { return lo.Ternary(c.Latent.Joined, c.Latent.Value, c.Latent.KV) }),
		latentSize(keyLatentKey, func(c *Config) int { return lo.Ternary(c.Latent.Joined, 0, c.Head) }),
		latentSize(keyLatentValue, func(c *Config) int { return lo.Ternary(c.Latent.Joined, 0, c.Latent.Value) }),
		{Read: refuseTemperature}, {GGUF: "nextn_predict_layers", Only: 0},
	}, expertFields("n_routed_experts", "moe_intermediate_size", func(*Config) int { return 0 }), []Field{
		{GGUF: "leading_dense_block_count", HF: "first_k_dense_replace", Size: func(c *Config) *int { return &c.Experts.Dense }, Optional: true},
		{GGUF: "expert_weights_scale", HF: "routed_scaling_factor", Number: func(c *Config) *float64 { return &c.Experts.Scale }, Optional: true},
		{Read: sharedExperts, Write: func(c *Config) (string, gguf.Value, bool) {
			return keySharedExperts, gguf.Uint32(uint32(c.Experts.Shared / max(c.Experts.FFN, 1))), true
		}},
		{GGUF: "expert_weights_norm", HF: "norm_topk_prob", Only: false},
		{GGUF: "expert_gating_func", Only: softmaxGating}, {HF: "scoring_func", Only: "softmax"}, {HF: "topk_method", Only: "greedy"},
		{Read: refuseGroups}, {HF: "moe_layer_freq", Only: 1}}),
	Given:   latentGiven,
	Sources: latentSources,
	Tensors: lo.Assign(decoderTensors(map[string]Stored{
		"blk.#.attn_q_a.weight":       as("model.layers.#.self_attn.q_a_proj.weight"),
		"blk.#.attn_q_a_norm.weight":  as("model.layers.#.self_attn.q_a_layernorm.weight"),
		"blk.#.attn_q_b.weight":       as("model.layers.#.self_attn.q_b_proj.weight"),
		"blk.#.attn_kv_a_mqa.weight":  as("model.layers.#.self_attn.kv_a_proj_with_mqa.weight"),
		"blk.#.attn_kv_a_norm.weight": as("model.layers.#.self_attn.kv_a_layernorm.weight"),
		"blk.#.attn_kv_b.weight":      as("model.layers.#.self_attn.kv_b_proj.weight"),
		"blk.#.ffn_gate_shexp.weight": as("model.layers.#.mlp.shared_experts.gate_proj.weight"),
		"blk.#.ffn_up_shexp.weight":   as("model.layers.#.mlp.shared_experts.up_proj.weight"),
		"blk.#.ffn_down_shexp.weight": as("model.layers.#.mlp.shared_experts.down_proj.weight"),
	}, "blk.#.attn_k.weight", "blk.#.attn_v.weight"), expertTensors("mlp", "gate_proj", "up_proj", "down_proj")),
}

// What GGUF files call the sizes of heads where attn_k_b and attn_v_b are apart, and the number of
// experts that all tokens go to.
const (
	keyLatentKey     = "attention.key_length_mla"
	keyLatentValue   = "attention.value_length_mla"
	keySharedExperts = "expert_shared_count"
)

// softmaxGating is llama.cpp's number for routers that weigh by a softmax.
const softmaxGating = 1

// Latent is the shape of multi-head latent attention; the zero value is none. Heads of K have
// [Config.Head] elements, of which [Rope.Rotated] are those of the head that all share.
type Latent struct {
	Query  int  // elements of the vector that all heads of Q are products of; 0: they are of the residual stream
	KV     int  // elements of that of K and V
	Value  int  // elements of a head of V
	Joined bool // files have the products that make K and V as one, attn_kv_b
}

// check finds what no graph can be built from.
func (l *Latent) check(c *Config) error {
	if *l == (Latent{}) && c.Family != "deepseek2" {
		return nil
	}
	if err := checkExtents(extent{"rank of K and V", l.KV, maxExtent}, extent{"size of values", l.Value, maxExtent}); err != nil {
		return err
	}
	switch {
	case l.Query < 0 || l.Query > maxExtent:
		return configError("the rank of Q is %d", l.Query)
	case l.Value > c.Head:
		return configError("heads have values of %d elements, and keys of %d", l.Value, c.Head)
	case c.Rope.Rotated >= c.Head:
		return configError("RoPE of %d elements of a head of %d leaves none for the rest of a key", c.Rope.Rotated, c.Head)
	}
	return nil
}

// latentSize is a size that GGUF files have of what other fields read; 0: they have it not.
func latentSize(key string, size func(c *Config) int) Field {
	return Field{Write: func(c *Config) (string, gguf.Value, bool) { return key, gguf.Uint32(uint32(size(c))), size(c) != 0 }}
}

// latentHeads reads the sizes of heads, and RoPE.
func latentHeads(d description, c *Config) {
	if d.form() == Folder {
		rotated := d.size("qk_rope_head_dim", 0)
		c.Head, c.Latent.Value = d.size("qk_nope_head_dim", 0)+rotated, d.size("v_head_dim", 0)
		c.Latent.Joined = true
		d.rope(c)
		c.Rope.Rotated = rotated
	} else {
		key, value := keyLatentKey, keyLatentValue
		if c.Latent.Joined && !d.has(key) {
			key, value = "attention.key_length", "attention.value_length"
		}
		c.Head, c.Latent.Value = d.size(key, 0), d.size(value, 0)
		d.rope(c)
	}
	if c.Rope.YaRN != nil {
		latentStrength(d, c.Rope.YaRN)
	}
}

// latentStrength reads by how much YaRN scales scores. It is the strength that cosine and sine
// would be divided by, too, which are left as they are.
func latentStrength(d description, y *YaRNRope) {
	if f, ok := d.(*folder); ok {
		of := f.Rope().Scaling.Numbers
		y.Scores = of["mscale_all_dim"]
		if y.Scores != 0 && of["mscale"] != y.Scores {
			d.fail(configError("RoPE scaling with a mscale of %g, and a mscale_all_dim of %g", of["mscale"], y.Scores))
		}
		return
	}
	if !d.has(keyStrength) {
		return
	}
	y.Scores, y.Magnitude = 10*d.number(keyStrength, 0), 1
	if of := d.number(keyMagnitude, 1); of != 1 {
		d.fail(configError("YaRN RoPE scaling with %s and %s", d.fullName(keyStrength), d.fullName(keyMagnitude)))
	}
}

// latentGiven has a head of K for each of Q, and scores that grow with YaRN's stretch.
func latentGiven(c *Config) {
	c.KVHeads, c.AttentionScale = c.Heads, 0
	if y := c.Rope.YaRN; y != nil && y.Scores != 0 {
		c.AttentionScale = math.Pow(yarnMagnitude(y.Factor, y.Scores), 2) / math.Sqrt(float64(c.Head))
	}
}

// sharedExperts reads the width of those that all tokens go to, side by side.
func sharedExperts(d description, c *Config) {
	key := map[Form]string{GGUF: keySharedExperts, Folder: "n_shared_experts"}[d.form()]
	if d.has(key) {
		c.Experts.Shared = min(d.size(key, 0), maxExperts) * c.Experts.FFN
	}
}

// refuseGroups is for files whose routers choose groups of experts first.
func refuseGroups(d description, _ *Config) {
	key := map[Form]string{GGUF: "expert_group_count", Folder: "n_group"}[d.form()]
	if !d.has(key) {
		return
	}
	if n := d.size(key, 0); n > 1 {
		d.fail(configError("%s is %d: routers that choose groups of experts are not supported", d.fullName(key), n))
	}
}

// refuseTemperature is for files whose queries grow with their positions.
func refuseTemperature(d description, _ *Config) {
	const key = "attention.temperature_scale"
	if d.form() == GGUF && d.has(key) {
		d.fail(configError("%s: queries that grow with their positions are not supported", d.fullName(key)))
	}
}

// latentSources has what rotates, which files have at the end of each head, first in all heads.
// Keys have zeros where the head that all share is added, values to be as long as keys.
func latentSources(c *Config) []source {
	l, heads, head, rotated := &c.Latent, c.Heads, c.Head, c.Rope.Rotated
	rest := head - rotated
	query, width := "attn_q.weight", c.Width
	if l.Query > 0 {
		query, width = "attn_q_b.weight", l.Query
	}
	key := func(stride int, turned bool) made { // heads of the source that many rows apart
		return made{"attn_k_b.weight", heads * head, func(i int) int {
			if i%head < rotated {
				return -1
			}
			return i/head*stride + i%head - rotated
		}, turned}
	}
	value := func(stride, first int) made {
		return made{"attn_v_b.weight", heads * head, func(i int) int {
			if i%head >= l.Value {
				return -1
			}
			return i/head*stride + first + i%head
		}, false}
	}
	sources := []source{
		{query, []int{heads * head, width}, []made{{query, heads * head, func(i int) int {
			return i/head*head + (i%head+rest)%head
		}, false}}},
		{"attn_kv_a_mqa.weight", []int{l.KV + rotated, c.Width}, []made{
			{"attn_kv_a_mqa.weight", l.KV, func(i int) int { return i }, false},
			{"attn_k_pe.weight", head, func(i int) int { return lo.Ternary(i < rotated, l.KV+i, -1) }, false},
		}},
	}
	if l.Joined {
		stride := rest + l.Value
		return append(sources, source{"attn_kv_b.weight", []int{heads * stride, l.KV}, []made{key(stride, false), value(stride, rest)}})
	}
	return append(sources,
		source{"attn_k_b.weight", []int{heads, l.KV, rest}, []made{key(rest, true)}},
		source{"attn_v_b.weight", []int{heads, l.Value, l.KV}, []made{value(l.Value, 0)}})
}

// deepseek2 is a mixture beside experts that see all tokens, behind layers without one
// (DeepSeek-AI, "DeepSeek-V2: A Strong, Economical, and Efficient Mixture-of-Experts Language
// Model", 2024):
//
//	x += latentAttention(n)                                         n = RMSNorm(x)
//	x += Σ wᵢ · Wdownᵢ · (silu(Wgateᵢ·n) ∘ Wupᵢ·n) + Wdown · (silu(Wgate·n) ∘ Wup·n)
//
// where n = RMSNorm(x) and w = the largest of softmax(R·n), scaled.
func deepseek2(b *ir.Builder, c *Config) {
	route := func(b *ir.Builder, logits *ir.Value, chosen int) (weights, experts *ir.Value) {
		weights, experts = shareAll(b, logits, chosen)
		return scaled(b, weights, c.Experts.Scale), experts
	}
	decode(b, c, rmsNorm, func(l *layer, x *ir.Value) *ir.Value {
		x = b.Add(x, latentAttention(l, l.norm("attn_norm", x)))
		n := l.norm("ffn_norm", x)
		if l.index < c.Experts.Dense {
			return b.Add(x, gated(l, n, ir.SiLU))
		}
		x = b.Add(x, mixed(l, n, route, ir.SiLU))
		if c.Experts.Shared == 0 {
			return x
		}
		return b.Add(x, gatedBy(l, "_shexp", n, c.Experts.Shared, ir.SiLU))
	})
}

// latentAttention is Wo · attend(rope(Wq·n), rope(Wpe·n) + Wk·c, Wv·c), [T, Width], where
// c = RMSNorm(Wkv·n). What rotates is the beginning of each head, which of K is the same in all.
func latentAttention(l *layer, n *ir.Value) *ir.Value {
	b, latent, width := l.b, l.c.Latent, l.Heads*l.Head
	role, from := "attn_q", n
	if latent.Query > 0 {
		role, from = "attn_q_b", l.norm("attn_q_a_norm", l.linear("attn_q_a", n, latent.Query, false))
	}
	q := l.rotate(b.SplitHeads(l.linear(role, from, width, false), l.Heads))
	c := l.norm("attn_kv_a_norm", l.linear("attn_kv_a_mqa", n, latent.KV, false))
	shared := l.rotate(b.SplitHeads(l.linear("attn_k_pe", n, l.Head, false), 1))
	k := b.Add(b.MergeHeads(b.RepeatKV(shared, l.Heads)), l.linear("attn_k_b", c, width, false))
	v := l.linear("attn_v_b", c, width, false)
	out := attend(l, q, b.SplitHeads(k, l.Heads), b.SplitHeads(v, l.Heads))
	out = b.MergeHeads(b.Slice(b.SplitHeads(out, l.Heads), 0, latent.Value))
	return l.linear("attn_output", out, l.c.Width, false)
}
