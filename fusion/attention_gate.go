package fusion

import (
	"slices"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/sym"
)

// AttentionGate makes a gate of attention's result part of attention. The gate has a value for each
// element of each head, or for each head:
//
//	mul(reshape(attention(q, cache, …)), activate(z))                                  z [T,H·D]
//	weighted_sum(reshape(attention(q, cache, …)), reshape(activate(z)))                z [T,H], sums of one head
//
// becomes
//
//	reshape(attention(q, cache, …, z) {Gate})
//
// The kernels multiply by the activated gate where they write a result.
func AttentionGate() *Rule {
	z := Any()
	attention := Op(ir.OpAttention, Any(), Any(), Any(), Any(), Any(), Any(), Rest())
	heads, activation := Op(ir.OpReshape, attention), Op(ir.OpActivate, z)
	product := OneOf([]ir.Op{ir.OpMul, ir.OpWeightedSum}, heads, Maybe(ir.OpReshape, activation))

	return &Rule{
		Name:   "attention_gate",
		Doc:    "fuse attention with the gate of its result",
		Anchor: product,
		Yields: []*Pat{product},
		Needs:  func(t *ir.Target, _ ir.Steps) bool { return t.Has(ir.OpAttention) && !t.XSplit },
		Where: func(m Match) bool {
			shape := m[attention].Type.Shape
			all, _ := shape[0].Times(shape[1])
			row, _ := shape[1].Times(shape[2])
			flat, gate := ir.Shape{ir.Var(sym.T), row}, ir.Shape{ir.Var(sym.T), row}
			if m[product].Op == ir.OpWeightedSum {
				flat, gate = ir.Shape{all, ir.Const(1), shape[2]}, ir.Shape{ir.Var(sym.T), shape[1]}
			}
			return slices.Equal(m[heads].Type.Shape, flat) && slices.Equal(m[z].Type.Shape, gate) &&
				m[attention].Attr.(ir.AttentionAttr).Gate == ir.GateAttr{}
		},
		Build: func(e *Emitter, m Match) []*ir.Value {
			attr := m[attention].Attr.(ir.AttentionAttr)
			attr.Gate = ir.GateAttr{Activation: m[activation].Attr.(ir.ActivationAttr).Activation, ByHead: m[product].Op == ir.OpWeightedSum}
			gated := e.EmitAs(m[product].Type.DType, ir.OpAttention, attr, slices.Insert(slices.Clone(m[attention].Args), 6, m[z])...)
			return []*ir.Value{e.Reshape(gated, m[product].Type.Shape...)}
		},
	}
}

// QKVGate merges the product with a gate of attention's result into that of Q, K and V:
//
//	qkv       = fused_linear(x, wq, wk, wv)
//	q, cache' = rope_qkv_write(qkv, …)                      or another write
//	o         = attention(q, cache', …, linear(x, wg)) {Gate}
//
// becomes
//
//	all       = fused_linear(x, wq, wk, wv, wg)
//	q, cache' = rope_qkv_write(all, …)
//	o         = attention(q, cache', …, all) {Gate, From: (H+2·KV)·D}
//
// All four products have a bias, or none has.
func QKVGate() *Rule {
	x, weight, bias := Any(), Any(), Optional()
	qkv := Op(ir.OpFusedLinear, x, Rest())
	write := OneOf([]ir.Op{ir.OpQKVWrite, ir.OpRopeQKVWrite, ir.OpHeadNormRopeKVWrite}, qkv, Rest())
	q, written := Op(ir.OpSelect, write), Op(ir.OpSelect, write)
	z := Op(ir.OpLinear, x, weight, bias)
	attention := Op(ir.OpAttention, q, written, Any(), Any(), Any(), Any(), z, Rest())

	return &Rule{
		Name:   "qkv_gate",
		Doc:    "merge the product with attention's gate into that of Q, K and V",
		Anchor: attention,
		Yields: []*Pat{attention, written},
		Where: func(m Match) bool {
			return m[attention].Attr.(ir.AttentionAttr).Gate.Activation != ir.NoActivation && m[qkv].Attr == ir.LinearAttr{Weights: 3, Bias: m[bias] != nil} &&
				m[q].Attr == ir.SelectAttr{Index: 0} && m[written].Attr == ir.SelectAttr{Index: 1}
		},
		Build: func(e *Emitter, m Match) []*ir.Value {
			attr := m[attention].Attr.(ir.AttentionAttr)
			attr.Gate.From += int(m[qkv].Type.Shape.Last())
			product, o := ir.AsFusedLinear(m[qkv])
			product.Weights, o.Weights = 4, append(slices.Clone(o.Weights), m[weight])
			if product.Bias {
				o.Biases = append(slices.Clone(o.Biases), m[bias])
			}
			all := e.EmitAs(m[qkv].Type.DType, ir.OpFusedLinear, product, o.List()...)
			both := e.Emit(m[write].Op, m[write].Attr, slices.Concat([]*ir.Value{all}, m[write].Args[1:])...)
			cache := e.Select(both, 1)
			args := slices.Concat([]*ir.Value{e.Select(both, 0), cache}, m[attention].Args[2:6], []*ir.Value{all}, m[attention].Args[7:])
			return []*ir.Value{e.EmitAs(m[attention].Type.DType, ir.OpAttention, attr, args...), cache}
		},
	}
}
