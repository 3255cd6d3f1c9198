package emulated_test

import (
	"crypto/sha256"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/kernels/emulated"
)

// Kernels without transcendental functions give the same bits on every processor and
// with every compiler: nothing is contracted, and half is rounded by the same rules.
func TestBitsAreTheSameEverywhere(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	const n, k = 8, 1024
	w, _ := q4_0(r, n, k)
	x := floats(uniform(r, k)...)
	a, b := halves(uniform(r, 64*64)...), halves(uniform(r, 64*64)...)
	got := map[string]string{}
	for _, l := range []emulated.Launch{
		{Kernel: "gemv_q4_0", Buffers: [][]byte{w, x, make([]byte, n*4), words(k, n)}, Group: [3]uint32{64}},
		{Kernel: "gemv_q4_0_vec2", Buffers: [][]byte{w, x, make([]byte, n*4), words(k, n)}, Group: [3]uint32{64}},
		{Kernel: "gemm_f16", Buffers: [][]byte{a, b, make([]byte, 64*64*4), words(64, 64, 64)}, Grid: [3]uint32{2, 2}, Group: [3]uint32{128}},
		{Kernel: "half_arithmetic", Buffers: [][]byte{a, b, make([]byte, 64*64*2*8)}, Grid: [3]uint32{16}, Group: [3]uint32{256}},
	} {
		got[l.Kernel] = fmt.Sprintf("%x", sha256.Sum256(everyway(t, l)[2]))[:16]
	}
	require.Equal(t, map[string]string{
		"gemv_q4_0":       "cc826c1d2d63de94",
		"gemv_q4_0_vec2":  "9d91f5b95dd30b92",
		"gemm_f16":        "642666f4e597d99f",
		"half_arithmetic": "d18054a2bb60cb9a",
	}, got)
}

// All 65536 halves and bfloats, to float and back, and floats around every tie.
func TestConversions(t *testing.T) {
	all := make([]byte, 1<<17)
	for i := range 1 << 16 {
		all[2*i], all[2*i+1] = byte(i), byte(i>>8)
	}
	out := everyway(t, emulated.Launch{
		Kernel:  "conversions",
		Buffers: [][]byte{all, make([]byte, 1<<18), make([]byte, 1<<17), make([]byte, 1<<18), make([]byte, 1<<17)},
		Grid:    [3]uint32{256}, Group: [3]uint32{256},
	})
	fromHalf, fromBfloat := toFloats(out[1]), toFloats(out[3])
	want := toHalves(all)
	for i := range 1 << 16 {
		if !math.IsNaN(float64(want[i])) {
			require.Equal(t, math.Float32bits(want[i]), math.Float32bits(fromHalf[i]), "half %#04x", i)
			require.Equal(t, all[2*i:2*i+2], out[2][2*i:2*i+2], "half %#04x there and back", i)
		} else {
			require.True(t, math.IsNaN(float64(fromHalf[i])))
		}
		exact := math.Float32frombits(uint32(i) << 16)
		if exact == exact {
			require.Equal(t, math.Float32bits(exact), math.Float32bits(fromBfloat[i]))
			require.Equal(t, all[2*i:2*i+2], out[4][2*i:2*i+2], "bfloat %#04x there and back", i)
		}
	}
	r := rand.New(rand.NewPCG(8, 8))
	var x []float32
	for i := range 0x7c00 { // around every half and half way to the next
		lo, hi := float64(want[i]), float64(want[i+1])
		if math.IsInf(hi, 0) {
			hi = 65536
		}
		mid := float32((lo + hi) / 2)
		x = append(x, mid, math.Nextafter32(mid, 0), math.Nextafter32(mid, 1e9), -mid)
	}
	for range 1 << 14 {
		x = append(x, math.Float32frombits(r.Uint32()))
	}
	x = append(x, make([]float32, -len(x)&255)...)
	out = everyway(t, emulated.Launch{
		Kernel:  "rounding",
		Buffers: [][]byte{floats(x...), make([]byte, len(x)*2), make([]byte, len(x)*2)},
		Grid:    [3]uint32{uint32(len(x) / 256)}, Group: [3]uint32{256},
	})
	halfBits := halves(x...)
	for i, v := range x {
		if v != v {
			continue
		}
		require.Equal(t, halfBits[2*i:2*i+2], out[1][2*i:2*i+2], "half of %g (%#08x)", v, math.Float32bits(v))
		bits := math.Float32bits(v)
		rounded := uint16((bits + 0x7fff + bits>>16&1) >> 16)
		require.Equal(t, []byte{byte(rounded), byte(rounded >> 8)}, out[2][2*i:2*i+2], "bfloat of %g", v)
	}
}

func TestFunctions(t *testing.T) {
	const n = 512
	r := rand.New(rand.NewPCG(9, 9))
	x := uniform(r, 2*n)
	u := make([]uint32, 2*n)
	for i := range u {
		u[i] = r.Uint32() >> r.UintN(32)
	}
	u[0], u[1] = 0, math.MaxUint32
	var ub []byte
	for _, v := range u {
		ub = append(ub, words(v)...)
	}
	out := everyway(t, emulated.Launch{
		Kernel: "functions", Buffers: [][]byte{floats(x...), make([]byte, n*32*4), ub, make([]byte, n*16*4)},
		Grid: [3]uint32{n / 64}, Group: [3]uint32{64},
	})
	got := toFloats(out[1])
	truth := func(v bool) float64 {
		if v {
			return 1
		}
		return 0
	}
	for i := range n {
		a, b := float64(x[2*i]), float64(x[2*i+1])
		c := [3]float64{b*2 - a, b - 2*a, a*a - b*b} // (a,b,1) × (b,a,2)
		norm := math.Sqrt(c[0]*c[0] + c[1]*c[1] + c[2]*c[2])
		ten := float64(float32(a) * 10)
		m, k := u[2*i], u[2*i+1]
		for j, want := range []float64{
			math.Exp(a), math.Log(math.Abs(a) + 0.1), math.Sin(a), math.Cos(b), math.Tanh(a), 1 / math.Sqrt(math.Abs(b)+1),
			math.Pow(math.Abs(a), b), a*b + 1, min(max(a, -0.5), 0.5), a + (b-a)*0.25, max(a, b), math.Floor(ten),
			math.Round(float64(float32(b) * 10)), ten - math.Floor(ten), math.Copysign(1, a), max(a, b), min(a, b), math.Exp2(a), math.Atan2(a, b),
			math.Copysign(a, b), min(max(a*2, 0), 1), truth(b >= a), math.Sin(a), math.Cos(a), c[0] / norm, math.Sqrt(a*a + b*b + 1),
			max(a, 0) + 2*max(b, 0) + 3, truth(a < 0 || b < 0), 0, a + 24, 0, float64(int8(m >> 8)),
		} {
			require.InDelta(t, want, got[i*32+j], 3e-6*max(1, math.Abs(want)), "function %d of %g, %g", j, a, b)
		}
		sat := uint64(m) + uint64(k)
		if sat > math.MaxUint32 {
			sat = math.MaxUint32
		}
		diff := max(m, k) - min(m, k)
		require.Equal(t, words(
			bits.OnesCount32(m), bits.LeadingZeros32(m), bits.TrailingZeros32(m), bits.Reverse32(m), bits.RotateLeft32(m, int(k%32)),
			uint32(uint64(m)*uint64(k)>>32), m>>5&127, m&^(511<<3)|k&511<<3, diff, uint32(sat), uint32(truth(m > k))*diff,
			uint32((uint64(m)+uint64(k))>>1), min(m, k, 77), bits.ReverseBytes32(m), uint32(int32(m)>>3), (k^m>>1)%1000,
		), out[3][i*64:(i+1)*64], "integers of %#x, %#x", m, k)
	}
}
