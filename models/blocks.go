package models

import (
	"cmp"
	"fmt"
	"math"

	"github.com/smelt-ml/smelt/ir"
)

// Embeddings is the name of the result of models that are built for it: the hidden states of
// the rows that were asked for, [R, Width].
const Embeddings = "embeddings"

// model is a model in the making.
type model struct {
	b *ir.Builder
	c *Config

	normalize normalize
	table     *ir.Value // token_embd, [Vocab, Width]
	rotations map[Rope]rotation
}

// rotation is what the DSL's Rope takes: its attribute, and the factors or nil.
type rotation struct {
	attr    ir.RopeAttr
	factors *ir.Value
}

// decode writes a decoder-only model: the embedding, what add makes of the residual
// stream in each layer, x [T, Width] to x [T, Width], and the head.
func decode(b *ir.Builder, c *Config, norm normalize, add func(l *layer, x *ir.Value) *ir.Value) {
	m := newModel(b, c, norm)
	layers := m.layers()
	x := scaled(b, b.Embed(b.Input(ir.Tokens), m.table), c.EmbeddingScale)
	if c.Positions {
		x = b.Add(x, b.Embed(b.Input(ir.Positions), b.Weight("position_embd.weight", c.Context, c.Width)))
	}
	for i, l := range layers {
		b.Layer(i, func() { x = add(l, x) })
	}
	m.head(x)
}

func newModel(b *ir.Builder, c *Config, norm normalize) *model {
	return &model{b: b, c: c, normalize: norm, rotations: make(map[Rope]rotation), table: b.Weight("token_embd.weight", c.Vocab, c.Width)}
}

func (m *model) layers() []*layer {
	layers := make([]*layer, m.c.Layers)
	for i := range layers {
		layers[i] = m.layer(i)
	}
	return layers
}

// headTensors are those that embeddings do without.
var headTensors = []string{"output.weight", "output.bias"}

// head runs on the rows that were asked for: logits, [R, Vocab].
func (m *model) head(x *ir.Value) {
	b, c := m.b, m.c
	x = m.normalize(b, "output_norm", b.GatherRows(x), c.Eps)
	if c.embeddings {
		b.Return(Embeddings, dense(b, c, x))
		return
	}
	head := m.table
	if !c.Tied {
		head = b.Weight("output.weight", c.Vocab, c.Width)
	}
	var bias *ir.Value
	if c.Biases.Head {
		bias = b.Weight("output.bias", c.Vocab)
	}
	logits := scaled(b, b.LinearBias(x, head, bias), c.LogitScale)
	if c.LogitCap != 0 {
		logits = b.SoftCap(logits, c.LogitCap)
	}
	b.Return("logits", logits)
}

// dense is W₃ · W₂ · x, [R, Width], where a model has these: behind the pooling, of which the
// mean of products is the product of the mean.
func dense(b *ir.Builder, c *Config, x *ir.Value) *ir.Value {
	if c.Dense == 0 {
		return x
	}
	return b.Linear(b.Linear(x, b.Weight("dense_2.weight", c.Dense, c.Width)), b.Weight("dense_3.weight", c.Width, c.Dense))
}

// scaled is x · by; 0 stands for 1.
func scaled(b *ir.Builder, x *ir.Value, by float64) *ir.Value {
	if by == 0 || by == 1 {
		return x
	}
	return b.Scale(x, by)
}

// normalize is a norm over the innermost axis of x with the weights of that name.
type normalize func(b *ir.Builder, name string, x *ir.Value, eps float64) *ir.Value

func rmsNorm(b *ir.Builder, name string, x *ir.Value, eps float64) *ir.Value {
	return b.RMSNorm(x, b.Weight(name+".weight", int(x.Type.Shape.Last())), eps)
}

// layerNorm has a gain and a shift, gainNorm only the gain.
func layerNorm(b *ir.Builder, name string, x *ir.Value, eps float64) *ir.Value {
	n := int(x.Type.Shape.Last())
	return b.LayerNorm(x, b.Weight(name+".weight", n), b.Weight(name+".bias", n), eps)
}

func gainNorm(b *ir.Builder, name string, x *ir.Value, eps float64) *ir.Value {
	return b.LayerNorm(x, b.Weight(name+".weight", int(x.Type.Shape.Last())), nil, eps)
}

// layer is one layer in the making: its shape and how its weights are called.
type layer struct {
	Layer
	rotation *rotation // nil where heads are not rotated

	b         *ir.Builder
	c         *Config
	index     int
	normalize normalize
}

func (m *model) layer(i int) *layer {
	l := &layer{Layer: m.c.Layer(i), b: m.b, c: m.c, index: i, normalize: m.normalize}
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

func (l *layer) name(role string) string { return fmt.Sprintf("blk.%d.%s", l.index, role) }

// linear is the product of x [T, K] and the weight of that role, [rows, K], and its bias
// where there is one.
func (l *layer) linear(role string, x *ir.Value, rows int, biased bool) *ir.Value {
	w := l.b.Weight(l.name(role+".weight"), rows, int(x.Type.Shape.Last()))
	if !biased {
		return l.b.Linear(x, w)
	}
	return l.b.LinearBias(x, w, l.b.Weight(l.name(role+".bias"), rows))
}

// norm is the family's norm over the innermost axis of x.
func (l *layer) norm(role string, x *ir.Value) *ir.Value {
	return l.normalize(l.b, l.name(role), x, l.c.Eps)
}

// rotate gives heads [T, heads, Head] their positions.
func (l *layer) rotate(heads *ir.Value) *ir.Value {
	if l.rotation == nil {
		return heads
	}
	return l.b.Rope(heads, l.rotation.attr, l.rotation.factors)
}

// prepare is what a family does to the heads of Q and K, [T, heads, Head], before they
// rotate. It is told whose they are: "attn_q" or "attn_k".
type prepare func(role string, heads *ir.Value) *ir.Value

func asItIs(_ string, heads *ir.Value) *ir.Value { return heads }

// normHeads normalises each head by itself.
func (l *layer) normHeads(role string, heads *ir.Value) *ir.Value { return l.norm(role+"_norm", heads) }

// normAllHeads normalises all heads as one vector.
func (l *layer) normAllHeads(role string, heads *ir.Value) *ir.Value {
	n, _ := heads.Type.Shape[1].IsConst()
	return l.b.SplitHeads(l.norm(role+"_norm", l.b.MergeHeads(heads)), int(n))
}

// normEachHead normalises each head by itself, with weights of its own.
func (l *layer) normEachHead(role string, heads *ir.Value) *ir.Value {
	n, _ := heads.Type.Shape[1].IsConst()
	w := l.b.Weight(l.name(role+"_norm.weight"), int(n), l.Head)
	return l.b.Gain(l.b.LayerNorm(heads, nil, nil, l.c.Eps), w)
}

// normedHeads is how heads are prepared where a model may have them normed.
func (l *layer) normedHeads() prepare {
	if l.c.HeadNorms {
		return l.normEachHead
	}
	return asItIs
}

// attention is Wo · attend(rotate(prepare(Wq·n)), rotate(prepare(Wk·n)), Wv·n) of the
// normalised stream n, [T, Width]. A KV head serves Heads/KVHeads query heads
// (grouped-query attention).
func attention(l *layer, n *ir.Value, prepare prepare) *ir.Value {
	b := l.b
	project := func(role string, heads int) *ir.Value { // [T, heads, Head]
		return b.SplitHeads(l.linear(role, n, heads*l.Head, l.c.Biases.QKV), heads)
	}
	q, k, v := project("attn_q", l.Heads), project("attn_k", l.KVHeads), project("attn_v", l.KVHeads)
	q = l.rotate(prepare("attn_q", q))
	k = l.rotate(prepare("attn_k", k))
	return l.linear("attn_output", attend(l, q, k, v), l.c.Width, l.c.Biases.Output)
}

// attend is softmax(q·kᵀ/√Head)·v, or with another scale, over all that the cache holds of the sequence, this step
// included: [T, Heads·Head].
func attend(l *layer, q, k, v *ir.Value) *ir.Value {
	b := l.b
	keys, values := b.CacheRead(b.CacheWrite(b.Cache(l.KVHeads, l.Head), k, v))
	keys = b.RepeatKV(keys, l.Heads/l.KVHeads)
	values = b.RepeatKV(values, l.Heads/l.KVHeads)
	headFirst := [3]int{1, 0, 2}
	scale := cmp.Or(l.c.AttentionScale, 1/math.Sqrt(float64(l.Head)))
	scores := b.Scale(b.MatmulT(b.Transpose(q, headFirst), b.Transpose(keys, headFirst)), scale)
	if l.SoftCap != 0 {
		scores = b.SoftCap(scores, l.SoftCap)
	}
	switch {
	case l.c.Both:
		scores = b.MaskBoth(scores, l.Window)
	case l.ALiBi != 0:
		scores = b.MaskSlopes(scores, b.Const(alibi(l.Heads, l.ALiBi)), l.Window)
	default:
		scores = b.MaskWindow(scores, l.Window)
	}
	var weights *ir.Value
	if l.Sinks {
		weights = b.SoftmaxSinks(scores, b.Weight(l.name("attn_sinks.weight"), l.Heads))
	} else {
		weights = b.Softmax(scores)
	}
	mixed := b.Matmul(weights, b.Transpose(values, headFirst))
	return b.MergeHeads(b.Transpose(mixed, headFirst))
}

// alibi returns the slopes of heads: powers of 2^(−most/n), n being the largest power of two
// of heads, and for the heads beyond it every second power of 2^(−most/2n), most being 8 (Press, Smith and
// Lewis, "Train Short, Test Long", 2022, and its code for other numbers of heads).
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

// gated is Wdown · (activation(Wgate·n) ∘ Wup·n), [T, Width]: SwiGLU and its kin.
func gated(l *layer, n *ir.Value, activation ir.Activation) *ir.Value {
	return gatedBy(l, "", n, l.FFN, activation)
}

// gatedBy is gated with weights whose names end so, of that width.
func gatedBy(l *layer, suffix string, n *ir.Value, ffn int, activation ir.Activation) *ir.Value {
	b := l.b
	gate := l.linear("ffn_gate"+suffix, n, ffn, l.c.Biases.FFN)
	up := l.linear("ffn_up"+suffix, n, ffn, l.c.Biases.FFN)
	var inner *ir.Value
	if activation.OnlyGated() {
		inner = b.Gate(activation, gate, up)
	} else {
		inner = b.Mul(b.Activate(activation, gate), up)
	}
	return l.linear("ffn_down"+suffix, inner, l.c.Width, l.c.Biases.FFN)
}

// ungated is Wdown · activation(Wup·n), [T, Width].
func ungated(l *layer, n *ir.Value, activation ir.Activation) *ir.Value {
	inner := l.b.Activate(activation, l.linear("ffn_up", n, l.FFN, l.c.Biases.FFN))
	return l.linear("ffn_down", inner, l.c.Width, l.c.Biases.FFN)
}
