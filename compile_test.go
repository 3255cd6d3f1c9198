package smelt_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/internal/compiler"
	"github.com/smelt-ml/smelt/internal/fixture"
	"github.com/smelt-ml/smelt/lower"
)

// TestPlacementNeedsGPU: a program for cpu has no GPU to take products from.
func TestPlacementNeedsGPU(t *testing.T) {
	m, err := smelt.Open("arch:qwen3-0.6b", "q4_0")
	require.NoError(t, err)
	for _, placed := range []string{"cpu", "auto", "1e6"} {
		products, err := lower.ParsePlacement(placed, "")
		require.NoError(t, err)
		_, err = m.Compile(fixture.With(smelt.Options{Target: "cpu", Level: 1}, compiler.Knobs{Products: products}))
		require.ErrorIs(t, err, compiler.ErrPlacement, placed)
		_, err = m.Compile(fixture.With(smelt.Options{Target: "metal", Level: 1}, compiler.Knobs{Products: products}))
		require.NoError(t, err, placed)
	}
}

// TestSamePlan compiles twice: the same bytes.
func TestSamePlan(t *testing.T) {
	var first []byte
	for range 3 {
		m, err := smelt.Open("arch:llama3.2-1b", "q4_0")
		require.NoError(t, err)
		p, err := m.Compile(smelt.Options{Target: "cpu", Level: 1})
		require.NoError(t, err)
		var b bytes.Buffer
		require.NoError(t, p.Save(&b))
		if first == nil {
			first = b.Bytes()
		}
		require.Equal(t, first, b.Bytes())
	}
}
