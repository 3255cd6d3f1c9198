package integration_test

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"strconv"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/ir/sym"
)

// featured is a decoder of random weights with what attention may have: tests compile it
// where no model of a file has that.
type featured struct {
	window        int
	softCap       float64
	sinks, slopes bool

	rope       bool
	headNorms  bool
	layerNorms bool
	biases     bool
	bare       bool // products of the residual stream as it is
	size       int  // of a head; 16 if unset
	heads, kv  int  // 4 and 2 if unset
	activation ir.Activation
	late       bool // rows are gathered once they are normalised
	gated      bool // by a gate that is no product of two things
	mlp        func(b *ir.Builder, x *ir.Value) *ir.Value
	head       func(b *ir.Builder, logits *ir.Value) *ir.Value
}

const (
	featuredVocab = 96
	featuredWidth = 64
	featuredInner = 96
)

// model returns the model and its weights.
func (m featured) model() (*smelt.Model, featuredWeights) {
	weights := featuredWeights{}
	return smelt.Define("featured", weights, m.define), weights
}

func (m featured) define(b *ir.Builder) {
	if m.activation == ir.NoActivation {
		m.activation = ir.SiLU
	}
	if m.size == 0 {
		m.size = 16
	}
	heads, kv := 4, 2
	if m.heads > 0 {
		heads, kv = m.heads, m.kv
	}
	linear := func(name string, x *ir.Value, rows, columns int) *ir.Value {
		if m.biases {
			return b.LinearBias(x, b.Weight(name, rows, columns), b.Weight(name+".bias", rows))
		}
		return b.Linear(x, b.Weight(name, rows, columns))
	}
	norm := func(name string, x *ir.Value) *ir.Value {
		if m.bare {
			return x
		}
		if m.layerNorms {
			return b.LayerNorm(x, b.Weight(name+".gain", featuredWidth), b.Weight(name+".bias", featuredWidth), 1e-5)
		}
		return b.RMSNorm(x, b.Weight(name+".gain", featuredWidth), 1e-5)
	}
	x := b.Embed(b.Input(sym.Tokens), b.Weight("embedding", featuredVocab, featuredWidth))
	for i := range 2 {
		b.Layer(i, func() {
			at := func(name string) string { return strconv.Itoa(i) + "." + name }
			n := norm(at("norm"), x)
			q := b.SplitHeads(linear(at("q"), n, heads*m.size, featuredWidth), heads)
			k := b.SplitHeads(linear(at("k"), n, kv*m.size, featuredWidth), kv)
			v := b.SplitHeads(linear(at("v"), n, kv*m.size, featuredWidth), kv)
			if m.headNorms {
				q, k = b.RMSNorm(q, b.Weight(at("qnorm.gain"), m.size), 1e-6), b.RMSNorm(k, b.Weight(at("knorm.gain"), m.size), 1e-6)
			}
			if m.rope {
				rope := ir.RopeAttr{Rotated: m.size, Theta: 1e4, FreqScale: 1, Magnitude: 1}
				q, k = b.Rope(q, rope, nil), b.Rope(k, rope, nil)
			}
			x = b.Add(x, linear(at("o"), m.attend(b, at, q, k, v, heads, kv), featuredWidth, heads*m.size))
			n = norm(at("mlp.norm"), x)
			if m.mlp != nil {
				n = m.mlp(b, n)
			}
			up := linear(at("up"), n, featuredInner, featuredWidth)
			if m.gated {
				up = b.Gate(m.activation, linear(at("gate"), n, featuredInner, featuredWidth), up)
			} else {
				up = b.Activate(m.activation, up)
			}
			x = b.Add(x, linear(at("down"), up, featuredWidth, featuredInner))
		})
	}
	var last *ir.Value
	if m.late {
		last = b.GatherRows(norm("last", x))
	} else {
		last = norm("last", b.GatherRows(x))
	}
	logits := b.Linear(last, b.Weight("head", featuredVocab, featuredWidth))
	if m.head != nil {
		logits = m.head(b, logits)
	}
	b.Return("logits", logits)
}

// convolved is a gated convolution over four tokens, whose past is a recurrent state.
func convolved(b *ir.Builder, x *ir.Value) *ir.Value {
	w := b.Weight("conv", featuredWidth, 4)
	return b.Add(x, b.Mul(x, b.ShortConv(b.Mul(x, x), w, b.State("conv", 3, featuredWidth))))
}

// ruled is the gated delta rule over four heads.
func ruled(b *ir.Builder, x *ir.Value) *ir.Value {
	const heads, keyHeads, head = 4, 2, 8
	linear := func(name string, rows int) *ir.Value { return b.Linear(x, b.Weight(name, rows, featuredWidth)) }
	y := b.DeltaNet(linear("qkv", (2*keyHeads+heads)*head), linear("alpha", heads), linear("beta", heads), b.Const([]float32{-0.1, -0.5, -1, -2}),
		b.Const([]float32{0, 1, -1, 2}), b.State("delta", heads*head, head), ir.DeltaNetAttr{KeyHeads: keyHeads, Eps: 1e-6})
	y = b.Mul(b.MergeHeads(y), b.Activate(ir.Sigmoid, linear("gate", heads*head)))
	return b.Add(x, b.Linear(y, b.Weight("ruled", featuredWidth, heads*head)))
}

// scanned is the state space of Mamba-2 over four heads.
func scanned(b *ir.Builder, x *ir.Value) *ir.Value {
	const heads, groups, head, states = 4, 2, 8, 8
	const inner, conv = heads * head, heads*head + 2*groups*states
	all := b.Linear(x, b.Weight("scanned_in", inner+conv+heads, featuredWidth))
	xbc := b.ShortConv(b.Slice(all, inner, inner+conv), b.Weight("scanned_taps", conv, 4), b.State("conv", 3, conv))
	y := b.Mamba2(b.SiLU(b.Shift(xbc, b.Weight("scanned_bias", conv))), b.Slice(all, inner+conv, inner+conv+heads), b.Const([]float32{-0.1, -0.5, -1, -2}),
		b.Const([]float32{0, 1, -1, 2}), b.Const([]float32{1, 0.5, -1, 2}), b.State("ssm", heads*states, head), groups)
	y = b.GroupNorm(b.SplitHeads(b.Mul(b.MergeHeads(y), b.SiLU(b.Slice(all, 0, inner))), groups), b.Weight("scanned_gain", groups, inner/groups), 1e-5)
	return b.Add(x, b.Linear(b.MergeHeads(y), b.Weight("scanned", featuredWidth, inner)))
}

func (m featured) attend(b *ir.Builder, at func(string) string, q, k, v *ir.Value, heads, kv int) *ir.Value {
	headFirst := [3]int{1, 0, 2}
	keys, values := b.CacheRead(b.CacheWrite(b.Cache(kv, m.size), k, v))
	if heads > kv {
		keys, values = b.RepeatKV(keys, heads/kv), b.RepeatKV(values, heads/kv)
	}
	scores := b.Scale(b.MatmulT(b.Transpose(q, headFirst), b.Transpose(keys, headFirst)), 1/math.Sqrt(float64(m.size)))
	if m.softCap > 0 {
		scores = b.SoftCap(scores, m.softCap)
	}
	if m.slopes {
		slopes := make([]float32, heads)
		for i := range slopes {
			slopes[i] = float32(math.Exp2(-float64(i + 2)))
		}
		scores = b.MaskSlopes(scores, b.Const(slopes), m.window)
	} else {
		scores = b.MaskWindow(scores, m.window)
	}
	if m.sinks {
		scores = b.SoftmaxSinks(scores, b.Weight(at("sinks"), heads))
	} else {
		scores = b.Softmax(scores)
	}
	return b.MergeHeads(b.Transpose(b.Matmul(scores, b.Transpose(values, headFirst)), headFirst))
}

// featuredWeights makes tensors up as they are asked for: matrices that keep the size of
// what they multiply, gains about 1 and other vectors about 0.
type featuredWeights map[string]smelt.Tensor

func (w featuredWeights) Weight(name string, want []int) (dtype.Type, []int, bool) {
	if _, ok := w[name]; !ok && want != nil {
		seed := uint64(0)
		for _, c := range name {
			seed = seed*131 + uint64(c)
		}
		r, n := rand.New(rand.NewPCG(seed, 5)), 1
		for _, d := range want {
			n *= d
		}
		scale, middle := 0.3, 0.0
		if len(want) == 2 {
			scale = 1.5 / math.Sqrt(float64(want[1]))
		} else if len(name) > 5 && name[len(name)-5:] == ".gain" {
			middle = 1
		}
		data := make([]byte, 0, 4*n)
		for range n {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(middle+scale*r.NormFloat64())))
		}
		w[name] = smelt.Tensor{DType: dtype.F32, Shape: want, Data: data}
	}
	return smelt.Tensors(w).Weight(name, want)
}

func (w featuredWeights) Data(name string) (dtype.Type, []byte, bool) {
	return smelt.Tensors(w).Data(name)
}
