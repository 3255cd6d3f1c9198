package checkpoint_test

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/samber/lo"
	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/models"
	"github.com/smelt-ml/smelt/models/checkpoint"
	"github.com/smelt-ml/smelt/models/families"
	"github.com/smelt-ml/smelt/models/gguf"
	"github.com/smelt-ml/smelt/models/quantize"
)

func latentFamily() *models.Family {
	family, _ := lo.Find(families.All(), func(f models.Family) bool { return f.Name == "deepseek2" })
	return &family
}

// apart are the weights of a model whose products for K and V are one, as files have them that
// have two: a matrix for each head, of which that of K is transposed.
func apart(c models.Config, weights map[string][]float32) map[string][]float32 {
	out := make(map[string][]float32)
	rank, rest, value := c.Latent.KV, c.Head-c.Rope.Rotated, c.Latent.Value
	for name, x := range weights {
		out[name] = x
		layer, ok := strings.CutSuffix(name, "attn_kv_b.weight")
		if !ok {
			continue
		}
		k, v := make([]float32, c.Heads*rank*rest), []float32{}
		for h := range c.Heads {
			head := x[h*(rest+value)*rank:][:(rest+value)*rank]
			for j := range rest {
				for i := range rank {
					k[(h*rank+i)*rest+j] = head[j*rank+i]
				}
			}
			v = append(v, head[rest*rank:]...)
		}
		out[layer+"attn_k_b.weight"], out[layer+"attn_v_b.weight"] = k, v
	}
	return out
}

// TestLatentForms: files that have the products for K and V as one give the logits of those that
// have two, and of folders; Q may be a product of a vector of its own.
func TestLatentForms(t *testing.T) {
	for _, query := range []int{0, 20} {
		t.Run(fmt.Sprint(query), func(t *testing.T) {
			c := small("deepseek2")
			c.Latent.Query = query
			_, joined := requireForms(t, c, latentFamily(), nil)
			require.True(t, joined.Config.Latent.Joined)
			weights := apart(c, randomWeights(synthetic(t, c, "f32")))
			c.Latent.Joined = false
			f := fileOf(synthetic(t, c, "f32"))
			for i, s := range f.tensors {
				f.tensors[i].Write = writer(weights[s.Name])
			}
			split := open(t, f.write(t))
			require.False(t, split.Config.Latent.Joined)
			require.Equal(t, query, split.Config.Latent.Query)
			for _, name := range []string{"attn_k_b.weight", "attn_v_b.weight"} {
				require.True(t, lo.ContainsBy(split.Tensors(), func(w checkpoint.Tensor) bool { return w.Name == "blk.1."+name }))
			}
			ids := []int32{3, 1, 4, 1, 5, 9, 2, 6}
			requireSame(t, prefill(t, joined, ids), prefill(t, split, ids))

			c.Latent.Joined = true // a file that has both says what heads are as older ones do
			both := fileOf(synthetic(t, c, "f32"))
			for _, s := range f.tensors {
				if strings.Contains(s.Name, "attn_k_b") || strings.Contains(s.Name, "attn_v_b") {
					both.tensors = append(both.tensors, s)
				}
			}
			requireSame(t, prefill(t, joined, ids), prefill(t, open(t, both.write(t)), ids))
		})
	}
}

func latentFolder(t *testing.T, edit map[string]any) string {
	c := small("deepseek2")
	return folder(t, c, randomWeights(synthetic(t, c, "f32")), edit)
}

// TestLatentFolder has a folder written as a GGUF file.
func TestLatentFolder(t *testing.T) {
	from := open(t, latentFolder(t, nil))
	path := filepath.Join(t.TempDir(), "model.gguf")
	f, err := os.Create(path)
	require.NoError(t, err)
	_, err = quantize.Write(context.Background(), f, from, "f32", nil)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	ids := []int32{3, 1, 4, 1, 5, 9, 2, 6}
	requireSame(t, prefill(t, from, ids), prefill(t, open(t, path), ids))
}

// TestLatentStrength: YaRN of two strengths that are one leaves cosine and sine as they are, and
// scores grow by its square.
func TestLatentStrength(t *testing.T) {
	scaling := func(strength, ofAll float64) map[string]any {
		return map[string]any{"rope_scaling": map[string]any{"type": "yarn", "factor": 40, "beta_fast": 32, "beta_slow": 1,
			"original_max_position_embeddings": 64, "mscale": strength, "mscale_all_dim": ofAll}}
	}
	c := small("deepseek2")
	c.Rope.YaRN = &models.YaRNRope{Factor: 40, FastBeta: 32, SlowBeta: 1, OldContext: 64, Magnitude: 1}
	c.Rope.Scores = math.Pow(models.YaRNMagnitude(40, 0.707), 2)
	fromFolder, fromFile := requireForms(t, c, latentFamily(), scaling(0.707, 0.707))
	for _, m := range []*checkpoint.Checkpoint{fromFolder, fromFile} {
		y := m.Config.Rope.YaRN
		require.InDelta(t, 1, y.Magnitude, 0)
		require.InDelta(t, math.Pow(0.0707*math.Log(40)+1, 2)/4, m.Config.AttentionScale, 1e-6)
	}
	require.NoError(t, fromFile.ChangeRope(0, models.RopeScaling{Kind: "none"}))
	require.Zero(t, fromFile.Config.AttentionScale)
	other := open(t, latentFolder(t, scaling(1, 0.707))).Config.Rope
	require.InDelta(t, (0.1*math.Log(40)+1)/(0.0707*math.Log(40)+1), other.YaRN.Magnitude, 1e-12)
	magnitude, strength := other.InFile()
	again := models.Rope{YaRN: &models.YaRNRope{Factor: 40}}
	again.FromFile(magnitude, strength)
	require.InDelta(t, other.YaRN.Magnitude, again.YaRN.Magnitude, 1e-12)
	require.InDelta(t, other.Scores, again.Scores, 1e-6)
}

// TestLatentScaling: in GGUF files any scaling of positions makes scores grow, as llama.cpp computes it,
// in folders only YaRN with a strength does. What a folder says can be said in a file.
func TestLatentScaling(t *testing.T) {
	growth := 0.1*math.Log(4) + 1
	strong := func(by float64) float64 { return 10*by*(growth-1) + 1 }
	for _, c := range []struct {
		kind                string
		magnitude, strength float64
		scores, of          float64
	}{
		{"linear", 1, 0, growth * growth, 1}, {"linear", 1.25, 0, math.Pow(1.25*growth, 2), 1.25},
		{"linear", 1, 0.05, math.Pow(growth*strong(0.05), 2), 1},
		{"yarn", 1, 0, growth * growth, growth}, {"yarn", 1.25, 0, math.Pow(1.25*growth, 2), 1.25 * growth},
		{"yarn", 1, 0.05, math.Pow(strong(0.05), 2), 1}, {"yarn", 1.25, 0.1, math.Pow(1.25*growth, 2), 1.25},
	} {
		f := fileOf(synthetic(t, small("deepseek2"), "f32"))
		f.set("deepseek2.rope.scaling.type", gguf.String(c.kind))
		f.set("deepseek2.rope.scaling.factor", gguf.Float32(4))
		f.set("deepseek2.rope.scaling.attn_factor", gguf.Float32(float32(c.magnitude)))
		if c.strength != 0 {
			f.set("deepseek2.rope.scaling.yarn_log_multiplier", gguf.Float32(float32(c.strength)))
		}
		m := open(t, f.write(t))
		require.InDelta(t, c.scores/math.Sqrt(float64(m.Config.Head)), m.Config.AttentionScale, 1e-6, c)
		_, magnitude := m.Config.Rope.Table()
		require.InDelta(t, c.of, magnitude, 1e-6, c)
	}
	for _, scaling := range []map[string]any{{"type": "linear", "factor": 4}, {"type": "yarn", "factor": 4, "original_max_position_embeddings": 64}} {
		require.Zero(t, open(t, latentFolder(t, map[string]any{"rope_scaling": scaling})).Config.AttentionScale)
	}
}

// TestDeepseek2Refuses is what DeepSeek-V3 and others of its kind have, and what does not fit.
func TestDeepseek2Refuses(t *testing.T) {
	key := func(name string, v gguf.Value) func(f *file) {
		return func(f *file) { f.set("deepseek2."+name, v) }
	}
	for want, edit := range map[string]func(f *file){
		"deepseek2.expert_gating_func: no router has the number 9": key("expert_gating_func", gguf.Uint32(9)),
		"the number of groups a token chooses from is 0":           key("expert_group_count", gguf.Uint32(5)),
		"2 of 5 experts cannot be chosen from 1 of 2 groups": func(f *file) {
			f.set("deepseek2.expert_group_count", gguf.Uint32(2))
			f.set("deepseek2.expert_group_used_count", gguf.Uint32(1))
		},
		"nextn_predict_layers is 2 of 2 blocks, which leaves no layer": key("nextn_predict_layers", gguf.Uint32(2)),
		`"deepseek2.attention.temperature_length" is missing`:          key("attention.temperature_scale", gguf.Float32(0.1)),
		"values of 17 elements, more than the 16 of keys":              key("attention.value_length", gguf.Uint32(17)),
		"RoPE of 16 elements of a head of 16 leaves none":              key("rope.dimension_count", gguf.Uint32(16)),
		"the rank of K and V is 0":                                     key("attention.kv_lora_rank", gguf.Uint32(0)),
		"the number of layers without experts is 1025":                 key("leading_dense_block_count", gguf.Uint32(1025)),
		`"deepseek2.expert_count" is missing`:                          func(f *file) { f.unset("deepseek2.expert_count") },
		`"deepseek2.attention.key_length" is missing`:                  func(f *file) { f.unset("deepseek2.attention.key_length") },
		`"deepseek2.attention.key_length_mla" is missing`:              func(f *file) { f.drop("blk.0.attn_kv_b.weight") },
		`tensor "blk.0.attn_kv_b.weight" is [120 16], want [126`:       key("attention.value_length", gguf.Uint32(13)),
	} {
		t.Run(want, func(t *testing.T) {
			f := fileOf(synthetic(t, small("deepseek2"), "f32"))
			edit(f)
			path := f.write(t)
			_, err := checkpoint.Open(path)
			require.ErrorContains(t, err, want)
			require.ErrorContains(t, err, path)
		})
	}
	for want, edit := range map[string]map[string]any{
		"scoring_func: no router scores experts by linear": {"scoring_func": "linear"},
		`topk_method is "group_limited_greedy"; known are`: {"topk_method": "group_limited_greedy"},
		"2 of 5 experts cannot be chosen from 4 of 8":      {"n_group": 8, "topk_group": 4},
		"moe_layer_freq is 2, not 1":                       {"moe_layer_freq": 2},
		"attention_bias is true, not false":                {"attention_bias": true},
	} {
		t.Run(want, func(t *testing.T) {
			path := latentFolder(t, edit)
			_, err := checkpoint.Open(path)
			require.ErrorContains(t, err, want)
			require.ErrorContains(t, err, path)
		})
	}
	f := fileOf(synthetic(t, small("deepseek2"), "f32"))
	f.put("blk.1.ffn_up.bias", ggufF32, 4*5, 5)
	f.drop("blk.1.attn_kv_b.weight")
	_, err := open(t, f.write(t)).Build(ir.Options{})
	require.ErrorContains(t, err, "blk.1.ffn_up.bias is not part of such a model")
	require.ErrorContains(t, err, "blk.1.attn_v_b.weight")
}

// TestLatentMixtures has the types that llama.cpp's quantizer gives, by the rows that files have.
func TestLatentMixtures(t *testing.T) {
	lite, err := checkpoint.Arch("deepseek-v2-lite", "q4_k_m")
	require.NoError(t, err)
	c := lite.Config
	c.Latent.Joined = true
	joined := synthetic(t, c, "q4_k_m")
	for name, want := range map[string]dtype.Type{
		"attn_q.weight": dtype.Q4_K, "attn_kv_a_mqa.weight": dtype.Q4_K, "attn_k_b.weight": dtype.Q5_0, "attn_v_b.weight": dtype.Q4_K, "attn_kv_b.weight": dtype.Q6_K,
		"ffn_gate_shexp.weight": dtype.Q4_K, "ffn_down_exps.weight": dtype.Q8_0, "ffn_gate_inp.weight": dtype.F32,
	} {
		w, ok := lo.Find(slices.Concat(lite.Tensors(), joined.Tensors()), func(w checkpoint.Tensor) bool { return w.Name == "blk.1."+name })
		require.True(t, ok, name)
		require.Equal(t, want, w.DType, name)
	}
	w, _ := joined.Tensor("blk.1.attn_k_b.weight")
	require.Equal(t, dtype.F16, w.DType, "blocks along the other axis")
}
