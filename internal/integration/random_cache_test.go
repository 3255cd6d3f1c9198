package integration_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/internal/compare"
	"github.com/smelt-ml/smelt/internal/fixture"
	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/ir/dtype"
)

// A sequence of random contents goes on as another would, in each type of the cache: its
// logits are numbers, they depend on the contents, and only as much of the caches is
// touched as the sequence is long.
func TestFillRandom(t *testing.T) {
	path := testfiles.Model(t, "tiny-qwen3/gguf/tiny-qwen3-F16.gguf")
	for _, kv := range []dtype.Type{dtype.F16, dtype.F32, dtype.Q8_0} {
		t.Run(kv.String(), func(t *testing.T) {
			s := fixture.Session(t, path, "cpu", fixture.Options(t, "cpu", kv))
			after := func(seed uint64) []float32 {
				require.NoError(t, s.FillRandom(100, rand.New(rand.NewPCG(seed, 0))))
				require.Equal(t, 100, s.Length())
				logits, err := s.Feed(t.Context(), []int32{5})
				require.NoError(t, err)
				require.Equal(t, 101, s.Length())
				require.Zero(t, compare.Largest(logits, logits), "finite")
				return append([]float32(nil), logits...)
			}
			one, other := after(1), after(2)
			require.Equal(t, one, after(1))
			require.NotZero(t, compare.Largest(one, other))
			for _, n := range []int{-1, s.Context() + 1} {
				require.ErrorIs(t, s.FillRandom(n, rand.New(rand.NewPCG(1, 1))), smelt.ErrContext)
			}
			require.Equal(t, 101, s.Length())
			s.Reset()
			_, err := s.Feed(t.Context(), []int32{5})
			require.NoError(t, err)
		})
	}
}
