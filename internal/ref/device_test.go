package ref_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/ref"
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/ir/dtype/half"
	"github.com/smelt-ml/smelt/models/quant"
)

// bench is a product on a device written here, in float32 throughout: the rows of x, five
// tokens, times those of w.
type bench struct {
	typ       dtype.Type
	rows, k   int
	x, gain   []float32 // gain of the norm, nil for none
	stored    []byte
	w         []float32
	how       ref.Arithmetic
	picked    int
	eps       float32
	statistic float32 // relative error of the device's root mean square

	shift, bias []float32 // with a shift the norm is LayerNorm; nil for none
	act         ir.Activation
}

func newBench(t *testing.T, typ dtype.Type, how ref.Arithmetic) *bench {
	b := &bench{typ: typ, rows: 6, k: 512, how: how, eps: 1e-5}
	rng := rand.New(rand.NewPCG(1, uint64(typ)))
	b.x, b.w = make([]float32, 5*b.k), make([]float32, b.rows*b.k)
	for i := range b.x {
		b.x[i] = float32(rng.NormFloat64())
	}
	for i := range b.w {
		b.w[i] = float32(rng.NormFloat64() + 0.3)
	}
	b.stored = make([]byte, typ.Bytes(int64(len(b.w))))
	require.NoError(t, quant.Quantize(b.stored, b.w, typ))
	require.NoError(t, quant.Dequantize(b.w, b.stored, typ))
	return b
}

// device computes the product as a kernel would.
func (b *bench) device() (out []float32) {
	for t := range 5 {
		x := append([]float32(nil), b.x[t*b.k:(t+1)*b.k]...)
		if b.shift != nil {
			b.layerNorm(x)
		} else if b.gain != nil {
			var squares float32
			for _, v := range x {
				squares += v * v
			}
			scale := (1 + b.statistic) / float32(math.Sqrt(float64(squares/float32(b.k)+b.eps)))
			for i := range x {
				x[i] = x[i] * scale * b.gain[i]
			}
		}
		if b.how.Tile == dtype.F16 && b.gain != nil {
			for i := range x {
				x[i] = half.F16ToF32(half.F32ToF16(x[i]))
			}
		}
		if b.how.Int8 && b.typ.IsQuantized() {
			for at := 0; at < b.k; at += 32 {
				most := float32(0)
				for _, v := range x[at : at+32] {
					most = max(most, v, -v)
				}
				inverse, scale := 127/most, most/127
				for i := at; i < at+32; i++ {
					x[i] = float32(math.RoundToEven(float64(x[i]*inverse))) * scale
				}
			}
		}
		shorts := b.how.Int16 && (b.typ == dtype.F16 || b.typ == dtype.BF16)
		if shorts {
			for at := 0; at < b.k; at += 64 {
				var sum, most float32
				for _, v := range x[at : at+64] {
					sum, most = sum+max(v, -v), max(most, v, -v)
				}
				scale := max(sum/131000, most/32767)
				for i := at; i < at+64; i++ {
					x[i] = float32(math.RoundToEven(float64(x[i]/scale))) * scale
				}
			}
		}
		for n := range b.rows {
			var sum float32
			for i, v := range x {
				w := b.w[n*b.k+i]
				if b.how.Tile == dtype.F16 {
					w = half.F16ToF32(half.F32ToF16(w))
				}
				if shorts {
					most := float32(0)
					for _, v := range b.w[n*b.k+i/64*64:][:64] {
						most = max(most, v, -v)
					}
					step := float32(1)
					for ; step*0x1p14 <= most; step *= 2 {
					}
					for ; step*0x1p13 > most; step /= 2 {
					}
					w = float32(math.RoundToEven(float64(w/step))) * step
				}
				sum += w * v
			}
			if b.bias != nil {
				sum += b.bias[n]
			}
			if b.act != ir.NoActivation {
				sum = float32(ref.Activate(b.act, float64(sum)))
			}
			out = append(out, sum)
		}
	}
	return out
}

func (b *bench) layerNorm(x []float32) {
	var sum, squares float32
	for _, v := range x {
		sum += v
	}
	mean := sum / float32(b.k)
	for _, v := range x {
		squares += (v - mean) * (v - mean)
	}
	scale := 1 / float32(math.Sqrt(float64(squares/float32(b.k)+b.eps)))
	for i := range x {
		x[i] = (x[i]-mean)*scale*b.gain[i] + b.shift[i]
	}
}

// float64 follows it.
func (b *bench) float64(t *testing.T, how ref.Arithmetic) *ref.Tensor {
	op := fmt.Sprintf("linear v10 v11 : f32[T,%d]", b.rows)
	if b.gain != nil {
		op = fmt.Sprintf("fused_linear v10 v11 v13 {weights=1 norm=rms gain=true eps=%g} : f32[T,%d]", b.eps, b.rows)
	}
	if b.shift != nil {
		op = fmt.Sprintf("fused_linear v10 v11 v14 v13 v15 {weights=1 bias=true activation=%s norm=layer gain=true shift=true eps=%g} : f32[T,%d]", b.act, b.eps, b.rows)
	}
	unused := make([]float32, b.k)
	vectors := map[string][]float32{"gain": unused, "shift": unused, "bias": unused[:b.rows]}
	for name, v := range map[string][]float32{"gain": b.gain, "shift": b.shift, "bias": b.bias} {
		if v != nil {
			vectors[name] = v
		}
	}
	f := parse(t, fmt.Sprintf(`
  v9 = weight {name="table"} : f32[7,%d]
  v10 = embed v1 v9 : f32[T,%d]
  v11 = weight {name="w"} : %s[%d,%d]
  v13 = weight {name="gain"} : f32[%d]
  v14 = weight {name="bias"} : f32[%d]
  v15 = weight {name="shift"} : f32[%d]
  v12 = %s
  return "x" v12`, b.k, b.k, b.typ, b.rows, b.k, b.k, b.rows, b.k, op))
	out, err := ref.Run(f, ref.Env{
		Sizes: ref.SizesFor(two(), 4), Inputs: two(), Weight: ref.Of(vectors),
		Followed: &ref.Followed{
			Stored: func(name string) (dtype.Type, []byte, bool) {
				if name == "table" {
					return dtype.F32, make([]byte, 4*7*b.k), true
				}
				return b.typ, b.stored, name == "w"
			},
			Arithmetic: func(*ir.Value) ref.Arithmetic { return how },
			Rows:       b.picked,
			Computed: func(v *ir.Value, want *ref.Tensor) (*ref.Tensor, error) {
				if v.Op != ir.OpEmbed {
					return nil, nil
				}
				x := &ref.Tensor{Shape: want.Shape}
				for _, e := range b.x {
					x.Data = append(x.Data, float64(e))
				}
				return x, nil
			},
		},
	})
	require.NoError(t, err)
	return out.Tensors["x"]
}

// beyond counts the elements that are further off than their slack.
func beyond(want *ref.Tensor, got []float32) (n int) {
	for i, x := range want.Data {
		if !(math.Abs(x-float64(got[i])) <= want.Slack[i]) {
			n++
		}
	}
	return n
}

var ways = map[string]ref.Arithmetic{"int8": {Int8: true}, "int16": {Int16: true}, "half tiles": {Tile: dtype.F16}, "float": {}}

// TestDeviceProduct follows products in every type of weights: what float32 makes of them
// is within the slack, and a row that is 1 % off is not, nor is what a device makes that
// rounds otherwise.
func TestDeviceProduct(t *testing.T) {
	for typ := dtype.F32; typ <= dtype.Q6_K; typ++ {
		if !quant.CanQuantize(typ) {
			continue
		}
		for name, how := range ways {
			b := newBench(t, typ, how)
			want := b.float64(t, how)
			got := b.device()
			require.Zero(t, beyond(want, got), "%s %s", typ, name)
			for i, slack := range want.Slack {
				require.Less(t, slack, 0.01*math.Sqrt(float64(b.k)), "%s %s: element %d", typ, name, i)
			}

			if typ.IsQuantized() && how.Int8 {
				require.Greater(t, beyond(b.float64(t, ref.Arithmetic{}), got), len(got)/2, "%s: rounding is half of the product", typ)
			}
			if how.Int16 && (typ == dtype.F16 || typ == dtype.BF16) {
				require.Positive(t, beyond(b.float64(t, ref.Arithmetic{}), got), "%s: rounding shows", typ)
			}
			for i := 3 * b.k; i < 4*b.k; i++ {
				b.w[i] *= 1.01
			}
			wrong := b.device()
			require.Positive(t, beyond(want, wrong), "%s %s", typ, name)
			for i := range wrong {
				if i%b.rows != 3 {
					require.Equal(t, got[i], wrong[i])
				}
			}
		}
	}
}

// TestDeviceEpilogues follows products of LayerNorm with biases and activations, of rows
// about zero and of rows far from it, whose means cancel.
func TestDeviceEpilogues(t *testing.T) {
	for _, far := range []float32{0, 300} {
		for _, typ := range []dtype.Type{dtype.F32, dtype.F16, dtype.Q8_0, dtype.Q4_0} {
			for _, act := range []ir.Activation{ir.SiLU, ir.GELU, ir.GELUTanh, ir.ReLU2} {
				name := fmt.Sprintf("%s %s about %g", typ, act, far)
				b := newBench(t, typ, ref.Arithmetic{Int8: true})
				rng := rand.New(rand.NewPCG(2, uint64(typ)))
				b.act = act
				b.gain, b.shift, b.bias = make([]float32, b.k), make([]float32, b.k), make([]float32, b.rows)
				for i := range b.gain {
					b.gain[i], b.shift[i] = 1+float32(rng.NormFloat64())/8, float32(rng.NormFloat64())/8
				}
				for i := range b.bias {
					b.bias[i] = float32(rng.NormFloat64())
				}
				for i := range b.x {
					b.x[i] += far
				}
				want := b.float64(t, b.how)
				require.Zero(t, beyond(want, b.device()), name)
				if far != 0 {
					continue
				}
				for i := range b.w {
					b.w[i] *= 1.03
				}
				require.Positive(t, beyond(want, b.device()), name)
			}
		}
	}
}

// TestDeviceTies normalises activations that then lie in the middle between two integers,
// but for rounding: a device may take either, and the slack is a quantum for each.
func TestDeviceTies(t *testing.T) {
	b := newBench(t, dtype.Q4_0, ref.Arithmetic{Int8: true})
	b.gain = make([]float32, b.k)
	for i := range b.gain {
		b.gain[i] = 1.1
	}
	for i := range b.x {
		if b.x[i] = 127; i%32 != 0 {
			b.x[i] = float32(i%32) + 0.5
		}
	}
	want := b.float64(t, b.how)
	flipped := 0
	first := b.device()
	for _, statistic := range []float32{0, 3e-7, -3e-7, 6e-7, -5e-7} {
		b.statistic = statistic
		got := b.device()
		require.Zero(t, beyond(want, got))
		for i := range got {
			if math.Abs(float64(got[i]-first[i])) > 1e-4*math.Abs(float64(first[i])) {
				flipped++
			}
		}
	}
	require.Positive(t, flipped, "no element was rounded to the other side")

	b.x[40] = 20.3 // far from the middle
	for i := range b.x {
		if i%32 != 0 {
			b.x[i] = float32(i%32) + 0.2
		}
	}
	calm := b.float64(t, b.how)
	for i := range calm.Slack {
		require.Less(t, calm.Slack[i], want.Slack[i]/10, "element %d", i)
	}
}

// TestDeviceNormTiles normalises activations on their way into tiles of halves: a statistic
// that is off by float's rounding moves some of them a step, which the slack allows; one that
// is off by a half's is beyond it.
func TestDeviceNormTiles(t *testing.T) {
	for _, typ := range []dtype.Type{dtype.F16, dtype.Q8_0, dtype.Q4_0, dtype.Q4_K} {
		b := newBench(t, typ, ref.Arithmetic{Tile: dtype.F16})
		rng := rand.New(rand.NewPCG(3, uint64(typ)))
		b.gain = make([]float32, b.k)
		for i := range b.gain {
			b.gain[i] = 1 + float32(rng.NormFloat64())/8
		}
		want, first := b.float64(t, b.how), b.device()
		moved := 0
		for _, statistic := range []float32{0, 1e-6, -1e-6, 4e-6, -4e-6} {
			b.statistic = statistic
			got := b.device()
			require.Zero(t, beyond(want, got), "%s", typ)
			for i := range got {
				if math.Abs(float64(got[i]-first[i])) > 1e-4 {
					moved++
				}
			}
		}
		require.Positive(t, moved, "%s: no element was rounded to the other side", typ)
		b.statistic = 4e-3
		require.Positive(t, beyond(want, b.device()), "%s", typ)
	}
}

// TestDeviceRows computes some rows of a product.
func TestDeviceRows(t *testing.T) {
	b := newBench(t, dtype.Q8_0, ref.Arithmetic{})
	whole := b.float64(t, b.how)
	b.picked = 2
	some := b.float64(t, b.how)
	for i := range some.Data {
		if token := i / b.rows; token != 0 && token != 4 {
			require.True(t, math.IsInf(some.Slack[i], 1))
			continue
		}
		require.Equal(t, whole.Data[i], some.Data[i])
		require.Equal(t, whole.Slack[i], some.Slack[i])
	}
}

// TestDeviceErrors meets weights that are not what the graph says.
func TestDeviceErrors(t *testing.T) {
	f := parse(t, `
  v9 = weight {name="table"} : f16[7,32]
  v10 = embed v1 v9 : f32[T,32]
  return "x" v10`)
	for name, data := range map[string][]byte{"short": make([]byte, 64), "absent": nil} {
		_, err := ref.Run(f, ref.Env{
			Sizes: ref.SizesFor(two(), 4), Inputs: two(),
			Followed: &ref.Followed{Stored: func(string) (dtype.Type, []byte, bool) { return dtype.F16, data, data != nil }},
		})
		require.ErrorContains(t, err, `weight "table"`, name)
	}
}
