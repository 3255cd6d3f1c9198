package quant_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/models/quant"
)

// TestBlockSizes compares the block sizes of the codecs, which are constants so that the compiler
// can optimise, with the table of types: several equal blocks give equal elements, and several
// runs of equal elements give equal blocks.
func TestBlockSizes(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, d := range dtype.Weights() {
		require.True(t, quant.CanDequantize(d), "%v has no decoder", d)
		bytes, elems := d.BlockBytes(), d.BlockElems()
		src, dst := make([]byte, 3*bytes), make([]float32, 3*elems)
		for i := range bytes {
			src[i] = byte(r.Uint32()) & 0x3b // no half and no exponent is out of range
			src[bytes+i], src[2*bytes+i] = src[i], src[i]
		}
		require.NoError(t, quant.Dequantize(dst, src, d))
		require.Equal(t, dst[:elems], dst[elems:2*elems], d)
		require.Equal(t, dst[:elems], dst[2*elems:], d)
		if !quant.CanQuantize(d) {
			continue
		}
		clear(src)
		require.NoError(t, quant.Quantize(src, dst, d))
		require.Equal(t, src[:bytes], src[bytes:2*bytes], d)
		require.Equal(t, src[:bytes], src[2*bytes:], d)
	}
	for _, d := range dtype.All() {
		require.Equal(t, d.IsFloat() || d.IsQuantized(), quant.CanDequantize(d), d)
	}
}
