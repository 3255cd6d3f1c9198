package integration_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/internal/compare"
	"github.com/smelt-ml/smelt/internal/fixture"
	"github.com/smelt-ml/smelt/internal/tiny"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/models/checkpoint"
	"github.com/smelt-ml/smelt/models/quantize"
)

// quantizedTo returns the path of a model's file in another type.
func quantizedTo(t testing.TB, m *smelt.Model, weightType string) (string, *quantize.Result) {
	path := filepath.Join(t.TempDir(), weightType+".gguf")
	f, err := os.Create(path)
	require.NoError(t, err)
	defer f.Close()
	q, err := quantize.Write(t.Context(), f, m.File(), weightType, nil)
	require.NoError(t, err)
	return path, q
}

// Rows that are no whole number of blocks get the types that llama.cpp falls back
// to, and every such file runs.
func TestQuantizeNarrow(t *testing.T) {
	source := fixture.Open(t, fixture.Random(t, tiny.Narrow(), "f32"))
	for _, typ := range checkpoint.WeightTypes() {
		t.Run(typ, func(t *testing.T) {
			path, q := quantizedTo(t, source, typ)
			m := fixture.Open(t, path)
			shape, err := checkpoint.Synthetic(tiny.Narrow(), typ)
			require.NoError(t, err)
			narrow := 0
			for _, want := range shape.Tensors() {
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
			opts := fixture.Options(t, "emu", dtype.F32)
			opts.Act = dtype.F32
			d := compare.Largest(want, fixture.Logits(t, fixture.Session(t, path, "emu", opts), ids))
			t.Logf("largest difference %.2g", d)
			require.LessOrEqual(t, d, 1e-4)
			require.NotContains(t, fmt.Sprint(fixture.Logits(t, fixture.Session(t, path, "cpu", fixture.Options(t, "cpu", dtype.F16)), ids)), "NaN")
		})
	}
}
