package models

import (
	"cmp"
	"fmt"
	"math"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/sym"
)

// Embeddings is the name of the graph's result in models built with [Config.Embeds]: the hidden
// states of the requested rows, [R, Width].
const Embeddings = "embeddings"

// ModelBuilder builds a model's graph.
type ModelBuilder struct {
	b *ir.Builder
	c *Config

	Norm      Norm
	Table     *ir.Value // token_embd, [Vocab, Width]
	rotations map[Rope]rotation
}

// rotation holds the operands of [ir.Builder.Rope]: its attribute, and the factors or nil.
type rotation struct {
	attr    ir.RopeAttr
	factors *ir.Value
}

// Decode builds a decoder-only model: the embedding, the layers, and the head. add maps the
// residual stream x, [T, Width], to that behind a layer, [T, Width].
func Decode(b *ir.Builder, c *Config, norm Norm, add func(l *LayerBuilder, x *ir.Value) *ir.Value) {
	m := NewModel(b, c, norm)
	layers := m.Layers()
	x := Scaled(b, b.Embed(b.Input(sym.Tokens), m.Table), c.EmbeddingScale)
	if c.Positions {
		x = b.Add(x, b.Embed(b.Input(sym.Positions), b.Weight("position_embd.weight", c.Context, c.Width)))
	}
	for i, l := range layers {
		b.Layer(i, func() { x = add(l, x) })
	}
	m.head(x)
}

func NewModel(b *ir.Builder, c *Config, norm Norm) *ModelBuilder {
	return &ModelBuilder{b: b, c: c, Norm: norm, rotations: make(map[Rope]rotation), Table: b.Weight("token_embd.weight", c.Vocab, c.Width)}
}

func (m *ModelBuilder) Layers() []*LayerBuilder {
	layers := make([]*LayerBuilder, m.c.Layers)
	for i := range layers {
		layers[i] = m.layer(i)
	}
	return layers
}

// HeadTensors lists weights that embedding models do not need.
var HeadTensors = []string{"output.weight", "output.bias"}

// ClassifierTensors are the weights of [Config.Classifier], which logits do not need.
var ClassifierTensors = []string{"cls.weight", "cls.bias", "cls.output.weight", "cls.output.bias"}

// head returns the logits of the requested rows, [R, Vocab].
func (m *ModelBuilder) head(x *ir.Value) {
	b, c := m.b, m.c
	x = m.Norm(b, "output_norm", b.GatherRows(x), c.Eps)
	if c.Embeds {
		b.Return(Embeddings, Classified(b, c, dense(b, c, x)))
		return
	}
	head := m.Table
	if !c.Tied {
		head = b.Weight("output.weight", c.Vocab, c.Width)
	}
	var bias *ir.Value
	if c.Biases.Head {
		bias = b.Weight("output.bias", c.Vocab)
	}
	logits := Scaled(b, b.LinearBias(x, head, bias), c.LogitScale)
	if c.LogitCap != 0 {
		logits = b.SoftCap(logits, c.LogitCap)
	}
	if len(c.Suppressed) > 0 {
		shifts := make([]float32, c.Vocab)
		for _, token := range c.Suppressed {
			if token >= 0 && token < c.Vocab { // others are dropped, as in llama.cpp
				shifts[token] = float32(math.Inf(-1))
			}
		}
		logits = b.Shift(logits, b.Const(shifts))
	}
	b.Return("logits", logits)
}

// dense returns W₃ · W₂ · x, [R, Width], if the model has these weights. Models apply them behind
// the mean pooling; since products commute with the mean, the graph applies them before it.
func dense(b *ir.Builder, c *Config, x *ir.Value) *ir.Value {
	if c.Dense == 0 {
		return x
	}
	return b.Linear(b.Linear(x, b.Weight("dense_2.weight", c.Dense, c.Width)), b.Weight("dense_3.weight", c.Width, c.Dense))
}

// Classified returns the scores of each row, [R, Classes], if the model has a classifier:
//
//	Wout · tanh(Wdense · x + b) + b
//
// where some have no dense layer, and some no biases. Models score the first or the last token
// of a text; the graph scores each row that is asked for.
func Classified(b *ir.Builder, c *Config, x *ir.Value) *ir.Value {
	classifier := &c.Classifier
	if classifier.Classes == 0 {
		return x
	}
	product := func(name string, rows int, x *ir.Value) *ir.Value {
		var bias *ir.Value
		if c.Biases.Classifier {
			bias = b.Weight(name+".bias", rows)
		}
		return b.LinearBias(x, b.Weight(name+".weight", rows, c.Width), bias)
	}
	if classifier.Dense {
		x = b.SoftCap(product("cls", c.Width, x), 1) // tanh
	}
	return product("cls.output", classifier.Classes, x)
}

// Scaled returns x · by; by = 0 stands for 1.
func Scaled(b *ir.Builder, x *ir.Value, by float64) *ir.Value {
	if by == 0 || by == 1 {
		return x
	}
	return b.Scale(x, by)
}

// Norm is a norm over the innermost axis of x; name is that of its weights.
type Norm func(b *ir.Builder, name string, x *ir.Value, eps float64) *ir.Value

func RMSNorm(b *ir.Builder, name string, x *ir.Value, eps float64) *ir.Value {
	return b.RMSNorm(x, b.Weight(name+".weight", int(x.Type.Shape.Last())), eps)
}

// LayerNorm has a gain and a bias, GainNorm only the gain.
func LayerNorm(b *ir.Builder, name string, x *ir.Value, eps float64) *ir.Value {
	n := int(x.Type.Shape.Last())
	return b.LayerNorm(x, b.Weight(name+".weight", n), b.Weight(name+".bias", n), eps)
}

func GainNorm(b *ir.Builder, name string, x *ir.Value, eps float64) *ir.Value {
	return b.LayerNorm(x, b.Weight(name+".weight", int(x.Type.Shape.Last())), nil, eps)
}

// LayerBuilder builds one layer: it holds its shape and names its weights.
type LayerBuilder struct {
	Layer
	rotation *rotation // nil where heads are not rotated

	Builder   *ir.Builder
	Config    *Config
	Index     int
	normalize Norm
}

func (m *ModelBuilder) layer(i int) *LayerBuilder {
	l := &LayerBuilder{Layer: m.c.Layer(i), Builder: m.b, Config: m.c, Index: i, normalize: m.Norm}
	if l.Rope != nil {
		r, ok := m.rotations[*l.Rope]
		if !ok {
			r.attr, r.factors = l.Rope.bind(m.b, *l.Rope == m.c.Rope)
			m.rotations[*l.Rope] = r
		}
		l.rotation = &r
	}
	return l
}

func (l *LayerBuilder) Name(role string) string { return fmt.Sprintf("blk.%d.%s", l.Index, role) }

// Linear returns the product of x, [T, K], and the weight of the role, [rows, K], plus its bias if
// biased.
func (l *LayerBuilder) Linear(role string, x *ir.Value, rows int, biased bool) *ir.Value {
	w := l.Builder.Weight(l.Name(role+".weight"), rows, int(x.Type.Shape.Last()))
	if !biased {
		return l.Builder.Linear(x, w)
	}
	return l.Builder.LinearBias(x, w, l.Builder.Weight(l.Name(role+".bias"), rows))
}

// Norm applies the family's norm over the innermost axis of x.
func (l *LayerBuilder) Norm(role string, x *ir.Value) *ir.Value {
	return l.normalize(l.Builder, l.Name(role), x, l.Config.Eps)
}

// Rotate applies RoPE to heads, [T, heads, Head].
func (l *LayerBuilder) Rotate(heads *ir.Value) *ir.Value {
	if l.rotation == nil {
		return heads
	}
	return l.Builder.Rope(heads, l.rotation.attr, l.rotation.factors)
}

// Prepare is applied to the heads of Q and K, [T, heads, Head], before RoPE; role is "attn_q" or
// "attn_k".
type Prepare func(role string, heads *ir.Value) *ir.Value

func AsIs(_ string, heads *ir.Value) *ir.Value { return heads }

// NormHeads normalises each head by itself, with weights that all heads share.
func (l *LayerBuilder) NormHeads(role string, heads *ir.Value) *ir.Value {
	return l.Norm(role+"_norm", heads)
}

// NormAllHeads normalises all heads as one vector.
func (l *LayerBuilder) NormAllHeads(role string, heads *ir.Value) *ir.Value {
	n, _ := heads.Type.Shape[1].IsConst()
	return l.Builder.SplitHeads(l.Norm(role+"_norm", l.Builder.MergeHeads(heads)), int(n))
}

// normEachHead normalises each head by itself, with weights of its own.
func (l *LayerBuilder) normEachHead(role string, heads *ir.Value) *ir.Value {
	n, _ := heads.Type.Shape[1].IsConst()
	w := l.Builder.Weight(l.Name(role+"_norm.weight"), int(n), l.Head)
	return l.Builder.Gain(l.Builder.LayerNorm(heads, nil, nil, l.Config.Eps), w)
}

// NormedHeads returns normEachHead if the model normalises heads, else [AsIs].
func (l *LayerBuilder) NormedHeads() Prepare {
	if l.Config.HeadNorms {
		return l.normEachHead
	}
	return AsIs
}

// Attention returns Wo · attend(rotate(prepare(Wq·n)), rotate(prepare(Wk·n)), Wv·n) of the
// normalised stream n, [T, Width]. A KV head serves Heads/KVHeads query heads (grouped-query
// attention).
func Attention(l *LayerBuilder, n *ir.Value, prepare Prepare) *ir.Value {
	return l.Linear("attn_output", AttentionHeads(l, n, prepare), l.Config.Width, l.Config.Biases.Output)
}

// AttentionHeads is Attention without Wo: [T, Heads·Head].
func AttentionHeads(l *LayerBuilder, n *ir.Value, prepare Prepare) *ir.Value {
	b := l.Builder
	project := func(role string, heads int) *ir.Value { // [T, heads, Head]
		return b.SplitHeads(l.Linear(role, n, heads*l.Head, l.Config.Biases.QKV), heads)
	}
	q := project("attn_q", l.Heads)
	if l.Back > 0 {
		return AttendOver(l, l.Rotate(prepare("attn_q", q)), b.CacheOf(l.Index-l.Back))
	}
	k, v := project("attn_k", l.KVHeads), project("attn_v", l.KVHeads)
	q = l.Rotate(prepare("attn_q", q))
	k = l.Rotate(prepare("attn_k", k))
	return Attend(l, q, k, v)
}

// Attend returns softmax(scale · q·kᵀ)·v over all tokens of the sequence in the cache, this step
// included: [T, Heads·Head]. scale is 1/√Head unless the configuration sets another.
func Attend(l *LayerBuilder, q, k, v *ir.Value) *ir.Value {
	window := l.Window
	if l.Config.Both {
		window = 0 // keys ahead are seen too
	}
	return AttendOver(l, q, l.Builder.CacheWrite(l.Builder.CacheWindow(l.KVHeads, l.Head, window), k, v))
}

// AttendOver is Attend over the keys and values in a cache, which may be an earlier layer's.
func AttendOver(l *LayerBuilder, q, cache *ir.Value) *ir.Value {
	b := l.Builder
	keys, values := b.CacheRead(cache)
	shared := l.Heads / cache.Type.Cache.KVHeads
	keys, values = b.RepeatKV(keys, shared), b.RepeatKV(values, shared)
	headFirst := [3]int{1, 0, 2}
	scale := cmp.Or(l.Config.AttentionScale, 1/math.Sqrt(float64(l.Head)))
	scores := b.Scale(b.MatmulT(b.Transpose(q, headFirst), b.Transpose(keys, headFirst)), scale)
	if l.SoftCap != 0 {
		scores = b.SoftCap(scores, l.SoftCap)
	}
	switch {
	case l.Config.Both:
		scores = b.MaskBoth(scores, l.Window)
	case l.ALiBi != 0:
		scores = b.MaskSlopes(scores, b.Const(alibi(l.Heads, l.ALiBi)), l.Window)
	default:
		scores = b.MaskWindow(scores, l.Window)
	}
	var weights *ir.Value
	if l.Sinks {
		weights = b.SoftmaxSinks(scores, b.Weight(l.Name("attn_sinks.weight"), l.Heads))
	} else {
		weights = b.Softmax(scores)
	}
	mixed := b.Matmul(weights, b.Transpose(values, headFirst))
	return b.MergeHeads(b.Transpose(mixed, headFirst))
}

// alibi returns the slopes of heads. They are powers of 2^(−most/n), n being the largest power of
// two up to heads, and for the heads beyond n every second power of 2^(−most/2n); most is usually 8
// (Press, Smith and Lewis, "Train Short, Test Long", 2022, and its code for other numbers of
// heads).
func alibi(heads int, most float64) []float32 {
	n := 1
	for 2*n <= heads {
		n *= 2
	}
	out := make([]float32, heads)
	for i := range out {
		if i < n {
			out[i] = float32(math.Exp2(-most * float64(i+1) / float64(n)))
		} else {
			out[i] = float32(math.Exp2(-most / 2 * float64(2*(i-n)+1) / float64(n)))
		}
	}
	return out
}

// Gated returns Wdown · (activation(Wgate·n) ∘ Wup·n), [T, Width]: SwiGLU and its variants.
func Gated(l *LayerBuilder, n *ir.Value, activation ir.Activation) *ir.Value {
	return GatedBy(l, "", n, l.FFN, activation)
}

// GatedBy is Gated with a suffix to the names of the weights, and with width ffn.
func GatedBy(l *LayerBuilder, suffix string, n *ir.Value, ffn int, activation ir.Activation) *ir.Value {
	b := l.Builder
	gate := l.Linear("ffn_gate"+suffix, n, ffn, l.Config.Biases.FFN)
	up := l.Linear("ffn_up"+suffix, n, ffn, l.Config.Biases.FFN)
	var inner *ir.Value
	if activation.OnlyGated() {
		inner = b.Gate(activation, gate, up)
	} else {
		inner = b.Mul(b.Activate(activation, gate), up)
	}
	return l.Linear("ffn_down"+suffix, inner, l.Config.Width, l.Config.Biases.FFN)
}

// Ungated returns Wdown · activation(Wup·n), [T, Width].
func Ungated(l *LayerBuilder, n *ir.Value, activation ir.Activation) *ir.Value {
	return UngatedBy(l, "", n, l.FFN, activation)
}

// UngatedBy is Ungated with a suffix to the names of the weights, and with width ffn.
func UngatedBy(l *LayerBuilder, suffix string, n *ir.Value, ffn int, activation ir.Activation) *ir.Value {
	inner := l.Builder.Activate(activation, l.Linear("ffn_up"+suffix, n, ffn, l.Config.Biases.FFN))
	return l.Linear("ffn_down"+suffix, inner, l.Config.Width, l.Config.Biases.FFN)
}
