package checkpoint_test

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/samber/lo"
	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/ref"
	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/internal/tiny"
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/models"
	"github.com/smelt-ml/smelt/models/checkpoint"
	"github.com/smelt-ml/smelt/models/families"
	"github.com/smelt-ml/smelt/models/gguf"
	"github.com/smelt-ml/smelt/models/quant"
	"github.com/smelt-ml/smelt/models/safetensors"
)

// The types that tests write.
var (
	ggufF32, _ = gguf.TypeOf(dtype.F32)
	ggufI32, _ = gguf.TypeOf(dtype.I32)
)

// small is a model of one layer whose sizes are all different.
func small(family string) models.Config {
	c := models.Config{
		Family: family, Name: "small", Vocab: 96, Width: 32, Layers: 1, Heads: 6, KVHeads: 2, Head: 8, FFN: 64,
		Context: 128, Eps: 1e-5, Rope: models.Rope{Theta: 1e4},
	}
	switch family {
	case "cohere2":
		c.LogitScale, c.Tied = 0.5, true
	case "granite":
		c.LogitDivisor = 0.5
	case "muse-glimmer":
		c.LogitScale, c.LogitCap = 0.5, 3
	case "minicpm":
		c.EmbeddingScale, c.ResidualScale, c.LogitDivisor = 3, 0.5, 4
	case "phimoe":
		c.FFN, c.Biases.QKV, c.Experts = 24, true, models.Experts{Count: 5, Chosen: 2}
	case "minicpm3":
		c.KVHeads, c.Head, c.Rope.Rotated = c.Heads, 16, 8
		c.Latent = models.Latent{Query: 20, KV: 16, Value: 12, Joined: true}
	case "granitemoe":
		c.LogitDivisor, c.FFN = 0.5, 24
		c.Experts = models.Experts{Count: 5, Chosen: 2, Shared: 40}
	case "gemma4":
		c.Tied, c.Layers, c.Window, c.Windowed, c.Sharing = true, 3, 5, []bool{true, false, true}, 1
		c.WindowHead, c.KVCounts, c.FFNs, c.PerLayer, c.KeyIsValue = 4, []int{2, 1, 2}, []int{64, 64, 128}, 12, true
		c.WindowRope, c.Experts = models.Rope{Theta: 1e3}, models.Experts{Count: 5, Chosen: 2, FFN: 24}
	case "gemma", "gemma2", "gemma3", "command-r":
		c.Tied = true
	case "gpt2", "gptneox":
		c.KVHeads = c.Heads
	case "bert", "nomic-bert":
		c.KVHeads, c.Width, c.TokenTypes = c.Heads, c.Heads*c.Head, 2
	case "gemma-embedding":
		c.Tied, c.Dense = true, 48
	case "mpt":
		c.ALiBi = 8
	case "qwen2vl", "qwen3vl":
		c.Sections = []int{2, 1, 1, 0}
	case "qwen3vlmoe":
		c.Sections = []int{2, 1, 1, 0}
		c.Experts = models.Experts{Count: 5, Chosen: 2, FFN: 24}
	case "qwen3moe", "olmoe":
		c.Experts = models.Experts{Count: 5, Chosen: 2, FFN: 24}
	case "gpt-oss":
		c.Experts = models.Experts{Count: 5, Chosen: 2, FFN: 64}
	case "qwen2moe":
		c.Experts = models.Experts{Count: 5, Chosen: 2, FFN: 24, Shared: 40}
	case "qwen35":
		c.Layers, c.Taps, c.Recurrent, c.Sections = 2, 4, []bool{true, false}, []int{2, 1, 1, 0}
		c.Delta = models.Delta{Heads: 4, KeyHeads: 2, Head: 8}
	case "qwen35moe":
		c.Layers, c.Taps, c.Recurrent, c.Sections = 2, 4, []bool{true, false}, []int{2, 1, 1, 0}
		c.Delta = models.Delta{Heads: 4, KeyHeads: 2, Head: 8}
		c.Experts = models.Experts{Count: 5, Chosen: 2, FFN: 24, Shared: 40}
	case "qwen3next":
		c.Layers, c.Taps, c.Recurrent = 2, 4, []bool{true, false}
		c.Delta = models.Delta{Heads: 4, KeyHeads: 2, Head: 8}
		c.Experts = models.Experts{Count: 5, Chosen: 2, FFN: 24, Shared: 40}
	case "lfm2":
		c.Layers, c.Taps, c.Recurrent = 2, 3, []bool{true, false}
	case "lfm2moe":
		c.Layers, c.Taps, c.Recurrent = 2, 3, []bool{true, false}
		c.Experts = models.Experts{Count: 5, Chosen: 2, FFN: 24, Dense: 1}
	case "mamba2":
		c.Heads, c.KVHeads, c.Head, c.FFN, c.Context, c.Rope = 0, 0, 0, 0, 1<<20, models.Rope{}
		c.Taps, c.Mamba = 4, models.Mamba{Heads: 8, Head: 8, Groups: 2, States: 12}
	case "granitehybrid":
		c.LogitDivisor, c.FFN = 0.5, 24
		c.Layers, c.Taps, c.Recurrent, c.Mamba = 2, 4, []bool{false, true}, models.Mamba{Heads: 8, Head: 8, Groups: 1, States: 12}
		c.Experts = models.Experts{Count: 5, Chosen: 2, Shared: 40}
	case "falcon-h1":
		c.Taps, c.Mamba = 4, models.Mamba{Heads: 8, Head: 8, Groups: 2, States: 12}
	case "plamo2":
		c.Layers, c.Taps, c.Recurrent, c.Mamba = 2, 4, []bool{true, false}, models.Mamba{Heads: 8, Head: 8, Groups: 1, States: 12}
	case "nemotron_h", "nemotron_h_moe":
		c.Layers, c.Rope, c.Recurrent, c.Networks = 3, models.Rope{}, []bool{true, false, false}, []bool{false, false, true}
		c.Taps, c.Mamba = 4, models.Mamba{Heads: 8, Head: 8, Groups: 2, States: 12}
		if family == "nemotron_h_moe" {
			c.FFN, c.Experts = 24, models.Experts{Count: 5, Chosen: 2, FFN: 24, Shared: 40, Latent: 20}
		}
	case "glm4moe":
		c.Layers, c.Experts = 2, models.Experts{Count: 5, Chosen: 2, FFN: 24, Shared: 48, Dense: 1}
	case "bailingmoe2", "afmoe":
		c.Layers, c.Experts = 2, models.Experts{Count: 5, Chosen: 2, FFN: 24, Shared: 48, Dense: 1}
	case "laguna":
		c.Layers, c.Experts = 2, models.Experts{Count: 5, Chosen: 2, FFN: 24, Shared: 40, Dense: 1}
		c.Window, c.Windowed, c.HeadCounts, c.WindowRope = 5, []bool{false, true}, []int{4, 6}, models.Rope{Theta: 1e3, Rotated: 4}
	case "cohere2moe":
		c.LogitScale, c.Tied, c.RMS = 0.5, true, true
		c.Layers, c.Experts = 2, models.Experts{Count: 5, Chosen: 2, FFN: 24, Shared: 48, Dense: 1}
	case "ernie4_5-moe":
		c.Layers, c.Experts = 2, models.Experts{Count: 5, Chosen: 2, FFN: 24, Shared: 48, Dense: 1}
	case "minimax-m2":
		c.FFN, c.Experts = 24, models.Experts{Count: 5, Chosen: 2, FFN: 24}
	case "deepseek2": // as folders have it
		c.Layers, c.KVHeads, c.Head, c.Rope.Rotated = 2, c.Heads, 16, 8
		c.Latent = models.Latent{KV: 16, Value: 12, Joined: true}
		c.Experts = models.Experts{Count: 5, Chosen: 2, FFN: 24, Shared: 48, Dense: 1, Router: models.Router{Scale: 1.5}}
	}
	switch family {
	case "gemma3", "olmo2":
		c.Window, c.Windowed = 5, []bool{false}
	case "gemma2", "cohere2", "phi3", "starcoder2", "gpt-oss", "muse-glimmer":
		c.Window, c.Windowed = 5, []bool{true}
	case "afmoe", "cohere2moe":
		c.Window, c.Windowed = 5, []bool{true, true}
	}
	return c
}

// long has factors for texts of up to 64 tokens, and for longer ones.
func long(pairs int) *models.LongRope {
	factors := func(by float64) []float64 { return lo.Times(pairs, func(i int) float64 { return 1 + by*float64(i) }) }
	return &models.LongRope{Short: factors(0.25), Long: factors(2), OldContext: 64, Magnitude: 1.25}
}

// stretched is a scaling under which the four pairs of a head of 8 get factors
// 1, something in between, and 8 twice.
func stretched() *models.Llama3Rope {
	return &models.Llama3Rope{Factor: 8, LowFrequency: 1, HighFrequency: 4, OldContext: 128}
}

func synthetic(t testing.TB, c models.Config, weightType string) *checkpoint.Checkpoint {
	m, err := checkpoint.Synthetic(c, weightType)
	require.NoError(t, err)
	return m
}

// randomWeights makes data for a synthetic F32 model.
func randomWeights(m *checkpoint.Checkpoint) map[string][]float32 {
	rng := rand.New(rand.NewPCG(11, 12))
	weights := make(map[string][]float32)
	for _, w := range m.Tensors() {
		data := make([]float32, w.Elements())
		for i := range data {
			data[i] = float32(math.Round(rng.NormFloat64()*0x1p18) / 0x1p20) // less one and more again it is the same
		}
		if strings.HasSuffix(w.Name, ".ssm_a") { // of which folders have logarithms
			for i := range data {
				data[i] = -[]float32{1, 2, 0.5, 1.5}[i%4]
			}
		}
		if w.Data != nil { // RoPE factors
			for i := range data {
				data[i] = math.Float32frombits(binary.LittleEndian.Uint32(w.Data[4*i:]))
			}
		}
		if m.Config.Family == "muse-glimmer" { // whose folders do not have these
			if _, role, _, _ := models.InLayer(w.Name); role == "attn_q_norm" || role == "attn_k_norm" {
				data = slices.Repeat([]float32{lo.Ternary[float32](role == "attn_q_norm", 3.87, 1)}, len(data))
			}
		}
		weights[w.Name] = data
	}
	return weights
}

func writer(data []float32) func(w io.Writer) error {
	return func(w io.Writer) error { return binary.Write(w, binary.LittleEndian, data) }
}

func wide(shape []int) []int64 {
	out := make([]int64, len(shape))
	for i, d := range shape {
		out[i] = int64(d)
	}
	return out
}

// file is a GGUF file in the making.
type file struct {
	metadata []gguf.KV
	tensors  []gguf.TensorWriter
}

func fileOf(m *checkpoint.Checkpoint) *file {
	f := &file{metadata: checkpoint.Metadata(&m.Config)}
	weights := randomWeights(m)
	for _, t := range m.Tensors() {
		f.tensors = append(f.tensors, gguf.TensorWriter{Name: t.Name, Type: ggufF32, Shape: wide(t.Shape), Write: writer(weights[t.Name])})
	}
	return f
}

// set replaces a metadata entry, or adds it.
func (f *file) set(key string, v gguf.Value) {
	f.unset(key)
	f.metadata = append(f.metadata, gguf.KV{Key: key, Value: v})
}

func (f *file) unset(key string) {
	f.metadata = slices.DeleteFunc(f.metadata, func(kv gguf.KV) bool { return kv.Key == key })
}

func (f *file) drop(name string) {
	f.tensors = slices.DeleteFunc(f.tensors, func(t gguf.TensorWriter) bool { return t.Name == name })
}

// put replaces a tensor, or adds it, with zeros.
func (f *file) put(name string, typ gguf.TensorType, bytes int, shape ...int64) {
	f.drop(name)
	f.tensors = append(f.tensors, gguf.TensorWriter{Name: name, Type: typ, Shape: shape, Write: func(w io.Writer) error {
		_, err := w.Write(make([]byte, bytes))
		return err
	}})
}

func (f *file) write(t testing.TB) string {
	path := filepath.Join(t.TempDir(), "model.gguf")
	require.NoError(t, gguf.WriteFile(path, f.metadata, f.tensors))
	return path
}

// TestWrittenModels writes shapes with random weights and opens them: the
// configuration comes back, and the graph is the same.
func TestWrittenModels(t *testing.T) {
	for _, edit := range []func(c *models.Config){
		func(c *models.Config) {},
		func(c *models.Config) { c.Tied = true },
		func(c *models.Config) { c.Rope.Linear = 4 },
		func(c *models.Config) { c.Rope.Rotated = 4 },
		func(c *models.Config) { c.Rope.Llama3 = stretched() },
		func(c *models.Config) { c.Rope.Long = long(cmp.Or(c.Rope.Rotated, c.Head) / 2) },
	} {
		for _, family := range families.All() {
			c := small(family.Name)
			if edit(&c); c.Family == "gemma4" && (c.Rope.Llama3 != nil || c.Rope.Long != nil) {
				continue // it has factors of its own
			}
			m := synthetic(t, c, "f32")
			opened := open(t, fileOf(m).write(t))
			want := m.Config
			if want.Rope == (models.Rope{}) && (c.Rope.Llama3 != nil || c.Rope.Long != nil) {
				continue // nothing rotates
			}
			want.Rope = inTensors(want.Rope)
			want.ByLayer = slices.Clone(want.ByLayer)
			for i := range want.ByLayer {
				if l := &want.ByLayer[i]; l.Rope != nil {
					l.Rope = new(inTensors(*l.Rope))
				}
			}
			require.Equal(t, want, opened.Config, family.Name)
			require.True(t, opened.HasWeights())
			require.False(t, m.HasWeights())
			wantGraph, err := m.Build(ir.Options{})
			require.NoError(t, err, family.Name)
			graph, err := opened.Build(ir.Options{})
			require.NoError(t, err)
			require.Equal(t, wantGraph.String(), graph.String())
			_, err = opened.Tokenizer()
			require.ErrorContains(t, err, opened.Path, "there is no vocabulary in it")
		}
	}
}

// inTensors is RoPE as the metadata of a GGUF file have it: factors are tensors there.
func inTensors(r models.Rope) models.Rope {
	r.Llama3 = nil
	if r.Long != nil {
		r.Long = &models.LongRope{OldContext: r.Long.OldContext, Magnitude: r.Long.Magnitude}
	}
	return r
}

// TestNoWindows: files of Gemma 3 may have no windows, those of Gemma 2 need not say theirs.
func TestNoWindows(t *testing.T) {
	for family, want := range map[string]int{"gemma3": 0, "gemma2": 4096} {
		f := fileOf(synthetic(t, small(family), "f32"))
		f.unset(family + ".attention.sliding_window")
		require.Equal(t, want, open(t, f.write(t)).Config.Window)
	}
}

// TestMisfits opens a file in which everything is wrong: all of it is reported.
func TestMisfits(t *testing.T) {
	f := fileOf(synthetic(t, small("llama"), "f32"))
	f.drop("blk.0.attn_k.weight")
	f.drop("output_norm.weight")
	f.put("blk.0.attn_v.weight", ggufF32, 4*32*16, 32, 16) // columns and rows swapped
	f.put("blk.0.attn_rel.bias", ggufF32, 4*48, 48)
	f.put("blk.1.attn_q.weight", ggufF32, 4*48*32, 48, 32) // of a layer that there is not
	f.put("blk.0.ffn_up.weight", ggufI32, 4*64*32, 64, 32)
	f.put("blk.0.attn_output.weight", gguf.TensorType(40), 32*64/64*36, 32, 64) // also misshapen
	f.put("blk.0.attn_rot_embd.weight", ggufF32, 16, 4)                         // ignorable
	m := open(t, f.write(t))
	_, err := m.Build(ir.Options{})
	var weights *ir.WeightError
	require.ErrorAs(t, err, &weights)
	require.Equal(t, []string{"blk.0.attn_k.weight", "output_norm.weight"}, weights.Missing)
	require.Equal(t, []string{"blk.0.attn_v.weight is [32 16], want [16 32]", "blk.0.attn_output.weight is [32 64], want [32 48]"}, weights.Misshapen)
	var tensors *checkpoint.TensorError
	require.ErrorAs(t, err, &tensors)
	require.Equal(t, []string{"blk.0.attn_rel.bias", "blk.1.attn_q.weight"}, tensors.Surplus)
	require.Equal(t, []string{"blk.0.ffn_up.weight is I32", "blk.0.attn_output.weight is NVFP4"}, tensors.Unreadable)
	require.ErrorContains(t, err, m.Path)
	require.ErrorContains(t, err, "\n  blk.0.attn_rel.bias is not part of such a model")
}

// TestGGUFConfig edits the metadata of a good file.
func TestGGUFConfig(t *testing.T) {
	set := func(key string, v gguf.Value) func(f *file) {
		return func(f *file) { f.set(key, v) }
	}
	unset := func(keys ...string) func(f *file) {
		return func(f *file) {
			for _, key := range keys {
				f.unset(key)
			}
		}
	}
	for name, c := range map[string]struct {
		edit  func(f *file)
		fails string
		want  func(c *models.Config) // what changes
	}{
		"as it is":            {edit: unset()},
		"no name":             {edit: unset("general.name"), want: func(c *models.Config) { c.Name = "" }},
		"vocabulary by table": {edit: unset("llama.vocab_size")},
		"defaults": {edit: unset("llama.attention.head_count_kv", "llama.attention.key_length", "llama.attention.value_length", "llama.rope.freq_base", "llama.rope.dimension_count"),
			want: func(c *models.Config) { c.KVHeads, c.Head, c.Rope.Rotated = 6, 5, 5 }, fails: "RoPE rotates 5 elements of a head of 5"},
		"theta":              {edit: set("llama.rope.freq_base", gguf.Float32(5e5)), want: func(c *models.Config) { c.Rope.Theta = 5e5 }},
		"epsilon as written": {edit: set("llama.attention.layer_norm_rms_epsilon", gguf.Float32(1e-6)), want: func(c *models.Config) { c.Eps = 1e-6 }},
		"factor alone":       {edit: set("llama.rope.scaling.factor", gguf.Float32(4)), want: func(c *models.Config) { c.Rope.Linear = 4 }},
		"factor of 0":        {edit: set("llama.rope.scaling.factor", gguf.Float32(0))},
		"old factor":         {edit: set("llama.rope.scale_linear", gguf.Float32(2)), want: func(c *models.Config) { c.Rope.Linear = 2 }},
		"scaling none": {edit: func(f *file) {
			f.set("llama.rope.scaling.type", gguf.String("none"))
			f.set("llama.rope.scaling.factor", gguf.Float32(4))
		}},
		"no window": {edit: set("llama.attention.sliding_window", gguf.Uint32(0))},

		"yarn": {edit: func(f *file) {
			f.set("llama.rope.scaling.type", gguf.String("yarn"))
			f.set("llama.rope.scaling.factor", gguf.Float32(4))
			f.set("llama.rope.scaling.original_context_length", gguf.Uint32(64))
		}, want: func(c *models.Config) {
			c.Rope.YaRN = &models.YaRNRope{Factor: 4, FastBeta: 32, SlowBeta: 1, OldContext: 64}
		}},
		"yarn in the file's own words": {edit: func(f *file) {
			f.set("llama.rope.scaling.type", gguf.String("yarn"))
			f.set("llama.rope.scaling.factor", gguf.Float32(1))
			f.set("llama.rope.scaling.yarn_beta_fast", gguf.Float32(16))
			f.set("llama.rope.scaling.yarn_beta_slow", gguf.Float32(2))
			f.set("llama.rope.scaling.attn_factor", gguf.Float32(1.5))
		}, want: func(c *models.Config) {
			c.Rope.YaRN = &models.YaRNRope{Factor: 1, FastBeta: 16, SlowBeta: 2, OldContext: 128, Magnitude: 1.5}
		}},

		"yarn without factor": {edit: set("llama.rope.scaling.type", gguf.String("yarn")), want: func(c *models.Config) {
			c.Rope.YaRN = &models.YaRNRope{Factor: 1, FastBeta: 32, SlowBeta: 1, OldContext: 128}
		}},
		"yarn of a strength that Llama does not have": {edit: func(f *file) {
			f.set("llama.rope.scaling.type", gguf.String("yarn"))
			f.set("llama.rope.scaling.factor", gguf.Float32(4))
			f.set("llama.rope.scaling.yarn_log_multiplier", gguf.Float32(0.1))
		}, want: func(c *models.Config) {
			c.Rope.YaRN = &models.YaRNRope{Factor: 4, FastBeta: 32, SlowBeta: 1, OldContext: 128}
		}},
		"yarn by 0": {edit: func(f *file) {
			f.set("llama.rope.scaling.type", gguf.String("yarn"))
			f.set("llama.rope.scaling.factor", gguf.Float32(0))
		}, want: func(c *models.Config) {
			c.Rope.YaRN = &models.YaRNRope{Factor: 1, FastBeta: 32, SlowBeta: 1, OldContext: 128}
		}},
		"longrope":          {edit: set("llama.rope.scaling.type", gguf.String("longrope")), fails: "LongRoPE lacks the tensors rope_factors_short.weight and rope_factors_long.weight"},
		"linear and larger": {edit: set("llama.rope.scaling.attn_factor", gguf.Float32(2)), want: func(c *models.Config) { c.Rope.Magnitude = 2 }},
		"scaling by number": {edit: set("llama.rope.scaling.type", gguf.Uint32(1)), fails: `"llama.rope.scaling.type" is uint32, not string`},
		"negative factor":   {edit: set("llama.rope.scaling.factor", gguf.Float32(-1)), fails: "RoPE's scaling factor is -1"},
		"unknown family":    {edit: set("general.architecture", gguf.String("mamba")), fails: `general.architecture is "mamba"; known are llama, qwen3`},
		"no family":         {edit: unset("general.architecture"), fails: `"general.architecture" is missing`},
		"no layers":         {edit: unset("llama.block_count"), fails: `"llama.block_count" is missing`},
		"no epsilon":        {edit: unset("llama.attention.layer_norm_rms_epsilon"), fails: "layer_norm_rms_epsilon"},
		"epsilon of text":   {edit: set("llama.attention.layer_norm_rms_epsilon", gguf.String("x")), fails: "is string, not float"},
		"NaN":               {edit: set("llama.attention.layer_norm_rms_epsilon", gguf.Float32(float32(math.NaN()))), fails: "the norms' epsilon is NaN"},
		"infinite theta":    {edit: set("llama.rope.freq_base", gguf.Float32(float32(math.Inf(1)))), fails: "the base of RoPE's frequencies is +Inf"},
		"many layers":       {edit: set("llama.block_count", gguf.Uint32(1<<31)), fails: "the number of layers is 2147483647"},
		"no heads":          {edit: set("llama.attention.head_count", gguf.Uint32(0)), fails: "the number of heads is 0"},
		"heads by layer":    {edit: set("llama.attention.head_count_kv", gguf.Uint32Array([]uint32{2, 1})), fails: "llama.attention.head_count_kv differs from layer to layer"},
		"uneven heads":      {edit: set("llama.attention.head_count_kv", gguf.Uint32(4)), fails: "6 query heads cannot share 4 KV heads evenly"},
		"wide heads":        {edit: set("llama.attention.head_count", gguf.Uint32(1<<24)), fails: "16777216 heads of 8 elements"},
		"value heads":       {edit: set("llama.attention.value_length", gguf.Uint32(4)), fails: "llama.attention.value_length is 4, not 8"},
		"odd rotation":      {edit: set("llama.rope.dimension_count", gguf.Uint32(7)), fails: "RoPE rotates 7 elements of a head of 8"},
		"window": {edit: set("llama.attention.sliding_window", gguf.Uint32(64)), want: func(c *models.Config) {
			c.Window, c.Windowed = 64, []bool{true}
			c.ByLayer = []models.Layer{c.Layer(0)}
			c.ByLayer[0].Window = 64
		}},
		"experts": {edit: func(f *file) {
			f.set("llama.expert_count", gguf.Uint32(8))
			f.set("llama.expert_used_count", gguf.Uint32(2))
		}, want: func(c *models.Config) {
			c.Experts = models.Experts{Count: 8, Chosen: 2, FFN: 64, Router: models.Router{Score: ir.SoftmaxScore, Normalised: true}}
		}},
		"experts without choice": {edit: set("llama.expert_count", gguf.Uint32(8)), fails: "the number of experts a token goes to is 0"},
		"name by number":         {edit: set("general.name", gguf.Uint32(8)), fails: `"general.name" is uint32, not string`},
	} {
		t.Run(name, func(t *testing.T) {
			m := synthetic(t, small("llama"), "f32")
			f := fileOf(m)
			c.edit(f)
			path := f.write(t)
			opened, err := checkpoint.Open(path)
			if c.fails != "" {
				require.ErrorContains(t, err, c.fails)
				require.ErrorContains(t, err, path)
				return
			}
			require.NoError(t, err)
			defer opened.Close()
			want := m.Config
			if c.want != nil {
				c.want(&want)
			}
			require.Equal(t, want, opened.Config)
		})
	}
}

// TestTokenizerOfAnotherModel has more tokens than the embedding table has rows.
func TestTokenizerOfAnotherModel(t *testing.T) {
	vocabulary, err := gguf.Open(testfiles.Model(t, "tiny-llama/gguf/tiny-llama-F16.gguf"))
	require.NoError(t, err)
	defer vocabulary.Close()
	f := fileOf(synthetic(t, small("llama"), "f32"))
	for _, kv := range vocabulary.Metadata {
		if strings.HasPrefix(kv.Key, "tokenizer.") {
			f.set(kv.Key, kv.Value)
		}
	}
	_, err = open(t, f.write(t)).Tokenizer()
	require.ErrorContains(t, err, "the tokenizer has 512 tokens, the model 96")
}

func TestOpenErrors(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "model.txt")
	require.NoError(t, os.WriteFile(text, []byte("Once upon a time there was no model."), 0o644))
	for path, want := range map[string]string{
		filepath.Join(dir, "none.gguf"): "no such file",
		text:                            "not a GGUF file",
		dir:                             "config.json",
	} {
		_, err := checkpoint.Open(path)
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, path)
	}
	_, err := checkpoint.OpenTokenizer(filepath.Join(dir, "none.gguf"))
	require.ErrorContains(t, err, "no such file")
}

func TestOpenTokenizer(t *testing.T) {
	for name, path := range map[string]func(t *testing.T) string{
		"a family that we do not know": func(t *testing.T) string {
			return testfiles.Data(t, "tokenizers/ggml-vocab/ggml-vocab-gpt-2.gguf")
		},
		"file":             func(t *testing.T) string { return tiny.GGUF(t, "tiny-qwen3", "F16") },
		"vocabulary alone": func(t *testing.T) string { return tiny.Vocabulary(t, "tiny-qwen3") },
		"folder":           func(t *testing.T) string { return tiny.Folder(t, "tiny-llama") },
	} {
		t.Run(name, func(t *testing.T) {
			tok, err := checkpoint.OpenTokenizer(path(t))
			require.NoError(t, err)
			require.Equal(t, "time", strings.TrimSpace(string(tok.Decode(tok.Encode(" time", false), false))))
		})
	}
}

// folder writes a Hugging Face folder. edit changes config.json.
func folder(t testing.TB, c models.Config, weights map[string][]float32, edit map[string]any) string {
	family := families.All()[slices.IndexFunc(families.All(), func(f models.Family) bool { return f.Name == c.Family })]
	config := map[string]any{"architectures": []string{family.HF}, "model_type": c.Family, "rope_theta": c.Rope.Theta, "partial_rotary_factor": 1,
		"rotary_emb_base": c.Rope.Theta, "rotary_pct": 1}
	for _, f := range family.Fields {
		switch {
		case f.HF == "", f.Optional && (f.Size != nil && *f.Size(&c) == 0 || f.Number != nil && *f.Number(&c) == 0):
		case f.Size != nil:
			config[f.HF] = *f.Size(&c)
		case f.Number != nil:
			config[f.HF] = *f.Number(&c)
		case f.Flag != nil:
			config[f.HF] = *f.Flag(&c)
		case f.Only != nil:
			config[f.HF] = f.Only
		}
	}
	if c.Windowed != nil {
		config["layer_types"] = lo.Map(c.Windowed, func(window bool, _ int) string { return lo.Ternary(window, "sliding_attention", "full_attention") })
	}
	if c.Recurrent != nil {
		config["layer_types"] = lo.Map(c.Recurrent, func(recurs bool, _ int) string {
			return lo.Ternary(recurs, lo.Ternary(strings.HasPrefix(c.Family, "lfm2"), "conv", "linear_attention"), "full_attention")
		})
		if c.Family == "granitehybrid" {
			config["position_embedding_type"] = "rope"
			config["layer_types"] = lo.Map(c.Recurrent, func(recurs bool, _ int) string { return lo.Ternary(recurs, "mamba", "attention") })
		}
		if c.Networks != nil {
			config["hybrid_override_pattern"] = strings.Join(lo.Times(c.Layers, func(i int) string {
				return lo.Ternary(c.Recurrent[i], "M", lo.Ternary(!c.Networks[i], "*", lo.Ternary(c.Experts.Count > 0, "E", "-")))
			}), "")
		}
		config["block_ff_dim"], config["block_multiple_of"], config["tie_embedding"] = 3*(c.FFN-5)/2, 8, c.Tied // two thirds of it, rounded up
	}
	if l := c.Latent; l != (models.Latent{}) {
		config["qk_nope_head_dim"], config["qk_rope_head_dim"], config["v_head_dim"] = c.Head-c.Rope.Rotated, c.Rope.Rotated, l.Value
	}
	if c.Family == "minicpm3" {
		config["scale_emb"], config["scale_depth"], config["dim_model_base"] = 12, 1.4, 256
	}
	if c.Family == "minicpm" {
		config["scale_depth"], config["dim_model_base"] = c.ResidualScale*math.Sqrt(float64(c.Layers)), float64(c.Width)/c.LogitDivisor
	}
	if c.Experts.Count > 0 {
		normalised := c.Experts.Router.Normalised || c.Experts.Router.Score == ir.NoScore && family.Router.Normalised
		for _, name := range []string{"n_shared_experts", "num_shared_experts", "moe_num_shared_experts"} {
			config[name] = c.Experts.Shared / max(c.Experts.FFN, 1)
		}
		config["mup_enabled"], config["expert_selection_fn"] = true, "sigmoid"
		if c.RMS {
			config["rms_norm_eps"] = c.Eps
		}
		if k := family.Router; k.HFNormalised != "" {
			config[k.HFNormalised] = normalised
		}
		if k := family.Router; k.HFScale != "" && c.Experts.Router.Scale != 0 {
			config[k.HFScale] = c.Experts.Router.Scale
		}
	}
	maps.Copy(config, edit)
	if c.Family == "laguna" {
		lagunaConfig(config, &c)
	}
	if c.Family == "gemma4" {
		gemma4Config(config, &c)
	}
	dir := t.TempDir()
	text, err := json.Marshal(config)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), text, 0o644))
	tensors := inFolder(synthetic(t, c, "f32"), &family, weights)
	tensors = append(tensors, safetensors.TensorWriter{
		Name: "model.layers.0.self_attn.rotary_emb.inv_freq", DType: dtype.F32, Shape: []int64{1}, Write: writer([]float32{1}),
	})
	var b bytes.Buffer
	require.NoError(t, safetensors.Write(&b, nil, tensors))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "model.safetensors"), b.Bytes(), 0o644))
	if c.Dense > 0 {
		dense := func(module, name string) {
			text := fmt.Sprintf(`{"in_features":%d,"out_features":%d,"bias":false,"activation_function":"torch.nn.modules.linear.Identity"}`, c.Width, c.Dense)
			shape := []int64{int64(c.Dense), int64(c.Width)}
			if name == "dense_3.weight" {
				text = fmt.Sprintf(`{"in_features":%d,"out_features":%d}`, c.Dense, c.Width)
				shape = []int64{int64(c.Width), int64(c.Dense)}
			}
			writeModule(t, dir, module, text)
			var b bytes.Buffer
			require.NoError(t, safetensors.Write(&b, nil, []safetensors.TensorWriter{{Name: "linear.weight", DType: dtype.F32, Shape: shape, Write: writer(weights[name])}}))
			require.NoError(t, os.WriteFile(filepath.Join(dir, module, "model.safetensors"), b.Bytes(), 0o644))
		}
		dense("2_Dense", "dense_2.weight")
		dense("3_Dense", "dense_3.weight")
		writeModules(t, dir, "Transformer:", "Dense:2_Dense", "Dense:3_Dense", "Normalize:4_Normalize")
	}
	return dir
}

// lagunaConfig says what layers differ in as folders of Laguna do.
func lagunaConfig(config map[string]any, c *models.Config) {
	config["num_attention_heads_per_layer"] = c.HeadCounts
	config["mlp_layer_types"] = lo.Times(c.Layers, func(i int) string { return lo.Ternary(i < c.Experts.Dense, "dense", "sparse") })
	full := map[string]any{"rope_type": "default", "rope_theta": config["rope_theta"], "partial_rotary_factor": 1}
	for _, name := range []string{"rope_scaling", "rope_parameters"} {
		if of, ok := config[name].(map[string]any); ok {
			maps.Copy(full, of)
		}
	}
	if kind, ok := full["type"]; ok {
		full["rope_type"] = kind
	}
	config["rope_parameters"] = map[string]any{"full_attention": full, "sliding_attention": map[string]any{
		"rope_type": "default", "rope_theta": c.WindowRope.Theta, "partial_rotary_factor": float64(c.WindowRope.Rotated) / float64(c.Head)}}
}

// gemma4Config says what layers differ in as folders of Gemma 4 do.
func gemma4Config(config map[string]any, c *models.Config) {
	for name, value := range map[string]any{"num_key_value_heads": c.KVCounts[0], "num_global_key_value_heads": c.KVCounts[1], "intermediate_size": c.FFNs[0], "use_double_wide_mlp": true,
		"attention_k_eq_v": c.KeyIsValue, "enable_moe_block": true, "rope_parameters": map[string]any{
			"full_attention":    map[string]any{"rope_type": "proportional", "rope_theta": c.Rope.Theta, "partial_rotary_factor": 0.25},
			"sliding_attention": map[string]any{"rope_type": "default", "rope_theta": c.WindowRope.Theta}}} {
		if _, ok := config[name]; !ok {
			config[name] = value
		}
	}
}

// inFolder gives the weights of a model the form that folders of the family
// have: the inverse of what [models.Stored] says.
func inFolder(m *checkpoint.Checkpoint, family *models.Family, weights map[string][]float32) []safetensors.TensorWriter {
	type whole struct {
		stored models.Stored
		shape  []int
		rows   map[int][]float32 // by their place
	}
	var tensors []safetensors.TensorWriter
	found := make(map[string]*whole)
	add := func(name string, shape []int, data []float32) {
		layer := ""
		if words := strings.Split(name, "."); words[0] == "blk" {
			layer = words[1]
		}
		stored, ok := family.Stored()[strings.Replace(name, "blk."+layer+".", "blk.#.", 1)]
		if !ok || strings.HasPrefix(name, "dense_") { // which are in folders of their own
			return
		}
		if family.Name == "muse-glimmer" && strings.Contains(stored.Names[0], "input_layernorm") && !strings.Contains(name, "attn_norm") {
			return
		}
		at := strings.Replace(stored.Names[0], "#", layer, 1)
		if strings.Contains(at, "%") {
			for i := range shape[0] {
				n := len(data) / shape[0]
				tensors = append(tensors, safetensors.TensorWriter{Name: strings.Replace(at, "%", fmt.Sprint(i), 1), DType: dtype.F32,
					Shape: wide(shape[1:]), Write: writer(data[i*n:][:n])})
			}
			return
		}
		if _, role, _, ok := models.InLayer(name); ok && role == "ssm_norm" || strings.HasSuffix(name, ".ssm_a") || strings.HasSuffix(name, ".ssm_d") {
			shape = []int{len(data)} // a vector there
		}
		w := found[at]
		if w == nil {
			w = &whole{stored: stored, shape: slices.Clone(shape), rows: map[int][]float32{}}
			w.shape[0] = 0
			found[at] = w
		}
		first := 0
		if stored.Rows != nil {
			first, _ = stored.Rows(&m.Config)
		}
		width := len(data) / shape[0]
		for i := range shape[0] {
			row := first + i
			if stored.Order != nil {
				row = stored.Order(&m.Config, row)
			}
			w.rows[row] = data[i*width:][:width]
		}
		w.shape[0] += shape[0]
	}
	for _, w := range m.Tensors() {
		names, data := []string{w.Name}, weights[w.Name]
		if i, role, kind, _ := models.InLayer(w.Name); role == "attn_qkv" && !m.Config.Layer(i).Recurrent {
			names = lo.Map(models.Joins[role], func(part string, _ int) string { return fmt.Sprintf("blk.%d.%s.%s", i, part, kind) })
		} else if gate, ok := m.Tensor("blk.0.ffn_gate.weight"); ok && w.Name == "blk.0.ffn_up.weight" && w.Shape[0] == 2*gate.Shape[0] {
			names = []string{"blk.0.ffn_gate.weight", "blk.0.ffn_up.weight"}
		}
		for _, name := range names {
			part := &w
			if len(names) > 1 {
				part, _ = m.Tensor(name)
			}
			add(name, part.Shape, data[:part.Elements()])
			data = data[part.Elements():]
		}
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		w := found[name]
		var data []float32
		for i := range w.shape[0] {
			data = append(data, w.rows[i]...)
		}
		switch {
		case w.stored.Depthwise:
			w.shape = []int{w.shape[0], 1, w.shape[1]}
		case w.stored.Value != nil:
			data = lo.Map(data, func(x float32, _ int) float32 {
				if strings.HasSuffix(name, "A_log") {
					return float32(math.Log(float64(-x)))
				}
				return x - 1
			})
		case w.stored.Columns != nil:
			width := w.shape[1]
			from := slices.Clone(data)
			for i := range data {
				data[i/width*width+w.stored.Columns(&m.Config, i%width)] = from[i]
			}
		case w.stored.Transposed:
			rows, width := w.shape[0], w.shape[1]
			data = lo.Times(len(data), func(i int) float32 { return w.rows[i%rows][i/rows] })
			w.shape = []int{width, rows}
		}
		tensors = append(tensors, safetensors.TensorWriter{Name: name, DType: dtype.F32, Shape: wide(w.shape), Write: writer(data)})
	}
	return tensors
}

// TestForms writes one model as a folder and as a GGUF file, for which the rows
// of Q and K are put in the order of llama.cpp's converter and the RoPE factors
// into a tensor: both give the same logits.
func TestForms(t *testing.T) {
	llama3 := map[string]any{"rope_scaling": map[string]any{"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 128}}
	for name, c := range map[string]struct {
		edit map[string]any
		rope func(r *models.Rope)
	}{
		"plain":  {nil, func(*models.Rope) {}},
		"linear": {map[string]any{"rope_scaling": map[string]any{"type": "linear", "factor": 4.0}}, func(r *models.Rope) { r.Linear = 4 }},
		"yarn": {map[string]any{"rope_scaling": map[string]any{"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}},
			func(r *models.Rope) {
				r.YaRN = &models.YaRNRope{Factor: 4, FastBeta: 32, SlowBeta: 1, OldContext: 32}
			}},
		"longrope": {map[string]any{"original_max_position_embeddings": 64, "rope_scaling": map[string]any{"type": "longrope",
			"short_factor": long(4).Short, "long_factor": long(4).Long, "attention_factor": long(4).Magnitude}},
			func(r *models.Rope) { r.Long = long(4) }},
		"llama3": {llama3, func(r *models.Rope) { r.Llama3 = stretched() }},
		"transformers 5": {map[string]any{"rope_parameters": map[string]any{"rope_type": "default", "rope_theta": 500}, "rope_theta": nil},
			func(r *models.Rope) { r.Theta = 500 }},
	} {
		for _, family := range families.All() {
			if family.HF == "" || family.Name == "gemma4" && name != "plain" { // which refuses scaling
				continue
			}
			t.Run(name+"/"+family.Name, func(t *testing.T) {
				config := small(family.Name)
				c.rope(&config.Rope)
				requireForms(t, config, &family, c.edit)
			})
		}
	}
}

// requireForms has a folder, whose config.json is edited, and a GGUF file of random weights give
// the same logits.
func requireForms(t *testing.T, c models.Config, family *models.Family, edit map[string]any) (fromFolder, fromFile *checkpoint.Checkpoint) {
	shape := synthetic(t, c, "f32")
	weights := randomWeights(shape)
	fromFolder = open(t, folder(t, c, weights, edit))
	fromFile = open(t, inFile(shape, family, weights).write(t))
	require.Equal(t, family.GGUFInterleaved, fromFile.Config.Rope.Interleaved)
	require.Equal(t, family.FolderInterleaved, fromFolder.Config.Rope.Interleaved)
	ids := make([]int32, 40)
	for i := range ids {
		ids[i] = int32(i * 7 % c.Vocab)
	}
	requireSame(t, prefill(t, fromFile, ids), prefill(t, fromFolder, ids))
	return fromFolder, fromFile
}

// TestStableLM12B: heads of Q and K have norms of their own, of which folders have a tensor each.
func TestStableLM12B(t *testing.T) {
	family, _ := lo.Find(families.All(), func(f models.Family) bool { return f.Name == "stablelm" })
	c := small("stablelm")
	c.HeadNorms, c.Parallel = true, true
	folder, _ := requireForms(t, c, &family, nil)
	require.True(t, folder.Config.HeadNorms)
	for name, heads := range map[string]int{"blk.0.attn_q_norm.weight": c.Heads, "blk.0.attn_k_norm.weight": c.KVHeads} {
		w, ok := folder.Tensor(name)
		require.True(t, ok, name)
		require.Equal(t, []int{heads, c.Head}, w.Shape, name)
	}
}

// TestMPTAttention: folders say of attention what it is in an object of its own.
func TestMPTAttention(t *testing.T) {
	c := small("mpt")
	path := func(attention map[string]any) string {
		all := map[string]any{"alibi": true, "alibi_bias_max": 8, "qk_ln": false, "prefix_lm": false, "kv_n_heads": c.KVHeads}
		maps.Copy(all, attention)
		edit := map[string]any{"attn_config": all}
		for key := range all {
			edit["attn_config."+key] = nil
		}
		return folder(t, c, randomWeights(synthetic(t, c, "f32")), edit)
	}
	require.Equal(t, c.KVHeads, open(t, path(nil)).Config.KVHeads)
	require.InDelta(t, 4, open(t, path(map[string]any{"alibi_bias_max": 4})).Config.ALiBi, 0)
	for want, attention := range map[string]map[string]any{
		"attn_config.clip_qkv is 6": {"clip_qkv": 6.0},
		"attn_config.alibi":         {"alibi": false},
		"attn_config.qk_ln":         {"qk_ln": true},
		"attn_config.prefix_lm":     {"prefix_lm": true},
	} {
		_, err := checkpoint.Open(path(attention))
		require.ErrorContains(t, err, want)
	}
}

// TestMixtral: in both forms it is a Llama, of experts.
func TestMixtral(t *testing.T) {
	family := families.All()[0]
	c := small(family.Name)
	c.Experts = models.Experts{Count: 5, Chosen: 2}
	fromFolder, fromFile := requireForms(t, c, &family, map[string]any{"architectures": []string{"MixtralForCausalLM"}})
	for _, m := range []*checkpoint.Checkpoint{fromFolder, fromFile} {
		require.Equal(t, models.Experts{Count: 5, Chosen: 2, FFN: c.FFN, Router: models.Router{Score: ir.SoftmaxScore, Normalised: true}}, m.Config.Experts)
		require.Equal(t, "llama", m.Config.Family)
	}
}

// inFile gives the weights of a model of one layer the order that GGUF files of the family
// have.
func inFile(m *checkpoint.Checkpoint, family *models.Family, weights map[string][]float32) *file {
	f := fileOf(m)
	if !family.GGUFInterleaved || family.FolderInterleaved {
		return f
	}
	for i, s := range f.tensors {
		switch s.Name {
		case "blk.0.attn_q.weight", "blk.0.attn_k.weight", "blk.0.attn_q.bias", "blk.0.attn_k.bias":
			width := 1
			if len(s.Shape) > 1 {
				width = m.Config.Width
			}
			f.tensors[i].Write = writer(interleave(weights[s.Name], m.Config.Head, width))
		}
	}
	return f
}

// TestAttentionBiases has models with the biases that attention_bias of a folder stands for,
// which for GLM and Seed-OSS is not that of the output.
func TestAttentionBiases(t *testing.T) {
	tested := 0
	for _, family := range families.All() {
		config := small(family.Name)
		for _, f := range family.Fields {
			if f.HF == "attention_bias" && f.Flag != nil {
				*f.Flag(&config) = true
			}
		}
		if config.Biases == (models.Biases{}) || family.HF == "" {
			continue
		}
		tested++
		require.Equal(t, models.Biases{QKV: true, Output: !strings.HasPrefix(family.Name, "glm4") && family.Name != "seed_oss"}, config.Biases, family.Name)
		shape := synthetic(t, config, "f32")
		weights := randomWeights(shape)
		fromFolder, fromFile := open(t, folder(t, config, weights, nil)), open(t, inFile(shape, &family, weights).write(t))
		require.Equal(t, shape.Config.Biases, fromFile.Config.Biases, family.Name)
		ids := []int32{3, 1, 4, 1, 5, 9, 2, 6}
		requireSame(t, prefill(t, fromFile, ids), prefill(t, fromFolder, ids))
	}
	require.Greater(t, tested, 6)
}

// interleave moves row i of the first half of each head before row i of the
// second half.
func interleave(w []float32, head, width int) []float32 {
	var out []float32
	for h := 0; h < len(w); h += head * width {
		for i := range head / 2 {
			for _, row := range []int{i, i + head/2} {
				out = append(out, w[h+row*width:h+(row+1)*width]...)
			}
		}
	}
	return out
}

// TestHFYaRN reads what a config.json may say besides the factor.
func TestHFYaRN(t *testing.T) {
	c := small("qwen3")
	m := open(t, folder(t, c, randomWeights(synthetic(t, c, "f32")), map[string]any{
		"rope_scaling": map[string]any{"type": "yarn", "factor": 4, "beta_fast": 16, "beta_slow": 2, "attention_factor": 1.25}}))
	require.Equal(t, &models.YaRNRope{Factor: 4, FastBeta: 16, SlowBeta: 2, OldContext: 128, Magnitude: 1.25}, m.Config.Rope.YaRN)
	_, magnitude := m.Config.Rope.Table()
	require.InDelta(t, 1.25, magnitude, 0)

	// Between 16 and 2 turns in 128 tokens there is a ramp over 0.15 to 0.9 of four pairs.
	between := open(t, folder(t, c, randomWeights(synthetic(t, c, "f32")), map[string]any{
		"rope_scaling": map[string]any{"type": "yarn", "factor": 4, "beta_fast": 16, "beta_slow": 2, "truncate": false}}))
	require.True(t, between.Config.Rope.YaRN.Between)
	divisors, _ := between.Config.Rope.Table()
	first, last := 4*math.Log(128/(16*2*math.Pi))/math.Log(1e4), 4*math.Log(128/(2*2*math.Pi))/math.Log(1e4)
	for i, d := range divisors {
		stretched := min(max((float64(i)-first)/(last-first), 0), 1)
		require.InDelta(t, math.Pow(1e4, -float64(i)/4)*(stretched/4+1-stretched), 1/d, 1e-8, "pair %d", i)
	}
}

// TestGptOssFolders: experts that folders pack, or have as floats, are those of a GGUF file.
func TestGptOssFolders(t *testing.T) {
	const e, ffn, width = 5, 64, 32
	family := families.All()[slices.IndexFunc(families.All(), func(f models.Family) bool { return f.Name == "gpt-oss" })]
	c := small("gpt-oss")
	c.Experts = models.Experts{Count: e, Chosen: 2, FFN: ffn}
	shape := synthetic(t, c, "f32")
	weights := randomWeights(shape)
	block := dtype.MXFP4.BlockBytes()
	stored := make(map[string][]byte) // of experts, in MXFP4
	for _, role := range []string{"gate", "up", "down"} {
		name := "blk.0.ffn_" + role + "_exps.weight"
		for i := range weights[name] {
			weights[name][i] *= 8 // so that not all codes of a block are small
		}
		stored[role] = make([]byte, len(weights[name])/32*block)
		require.NoError(t, quant.Quantize(stored[role], weights[name], dtype.MXFP4))
		require.NoError(t, quant.Dequantize(weights[name], stored[role], dtype.MXFP4))
	}
	ids := []int32{3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5}
	inGGUF := fileOf(shape)
	for i, s := range inGGUF.tensors {
		inGGUF.tensors[i].Write = writer(weights[s.Name])
	}
	want := prefill(t, open(t, inGGUF.write(t)), ids)
	plain := inFolder(shape, &family, weights)
	plain = slices.DeleteFunc(plain, func(s safetensors.TensorWriter) bool { return strings.Contains(s.Name, ".experts.") })

	floats := func(name string, data []float32, shape ...int) safetensors.TensorWriter {
		return safetensors.TensorWriter{Name: "model.layers.0.mlp.experts." + name, DType: dtype.F32, Shape: wide(shape), Write: writer(data)}
	}
	codes := func(name string, data []byte, shape ...int) safetensors.TensorWriter {
		return safetensors.TensorWriter{Name: "model.layers.0.mlp.experts." + name, Shape: wide(shape), Write: func(w io.Writer) error {
			_, err := w.Write(data)
			return err
		}}
	}
	// turns puts pieces of gate and up, each of so many elements, by turns.
	turns := func(gate, up []float32, n int) (out []float32) {
		for i := 0; i < len(gate); i += n {
			out = slices.Concat(out, gate[i:i+n], up[i:i+n])
		}
		return out
	}
	// transposed has the rows of each expert innermost.
	transposed := func(data []float32, rows, k int) []float32 {
		return lo.Times(len(data), func(i int) float32 { return data[i/(rows*k)*rows*k+i%rows*k+i/rows%k] })
	}
	// taken apart are blocks of rows: their codes, two neighbours a byte, and exponents.
	apart := func(blocks []byte) (codes, exponents []byte) {
		for ; len(blocks) > 0; blocks = blocks[block:] {
			exponents = append(exponents, blocks[0])
			element := func(i int) byte { return blocks[1+i%16] >> (i / 16 * 4) & 15 }
			for i := 0; i < 32; i += 2 {
				codes = append(codes, element(i)|element(i+1)<<4)
			}
		}
		return codes, exponents
	}
	w := func(role string) []float32 { return weights["blk.0.ffn_"+role] }
	biases := []safetensors.TensorWriter{
		floats("gate_up_proj_bias", turns(w("gate_exps.bias"), w("up_exps.bias"), 1), e, 2*ffn), floats("down_proj_bias", w("down_exps.bias"), e, width),
	}
	var gateUp []byte
	for i := range e * ffn {
		row := width / 32 * block
		gateUp = slices.Concat(gateUp, stored["gate"][i*row:(i+1)*row], stored["up"][i*row:(i+1)*row])
	}
	gateUpCodes, gateUpExponents := apart(gateUp)
	downCodes, downExponents := apart(stored["down"])
	packed := []safetensors.TensorWriter{
		codes("gate_up_proj_blocks", gateUpCodes, e, 2*ffn, width/32, 16), codes("gate_up_proj_scales", gateUpExponents, e, 2*ffn, width/32),
		codes("down_proj_blocks", downCodes, e, width, ffn/32, 16), codes("down_proj_scales", downExponents, e, width, ffn/32),
	}
	for name, experts := range map[string][]safetensors.TensorWriter{
		"packed": packed,
		"floats": {
			floats("gate_up_proj", transposed(turns(w("gate_exps.weight"), w("up_exps.weight"), width), 2*ffn, width), e, width, 2*ffn),
			floats("down_proj", transposed(w("down_exps.weight"), width, ffn), e, ffn, width),
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := open(t, replaceTensors(t, folder(t, c, weights, map[string]any{"swiglu_limit": 7.0}), slices.Concat(plain, biases, experts)))
			gate, ok := m.Tensor("blk.0.ffn_gate_exps.weight")
			require.True(t, ok)
			require.Equal(t, lo.Ternary(name == "packed", dtype.MXFP4, dtype.F32), gate.DType)
			requireSame(t, want, prefill(t, m, ids))
		})
	}
	for want, tensors := range map[string][]safetensors.TensorWriter{
		`tensor "model.layers.0.mlp.experts.gate_up_proj_blocks" has exponents of  []`:                    slices.Concat(plain, biases, packed[:1], packed[2:]),
		`tensor "model.layers.0.mlp.experts.gate_up_proj_bias" is F32 [320], not a stack`:                 slices.Concat(plain, packed, []safetensors.TensorWriter{floats("gate_up_proj_bias", turns(w("gate_exps.bias"), w("up_exps.bias"), 1)[:320], 320)}),
		`tensor "model.layers.0.mlp.experts.gate_up_proj_bias" is [1 5]: its 5 rows do not divide evenly`: slices.Concat(plain, packed, []safetensors.TensorWriter{floats("gate_up_proj_bias", make([]float32, 5), 1, 5)}),
		`tensor "model.layers.0.mlp.experts.down_proj_blocks" is U8 [5 32 32], not a stack`:               slices.Concat(plain, biases, packed[:2], []safetensors.TensorWriter{codes("down_proj_blocks", downCodes, e, width, 32)}),
	} {
		_, err := checkpoint.Open(replaceTensors(t, folder(t, c, weights, nil), tensors))
		require.ErrorContains(t, err, want)
	}
	_, err := checkpoint.Open(folder(t, c, weights, map[string]any{"swiglu_limit": 5.0}))
	require.ErrorContains(t, err, "swiglu_limit is 5, not 7")
}

// replaceTensors gives a folder other tensors, bytes where they are no floats.
func replaceTensors(t *testing.T, dir string, tensors []safetensors.TensorWriter) string {
	raw := make(map[string]tiny.RawTensor)
	for _, s := range tensors {
		var b bytes.Buffer
		require.NoError(t, s.Write(&b))
		raw[s.Name] = tiny.RawTensor{Type: lo.Ternary(s.DType == dtype.F32, "F32", "U8"), Shape: s.Shape, Data: b.Bytes()}
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "model.safetensors"), tiny.Safetensors(t, raw), 0o644))
	return dir
}

// TestHFConfigRefuses edits a good config.json.
func TestHFConfigRefuses(t *testing.T) {
	c := small("qwen3")
	weights := randomWeights(synthetic(t, c, "f32"))
	for want, edit := range map[string]map[string]any{
		`architectures is "MambaForCausalLM"; known are LlamaForCausalLM, Qwen3ForCausalLM`: {"architectures": []string{"MambaForCausalLM"}},
		`model_type is "mamba"; known are llama, qwen3`:                                     {"architectures": nil, "model_type": "mamba"},
		`architectures is "PhimoeForCausalLM": LayerNorm and the router`:                    {"architectures": []string{"PhimoeForCausalLM"}},
		`hidden_act is "gelu", not "silu"`:                                                  {"hidden_act": "gelu"},
		"attention has a sliding_window of 64":                                              {"use_sliding_window": true, "sliding_window": 64},
		"partial_rotary_factor is 0.5":                                                      {"partial_rotary_factor": 0.5},
		"rope_scaling.factor: missing; kind":                                                {"rope_scaling": map[string]any{"type": "yarn"}},
		`RoPE scaling of type "yarn": json: cannot unmarshal`:                               {"rope_scaling": map[string]any{"type": "yarn", "factor": 4, "truncate": 0}},
		"YaRN RoPE scaling has invalid values":                                              {"rope_scaling": map[string]any{"type": "yarn", "factor": 4, "beta_fast": 1, "beta_slow": 32}},
		`RoPE scaling of type "dynamic" has the unsupported alpha`:                          {"rope_scaling": map[string]any{"rope_type": "dynamic", "factor": 4, "alpha": 1000}},
		"dynamic RoPE scaling has invalid values":                                           {"rope_scaling": map[string]any{"rope_type": "dynamic", "factor": 0.5}},
		"short_factor is not a list of numbers":                                             {"rope_scaling": map[string]any{"rope_type": "longrope", "long_factor": []float64{1}}},
		"LongRoPE has 1 factors for 4 pairs":                                                {"rope_scaling": map[string]any{"rope_type": "su", "long_factor": []float64{1}, "short_factor": []float64{1}}},
		`RoPE scaling of type "longrope" has the unsupported short_mscale`:                  {"rope_scaling": map[string]any{"rope_type": "longrope", "short_mscale": 1, "long_factor": []float64{1}, "short_factor": []float64{1}}},
		"rope_scaling.factor: missing":                                                      {"rope_scaling": map[string]any{"rope_type": "linear"}},
		"rope_scaling.low_freq_factor: missing":                                             {"rope_scaling": map[string]any{"rope_type": "llama3", "factor": 8}},
		"llama3 RoPE scaling has invalid values":                                            {"rope_scaling": map[string]any{"rope_type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 1, "original_max_position_embeddings": 128}},
		"hidden_size: missing":                                                              {"hidden_size": nil},
		"RoPE rotates 7 elements of a head of 7":                                            {"head_dim": 7},
		"the number of layers is 99999":                                                     {"num_hidden_layers": 99999},
		"6 query heads cannot share 4 KV heads evenly":                                      {"num_key_value_heads": 4},
	} {
		_, err := checkpoint.Open(folder(t, c, weights, edit))
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, string(filepath.Separator), "the file is named")
	}
	// A window that is not in use, and a head that is tied yet stored, do no harm.
	m := open(t, folder(t, c, weights, map[string]any{"use_sliding_window": false, "sliding_window": 64, "tie_word_embeddings": true}))
	f, err := m.Build(ir.Options{})
	require.NoError(t, err)
	require.NotContains(t, f.String(), `"output.weight"`)
	require.True(t, m.Config.Tied)
}

// TestDuplicateNames has a tensor under both of its names.
func TestDuplicateNames(t *testing.T) {
	c := small("qwen3")
	dir := folder(t, c, randomWeights(synthetic(t, c, "f32")), nil)
	var b bytes.Buffer
	require.NoError(t, safetensors.Write(&b, nil, []safetensors.TensorWriter{
		{Name: "model.norm.weight", DType: dtype.F32, Shape: []int64{1}, Write: writer([]float32{1})},
		{Name: "output_norm.weight", DType: dtype.F32, Shape: []int64{1}, Write: writer([]float32{1})},
	}))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "model.safetensors"), b.Bytes(), 0o644))
	_, err := checkpoint.Open(dir)
	require.ErrorContains(t, err, `tensor "output_norm.weight" is in`)
}

func TestModelTensors(t *testing.T) {
	m := open(t, fileOf(synthetic(t, small("llama"), "f32")).write(t))
	for _, w := range m.Tensors() {
		found, ok := m.Tensor(w.Name)
		require.True(t, ok)
		require.Equal(t, &w, found)
		require.Len(t, w.Data, int(w.Bytes()))
		raw, err := os.ReadFile(w.File)
		require.NoError(t, err)
		require.True(t, bytes.Equal(w.Data, raw[w.Offset:w.Offset+w.Bytes()]), fmt.Sprint(w.Name))
	}
	_, ok := m.Tensor("none")
	require.False(t, ok)
	_, err := ref.NewWeights(m.Data).Load("none")
	require.EqualError(t, err, `there is no weight "none"`)
}
