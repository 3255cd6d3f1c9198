package fusion

import "github.com/smelt-ml/smelt/ir"

// RowNormRopeKVWrite is HeadNormRopeKVWrite for models that normalise Q over all its heads as
// one row, and K likewise, such as OLMo 2:
//
//	q      = rope(reshape(rms_norm(linear(x, wq), nq)), positions)
//	k      = rope(reshape(rms_norm(linear(x, wk), nk)), positions)
//	cache' = cache_write(cache, k, reshape(linear(x, wv)), slots)
//
// becomes
//
//	qkv       = fused_linear(x, wq, wk, wv)              [T, (H+2·KV)·D]
//	q, cache' = head_norm_rope_kv_write(qkv, cache, positions, slots, nq, nk)
//
// with AllHeads set.
func RowNormRopeKVWrite() *Rule {
	p := newProjection()
	nq, nk := Any(), Any()
	normQ, normK := Op(ir.OpRMSNorm, p.q.linear, nq), Op(ir.OpRMSNorm, p.k.linear, nk)
	p.q.heads, p.k.heads = Op(ir.OpReshape, normQ), Op(ir.OpReshape, normK)
	q, k := p.rotated(p.q), p.rotated(p.k)
	write := Op(ir.OpCacheWrite, p.cache, k, p.v.heads, p.slots)

	return &Rule{
		Name:   "row_norm_rope_kv_write",
		Doc:    "merge the products of Q, K and V, and fuse RMSNorm over all heads, RoPE and the KV cache write",
		Anchor: write,
		Joins:  []*Pat{q},
		Yields: []*Pat{q, write},
		Where: func(m Match) bool {
			return p.fits(m) && m[q].Attr == m[k].Attr && m[normQ].Attr == m[normK].Attr
		},
		Build: func(e *Emitter, m Match) []*ir.Value {
			attr := ir.RopeWriteAttr{
				Rope:     m[q].Attr.(ir.RopeAttr),
				Heads:    p.queryHeads(m),
				Eps:      m[normQ].Attr.(ir.NormAttr).Eps,
				AllHeads: true,
			}
			out := e.Emit(ir.OpHeadNormRopeKVWrite, attr, p.merge(e, m), m[p.cache], m[p.positions], m[p.slots],
				m[nq], m[nk], m[p.factors])
			return []*ir.Value{e.Select(out, 0), e.Select(out, 1)}
		},
	}
}
