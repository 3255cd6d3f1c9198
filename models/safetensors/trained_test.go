package safetensors_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/tiny"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/models/gguf"
	"github.com/smelt-ml/smelt/models/quant"
	"github.com/smelt-ml/smelt/models/safetensors"
)

// The folder and the F16 file of a trained model hold the same numbers. Rows of
// attn_q and attn_k of the llama file are permuted, so those are left out there.
func TestTrainedModels(t *testing.T) {
	names := map[string]string{
		"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight", "output.weight": "lm_head.weight",
		"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
		"attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
		"ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
	}
	for model, tensors := range map[string]int{"tiny-qwen3": 46, "tiny-llama": 30} {
		t.Run(model, func(t *testing.T) {
			g, err := gguf.Open(tiny.GGUF(t, model, "F16"))
			require.NoError(t, err)
			defer g.Close()
			f, err := safetensors.Open(tiny.Folder(t, model))
			require.NoError(t, err)
			defer f.Close()
			require.Len(t, f.Tensors, tensors)
			require.Equal(t, "pt", f.Metadata["format"])
			for _, want := range g.Tensors {
				name, ok := names[want.Name]
				if !ok {
					parts := strings.Split(want.Name, ".")
					require.Len(t, parts, 4)
					name = "model.layers." + parts[1] + "." + names[parts[2]] + ".weight"
				}
				got, ok := f.Tensor(name)
				require.True(t, ok, name)
				require.Equal(t, want.Shape, got.Shape)
				require.Equal(t, dtype.BF16, got.DType)
				if model == "tiny-llama" && (strings.Contains(want.Name, "attn_q.") || strings.Contains(want.Name, "attn_k.")) {
					continue
				}
				a, b := make([]float32, want.Elems()), make([]float32, got.Elems())
				require.NoError(t, quant.Dequantize(a, want.Data, want.DType))
				require.NoError(t, quant.Dequantize(b, got.Data, got.DType))
				require.Equal(t, a, b, name)
			}
		})
	}
}
