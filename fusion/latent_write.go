package fusion

import (
	"slices"

	"github.com/smelt-ml/smelt/ir"
)

// latentRow is the pattern of what a token of multi-head latent attention caches:
//
//	row = concat(reshape(rms_norm(slice(all), gain)), rope(reshape(slice(all)), positions))
type latentRow struct{ latent, shared, gain, norm, positions, factors, turned, row *Pat }

func newLatentRow(all *Pat) *latentRow {
	r := &latentRow{latent: Op(ir.OpSlice, all), shared: Op(ir.OpSlice, all), gain: Any(), positions: Any(), factors: Optional()}
	r.norm, r.turned = Op(ir.OpRMSNorm, r.latent, r.gain), Op(ir.OpRope, Op(ir.OpReshape, r.shared), r.positions, r.factors)
	r.row = Op(ir.OpConcat, Op(ir.OpReshape, r.norm), r.turned)
	return r
}

// fits reports whether the elements that rotate follow the vector.
func (r *latentRow) fits(m Match) bool {
	first, behind := m[r.latent].Attr.(ir.SliceAttr), m[r.shared].Attr.(ir.SliceAttr)
	return first.End == behind.Start && behind.End-behind.Start == m[r.turned].Attr.(ir.RopeAttr).Rotated
}

// LatentProducts merges the products of the two latent vectors, that of the queries and that of keys
// and values, in steps of few tokens, where a dispatch takes longer than the merged product's extra columns:
//
//	q   = rms_norm(linear(x, wa), g)
//	row = latentRow(linear(x, wb))
//
// becomes
//
//	both = fused_linear(x, wa, wb)
//	q    = rms_norm(slice(both), g)
//	row  = latentRow(both)
func LatentProducts() *Rule {
	x, query, key, gain := Any(), Any(), Any(), Any()
	product := Op(ir.OpLinear, x, query)
	q := Op(ir.OpRMSNorm, product, gain)
	r := newLatentRow(Op(ir.OpLinear, x, key))

	return &Rule{
		Name:   "latent_products",
		Doc:    "merge the products of the latent vectors of queries and of keys",
		Anchor: r.row,
		Joins:  []*Pat{q},
		Yields: []*Pat{q, r.row},
		Needs:  func(t *ir.Target, s ir.Steps) bool { return t.Has(ir.OpLatentWrite) && s.Tokens <= t.FewTokens },
		Where:  r.fits,
		Build: func(e *Emitter, m Match) []*ir.Value {
			t, rank := m[product].Type.DType, int(m[product].Type.Shape.Last())
			both := e.EmitAs(t, ir.OpFusedLinear, ir.LinearAttr{Weights: 2}, m[x], m[query], m[key])
			columns := func(of *Pat) *ir.Value {
				a := m[of].Attr.(ir.SliceAttr)
				return e.Emit(ir.OpSlice, ir.SliceAttr{Start: rank + a.Start, End: rank + a.End}, both)
			}
			norm := e.EmitAs(m[q].Type.DType, ir.OpRMSNorm, m[q].Attr, e.Emit(ir.OpSlice, ir.SliceAttr{End: rank}, both), m[gain])
			c := e.EmitAs(m[r.norm].Type.DType, ir.OpRMSNorm, m[r.norm].Attr, columns(r.latent), m[r.gain])
			turned := e.Emit(ir.OpRope, m[r.turned].Attr, e.oneHead(columns(r.shared)), m[r.positions], m[r.factors])
			return []*ir.Value{norm, e.Emit(ir.OpConcat, nil, e.oneHead(c), turned)}
		},
	}
}

// LatentWrite fuses what multi-head latent attention does between its products and attention: the norm
// of the latent vector, RoPE of the elements behind it and of the last ones of each query, and the
// cache write.
//
//	q      = concat(absorbed, rope(slice(heads), positions))
//	cache' = cache_write(cache, row, row, slots)                row = latentRow(all)
//
// becomes
//
//	q, cache' = latent_write(absorbed, heads, all, gain, cache, positions, slots)
func LatentWrite() *Rule {
	absorbed, heads, all, cache, slots := Any(), Any(), Any(), Any(), Any()
	r := newLatentRow(all)
	last := Op(ir.OpSlice, heads)
	turned := Op(ir.OpRope, last, r.positions, r.factors)
	q, write := Op(ir.OpConcat, absorbed, turned), Op(ir.OpCacheWrite, cache, r.row, r.row, slots)

	return &Rule{
		Name:   "latent_write",
		Doc:    "fuse the norm of the latent vector, RoPE of what is shared and of the queries, and the cache write",
		Anchor: write,
		Joins:  []*Pat{q},
		Yields: []*Pat{q, write},
		Needs:  func(t *ir.Target, _ ir.Steps) bool { return t.Has(ir.OpLatentWrite) },
		Where: func(m Match) bool {
			a, head := m[turned].Attr.(ir.RopeAttr), int(m[heads].Type.Shape.Last())
			return r.fits(m) && a == m[r.turned].Attr && m[cache].Type.Cache.Latent && m[last].Attr == (ir.SliceAttr{Start: head - a.Rotated, End: head})
		},
		Build: func(e *Emitter, m Match) []*ir.Value {
			a := ir.LatentWriteAttr{Rope: m[turned].Attr.(ir.RopeAttr), Eps: m[r.norm].Attr.(ir.NormAttr).Eps, From: m[r.latent].Attr.(ir.SliceAttr).Start}
			out := e.Emit(ir.OpLatentWrite, a, m[absorbed], m[heads], m[all], m[r.gain], m[cache], m[r.positions], m[slots], m[r.factors])
			return []*ir.Value{e.Select(out, 0), e.Select(out, 1)}
		},
	}
}

// LatentAttention fuses a latent_write into attention, which saves a dispatch and its barrier:
//
//	q, cache' = latent_write(absorbed, heads, all, gain, cache, positions, slots)
//	o         = attention(q, cache', positions, cu_seqlens, context_lens, block_table)
//
// becomes
//
//	o, cache' = latent_attention(absorbed, heads, all, gain, cache, positions, slots, cu_seqlens, context_lens, block_table)
//
// Every threadgroup makes the row of its token, as in [AttentionWrite], for steps of one token per sequence.
func LatentAttention() *Rule {
	positions, seqlens, lens, table := Any(), Any(), Any(), Any()
	write := Op(ir.OpLatentWrite, Any(), Any(), Any(), Any(), Any(), positions, Any(), Rest())
	q, written := Op(ir.OpSelect, write), Op(ir.OpSelect, write)
	attention := Op(ir.OpAttention, q, written, positions, seqlens, lens, table)

	return &Rule{
		Name:   "latent_attention",
		Doc:    "fuse the write of a latent cache into attention",
		Anchor: attention,
		Yields: []*Pat{attention, written},
		Needs:  func(t *ir.Target, s ir.Steps) bool { return s.OneEach && t.Has(ir.OpLatentAttention) },
		Pays: func(t *ir.Target, s ir.Steps, m Match) bool {
			longer, spared := t.Costs.WriteRepeats(t, m[write], s.Tokens)
			return longer <= spared
		},
		Where: func(m Match) bool {
			return m[q].Attr == ir.SelectAttr{Index: 0} && m[written].Attr == ir.SelectAttr{Index: 1} && m[q].Type.DType == m[write].Args[0].Type.DType
		},
		Build: func(e *Emitter, m Match) []*ir.Value {
			a := ir.LatentAttentionAttr{Write: m[write].Attr.(ir.LatentWriteAttr), Attention: m[attention].Attr.(ir.AttentionAttr)}
			args := append(slices.Clone(m[write].Args), m[seqlens], m[lens], m[table])
			out := e.Emit(ir.OpLatentAttention, a, args...)
			return []*ir.Value{e.Select(out, 0), e.Select(out, 1)}
		},
	}
}

// LeadingColumns has a product read the first columns of its input in place:
//
//	linear(slice(x){0…}, w)                 becomes   fused_linear(x, w) {Leading}
//	expert_linear(slice(x){0…}, w, experts) becomes   routed_linear(x, w, experts) {Leading}
//
// The rule treats fused_linear as linear, and routed_linear as expert_linear. It requires rows of a multiple of
// leadingStep elements.
func LeadingColumns() *Rule {
	x := Any()
	part := Op(ir.OpSlice, x)
	product := OneOf([]ir.Op{ir.OpLinear, ir.OpFusedLinear, ir.OpExpertLinear, ir.OpRoutedLinear}, part, Rest())

	return &Rule{
		Name:   "leading_columns",
		Doc:    "have a product read the first columns of its input in place",
		Anchor: product,
		Yields: []*Pat{product},
		Needs:  func(t *ir.Target, _ ir.Steps) bool { return t.Has(ir.OpRoutedLinear) },
		Where: func(m Match) bool {
			return m[part].Attr.(ir.SliceAttr).Start == 0 && m[x].Type.Shape.Last()%leadingStep == 0 && m[x].Type.DType == m[part].Type.DType
		},
		Build: func(e *Emitter, m Match) []*ir.Value {
			v := m[product]
			if v.Op == ir.OpExpertLinear || v.Op == ir.OpRoutedLinear {
				a, o := ir.AsRoutedLinear(v)
				a.Linear.Leading, o.X = true, m[x]
				return []*ir.Value{e.EmitAs(v.Type.DType, ir.OpRoutedLinear, a, o.List()...)}
			}
			a, o := ir.AsFusedLinear(v)
			a.Leading, o.X = true, m[x]
			return []*ir.Value{e.EmitAs(v.Type.DType, ir.OpFusedLinear, a, o.List()...)}
		},
	}
}

// leadingStep is the number of elements in the largest vector that a kernel loads. Vectors are aligned in
// every row whose length is a multiple of it.
const leadingStep = 8
