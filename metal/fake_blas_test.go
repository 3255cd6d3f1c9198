//go:build fakemetal && openblas && linux

package metal_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/device"
	"github.com/smelt-ml/smelt/internal/compare"
	"github.com/smelt-ml/smelt/internal/compiler"
	"github.com/smelt-ml/smelt/internal/fixture"
	"github.com/smelt-ml/smelt/lower"
	"github.com/smelt-ml/smelt/metal/internal/fakemetal"
)

// TestProductsByBLAS places products of float weights on the CPU, all of them and at
// random: a BLAS takes those of several tokens, and gives what the native kernels give
// but for the order of sums.
func TestProductsByBLAS(t *testing.T) {
	const bound = 1e-2 // activations between products are halves
	prompt := []int32{1, 100, 33, 7, 250, 12, 400, 5, 9}
	for _, name := range []string{"tiny-qwen3", "tiny-llama"} {
		t.Run(name, func(t *testing.T) {
			for text, place := range map[string]lower.Placement{
				"all":      lower.AtLeast(0),
				"one in 2": oneIn(2),
				"one in 4": oneIn(4),
			} {
				program := tiny(t, name, fixture.With(smelt.Options{Level: 1}, compiler.Knobs{Products: place}))
				run := func(o fakemetal.Options, blas string) (logits []float32) {
					fake(t, o)
					session := sessionOn(t, program, "metal", device.Options{Poison: true, Own: map[string]string{"blas": blas}})
					defer session.Loaded().Close()
					for _, ids := range [][]int32{prompt, {12}} {
						row, err := session.Feed(t.Context(), ids)
						require.NoError(t, err)
						logits = append(logits, row...)
					}
					return logits
				}
				native := run(fakemetal.Options{Poison: true}, "off")
				got := run(fakemetal.Options{Poison: true}, "on")
				require.NotEqual(t, native, got, "%s: no product went to the BLAS", text)
				for seed := range uint32(3) {
					require.Equal(t, got, run(fakemetal.Options{Poison: true, Shuffle: true, Seed: seed, DelayUS: 100}, "on"), "%s: seed %d", text, seed)
				}
				most := compare.Largest(native, got)
				t.Logf("%s: %.2g", text, most)
				require.LessOrEqual(t, most, bound, text)
				nothingLeft(t)
			}
		})
	}
}
