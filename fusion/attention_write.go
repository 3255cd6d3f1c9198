package fusion

import "github.com/smelt-ml/smelt/ir"

// AttentionWrite lets attention do what stands between it and the projection of Q, K and
// V, so that no dispatch waits for another in between:
//
//	q, cache' = rope_qkv_write(qkv, cache, positions, slots)       or head_norm_rope_kv_write
//	o         = attention(q, cache', positions, cu_seqlens, context_lens, block_table)
//
// becomes
//
//	o, cache' = rope_qkv_write_attention(qkv, cache, positions, slots, cu_seqlens, context_lens, block_table)
//
// A threadgroup of attention has one query head, and makes for itself what it needs of
// the step's own tokens: its query, and the key and value that are not in the cache yet.
// Heads that share a KV head make these again. That is worth a dispatch where a sequence
// brings one token, unless the target's costs say otherwise ([ir.Costs]). Norms
// over all heads stay a dispatch of their own: each threadgroup would read all of them.
func AttentionWrite() *Rule {
	cache, positions, seqlens, lens, table, sinks, slopes := Any(), Any(), Any(), Any(), Any(), Optional(), Optional()
	write := OneOf([]ir.Op{ir.OpRopeQKVWrite, ir.OpHeadNormRopeKVWrite}, Any(), cache, positions, Any(), Rest())
	q, written := Op(ir.OpSelect, write), Op(ir.OpSelect, write)
	attention := Op(ir.OpAttention, q, written, positions, seqlens, lens, table, sinks, slopes)

	return &Rule{
		Name:   "attention_write",
		Doc:    "the norm of heads, RoPE and the KV cache write inside attention",
		Anchor: attention,
		Yields: []*Pat{attention, written},
		Where: func(m Match) bool {
			return !m[write].Attr.(ir.RopeWriteAttr).AllHeads && m[q].Attr == ir.SelectAttr{Index: 0} && m[written].Attr == ir.SelectAttr{Index: 1} &&
				m[q].Type.DType == m[write].Args[0].Type.DType
		},
		Needs: func(t *ir.Target) bool {
			return t.OneEach && t.Has(ir.OpRopeQKVWriteAttention) && t.Has(ir.OpHeadNormRopeKVWriteAttention)
		},
		Pays: func(t *ir.Target, m Match) bool {
			longer, spared := t.Costs.WriteRepeats(t, m[write], t.Tokens)
			return longer <= spared
		},
		Build: func(e *Emitter, m Match) []*ir.Value {
			norms := m[write].Op == ir.OpHeadNormRopeKVWrite
			op := ir.OpRopeQKVWriteAttention
			o := ir.AttentionWriteOperands{
				Cache: m[cache], Positions: m[positions], CuSeqlens: m[seqlens], ContextLens: m[lens], BlockTable: m[table],
			}
			in := m[write].Args
			o.QKV, o.Slots, in = in[0], in[3], in[4:]
			if norms {
				op = ir.OpHeadNormRopeKVWriteAttention
				o.QNorm, o.KNorm, in = in[0], in[1], in[2:]
			}
			if len(in) > 0 {
				o.Factors = in[0]
			}
			attr := ir.AttentionWriteAttr{Write: m[write].Attr.(ir.RopeWriteAttr), Attention: m[attention].Attr.(ir.AttentionAttr)}
			o.Sinks, o.Slopes = attr.Attention.Options(m[attention].Args)
			attr.Factors, attr.Sinks = o.Factors != nil, o.Sinks != nil
			out := e.Emit(op, attr, o.List()...)
			return []*ir.Value{e.Select(out, 0), e.Select(out, 1)}
		},
	}
}
