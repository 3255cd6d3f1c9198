package checkpoint

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/models"
	"github.com/smelt-ml/smelt/models/families"
	"github.com/smelt-ml/smelt/models/gguf"
	"github.com/smelt-ml/smelt/models/hf"
	"github.com/smelt-ml/smelt/models/quant"
	"github.com/smelt-ml/smelt/models/safetensors"
)

var ggufF32, _ = gguf.TypeOf(dtype.F32)

// build checks that a configuration that passes gives a graph, or an error.
func build(t *testing.T, m *Checkpoint) {
	f, err := m.Build(ir.Options{})
	if err == nil {
		require.NoError(t, f.Verify())
	}
}

// FuzzGGUF opens and builds damaged files.
func FuzzGGUF(f *testing.F) {
	for _, family := range families.All() {
		c := models.Config{
			Family: family.Name, Vocab: 8, Width: 4, Layers: 1, Heads: 2, KVHeads: 1, Head: 2, FFN: 4, Context: 8, Eps: 1e-5,
			Rope: models.Rope{Theta: 1e4, Llama3: &models.Llama3Rope{Factor: 8, LowFrequency: 1, HighFrequency: 4, OldContext: 8}},
		}
		if family.Name == "gemma4" { // which has factors of its own
			c.Rope.Llama3 = nil
		}
		known := family.Shapes[0].Config
		if known.Experts.Count > 0 {
			c.Experts = models.Experts{Count: 3, Chosen: 2, FFN: 4, Shared: 4}
		}
		if known.Latent != (models.Latent{}) {
			c.Latent = models.Latent{KV: 4, Value: 2}
			c.Head, c.Rope.Rotated = 4, 2
		}
		if known.Mamba != (models.Mamba{}) {
			c.Taps, c.Mamba = 2, models.Mamba{Heads: 2, Head: 2, Groups: 1, States: 2}
			if known.Recurrent != nil {
				c.Recurrent = []bool{true}
			}
			if known.Networks != nil {
				c.Networks = []bool{false}
			}
		}
		m, err := Synthetic(c, "f32")
		require.NoError(f, err)
		var tensors []gguf.TensorWriter
		for _, t := range m.tensors {
			shape := make([]int64, len(t.Shape))
			for i, d := range t.Shape {
				shape[i] = int64(d)
			}
			tensors = append(tensors, gguf.TensorWriter{Name: t.Name, Type: ggufF32, Shape: shape, Write: func(w io.Writer) error {
				_, err := w.Write(make([]byte, t.Bytes()))
				return err
			}})
		}
		var b bytes.Buffer
		require.NoError(f, gguf.Write(&b, Metadata(&m.Config), tensors))
		f.Add(b.Bytes())
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := gguf.Parse(data, "fuzz")
		if err != nil {
			return
		}
		if m, err := fromGGUF(file); err == nil {
			build(t, m)
			require.NoError(t, m.Close())
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
		c, family, err := configFromHF(h)
		if err != nil || family.Verify(&c) != nil {
			return
		}
		m, err := Synthetic(c, "q4_k_m")
		require.NoError(t, err)
		build(t, m)
	})
}

// FuzzMLX unpacks files whose matrices a damaged text describes: what is read is whole, and what
// is not is named.
func FuzzMLX(f *testing.F) {
	file := func(codes, group int, scales string) []byte {
		var b []byte
		header := fmt.Sprintf(`{"a.weight":{"dtype":"U32","shape":[1,%d],"data_offsets":[0,%d]},`, codes, 4*codes)
		header += fmt.Sprintf(`"a.scales":{"dtype":%q,"shape":[1,%d],"data_offsets":[%d,%d]},`, scales, group, 4*codes, 4*codes+2*group)
		header += fmt.Sprintf(`"a.biases":{"dtype":%q,"shape":[1,%d],"data_offsets":[%d,%d]}}`, scales, group, 4*codes+2*group, 4*codes+4*group)
		for len(header)%8 != 0 {
			header += " "
		}
		b = binary.LittleEndian.AppendUint64(b, uint64(len(header)))
		return append(append(b, header...), make([]byte, 4*codes+4*group)...)
	}
	f.Add([]byte(`{"quantization": {"group_size": 64, "bits": 4}}`), file(16, 2, "BF16"))
	f.Add([]byte(`{"quantization": {"group_size": 128, "bits": 8}}`), file(32, 1, "F16"))
	f.Add([]byte(`{"quantization": {"group_size": 64, "bits": 8, "a": {"group_size": 32, "bits": 4}}}`), file(8, 2, "F16"))
	f.Add([]byte(`{"quantization": {"group_size": 32, "bits": 4, "mode": "mxfp4", "a": false}}`), file(4, 1, "U8"))
	f.Fuzz(func(t *testing.T, config, data []byte) {
		h, err := hf.ParseConfig(config, "fuzz")
		if err != nil {
			return
		}
		q, err := h.Quantization()
		if err != nil {
			return
		}
		file, err := safetensors.Parse(data, "fuzz")
		if err != nil {
			return
		}
		memory := &arena{}
		defer memory.close()
		before := tensorsOf(file)
		after, err := derive(before, memory, unpackMLX(q))
		if err != nil {
			require.ErrorContains(t, err, "tensor \"")
			return
		}
		require.LessOrEqual(t, len(after), len(before))
		for _, w := range after {
			if w.DType.IsQuantized() {
				require.Len(t, w.Data, int(w.Bytes()), w.Name)
				require.NoError(t, quant.Dequantize(make([]float32, w.Elements()), w.Data, w.DType), w.Name)
			}
		}
	})
}
