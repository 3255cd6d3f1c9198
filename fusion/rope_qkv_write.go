package fusion

import "github.com/smelt-ml/smelt/ir"

// RopeQKVWrite merges the projections of Q, K and V into one product, and RoPE of Q
// and K with the cache write into a second op:
//
//	q      = rope(reshape(linear(x, wq)), positions)
//	k      = rope(reshape(linear(x, wk)), positions)
//	cache' = cache_write(cache, k, reshape(linear(x, wv)), slots)
//
// becomes
//
//	qkv       = fused_linear(x, wq, wk, wv)              [T, (H+2·KV)·D]
//	q, cache' = rope_qkv_write(qkv, cache, positions, slots)
//
// The three products have a bias each, or none has.
//
// The pattern does not include attention: the query and the cache write share only x.
func RopeQKVWrite() *Rule {
	p := newProjection()
	q, k := p.rotated(p.q), p.rotated(p.k)
	write := Op(ir.OpCacheWrite, p.cache, k, p.v.heads, p.slots)

	return &Rule{
		Name:   "rope_qkv_write",
		Doc:    "merge the products of Q, K and V, and fuse RoPE and the KV cache write",
		Anchor: write,
		Joins:  []*Pat{q},
		Yields: []*Pat{q, write},
		Where:  func(m Match) bool { return p.fits(m) && m[q].Attr == m[k].Attr },
		Build: func(e *Emitter, m Match) []*ir.Value {
			attr := ir.RopeWriteAttr{Rope: m[q].Attr.(ir.RopeAttr), Heads: p.queryHeads(m)}
			out := e.Emit(ir.OpRopeQKVWrite, attr, p.merge(e, m), m[p.cache], m[p.positions], m[p.slots], m[p.factors])
			return []*ir.Value{e.Select(out, 0), e.Select(out, 1)}
		},
	}
}

// projection is the pattern shared by the rules that write the cache: Q, K and V as
// products of one x, split into heads. V may be K: a merged product then computes it twice, which costs
// its bytes in a few layers of large models, and spares kernels a form of their own.
type projection struct {
	x, positions, factors, cache, slots *Pat
	q, k, v                             projected
}

type projected struct{ weight, bias, linear, heads *Pat }

func newProjection() *projection {
	p := &projection{x: Any(), positions: Any(), factors: Optional(), cache: Any(), slots: Any()}
	for _, part := range []*projected{&p.q, &p.k, &p.v} {
		part.weight, part.bias = Any(), Optional()
		part.linear = Op(ir.OpLinear, p.x, part.weight, part.bias)
		part.heads = Op(ir.OpReshape, part.linear)
	}
	p.v.linear.twin, p.v.heads.twin = p.k.linear, p.k.heads
	return p
}

func (p *projection) rotated(part projected) *Pat {
	return Op(ir.OpRope, part.heads, p.positions, p.factors)
}

// fits reports whether Q, K and V are reshapes of [T, heads·D] to [T, heads, D], with a
// whole number of query heads per KV head, and either all or none have a bias.
func (p *projection) fits(m Match) bool {
	c := m[p.cache].Type.Cache
	for _, part := range []projected{p.q, p.k, p.v} {
		flat, heads := m[part.linear].Type.Shape, m[part.heads].Type.Shape
		if len(flat) != 2 || len(heads) != 3 || flat[0] != heads[0] || heads[2] != ir.Const(c.Head) || (m[part.bias] == nil) != (m[p.q.bias] == nil) {
			return false
		}
	}
	n := p.queryHeads(m)
	return n > 0 && n%c.KVHeads == 0
}

func (p *projection) queryHeads(m Match) int {
	n, _ := m[p.q.heads].Type.Shape[1].IsConst()
	return int(n)
}

// merge emits one product for Q, K and V.
func (p *projection) merge(e *Emitter, m Match) *ir.Value {
	attr := ir.LinearAttr{Weights: 3, Bias: m[p.q.bias] != nil}
	return e.EmitAs(m[p.q.linear].Type.DType, ir.OpFusedLinear, attr,
		m[p.x], m[p.q.weight], m[p.k.weight], m[p.v.weight], m[p.q.bias], m[p.k.bias], m[p.v.bias])
}
