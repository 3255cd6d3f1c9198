package smelt_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/internal/compare"
	"github.com/smelt-ml/smelt/internal/parity"
	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/internal/tiny"
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/models"
	"github.com/smelt-ml/smelt/models/synth"
)

// quantizedTo returns the path of a model's file in another type.
func quantizedTo(t testing.TB, m *smelt.Model, weightType string) (string, *smelt.Quantized) {
	path := filepath.Join(t.TempDir(), weightType+".gguf")
	f, err := os.Create(path)
	require.NoError(t, err)
	defer f.Close()
	q, err := m.Quantize(t.Context(), f, weightType, nil)
	require.NoError(t, err)
	return path, q
}

func opened(t testing.TB, path string) *smelt.Model {
	m, err := smelt.Open(path, "")
	require.NoError(t, err)
	t.Cleanup(func() { m.Close() })
	return m
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
	source := opened(t, random(t, tiny.Narrow(), "f32"))
	for _, typ := range models.WeightTypes() {
		t.Run(typ, func(t *testing.T) {
			path, q := quantizedTo(t, source, typ)
			m := opened(t, path)
			shape, err := smelt.Shape(tiny.Narrow(), typ)
			require.NoError(t, err)
			narrow := 0
			for _, want := range shape.File().Tensors() {
				got, ok := m.File().Tensor(want.Name)
				require.True(t, ok)
				require.Equal(t, want.DType, got.DType, want.Name)
				if want.DType == dtype.F16 && typ != "f16" {
					narrow++
				}
			}
			switch {
			case strings.Contains(typ, "_k") || typ == "iq4_xs": // blocks of 256
				require.Equal(t, 2*7+2, q.Narrow, "every matrix")
				require.Equal(t, 2, narrow, "rows of 48")
			case strings.HasPrefix(typ, "q8") || typ == "mxfp4":
				require.Equal(t, 2, q.Narrow)
			case strings.HasPrefix(typ, "q") || typ == "iq4_nl": // the head would be Q6_K
				require.Equal(t, 2+1, q.Narrow)
			default:
				require.Zero(t, q.Narrow)
			}
			ids := []int32{1, 2, 3, 50, 299}
			want := interpreted(t, path, ids, dtype.F32)
			opts := options(t, "emu", dtype.F32)
			opts.Act = dtype.F32
			d := compare.Largest(want, logitsOf(t, session(t, path, "emu", opts), ids))
			t.Logf("largest difference %.2g", d)
			require.LessOrEqual(t, d, 1e-4)
			require.NotContains(t, fmt.Sprint(logitsOf(t, session(t, path, "cpu", options(t, "cpu", dtype.F16)), ids)), "NaN")
		})
	}
}

// Random weights of every mixture are made and run, in a file as in memory.
func TestRandomWeights(t *testing.T) {
	c := tiny.Narrow()
	c.Width, c.Head, c.FFN, c.Heads, c.KVHeads = 256, 64, 512, 4, 2
	for _, typ := range models.WeightTypes() {
		t.Run(typ, func(t *testing.T) {
			shape, err := smelt.Shape(c, typ)
			require.NoError(t, err)
			m, err := shape.Randomise(t.Context(), 1)
			require.NoError(t, err)
			opts := options(t, "cpu", dtype.F16)
			inMemory := logitsOf(t, sessionOf(t, m, "cpu", opts), []int32{1, 2, 3, 4})
			require.NotContains(t, fmt.Sprint(inMemory), "NaN")
			if typ == "q4_k_m" {
				require.Equal(t, inMemory, logitsOf(t, session(t, random(t, c, typ), "cpu", opts), []int32{1, 2, 3, 4}))
			}
		})
	}
}

// TestRandomParts has weights in memory that files have as parts of others, or in other order.
func TestRandomParts(t *testing.T) {
	for _, family := range []string{"phi3", "deepseek2"} {
		c := parity.Cases(family)[4]
		shape, err := smelt.Shape(c.Config, "q4_k_m")
		require.NoError(t, err)
		m, err := shape.Randomise(t.Context(), c.Seed)
		require.NoError(t, err)
		opts := parityOptions(t, "cpu")
		require.Equal(t, logitsOf(t, session(t, writeCase(t, c, "q4_k_m"), "cpu", opts), parity.Text()), logitsOf(t, sessionOf(t, m, "cpu", opts), parity.Text()), family)
		require.NoError(t, m.Close())
	}
}

// What is defined in Go is in no file, and what is no shape has its weights.
func TestOtherWeights(t *testing.T) {
	defined := smelt.Define("defined", smelt.Tensors{}, func(*ir.Builder) {})
	_, err := defined.Quantize(t.Context(), io.Discard, "q4_0", nil)
	require.ErrorIs(t, err, smelt.ErrNoWeights)
	_, err = defined.Randomise(t.Context(), 1)
	require.ErrorContains(t, err, "defined in Go")
	require.ErrorContains(t, defined.WriteRandom(io.Discard, "q4_0", 1, nil), "defined in Go")
	trained := opened(t, testfiles.Model(t, "tiny-llama/gguf/tiny-llama-Q4_0.gguf"))
	_, err = trained.Randomise(t.Context(), 1)
	require.ErrorIs(t, err, synth.ErrShape)
}
