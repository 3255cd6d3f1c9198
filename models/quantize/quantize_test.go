package quantize_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/internal/tiny"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/models"
	"github.com/smelt-ml/smelt/models/checkpoint"
	"github.com/smelt-ml/smelt/models/gguf"
	"github.com/smelt-ml/smelt/models/quant"
	"github.com/smelt-ml/smelt/models/quantize"
)

// quantized returns the path of a model's file in another type.
func quantized(t testing.TB, m *checkpoint.Checkpoint, weightType string) (string, *quantize.Result) {
	path := filepath.Join(t.TempDir(), weightType+".gguf")
	f, err := os.Create(path)
	require.NoError(t, err)
	defer f.Close()
	q, err := quantize.Write(t.Context(), f, m, weightType, nil)
	require.NoError(t, err)
	return path, q
}

func opened(t testing.TB, path string) *checkpoint.Checkpoint {
	m, err := checkpoint.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { m.Close() })
	return m
}

// requireTensors wants the tensors of two files to be the same, byte for byte.
func requireTensors(t testing.TB, want, got string) {
	a, err := gguf.Open(want)
	require.NoError(t, err)
	defer a.Close()
	b, err := gguf.Open(got)
	require.NoError(t, err)
	defer b.Close()
	require.Len(t, b.Tensors, len(a.Tensors))
	for _, w := range a.Tensors {
		g, ok := b.Tensor(w.Name)
		require.True(t, ok, w.Name)
		require.Equal(t, w.Type, g.Type, w.Name)
		require.Equal(t, w.Shape, g.Shape, w.Name)
		require.True(t, string(w.Data) == string(g.Data), "%s differs", w.Name)
	}
}

// Files of the trained models have the tensors of those that llama-quantize made.
func TestQuantizeLikeLlama(t *testing.T) {
	for _, name := range []string{"tiny-qwen3", "tiny-llama"} {
		m := opened(t, testfiles.Model(t, name+"/gguf/"+name+"-F16.gguf"))
		for _, typ := range []string{"F16", "Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q3_K_M", "Q2_K"} {
			t.Run(name+"/"+typ, func(t *testing.T) {
				want := tiny.GGUF(t, name, typ)
				path, q := quantized(t, m, strings.ToLower(typ))
				requireTensors(t, want, path)
				require.NoError(t, tiny.Check(name+"-"+typ+".gguf", path))
				require.Zero(t, q.Narrow)
				require.Zero(t, q.Again)
				a, err := gguf.Open(want)
				require.NoError(t, err)
				defer a.Close()
				b, err := gguf.Open(path)
				require.NoError(t, err)
				defer b.Close()
				for _, kv := range a.Metadata {
					v, ok := b.Lookup(kv.Key)
					require.True(t, ok, kv.Key)
					require.Equal(t, kv.Value.Any(), v.Any(), kv.Key)
				}
			})
		}
	}
}

// A folder of safetensors gives the file that llama.cpp's converter gives: rows of
// interleaved RoPE, the vocabulary, and what the model says of itself.
func TestQuantizeFolder(t *testing.T) {
	for _, name := range []string{"tiny-qwen3", "tiny-llama"} {
		t.Run(name, func(t *testing.T) {
			folder := opened(t, tiny.Folder(t, name))
			reference := testfiles.Model(t, name+"/gguf/"+name+"-F16.gguf")
			path, q := quantized(t, folder, "F16")
			requireTensors(t, reference, path)
			require.Less(t, q.Before, q.After) // norms were BF16
			want, got := opened(t, reference), opened(t, path)
			w, g := want.Config, got.Config
			w.Name, g.Name = "", ""
			require.Equal(t, w, g)
			text, err := os.ReadFile(testfiles.Model(t, "valid.txt"))
			require.NoError(t, err)
			text = append([]byte("été 🦊 \t<|im_start|>  aaaaaaaa\n\n  \"¿Qué?\" 12345 "), text[:4000]...)
			wantTok, err := want.Tokenizer()
			require.NoError(t, err)
			gotTok, err := got.Tokenizer()
			require.NoError(t, err)
			require.Equal(t, wantTok.Encode(string(text), true), gotTok.Encode(string(text), true))
			require.Equal(t, wantTok.StopIDs(), gotTok.StopIDs())
			wantBOS, has := wantTok.BOS()
			gotBOS, hasToo := gotTok.BOS()
			require.Equal(t, has, hasToo)
			if has {
				require.Equal(t, wantBOS, gotBOS)
			}
		})
	}
}

// A weight that is not finite is an error that names it, whatever the type.
func TestQuantizeNaN(t *testing.T) {
	const tensor = "blk.1.ffn_down.weight"
	for _, name := range []string{"F16", "Q4_0"} {
		path := tiny.Spoilt(t, "tiny-llama/gguf/tiny-llama-"+name+".gguf", tensor, 3)
		for _, typ := range []string{"f32", "f16", "bf16", "q8_0", "q5_1", "q4_0", "q6_k", "q4_k_m", "q2_k"} {
			_, err := quantize.Write(t.Context(), io.Discard, opened(t, path), typ, nil)
			require.ErrorIs(t, err, quantize.ErrWeight, typ)
			require.ErrorContains(t, err, fmt.Sprintf(`%s: write GGUF: tensor "%s": a weight cannot be stored: element %d is NaN`, path, tensor, 3*768))
		}
	}
}

// A weight too large for its new type is named, too.
func TestQuantizeOverflow(t *testing.T) {
	path := tiny.Random(t, tiny.Narrow(), "f32")
	f, err := gguf.Open(path)
	require.NoError(t, err)
	w, ok := f.Tensor("blk.1.attn_q.weight")
	require.True(t, ok)
	at := w.Offset + 4*(5*32+7)
	require.NoError(t, f.Close())
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	for _, c := range []struct {
		value float32
		typ   string
		fails bool
	}{
		{65519, "f16", false}, {65520, "f16", true}, {-65520, "f16", true}, {65520, "bf16", false}, {3.4e38, "bf16", true},
		{3.4e38, "f32", false}, {1e7, "q4_0", true}, {1e7, "q8_0", true}, {60000, "q4_k_m", false}, {float32(math.Inf(-1)), "f32", true},
	} {
		require.NoError(t, quant.Quantize(data[at:at+4], []float32{c.value}, dtype.F32))
		require.NoError(t, os.WriteFile(path, data, 0o644))
		_, err := quantize.Write(t.Context(), io.Discard, opened(t, path), c.typ, nil)
		if !c.fails {
			require.NoError(t, err, "%+v", c)
			continue
		}
		require.ErrorIs(t, err, quantize.ErrWeight, "%+v", c)
		require.ErrorContains(t, err, fmt.Sprintf("element %d is %g", 5*32+7, c.value))
	}
}

// Memory does not grow with the model: each worker has its slice.
func TestQuantizeMemory(t *testing.T) {
	c := tiny.Narrow()
	c.Width, c.FFN = 512, 4096 // 34 MB as float32
	m := opened(t, tiny.Random(t, c, "q8_0"))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	q, err := quantize.Write(t.Context(), io.Discard, m, "q4_0", nil)
	require.NoError(t, err)
	runtime.ReadMemStats(&after)
	slices := uint64(runtime.GOMAXPROCS(0)) * (1 << 18) * (4 + 2)
	took := after.TotalAlloc - before.TotalAlloc
	t.Logf("%d bytes for a file of %d", took, q.After)
	require.Less(t, took, slices+6<<20) // the buffer of the writer and the graph besides
	require.Equal(t, 2*6+2, q.Again)    // rows of 48 are F16 in both
}

func TestQuantizeStops(t *testing.T) {
	m := opened(t, testfiles.Model(t, "tiny-llama/gguf/tiny-llama-F16.gguf"))
	ctx, cancel := context.WithCancel(t.Context())
	_, err := quantize.Write(ctx, io.Discard, m, "q4_k_m", func(done, total int64) {
		require.LessOrEqual(t, done, total)
		cancel()
	})
	require.ErrorIs(t, err, context.Canceled)
	full := errors.New("no space")
	_, err = quantize.Write(t.Context(), failing{full}, m, "q4_0", nil)
	require.ErrorIs(t, err, full)
	_, err = quantize.Write(t.Context(), io.Discard, m, "q9", nil)
	require.ErrorIs(t, err, models.ErrConfig)
	shape, err := checkpoint.Arch("qwen3-0.6b", "f16")
	require.NoError(t, err)
	_, err = quantize.Write(t.Context(), io.Discard, shape, "q4_0", nil)
	require.ErrorIs(t, err, checkpoint.ErrNoWeights)
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }
