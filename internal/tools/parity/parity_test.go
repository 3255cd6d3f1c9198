package parity_test

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/samber/lo"
	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/tools/parity"
)

// TestCases checks that every family has five cases of distinct names and geometries, and a
// vocabulary that holds its text and its logits.
func TestCases(t *testing.T) {
	all := append(parity.Families(), parity.Embedders()...)
	require.Empty(t, lo.FindDuplicates(all))
	for _, family := range all {
		cases := parity.Cases(family)
		require.Len(t, cases, 5, family)
		widths := map[int]bool{}
		for i, c := range cases {
			require.Equal(t, family+"/"+string(rune('0'+i)), c.Name)
			require.Positive(t, c.Seed, c.Name)
			require.Equal(t, parity.Vocab, c.Config.Vocab, c.Name)
			widths[c.Config.Width] = true
		}
		require.Greater(t, len(widths), 2, family)
		require.Equal(t, "f32", parity.Types(family)[0], family)
	}
	text := parity.Text()
	require.Len(t, text, parity.Tokens)
	require.Equal(t, text, parity.Text())
	require.Greater(t, len(lo.Uniq(text)), parity.Tokens/2)
	for _, id := range text {
		require.True(t, id >= 0 && id < parity.Vocab, id)
	}
}

// TestWrite writes a case's file twice, with the same bytes, and another case's with others.
func TestWrite(t *testing.T) {
	file := func(c parity.Case, weightType string) []byte {
		var b bytes.Buffer
		require.NoError(t, c.Write(&b, weightType))
		return b.Bytes()
	}
	cases := parity.Cases("llama")
	first := file(cases[0], "q8_0")
	require.True(t, bytes.Equal(first, file(cases[0], "q8_0")))
	require.False(t, bytes.Equal(first, file(cases[0], "q4_0")))
	require.False(t, bytes.Equal(first, file(cases[1], "q8_0")))
	require.ErrorContains(t, cases[0].Write(&bytes.Buffer{}, "q3"), "llama/0")
}

func TestDistances(t *testing.T) {
	want := []float32{1, -1, 1, -1} // of deviation 1
	require.InDelta(t, 0.5, parity.Largest(want, []float32{1, -1, 1.5, -0.75}), 1e-7)
	require.InDelta(t, math.Sqrt(0.25/4), parity.Spread(want, []float32{1, -1, 1.5, -1}), 1e-7)
	twice := lo.Map(want, func(x float32, _ int) float32 { return 2 * x })
	require.InDelta(t, 0.5, parity.Largest(twice, []float32{2, -2, 3, -2}), 1e-7, "in deviations of the first")
	require.Zero(t, parity.Largest(want, want))
	require.Zero(t, parity.Spread(want, want))
	require.True(t, math.IsInf(parity.Spread(want, want[:3]), 1))
	nan := float32(math.NaN())
	require.False(t, parity.Largest(want, []float32{1, -1, nan, -1}) <= 1e9, "what is no number is not near")
	require.False(t, parity.Spread(want, []float32{1, -1, nan, -1}) <= 1e9)

	require.InDelta(t, 1, parity.Cosine(want, twice), 1e-12)
	require.InDelta(t, 0, parity.Cosine([]float32{1, 0}, []float32{0, 3}), 1e-12)
	require.InDelta(t, -1, parity.Cosine([]float32{1, 2}, []float32{-2, -4}), 1e-12)
}

func TestDistanceFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "far.txt")
	require.NoError(t, parity.WriteDistances(path, []parity.Distance{{"llama/0", "q8_0", 0.0125}, {"llama/1", "q4_0", 0.5}}))
	far, err := parity.ReadDistances(path)
	require.NoError(t, err)
	require.Equal(t, map[[2]string]float64{{"llama/0", "q8_0"}: 0.0125, {"llama/1", "q4_0"}: 0.5}, far)
	require.NoError(t, os.WriteFile(path, []byte("llama/0 q8_0 0.1\nllama/1 q8_0\n"), 0o644))
	_, err = parity.ReadDistances(path)
	require.ErrorContains(t, err, path)
	_, err = parity.ReadDistances(filepath.Join(t.TempDir(), "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestSplitEmbeddings(t *testing.T) {
	family := parity.Embedders()[0]
	var all []float32
	for i, c := range parity.Cases(family) {
		states := lo.Times((parity.Tokens+1)*c.Config.Width, func(int) float32 { return float32(i) })
		all = append(all, states...)
	}
	parts, err := parity.SplitEmbeddings(family, all)
	require.NoError(t, err)
	for i, c := range parity.Cases(family) {
		require.Len(t, parts[i].States, parity.Tokens*c.Config.Width)
		require.Len(t, parts[i].Pooled, c.Config.Width)
		require.Equal(t, []float32{float32(i)}, lo.Uniq(append(parts[i].States, parts[i].Pooled...)))
	}
	_, err = parity.SplitEmbeddings(family, all[:len(all)-1])
	require.ErrorContains(t, err, "numbers are left")
	_, err = parity.SplitEmbeddings(family, append(all, 0))
	require.ErrorContains(t, err, "1 numbers too many")
}
