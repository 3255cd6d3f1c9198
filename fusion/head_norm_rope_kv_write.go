package fusion

import (
	"strings"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
)

// HeadNormRopeKVWrite is RopeQKVWrite for models that normalise every head of Q
// and K before they rotate it, such as Qwen3:
//
//	q      = rope(rms_norm(reshape(linear(x, wq)), nq), positions)
//	k      = rope(rms_norm(reshape(linear(x, wk)), nk), positions)
//	cache' = cache_write(cache, k, reshape(linear(x, wv)), slots)
//
// becomes
//
//	qkv       = fused_linear(x, wq, wk, wv)              [T, (H+2·KV)·D]
//	q, cache' = head_norm_rope_kv_write(qkv, cache, positions, slots, nq, nk)
//
// One eps and one rotation serve Q and K. V may be rms_norm(reshape(linear(x, wv)), 1) of that eps, as in
// Gemma 4, and wv may be wk.
func HeadNormRopeKVWrite() *Rule {
	p := newProjection()
	nq, nk := Any(), Any()
	normQ, normK := Op(ir.OpRMSNorm, p.q.heads, nq), Op(ir.OpRMSNorm, p.k.heads, nk)
	q := Op(ir.OpRope, normQ, p.positions, p.factors)
	k := Op(ir.OpRope, normK, p.positions, p.factors)
	normV := Maybe(ir.OpRMSNorm, p.v.heads)
	write := Op(ir.OpCacheWrite, p.cache, k, normV, p.slots)

	return &Rule{
		Name:   "head_norm_rope_kv_write",
		Doc:    "merge the products of Q, K and V, and fuse RMSNorm of each head, RoPE and the KV cache write",
		Anchor: write,
		Joins:  []*Pat{q},
		Yields: []*Pat{q, write},
		Where: func(m Match) bool {
			return p.fits(m) && m[q].Attr == m[k].Attr && m[normQ].Attr == m[normK].Attr &&
				(m[normV] == nil || m[normV].Attr == m[normQ].Attr && allOnes(m[normV].Args[1]))
		},
		Build: func(e *Emitter, m Match) []*ir.Value {
			attr := ir.RopeWriteAttr{
				Rope:  m[q].Attr.(ir.RopeAttr),
				Heads: p.queryHeads(m),
				Eps:   m[normQ].Attr.(ir.NormAttr).Eps,

				NormValues: m[normV] != nil,
			}
			out := e.Emit(ir.OpHeadNormRopeKVWrite, attr, p.merge(e, m), m[p.cache], m[p.positions], m[p.slots],
				m[nq], m[nk], m[p.factors])
			return []*ir.Value{e.Select(out, 0), e.Select(out, 1)}
		},
	}
}

const one = "\x00\x00\x80\x3f" // 1 in float

// allOnes reports whether v is the weight of a norm without weights.
func allOnes(v *ir.Value) bool {
	a, ok := v.Attr.(ir.ConstAttr)
	return ok && v.Type.DType == dtype.F32 && a.Data == strings.Repeat(one, len(a.Data)/len(one))
}

// ones appends a vector of n ones.
func (e *Emitter) ones(n int) *ir.Value {
	return e.f.Append(ir.OpConst, ir.TensorOf(dtype.F32, ir.Const(n)), ir.ConstAttr{Data: strings.Repeat(one, n)}, e.layer)
}
