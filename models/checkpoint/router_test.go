package checkpoint_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/samber/lo"
	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/models/checkpoint"
	"github.com/smelt-ml/smelt/models/families"
	"github.com/smelt-ml/smelt/models/gguf"
	"github.com/smelt-ml/smelt/models/safetensors"
)

// TestRouterOfFolders has folders with a router that GGUF files of the family have no key for.
func TestRouterOfFolders(t *testing.T) {
	for family, normalised := range map[string]bool{"qwen3moe": false, "qwen35moe": false, "olmoe": true, "qwen2moe": true} {
		c := small(family)
		_, err := checkpoint.Open(folder(t, c, randomWeights(synthetic(t, c, "f32")), map[string]any{"norm_topk_prob": normalised}))
		require.ErrorContains(t, err, "the router has score softmax, normalised", family)
	}
}

// TestGuessingBlocks has a block of multi-token prediction behind the layers, which is not run and
// is kept in a file that is written anew.
func TestGuessingBlocks(t *testing.T) {
	c := small("qwen3")
	f := fileOf(synthetic(t, c, "f32"))
	ids := []int32{3, 1, 4, 1, 5}
	want := prefill(t, open(t, f.write(t)), ids)

	for _, s := range slices.Clone(f.tensors) {
		if name, ok := strings.CutPrefix(s.Name, "blk.0."); ok {
			s.Name = "blk.1." + name
			f.tensors = append(f.tensors, s)
		}
	}
	f.put("blk.1.nextn.eh_proj.weight", ggufF32, 4*c.Width*2*c.Width, int64(2*c.Width), int64(c.Width))
	f.set("qwen3.block_count", gguf.Uint32(2))
	f.set("qwen3.nextn_predict_layers", gguf.Uint32(1))
	m := open(t, f.write(t))
	require.Equal(t, 1, m.Config.Layers)
	requireSame(t, want, prefill(t, m, ids))
	_, kept, err := m.Rewrite("q8_0")
	require.NoError(t, err)
	names := lo.Map(kept, func(r checkpoint.Rewritten, _ int) string { return r.Name })
	require.Subset(t, names, []string{"blk.1.attn_q.weight", "blk.1.nextn.eh_proj.weight"})

	f.unset("qwen3.nextn_predict_layers")
	f.set("qwen3.block_count", gguf.Uint32(1))
	_, err = open(t, f.write(t)).Build(ir.Options{})
	require.ErrorContains(t, err, "blk.1.nextn.eh_proj.weight is not part of such a model")
}

// TestGuessingBlocksOfFolders has a block behind the layers in a folder.
func TestGuessingBlocksOfFolders(t *testing.T) {
	c := small("qwen3")
	weights := randomWeights(synthetic(t, c, "f32"))
	ids := []int32{3, 1, 4, 1, 5}
	want := prefill(t, open(t, folder(t, c, weights, nil)), ids)
	with := func(blocks int) string {
		family, err := families.ByName("family", c.Family)
		require.NoError(t, err)
		tensors := append(inFolder(synthetic(t, c, "f32"), family, weights),
			safetensors.TensorWriter{Name: "model.layers.1.eh_proj.weight", DType: dtype.F32, Shape: []int64{1}, Write: writer([]float32{1})})
		return replaceTensors(t, folder(t, c, weights, map[string]any{"num_nextn_predict_layers": blocks}), tensors)
	}
	m := open(t, with(1))
	require.Equal(t, 1, m.Config.Layers)
	requireSame(t, want, prefill(t, m, ids))
	_, kept, err := m.Rewrite("q8_0")
	require.NoError(t, err)
	require.NotContains(t, lo.Map(kept, func(r checkpoint.Rewritten, _ int) string { return r.Name }), "model.layers.1.eh_proj.weight")
	_, err = open(t, with(0)).Build(ir.Options{})
	require.ErrorContains(t, err, "model.layers.1.eh_proj.weight is not part of such a model")
}

// TestEqualByLayer has sizes given for each layer, matrices and vectors with outermost extents of 1,
// and a vocab_size that the embedding table contradicts.
func TestEqualByLayer(t *testing.T) {
	f := fileOf(synthetic(t, small("llama"), "f32"))
	ids := []int32{3, 1, 4, 1, 5}
	want := prefill(t, open(t, f.write(t)), ids)
	f.set("llama.attention.head_count_kv", gguf.Uint32Array([]uint32{2}))
	f.set("llama.attention.head_count", gguf.Int32Array([]int32{6}))
	f.set("llama.attention.layer_norm_rms_epsilon", gguf.Float32Array([]float32{1e-5}))
	f.set("llama.vocab_size", gguf.Uint32(5))
	for i, s := range f.tensors {
		f.tensors[i].Shape = append(slices.Repeat([]int64{1}, 4-len(s.Shape)), s.Shape...)
	}
	m := open(t, f.write(t))
	require.Equal(t, 96, m.Config.Vocab)
	requireSame(t, want, prefill(t, m, ids))
}

// TestSectionsOfGLM4 has a file of GLM-4.1V, whose pairs are half the rotated part apart.
func TestSectionsOfGLM4(t *testing.T) {
	f := fileOf(synthetic(t, small("glm4"), "f32"))
	require.True(t, open(t, f.write(t)).Config.Rope.Interleaved)
	f.set("glm4.rope.dimension_sections", gguf.Int32Array([]int32{2, 1, 1, 0}))
	require.False(t, open(t, f.write(t)).Config.Rope.Interleaved)
}

// TestUnsaidScore has files that do not name the function by which experts are scored.
func TestUnsaidScore(t *testing.T) {
	for _, want := range []ir.RouterScore{ir.SoftmaxScore, ir.SigmoidScore} {
		c := small("deepseek2")
		if want == ir.SigmoidScore { // the sizes of GLM-4.7-Flash
			c.Layers, c.Vocab = 47, 154880
		}
		f := fileOf(synthetic(t, c, "f32"))
		f.unset("deepseek2.expert_gating_func")
		require.Equal(t, want, open(t, f.write(t)).Config.Experts.Router.Score)
	}
}
