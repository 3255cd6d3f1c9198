package fusion

import "github.com/smelt-ml/smelt/ir"

// KVReplicationElimination fuses the source ops of softmax attention over a cache
// into one op that maps each query head to its KV head, without replicating KV
// heads for GQA:
//
//	k = transpose(repeat_kv(cache_read(cache)))          [H, B·Smax, D]
//	v = transpose(repeat_kv(cache_read(cache)))          [H, B·Smax, D]
//	s = mask(scale(matmul(transpose(q), k)))             [H, T, B·Smax]
//	o = transpose(matmul(softmax(s), v))                 [T, H, D]
//
// becomes
//
//	o = attention(q, cache, positions, cu_seqlens, context_lens, block_table)
//
// The scale may apply to the query, to the scores or to both, or be absent. The soft cap
// is optional, as are the mask's window and slopes and the softmax's sinks; repeat_kv is
// absent where there are as many KV heads as query heads. The transpose or the matmul may
// transpose K and V.
func KVReplicationElimination() *Rule {
	q, cache := Any(), Any()
	positions, seqlens, lens, table, sinks, slopes := Any(), Any(), Any(), Any(), Optional(), Optional()

	readK, readV := Op(ir.OpCacheRead, cache, lens, table), Op(ir.OpCacheRead, cache, lens, table)
	repeatK, repeatV := Maybe(ir.OpRepeatKV, readK), Maybe(ir.OpRepeatKV, readV)
	heads, keys, values := Maybe(ir.OpScale, q), Op(ir.OpTranspose, repeatK), Op(ir.OpTranspose, repeatV)
	turned := Op(ir.OpTranspose, heads)
	query := Maybe(ir.OpScale, turned)
	dot := Op(ir.OpMatmul, query, keys)
	scores := Maybe(ir.OpScale, dot)
	capped := Maybe(ir.OpSoftCap, scores)
	mask := Op(ir.OpMask, capped, positions, seqlens, lens, slopes)
	sum := Op(ir.OpMatmul, Op(ir.OpSoftmax, mask, sinks), values)
	out := Op(ir.OpTranspose, sum)

	headsFirst := ir.TransposeAttr{A: 1, B: 0, C: 2}
	headsFirstT := ir.TransposeAttr{A: 1, B: 2, C: 0}
	// turnedFor reports whether a transpose and the matmul that reads it together treat K
	// (transB) or V as [H, B·Smax, D], transposed for K.
	turnedFor := func(read, matmul *ir.Value, transB bool) bool {
		want := headsFirst
		if matmul.Attr.(ir.MatmulAttr).TransB != transB {
			want = headsFirstT
		}
		return read.Attr == want
	}

	return &Rule{
		Name:   "kv_replication_elimination",
		Doc:    "replace repeat_kv, q·kᵀ, scale, mask, softmax and ·v by one attention op, which maps query heads to KV heads",
		Anchor: out,
		Yields: []*Pat{out},
		Where: func(m Match) bool {
			return m[readK].Attr == ir.CacheReadAttr{Values: false} && m[readV].Attr == ir.CacheReadAttr{Values: true} &&
				m[turned].Attr == headsFirst && m[out].Attr == headsFirst &&
				turnedFor(m[keys], m[dot], true) && turnedFor(m[values], m[sum], false)
		},
		Build: func(e *Emitter, m Match) []*ir.Value {
			a := ir.AttentionAttr{Scale: 1, Window: m[mask].Attr.(ir.MaskAttr).Window, Slopes: m[slopes] != nil}
			for _, s := range []*ir.Value{m[heads], m[query], m[scores]} {
				if s != nil {
					a.Scale *= s.Attr.(ir.ScaleAttr).Value
				}
			}
			if m[capped] != nil {
				a.SoftCap = m[capped].Attr.(ir.ScaleAttr).Value
			}
			return []*ir.Value{e.EmitAs(m[out].Type.DType, ir.OpAttention, a,
				m[q], m[cache], m[positions], m[seqlens], m[lens], m[table], m[sinks], m[slopes])}
		},
	}
}
