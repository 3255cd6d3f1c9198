package ref_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/batch"
	"github.com/smelt-ml/smelt/internal/ref"
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/ir/sym"
)

var inf = math.Inf(1)

// two is a step of two sequences: the first brings tokens 2 to 4 at positions 1 to 3,
// the second tokens 5 and 6 from its start. Blocks have 2 slots; one of the
// second sequence's tokens is not to be stored.
func two() map[string][]int32 {
	in := batch.Pack(2, 4,
		batch.Piece{Tokens: []int32{2, 3, 4}, Start: 1, Blocks: []int32{3, 0}},
		batch.Piece{Tokens: []int32{5, 6}, Blocks: []int32{2}}).Inputs
	in[sym.Slots][3] = -1
	return in
}

func TestSizesFor(t *testing.T) {
	s := ref.SizesFor(two(), 5)
	require.Equal(t, sym.Sizes{sym.T: 5, sym.B: 2, sym.R: 2, sym.NB: 2, sym.Smax: 5}, s)
}

// start holds the inputs that texts here may name.
const start = `
  v1 = input {name="tokens"} : i32[T]
  v2 = input {name="positions"} : i32[T]
  v3 = input {name="slots"} : i32[T]
  v4 = input {name="cu_seqlens"} : i32[B+1]
  v5 = input {name="context_lens"} : i32[B]
  v6 = input {name="block_table"} : i32[B,NB]
  v7 = input {name="logit_rows"} : i32[R]
  v90 = input {name="states"} : i32[B,2]
`

func parse(t testing.TB, lines string) *ir.Func {
	f, err := ir.Parse("func t fused {" + start + lines + "\n}\n")
	require.NoError(t, err)
	return f
}

// compute returns the result named x of a graph whose values need no cache.
func compute(t testing.TB, lines string, weights map[string][]float32) []float64 {
	out, err := ref.Run(parse(t, lines), ref.Env{Sizes: ref.SizesFor(two(), 4), Inputs: two(), Weight: ref.Of(weights)})
	require.NoError(t, err)
	return out.Tensors["x"].Data
}

// TestOps compares each op with numbers worked out by hand.
func TestOps(t *testing.T) {
	a := []float32{1, 2, 3, 0, 1, -1} // [2,3]
	b := []float32{1, 0, 2, 1, 1, 1}  // [2,3]
	root := math.Sqrt(1.5)            // 1 in units of the deviation of -1, 0, 1
	silu1 := 1 / (1 + math.Exp(-1))
	for _, c := range []struct {
		lines string
		want  []float64
	}{
		{"v9 = linear v10 v11 : f32[2,2]", []float64{7, 6, -2, 0}},
		{"v9 = rms_norm v10 v13 {eps=1} : f32[2,3]", []float64{
			1 / math.Sqrt(14./3+1), 4 / math.Sqrt(14./3+1), 9 / math.Sqrt(14./3+1), 0, 2 / math.Sqrt(2./3+1), -3 / math.Sqrt(2./3+1)}},
		{"v9 = layer_norm v10 {eps=0} : f32[2,3]", []float64{-root, 0, root, 0, root, -root}},
		{"v9 = layer_norm v10 v13 {eps=0} : f32[2,3]", []float64{-root, 0, 3 * root, 0, 2 * root, -3 * root}},
		{"v9 = layer_norm v10 v13 v13 {eps=0} : f32[2,3]", []float64{1 - root, 2, 3 + 3*root, 1, 2 + 2*root, 3 - 3*root}},
		{"v9 = reshape v10 : f32[3,2]", []float64{1, 2, 3, 0, 1, -1}},
		{"v9 = cast v10 : f16[2,3]", []float64{1, 2, 3, 0, 1, -1}},
		{"v9 = slice v10 {start=1 end=3} : f32[2,2]", []float64{2, 3, 1, -1}},
		{"v9 = concat v10 v11 : f32[2,6]", []float64{1, 2, 3, 1, 0, 2, 0, 1, -1, 1, 1, 1}},
		{"v9 = scale v10 {value=-0.5} : f32[2,3]", []float64{-0.5, -1, -1.5, 0, -0.5, 0.5}},
		{"v9 = activate v10 {activation=silu} : f32[2,3]", []float64{silu1, 2 / (1 + math.Exp(-2)), 3 / (1 + math.Exp(-3)), 0, silu1, -1 / (1 + math.E)}},
		{"v9 = activate v10 {activation=gelu} : f32[2,3]", []float64{0.8413447461, 1.9544997361, 2.9959503059, 0, 0.8413447461, -0.1586552539}},
		{"v9 = activate v10 {activation=gelu_tanh} : f32[2,3]", []float64{0.8411919906, 1.9545976940, 2.9963625918, 0, 0.8411919906, -0.1588080094}},
		{"v9 = activate v10 {activation=relu2} : f32[2,3]", []float64{1, 4, 9, 0, 1, 0}},
		{"v14 = scale v10 {value=5} : f32[2,3]\n v9 = gate v14 v11 {activation=clamped_swiglu} : f32[2,3]", []float64{
			10 / (1 + math.Exp(-1.702*5)), 7 / (1 + math.Exp(-1.702*7)), 21 / (1 + math.Exp(-1.702*7)), 0, 10 / (1 + math.Exp(-1.702*5)), -10 / (1 + math.Exp(1.702*5))}},
		{"v14 = scale v11 {value=-9} : f32[2,3]\n v9 = gate v10 v14 {activation=clamped_swiglu} : f32[2,3]", []float64{
			-6 / (1 + math.Exp(-1.702)), 2 / (1 + math.Exp(-1.702*2)), -18 / (1 + math.Exp(-1.702*3)), 0, -6 / (1 + math.Exp(-1.702)), 6 / (1 + math.Exp(1.702))}},
		{"v14 = weight {name=\"one\"} : f32[2]\n v9 = linear v10 v11 v14 : f32[2,2]", []float64{8, 4, -1, -2}},
		{"v9 = mul v10 v11 : f32[2,3]", []float64{1, 0, 6, 0, 1, -1}},
		{"v9 = add v10 v11 : f32[2,3]", []float64{2, 2, 5, 1, 2, 0}},
		{"v9 = gate v10 v11 {activation=silu} : f32[2,3]", []float64{silu1, 0, 6 / (1 + math.Exp(-3)), 0, silu1, -1 / (1 + math.E)}},
		{"v9 = repeat_kv v12 {n=2} : f32[1,4,3]", []float64{1, 2, 3, 1, 2, 3, 0, 1, -1, 0, 1, -1}},
		{"v14 = scale v12 {value=2} : f32[1,2,3]\n v17 = repeat_kv_pair v12 v14 {n=2} : (f32[1,4,3], f32[1,4,3])\n v9 = select v17 {} : f32[1,4,3]",
			[]float64{1, 2, 3, 1, 2, 3, 0, 1, -1, 0, 1, -1}},
		{"v14 = scale v12 {value=2} : f32[1,2,3]\n v17 = repeat_kv_pair v12 v14 {n=2} : (f32[1,4,3], f32[1,4,3])\n v9 = select v17 {index=1} : f32[1,4,3]",
			[]float64{2, 4, 6, 2, 4, 6, 0, 2, -2, 0, 2, -2}},
		{"v9 = matmul v12 v12 {transb=true} : f32[1,2,2]", []float64{14, -1, -1, 2}},
		{"v14 = transpose v12 {b=2 c=1} : f32[1,3,2]\n v9 = matmul v12 v14 {} : f32[1,2,2]", []float64{14, -1, -1, 2}},
		{"v14 = transpose v12 {a=1 c=2} : f32[2,1,3]\n v9 = reshape v14 : f32[6]", []float64{1, 2, 3, 0, 1, -1}},
		{"v14 = transpose v12 {a=2 b=1} : f32[3,2,1]\n v9 = reshape v14 : f32[6]", []float64{1, 0, 2, 1, 3, -1}},
		{"v9 = softmax v15 : f32[2,2]", []float64{0.25, 0.75, 0.5, 0.5}},
		{"v14 = embed v1 v16 : f32[T,1]\n v9 = gather_rows v14 v7 : f32[R,1]", []float64{40, 60}},
		{"v9 = const {data=\"AACAPwAAIMA=\"} : f32[2]", []float64{1, -2.5}},
		{"v9 = const {data=\"ADwAwA==\"} : f16[2]", []float64{1, -2}},
	} {
		got := compute(t, `
  v10 = weight {name="a"} : f32[2,3]
  v11 = weight {name="b"} : f32[2,3]
  v12 = reshape v10 : f32[1,2,3]
  v13 = weight {name="c"} : f32[3]
  v15 = weight {name="logs"} : f32[2,2]
  v16 = weight {name="table"} : f32[7,1]
  `+c.lines+"\n return \"x\" v9", map[string][]float32{
			"a": a, "b": b, "c": {1, 2, 3}, "logs": {0, float32(math.Log(3)), 5, 5}, "table": {0, 10, 20, 30, 40, 50, 60}, "one": {1, -2},
		})
		require.InDeltaSlice(t, c.want, got, 1e-7, c.lines)
	}
}

// TestArgmax meets equals, rows of −∞ and a NaN.
func TestArgmax(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	out, err := ref.Run(parse(t, `
  v9 = weight {name="x"} : f32[6,3]
  v10 = argmax v9 : i32[6]
  return "x" v10`), ref.Env{Sizes: ref.SizesFor(two(), 4), Inputs: two(), Weight: ref.Of(map[string][]float32{
		"x": {1, 3, 3, 0, 1, 2, 5, 4, 4, -inf, -inf, -inf, inf, nan, inf, nan, 2, 1},
	})})
	require.NoError(t, err)
	require.Equal(t, []int32{1, 2, 0, 0, -1, -1}, out.Tensors["x"].Ints)
}

// TestRouter meets equals, −∞, a NaN, groups, a bias that decides and gains.
func TestRouter(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	out, err := ref.Run(parse(t, `
  v9 = weight {name="x"} : f32[5,4]
  v10 = weight {name="b"} : f32[4]
  v11 = weight {name="g"} : f32[4]
  v12 = router v9 {score=chosen_softmax chosen=3} : (f32[5,3], i32[5,3])
  v13 = select v12 {index=0} : f32[5,3]
  v14 = select v12 {index=1} : i32[5,3]
  v15 = router v9 v10 v11 {score=sigmoid chosen=2 groups=2 usedgroups=1 bias=true normalised=true scale=3 gains=true} : (f32[5,2], i32[5,2])
  v16 = select v15 {index=0} : f32[5,2]
  v17 = select v15 {index=1} : i32[5,2]
  return "w" v13
  return "i" v14
  return "W" v16
  return "I" v17`), ref.Env{Sizes: ref.SizesFor(two(), 4), Inputs: two(), Weight: ref.Of(map[string][]float32{
		"x": {0, 1, 1, 0, -2, -inf, 5, 4, -inf, -inf, -inf, -inf, nan, 1, 2, 3, 0, 0, 0, 0}, "b": {1, 0, 0, 0}, "g": {1, 2, 4, 8},
	})})
	require.NoError(t, err)
	require.Equal(t, []int32{1, 2, 0, 2, 3, 0, 0, 1, 2, -1, -1, -1, 0, 1, 2}, out.Tensors["i"].Ints)
	e := math.Exp(1)
	require.InDeltaSlice(t, []float64{e / (2*e + 1), e / (2*e + 1), 1 / (2*e + 1)}, out.Tensors["w"].Data[:3], 1e-12)
	require.Equal(t, []float64{0, 0, 0}, out.Tensors["w"].Data[6:9])
	require.True(t, math.IsNaN(out.Tensors["w"].Data[9]))
	// By sigmoids, the first group has 1.5 + σ(1) in the first row and 1.12 in the second, the other σ(1) + 0.5 and 1.97.
	require.Equal(t, []int32{0, 1, 2, 3, 0, 1, -1, -1, 0, 1}, out.Tensors["I"].Ints)
	half, one := 0.5, 1/(1+math.Exp(-1))
	require.InDeltaSlice(t, []float64{3 * half / (half + one), 3 * one / (half + one) * 2}, out.Tensors["W"].Data[:2], 1e-12)
	require.InDeltaSlice(t, []float64{1.5, 3}, out.Tensors["W"].Data[8:], 1e-12)
}

// TestRope rotates one head of four elements for each token; the tokens stand at
// positions 1, 2, 3, 0 and 1.
func TestRope(t *testing.T) {
	turn := func(x0, x1, angle float64) (float64, float64) {
		return x0*math.Cos(angle) - x1*math.Sin(angle), x0*math.Sin(angle) + x1*math.Cos(angle)
	}
	positions := []float64{1, 2, 3, 0, 1}
	for _, c := range []struct {
		attr  string
		pairs [][2]int
		angle []float64 // at position 1
		grow  float64
	}{
		{"rotated=4 theta=100 freqscale=1 magnitude=1", [][2]int{{0, 2}, {1, 3}}, []float64{1, 0.1}, 1},
		{"interleaved=true rotated=4 theta=100 freqscale=1 magnitude=1", [][2]int{{0, 1}, {2, 3}}, []float64{1, 0.1}, 1},
		{"rotated=2 theta=100 freqscale=1 magnitude=1", [][2]int{{0, 1}}, []float64{1}, 1},
		{"rotated=4 theta=100 freqscale=0.25 magnitude=2", [][2]int{{0, 2}, {1, 3}}, []float64{0.25, 0.025}, 2},
	} {
		for _, factors := range [][]float64{nil, {2, 5}} {
			if factors != nil && len(c.pairs) != 2 {
				continue
			}
			table := []float32{0, 0, 0, 0, 0, 0, 0, 0}
			for i := 8; i < 28; i++ {
				table = append(table, float32(i))
			}
			third := ""
			if factors != nil {
				third = " v13"
			}
			got := compute(t, `
  v9 = weight {name="table"} : f32[7,4]
  v10 = embed v1 v9 : f32[T,4]
  v11 = reshape v10 : f32[T,1,4]
  v13 = weight {name="factors"} : f32[2]
  v12 = rope v11 v2`+third+" {"+c.attr+"} : f32[T,1,4]\n return \"x\" v12", map[string][]float32{"table": table, "factors": {2, 5}})
			for i, p := range positions {
				want := make([]float64, 4)
				for j := range want {
					want[j] = float64(8 + 4*i + j)
				}
				for j, pair := range c.pairs {
					angle := c.angle[j] * p
					if factors != nil {
						angle /= factors[j]
					}
					x0, x1 := turn(want[pair[0]], want[pair[1]], angle)
					want[pair[0]], want[pair[1]] = c.grow*x0, c.grow*x1
				}
				require.InDeltaSlice(t, want, got[4*i:4*i+4], 1e-12, "%s factors %v position %g", c.attr, factors, p)
			}
		}
	}
}

// TestCache writes keys 10·token+head and reads them back through the block table.
func TestCache(t *testing.T) {
	f := parse(t, `
  v9 = weight {name="table"} : f32[7,2]
  v10 = embed v1 v9 : f32[T,2]
  v11 = reshape v10 : f32[T,2,1]
  v12 = scale v11 {value=-1} : f32[T,2,1]
  v13 = cache {layer=0} : cache<f16,2,1,2>
  v14 = cache_write v13 v11 v12 v3 : cache<f16,2,1,2>
  v15 = cache_read v14 v5 v6 {} : f32[B*Smax,2,1]
  v16 = cache_read v14 v5 v6 {values=true} : f32[B*Smax,2,1]
  return "k" v15
  return "v" v16
  return "cache" v14`)
	var table []float32
	for token := range 7 {
		table = append(table, float32(10*token), float32(10*token+1))
	}
	env := ref.Env{Sizes: ref.SizesFor(two(), 5), Inputs: two(), Weight: ref.Of(map[string][]float32{"table": table}), Caches: ref.CachesFor(f, 4)}
	at := func(slot, head int) *float64 { return &env.Caches[0].K[(slot/2*2+head)*2+slot%2] }
	*at(6, 0), *at(6, 1) = 7, 8 // position 0 of the first sequence
	*at(4, 0), *at(4, 1) = 9, 9 // position 0 of the second, which this step does not write
	before := env.Caches[0].Clone()
	out, err := ref.Run(f, env)
	require.NoError(t, err)
	require.Equal(t, []float64{
		7, 8, 20, 21, 30, 31, 40, 41, 0, 0, // the fifth row is beyond the context
		9, 9, 60, 61, 0, 0, 0, 0, 0, 0,
	}, out.Tensors["k"].Data)
	require.Equal(t, []float64{
		0, 0, -20, -21, -30, -31, -40, -41, 0, 0,
		0, 0, -60, -61, 0, 0, 0, 0, 0, 0,
	}, out.Tensors["v"].Data)
	require.Same(t, env.Caches[0], out.Caches["cache"])
	require.NotEqual(t, before.K, env.Caches[0].K, "a clone stays behind")
}

// TestCopyBlocks copies blocks of keys and values; those that no copy names stay.
func TestCopyBlocks(t *testing.T) {
	f := parse(t, `
  v9 = input {name="copies"} : i32[C,2]
  v10 = cache {layer=0} : cache<f16,2,3,2>
  v11 = copy_blocks v10 v9 : cache<f16,2,3,2>
  return "cache" v11`)
	run := func(copies ...int32) (got, was *ref.Cache, err error) {
		in := two()
		in[sym.Copies] = copies
		caches := ref.CachesFor(f, 5)
		for i := range caches[0].K {
			caches[0].K[i], caches[0].V[i] = float64(i), float64(-i)
		}
		was = caches[0].Clone()
		_, err = ref.Run(f, ref.Env{Sizes: ref.SizesFor(in, 5), Inputs: in, Caches: caches})
		return caches[0], was, err
	}
	got, was, err := run(3, 0, 3, 4, 2, 1)
	require.NoError(t, err)
	for to, from := range []int{3, 2, 2, 3, 3} {
		const n = 2 * 3 * 2
		require.Equal(t, was.K[from*n:(from+1)*n], got.K[to*n:(to+1)*n], "keys of block %d", to)
		require.Equal(t, was.V[from*n:(from+1)*n], got.V[to*n:(to+1)*n], "values of block %d", to)
	}
	for want, copies := range map[string][]int32{
		"copy 1 is of block 2 onto 5, of a cache of 5":   {0, 1, 2, 5},
		"copy 0 is of block -1 onto 1":                   {-1, 1},
		"copies 1 and 0 share block 1, which is written": {0, 1, 1, 2},
		"copies 0 and 1 share block 4, which is written": {0, 4, 1, 4},
		"copies 0 and 0 share block 4, which is written": {4, 4},
	} {
		_, _, err := run(copies...)
		require.ErrorContains(t, err, want)
	}
}

// TestRoundCache keeps what the cache's type can hold, if asked to.
func TestRoundCache(t *testing.T) {
	for _, c := range []struct {
		typ        string
		round      bool
		want, wide float64 // of 1/3 and of 1 beside it
	}{
		{"f16", false, float64(float32(1) / 3), 1},
		{"f32", true, float64(float32(1) / 3), 1},
		{"f16", true, 0x1.554p-2, 1},
		{"q8_0", true, 42 * (0x1.02p-7), 127 * 0x1.02p-7}, // 1/127 rounded to half, times 42.33 rounded
	} {
		f := parse(t, fmt.Sprintf(`
  v9 = weight {name="table"} : f32[7,32]
  v10 = embed v1 v9 : f32[T,32]
  v11 = reshape v10 : f32[T,1,32]
  v12 = cache {layer=0} : cache<%s,1,32,2>
  v13 = cache_write v12 v11 v11 v3 : cache<%s,1,32,2>
  return "cache" v13`, c.typ, c.typ))
		table := make([]float32, 7*32)
		for i := range table {
			if table[i] = 1; i%2 == 0 {
				table[i] = float32(1) / 3
			}
		}
		caches := ref.CachesFor(f, 4)
		_, err := ref.Run(f, ref.Env{Sizes: ref.SizesFor(two(), 4), Inputs: two(), Caches: caches,
			Weight: ref.Of(map[string][]float32{"table": table}), RoundCache: c.round})
		require.NoError(t, err)
		for _, data := range [][]float64{caches[0].K, caches[0].V} {
			require.InDelta(t, c.want, data[0], 1e-9, c.typ)
			require.InDelta(t, c.wide, data[1], 1e-9, c.typ)
		}
	}
}

// TestMask gives every score 1 and looks at which remain.
func TestMask(t *testing.T) {
	in := two()
	f := parse(t, `
  v8 = weight {name="table"} : f32[7,1]
  v9 = embed v1 v8 : f32[T,1]
  v10 = reshape v9 : f32[1,T,1]
  v11 = cache {layer=0} : cache<f32,1,1,2>
  v12 = cache_read v11 v5 v6 {} : f32[B*Smax,1,1]
  v13 = transpose v12 {a=1 c=2} : f32[1,B*Smax,1]
  v14 = matmul v10 v13 {transb=true} : f32[1,T,B*Smax]
  v15 = mask v14 v2 v4 v5 {} : f32[1,T,B*Smax]
  v16 = softmax v15 : f32[1,T,B*Smax]
  v17 = mask v14 v2 v4 v5 {window=2} : f32[1,T,B*Smax]
  v18 = weight {name="sinks"} : f32[1]
  v19 = softmax v17 v18 : f32[1,T,B*Smax]
  return "x" v15
  return "y" v16
  return "z" v19`)
	in[sym.ContextLens][0] = 3 // the last token of the first sequence stands beyond: it sees three keys
	in[sym.Positions][3] = -1  // this one sees none
	out, err := ref.Run(f, ref.Env{Sizes: ref.SizesFor(in, 4), Inputs: in, Weight: ref.Of(map[string][]float32{"table": make([]float32, 7), "sinks": {float32(math.Ln2)}}), Caches: ref.CachesFor(f, 4)})
	require.NoError(t, err)
	n := -inf
	require.Equal(t, []float64{
		0, 0, n, n, n, n, n, n,
		0, 0, 0, n, n, n, n, n,
		0, 0, 0, n, n, n, n, n,
		n, n, n, n, n, n, n, n,
		n, n, n, n, 0, 0, n, n,
	}, out.Tensors["x"].Data)
	require.InDeltaSlice(t, []float64{
		.5, .5, 0, 0, 0, 0, 0, 0,
		1. / 3, 1. / 3, 1. / 3, 0, 0, 0, 0, 0,
		1. / 3, 1. / 3, 1. / 3, 0, 0, 0, 0, 0,
		0, 0, 0, 0, 0, 0, 0, 0,
		0, 0, 0, 0, .5, .5, 0, 0,
	}, out.Tensors["y"].Data, 1e-12)
	require.InDeltaSlice(t, []float64{ // the sink weighs as much as two scores
		.25, .25, 0, 0, 0, 0, 0, 0,
		0, .25, .25, 0, 0, 0, 0, 0,
		0, 0, 1. / 3, 0, 0, 0, 0, 0,
		0, 0, 0, 0, 0, 0, 0, 0,
		0, 0, 0, 0, .25, .25, 0, 0,
	}, out.Tensors["z"].Data, 1e-7)
}

// TestFused runs each fused op and the source ops that it stands for.
func TestFused(t *testing.T) {
	const given = `
  v10 = weight {name="embd"} : f32[7,64]
  v11 = embed v1 v10 : f32[T,64]
  v12 = weight {name="wq"} : f32[64,64]
  v13 = weight {name="wk"} : f32[32,64]
  v14 = weight {name="wv"} : f32[32,64]
  v15 = weight {name="norm"} : f32[64]
  v16 = weight {name="qnorm"} : f32[16]
  v17 = weight {name="knorm"} : f32[16]
  v18 = weight {name="factors"} : f32[8]
  v19 = linear v11 v12 : f32[T,64]
  v20 = linear v11 v13 : f32[T,32]
  v21 = linear v11 v14 : f32[T,32]
  v22 = concat v19 v20 v21 : f32[T,128]
  v23 = reshape v19 : f32[T,4,16]
  v24 = reshape v20 : f32[T,2,16]
  v25 = reshape v21 : f32[T,2,16]
  v26 = cache {layer=0} : cache<f32,2,16,2>
  v27 = weight {name="gate.b"} : f32[32]
  v28 = weight {name="up.b"} : f32[32]
`
	const rope = "rotated=12 theta=10000 freqscale=0.5 magnitude=1.25"
	for name, c := range map[string][2]string{
		"gate": {
			`v30 = activate v20 {activation=silu} : f32[T,32]
			 v31 = mul v30 v21 : f32[T,32]
			 return "x" v31`,
			`v31 = gate v20 v21 {activation=silu} : f32[T,32]
			 return "x" v31`},
		"fused_linear of three": {
			`return "x" v22`,
			`v30 = fused_linear v11 v12 v13 v14 {weights=3} : f32[T,128]
			 return "x" v30`},
		"fused_linear with norm and residual": {
			`v30 = rms_norm v11 v15 {eps=0.1} : f32[T,64]
			 v31 = linear v30 v12 : f32[T,64]
			 v32 = add v31 v11 : f32[T,64]
			 return "x" v32`,
			`v30 = fused_linear v11 v12 v15 v11 {weights=1 norm=rms eps=0.1 gain=true residual=true} : f32[T,64]
			 return "x" v30`},
		"fused_linear of a SiLU pair": {
			`v30 = rms_norm v11 v15 {eps=0.1} : f32[T,64]
			 v31 = linear v30 v13 : f32[T,32]
			 v32 = linear v30 v14 : f32[T,32]
			 v33 = activate v31 {activation=silu} : f32[T,32]
			 v34 = mul v33 v32 : f32[T,32]
			 return "x" v34`,
			`v30 = fused_linear v11 v13 v14 v15 {weights=2 activation=silu gated=true norm=rms eps=0.1 gain=true} : f32[T,32]
			 return "x" v30`},
		"attention": {
			`v30 = cache_write v26 v24 v25 v3 : cache<f32,2,16,2>
			 v31 = cache_read v30 v5 v6 {} : f32[B*Smax,2,16]
			 v32 = cache_read v30 v5 v6 {values=true} : f32[B*Smax,2,16]
			 v33 = repeat_kv v31 {n=2} : f32[B*Smax,4,16]
			 v34 = repeat_kv v32 {n=2} : f32[B*Smax,4,16]
			 v35 = transpose v33 {a=1 c=2} : f32[4,B*Smax,16]
			 v36 = transpose v34 {a=1 c=2} : f32[4,B*Smax,16]
			 v37 = transpose v23 {a=1 c=2} : f32[4,T,16]
			 v38 = matmul v37 v35 {transb=true} : f32[4,T,B*Smax]
			 v39 = scale v38 {value=0.3} : f32[4,T,B*Smax]
			 v40 = mask v39 v2 v4 v5 {} : f32[4,T,B*Smax]
			 v41 = softmax v40 : f32[4,T,B*Smax]
			 v42 = matmul v41 v36 {} : f32[4,T,16]
			 v43 = transpose v42 {a=1 c=2} : f32[T,4,16]
			 return "x" v43
			 return "cache" v30`,
			`v30 = cache_write v26 v24 v25 v3 : cache<f32,2,16,2>
			 v31 = attention v23 v30 v2 v4 v5 v6 {scale=0.3} : f32[T,4,16]
			 return "x" v31
			 return "cache" v30`},
		"fused_linear of biases, GELU and LayerNorm": {
			`v30 = layer_norm v11 v15 v15 {eps=0.1} : f32[T,64]
			 v31 = linear v30 v13 v27 : f32[T,32]
			 v32 = linear v30 v14 v28 : f32[T,32]
			 v33 = activate v31 {activation=gelu} : f32[T,32]
			 v34 = mul v33 v32 : f32[T,32]
			 return "x" v34`,
			`v30 = fused_linear v11 v13 v14 v27 v28 v15 v15 {weights=2 bias=true activation=gelu gated=true norm=layer eps=0.1 gain=true shift=true} : f32[T,32]
			 return "x" v30`},
		"fused_linear of three biases": {
			`v30 = linear v11 v13 v27 : f32[T,32]
			 v31 = linear v11 v14 v28 : f32[T,32]
			 v32 = linear v11 v14 v27 : f32[T,32]
			 v33 = concat v30 v31 v32 : f32[T,96]
			 v34 = activate v33 {activation=relu2} : f32[T,96]
			 return "x" v34`,
			`v30 = fused_linear v11 v13 v14 v14 v27 v28 v27 {weights=3 bias=true activation=relu2} : f32[T,96]
			 return "x" v30`},
		"attention with slopes": {
			`v30 = cache_write v26 v24 v25 v3 : cache<f32,2,16,2>
			 v31 = cache_read v30 v5 v6 {} : f32[B*Smax,2,16]
			 v32 = cache_read v30 v5 v6 {values=true} : f32[B*Smax,2,16]
			 v33 = repeat_kv v31 {n=2} : f32[B*Smax,4,16]
			 v34 = repeat_kv v32 {n=2} : f32[B*Smax,4,16]
			 v35 = transpose v33 {a=1 c=2} : f32[4,B*Smax,16]
			 v36 = transpose v34 {a=1 c=2} : f32[4,B*Smax,16]
			 v37 = transpose v23 {a=1 c=2} : f32[4,T,16]
			 v38 = matmul v37 v35 {transb=true} : f32[4,T,B*Smax]
			 v39 = scale v38 {value=0.003} : f32[4,T,B*Smax]
			 v41 = weight {name="sinks"} : f32[4]
			 v40 = mask v39 v2 v4 v5 v41 {window=3} : f32[4,T,B*Smax]
			 v43 = softmax v40 v41 : f32[4,T,B*Smax]
			 v44 = matmul v43 v36 {} : f32[4,T,16]
			 v45 = transpose v44 {a=1 c=2} : f32[T,4,16]
			 return "x" v45
			 return "cache" v30`,
			`v30 = cache_write v26 v24 v25 v3 : cache<f32,2,16,2>
			 v31 = weight {name="sinks"} : f32[4]
			 v32 = attention v23 v30 v2 v4 v5 v6 v31 v31 {scale=0.003 window=3 slopes=true} : f32[T,4,16]
			 return "x" v32
			 return "cache" v30`},
		"attention with a window, a soft cap and sinks": {
			`v30 = cache_write v26 v24 v25 v3 : cache<f32,2,16,2>
			 v31 = cache_read v30 v5 v6 {} : f32[B*Smax,2,16]
			 v32 = cache_read v30 v5 v6 {values=true} : f32[B*Smax,2,16]
			 v33 = repeat_kv v31 {n=2} : f32[B*Smax,4,16]
			 v34 = repeat_kv v32 {n=2} : f32[B*Smax,4,16]
			 v35 = transpose v33 {a=1 c=2} : f32[4,B*Smax,16]
			 v36 = transpose v34 {a=1 c=2} : f32[4,B*Smax,16]
			 v37 = transpose v23 {a=1 c=2} : f32[4,T,16]
			 v38 = matmul v37 v35 {transb=true} : f32[4,T,B*Smax]
			 v39 = scale v38 {value=0.003} : f32[4,T,B*Smax]
			 v40 = soft_cap v39 {value=1.5} : f32[4,T,B*Smax]
			 v41 = mask v40 v2 v4 v5 {window=2} : f32[4,T,B*Smax]
			 v42 = weight {name="sinks"} : f32[4]
			 v43 = softmax v41 v42 : f32[4,T,B*Smax]
			 v44 = matmul v43 v36 {} : f32[4,T,16]
			 v45 = transpose v44 {a=1 c=2} : f32[T,4,16]
			 return "x" v45
			 return "cache" v30`,
			`v30 = cache_write v26 v24 v25 v3 : cache<f32,2,16,2>
			 v31 = weight {name="sinks"} : f32[4]
			 v32 = attention v23 v30 v2 v4 v5 v6 v31 {scale=0.003 window=2 softcap=1.5} : f32[T,4,16]
			 return "x" v32
			 return "cache" v30`},
		"qkv_write": {
			`v32 = cache_write v26 v24 v25 v3 : cache<f32,2,16,2>
			 return "x" v23
			 return "cache" v32`,
			`v30 = qkv_write v22 v26 v3 {heads=4} : (f32[T,4,16], cache<f32,2,16,2>)
			 v31 = select v30 {} : f32[T,4,16]
			 v32 = select v30 {index=1} : cache<f32,2,16,2>
			 return "x" v31
			 return "cache" v32`},
		"rope_qkv_write": {
			`v30 = rope v23 v2 {` + rope + `} : f32[T,4,16]
			 v31 = rope v24 v2 {` + rope + `} : f32[T,2,16]
			 v32 = cache_write v26 v31 v25 v3 : cache<f32,2,16,2>
			 return "x" v30
			 return "cache" v32`,
			`v30 = rope_qkv_write v22 v26 v2 v3 {heads=4 ` + rope + `} : (f32[T,4,16], cache<f32,2,16,2>)
			 v31 = select v30 {} : f32[T,4,16]
			 v32 = select v30 {index=1} : cache<f32,2,16,2>
			 return "x" v31
			 return "cache" v32`},
		"head_norm_rope_kv_write": {
			`v40 = rms_norm v23 v16 {eps=0.01} : f32[T,4,16]
			 v29 = rms_norm v24 v17 {eps=0.01} : f32[T,2,16]
			 v30 = rope v40 v2 v18 {interleaved=true rotated=16 theta=100 freqscale=1 magnitude=1} : f32[T,4,16]
			 v31 = rope v29 v2 v18 {interleaved=true rotated=16 theta=100 freqscale=1 magnitude=1} : f32[T,2,16]
			 v32 = cache_write v26 v31 v25 v3 : cache<f32,2,16,2>
			 return "x" v30
			 return "cache" v32`,
			`v30 = head_norm_rope_kv_write v22 v26 v2 v3 v16 v17 v18 {heads=4 eps=0.01 interleaved=true rotated=16 theta=100 freqscale=1 magnitude=1} : (f32[T,4,16], cache<f32,2,16,2>)
			 v31 = select v30 {} : f32[T,4,16]
			 v32 = select v30 {index=1} : cache<f32,2,16,2>
			 return "x" v31
			 return "cache" v32`},
		"latent_write": {
			`v50 = cache {layer=1} : cache<f32,1,24,2,latent>
			 v51 = slice v22 {start=32 end=48} : f32[T,16]
			 v52 = rms_norm v51 v16 {eps=0.01} : f32[T,16]
			 v53 = reshape v52 : f32[T,1,16]
			 v54 = slice v22 {start=48 end=56} : f32[T,8]
			 v55 = reshape v54 : f32[T,1,8]
			 v56 = rope v55 v2 {interleaved=true rotated=8 theta=10000 freqscale=1 magnitude=1} : f32[T,1,8]
			 v57 = concat v53 v56 : f32[T,1,24]
			 v58 = slice v23 {start=8 end=16} : f32[T,4,8]
			 v59 = rope v58 v2 {interleaved=true rotated=8 theta=10000 freqscale=1 magnitude=1} : f32[T,4,8]
			 v60 = concat v23 v59 : f32[T,4,24]
			 v61 = cache_write v50 v57 v57 v3 : cache<f32,1,24,2,latent>
			 return "x" v60
			 return "cache" v61`,
			`v50 = cache {layer=1} : cache<f32,1,24,2,latent>
			 v51 = latent_write v23 v23 v22 v16 v50 v2 v3 {interleaved=true rotated=8 theta=10000 freqscale=1 magnitude=1 eps=0.01 from=32} : (f32[T,4,24], cache<f32,1,24,2,latent>)
			 v52 = select v51 {} : f32[T,4,24]
			 v53 = select v51 {index=1} : cache<f32,1,24,2,latent>
			 return "x" v52
			 return "cache" v53`},
		"latent_attention": {
			`v50 = cache {layer=1} : cache<f32,1,24,2,latent>
			 v51 = latent_write v23 v23 v22 v16 v50 v2 v3 {rotated=8 theta=10000 freqscale=1 magnitude=1 eps=0.01} : (f32[T,4,24], cache<f32,1,24,2,latent>)
			 v52 = select v51 {} : f32[T,4,24]
			 v53 = select v51 {index=1} : cache<f32,1,24,2,latent>
			 v54 = attention v52 v53 v2 v4 v5 v6 {scale=0.03 window=3} : f32[T,4,24]
			 return "x" v54
			 return "cache" v53`,
			`v50 = cache {layer=1} : cache<f32,1,24,2,latent>
			 v51 = latent_attention v23 v23 v22 v16 v50 v2 v3 v4 v5 v6 {rotated=8 theta=10000 freqscale=1 magnitude=1 eps=0.01 scale=0.03 window=3} : (f32[T,4,24], cache<f32,1,24,2,latent>)
			 v52 = select v51 {} : f32[T,4,24]
			 v53 = select v51 {index=1} : cache<f32,1,24,2,latent>
			 return "x" v52
			 return "cache" v53`},
		"fused_linear of leading columns": {
			`v30 = slice v22 {end=64} : f32[T,64]
			 v31 = rms_norm v30 v15 {eps=0.1} : f32[T,64]
			 v32 = linear v31 v13 : f32[T,32]
			 return "x" v32`,
			`v30 = fused_linear v22 v13 v15 {weights=1 norm=rms eps=0.1 gain=true leading=true} : f32[T,32]
			 return "x" v30`},
		"rope_qkv_write_attention": {
			`v30 = rope_qkv_write v22 v26 v2 v3 {heads=4 ` + rope + `} : (f32[T,4,16], cache<f32,2,16,2>)
			 v31 = select v30 {} : f32[T,4,16]
			 v32 = select v30 {index=1} : cache<f32,2,16,2>
			 v33 = attention v31 v32 v2 v4 v5 v6 {scale=0.03 window=3} : f32[T,4,16]
			 return "x" v33
			 return "cache" v32`,
			`v30 = rope_qkv_write_attention v22 v26 v2 v3 v4 v5 v6 {heads=4 scale=0.03 window=3 ` + rope + `} : (f32[T,4,16], cache<f32,2,16,2>)
			 v31 = select v30 {} : f32[T,4,16]
			 v32 = select v30 {index=1} : cache<f32,2,16,2>
			 return "x" v31
			 return "cache" v32`},
		"head_norm_rope_kv_write_attention": {
			`v29 = weight {name="sinks"} : f32[4]
			 v30 = head_norm_rope_kv_write v22 v26 v2 v3 v16 v17 v18 {heads=4 eps=0.01 interleaved=true rotated=16 theta=100 freqscale=1 magnitude=1} : (f32[T,4,16], cache<f32,2,16,2>)
			 v31 = select v30 {} : f32[T,4,16]
			 v32 = select v30 {index=1} : cache<f32,2,16,2>
			 v33 = attention v31 v32 v2 v4 v5 v6 v29 v29 {scale=0.03 softcap=2 slopes=true} : f32[T,4,16]
			 return "x" v33
			 return "cache" v32`,
			`v29 = weight {name="sinks"} : f32[4]
			 v30 = head_norm_rope_kv_write_attention v22 v26 v2 v3 v4 v5 v6 v16 v17 v18 v29 v29 {heads=4 eps=0.01 interleaved=true rotated=16 theta=100 freqscale=1 magnitude=1 scale=0.03 softcap=2 slopes=true factors=true sinks=true} : (f32[T,4,16], cache<f32,2,16,2>)
			 v31 = select v30 {} : f32[T,4,16]
			 v32 = select v30 {index=1} : cache<f32,2,16,2>
			 return "x" v31
			 return "cache" v32`},
	} {
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, 2))
			weights := make(map[string][]float32)
			for _, w := range []struct {
				name string
				n    int
			}{{"embd", 448}, {"wq", 4096}, {"wk", 2048}, {"wv", 2048}, {"norm", 64}, {"qnorm", 16}, {"knorm", 16}, {"factors", 8}, {"sinks", 4}, {"gate.b", 32}, {"up.b", 32}} {
				for range w.n {
					weights[w.name] = append(weights[w.name], float32(rng.NormFloat64()/4+1))
				}
			}
			var outs [2]*ref.Outputs
			for i, lines := range c {
				f := parse(t, given+lines)
				env := ref.Env{Sizes: ref.SizesFor(two(), 4), Inputs: two(), Weight: ref.Of(weights), Caches: ref.CachesFor(f, 4)}
				past := rand.New(rand.NewPCG(3, 4))
				for _, data := range [][]float64{env.Caches[0].K, env.Caches[0].V} {
					for j := range data {
						data[j] = past.NormFloat64()
					}
				}
				var err error
				outs[i], err = ref.Run(f, env)
				require.NoError(t, err)
			}
			require.Equal(t, outs[0].Tensors["x"].Shape, outs[1].Tensors["x"].Shape)
			require.InDeltaSlice(t, outs[0].Tensors["x"].Data, outs[1].Tensors["x"].Data, 1e-9)
			if cache := outs[0].Caches["cache"]; cache != nil {
				require.InDeltaSlice(t, cache.K, outs[1].Caches["cache"].K, 1e-12)
				require.InDeltaSlice(t, cache.V, outs[1].Caches["cache"].V, 1e-12)
			}
		})
	}
}

// TestErrors runs a whole attention on inputs that lie.
func TestErrors(t *testing.T) {
	const lines = `
  v9 = weight {name="table"} : f32[7,4]
  v10 = embed v1 v9 : f32[T,4]
  v11 = reshape v10 : f32[T,2,2]
  v12 = cache {layer=0} : cache<f32,2,2,2>
  v13 = cache_write v12 v11 v11 v3 : cache<f32,2,2,2>
  v14 = cache_read v13 v5 v6 {} : f32[B*Smax,2,2]
  v15 = attention v11 v13 v2 v4 v5 v6 {scale=1} : f32[T,2,2]
  v16 = reshape v15 : f32[T,4]
  v17 = gather_rows v16 v7 : f32[R,4]
  return "x" v17
  return "k" v14`
	f := parse(t, lines)
	set := func(name string, i int, n int32) func(e *ref.Env) {
		return func(e *ref.Env) { e.Inputs[name][i] = n }
	}
	for want, damage := range map[string]func(e *ref.Env){
		"v10 = embed v1 v9 : f32[T,4]: token 1 is 7 in a vocabulary of 7":                      set(sym.Tokens, 1, 7),
		"token 0 is -1 in a vocabulary":                                                        set(sym.Tokens, 0, -1),
		"v13 = cache_write v12 v11 v11 v3 : cache<f32,2,2,2>: token 2: slot 8 of a cache of 4": set(sym.Slots, 2, 8),
		"context_lens of sequence 1 is 5 with 2 blocks of 2":                                   set(sym.ContextLens, 1, 5),
		"context_lens of sequence 0 is -1 with 2":                                              set(sym.ContextLens, 0, -1),
		"block 1 of sequence 0 is number 4 of a cache of 4":                                    set(sym.BlockTable, 1, 4),
		"block 0 of sequence 1 is number -1":                                                   set(sym.BlockTable, 2, -1),
		"cu_seqlens run from 1 to 5 over 5 tokens":                                             set(sym.CuSeqlens, 0, 1),
		"cu_seqlens run from 0 to 4 over 5 tokens":                                             set(sym.CuSeqlens, 2, 4),
		"cu_seqlens of sequence 0 run from 0 to 9":                                             set(sym.CuSeqlens, 1, 9),
		"cu_seqlens of sequence 0 run from 0 to -2":                                            set(sym.CuSeqlens, 1, -2),
		"v17 = gather_rows v16 v7 : f32[R,4]: row 5 of 5":                                      set(sym.LogitRows, 0, 5),
		"context_lens of sequence 0 is 4, over Smax = 3":                                       func(e *ref.Env) { e.Sizes[sym.Smax] = 3 },
		"5 numbers are given for shape [6]":                                                    func(e *ref.Env) { e.Sizes[sym.T] = 6 },
		"extent T is -1":                                                                       func(e *ref.Env) { e.Sizes[sym.T] = -1 },
		"extent B*Smax is 2199023255552":                                                       func(e *ref.Env) { e.Sizes[sym.Smax] = 1 << 40 },
		"[B*Smax,2,2] has more than":                                                           func(e *ref.Env) { e.Sizes[sym.Smax] = 1 << 28 },
		`v3 = input {name="slots"} : i32[T]: the input is not given`:                           func(e *ref.Env) { delete(e.Inputs, sym.Slots) },
		"no weights are given":                                                                 func(e *ref.Env) { e.Weight = nil },
		`there is no weight "table"`:                                                           func(e *ref.Env) { e.Weight = ref.Of(nil) },
		"3 elements are given for shape [7 4]":                                                 func(e *ref.Env) { e.Weight = ref.Of(map[string][]float32{"table": {1, 2, 3}}) },
		"the cache is not given":                                                               func(e *ref.Env) { e.Caches = nil },
		"the cache given is cache<f32,2,2,9>": func(e *ref.Env) {
			e.Caches[0] = ref.NewCache(ir.Cache{DType: dtype.F32, KVHeads: 2, Head: 2, Block: 9}, 1)
		},
	} {
		env := ref.Env{Sizes: ref.SizesFor(two(), 4), Inputs: two(), Caches: ref.CachesFor(f, 4),
			Weight: ref.Of(map[string][]float32{"table": make([]float32, 28)})}
		_, err := ref.Run(f, env)
		require.NoError(t, err)
		damage(&env)
		_, err = ref.Run(f, env)
		require.ErrorContains(t, err, want)
	}
	f.Stage = ir.Source
	_, err := ref.Run(f, ref.Env{})
	require.ErrorIs(t, err, ir.ErrInvalid)
}

// TestRoundCacheRefuses stores what a half cannot hold.
func TestRoundCacheRefuses(t *testing.T) {
	f := parse(t, `
  v9 = weight {name="table"} : f32[7,32]
  v10 = embed v1 v9 : f32[T,32]
  v11 = reshape v10 : f32[T,1,32]
  v12 = cache {layer=0} : cache<q8_0,1,32,2>
  v13 = cache_write v12 v11 v11 v3 : cache<q8_0,1,32,2>
  return "cache" v13`)
	table := make([]float32, 7*32)
	for i := range table {
		table[i] = float32(inf)
	}
	_, err := ref.Run(f, ref.Env{Sizes: ref.SizesFor(two(), 4), Inputs: two(), Caches: ref.CachesFor(f, 4),
		Weight: ref.Of(map[string][]float32{"table": table}), RoundCache: true})
	require.ErrorContains(t, err, "token 0")
}

func TestWatch(t *testing.T) {
	var seen []ir.Op
	f := parse(t, `
  v9 = weight {name="a"} : f32[2]
  v10 = activate v9 {activation=silu} : f32[2]
  return "x" v10`)
	_, err := ref.Run(f, ref.Env{Sizes: ref.SizesFor(two(), 4), Inputs: two(), Weight: ref.Of(map[string][]float32{"a": {1, 2}}),
		Watch: func(v *ir.Value, x *ref.Tensor) {
			if v.Op != ir.OpInput {
				seen = append(seen, v.Op)
				require.Len(t, x.Data, 2)
			}
		}})
	require.NoError(t, err)
	require.Equal(t, []ir.Op{ir.OpWeight, ir.OpActivate}, seen)
}

// TestWeights reads stored weights once.
func TestWeights(t *testing.T) {
	reads := 0
	w := ref.NewWeights(func(name string) (dtype.Type, []byte, bool) {
		reads++
		switch name {
		case "half":
			return dtype.F16, []byte{0x00, 0x3c, 0x00, 0xc0}, true
		case "ints":
			return dtype.I32, make([]byte, 4), true
		case "odd":
			return dtype.Invalid, make([]byte, 4), true
		case "cut":
			return dtype.F32, make([]byte, 6), true
		}
		return dtype.Invalid, nil, false
	})
	for range 2 {
		x, err := w.Load("half")
		require.NoError(t, err)
		require.Equal(t, []float64{1, -2}, x)
	}
	require.Equal(t, 1, reads)
	for name, want := range map[string]string{
		"none": `there is no weight "none"`, "ints": `weight "ints"`, "odd": `weight "odd" has element type invalid`, "cut": `weight "cut"`,
	} {
		_, err := w.Load(name)
		require.ErrorContains(t, err, want)
	}
}

func BenchmarkLinear(b *testing.B) {
	f := parse(b, `
  v9 = weight {name="x"} : f32[32,1024]
  v10 = weight {name="w"} : f32[1024,1024]
  v11 = linear v9 v10 : f32[32,1024]
  return "x" v11`)
	x, w := make([]float64, 32<<10), make([]float64, 1<<20)
	weights := func(name string) ([]float64, error) { return map[string][]float64{"x": x, "w": w}[name], nil }
	for b.Loop() {
		if _, err := ref.Run(f, ref.Env{Sizes: ref.SizesFor(two(), 4), Inputs: two(), Weight: weights}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(32<<20*b.N)/b.Elapsed().Seconds()/1e9, "Gmul/s")
}
