package models_test

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/quant"
	"github.com/smelt-ml/smelt/internal/tiny"
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/models"
)

// TestMLX opens folders that MLX packs: every weight has the values of its definition, and is
// stored in a type that kernels have.
func TestMLX(t *testing.T) {
	for _, c := range []struct {
		group  int
		scales ir.DType
		want   ir.DType
	}{
		{32, ir.F16, ir.Q4_1}, {64, ir.BF16, ir.Q4_1}, {128, ir.F16, ir.Q4_1}, {32, ir.Invalid, ir.MXFP4},
	} {
		t.Run(fmt.Sprintf("%d/%s", c.group, c.scales), func(t *testing.T) {
			folder := tiny.NewMLX(t, "tiny-qwen3", c.group, c.scales)
			packed, values := open(t, folder.Write(t)), open(t, folder.WriteValues(t))
			require.Len(t, packed.Tensors(), len(values.Tensors()))
			matrices := 0
			for _, want := range values.Tensors() {
				got, ok := packed.Tensor(want.Name)
				require.True(t, ok, want.Name)
				require.Equal(t, want.Shape, got.Shape, want.Name)
				if want.DType != ir.F32 {
					require.Equal(t, want.DType, got.DType, want.Name)
					require.Equal(t, want.Data, got.Data, want.Name)
					continue
				}
				matrices++
				require.Equal(t, c.want, got.DType, want.Name)
				require.Equal(t, widened(t, &want), widened(t, got), want.Name)
			}
			require.Greater(t, matrices, 20)
			_, err := packed.Build(ir.Options{})
			require.NoError(t, err)
		})
	}
}

func widened(t *testing.T, w *models.Tensor) []float32 {
	x := make([]float32, w.Elements())
	require.NoError(t, quant.Dequantize(x, w.Data, w.DType))
	return x
}

// TestMLXErrors: what cannot be read is named, with its tensor or key.
func TestMLXErrors(t *testing.T) {
	const module = "model.layers.1.mlp.down_proj"
	set := func(key string, v any) func(m *tiny.MLX) {
		return func(m *tiny.MLX) { m.Config["quantization"].(map[string]any)[key] = v }
	}
	change := func(name string, f func(w *tiny.RawTensor)) func(m *tiny.MLX) {
		return func(m *tiny.MLX) {
			w := m.Tensors[module+name]
			f(&w)
			m.Tensors[module+name] = w
		}
	}
	for want, edit := range map[string]func(m *tiny.MLX){
		"quantization has 3 bits":                                                    set("bits", 3),
		"config.json: quantization.bits: missing":                                    set("bits", nil),
		`config.json: quantization.group_size: "x" is not an integer`:                set("group_size", "x"),
		"quantization has groups of 16 elements":                                     set("group_size", 16),
		`quantization has the mode "nvfp4"`:                                          set("mode", "nvfp4"),
		`tensor "` + module + `.weight": quantization has 8 bits`:                    set(module, map[string]any{"group_size": 64, "bits": 8}),
		"config.json: quantization." + module + ".bits: missing":                     set(module, map[string]any{"group_size": 64}),
		`tensor "` + module + `.weight" has scales, but`:                             set(module, false),
		`tensor "` + module + `.weight" has no ` + module + `.biases`:                func(m *tiny.MLX) { delete(m.Tensors, module+".biases") },
		`tensor "` + module + `.biases" is F16 [256 12], where a float type [256 6]`: set(module, map[string]any{"group_size": 128, "bits": 4}),
		`tensor "` + module + `.scales" is U16 [256 12]`:                             change(".scales", func(w *tiny.RawTensor) { w.Type = "U16" }),
		`tensor "` + module + `.weight" is F32 [256 96]`:                             change(".weight", func(w *tiny.RawTensor) { w.Type = "F32" }),
		`tensor "` + module + `.scales": element 5, 999424`: change(".scales", func(w *tiny.RawTensor) {
			w.Type = "BF16"
			binary.LittleEndian.PutUint16(w.Data[10:], 0x4974)
		}),
		`tensor "` + module + `.biases" is not part of`: set(module, map[string]any{"group_size": 32, "bits": 4, "mode": "mxfp4"}),
		`tensor "` + module + `.scales" is F16 [256 12], where U8 [256 24]`: func(m *tiny.MLX) {
			set(module, map[string]any{"group_size": 32, "bits": 4, "mode": "mxfp4"})(m)
			delete(m.Tensors, module+".biases")
		},
	} {
		t.Run(want, func(t *testing.T) {
			folder := tiny.NewMLX(t, "tiny-qwen3", 64, ir.F16)
			edit(folder)
			dir := folder.Write(t)
			m, err := models.Open(dir)
			if err == nil {
				m.Close()
			}
			require.ErrorContains(t, err, want)
			require.ErrorContains(t, err, dir)
		})
	}
	t.Run("a module that is not packed", func(t *testing.T) {
		folder := tiny.NewMLX(t, "tiny-qwen3", 64, ir.F16)
		name := module + ".weight"
		set(module, false)(folder)
		folder.Tensors[name] = tiny.RawTensor{Type: "F16", Shape: []int64{256, 768}, Data: make([]byte, 2*256*768)}
		delete(folder.Tensors, module+".scales")
		delete(folder.Tensors, module+".biases")
		m := open(t, folder.Write(t))
		w, ok := m.Tensor("blk.1.ffn_down.weight")
		require.True(t, ok)
		require.Equal(t, ir.F16, w.DType)
	})
}
