package lower

import (
	"fmt"
	"maps"
	"math"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/kernels"
)

func attention(p *phase, v *ir.Value) error {
	q, c := v.Args[0], v.Args[1].Type.Cache
	tokens, heads := q.Type.Shape[0], q.Type.Shape[1]
	// A tile of queries is one sequence's: of tokens by themselves it would be empty but for one.
	vec := p.bound(Extent(tokens)) <= p.chip.vecTokens || p.out.Longest.Max == 1
	kernel := "attention_tile_"
	if vec {
		kernel = "attention_vec_"
	}
	d := p.dispatch(kernel+v.Type.DType.String()+"_"+c.DType.String(), v)
	d.in("q", q)
	for i, name := range []string{"positions", "cu_seqlens", "context_lens", "block_table"} {
		d.in(name, v.Args[2+i])
	}
	a := v.Attr.(ir.AttentionAttr)
	sinks, slopes := a.Options(v.Args)
	given, err := d.attend(v, a, v.Args[1], slopes)
	if err != nil {
		return err
	}
	d.params(given)
	if vec {
		return singleQueries(p, v, d, sinks, p.attentionShape(q.Type))
	}
	p.chose(v, d, p.attentionShape(q.Type), fmt.Sprintf("tiles of %d queries", kernels.AttentionTile), fmt.Sprintf("more than %d tokens", p.chip.vecTokens))
	tiles := over(tokens, kernels.AttentionTile).Plus(Extent(ir.Var(ir.B)))
	d.launch([3]Expr{tiles, Extent(heads), one()}, d.kernel.MaxThreads)
	d.sinks(sinks)
	d.out("out", v)
	return nil
}

// attentionShape is what choices go by, given the type of the queries.
func (p *phase) attentionShape(q ir.Type) string {
	return fmt.Sprintf("%s, Smax ≤ %d", p.queriesShape(q), p.out.Bounds[ir.Smax])
}

func (p *phase) queriesShape(q ir.Type) string {
	n, _ := q.Shape[1].IsConst()
	return fmt.Sprintf("%s × %d heads of %d", p.upTo(q.Shape[0]), n, q.Shape.Last())
}

// attend binds a cache, sets what all kernels of attention over one are told, and returns
// their parameters.
func (e emitter) attend(v *ir.Value, a ir.AttentionAttr, cache, slopes *ir.Value) (words, error) {
	c := cache.Type.Cache
	t := tensorOf(v)
	if c.Head%8 != 0 || int64(c.Head) > int64(e.p.target.MaxHead) {
		return nil, fmt.Errorf("%s: heads of %d elements; the attention kernels take multiples of 8 up to %d", v, c.Head, e.p.target.MaxHead)
	}
	row := int64(c.Head)
	plane := int64(c.Block) * row // a block of one KV head
	if stride := int64(c.KVHeads) * plane; stride > math.MaxUint32 {
		return nil, fmt.Errorf("%s: cache blocks of %d elements; the attention kernels count them in 32 bits", v, stride)
	}
	e.constant("fc_head", uint32(c.Head))
	e.caches(cache, false)
	if a.Window != 0 {
		e.constant("fc_window", 1)
	}
	if a.SoftCap != 0 {
		e.constant("fc_soft_cap", 1)
	}
	if slopes != nil {
		e.constant("fc_slopes", 1)
		e.in("slopes", slopes)
	}
	given := block(c)
	maps.Copy(given, words{"tokens": Extent(t.Shape[0]), "seqs": Extent(ir.Var(ir.B)), "heads": Extent(t.Shape[1]), "table_stride": Extent(ir.Var(ir.NB)),
		"block_stride": size(int64(c.KVHeads) * plane), "head_stride": size(plane), "row_stride": size(row),
		"scale": float(a.Scale), "window": size(int64(a.Window)), "soft_cap": float(a.SoftCap)})
	return given, nil
}

func (e emitter) sinks(sinks *ir.Value) {
	if sinks != nil {
		e.constant("fc_sinks", 1)
		e.in("sinks", sinks)
	}
}

// singleQueries launches a kernel that takes each token by itself, over contexts that are
// cut where they are long.
func singleQueries(p *phase, v *ir.Value, d emitter, sinks *ir.Value, shape string) error {
	t := tensorOf(v)
	if !p.target.Launches {
		d.hints(v, sizes{shape: p.queriesShape(t), tokens: p.bound(Extent(t.Shape[0]))}, ahead)
	}
	if p.target.SplitContext > 0 && p.out.Bounds[ir.Smax] > p.target.SplitContext {
		by := p.launch(partition, v, d, sizes{shape: shape}, Setting{"keys": p.chip.partitionKeys()},
			fmt.Sprintf("contexts over %d keys leave %s idle", p.target.SplitContext, &p.chip))
		p.choseBy(v, d, shape, fmt.Sprintf("partitions of %d keys", by.Setting["keys"]), by)
		return splitAttention(p, v, d, sinks, by.Setting["keys"])
	}
	p.chose(v, d, shape, "a threadgroup for a head and token", "contexts are short or steps wide enough")
	d.launch([3]Expr{Extent(t.Shape[1]), Extent(t.Shape[0]), one()}, d.kernel.MaxThreads)
	d.sinks(sinks)
	d.out("out", v)
	return nil
}

// attentionWrite lowers the ops that write the cache and attend over it. Their kernel reads
// no slot that its own launch writes, which takes sequences of one token.
func attentionWrite(p *phase, v *ir.Value) error {
	if p.out.Longest.Max > 1 {
		return fmt.Errorf("%s: sequences of up to %d tokens; %s takes one of each", v, p.out.Longest.Max, v.Op)
	}
	a, norms := v.Attr.(ir.AttentionWriteAttr), v.Op == ir.OpHeadNormRopeKVWriteAttention
	o := a.Operands(v.Args, norms)
	d := p.dispatch("attention_write_"+tensorOf(v).DType.String()+"_"+o.Cache.Type.Cache.DType.String(), v)
	d.in("qkv", o.QKV)
	d.in("positions", o.Positions)
	d.in("slots", o.Slots)
	d.in("cu_seqlens", o.CuSeqlens)
	d.in("context_lens", o.ContextLens)
	d.in("block_table", o.BlockTable)
	given, err := d.attend(v, a.Attention, o.Cache, o.Slopes)
	if err != nil {
		return err
	}
	d.cache("k_slots", o.Cache, false, true)
	d.cache("v_slots", o.Cache, true, true)
	var factors []*ir.Value
	if o.Factors != nil {
		factors = []*ir.Value{o.Factors}
	}
	maps.Copy(given, rotation(d, a.Write.Rope, factors))
	delete(given, "first") // positions are given
	given["eps"] = float(a.Write.Eps)
	d.constant("fc_norms", bit(norms))
	if norms {
		d.in("q_norm", o.QNorm)
		d.in("k_norm", o.KNorm)
	}
	d.params(given)
	return singleQueries(p, v, d, o.Sinks, p.attentionShape(tensorOf(v)))
}

// splitAttention cuts the keys of attention_vec into partitions, whose results a
// second dispatch puts together. Partitions beyond a token's keys say so in their
// statistics and cost nothing.
func splitAttention(p *phase, v *ir.Value, d emitter, sinks *ir.Value, partition int64) error {
	t := tensorOf(v)
	heads, head := t.Shape[1], t.Shape.Last()
	n, _ := heads.IsConst()
	rows := n * p.bound(Extent(t.Shape[0])) // of one partition
	parts := over(ir.Var(ir.Smax), partition)
	scratch := func(width int64) (place, Expr) {
		smax, _ := ir.Var(ir.Smax).Times(ir.Const(int(4 * rows * width)))
		bytes := over(smax, partition).Plus(Number(4 * rows * width))
		return p.scratch(bytes), bytes
	}
	sums, sumBytes := scratch(head)
	statistics, statisticBytes := scratch(2)
	d.constant("fc_split", uint32(partition))
	d.bind("part", sums, Binding{Bytes: sumBytes, Write: true})
	d.bind("statistics", statistics, Binding{Bytes: statisticBytes, Write: true})
	d.launch([3]Expr{Extent(heads), Extent(t.Shape[0]), parts}, d.kernel.MaxThreads)

	r := p.dispatch("attention_reduce_"+t.DType.String(), v)
	r.bind("part", sums, Binding{Bytes: sumBytes, Read: true})
	r.bind("statistics", statistics, Binding{Bytes: statisticBytes, Read: true})
	r.out("out", v)
	r.sinks(sinks) // once, not in every partition
	r.params(words{"tokens": Extent(t.Shape[0]), "heads": Extent(heads), "head": size(head), "partitions": parts})
	r.coverBy(int(roundUp((head+3)/4, 32)))
	return nil
}

func cacheWrite(p *phase, v *ir.Value) error {
	k, c := v.Args[1], v.Type.Cache
	width := int64(c.KVHeads * c.Head)
	d := p.dispatch("cache_write_"+k.Type.DType.String()+"_"+c.DType.String(), v)
	d.in("k", k)
	d.in("v", v.Args[2])
	d.in("slots", v.Args[3])
	d.caches(v.Args[0], true)
	given := block(c)
	maps.Copy(given, words{"tokens": Extent(k.Type.Shape[0]), "k_stride": size(width), "v_stride": size(width)})
	d.params(given)
	d.cover()
	return nil
}

func cacheRead(p *phase, v *ir.Value) error {
	c := v.Args[0].Type.Cache
	d := p.dispatch("cache_read_"+c.DType.String(), v)
	d.cache("cache", v.Args[0], v.Attr.(ir.CacheReadAttr).Values, false)
	d.in("context_lens", v.Args[1])
	d.in("block_table", v.Args[2])
	d.out("out", v)
	given := block(c)
	maps.Copy(given, words{"seqs": Extent(ir.Var(ir.B)), "context": Extent(ir.Var(ir.Smax)), "table_stride": Extent(ir.Var(ir.NB))})
	d.params(given)
	d.cover()
	return nil
}

// block is the extents of a block of a cache, as parameters.
func block(c ir.Cache) words {
	return words{"kv_heads": size(int64(c.KVHeads)), "head": size(int64(c.Head)), "block": size(int64(c.Block))}
}
