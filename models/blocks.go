package models

import (
	"fmt"
	"math"

	"github.com/smelt-ml/smelt/ir"
)

// decoder is a decoder-only model in the making.
type decoder struct {
	b *ir.Builder
	c *Config

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
func decode(b *ir.Builder, c *Config, add func(l *layer, x *ir.Value) *ir.Value) {
	d := &decoder{b: b, c: c, rotations: make(map[Rope]rotation)}
	d.table = b.Weight("token_embd.weight", c.Vocab, c.Width)
	layers := make([]*layer, c.Layers)
	for i := range layers {
		layers[i] = d.layer(i)
	}
	x := b.Embed(b.Input(ir.Tokens), d.table)
	for i, l := range layers {
		b.Layer(i, func() { x = add(l, x) })
	}
	d.head(x)
}

// head runs on the rows that were asked for: logits, [R, Vocab].
func (d *decoder) head(x *ir.Value) {
	b, c := d.b, d.c
	x = b.RMSNorm(b.GatherRows(x), b.Weight("output_norm.weight", c.Width), c.Eps)
	head := d.table
	if !c.Tied {
		head = b.Weight("output.weight", c.Vocab, c.Width)
	}
	b.Return("logits", b.Linear(x, head))
}

// layer is one layer in the making: its shape and how its weights are called.
type layer struct {
	Layer
	rotation *rotation // nil where heads are not rotated

	b     *ir.Builder
	index int
	width int
	eps   float64
}

func (d *decoder) layer(i int) *layer {
	l := &layer{Layer: d.c.Layer(i), b: d.b, index: i, width: d.c.Width, eps: d.c.Eps}
	if l.Rope != nil {
		r, ok := d.rotations[*l.Rope]
		if !ok {
			r.attr, r.factors = l.Rope.bind(d.b)
			d.rotations[*l.Rope] = r
		}
		l.rotation = &r
	}
	return l
}

func (l *layer) weight(name string, shape ...int) *ir.Value {
	return l.b.Weight(fmt.Sprintf("blk.%d.%s.weight", l.index, name), shape...)
}

// norm is an RMSNorm over the innermost axis of x.
func (l *layer) norm(name string, x *ir.Value) *ir.Value {
	return l.b.RMSNorm(x, l.weight(name, int(x.Type.Shape.Last())), l.eps)
}

// rotate gives heads [T, heads, Head] their positions.
func (l *layer) rotate(heads *ir.Value) *ir.Value {
	if l.rotation == nil {
		return heads
	}
	return l.b.Rope(heads, l.rotation.attr, l.rotation.factors)
}

// asItIs is for families that do nothing to the heads of Q and K before they rotate.
func asItIs(_ string, heads *ir.Value) *ir.Value { return heads }

// attention is Wo · attend(rotate(prepare(Wq·n)), rotate(prepare(Wk·n)), Wv·n) of the
// normalised stream n, [T, Width]. A KV head serves Heads/KVHeads query heads
// (grouped-query attention). prepare is told whose heads it gets: "attn_q" or "attn_k".
func attention(l *layer, n *ir.Value, prepare func(name string, heads *ir.Value) *ir.Value) *ir.Value {
	b := l.b
	project := func(name string, heads int) *ir.Value { // [T, heads, Head]
		return b.SplitHeads(b.Linear(n, l.weight(name, heads*l.Head, l.width)), heads)
	}
	q, k, v := project("attn_q", l.Heads), project("attn_k", l.KVHeads), project("attn_v", l.KVHeads)
	q = l.rotate(prepare("attn_q", q))
	k = l.rotate(prepare("attn_k", k))
	return b.Linear(attend(l, q, k, v), l.weight("attn_output", l.width, l.Heads*l.Head))
}

// attend is softmax(q·kᵀ/√Head)·v over all that the cache holds of the sequence, this step
// included: [T, Heads·Head].
func attend(l *layer, q, k, v *ir.Value) *ir.Value {
	b := l.b
	keys, values := b.CacheRead(b.CacheWrite(b.Cache(l.KVHeads, l.Head), k, v))
	keys = b.RepeatKV(keys, l.Heads/l.KVHeads)
	values = b.RepeatKV(values, l.Heads/l.KVHeads)
	headFirst := [3]int{1, 0, 2}
	scores := b.Scale(b.MatmulT(b.Transpose(q, headFirst), b.Transpose(keys, headFirst)), 1/math.Sqrt(float64(l.Head)))
	if l.SoftCap != 0 {
		scores = b.SoftCap(scores, l.SoftCap)
	}
	if l.ALiBi {
		scores = b.MaskSlopes(scores, b.Const(alibi(l.Heads)), l.Window)
	} else {
		scores = b.MaskWindow(scores, l.Window)
	}
	var weights *ir.Value
	if l.Sinks {
		weights = b.SoftmaxSinks(scores, l.weight("attn_sinks", l.Heads))
	} else {
		weights = b.Softmax(scores)
	}
	mixed := b.Matmul(weights, b.Transpose(values, headFirst))
	return b.MergeHeads(b.Transpose(mixed, headFirst))
}

// alibi returns the slopes of heads: powers of 2^(−8/n), n being the largest power of two
// of heads, and for the heads beyond it every second power of 2^(−4/n) (Press, Smith and
// Lewis, "Train Short, Test Long", 2022, and its code for other numbers of heads).
func alibi(heads int) []float32 {
	n := 1
	for 2*n <= heads {
		n *= 2
	}
	out := make([]float32, heads)
	for i := range out {
		if i < n {
			out[i] = float32(math.Exp2(-8 * float64(i+1) / float64(n)))
		} else {
			out[i] = float32(math.Exp2(-4 * float64(2*(i-n)+1) / float64(n)))
		}
	}
	return out
}

// gated is Wdown · (activation(Wgate·n) ∘ Wup·n), [T, Width]: SwiGLU and its kin.
func gated(l *layer, n *ir.Value, activation ir.Activation) *ir.Value {
	b := l.b
	gate := b.Linear(n, l.weight("ffn_gate", l.FFN, l.width))
	up := b.Linear(n, l.weight("ffn_up", l.FFN, l.width))
	var inner *ir.Value
	if activation.OnlyGated() {
		inner = b.Gate(activation, gate, up)
	} else {
		inner = b.Mul(b.Activate(activation, gate), up)
	}
	return b.Linear(inner, l.weight("ffn_down", l.width, l.FFN))
}
