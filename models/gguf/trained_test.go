package gguf_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/tiny"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/models/gguf"
)

func TestTrainedModels(t *testing.T) {
	for _, model := range []struct {
		name, arch                  string
		layers, tensors, vocab, hid uint64
	}{
		{"tiny-qwen3", "qwen3", 4, 4*11 + 2, 1024, 256},
		{"tiny-llama", "llama", 3, 3*9 + 3, 512, 256},
	} {
		for _, format := range tiny.Types {
			t.Run(model.name+"-"+format, func(t *testing.T) {
				f, err := gguf.Open(tiny.GGUF(t, model.name, format))
				require.NoError(t, err)
				defer f.Close()
				arch, err := f.String("general.architecture")
				require.NoError(t, err)
				require.Equal(t, model.arch, arch)
				layers, err := f.Uint(arch + ".block_count")
				require.NoError(t, err)
				require.Equal(t, model.layers, layers)
				tokens, err := f.Strings("tokenizer.ggml.tokens")
				require.NoError(t, err)
				require.Len(t, tokens, int(model.vocab))
				require.Len(t, f.Tensors, int(model.tensors))
				embedding, ok := f.Tensor("token_embd.weight")
				require.True(t, ok)
				require.Equal(t, []int64{int64(model.vocab), int64(model.hid)}, embedding.Shape)
				down, ok := f.Tensor("blk.0.ffn_down.weight")
				require.True(t, ok)
				require.Equal(t, []int64{256, 768}, down.Shape)
				for _, tensor := range f.Tensors {
					require.NotEqual(t, dtype.Invalid, tensor.DType, tensor.Name)
					require.Equal(t, tensor.DType.Bytes(tensor.Elems()), tensor.Size)
				}
				gguf.Exercise(t, f)
			})
		}
	}
}
