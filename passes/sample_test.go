package passes_test

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/samber/lo"
	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/batch"
	"github.com/smelt-ml/smelt/internal/compare"
	"github.com/smelt-ml/smelt/internal/ref"
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/ir/sym"
	"github.com/smelt-ml/smelt/lower"
)

// sample is the shape of a decoder to build for a test.
type sample struct {
	layers, heads, kv, head, width, ffn, vocab int

	headNorm, factors bool
	rowNorm           bool // Q and K are normalised over all their heads
	repeat            bool // write repeat_kv even where it repeats once
	scaleQuery        bool // scale the query rather than the scores
	swap              bool // operands of add and mul the other way round
	wordy             bool // views that cancel out, values computed twice
	rope              ir.RopeAttr
	tied              bool

	window  int     // of keys; 0 for all
	softCap float64 // of scores; 0 for none
	sinks   bool    // a score without a key in every head
	slopes  bool    // of heads: ALiBi

	biases     bool // of every product but the head
	layerNorm  int  // vectors of LayerNorms + 1 in place of RMSNorms; 0 for none
	activation ir.Activation
	plain      bool          // a feed-forward of two products, without a gate
	learned    bool          // positions have a table of their own
	unrotated  bool          // no RoPE
	after      bool          // what joins the residual stream is normalised
	experts    int           // of a mixture in place of the feed-forward; 0 for none
	chosen     int           // of them, for each token
	shared     bool          // one more expert, that all tokens go to
	taps       int           // of a gated convolution before attention; 0 for none
	ruled      bool          // the gated delta rule before attention
	scanned    int           // groups of B and C of Mamba-2 before attention; 0: none
	latent     int           // elements of the latent vector that another layer has, whose heads' keys and values it is; 0: no such layer
	gate       ir.Activation // of a gate of attention's result; none without
	headGate   bool          // which has an element for each head
	keyIsValue bool          // V is K before its norm and rotation
	valueNorm  bool          // heads of V are normalised, without weights
	factor     bool          // each layer multiplies the stream by a number
	beside     bool          // layers have columns of one more embedding
	sharing    bool          // layers behind the first read its keys and values
}

var (
	tinyQwen  = sample{layers: 2, heads: 4, kv: 2, head: 4, width: 12, ffn: 20, vocab: 11, headNorm: true, rope: rotation(4, false), tied: true}
	tinyLlama = sample{layers: 2, heads: 4, kv: 1, head: 6, width: 12, ffn: 20, vocab: 11, factors: true, rope: rotation(4, true)}
	qwen06b   = sample{layers: 28, heads: 16, kv: 8, head: 128, width: 1024, ffn: 3072, vocab: 151936, headNorm: true, rope: rotation(128, false), tied: true}
)

func rotation(n int, interleaved bool) ir.RopeAttr {
	// With this base the frequencies are powers of 4, which a table in float32 holds
	// exactly.
	return ir.RopeAttr{Rotated: n, Interleaved: interleaved, Theta: math.Exp2(float64(n)), FreqScale: 0.5, Magnitude: 1}
}

// randomSample draws a shape and a way of writing it down.
func randomSample(r *rand.Rand) sample {
	coin := func() bool { return r.IntN(2) == 0 }
	s := sample{
		layers: 1 + r.IntN(2), kv: 1 + r.IntN(3), head: 2 + 2*r.IntN(4), width: 4 + r.IntN(12), ffn: 5 + r.IntN(20), vocab: 5 + r.IntN(20),
		headNorm: coin(), factors: coin(), repeat: coin(), scaleQuery: coin(), swap: coin(), wordy: coin(), tied: coin(),
	}
	s.heads = s.kv * (1 + r.IntN(3))
	s.rope = rotation(2+2*r.IntN(s.head/2), coin())
	if coin() {
		s.window = 1 + r.IntN(5)
	}
	if coin() {
		s.softCap = 0.5 + r.Float64()
	}
	s.sinks = coin()
	// What came later is drawn last, so that earlier draws stay.
	s.slopes, s.biases, s.plain, s.learned = coin(), coin(), coin(), coin()
	if coin() {
		s.layerNorm = 1 + r.IntN(3)
	}
	s.activation = ir.Activation(1 + r.IntN(len(ir.Activations())-1))
	s.plain = s.plain && !s.activation.OnlyGated()
	s.unrotated = r.IntN(3) == 0
	s.after = coin()
	if coin() {
		s.experts = 1 + r.IntN(5)
		s.chosen = 1 + r.IntN(s.experts)
	}
	if coin() {
		s.taps = 2 + r.IntN(3)
	}
	s.rowNorm = r.IntN(4) == 0
	s.shared = s.experts > 0 && coin()
	s.ruled = r.IntN(3) == 0
	s.gate, s.headGate = []ir.Activation{ir.NoActivation, ir.Sigmoid, ir.Softplus}[r.IntN(3)], coin()
	s.keyIsValue, s.valueNorm, s.factor = r.IntN(6) == 0, s.headNorm && r.IntN(3) == 0, coin()
	s.scanned = max(r.IntN(6)-3, 0)
	s.beside = coin()
	if s.sharing = s.headNorm && !s.rowNorm && !s.unrotated && coin(); s.sharing {
		s.layers = 2
	}
	if r.IntN(3) == 0 {
		s.latent = 2 + 2*r.IntN(4)
	}
	return s
}

type anyWeights struct{}

func (anyWeights) Weight(_ string, want []int) (dtype.Type, []int, bool) {
	return dtype.F32, want, true
}

const blockSlots = 4

func (s sample) build(tb testing.TB) *ir.Func {
	f, err := ir.Build("sample", anyWeights{}, ir.Options{Block: blockSlots}, s.define)
	require.NoError(tb, err)
	return f
}

func (s sample) define(b *ir.Builder) {
	commute := func(op func(x, y *ir.Value) *ir.Value, x, y *ir.Value) *ir.Value {
		if s.swap {
			return op(y, x)
		}
		return op(x, y)
	}
	turn := func(x *ir.Value) *ir.Value {
		if s.wordy { // two transposes for one
			return b.Transpose(b.Transpose(x, [3]int{1, 2, 0}), [3]int{0, 2, 1})
		}
		return b.Transpose(x, [3]int{1, 0, 2})
	}
	const eps = 1e-6
	bias := func(name string, n int) *ir.Value {
		if !s.biases {
			return nil
		}
		return b.Weight(name+".bias", n)
	}
	norm := func(name string, x *ir.Value) *ir.Value {
		switch s.layerNorm {
		case 0:
			return b.RMSNorm(x, b.Weight(name, s.width), eps)
		case 1:
			return b.LayerNorm(x, nil, nil, eps)
		case 2:
			return b.LayerNorm(x, b.Weight(name, s.width), nil, eps)
		}
		return b.LayerNorm(x, b.Weight(name, s.width), b.Weight(name+".bias", s.width), eps)
	}
	table := b.Weight("embd", s.vocab, s.width)
	var factors *ir.Value
	if s.factors {
		data := make([]float32, s.rope.Rotated/2)
		for i := range data {
			data[i] = 1 + float32(i)/2
		}
		factors = b.Const(data)
	}
	x := b.Embed(b.Input(sym.Tokens), table)
	if s.learned {
		x = b.Add(x, b.Embed(b.Input(sym.Positions), b.Weight("positions", 2*blockSlots, s.width)))
	}
	var others *ir.Value
	if s.beside {
		others = b.Embed(b.Input(sym.Tokens), b.Weight("others", s.vocab, 3*s.layers))
	}
	for i := range s.layers {
		b.Layer(i, func() {
			weight := func(name string, shape ...int) *ir.Value { return b.Weight(fmt.Sprintf("%d.%s", i, name), shape...) }
			linear := func(name string, x *ir.Value, rows, width int) *ir.Value {
				return b.LinearBias(x, weight(name, rows, width), bias(fmt.Sprintf("%d.%s", i, name), rows))
			}
			if s.taps > 0 {
				all := linear("in", x, 3*s.width, s.width)
				part := func(i int) *ir.Value { return b.Slice(all, i*s.width, (i+1)*s.width) }
				mixed := b.ShortConv(commute(b.Mul, part(0), part(2)), weight("taps", s.width, s.taps), b.State("conv", s.taps-1, s.width))
				x = commute(b.Add, x, linear("out", commute(b.Mul, part(1), mixed), s.width, s.width))
			}
			if s.ruled {
				const heads, keyHeads, head = 4, 2, 3
				n := norm(fmt.Sprintf("%d.delta_norm", i), x)
				project := func(name string, rows int) *ir.Value { return b.Linear(n, weight(name, rows, s.width)) }
				const all = (2*keyHeads + heads) * head
				qkv := b.SiLU(b.ShortConv(project("delta_qkv", all), weight("delta_taps", all, 3), b.State("delta_conv", 2, all)))
				y := b.DeltaNet(qkv, project("alpha", heads), project("beta", heads), weight("decay", heads), weight("dt", heads), b.State("delta", heads*head, head),
					ir.DeltaNetAttr{KeyHeads: keyHeads, Adjacent: s.swap, Eps: eps})
				y = commute(b.Mul, b.RMSNorm(y, weight("delta_gain", head), eps), b.SiLU(b.SplitHeads(project("z", heads*head), heads)))
				x = commute(b.Add, x, linear("delta_out", b.MergeHeads(y), s.width, heads*head))
			}
			if s.scanned > 0 {
				const heads, head, states = 4, 3, 2
				inner, conv := heads*head, heads*head+2*s.scanned*states
				all := linear("ssm_in", norm(fmt.Sprintf("%d.ssm_norm", i), x), inner+conv+heads, s.width)
				xbc := b.ShortConv(b.Slice(all, inner, inner+conv), weight("ssm_taps", conv, 3), b.State("ssm_conv", 2, conv))
				xbc = b.SiLU(b.Shift(xbc, weight("ssm_bias", conv)))
				y := b.Mamba2(xbc, b.Slice(all, inner+conv, inner+conv+heads), weight("ssm_a", heads, 1), weight("ssm_dt", heads), weight("ssm_d", heads), b.State("ssm", heads*states, head), s.scanned)
				y = commute(b.Mul, b.MergeHeads(y), b.SiLU(b.Slice(all, 0, inner)))
				y = b.MergeHeads(b.GroupNorm(b.SplitHeads(y, s.scanned), weight("ssm_gain", s.scanned, inner/s.scanned), eps))
				x = commute(b.Add, x, linear("ssm_out", y, s.width, inner))
			}
			normed := norm(fmt.Sprintf("%d.attn_norm", i), x)
			project := func(name string, heads int) *ir.Value {
				n := normed
				if s.wordy { // the same norm once more for each product
					n = norm(fmt.Sprintf("%d.attn_norm", i), x)
				}
				y := linear(name, n, heads*s.head, s.width)
				if s.rowNorm && name != "v" && !s.keyIsValue {
					y = b.RMSNorm(y, weight(name+"_norm", heads*s.head), eps)
				}
				if s.wordy { // two reshapes for one
					y = b.Reshape(y, ir.Var(sym.T), ir.Const(s.head), ir.Const(heads))
					return b.Reshape(y, ir.Var(sym.T), ir.Const(heads), ir.Const(s.head))
				}
				return b.SplitHeads(y, heads)
			}
			rotate := func(name string, y *ir.Value) *ir.Value {
				if s.headNorm && !s.rowNorm {
					y = b.RMSNorm(y, weight(name+"_norm", s.head), eps)
				}
				if s.unrotated {
					return y
				}
				return b.Rope(y, s.rope, factors)
			}
			q, k := rotate("q", project("q", s.heads)), rotate("k", project("k", s.kv))
			v := project(lo.Ternary(s.keyIsValue, "k", "v"), s.kv)
			if s.valueNorm {
				v = b.RMSNorm(v, b.Const(slices.Repeat([]float32{1}, s.head)), eps)
			}
			var cache *ir.Value
			if s.sharing && i > 0 {
				cache = b.CacheOf(0)
			} else {
				cache = b.CacheWrite(b.Cache(s.kv, s.head), k, v)
			}
			keys, values := b.CacheRead(cache)
			if n := s.heads / s.kv; n > 1 || s.repeat {
				keys, values = b.RepeatKV(keys, n), b.RepeatKV(values, n)
			}
			scale := 1 / math.Sqrt(float64(s.head))
			if s.scaleQuery {
				q = b.Scale(q, scale)
			}
			scores := b.MatmulT(turn(q), turn(keys))
			if !s.scaleQuery {
				scores = b.Scale(scores, scale)
			}
			if s.softCap != 0 {
				scores = b.SoftCap(scores, s.softCap)
			}
			if s.slopes {
				scores = b.MaskSlopes(scores, weight("slopes", s.heads), s.window)
			} else {
				scores = b.MaskWindow(scores, s.window)
			}
			if s.sinks {
				scores = b.SoftmaxSinks(scores, weight("sinks", s.heads))
			} else {
				scores = b.Softmax(scores)
			}
			out := b.MergeHeads(turn(b.Matmul(scores, turn(values))))
			switch {
			case s.gate == ir.NoActivation:
			case s.headGate:
				all, _ := ir.Var(sym.T).Times(ir.Const(s.heads))
				gate := b.Reshape(b.Activate(s.gate, linear("head_gate", normed, s.heads, s.width)), all, ir.Const(1))
				out = b.Reshape(b.WeightedSum(b.Reshape(out, all, ir.Const(1), ir.Const(s.head)), gate), ir.Var(sym.T), ir.Const(s.heads*s.head))
			default:
				out = commute(b.Mul, out, b.Activate(s.gate, linear("element_gate", normed, s.heads*s.head, s.width)))
			}
			join := func(name string, y *ir.Value) *ir.Value {
				if s.after {
					y = b.RMSNorm(y, weight(name, s.width), eps)
				}
				return commute(b.Add, x, y)
			}
			x = join("attn_after", linear("o", out, s.width, s.heads*s.head))

			n := norm(fmt.Sprintf("%d.ffn_norm", i), x)
			mix := func(x *ir.Value) *ir.Value { return x }
			if s.shared {
				gate, up := linear("shared_gate", n, s.ffn, s.width), linear("shared_up", n, s.ffn, s.width)
				inner := b.Reshape(commute(b.Mul, b.Activate(ir.SiLU, gate), up), ir.Var(sym.T), ir.Const(1), ir.Const(s.ffn))
				weighted := b.WeightedSum(inner, b.Activate(ir.Sigmoid, linear("shared", n, 1, s.width)))
				x = commute(b.Add, x, linear("shared_down", weighted, s.width, s.ffn))
			}
			if s.experts > 0 {
				weights, chosen := b.Router(linear("router", n, s.experts, s.width), nil, nil, ir.RouterAttr{Score: ir.SoftmaxScore, Chosen: s.chosen})
				linear = func(name string, x *ir.Value, rows, columns int) *ir.Value {
					var biases *ir.Value
					if s.biases {
						biases = weight(name+".bias", s.experts, rows)
					}
					return b.ExpertLinear(x, weight(name, s.experts, rows, columns), chosen, biases)
				}
				mix = func(x *ir.Value) *ir.Value { return b.WeightedSum(x, weights) }
			}
			up := linear("up", n, s.ffn, s.width)
			var inner *ir.Value
			switch a := cmp.Or(s.activation, ir.SiLU); {
			case s.plain:
				inner = b.Activate(a, up)
			case a.OnlyGated():
				inner = b.Gate(a, linear("gate", n, s.ffn, s.width), up)
			default:
				inner = commute(b.Mul, b.Activate(a, linear("gate", n, s.ffn, s.width)), up)
			}
			x = join("ffn_after", mix(linear("down", inner, s.width, s.ffn)))
			if s.beside {
				own := b.Slice(others, 3*i, 3*i+3)
				gated := commute(b.Mul, b.Activate(ir.GELU, b.Linear(x, weight("beside", 3, s.width))), own)
				x = commute(b.Add, x, b.Linear(gated, weight("beside_out", s.width, 3)))
			}
			if s.factor {
				x = b.Gain(x, weight("factor", 1))
			}
		})
		if s.latent > 0 {
			b.Layer(s.layers+i, func() { x = commute(b.Add, x, s.latentAttention(b, norm(fmt.Sprintf("%d.latent_norm", i), x), i)) })
		}
	}
	head := table
	if !s.tied {
		head = b.Weight("output", s.vocab, s.width)
	}
	b.Return("logits", b.Linear(norm("norm", b.GatherRows(x)), head))
}

// target can do everything that there are kernels for, in one activation type.
func target(t testing.TB, act dtype.Type) *ir.Target {
	target, err := lower.NewTarget("metal")
	require.NoError(t, err)
	target.Act, target.HeadStep = act, 1 // samples have short heads
	return &target.Target
}

// decoding and prompts are steps of one token, and of many of which few want logits.
var decoding, prompts = ir.StepsOf(lower.DecodeTokens), ir.StepsOf(512)

// crowd is steps of a token each of sequences that are too many for activations in float.
var crowd = ir.Steps{Tokens: 16, Rows: 16, OneEach: true}

// sourceTarget has kernels for source ops only.
func sourceTarget(t testing.TB, act dtype.Type) *ir.Target {
	target := target(t, act)
	target.FewNorms, target.Gated = nil, false
	for op := range target.Kernels {
		if ir.Op(op).Stage() != ir.Source {
			target.Kernels[op] = nil
		}
	}
	return target
}

// steps is what runs to compare two graphs: two packed prompts, then a step in
// which one sequence goes on and a third begins. Blocks are out of order.
func steps(vocab int) []map[string][]int32 {
	words := func(n, from int) []int32 {
		ids := make([]int32, n)
		for i := range ids {
			ids[i] = int32((from + i*i) % vocab)
		}
		return ids
	}
	return []map[string][]int32{
		batch.Pack(blockSlots, 2*blockSlots,
			batch.Piece{Tokens: words(6, 1), Blocks: []int32{3, 0}, Rows: batch.All},
			batch.Piece{Tokens: words(3, 2), Blocks: []int32{2}, Rows: batch.All}).Inputs,
		batch.Pack(blockSlots, 2*blockSlots,
			batch.Piece{Tokens: words(1, 3), Start: 6, Blocks: []int32{3, 0}},
			batch.Piece{Tokens: words(2, 0), Blocks: []int32{1}}).Inputs,
	}
}

// weights gives every name its own reproducible elements.
func weights(name string, n int) []float64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	r := rand.New(rand.NewPCG(h.Sum64(), 1))
	data := make([]float64, n)
	for i := range data {
		data[i] = r.NormFloat64() / 2
	}
	return data
}

// outcome is everything that a graph computes in the given steps.
type outcome struct {
	tensors []map[string]*ref.Tensor
	caches  []*ref.Cache
}

func execute(tb testing.TB, f *ir.Func, steps []map[string][]int32) outcome {
	sizes := make(map[string]int)
	for _, v := range f.Values {
		if v.Op == ir.OpWeight {
			n, _ := v.Type.Shape.Elements()
			count, _ := n.IsConst()
			sizes[v.Name()] = int(count)
		}
	}
	const blocks, context = 4, 2 * blockSlots
	o := outcome{caches: ref.CachesFor(f, blocks)}
	for _, in := range steps {
		out, err := ref.Run(f, ref.Env{
			Sizes: ref.SizesFor(in, context), Inputs: in, Caches: o.caches,
			Weight: func(name string) ([]float64, error) { return weights(name, sizes[name]), nil },
		})
		require.NoError(tb, err)
		o.tensors = append(o.tensors, out.Tensors)
	}
	return o
}

// requireSame compares two outcomes within what the order of float64 operations
// may change.
func requireSame(tb testing.TB, want, got outcome, context func() string) {
	compare := func(what string, a, b []float64) {
		require.Len(tb, b, len(a), what)
		for i := range a {
			if math.IsNaN(a[i]) && math.IsNaN(b[i]) {
				continue // neither graph makes a number of it
			}
			if d := compare.Apart(a[i], b[i]); math.IsInf(d, 1) || d > 1e-9*(1+math.Abs(a[i])) {
				require.Failf(tb, "results differ", "%s[%d]: %g, want %g\n%s", what, i, b[i], a[i], context())
			}
		}
	}
	require.Len(tb, got.tensors, len(want.tensors))
	for i, tensors := range want.tensors {
		require.Len(tb, got.tensors[i], len(tensors))
		for name, t := range tensors {
			require.NotNil(tb, got.tensors[i][name], name)
			require.Equal(tb, t.Shape, got.tensors[i][name].Shape, name)
			compare(fmt.Sprintf("step %d %s", i, name), t.Data, got.tensors[i][name].Data)
		}
	}
	require.Len(tb, got.caches, len(want.caches))
	for i, c := range want.caches {
		compare(fmt.Sprintf("K of layer %d", i), c.K, got.caches[i].K)
		compare(fmt.Sprintf("V of layer %d", i), c.V, got.caches[i].V)
	}
}

// latentAttention is that of DeepSeek-V2 over n, with queries of a latent vector of their own in every other
// layer.
func (s sample) latentAttention(b *ir.Builder, n *ir.Value, i int) *ir.Value {
	const eps, rest, value, rank = 1e-6, 2, 3, 5
	weight := func(name string, shape ...int) *ir.Value { return b.Weight(fmt.Sprintf("%d.%s", i, name), shape...) }
	turned := s.head / 2 * 2
	attr := rotation(turned, s.swap)
	from, width := n, s.width
	if i%2 == 0 {
		from, width = b.RMSNorm(b.Linear(n, weight("q_a", rank, s.width)), weight("q_a_norm", rank), eps), rank
	}
	q := b.SplitHeads(b.Linear(from, weight("q_b", s.heads*(rest+turned), width)), s.heads)
	all := b.Linear(n, weight("kv_a", s.latent+turned, s.width))
	c := b.RMSNorm(b.Slice(all, 0, s.latent), weight("kv_a_norm", s.latent), eps)
	shared := b.Rope(b.SplitHeads(b.Slice(all, s.latent, s.latent+turned), 1), attr, nil)
	heads := b.Indices(s.heads)
	q = b.Concat(b.ExpertLinear(b.Slice(q, 0, rest), weight("k_b", s.heads, s.latent, rest), heads, nil), b.Rope(b.Slice(q, rest, rest+turned), attr, nil))
	row := b.Concat(b.SplitHeads(c, 1), shared)
	keys, values := b.CacheRead(b.CacheWrite(b.LatentCache(s.latent+turned), row, row))
	headFirst := [3]int{1, 0, 2}
	scores := b.Mask(b.Scale(b.MatmulT(b.Transpose(q, headFirst), b.Transpose(b.RepeatKV(keys, s.heads), headFirst)), 0.3))
	out := b.Transpose(b.Matmul(b.Softmax(scores), b.Transpose(b.RepeatKV(values, s.heads), headFirst)), headFirst)
	out = b.ExpertLinear(b.Slice(out, 0, s.latent), weight("v_b", s.heads, value, s.latent), heads, nil)
	return b.Linear(b.MergeHeads(out), weight("latent_o", s.width, s.heads*value))
}
