package checkpoint_test

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/models"
	"github.com/smelt-ml/smelt/models/checkpoint"
	"github.com/smelt-ml/smelt/models/gguf"
)

// requireGemma4 requires the layers of small("gemma4").
func requireGemma4(t *testing.T, c *models.Config) {
	type layer struct{ kvHeads, head, ffn, window, back, rotated int }
	var have []layer
	for i := range c.ByLayer {
		l := &c.ByLayer[i]
		have = append(have, layer{l.KVHeads, l.Head, l.FFN, l.Window, l.Back, l.Rope.Rotated})
	}
	require.Equal(t, []layer{{2, 4, 64, 5, 0, 4}, {1, 8, 64, 0, 0, 8}, {2, 4, 128, 5, 2, 4}}, have)
	require.Equal(t, []any{1e4, 1, 1e3, 0, 12, true, 5}, []any{c.ByLayer[1].Rope.Theta, c.ByLayer[1].Rope.Turned, c.ByLayer[0].Rope.Theta, c.ByLayer[0].Rope.Turned, c.PerLayer, c.KeyIsValue, c.Experts.Count})
}

// TestGemma4Files edits a good GGUF file by what only files of Gemma 4 have.
func TestGemma4Files(t *testing.T) {
	set := func(key string, v gguf.Value) func(f *file) {
		return func(f *file) { f.set("gemma4."+key, v) }
	}
	for name, c := range map[string]struct {
		edit  func(f *file)
		want  func(t *testing.T, c *models.Config)
		fails string
	}{
		"as it is":                   {edit: func(*file) {}, want: requireGemma4},
		"no factors":                 {edit: func(f *file) { f.drop("rope_freqs.weight") }, fails: "the tensor rope_freqs.weight is missing"},
		"scaled":                     {edit: set("rope.scaling.type", gguf.String("yarn")), fails: "the tensor rope_freqs.weight scales RoPE beside YaRN"},
		"no pattern":                 {edit: func(f *file) { f.unset("gemma4.attention.sliding_window_pattern") }, fails: "gemma4.attention.sliding_window_pattern is missing"},
		"values of other sizes":      {edit: set("attention.value_length_swa", gguf.Uint32(8)), fails: "gemma4.attention.value_length_swa is 8, not 4"},
		"one layer to read":          {edit: set("attention.shared_kv_layers", gguf.Uint32(2)), fails: "2 layers of 3 read the keys and values of earlier ones, which must be two or more"},
		"layers in another order":    {edit: set("attention.sliding_window_pattern", gguf.BoolArray([]bool{false, true, true})), fails: "layer 0 has no sliding window, or layer 1 has one"},
		"widths of two layers":       {edit: set("feed_forward_length", gguf.Uint32Array([]uint32{64, 128})), fails: "feed-forward widths are listed for 2 layers, the model has 3"},
		"no embeddings for layers":   {edit: set("embedding_length_per_layer_input", gguf.Uint32(0)), want: func(t *testing.T, c *models.Config) { require.Zero(t, c.PerLayer) }},
		"values in all layers":       {edit: func(f *file) { f.put("blk.1.attn_v.weight", ggufF32, 4*8*32, 8, 32) }, want: func(t *testing.T, c *models.Config) { require.False(t, c.KeyIsValue) }},
		"too long embeddings of all": {edit: set("embedding_length_per_layer_input", gguf.Uint32(1<<30)), fails: "embeddings of each layer have 1073741824 elements"},
	} {
		t.Run(name, func(t *testing.T) {
			f := fileOf(synthetic(t, small("gemma4"), "f32"))
			c.edit(f)
			requireOpens(t, f.write(t), c.want, c.fails)
		})
	}
	// A layer that reads others' keys and values may have its own, which nothing reads.
	f := fileOf(synthetic(t, small("gemma4"), "f32"))
	f.put("blk.2.attn_k.weight", ggufF32, 4*8*32, 8, 32)
	_, err := open(t, f.write(t)).Build(ir.Options{})
	require.NoError(t, err)
	f.put("blk.1.attn_v.bias", ggufF32, 4*8, 8)
	_, err = open(t, f.write(t)).Build(ir.Options{})
	require.ErrorContains(t, err, "blk.1.attn_v.bias is not part of such a model")
}

// TestGemma4Folders edits config.json.
func TestGemma4Folders(t *testing.T) {
	rope := func(kind string, window map[string]any) map[string]any {
		return map[string]any{"rope_parameters": map[string]any{
			"full_attention": map[string]any{"rope_type": kind, "rope_theta": 1e4, "partial_rotary_factor": 0.25}, "sliding_attention": window}}
	}
	plain := map[string]any{"rope_type": "default", "rope_theta": 1e3}
	for name, c := range map[string]struct {
		edit  map[string]any
		want  func(t *testing.T, c *models.Config)
		fails string
	}{
		"as it is":             {want: requireGemma4},
		"no types of layers":   {edit: map[string]any{"layer_types": nil}, fails: "layer_types is missing"},
		"not proportional":     {edit: rope("default", plain), fails: "RoPE of layers without a sliding window is not proportional"},
		"scaled windows":       {edit: rope("proportional", map[string]any{"rope_type": "linear", "rope_theta": 1e3, "factor": 2}), fails: "RoPE of layers with a sliding window is scaled"},
		"seen from both sides": {edit: map[string]any{"use_bidirectional_attention": "all"}, fails: `use_bidirectional_attention is "all"`},
		"pictures":             {edit: map[string]any{"use_bidirectional_attention": "vision"}, want: requireGemma4},
		"another vocabulary":   {edit: map[string]any{"vocab_size_per_layer_input": 90}, fails: "vocab_size_per_layer_input is 90, not 96"},
		"no mixture":           {edit: map[string]any{"enable_moe_block": false}, want: func(t *testing.T, c *models.Config) { require.Zero(t, c.Experts) }},
		"scaled": {edit: map[string]any{"rope_parameters": map[string]any{"full_attention": map[string]any{"rope_type": "proportional", "rope_theta": 1e4, "partial_rotary_factor": 0.25, "factor": 2.0},
			"sliding_attention": plain}}, want: func(t *testing.T, c *models.Config) {
			require.Equal(t, []float64{2, 1}, []float64{c.ByLayer[1].Rope.Linear, c.ByLayer[0].Rope.Linear})
		}},
		"narrow networks": {edit: map[string]any{"use_double_wide_mlp": false}, want: func(t *testing.T, c *models.Config) { require.Equal(t, 64, c.ByLayer[2].FFN) }},
	} {
		t.Run(name, func(t *testing.T) {
			config := small("gemma4")
			requireOpens(t, folder(t, config, randomWeights(synthetic(t, config, "f32")), c.edit), c.want, c.fails)
		})
	}
}

// TestGemma4Rope: RoPE of which a part of the pairs rotates cannot be scaled, but take another base.
func TestGemma4Rope(t *testing.T) {
	m := synthetic(t, small("gemma4"), "f32")
	require.ErrorContains(t, m.ChangeRope(0, models.RopeScaling{Kind: "linear", Factor: 2}), "RoPE that rotates 1 pairs of 4 cannot be scaled")
	require.NoError(t, m.ChangeRope(5e4, models.RopeScaling{}))
	require.Equal(t, []float64{5e4, 1e3}, []float64{m.Config.ByLayer[1].Rope.Theta, m.Config.ByLayer[0].Rope.Theta})
}

// TestSuppressed: tokens that a file or a folder names are never generated.
func TestSuppressed(t *testing.T) {
	c := small("llama")
	shape := synthetic(t, c, "f32")
	weights := randomWeights(shape)
	f := fileOf(shape)
	f.set(models.KeySuppressed, gguf.Int32Array([]int32{3, 7, 200, -1})) // the last are no tokens
	dir := folder(t, c, weights, nil)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "generation_config.json"), []byte(`{"suppress_tokens": [3, 7]}`), 0o644))
	for _, path := range []string{f.write(t), dir} {
		for token, logit := range prefill(t, open(t, path), []int32{5})[0] {
			require.Equal(t, token == 3 || token == 7, math.IsInf(logit, -1), token)
		}
	}
	written := checkpoint.Metadata(&open(t, dir).Config)
	require.Contains(t, written, gguf.KV{Key: models.KeySuppressed, Value: gguf.Int32Array([]int32{3, 7})})
}
