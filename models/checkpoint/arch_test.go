package checkpoint_test

import (
	"encoding/binary"
	"math"
	"strings"
	"testing"

	"github.com/samber/lo"
	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/golden"
	"github.com/smelt-ml/smelt/internal/tiny"
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/models"
	"github.com/smelt-ml/smelt/models/checkpoint"
	"github.com/smelt-ml/smelt/models/families"
)

// TestSourceGraphs keeps the graph of one layer of each family.
func TestSourceGraphs(t *testing.T) {
	for _, family := range families.All() {
		f, err := synthetic(t, small(family.Name), "f16").Build(ir.Options{})
		require.NoError(t, err)
		golden.Check(t, "testdata/"+family.Name+".golden", f.String())
		parsed, err := ir.Parse(f.String())
		require.NoError(t, err)
		require.Equal(t, f, parsed)
	}
}

// TestArch counts the parameters of each shape as its publisher does.
func TestArch(t *testing.T) {
	parameters := make(map[string]int64)
	for _, f := range families.All() {
		for _, s := range f.Shapes {
			parameters[s.Config.Name] = s.Parameters
		}
	}
	require.Len(t, checkpoint.Archs(), len(parameters))
	for _, name := range checkpoint.Archs() {
		m, err := checkpoint.Arch(strings.ToUpper(name), "F16")
		require.NoError(t, err)
		require.Equal(t, "arch:"+name, m.Path)
		var count int64
		for _, w := range m.Tensors() {
			if w.Name != "rope_freqs.weight" {
				count += w.Elements()
			}
			small := len(w.Shape) == 1 || w.Name == "position_embd.weight" || w.Name == "token_types.weight" || strings.HasSuffix(w.Name, ".ffn_gate_inp.weight") ||
				strings.HasSuffix(w.Name, ".ffn_gate_inp_shexp.weight") || strings.HasSuffix(w.Name, ".bias") ||
				strings.HasSuffix(w.Name, ".shortconv.conv.weight") || strings.HasSuffix(w.Name, ".ssm_conv1d.weight") ||
				strings.HasSuffix(w.Name, "_norm.weight") ||
				strings.HasSuffix(w.Name, ".ssm_a") || strings.HasSuffix(w.Name, ".ssm_d")
			require.Equal(t, small, w.DType == dtype.F32, w.Name)
		}
		require.Equal(t, parameters[name], count, name)
		f, err := m.Build(ir.Options{Block: 256})
		require.NoError(t, err)
		require.Equal(t, m.Config.Layers, f.Layers())
		states, attends := 0, 0
		for i := range m.Config.Layers {
			l := m.Config.Layer(i)
			states += lo.Ternary(l.Recurrent || m.Config.Family == "falcon-h1", 1, 0)
			attends += lo.Ternary(l.Recurrent || l.Kind == models.NetworkAlone, 0, 1)
		}
		require.Equal(t, states, f.OpCounts()[ir.OpShortConv])
		require.Equal(t, 2*attends, f.OpCounts()[ir.OpRepeatKV])
		_, err = m.Tokenizer()
		require.ErrorIs(t, err, checkpoint.ErrNoTokenizer)
		require.NoError(t, m.Close())
	}
	_, err := checkpoint.Arch("gpt-5", "f16")
	require.ErrorContains(t, err, `no shape is called "gpt-5"; known are llama3.2-1b, `)
	m, err := checkpoint.Arch("gemma3-1b,block_count=8,embedding_length=96,attention.head_count=3,tie_word_embeddings=false,rope.freq_base=1e5", "f16")
	require.NoError(t, err)
	c := m.Config
	require.Equal(t, []any{8, 96, 3, false, 1e5, 8}, []any{c.Layers, c.Width, c.Heads, c.Tied, c.Rope.Theta, len(c.Windowed)})
	for setting, want := range map[string]string{
		"layers=2": `models of the family gemma3 have no setting "layers"`, "block_count": `"block_count" is not a setting such as block_count=2`,
		"block_count=two": `block_count: invalid value "two"`, "attention.head_count=0": "the number of heads is 0", "=": `have no setting ""`,
	} {
		_, err = checkpoint.Arch("gemma3-1b,"+setting, "f16")
		require.ErrorIs(t, err, models.ErrConfig)
		require.ErrorContains(t, err, want)
	}
	_, err = checkpoint.Arch("qwen3-0.6b", "q9")
	require.ErrorContains(t, err, `no weight type is called "q9"; known are bf16, f16, `)
	_, err = checkpoint.Synthetic(models.Config{Family: "mamba"}, "f16")
	require.ErrorIs(t, err, models.ErrConfig)
	_, err = checkpoint.Synthetic(models.Config{Family: "llama"}, "f16")
	require.ErrorContains(t, err, "the vocabulary size is 0")
}

// TestLlama3Factors compares with the published formula, which works on inverse
// frequencies.
func TestLlama3Factors(t *testing.T) {
	for name, factor := range map[string]float64{"llama3.1-8b": 8, "llama3.2-1b": 32} {
		m, err := checkpoint.Arch(name, "f16")
		require.NoError(t, err)
		w, ok := m.Tensor("rope_freqs.weight")
		require.True(t, ok)
		require.Equal(t, []int{m.Config.Head / 2}, w.Shape)
		mixed := 0
		for i := range w.Shape[0] {
			got := float64(math.Float32frombits(binary.LittleEndian.Uint32(w.Data[4*i:])))
			inverse := 1 / math.Pow(500000, float64(2*i)/float64(m.Config.Head))
			wavelength, stretched := 2*math.Pi/inverse, inverse
			switch {
			case wavelength > 8192/1.0:
				stretched = inverse / factor
			case wavelength >= 8192/4.0:
				smooth := (8192/wavelength - 1) / (4 - 1)
				stretched = (1-smooth)*inverse/factor + smooth*inverse
				mixed++
			}
			require.InEpsilon(t, inverse/stretched, got, 1e-6, "pair %d", i)
		}
		require.Positive(t, mixed)
	}
}

// TestJoinedMixture: a tensor of Q, K and V gets the type of V.
func TestJoinedMixture(t *testing.T) {
	m, err := checkpoint.Arch("phi3-mini", "q4_k_m")
	require.NoError(t, err)
	for name, want := range map[string]dtype.Type{
		"blk.0.attn_qkv.weight": dtype.Q6_K, "blk.4.attn_qkv.weight": dtype.Q4_K, "blk.0.attn_v.weight": dtype.Q6_K, "blk.0.attn_q.weight": dtype.Q6_K,
		"blk.0.ffn_gate.weight": dtype.Q4_K, "blk.0.ffn_down.weight": dtype.Q6_K,
	} {
		w, ok := m.Tensor(name)
		require.True(t, ok, name)
		require.Equal(t, want, w.DType, name)
	}
}

// TestMixtures compares with files that llama.cpp's quantizer made.
func TestMixtures(t *testing.T) {
	for _, model := range []string{"tiny-llama", "tiny-qwen3"} {
		for _, typ := range []string{"F16", "Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q3_K_M", "Q2_K"} {
			file := open(t, tiny.GGUF(t, model, typ))
			shape := synthetic(t, file.Config, typ)
			require.Len(t, shape.Tensors(), len(file.Tensors()))
			for _, w := range shape.Tensors() {
				stored, ok := file.Tensor(w.Name)
				require.True(t, ok)
				require.Equal(t, stored.DType, w.DType, "%s %s", file.Path, w.Name)
				require.Equal(t, stored.Shape, w.Shape)
			}
		}
	}
}

// TestMixturesOfRealShapes checks what no file at hand shows.
func TestMixturesOfRealShapes(t *testing.T) {
	for _, c := range []struct {
		arch, typ, tensor string
		want              dtype.Type
	}{
		{"qwen3-0.6b", "q4_0", "token_embd.weight", dtype.Q6_K}, // tied: the table is the head
		{"qwen3-0.6b", "q4_0", "blk.0.attn_v.weight", dtype.Q4_0},
		{"qwen3-0.6b", "q8_0", "token_embd.weight", dtype.Q8_0},
		{"qwen3-8b", "q4_0", "token_embd.weight", dtype.Q4_0},
		{"qwen3-8b", "q4_0", "output.weight", dtype.Q6_K},
		{"qwen3-8b", "q4_0", "blk.35.attn_q_norm.weight", dtype.F32},
		{"qwen3-8b", "q4_k_m", "blk.3.ffn_down.weight", dtype.Q6_K}, // first eighth
		{"qwen3-8b", "q4_k_m", "blk.4.ffn_down.weight", dtype.Q4_K},
		{"qwen3-8b", "q4_k_m", "blk.6.attn_v.weight", dtype.Q6_K}, // a third
		{"qwen3-8b", "q4_k_m", "blk.31.attn_v.weight", dtype.Q6_K},
		{"qwen3-8b", "q4_k_s", "blk.3.attn_v.weight", dtype.Q5_K},
		{"qwen3-8b", "q4_k_s", "blk.4.attn_v.weight", dtype.Q4_K},
		{"llama3.2-1b", "bf16", "token_embd.weight", dtype.BF16},
		{"llama3.2-1b", "bf16", "rope_freqs.weight", dtype.F32},
		{"llama2-7b", "q6_k", "blk.0.ffn_down.weight", dtype.Q6_K},
		{"mixtral-8x7b", "q4_k_m", "blk.9.attn_k.weight", dtype.Q8_0}, // eight experts
		{"mixtral-8x7b", "q4_0", "blk.9.attn_v.weight", dtype.Q8_0},
		{"mixtral-8x7b", "q4_0", "blk.9.attn_output.weight", dtype.Q4_0},
		{"mixtral-8x7b", "q4_k_m", "blk.9.attn_output.weight", dtype.Q5_K},
		{"mixtral-8x7b", "q3_k_l", "blk.9.attn_output.weight", dtype.Q3_K},
		{"mixtral-8x7b", "q4_k_m", "blk.9.ffn_gate_inp.weight", dtype.F32},
		{"qwen3-30b-a3b", "q4_k_m", "blk.9.attn_k.weight", dtype.Q4_K},
		{"qwen3-30b-a3b", "mxfp4", "blk.9.attn_k.weight", dtype.Q8_0},
		{"qwen3-30b-a3b", "mxfp4", "blk.9.ffn_up_exps.weight", dtype.MXFP4},
	} {
		m, err := checkpoint.Arch(c.arch, c.typ)
		require.NoError(t, err)
		w, ok := m.Tensor(c.tensor)
		require.True(t, ok)
		require.Equal(t, c.want, w.DType, "%+v", c)
	}
	narrow := small("llama") // rows of 32, 48 and 64
	for typ, want := range map[string]dtype.Type{"q4_k_m": dtype.Q5_0, "q6_k": dtype.Q8_0, "q4_0": dtype.Q4_0} {
		w, _ := synthetic(t, narrow, typ).Tensor("blk.0.attn_q.weight")
		require.Equal(t, want, w.DType, typ)
		w, _ = synthetic(t, narrow, typ).Tensor("blk.0.attn_output.weight")
		require.Equal(t, dtype.F16, w.DType, "rows of 48 are no whole blocks")
	}
	require.Equal(t, []string{"mlx4", "mlx8"}, lo.Without(checkpoint.ShapeTypes(), checkpoint.WeightTypes()...))
}

func BenchmarkBuild(b *testing.B) {
	m, err := checkpoint.Arch("qwen3-0.6b", "q4_0")
	require.NoError(b, err)
	for b.Loop() {
		if _, err := m.Build(ir.Options{}); err != nil {
			b.Fatal(err)
		}
	}
}
