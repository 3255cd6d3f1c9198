package checkpoint_test

import (
	"bytes"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/models"
	"github.com/smelt-ml/smelt/models/checkpoint"
	"github.com/smelt-ml/smelt/models/gguf"
)

// TestKeysOfFamilies edits good GGUF files by keys that one family's files have.
func TestKeysOfFamilies(t *testing.T) {
	for name, c := range map[string]struct {
		family string
		edit   func(f *file)
		want   func(t *testing.T, c *models.Config)
		fails  string
	}{
		"window of another base": {family: "afmoe", edit: func(f *file) { f.set("afmoe.rope.freq_base_swa", gguf.Float32(100)) }, want: func(t *testing.T, c *models.Config) {
			require.Equal(t, []any{1e4, 100.0}, []any{c.Rope.Theta, c.ByLayer[0].Rope.Theta})
		}},
		"every second layer has a window": {family: "afmoe", edit: func(f *file) { f.set("afmoe.attention.sliding_window_pattern", gguf.Uint32(2)) }, want: func(t *testing.T, c *models.Config) {
			require.Equal(t, []bool{true, false}, c.Windowed)
			require.NotNil(t, c.ByLayer[1].Rope)
		}},
		"a router of softmax": {family: "afmoe", edit: func(f *file) { f.set("afmoe.expert_gating_func", gguf.Uint32(1)) }, want: func(t *testing.T, c *models.Config) {
			require.Equal(t, ir.SoftmaxScore, c.Experts.Router.Score)
		}},
		"weights as they are": {family: "afmoe", edit: func(f *file) { f.unset("afmoe.expert_weights_norm") }, want: func(t *testing.T, c *models.Config) {
			require.False(t, c.Experts.Router.Normalised)
		}},
		"each shared expert": {family: "bailingmoe2", edit: func(f *file) { f.set("bailingmoe2.expert_shared_feed_forward_length", gguf.Uint32(16)) }, want: func(t *testing.T, c *models.Config) {
			require.Equal(t, 32, c.Experts.Shared)
		}},
		"both norms": {family: "cohere2moe", edit: func(f *file) { f.set("cohere2moe.attention.layer_norm_epsilon", gguf.Float32(1e-3)) }, want: func(t *testing.T, c *models.Config) {
			require.Equal(t, []any{true, 1e-5}, []any{c.RMS, c.Eps})
		}},
		"no root mean square": {family: "cohere2moe", edit: func(f *file) {
			f.set("cohere2moe.attention.layer_norm_epsilon", gguf.Float32(1e-3))
			f.set("cohere2moe.attention.layer_norm_rms_epsilon", gguf.Float32(0))
		}, want: func(t *testing.T, c *models.Config) { require.Equal(t, []any{false, 1e-3}, []any{c.RMS, c.Eps}) }},
		"the first layer has no window": {family: "cohere2moe", edit: func(f *file) { f.unset("cohere2moe.attention.sliding_window_pattern") }, want: func(t *testing.T, c *models.Config) {
			require.Equal(t, []bool{false, true}, c.Windowed)
			require.NotNil(t, c.ByLayer[0].Rope, "a dense layer rotates")
		}},
		"a number instead of a pattern": {family: "cohere2moe", edit: func(f *file) { f.set("cohere2moe.attention.sliding_window_pattern", gguf.Uint32(1)) }, want: func(t *testing.T, c *models.Config) {
			require.Equal(t, []bool{false, false}, c.Windowed)
			require.Nil(t, c.ByLayer[1].Rope)
		}},
		"shared experts by their number": {family: "cohere2moe", edit: func(f *file) {
			f.set("cohere2moe.expert_shared_count", gguf.Uint32(2))
			f.unset("cohere2moe.expert_shared_feed_forward_length")
		}, want: func(t *testing.T, c *models.Config) { require.Equal(t, 48, c.Experts.Shared) }},
		"heads of each layer": {family: "laguna", edit: func(*file) {}, want: func(t *testing.T, c *models.Config) {
			require.Equal(t, []any{[]int{4, 6}, 6, 4, 6}, []any{c.HeadCounts, c.Heads, c.ByLayer[0].Heads, c.ByLayer[1].Heads})
			require.Equal(t, []any{0, 8, 5, 4, 1e3}, []any{c.ByLayer[0].Window, c.ByLayer[0].Rope.Rotated, c.ByLayer[1].Window, c.ByLayer[1].Rope.Rotated, c.ByLayer[1].Rope.Theta})
			require.False(t, c.ElementGate)
		}},
		"heads of other layers":         {family: "laguna", edit: func(f *file) { f.set("laguna.attention.head_count", gguf.Uint32Array([]uint32{4, 6, 6})) }, fails: "heads are listed for 3 layers, the model has 2"},
		"a gate of elements":            {family: "laguna", edit: func(f *file) { f.put("blk.0.attn_gate.weight", ggufF32, 4*32*32, 32, 32) }, want: func(t *testing.T, c *models.Config) { require.True(t, c.ElementGate) }},
		"a shared expert like others":   {family: "laguna", edit: func(f *file) { f.unset("laguna.expert_shared_feed_forward_length") }, want: func(t *testing.T, c *models.Config) { require.Equal(t, 24, c.Experts.Shared) }},
		"no window":                     {family: "cohere2moe", edit: func(f *file) { f.set("cohere2moe.attention.sliding_window", gguf.Uint32(0)) }, fails: "cohere2moe.attention.sliding_window is 0"},
		"mixtures in every other layer": {family: "ernie4_5-moe", edit: func(f *file) { f.set("ernie4_5-moe.interleave_moe_layer_step", gguf.Uint32(2)) }, fails: "interleave_moe_layer_step is 2, not 1"},
		"no bias":                       {family: "ernie4_5-moe", edit: func(f *file) { f.drop("blk.1.exp_probs_b.bias") }, want: func(t *testing.T, c *models.Config) { require.False(t, c.Experts.Router.Biased) }},
		"MiniMax by softmax":            {family: "minimax-m2", edit: func(f *file) { f.set("minimax-m2.expert_gating_func", gguf.Uint32(1)) }, fails: "the router has score softmax"},
		"Granite without RoPE":          {family: "granite", edit: func(f *file) { f.set("granite.rope.scaling.finetuned", gguf.Bool(false)) }, want: func(t *testing.T, c *models.Config) { require.Nil(t, c.ByLayer[0].Rope) }},
		"Granite with RoPE":             {family: "granite", edit: func(f *file) { f.set("granite.rope.scaling.finetuned", gguf.Bool(true)) }, want: func(*testing.T, *models.Config) {}},
		"Gemma 2 without caps": {family: "gemma2", edit: func(f *file) {
			f.unset("gemma2.attn_logit_softcapping")
			f.unset("gemma2.final_logit_softcapping")
		}, want: func(t *testing.T, c *models.Config) {
			require.Equal(t, []float64{50, 30}, []float64{c.SoftCap, c.LogitCap})
		}},
		"other heads with a window":    {family: "gemma2", edit: func(f *file) { f.set("gemma2.attention.key_length_swa", gguf.Uint32(16)) }, fails: "gemma2.attention.key_length_swa is 16, not 8"},
		"another part with a window":   {family: "gpt-oss", edit: func(f *file) { f.set("gpt-oss.rope.dimension_count_swa", gguf.Uint32(4)) }, fails: "gpt-oss.rope.dimension_count_swa is 4, not 8"},
		"the same heads with a window": {family: "gemma2", edit: func(f *file) { f.set("gemma2.attention.key_length_swa", gguf.Uint32(8)) }, want: func(*testing.T, *models.Config) {}},
		"YaRN and factors": {family: "mistral3", edit: func(f *file) {
			f.set("mistral3.rope.scaling.type", gguf.String("yarn"))
			f.put("rope_freqs.weight", ggufF32, 16, 4)
		}, fails: "the tensor rope_freqs.weight scales RoPE beside YaRN"},
		"both ways in windows":      {family: "gpt-oss", edit: func(f *file) { f.set("gpt-oss.attention.causal", gguf.Bool(false)) }, fails: "attention.causal is false"},
		"both ways without windows": {family: "qwen3", edit: func(f *file) { f.set("qwen3.attention.causal", gguf.Bool(false)) }, want: func(t *testing.T, c *models.Config) { require.True(t, c.Both) }},
		"a router of a dense model": {family: "llama", edit: func(f *file) { f.set("llama.expert_group_used_count", gguf.Uint32(1)) }, want: func(t *testing.T, c *models.Config) { require.Zero(t, c.Experts) }},
		"a score that is not said":  {family: "deepseek2", edit: func(f *file) { f.set("deepseek2.expert_gating_func", gguf.Uint32(0)) }, want: func(t *testing.T, c *models.Config) { require.Equal(t, ir.SoftmaxScore, c.Experts.Router.Score) }},
		"growing queries, latent": {family: "deepseek2", edit: func(f *file) {
			f.set("deepseek2.attention.temperature_scale", gguf.Float32(0.5))
			f.set("deepseek2.attention.temperature_length", gguf.Uint32(16))
		}, want: func(t *testing.T, c *models.Config) {
			require.Equal(t, []any{0.5, 16}, []any{c.Temperature, c.GrowsEvery})
		}},
		"YaRN of a strength": {family: "mistral3", edit: func(f *file) {
			f.set("mistral3.rope.scaling.type", gguf.String("yarn"))
			f.set("mistral3.rope.scaling.factor", gguf.Float32(4))
			f.set("mistral3.rope.scaling.yarn_log_multiplier", gguf.Float32(0.5))
		}, want: func(t *testing.T, c *models.Config) {
			require.InDelta(t, models.YaRNMagnitude(4, 1)/models.YaRNMagnitude(4, 0.5), c.Rope.YaRN.Magnitude, 1e-12)
		}},
		"Grok's factors of YaRN": {family: "gpt-oss", edit: func(f *file) {
			f.set("gpt-oss.rope.scaling.yarn_ext_factor", gguf.Float32(0.5))
			f.set("gpt-oss.rope.scaling.yarn_attn_factor", gguf.Float32(2))
		}, want: func(*testing.T, *models.Config) {}},
		"the first MiniCPM": {family: "minicpm", edit: func(f *file) {
			for _, key := range []string{"embedding_scale", "residual_scale", "logit_scale"} {
				f.unset("minicpm." + key)
			}
		}, want: func(t *testing.T, c *models.Config) {
			require.Equal(t, []float64{12, 1.4, 32.0 / 256}, []float64{c.EmbeddingScale, c.ResidualScale, c.LogitDivisor})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			f := fileOf(synthetic(t, small(c.family), "f32"))
			c.edit(f)
			path := f.write(t)
			requireOpens(t, path, c.want, c.fails)
		})
	}
}

// requireOpens requires that a file opens with the wanted configuration, or fails with an error that
// contains fails.
func requireOpens(t *testing.T, path string, want func(*testing.T, *models.Config), fails string) {
	t.Helper()
	if fails != "" {
		_, err := checkpoint.Open(path)
		require.ErrorContains(t, err, fails)
		return
	}
	want(t, &open(t, path).Config)
}

// TestFoldersOfFamilies edits good folders by members that one family's folders have.
func TestFoldersOfFamilies(t *testing.T) {
	for name, c := range map[string]struct {
		family string
		edit   map[string]any
		want   func(t *testing.T, c *models.Config)
		fails  string
	}{
		"no scale of embeddings":     {family: "afmoe", edit: map[string]any{"mup_enabled": false}, fails: "mup_enabled is false"},
		"another layer is global":    {family: "afmoe", edit: map[string]any{"layer_types": []string{"full_attention", "sliding_attention"}}, fails: "other than every fourth"},
		"every third layer":          {family: "afmoe", edit: map[string]any{"global_attn_every_n_layers": 3}, fails: "global_attn_every_n_layers is 3, not 4"},
		"normalised unless said":     {family: "afmoe", edit: map[string]any{"route_norm": nil}, want: func(t *testing.T, c *models.Config) { require.True(t, c.Experts.Router.Normalised) }},
		"dense layers behind":        {family: "ernie4_5-moe", edit: map[string]any{"moe_layer_end_index": 0}, fails: "moe_layer_end_index is 0, before the last of 2 layers"},
		"up to the last layer":       {family: "ernie4_5-moe", edit: map[string]any{"moe_layer_end_index": -1}, want: func(*testing.T, *models.Config) {}},
		"wide shared experts":        {family: "bailingmoe2", edit: map[string]any{"moe_shared_expert_intermediate_size": 32}, fails: "moe_shared_expert_intermediate_size is 32, not 24"},
		"norms of single heads":      {family: "minimax-m2", edit: map[string]any{"qk_norm_type": "per_head"}, fails: "qk_norm_type"},
		"part of a head":             {family: "minimax-m2", edit: map[string]any{"rotary_dim": 4}, want: func(t *testing.T, c *models.Config) { require.Equal(t, 4, c.Rope.Rotated) }},
		"the sum of both":            {family: "cohere2moe", edit: map[string]any{"shared_expert_combination_strategy": "sum"}, fails: `shared_expert_combination_strategy is "sum", not "average"`},
		"no types of layers":         {family: "cohere2moe", edit: map[string]any{"layer_types": nil}, fails: "layer_types is missing"},
		"softmax over the chosen":    {family: "cohere2moe", edit: map[string]any{"expert_selection_fn": nil}, want: func(t *testing.T, c *models.Config) { require.Equal(t, ir.ChosenSoftmaxScore, c.Experts.Router.Score) }},
		"another score":              {family: "cohere2moe", edit: map[string]any{"expert_selection_fn": "tanh"}, fails: "no router scores experts by tanh"},
		"dense layers by their kind": {family: "cohere2moe", edit: map[string]any{"mlp_layer_types": []string{"dense", "sparse"}, "first_k_dense_replace": nil}, want: func(t *testing.T, c *models.Config) { require.Equal(t, 1, c.Experts.Dense) }},
		"dense behind sparse":        {family: "cohere2moe", edit: map[string]any{"mlp_layer_types": []string{"sparse", "dense"}}, fails: "dense layers behind mixtures"},
		"capped logits of routers":   {family: "laguna", edit: map[string]any{"moe_router_logit_softcapping": 30.0}, fails: "moe_router_logit_softcapping is 30, not 0"},
		"a cap of zero":              {family: "laguna", edit: map[string]any{"moe_router_logit_softcapping": 0}, want: func(*testing.T, *models.Config) {}},
		"gates of two kinds":         {family: "laguna", edit: map[string]any{"gating_types": []string{"per_head", "per_element"}}, fails: "gates of attention are per_head, per_element"},
		"gates of elements":          {family: "laguna", edit: map[string]any{"gating": "per-element"}, want: func(t *testing.T, c *models.Config) { require.True(t, c.ElementGate) }},
		"gates of heads":             {family: "laguna", edit: map[string]any{"gating": true, "gating_types": []string{"per_head", "per_head"}}, want: func(t *testing.T, c *models.Config) { require.False(t, c.ElementGate) }},
		"no shared expert":           {family: "granitemoe", edit: map[string]any{"shared_intermediate_size": 0}, want: func(t *testing.T, c *models.Config) { require.Zero(t, c.Experts.Shared) }},
	} {
		t.Run(name, func(t *testing.T) {
			config := small(c.family)
			path := folder(t, config, randomWeights(synthetic(t, config, "f32")), c.edit)
			requireOpens(t, path, c.want, c.fails)
		})
	}
}

// TestNearGranite: MiniCPM's folders give the scale of residuals by the depth, and the divisor of
// logits by a width.
func TestNearGranite(t *testing.T) {
	c := small("minicpm")
	m := open(t, folder(t, c, randomWeights(synthetic(t, c, "f32")), map[string]any{"scale_depth": 1.4, "dim_model_base": 8}))
	require.Equal(t, []float64{1.4, 4}, []float64{m.Config.ResidualScale, m.Config.LogitDivisor})
	c.Layers = 4
	m = open(t, folder(t, c, randomWeights(synthetic(t, c, "f32")), map[string]any{"scale_depth": 1.4}))
	require.InDelta(t, 1.4/math.Sqrt(4), m.Config.ResidualScale, 1e-12)
}

// TestGateUp opens a file whose experts' gates and up projections are one stack, like llama.cpp.
func TestGateUp(t *testing.T) {
	m := synthetic(t, small("qwen3moe"), "f32")
	f, weights := fileOf(m), randomWeights(m)
	gate, up := weights["blk.0.ffn_gate_exps.weight"], weights["blk.0.ffn_up_exps.weight"]
	w, _ := m.Tensor("blk.0.ffn_up_exps.weight")
	size := w.Shape[1] * w.Shape[2]
	var both []float32
	for e := range w.Shape[0] {
		both = slices.Concat(both, gate[e*size:][:size], up[e*size:][:size])
	}
	f.drop("blk.0.ffn_gate_exps.weight")
	f.drop("blk.0.ffn_up_exps.weight")
	f.tensors = append(f.tensors, gguf.TensorWriter{Name: "blk.0.ffn_gate_up_exps.weight", Type: ggufF32,
		Shape: []int64{int64(w.Shape[0]), int64(2 * w.Shape[1]), int64(w.Shape[2])}, Write: writer(both)})
	opened := open(t, f.write(t))
	for name, want := range map[string][]float32{"blk.0.ffn_gate_exps.weight": gate, "blk.0.ffn_up_exps.weight": up} {
		part, ok := opened.Tensor(name)
		require.True(t, ok, name)
		require.Equal(t, w.Shape, part.Shape)
		var data bytes.Buffer
		require.NoError(t, writer(want)(&data))
		require.Equal(t, data.Bytes(), part.Data, name)
	}
	_, err := opened.Build(ir.Options{Block: 4})
	require.NoError(t, err)
}
