package fusion

import "github.com/smelt-ml/smelt/ir"

// QKVWrite is RopeQKVWrite for layers without RoPE: models with learned positions
// or ALiBi, and those that apply RoPE to some layers only.
//
//	q      = reshape(linear(x, wq))
//	cache' = cache_write(cache, reshape(linear(x, wk)), reshape(linear(x, wv)), slots)
//
// becomes
//
//	qkv       = fused_linear(x, wq, wk, wv)              [T, (H+2·KV)·D]
//	q, cache' = qkv_write(qkv, cache, slots)
func QKVWrite() *Rule {
	p := newProjection()
	write := Op(ir.OpCacheWrite, p.cache, p.k.heads, p.v.heads, p.slots)

	return &Rule{
		Name:   "qkv_write",
		Doc:    "merge the products of Q, K and V, and fuse the KV cache write, in layers without RoPE",
		Anchor: write,
		Joins:  []*Pat{p.q.heads},
		Yields: []*Pat{p.q.heads, write},
		Where:  p.fits,
		Build: func(e *Emitter, m Match) []*ir.Value {
			out := e.Emit(ir.OpQKVWrite, ir.QKVWriteAttr{Heads: p.queryHeads(m)}, p.merge(e, m), m[p.cache], m[p.slots])
			return []*ir.Value{e.Select(out, 0), e.Select(out, 1)}
		},
	}
}
