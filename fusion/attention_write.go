package fusion

import "github.com/smelt-ml/smelt/ir"

// AttentionWrite fuses head norm, RoPE and the KV cache write into attention, which saves a
// dispatch and its barrier:
//
//	q, cache' = rope_qkv_write(qkv, cache, positions, slots)       or head_norm_rope_kv_write
//	o         = attention(q, cache', positions, cu_seqlens, context_lens, block_table)
//
// becomes
//
//	o, cache' = rope_qkv_write_attention(qkv, cache, positions, slots, cu_seqlens, context_lens, block_table)
//
// A threadgroup of attention processes one query head and computes the query, key and value of
// the step's own tokens itself; query heads that share a KV head repeat the key and value. This
// pays for steps of one token per sequence where the target's costs ([ir.Costs]) favour it.
// Norms over all heads keep a dispatch of their own, since each threadgroup would read all heads.
func AttentionWrite() *Rule {
	cache, positions, seqlens, lens, table := Any(), Any(), Any(), Any(), Any()
	write := OneOf([]ir.Op{ir.OpRopeQKVWrite, ir.OpHeadNormRopeKVWrite}, Any(), cache, positions, Any(), Rest())
	q, written := Op(ir.OpSelect, write), Op(ir.OpSelect, write)
	attention := Op(ir.OpAttention, q, written, positions, seqlens, lens, table, Rest())

	return &Rule{
		Name:   "attention_write",
		Doc:    "fuse head norm, RoPE and the KV cache write into attention",
		Anchor: attention,
		Yields: []*Pat{attention, written},
		Where: func(m Match) bool {
			return !m[write].Attr.(ir.RopeWriteAttr).AllHeads && m[q].Attr == ir.SelectAttr{Index: 0} && m[written].Attr == ir.SelectAttr{Index: 1} &&
				m[q].Type.DType == m[write].Args[0].Type.DType
		},
		Needs: func(t *ir.Target, s ir.Steps) bool {
			return s.OneEach && t.Has(ir.OpRopeQKVWriteAttention) && t.Has(ir.OpHeadNormRopeKVWriteAttention)
		},
		Pays: func(t *ir.Target, s ir.Steps, m Match) bool {
			longer, spared := t.Costs.WriteRepeats(t, m[write], s.Tokens)
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
			o.Gate = attr.Attention.Gated(m[attention].Args)
			o.Sinks, o.Slopes = attr.Attention.Optional(m[attention].Args)
			attr.Factors, attr.Sinks = o.Factors != nil, o.Sinks != nil
			out := e.Emit(op, attr, o.List()...)
			return []*ir.Value{e.Select(out, 0), e.Select(out, 1)}
		},
	}
}
