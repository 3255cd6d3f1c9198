package models

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/models/gguf"
	"github.com/smelt-ml/smelt/models/hf"
)

var ggufF32, _ = gguf.TypeOf(ir.F32)

// build checks that a configuration that passes gives a graph, or an error.
func build(t *testing.T, m *Checkpoint) {
	f, err := m.Build(ir.Options{})
	if err == nil {
		require.NoError(t, f.Verify())
	}
}

// FuzzGGUF opens and builds damaged files.
func FuzzGGUF(f *testing.F) {
	for _, family := range families {
		c := Config{
			Family: family.Name, Vocab: 8, Width: 4, Layers: 1, Heads: 2, KVHeads: 1, Head: 2, FFN: 4, Context: 8, Eps: 1e-5,
			Rope: Rope{Theta: 1e4, Llama3: &Llama3Rope{Factor: 8, LowFrequency: 1, HighFrequency: 4, OldContext: 8}},
		}
		if strings.HasSuffix(family.Name, "moe") || family.Name == "gpt-oss" {
			c.Experts = Experts{Count: 3, Chosen: 2, FFN: 4, Shared: 4}
		}
		m, err := Synthetic(c, "f32")
		require.NoError(f, err)
		var tensors []gguf.Source
		for _, t := range m.tensors {
			shape := make([]int64, len(t.Shape))
			for i, d := range t.Shape {
				shape[i] = int64(d)
			}
			tensors = append(tensors, gguf.Source{Name: t.Name, Type: ggufF32, Shape: shape, Write: func(w io.Writer) error {
				_, err := w.Write(make([]byte, t.Bytes()))
				return err
			}})
		}
		var b bytes.Buffer
		require.NoError(f, gguf.Write(&b, m.Config.Metadata(), tensors))
		f.Add(b.Bytes())
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := gguf.Parse(data, "fuzz")
		if err != nil {
			return
		}
		if m, err := fromGGUF(file); err == nil {
			build(t, m)
		}
	})
}

// FuzzHF builds shapes that damaged texts describe.
func FuzzHF(f *testing.F) {
	f.Add([]byte(`{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 8, "hidden_size": 4, "num_hidden_layers": 1,
		"num_attention_heads": 2, "intermediate_size": 4, "rms_norm_eps": 1e-05, "rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3",
		"factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}}`))
	f.Add([]byte(`{"model_type": "qwen3", "vocab_size": 8, "hidden_size": 4, "num_hidden_layers": 2, "num_attention_heads": 2, "head_dim": 6,
		"num_key_value_heads": 1, "intermediate_size": 4, "tie_word_embeddings": true, "rope_parameters": {"rope_type": "linear", "factor": 2}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		h, err := hf.ParseConfig(text, "fuzz")
		if err != nil {
			return
		}
		c, _, err := configFromHF(h)
		if err != nil || c.check() != nil {
			return
		}
		m, err := Synthetic(c, "q4_k_m")
		require.NoError(t, err)
		build(t, m)
	})
}
