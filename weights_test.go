package smelt_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/internal/fixture"
	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/internal/tiny"
	"github.com/smelt-ml/smelt/internal/tools/parity"
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/models/checkpoint"
	"github.com/smelt-ml/smelt/models/synth"
)

// Random weights of every mixture are made and run, in a file as in memory.
func TestRandomWeights(t *testing.T) {
	c := tiny.Narrow()
	c.Width, c.Head, c.FFN, c.Heads, c.KVHeads = 256, 64, 512, 4, 2
	for _, typ := range checkpoint.WeightTypes() {
		t.Run(typ, func(t *testing.T) {
			shape, err := smelt.Shape(c, typ)
			require.NoError(t, err)
			m, err := shape.Randomise(t.Context(), 1)
			require.NoError(t, err)
			opts := fixture.Options(t, "cpu", dtype.F16)
			inMemory := fixture.Logits(t, fixture.SessionOf(t, m, "cpu", opts), []int32{1, 2, 3, 4})
			require.NotContains(t, fmt.Sprint(inMemory), "NaN")
			if typ == "q4_k_m" {
				require.Equal(t, inMemory, fixture.Logits(t, fixture.Session(t, fixture.Random(t, c, typ), "cpu", opts), []int32{1, 2, 3, 4}))
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
		opts := fixture.Options(t, "cpu", dtype.F32)
		opts.Context, opts.Prefill = 60, 32
		require.Equal(t, fixture.Logits(t, fixture.Session(t, fixture.Case(t, c, "q4_k_m"), "cpu", opts), parity.Text()), fixture.Logits(t, fixture.SessionOf(t, m, "cpu", opts), parity.Text()), family)
		require.NoError(t, m.Close())
	}
}

// What is defined in Go is in no file, and what is no shape has its weights.
func TestOtherWeights(t *testing.T) {
	defined := smelt.Define("defined", smelt.Tensors{}, func(*ir.Builder) {})
	_, err := defined.Randomise(t.Context(), 1)
	require.ErrorContains(t, err, "defined in Go")
	trained := fixture.Open(t, testfiles.Model(t, "tiny-llama/gguf/tiny-llama-Q4_0.gguf"))
	_, err = trained.Randomise(t.Context(), 1)
	require.ErrorIs(t, err, synth.ErrShape)
}
