package quant

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/ir/dtype"
)

// The sizes that the codecs step by are constants, for the compiler's sake: they are those
// of the table of types.
func TestBlockSizes(t *testing.T) {
	for d, bytes := range map[dtype.Type]int{
		dtype.Q8_0: bytesQ8_0, dtype.Q4_0: bytesQ4_0, dtype.Q4_1: bytesQ4_1, dtype.Q5_0: bytesQ5_0, dtype.Q5_1: bytesQ5_1,
		dtype.Q2_K: bytesQ2_K, dtype.Q3_K: bytesQ3_K, dtype.Q4_K: bytesQ4_K, dtype.Q5_K: bytesQ5_K, dtype.Q6_K: bytesQ6_K,
		dtype.MXFP4: bytesMXFP4, dtype.IQ4_NL: bytesIQ4_NL, dtype.IQ4_XS: bytesIQ4_XS, dtype.MLX4: bytesMLX4, dtype.MLX8: bytesMLX8,
	} {
		require.Equal(t, d.BlockBytes(), bytes, d)
	}
	for d := range codecs {
		if d := dtype.Type(d); d.IsQuantized() {
			require.Contains(t, []int{32, elemsMLX, superBlock}, d.BlockElems(), d)
		}
	}
	for _, d := range dtype.All() {
		require.Equal(t, d.IsFloat() || d.IsQuantized(), CanDequantize(d) && CanQuantize(d), d)
	}
}
