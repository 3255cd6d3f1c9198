package quant_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/x448/float16"

	"github.com/smelt-ml/smelt/internal/tiny"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/models/gguf"
	"github.com/smelt-ml/smelt/models/quant"
)

func open(t *testing.T, model, format string) *gguf.File {
	t.Helper()
	f, err := gguf.Open(tiny.GGUF(t, model, format))
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

func floats(t *testing.T, tensor gguf.Tensor) []float32 {
	t.Helper()
	x := make([]float32, tensor.Elems())
	require.NoError(t, quant.Dequantize(x, tensor.Data, tensor.DType))
	return x
}

// Quantizing the F16 weights gives the bytes of other tools' files: numpy code
// checked against llama.cpp for Q8_0 and Q4_0, llama-quantize for the K-quants.
func TestQuantizeMatchesFiles(t *testing.T) {
	for _, model := range []string{"tiny-qwen3", "tiny-llama"} {
		source := open(t, model, "F16")
		for _, format := range []string{"Q8_0", "Q4_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q3_K_M", "Q2_K"} {
			t.Run(model+"-"+format, func(t *testing.T) {
				compared := map[dtype.Type]int{}
				for _, want := range open(t, model, format).Tensors {
					from, ok := source.Tensor(want.Name)
					require.True(t, ok)
					got := make([]byte, want.Size)
					require.NoError(t, quant.Quantize(got, floats(t, from), want.DType))
					if !bytes.Equal(want.Data, got) {
						block := want.DType.BlockBytes()
						differ := 0
						for i := 0; i < len(got); i += block {
							if !bytes.Equal(want.Data[i:i+block], got[i:i+block]) {
								differ++
							}
						}
						t.Errorf("%s: %d of %d blocks differ", want.Name, differ, len(got)/block)
					}
					compared[want.DType]++
				}
				named, err := dtype.Parse(strings.TrimSuffix(format, "_M"))
				require.NoError(t, err)
				require.Greater(t, compared[named], 10)
			})
		}
	}
}

// Every file that llama-quantize made of the trained models is close to the F16
// weights: the relative error of a matrix is within the bound for the format's bits,
// which a wrong bit position would exceed many times.
func TestDequantizeStaysClose(t *testing.T) {
	// Root mean square error over root mean square of the weights. Step sizes
	// double with each bit lost, and so do these.
	bound := map[dtype.Type]float64{
		dtype.F32: 0, dtype.F16: 0, dtype.Q8_0: 0.007, dtype.Q6_K: 0.025, dtype.Q5_K: 0.05, dtype.Q4_K: 0.1,
		dtype.Q4_0: 0.12, dtype.Q3_K: 0.2, dtype.Q2_K: 0.4,
	}
	seen := map[dtype.Type]bool{}
	for _, model := range []string{"tiny-qwen3", "tiny-llama"} {
		source := open(t, model, "F16")
		for _, format := range []string{"F16", "Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q4_0", "Q3_K_M", "Q2_K"} {
			for _, tensor := range open(t, model, format).Tensors {
				from, ok := source.Tensor(tensor.Name)
				require.True(t, ok)
				want, got := floats(t, from), floats(t, tensor)
				var noise, signal float64
				for i := range want {
					w, e := float64(want[i]), float64(got[i]-want[i])
					noise += e * e
					signal += w * w
				}
				limit, ok := bound[tensor.DType]
				require.True(t, ok, tensor.DType)
				require.LessOrEqual(t, math.Sqrt(noise/signal), limit, "%s %s %s %v", model, format, tensor.Name, tensor.DType)
				seen[tensor.DType] = true
			}
		}
	}
	require.Len(t, seen, len(bound))
}

// definition decodes a format by its definition, one element at a time, to check
// the loops over whole groups.
type definition struct {
	dtype dtype.Type
	value func(b []byte, i int) float64 // element i of block b
}

func half(b []byte, at int) float64 {
	return float64(float16.Frombits(binary.LittleEndian.Uint16(b[at:])).Float32())
}

func bit(b []byte, i int) int { return int(b[i/8]>>(i%8)) & 1 }

// nibble of the 32-element formats: elements 0 to 15 low, 16 to 31 high.
func nibble(qs []byte, i int) int { return int(qs[i%16]>>(i/16*4)) & 15 }

func scaleMinK4(p []byte, g int) (scale, low int) {
	if g < 4 {
		return int(p[g] & 63), int(p[g+4] & 63)
	}
	return int(p[g+4]&0xF) | int(p[g-4]>>6)<<4, int(p[g+4]>>4) | int(p[g]>>6)<<4
}

// nonlinear holds the values of the codes of IQ4_NL and IQ4_XS.
var nonlinear = [16]float64{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}

var definitions = []definition{
	{dtype.Q8_0, func(b []byte, i int) float64 { return half(b, 0) * float64(int8(b[2+i])) }},
	{dtype.Q4_0, func(b []byte, i int) float64 { return half(b, 0) * float64(nibble(b[2:], i)-8) }},
	{dtype.Q4_1, func(b []byte, i int) float64 { return half(b, 0)*float64(nibble(b[4:], i)) + half(b, 2) }},
	{dtype.Q5_0, func(b []byte, i int) float64 {
		return half(b, 0) * float64(nibble(b[6:], i)+bit(b[2:6], i)*16-16)
	}},
	{dtype.Q5_1, func(b []byte, i int) float64 {
		return half(b, 0)*float64(nibble(b[8:], i)+bit(b[4:8], i)*16) + half(b, 2)
	}},
	{dtype.Q2_K, func(b []byte, i int) float64 {
		q := int(b[16+i/128*32+i%32]>>(i%128/32*2)) & 3
		sc := b[i/16]
		return half(b, 80)*float64(sc&15)*float64(q) - half(b, 82)*float64(sc>>4)
	}},
	{dtype.Q3_K, func(b []byte, i int) float64 {
		q := int(b[32+i/128*32+i%32]>>(i%128/32*2)) & 3
		q += int(b[i%32]>>(i/32))&1*4 - 4
		p, g := b[96:108], i/16
		aux := int(p[g%8]>>(g/8*4))&15 | int(p[8+g%4]>>(g/4*2))&3<<4
		return half(b, 108) * float64(aux-32) * float64(q)
	}},
	{dtype.Q4_K, func(b []byte, i int) float64 {
		sc, m := scaleMinK4(b[4:16], i/32)
		q := int(b[16+i/64*32+i%32]>>(i%64/32*4)) & 15
		return half(b, 0)*float64(sc)*float64(q) - half(b, 2)*float64(m)
	}},
	{dtype.Q5_K, func(b []byte, i int) float64 {
		sc, m := scaleMinK4(b[4:16], i/32)
		q := int(b[48+i/64*32+i%32]>>(i%64/32*4))&15 | int(b[16+i%32]>>(i/32))&1<<4
		return half(b, 0)*float64(sc)*float64(q) - half(b, 2)*float64(m)
	}},
	{dtype.Q6_K, func(b []byte, i int) float64 {
		h, in := i/128, i%128
		q := int(b[h*64+in%64]>>(in/64*4))&15 | int(b[128+h*32+in%32]>>(in/32*2))&3<<4
		return half(b, 208) * float64(int8(b[192+i/16])) * float64(q-32)
	}},
	{dtype.MXFP4, func(b []byte, i int) float64 {
		code := nibble(b[1:], i)
		value := float64(code&1) / 2 // E2M1: a sign, two bits of exponent, one of mantissa
		if e := code >> 1 & 3; e > 0 {
			value = (1 + value) * math.Exp2(float64(e-1))
		}
		return float64(1-2*(code>>3)) * value * math.Exp2(float64(b[0])-127)
	}},
	{dtype.IQ4_NL, func(b []byte, i int) float64 { return half(b, 0) * nonlinear[nibble(b[2:], i)] }},
	{dtype.IQ4_XS, func(b []byte, i int) float64 {
		g := i / 32
		scale := int(b[4+g/2]>>(g%2*4))&15 | bit(b[2:4], 2*g)<<4 | bit(b[2:4], 2*g+1)<<5
		return half(b, 0) * float64(scale-32) * nonlinear[nibble(b[8+16*g:], i%32)]
	}},
	{dtype.MLX4, func(b []byte, i int) float64 {
		return half(b, 0)*float64(nibble(b[4+i/32*16:], i%32)) + half(b, 2)
	}},
	{dtype.MLX8, func(b []byte, i int) float64 { return half(b, 0)*float64(b[4+i]) + half(b, 2) }},
}

func TestDequantizeMatchesDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, d := range definitions {
		t.Run(d.dtype.String(), func(t *testing.T) {
			const blocks = 50
			size, elems := d.dtype.BlockBytes(), d.dtype.BlockElems()
			src := make([]byte, blocks*size)
			dst := make([]float32, blocks*elems)
			for i := range src {
				src[i] = byte(r.Uint32())
			}
			require.NoError(t, quant.Dequantize(dst, src, d.dtype))
			for i, got := range dst {
				want := d.value(src[i/elems*size:][:size], i%elems)
				if math.IsNaN(want) || math.IsInf(want, 0) { // a random half
					continue
				}
				require.InDelta(t, want, got, 1e-5*(math.Abs(want)+1e4*1e-5), "element %d", i)
			}
		})
	}
}

// Every weight type has a definition here, and every type that can be quantized a precision.
func TestTypesAreChecked(t *testing.T) {
	for _, d := range dtype.Weights() {
		require.True(t, d.IsFloat() || slices.ContainsFunc(definitions, func(f definition) bool { return f.dtype == d }), d)
		require.Equal(t, quant.CanQuantize(d), slices.ContainsFunc(precisions, func(p precision) bool { return p.dtype == d }), d)
	}
}

func gaussian(n int, sigma float64, seed uint64) []float32 {
	r := rand.New(rand.NewPCG(seed, 1))
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64() * sigma)
	}
	return x
}

type precision struct {
	dtype dtype.Type
	// step is the largest error relative to a block's largest magnitude: half a step, or a
	// whole step if the far end of the range is clamped or a search favours elements of
	// larger weight, plus the rounding of the scales.
	step float64
	top  float64 // the largest factor of the half, which magnifies its rounding
}

// bound returns the largest error allowed to a quantizer. The last term is the step of
// a subnormal bfloat16.
func (p *precision) bound(x []float32) float64 {
	subnormal := 0x1p-133
	if p.dtype == dtype.MXFP4 { // half of the least scale's first number
		subnormal = 0x1p-129
	}
	return p.step*largest(x) + p.top*0x1p-25 + subnormal
}

// precisions holds the error bounds of the quantizers.
var precisions = []precision{
	{dtype.F32, 0, 0}, {dtype.F16, 1.0 / 2048, 1}, {dtype.BF16, 1.0 / 256, 0}, {dtype.Q8_0, 0.5/127 + 0x1p-11, 127},
	{dtype.Q4_0, 1.0/8 + 0x1p-11, 8}, {dtype.Q5_0, 1.0/16 + 0x1p-11, 16},
	{dtype.Q4_1, 1.0/15 + 0x1p-9, 16}, {dtype.Q5_1, 1.0/31 + 0x1p-9, 32},
	{dtype.Q6_K, 1.2 / 32, 128 * 32}, {dtype.Q5_K, 2.0/31 + 1.5/63, 64 * 32}, {dtype.Q4_K, 2.0/15 + 1.5/63, 64 * 16},
	{dtype.Q3_K, 1.0/4 + 2.0/32, 32 * 4}, {dtype.Q2_K, 2.0/3 + 1.5/15, 16 * 4},
	// MXFP4 stores a magnitude just under a power of two as three quarters of it. The codebook
	// of the others ends at 113 on one side and at 127 on the other, with steps up to 24.
	{dtype.MXFP4, 1.0 / 4, 0}, {dtype.IQ4_NL, 1.0/6 + 0x1p-11, 127}, {dtype.IQ4_XS, 1.0/6 + 1.0/32, 127 * 32},
	// Making one end a multiple of the scale can move the other by a step.
	{dtype.MLX4, 2.0/15 + 0x1p-9, 16}, {dtype.MLX8, 2.0/255 + 0x1p-9, 256},
}

// roundTrip quantizes and dequantizes.
func roundTrip(t testing.TB, src []float32, elem dtype.Type) []float32 {
	back, dst := make([]float32, len(src)), make([]byte, elem.Bytes(int64(len(src))))
	require.NoError(t, quant.Quantize(dst, src, elem))
	require.NoError(t, quant.Dequantize(back, dst, elem))
	return back
}

func requireClose(t testing.TB, src, back []float32, bound float64, context ...any) {
	for i := range src {
		if d := math.Abs(float64(src[i]) - float64(back[i])); !(d <= bound) {
			require.Failf(t, "too far off", "element %d: %g became %g, bound %g, %v", i, src[i], back[i], bound, context)
		}
	}
}

func largest(x []float32) (amax float64) {
	for _, v := range x {
		amax = max(amax, math.Abs(float64(v)))
	}
	return amax
}

// A quantizer's blocks are as close to the input as the format allows.
func TestQuantizeRoundTrip(t *testing.T) {
	distributions := map[string]func(r *rand.Rand) float64{
		"normal":   func(r *rand.Rand) float64 { return r.NormFloat64() / 3 },
		"uniform":  func(r *rand.Rand) float64 { return r.Float64()*2 - 1 },
		"positive": func(r *rand.Rand) float64 { return 1 + r.Float64() },
		"negative": func(r *rand.Rand) float64 { return -1 - r.Float64()/10 },
		"sparse":   func(r *rand.Rand) float64 { return float64(r.IntN(10)/9) * r.NormFloat64() },
		"tailed":   func(r *rand.Rand) float64 { return r.NormFloat64() * math.Exp(2*r.NormFloat64()) / 100 },
		"signs":    func(r *rand.Rand) float64 { return float64(r.IntN(2)*2 - 1) },
	}
	for _, c := range precisions {
		t.Run(c.dtype.String(), func(t *testing.T) {
			src := make([]float32, max(c.dtype.BlockElems(), 32))
			for name, draw := range distributions {
				r := rand.New(rand.NewPCG(3, 4))
				for _, scale := range []float64{1e-4, 0.02, 1, 300} {
					for range 50 {
						for i := range src {
							src[i] = float32(draw(r) * scale)
						}
						requireClose(t, src, roundTrip(t, src, c.dtype), c.bound(src), name, scale)
					}
				}
			}
		})
	}
}

// Blocks that a format represents exactly, or nearly.
func TestQuantizeConstants(t *testing.T) {
	for _, c := range precisions {
		n := max(c.dtype.BlockElems(), 32)
		for _, value := range []float32{0, 1, -1, 0.37, -0.37, 1000, -1000, 60000, -60000} {
			src := slices.Repeat([]float32{value}, n)
			near := 1.0 / 250
			if c.dtype == dtype.MXFP4 { // whose scales are powers of two
				near = c.step
			}
			requireClose(t, src, roundTrip(t, src, c.dtype), math.Abs(float64(value))*near, c.dtype)
			if value == 0 {
				require.Equal(t, src, roundTrip(t, src, c.dtype), "%v", c.dtype)
			}
		}
	}
}

// Values too small for any scale become zero or nearly zero, alone and in a block with
// larger values.
func TestQuantizeSubnormals(t *testing.T) {
	for _, c := range precisions {
		n := max(c.dtype.BlockElems(), 32)
		for _, tiny := range []float32{1e-45, 1e-40, 1.2e-38, 1e-30, 1e-20, 1e-15, 1e-12, 3e-8, 6e-8, 1e-6} {
			for _, other := range []float32{0, -tiny, 2 * tiny, 1e-3, -1, 5e4} {
				src := make([]float32, n)
				for i := range src {
					src[i] = tiny * float32(i%5-2)
				}
				src[n/2], src[n-1] = other, -other/3
				requireClose(t, src, roundTrip(t, src, c.dtype), c.bound(src), c.dtype, tiny, other)
			}
		}
	}
}

// Groups of a super-block that differ by many orders of magnitude.
func TestQuantizeExtremes(t *testing.T) {
	for _, c := range precisions {
		r := rand.New(rand.NewPCG(8, 9))
		src := make([]float32, 256)
		for range 300 {
			for g := range 16 {
				scale, shift := math.Exp2(float64(r.IntN(44)-30)), r.NormFloat64()
				for i := range 16 {
					src[g*16+i] = float32(scale * (shift + r.NormFloat64()))
				}
			}
			requireClose(t, src, roundTrip(t, src, c.dtype), c.bound(src), c.dtype)
		}
	}
}

func TestQuantizeByHand(t *testing.T) {
	block := func(v ...float32) []float32 { return append(v, make([]float32, 32-len(v))...) }
	q8 := func(scale uint16, q ...int8) []byte {
		b := binary.LittleEndian.AppendUint16(nil, scale)
		for _, v := range q {
			b = append(b, byte(v))
		}
		return append(b, make([]byte, 34-len(b))...)
	}
	for name, c := range map[string]struct {
		dtype dtype.Type
		src   []float32
		want  []byte
	}{
		"zeros are zero":          {dtype.Q8_0, block(), q8(0)},
		"halves away from zero":   {dtype.Q8_0, block(127, 0.5, -0.5, 2.5, -2.5, 1.5), q8(0x3c00, 127, 1, -1, 3, -3, 2)},
		"just under a half":       {dtype.Q8_0, block(127, 0.49999997, -0.49999997), q8(0x3c00, 127, 0, 0)},
		"scale rounds to a half":  {dtype.Q8_0, block(-127.1), q8(0x3c01, -127)},
		"too small for any scale": {dtype.Q8_0, block(1e-44, 1e-45), q8(0)},
		"q4 zeros are the middle": {dtype.Q4_0, block(), append([]byte{0, 0x80}, bytes.Repeat([]byte{0x88}, 16)...)},
		"q4 clamps the far end":   {dtype.Q4_0, block(-8, 8, 7, 6.5, 6.4, -7.5), append([]byte{0x00, 0x3c, 0x80, 0x8f, 0x8f, 0x8f, 0x8e, 0x81}, bytes.Repeat([]byte{0x88}, 10)...)},
		"q4 takes the first":      {dtype.Q4_0, block(8, -8), append([]byte{0x00, 0xbc, 0x80, 0x8f}, bytes.Repeat([]byte{0x88}, 14)...)},
		"mxfp4 zeros":             {dtype.MXFP4, block(), make([]byte, 17)},
		"mxfp4 signs":             {dtype.MXFP4, block(4, -6, 0.5, -0.5, -3, 1), append([]byte{127, 0x06, 0x0f, 0x01, 0x09, 0x0d, 0x02}, make([]byte, 10)...)},
		"mxfp4 clamps":            {dtype.MXFP4, block(7.9, -7.9), append([]byte{127, 0x07, 0x0f}, make([]byte, 14)...)},
		"mxfp4 takes the first":   {dtype.MXFP4, block(4, 5, -5, 0.25), append([]byte{127, 0x06, 0x06, 0x0e, 0x00}, make([]byte, 12)...)},
		"mxfp4 too small":         {dtype.MXFP4, block(1e-44, -1e-45), append([]byte{0, 0x00, 0x00}, make([]byte, 14)...)},
		"iq4 zeros":               {dtype.IQ4_NL, block(), append([]byte{0, 0}, bytes.Repeat([]byte{0x88}, 16)...)},
		"q6 zeros":                {dtype.Q6_K, make([]float32, 256), make([]byte, 210)},
	} {
		t.Run(name, func(t *testing.T) {
			got := make([]byte, len(c.want))
			require.NoError(t, quant.Quantize(got, c.src, c.dtype))
			require.Equal(t, c.want, got)
		})
	}
}

func TestErrors(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, elem := range dtype.All() {
		if !elem.IsQuantized() {
			continue
		}
		n := elem.BlockElems()
		for _, at := range []int{0, n - 1, n, n + 17, 3*n - 1} {
			for _, bad := range []float32{nan, -nan, inf, -inf, 3e38, -1e15} {
				if elem == dtype.MXFP4 && math.Abs(float64(bad)) <= math.MaxFloat32 { // holds any finite number
					continue
				}
				src := gaussian(3*n, 1, 7)
				src[at] = bad
				err := quant.Quantize(make([]byte, 3*elem.BlockBytes()), src, elem)
				require.ErrorIs(t, err, quant.ErrRange, "%v in %v", bad, elem)
				var out *quant.RangeError
				require.ErrorAs(t, err, &out)
				require.Equal(t, at, out.Index)
				require.ErrorContains(t, err, fmt.Sprintf("quantize %v: element %d is %g", elem, at, bad))
			}
		}
	}
	for _, elem := range []dtype.Type{dtype.Invalid, dtype.Bool, dtype.I32, 200} {
		require.ErrorIs(t, quant.Dequantize(nil, nil, elem), quant.ErrUnsupported)
		require.ErrorIs(t, quant.Quantize(nil, nil, elem), quant.ErrUnsupported)
		require.False(t, quant.CanQuantize(elem) || quant.CanDequantize(elem))
	}
	require.ErrorIs(t, quant.Quantize(make([]byte, 18), make([]float32, 31), dtype.Q4_0), quant.ErrSize)
	require.ErrorIs(t, quant.Quantize(make([]byte, 17), make([]float32, 32), dtype.Q4_0), quant.ErrSize)
	require.ErrorIs(t, quant.Dequantize(make([]float32, 256), make([]byte, 211), dtype.Q6_K), quant.ErrSize)
	require.NoError(t, quant.Dequantize(nil, nil, dtype.Q6_K))
}

// Any bytes are valid blocks: reading them must not fail.
func FuzzDequantize(f *testing.F) {
	f.Add([]byte("0123456789abcdef0123456789abcdef01"), uint8(dtype.Q8_0))
	f.Add(bytes.Repeat([]byte{0xff}, 210), uint8(dtype.Q6_K))
	f.Add(bytes.Repeat([]byte{0x80}, 110), uint8(dtype.Q3_K))
	f.Fuzz(func(t *testing.T, data []byte, kind uint8) {
		elem := dtype.Type(kind)
		if !quant.CanDequantize(elem) {
			require.ErrorIs(t, quant.Dequantize(nil, data, elem), quant.ErrUnsupported)
			return
		}
		blocks := len(data) / elem.BlockBytes()
		x := make([]float32, blocks*elem.BlockElems())
		data = data[:blocks*elem.BlockBytes()]
		require.NoError(t, quant.Dequantize(x, data, elem))
		if quant.CanQuantize(elem) {
			if err := quant.Quantize(make([]byte, len(data)), x, elem); err != nil {
				require.ErrorIs(t, err, quant.ErrRange)
			}
		}
	})
}

// Any floats are either stored with a bounded error or refused with the index of the
// element that cannot be stored.
func FuzzQuantize(f *testing.F) {
	for _, c := range precisions {
		f.Add([]byte("\x00\x00\x80\x3f\x00\x00\x00\x80\x01\x00\x00\x00"), uint8(c.dtype))
	}
	f.Add(binary.LittleEndian.AppendUint32(nil, 0x7fc00000), uint8(dtype.Q4_K))
	f.Add(binary.LittleEndian.AppendUint32(nil, 0x4b000000), uint8(dtype.Q2_K))
	f.Fuzz(func(t *testing.T, data []byte, kind uint8) {
		elem := dtype.Type(kind)
		if !quant.CanQuantize(elem) || !elem.IsQuantized() || len(data) < 4 {
			return
		}
		src := make([]float32, 2*elem.BlockElems())
		for i := range src { // what data gives, over and over, each time shifted by a few bytes
			var b [4]byte
			for k := range b {
				b[k] = data[(i*4+i/len(data)+k)%len(data)]
			}
			src[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[:]))
		}
		raw := make([]byte, elem.Bytes(int64(len(src))))
		if err := quant.Quantize(raw, src, elem); err != nil {
			var out *quant.RangeError
			require.ErrorAs(t, err, &out)
			require.False(t, math.Abs(float64(src[out.Index])) < 60000, "%v", err)
			return
		}
		back := make([]float32, len(src))
		require.NoError(t, quant.Dequantize(back, raw, elem))
		requireClose(t, src, back, largest(src)*1.01+0x1p-12, elem)
	})
}

func Example() {
	row := make([]float32, 32)
	for i := range row {
		row[i] = float32(i) / 4
	}
	packed := make([]byte, dtype.Q4_0.Bytes(32))
	if err := quant.Quantize(packed, row, dtype.Q4_0); err != nil {
		fmt.Println(err)
	}
	back := make([]float32, 32)
	if err := quant.Dequantize(back, packed, dtype.Q4_0); err != nil {
		fmt.Println(err)
	}
	fmt.Println(len(packed), row[20], back[20])
	// Output: 18 5 4.84375
}
