package fusion

import "github.com/smelt-ml/smelt/ir"

// QueryAttention fuses head norm and RoPE of the queries into attention over a cache that has the keys and
// values, which layers without their own read:
//
//	q = rope(rms_norm(reshape(x), nq), positions)
//	o = attention(q, cache, positions, cu_seqlens, context_lens, block_table)
//
// becomes
//
//	o = head_norm_rope_attention(x, cache, positions, cu_seqlens, context_lens, block_table, nq)
//
// Each query head is of one threadgroup, as in [AttentionWrite], for steps of one token per sequence.
// Other steps round normalised heads to the type of activations, so that with [ir.Target.SameBits] these do too.
func QueryAttention() *Rule {
	x, nq, factors := Any(), Any(), Optional()
	cache, positions, seqlens, lens, table := Any(), Any(), Any(), Any(), Any()
	heads := Op(ir.OpReshape, x)
	norm := Op(ir.OpRMSNorm, heads, nq)
	q := Op(ir.OpRope, norm, positions, factors)
	attention := Op(ir.OpAttention, q, cache, positions, seqlens, lens, table, Rest())

	return &Rule{
		Name:   "query_attention",
		Doc:    "fuse head norm and RoPE of the queries into attention over another layer's cache",
		Anchor: attention,
		Yields: []*Pat{attention},
		Where: func(m Match) bool {
			flat, split := m[x].Type.Shape, m[heads].Type.Shape
			return len(flat) == 2 && len(split) == 3 && flat[0] == split[0] && split[2] == ir.Const(m[cache].Type.Cache.Head)
		},
		Needs: func(t *ir.Target, s ir.Steps) bool {
			return s.OneEach && !t.SameBits && t.Has(ir.OpHeadNormRopeAttention)
		},
		Build: func(e *Emitter, m Match) []*ir.Value {
			n, _ := m[heads].Type.Shape[1].IsConst()
			a := m[attention].Attr.(ir.AttentionAttr)
			attr := ir.AttentionWriteAttr{Write: ir.RopeWriteAttr{Rope: m[q].Attr.(ir.RopeAttr), Heads: int(n), Eps: m[norm].Attr.(ir.NormAttr).Eps}, Attention: a}
			o := ir.AttentionWriteOperands{QKV: m[x], Cache: m[cache], Positions: m[positions], CuSeqlens: m[seqlens], ContextLens: m[lens], BlockTable: m[table],
				QNorm: m[nq], Factors: m[factors], Gate: a.Gated(m[attention].Args)}
			o.Sinks, o.Slopes = a.Optional(m[attention].Args)
			attr.Factors, attr.Sinks = o.Factors != nil, o.Sinks != nil
			return []*ir.Value{e.EmitAs(m[attention].Type.DType, ir.OpHeadNormRopeAttention, attr, o.List()...)}
		},
	}
}
