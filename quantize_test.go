package smelt_test

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

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/internal/compare"
	"github.com/smelt-ml/smelt/internal/quant"
	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/internal/tiny"
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/models"
	"github.com/smelt-ml/smelt/models/gguf"
)

// quantized returns the path of a model's file in another type.
func quantized(t testing.TB, m *smelt.Model, weightType string) (string, *smelt.Quantized) {
	path := filepath.Join(t.TempDir(), weightType+".gguf")
	f, err := os.Create(path)
	require.NoError(t, err)
	defer f.Close()
	q, err := m.WriteQuantized(t.Context(), f, weightType, nil)
	require.NoError(t, err)
	return path, q
}

func opened(t testing.TB, path string) *smelt.Model {
	m, err := smelt.Open(path, "")
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
	for _, name := range trained {
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
	for _, name := range trained {
		t.Run(name, func(t *testing.T) {
			folder := opened(t, tiny.Folder(t, name))
			reference := testfiles.Model(t, name+"/gguf/"+name+"-F16.gguf")
			path, q := quantized(t, folder, "F16")
			requireTensors(t, reference, path)
			require.Less(t, q.Before, q.After) // norms were BF16
			want, got := opened(t, reference), opened(t, path)
			w, g := want.File().Config, got.File().Config
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

// narrowShape has rows of 32, 48 and 64 elements.
func narrowShape() models.Config {
	return models.Config{
		Family: "llama", Name: "narrow", Vocab: 300, Width: 32, Layers: 2, Heads: 6, KVHeads: 2, Head: 8, FFN: 64,
		Context: 64, Eps: 1e-5, Rope: models.Rope{Theta: 1e4, Llama3: &models.Llama3Rope{Factor: 8, LowFrequency: 1, HighFrequency: 4, OldContext: 32}},
	}
}

// random writes a shape with random weights.
func random(t testing.TB, c models.Config, weightType string) string {
	m, err := smelt.Shape(c, weightType)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "random.gguf")
	f, err := os.Create(path)
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, m.WriteRandom(f, weightType, 1, nil))
	return path
}

// Rows that are no whole number of blocks get the types that llama.cpp falls back
// to, and every such file runs.
func TestQuantizeNarrow(t *testing.T) {
	source := opened(t, random(t, narrowShape(), "f32"))
	for _, typ := range models.WeightTypes() {
		t.Run(typ, func(t *testing.T) {
			path, q := quantized(t, source, typ)
			m := opened(t, path)
			shape, err := smelt.Shape(narrowShape(), typ)
			require.NoError(t, err)
			narrow := 0
			for _, want := range shape.File().Tensors() {
				got, ok := m.File().Tensor(want.Name)
				require.True(t, ok)
				require.Equal(t, want.DType, got.DType, want.Name)
				if want.DType == ir.F16 && typ != "f16" {
					narrow++
				}
			}
			switch {
			case strings.Contains(typ, "_k"):
				require.Equal(t, 2*7+2, q.Narrow, "every matrix")
				require.Equal(t, 2, narrow, "rows of 48")
			case strings.HasPrefix(typ, "q8"):
				require.Equal(t, 2, q.Narrow)
			case strings.HasPrefix(typ, "q"): // the head would be Q6_K
				require.Equal(t, 2+1, q.Narrow)
			default:
				require.Zero(t, q.Narrow)
			}
			ids := []int32{1, 2, 3, 50, 299}
			want := interpreted(t, path, ids, ir.F32)
			opts := options(t, "emu", ir.F32)
			opts.Act = ir.F32
			d := compare.Largest(want, logitsOf(t, session(t, path, "emu", opts), ids))
			t.Logf("largest difference %.2g", d)
			require.LessOrEqual(t, d, 1e-4)
			require.NotContains(t, fmt.Sprint(logitsOf(t, session(t, path, "cpu", options(t, "cpu", ir.F16)), ids)), "NaN")
		})
	}
}

// A weight that is not finite is an error that names it, whatever the type.
func TestQuantizeNaN(t *testing.T) {
	const tensor = "blk.1.ffn_down.weight"
	for _, name := range []string{"F16", "Q4_0"} {
		path := tiny.Spoilt(t, "tiny-llama/gguf/tiny-llama-"+name+".gguf", tensor, 3)
		for _, typ := range []string{"f32", "f16", "bf16", "q8_0", "q5_1", "q4_0", "q6_k", "q4_k_m", "q2_k"} {
			_, err := opened(t, path).WriteQuantized(t.Context(), io.Discard, typ, nil)
			require.ErrorIs(t, err, smelt.ErrWeight, typ)
			require.ErrorContains(t, err, fmt.Sprintf(`%s: write GGUF: tensor "%s": a weight cannot be stored: element %d is NaN`, path, tensor, 3*768))
		}
	}
}

// A weight too large for its new type is named, too.
func TestQuantizeOverflow(t *testing.T) {
	path := random(t, narrowShape(), "f32")
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
		require.NoError(t, quant.Quantise(data[at:at+4], []float32{c.value}, ir.F32))
		require.NoError(t, os.WriteFile(path, data, 0o644))
		_, err := opened(t, path).WriteQuantized(t.Context(), io.Discard, c.typ, nil)
		if !c.fails {
			require.NoError(t, err, "%+v", c)
			continue
		}
		require.ErrorIs(t, err, smelt.ErrWeight, "%+v", c)
		require.ErrorContains(t, err, fmt.Sprintf("element %d is %g", 5*32+7, c.value))
	}
}

// Memory does not grow with the model: each worker has its slice.
func TestQuantizeMemory(t *testing.T) {
	c := narrowShape()
	c.Width, c.FFN = 512, 4096 // 34 MB as float32
	m := opened(t, random(t, c, "q8_0"))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	q, err := m.WriteQuantized(t.Context(), io.Discard, "q4_0", nil)
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
	_, err := m.WriteQuantized(ctx, io.Discard, "q4_k_m", func(done, total int64) {
		require.LessOrEqual(t, done, total)
		cancel()
	})
	require.ErrorIs(t, err, context.Canceled)
	full := errors.New("no space")
	_, err = m.WriteQuantized(t.Context(), failing{full}, "q4_0", nil)
	require.ErrorIs(t, err, full)
	_, err = m.WriteQuantized(t.Context(), io.Discard, "q9", nil)
	require.ErrorIs(t, err, models.ErrConfig)
	shape, err := smelt.Open("arch:qwen3-0.6b", "")
	require.NoError(t, err)
	_, err = shape.WriteQuantized(t.Context(), io.Discard, "q4_0", nil)
	require.ErrorIs(t, err, smelt.ErrNoWeights)
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// Random weights of every mixture are made and run, in a file as in memory.
func TestRandomWeights(t *testing.T) {
	c := narrowShape()
	c.Width, c.Head, c.FFN, c.Heads, c.KVHeads = 256, 64, 512, 4, 2
	for _, typ := range models.WeightTypes() {
		t.Run(typ, func(t *testing.T) {
			shape, err := smelt.Shape(c, typ)
			require.NoError(t, err)
			m, err := shape.Randomise(t.Context(), 1)
			require.NoError(t, err)
			opts := options(t, "cpu", ir.F16)
			inMemory := logitsOf(t, sessionOf(t, m, "cpu", opts), []int32{1, 2, 3, 4})
			require.NotContains(t, fmt.Sprint(inMemory), "NaN")
			if typ == "q4_k_m" {
				require.Equal(t, inMemory, logitsOf(t, session(t, random(t, c, typ), "cpu", opts), []int32{1, 2, 3, 4}))
			}
		})
	}
}
