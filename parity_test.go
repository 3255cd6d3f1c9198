package smelt_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/npy"
	"github.com/smelt-ml/smelt/internal/parity"
	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/ir"
)

// Bounds for what llama.cpp computes, in standard deviations of its logits.
const parityBound = 0.02

// TestParity compares every family with llama.cpp: prompts and tokens one by one, each
// geometry in F32 and, in a slice, in one more type of weights.
func TestParity(t *testing.T) {
	for _, family := range parity.Families() {
		t.Run(family, func(t *testing.T) {
			array, err := npy.ReadFile[float32](filepath.Join("testdata/parity", family+".npy"))
			require.NoError(t, err)
			far, err := parity.ReadDistances(filepath.Join("testdata/parity", family+".txt"))
			require.NoError(t, err)
			const each = parity.Tokens * parity.Vocab
			for i, c := range parity.Cases(family) {
				want := array.Data[i*each : (i+1)*each]
				for k, typ := range parity.Types {
					if k > 0 && k%len(parity.Types) != i && !testfiles.Whole() {
						continue
					}
					path := writeCase(t, c, typ)
					for _, device := range []string{"cpu", "emu"} {
						opts := options(t, device, ir.F32)
						if device == "emu" {
							opts.Act = ir.F32
						}
						opts.Context = 64
						t.Run(strings.TrimPrefix(c.Name, family+"/")+"/"+typ+"/"+device, func(t *testing.T) {
							s := session(t, path, device, opts)
							closeTo(t, want, logitsOf(t, s, parity.Text()), far[[2]string{c.Name, typ}], typ)
							s.Reset()
							var single []float32
							for _, id := range parity.Text() {
								l, err := s.Feed(t.Context(), []int32{id})
								require.NoError(t, err)
								single = append(single, l...)
							}
							closeTo(t, want, single, far[[2]string{c.Name, typ}], typ)
						})
					}
				}
			}
		})
	}
}

func closeTo(t *testing.T, want, got []float32, far float64, weightType string) {
	t.Helper()
	if weightType == "f32" {
		require.LessOrEqual(t, parity.Largest(want, got), parityBound)
		return
	}
	require.Positive(t, far)
	require.LessOrEqual(t, parity.Spread(want, got), far+parityBound)
}

func writeCase(t *testing.T, c parity.Case, weightType string) string {
	path := filepath.Join(t.TempDir(), "model.gguf")
	f, err := os.Create(path)
	require.NoError(t, err)
	require.NoError(t, c.Write(f, weightType))
	require.NoError(t, f.Close())
	return path
}
