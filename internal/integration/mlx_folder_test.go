package integration_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/fixture"
	"github.com/smelt-ml/smelt/internal/tiny"
	"github.com/smelt-ml/smelt/internal/tools/parity"
	"github.com/smelt-ml/smelt/ir/dtype"
)

// TestMLXFolder has a folder that MLX packed compute what floats of the same values do: in
// floats alike, and on the CPU as far off as activations of 8 bits are.
func TestMLXFolder(t *testing.T) {
	for name, packing := range map[string]tiny.Packing{
		"affine of 4 bits": {Bits: 4, Group: 64, Scales: dtype.BF16},
		"affine of 8 bits": {Bits: 8, Group: 64, Scales: dtype.F16},
		"mxfp4":            {Bits: 4, Group: 32},
	} {
		folder := tiny.NewMLX(t, "tiny-qwen3", packing)
		packed, values := folder.Write(t), folder.WriteValues(t)
		for device, bound := range map[string]float64{"emu": 1e-5, "cpu": 0.1} {
			t.Run(name+"/"+device, func(t *testing.T) {
				logits := func(path string) []float32 {
					return fixture.Logits(t, fixture.Session(t, path, device, parityOptions(t, device)), parity.Text())
				}
				want, got := logits(values), logits(packed)
				t.Logf("%.2g of the standard deviation apart", parity.Largest(want, got))
				require.Less(t, parity.Largest(want, got), bound)
			})
		}
	}
}
