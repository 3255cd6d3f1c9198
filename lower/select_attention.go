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
	if c.Head%8 != 0 || int64(c.Head) > int64(p.target.MaxHead) {
		return fmt.Errorf("%s: heads of %d elements; the attention kernels take multiples of 8 up to %d", v, c.Head, p.target.MaxHead)
	}
	// A tile of queries is one sequence's: of tokens by themselves it would be empty but for one.
	vec := p.bound(Extent(tokens)) <= p.chip.vecTokens || p.out.Longest.Max == 1
	split := vec && p.target.SplitContext > 0 && p.out.Bounds[ir.Smax] > p.target.SplitContext
	kernel := "attention_tile_"
	if vec {
		kernel = "attention_vec_"
	}
	d := p.dispatch(kernel+v.Type.DType.String()+"_"+c.DType.String(), v)
	d.constant("fc_head", uint32(c.Head))
	d.in("q", q)
	d.caches(v.Args[1], false)
	for i, name := range []string{"positions", "cu_seqlens", "context_lens", "block_table"} {
		d.in(name, v.Args[2+i])
	}
	row := int64(c.Head)
	plane := int64(c.Block) * row // a block of one KV head
	if stride := int64(c.KVHeads) * plane; stride > math.MaxUint32 {
		return fmt.Errorf("%s: cache blocks of %d elements; the attention kernels count them in 32 bits", v, stride)
	}
	a := v.Attr.(ir.AttentionAttr)
	if a.Window != 0 {
		d.constant("fc_window", 1)
	}
	if a.SoftCap != 0 {
		d.constant("fc_soft_cap", 1)
	}
	sinks, slopes := a.Options(v.Args)
	if slopes != nil {
		d.constant("fc_slopes", 1)
		d.in("slopes", slopes)
	}
	if sinks != nil && !split {
		d.constant("fc_sinks", 1)
		d.in("sinks", sinks)
	}
	given := block(c)
	maps.Copy(given, words{"tokens": Extent(tokens), "seqs": Extent(ir.Var(ir.B)), "heads": Extent(heads), "table_stride": Extent(ir.Var(ir.NB)),
		"block_stride": size(int64(c.KVHeads) * plane), "head_stride": size(plane), "row_stride": size(row),
		"scale": float(a.Scale), "window": size(int64(a.Window)), "soft_cap": float(a.SoftCap)})
	d.params(given)
	n, _ := heads.IsConst()
	shape := fmt.Sprintf("%s × %d heads of %d, Smax ≤ %d", p.upTo(tokens), n, c.Head, p.out.Bounds[ir.Smax])
	if vec && !p.target.Launches {
		d.hints(v, sizes{shape: shape, tokens: p.bound(Extent(tokens))}, ahead)
	}
	switch {
	case split:
		by := p.launch(partition, v, d, sizes{shape: shape}, Setting{"keys": p.chip.partitionKeys()},
			fmt.Sprintf("contexts over %d keys leave %s idle", p.target.SplitContext, &p.chip))
		p.choseBy(v, d, shape, fmt.Sprintf("partitions of %d keys", by.Setting["keys"]), by)
		return splitAttention(p, v, d, sinks, by.Setting["keys"])
	case vec:
		p.chose(v, d, shape, "a threadgroup for a head and token", "contexts are short or steps wide enough")
		d.launch([3]Expr{Extent(heads), Extent(tokens), one()}, d.kernel.MaxThreads)
	default:
		p.chose(v, d, shape, fmt.Sprintf("tiles of %d queries", kernels.AttentionTile), fmt.Sprintf("more than %d tokens", p.chip.vecTokens))
		tiles := over(tokens, kernels.AttentionTile).Plus(Extent(ir.Var(ir.B)))
		d.launch([3]Expr{tiles, Extent(heads), one()}, d.kernel.MaxThreads)
	}
	d.out("out", v)
	return nil
}

// splitAttention cuts the keys of attention_vec into partitions, whose results a
// second dispatch puts together. Partitions beyond a token's keys say so in their
// statistics and cost nothing.
func splitAttention(p *phase, v *ir.Value, d emitter, sinks *ir.Value, partition int64) error {
	heads, head := v.Type.Shape[1], last(v)
	n, _ := heads.IsConst()
	rows := n * p.bound(Extent(v.Type.Shape[0])) // of one partition
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
	d.launch([3]Expr{Extent(heads), Extent(v.Type.Shape[0]), parts}, d.kernel.MaxThreads)

	r := p.dispatch("attention_reduce_"+v.Type.DType.String(), v)
	r.bind("part", sums, Binding{Bytes: sumBytes, Read: true})
	r.bind("statistics", statistics, Binding{Bytes: statisticBytes, Read: true})
	r.out("out", v)
	if sinks != nil { // once, not in every partition
		r.constant("fc_sinks", 1)
		r.in("sinks", sinks)
	}
	r.params(words{"tokens": Extent(v.Type.Shape[0]), "heads": Extent(heads), "head": size(head), "partitions": parts})
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
