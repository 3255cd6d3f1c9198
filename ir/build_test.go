package ir_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/golden"
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/ir/sym"
)

// anyWeights holds every tensor that is asked for, as F32.
type anyWeights struct{}

func (anyWeights) Weight(_ string, want []int) (dtype.Type, []int, bool) {
	return dtype.F32, want, true
}

// tiny defines one transformer layer's attention as a paper would write it.
func tiny(b *ir.Builder) {
	const heads, kv, head = 4, 2, 8
	x := b.Embed(b.Input(sym.Tokens), b.Weight("embd", 16, 32))
	b.Layer(0, func() {
		rope := ir.RopeAttr{Rotated: head, Theta: 1e4, FreqScale: 1, Magnitude: 1}
		q := b.Rope(b.SplitHeads(b.Linear(x, b.Weight("q", 32, 32)), heads), rope, nil)
		k := b.Rope(b.SplitHeads(b.Linear(x, b.Weight("k", 16, 32)), kv), rope, b.Const([]float32{1, 2, 3, 4}))
		v := b.SplitHeads(b.Linear(x, b.Weight("v", 16, 32)), kv)
		keys, values := b.CacheRead(b.CacheWrite(b.Cache(kv, head), k, v))
		heads0 := [3]int{1, 0, 2}
		keys = b.Transpose(b.RepeatKV(keys, heads/kv), heads0)
		values = b.Transpose(b.RepeatKV(values, heads/kv), heads0)
		scores := b.Scale(b.MatmulT(b.Transpose(q, heads0), keys), 0.5)
		out := b.Matmul(b.Softmax(b.Mask(scores)), values)
		x = b.Add(x, b.MergeHeads(b.Transpose(out, heads0)))
	})
	b.Return("logits", b.GatherRows(x))
}

func buildTiny(t testing.TB) *ir.Func {
	f, err := ir.Build("tiny", anyWeights{}, ir.Options{Block: 64}, tiny)
	require.NoError(t, err)
	return f
}

func TestBuild(t *testing.T) {
	f := buildTiny(t)
	golden.Check(t, "testdata/tiny.golden", f.String())
	require.Equal(t, 1, f.Layers())
	require.Equal(t, 2, f.OpCounts()[ir.OpRepeatKV])
	require.Equal(t, ir.OpGatherRows, f.Result("logits").Op)
	require.Equal(t, ir.OpCacheWrite, f.Result("cache.0").Op)
	require.Nil(t, f.Result("other"))
}

// stored holds the tensors listed, with their shapes.
type stored map[string][]int

func (s stored) Weight(name string, _ []int) (dtype.Type, []int, bool) {
	shape, ok := s[name]
	return dtype.F16, shape, ok
}

func TestWeightErrorListsAll(t *testing.T) {
	_, err := ir.Build("tiny", stored{"embd": {16, 32}, "q": {32, 33}, "v": {16}}, ir.Options{Block: 64}, tiny)
	var wrong *ir.WeightError
	require.ErrorAs(t, err, &wrong)
	require.Equal(t, &ir.WeightError{Missing: []string{"k"}, Misshapen: []string{"q is [32 33], want [32 32]", "v is [16], want [16 32]"}}, wrong)
	require.EqualError(t, err, "building tiny: 3 weights do not fit the model definition:\n"+
		"  k is missing\n  q is [32 33], want [32 32]\n  v is [16], want [16 32]")
}

// TestBuildErrors makes every mistake a definition can make: each is an error
// that says where, never a panic.
func TestBuildErrors(t *testing.T) {
	head0 := [3]int{1, 0, 2}
	rope := ir.RopeAttr{Rotated: 8, Theta: 1e4, FreqScale: 1, Magnitude: 1}
	x := func(b *ir.Builder) *ir.Value { return b.Embed(b.Input(sym.Tokens), b.Weight("embd", 16, 32)) }
	for name, c := range map[string]struct {
		define func(b *ir.Builder)
		want   string
	}{
		"no results":             {func(b *ir.Builder) {}, "no results"},
		"own error":              {func(b *ir.Builder) { b.Layer(3, func() { b.Fail("too %s", "odd") }) }, "layer 3: too odd"},
		"unknown input":          {func(b *ir.Builder) { b.Input("speed") }, `no per-step input is called "speed"`},
		"width":                  {func(b *ir.Builder) { b.Linear(x(b), b.Weight("w", 8, 33)) }, "linear: x (v3) is f32[T,32] but the weight (v4) is f32[8,33]"},
		"width in a layer":       {func(b *ir.Builder) { b.Layer(1, func() { b.Linear(x(b), b.Weight("w", 8, 33)) }) }, "layer 1: linear"},
		"nil operand":            {func(b *ir.Builder) { b.Add(x(b), nil) }, "add: operand 1 is nil"},
		"nil to split":           {func(b *ir.Builder) { b.SplitHeads(nil, 2) }, "operand 0 is nil"},
		"nil to merge":           {func(b *ir.Builder) { b.MergeHeads(nil) }, "operand 0 is nil"},
		"nil to reshape":         {func(b *ir.Builder) { b.Reshape(nil, ir.Const(1)) }, "operand 0 is nil"},
		"odd heads":              {func(b *ir.Builder) { b.SplitHeads(x(b), 5) }, "v3 f32[T,32] does not split into 5 heads"},
		"no heads":               {func(b *ir.Builder) { b.SplitHeads(x(b), 0) }, "does not split into 0 heads"},
		"nothing to merge":       {func(b *ir.Builder) { b.MergeHeads(x(b)) }, "has no heads to merge"},
		"reshape":                {func(b *ir.Builder) { b.Reshape(x(b), ir.Var(sym.T), ir.Const(31)) }, "f32[T,32] has 32*T elements, f32[T,31] has 31*T"},
		"reshape to a dot":       {func(b *ir.Builder) { b.Reshape(b.Const([]float32{1})) }, "reshape: to f32[]"},
		"empty constant":         {func(b *ir.Builder) { b.Const(nil) }, "extent of 0"},
		"no cache here":          {func(b *ir.Builder) { b.Cache(2, 8) }, "a cache belongs to a layer"},
		"two caches":             {func(b *ir.Builder) { b.Layer(0, func() { b.Cache(2, 8); b.Cache(2, 4) }) }, "there is a cache of cache<f16,2,8,64> already"},
		"cache of a later layer": {func(b *ir.Builder) { b.Layer(1, func() { b.CacheOf(1) }) }, "layer 1 has no cache to read, or comes no earlier"},
		"cache of no attention":  {func(b *ir.Builder) { b.Layer(0, func() {}); b.Layer(1, func() { b.CacheOf(0) }) }, "layer 0 has no cache to read"},
		"another layer is written": {func(b *ir.Builder) {
			k := b.SplitHeads(x(b), 4)
			b.Layer(0, func() { b.CacheWrite(b.Cache(4, 8), k, k) })
			b.Layer(1, func() { b.CacheWrite(b.CacheOf(0), k, k) })
		}, "is not the newest version of the layer's cache"},
		"negative layer":    {func(b *ir.Builder) { b.Layer(-2, func() {}) }, "no layer can have the number -2"},
		"rotated":           {func(b *ir.Builder) { b.Rope(b.SplitHeads(x(b), 8), rope, nil) }, "8 rotated elements of a head of 4"},
		"factors":           {func(b *ir.Builder) { b.Rope(b.SplitHeads(x(b), 4), rope, b.Const([]float32{1})) }, "factors (v5) is f32[1], want shape [4]"},
		"axes":              {func(b *ir.Builder) { b.Transpose(b.SplitHeads(x(b), 4), [3]int{1, 1, 2}) }, "axes 1,1,2 are no permutation"},
		"two shapes":        {func(b *ir.Builder) { b.Weight("w", 4); b.Weight("w", 5) }, `weight "w" is asked for as [4] and as [5]`},
		"extent of 0":       {func(b *ir.Builder) { b.Weight("w", 0) }, `weight: "w": f32[0] has an extent of 0`},
		"infinite factor":   {func(b *ir.Builder) { b.Scale(x(b), math.Inf(1)) }, "the factor is +Inf"},
		"two results":       {func(b *ir.Builder) { b.Return("x", x(b)); b.Return("x", x(b)) }, `two results are named "x"`},
		"nil result":        {func(b *ir.Builder) { b.Return("x", nil) }, `result "x" is no value of the graph`},
		"write elsewhere":   {func(b *ir.Builder) { b.CacheWrite(x(b), x(b), x(b)) }, "is not the newest version"},
		"nil cache":         {func(b *ir.Builder) { b.Layer(0, func() { b.CacheWrite(nil, nil, nil) }) }, "layer 0: nil is not the newest version"},
		"mask of no scores": {func(b *ir.Builder) { b.Mask(b.Transpose(b.SplitHeads(x(b), 4), head0)) }, "want shape [4,T,B*Smax]"},
		"stale cache": {func(b *ir.Builder) {
			b.Layer(0, func() {
				old, k := b.Cache(4, 8), b.SplitHeads(x(b), 4)
				b.CacheWrite(old, k, k)
				b.CacheRead(old)
			})
			b.Return("x", x(b))
		}, "which v7 has replaced"},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := ir.Build("tiny", anyWeights{}, ir.Options{Block: 64}, c.define)
			require.ErrorContains(t, err, c.want)
			require.Nil(t, f)
		})
	}
}

func TestBuildNeedsBlock(t *testing.T) {
	_, err := ir.Build("tiny", anyWeights{}, ir.Options{}, tiny)
	require.ErrorContains(t, err, "cache<f16,2,8,0> has an extent of 0")
}

func ExampleBuild() {
	f, err := ir.Build("bigram", anyWeights{}, ir.Options{Block: 512}, func(b *ir.Builder) {
		x := b.Embed(b.Input(sym.Tokens), b.Weight("token_embd.weight", 1024, 256))
		x = b.RMSNorm(x, b.Weight("output_norm.weight", 256), 1e-6)
		b.Return("logits", b.Linear(b.GatherRows(x), b.Weight("output.weight", 1024, 256)))
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(f)
	// Output:
	// func bigram source {
	//   v1 = input {name="tokens"} : i32[T]
	//   v2 = weight {name="token_embd.weight"} : f32[1024,256]
	//   v3 = embed v1 v2 : f32[T,256]
	//   v4 = weight {name="output_norm.weight"} : f32[256]
	//   v5 = rms_norm v3 v4 {eps=1e-06} : f32[T,256]
	//   v6 = input {name="logit_rows"} : i32[R]
	//   v7 = gather_rows v5 v6 : f32[R,256]
	//   v8 = weight {name="output.weight"} : f32[1024,256]
	//   v9 = linear v7 v8 : f32[R,1024]
	//   return "logits" v9
	// }
}
