package quant

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/ir"
)

// The sizes that the codecs step by are constants, for the compiler's sake: they are those
// of the table of types.
func TestBlockSizes(t *testing.T) {
	for d, bytes := range map[ir.DType]int{
		ir.Q8_0: bytesQ8_0, ir.Q4_0: bytesQ4_0, ir.Q4_1: bytesQ4_1, ir.Q5_0: bytesQ5_0, ir.Q5_1: bytesQ5_1,
		ir.Q2_K: bytesQ2_K, ir.Q3_K: bytesQ3_K, ir.Q4_K: bytesQ4_K, ir.Q5_K: bytesQ5_K, ir.Q6_K: bytesQ6_K,
		ir.MXFP4: bytesMXFP4, ir.IQ4_NL: bytesIQ4_NL, ir.IQ4_XS: bytesIQ4_XS, ir.MLX4: bytesMLX4, ir.MLX8: bytesMLX8,
	} {
		require.Equal(t, d.BlockBytes(), bytes, d)
	}
	for d := range codecs {
		if d := ir.DType(d); d.IsQuantized() {
			require.Contains(t, []int{32, elemsMLX, superBlock}, d.BlockElems(), d)
		}
	}
	for _, d := range ir.DTypes() {
		require.Equal(t, d.IsFloat() || d.IsQuantized(), CanDequantize(d) && CanQuantize(d), d)
	}
}
