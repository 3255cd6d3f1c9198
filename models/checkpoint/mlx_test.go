package checkpoint_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/tiny"
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/models/checkpoint"
	"github.com/smelt-ml/smelt/models/quant"
)

// TestMLX opens folders that MLX packs: every weight has the values of its definition, and is
// stored in a type that kernels have.
func TestMLX(t *testing.T) {
	for _, c := range []struct {
		tiny.Packing
		want dtype.Type
	}{
		{tiny.Packing{Bits: 4, Group: 32, Scales: dtype.F16}, dtype.Q4_1}, {tiny.Packing{Bits: 4, Group: 64, Scales: dtype.BF16}, dtype.MLX4},
		{tiny.Packing{Bits: 4, Group: 128, Scales: dtype.F16}, dtype.MLX4}, {tiny.Packing{Bits: 8, Group: 64, Scales: dtype.BF16}, dtype.MLX8},
		{tiny.Packing{Bits: 8, Group: 128, Scales: dtype.F16}, dtype.MLX8}, {tiny.Packing{Bits: 4, Group: 32}, dtype.MXFP4},
	} {
		t.Run(fmt.Sprintf("%d/%d/%s", c.Bits, c.Group, c.Scales), func(t *testing.T) {
			folder := tiny.NewMLX(t, "tiny-qwen3", c.Packing)
			packed, values := open(t, folder.Write(t)), open(t, folder.WriteValues(t))
			require.Len(t, packed.Tensors(), len(values.Tensors()))
			matrices := 0
			for _, want := range values.Tensors() {
				got, ok := packed.Tensor(want.Name)
				require.True(t, ok, want.Name)
				require.Equal(t, want.Shape, got.Shape, want.Name)
				if want.DType != dtype.F32 {
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

func widened(t *testing.T, w *checkpoint.Tensor) []float32 {
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
		"quantization has affine with 3 bits in groups of 64, which is not supported": set("bits", 3),
		"config.json: quantization.bits: missing":                                     set("bits", nil),
		`config.json: quantization.group_size: "x" is not an integer`:                 set("group_size", "x"),
		"quantization has affine with 4 bits in groups of 16,":                        set("group_size", 16),
		"quantization has nvfp4 with 4 bits in groups of 64,":                         set("mode", "nvfp4"),
		`tensor "` + module + `.weight": quantization has affine with 8 bits in groups of 32, which is not supported; supported are ` +
			"affine with 4 bits in groups of 128, affine with 4 bits in groups of 32": set(module, map[string]any{"group_size": 32, "bits": 8}),
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
			folder := tiny.NewMLX(t, "tiny-qwen3", tiny.Packing{Bits: 4, Group: 64, Scales: dtype.F16})
			edit(folder)
			dir := folder.Write(t)
			m, err := checkpoint.Open(dir)
			if err == nil {
				m.Close()
			}
			require.ErrorContains(t, err, want)
			require.ErrorContains(t, err, dir)
		})
	}
	t.Run("a module that is not packed", func(t *testing.T) {
		folder := tiny.NewMLX(t, "tiny-qwen3", tiny.Packing{Bits: 4, Group: 64, Scales: dtype.F16})
		name := module + ".weight"
		set(module, false)(folder)
		folder.Tensors[name] = tiny.RawTensor{Type: "F16", Shape: []int64{256, 768}, Data: make([]byte, 2*256*768)}
		delete(folder.Tensors, module+".scales")
		delete(folder.Tensors, module+".biases")
		m := open(t, folder.Write(t))
		w, ok := m.Tensor("blk.1.ffn_down.weight")
		require.True(t, ok)
		require.Equal(t, dtype.F16, w.DType)
	})
}

// TestMLXFormula opens folders of random codes, scales and biases: elements are those of
// scale·code + bias in float64, of codes that lie from the lowest bits of a word up, to a rounding
// of the product and one of the sum.
func TestMLXFormula(t *testing.T) {
	const name = "model.layers.0.mlp.down_proj"
	rng := rand.New(rand.NewPCG(7, 11))
	for _, p := range []tiny.Packing{
		{Bits: 4, Group: 32, Scales: dtype.BF16}, {Bits: 4, Group: 64, Scales: dtype.F16}, {Bits: 4, Group: 64, Scales: dtype.BF16},
		{Bits: 4, Group: 128, Scales: dtype.BF16}, {Bits: 8, Group: 64, Scales: dtype.F16}, {Bits: 8, Group: 128, Scales: dtype.BF16},
	} {
		t.Run(fmt.Sprintf("%d/%d/%s", p.Bits, p.Group, p.Scales), func(t *testing.T) {
			folder := tiny.NewMLX(t, "tiny-qwen3", p)
			codes, scales, biases := folder.Tensors[name+".weight"], folder.Tensors[name+".scales"], folder.Tensors[name+".biases"]
			for i := range codes.Data {
				codes.Data[i] = byte(rng.Uint32())
			}
			number := func(w tiny.RawTensor, i int) float64 {
				x := make([]float32, 1)
				require.NoError(t, quant.Dequantize(x, w.Data[2*i:][:2], p.Scales))
				return float64(x[0])
			}
			for _, w := range []tiny.RawTensor{scales, biases} {
				for i := 0; i < len(w.Data); i += 2 {
					require.NoError(t, quant.Quantize(w.Data[i:][:2], []float32{float32(rng.NormFloat64())}, p.Scales))
				}
			}
			w, ok := open(t, folder.Write(t)).Tensor("blk.0.ffn_down.weight")
			require.True(t, ok)
			got := widened(t, w)
			require.Len(t, got, 8*len(codes.Data)/p.Bits)
			for i, x := range got {
				at := i * p.Bits
				word := binary.LittleEndian.Uint32(codes.Data[at/32*4:])
				product := number(scales, i/p.Group) * float64(word>>(at%32)&(1<<p.Bits-1))
				want := product + number(biases, i/p.Group)
				require.InDelta(t, want, float64(x), 0x1p-24*(math.Abs(product)+math.Abs(want)), "element %d", i)
			}
		})
	}
}

// TestMLXTruncated opens folders whose file ends early.
func TestMLXTruncated(t *testing.T) {
	dir := tiny.NewMLX(t, "tiny-qwen3", tiny.Packing{Bits: 4, Group: 64, Scales: dtype.F16}).Write(t)
	path := filepath.Join(dir, "model.safetensors")
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	for _, n := range []int{0, 7, 100, len(whole) / 2, len(whole) - 1} {
		require.NoError(t, os.WriteFile(path, whole[:n], 0o644))
		_, err := checkpoint.Open(dir)
		require.ErrorContains(t, err, "model.safetensors", "%d bytes", n)
	}
}
