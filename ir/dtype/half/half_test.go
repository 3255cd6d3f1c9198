package half_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/x448/float16"

	"github.com/smelt-ml/smelt/ir/dtype/half"
)

// The half conversions agree with another implementation: on every half, and on
// floats around every boundary where rounding changes.
func TestF16(t *testing.T) {
	check := func(f float32) {
		got, want := half.F32ToF16(f), float16.Fromfloat32(f).Bits()
		require.Equal(t, want, got, "%g (%08x)", f, math.Float32bits(f))
	}
	for h := range 1 << 16 {
		f := half.F16ToF32(uint16(h))
		want := math.Float32bits(float16.Frombits(uint16(h)).Float32())
		if math.IsNaN(float64(f)) { // ours keeps all of its bits, the other makes it quiet
			require.Equal(t, uint32(h&0x8000)<<16|0x7f800000|uint32(h&0x3ff)<<13, math.Float32bits(f))
			require.Equal(t, want, math.Float32bits(f)|0x400000)
			require.Equal(t, uint16(h)|0x200, half.F32ToF16(f))
			continue
		}
		require.Equal(t, want, math.Float32bits(f), "%04x", h)
		require.Equal(t, uint16(h), half.F32ToF16(f))
		next := half.F16ToF32(uint16(h + 1))
		middle := (f + next) / 2
		for _, x := range []float32{f, middle, math.Nextafter32(middle, f), math.Nextafter32(middle, next)} {
			check(x)
		}
	}
	for _, f := range []float32{65504, 65519.996, 65520, 65536, 1e30, math.MaxFloat32, 1e-45, 2.9802322e-08, 2.9802326e-08} {
		check(f)
		check(-f)
	}
	check(float32(math.Inf(1)))
	check(float32(math.Inf(-1)))
	check(float32(math.NaN()))
	r := rand.New(rand.NewPCG(5, 6))
	for range 1_000_000 {
		check(math.Float32frombits(r.Uint32()))
	}
}

func TestBF16(t *testing.T) {
	for _, c := range []struct {
		bits uint32
		want uint16
	}{
		{0x3f800000, 0x3f80}, {0x3f808000, 0x3f80}, {0x3f808001, 0x3f81}, {0x3f818000, 0x3f82},
		{0x7f7fffff, 0x7f80}, {0x7f800000, 0x7f80}, {0xff800000, 0xff80}, {0x7f800001, 0x7fc0}, {0x80000000, 0x8000}, {1, 0},
	} {
		require.Equal(t, c.want, half.F32ToBF16(math.Float32frombits(c.bits)), "%08x", c.bits)
	}
	// The nearest of the two neighbours, the even one of equals, by arithmetic on floats.
	r := rand.New(rand.NewPCG(7, 8))
	for range 1_000_000 {
		f := math.Float32frombits(r.Uint32())
		if math.IsNaN(float64(f)) || math.Abs(float64(f)) >= 0x1.fep127 {
			continue
		}
		below := uint16(math.Float32bits(f) >> 16)
		down, up := float64(f)-float64(half.BF16ToF32(below)), float64(half.BF16ToF32(below+1))-float64(f)
		want := below
		if math.Abs(up) < math.Abs(down) || math.Abs(up) == math.Abs(down) && below&1 == 1 {
			want++
		}
		require.Equal(t, want, half.F32ToBF16(f), "%08x", math.Float32bits(f))
	}
	for b := range 1 << 16 {
		f := half.BF16ToF32(uint16(b))
		require.Equal(t, uint32(b)<<16, math.Float32bits(f))
		if math.IsNaN(float64(f)) {
			b |= 0x40 // quiet
		}
		require.Equal(t, uint16(b), half.F32ToBF16(f))
	}
}
