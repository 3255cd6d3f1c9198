package quant_test

import (
	"encoding/binary"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/tools/parity"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/models/quant"
)

// TestBlocksAreGGMLs compares blocks and dequantized values with GGML's for the same weights.
// `go run ./internal/tools/peer parity --families none` writes their hashes.
func TestBlocksAreGGMLs(t *testing.T) {
	text, err := os.ReadFile("../../testdata/parity/blocks.txt")
	require.NoError(t, err)
	src := parity.Weights()
	seen := 0
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		require.Len(t, f, 3)
		elem, err := dtype.Parse(f[0])
		require.NoError(t, err)
		blocks := make([]byte, elem.Bytes(int64(len(src))))
		require.NoError(t, quant.Quantize(blocks, src, elem))
		assert.Equal(t, f[1], parity.Hash(blocks), "blocks of %s", elem)
		back := make([]float32, len(src))
		require.NoError(t, quant.Dequantize(back, blocks, elem))
		var values []byte
		for _, x := range back {
			values = binary.LittleEndian.AppendUint32(values, math.Float32bits(x))
		}
		assert.Equal(t, f[2], parity.Hash(values), "values of %s", elem)
		seen++
	}
	for _, elem := range dtype.All() {
		if _, ok := elem.GGUF(); ok && elem.IsQuantized() {
			seen--
		}
	}
	require.Zero(t, seen, "types")
}

// TestCodesAreNearTheBest compares the scales of the codebook formats with the best of every
// power of two, or of a fine grid. GGML's rule for MXFP4, a scale by the largest magnitude alone,
// loses a known part of the error; its search for IQ4_NL, which weighs large elements more, loses
// hardly any.
func TestCodesAreNearTheBest(t *testing.T) {
	src := gaussian(32*400, 0.02, 12)
	nearest := func(x float64, values []float64, scale float64) float64 {
		least := math.Inf(1)
		for _, v := range values {
			least = min(least, (v*scale-x)*(v*scale-x))
		}
		return least
	}
	var e2m1 []float64
	for _, v := range []float64{0, 0.5, 1, 1.5, 2, 3, 4, 6} {
		e2m1 = append(e2m1, v, -v)
	}
	var powers, grid []float64 // of scales, in units of the largest magnitude
	for e := -6; e <= 3; e++ {
		powers = append(powers, math.Exp2(float64(e)))
	}
	for i := range 400 {
		s := 1 / (80 + 0.2*float64(i))
		grid = append(grid, s, -s)
	}
	for _, c := range []struct {
		dtype  dtype.Type
		values []float64
		scales []float64
		most   float64 // of the best one's squared error
	}{
		{dtype.MXFP4, e2m1, powers, 1.1},
		{dtype.IQ4_NL, nonlinear[:], grid, 1.1},
	} {
		var got, best float64
		for block := range len(src) / 32 {
			x := src[32*block:][:32]
			unit := largest(x)
			if c.dtype == dtype.MXFP4 {
				unit = math.Exp2(math.Floor(math.Log2(unit)))
			}
			for i, y := range roundTrip(t, x, c.dtype) {
				got += math.Pow(float64(y)-float64(x[i]), 2)
			}
			least := math.Inf(1)
			for _, s := range c.scales {
				sum := 0.0
				for _, v := range x {
					sum += nearest(float64(v), c.values, s*unit)
				}
				least = min(least, sum)
			}
			best += least
		}
		t.Logf("%s: %.4f of the best scales' squared error", c.dtype, got/best)
		require.LessOrEqual(t, got/best, c.most, c.dtype)
		require.GreaterOrEqual(t, got/best, 0.99, "%s: the grid is not fine enough", c.dtype)
	}
}
