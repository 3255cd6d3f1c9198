package lower

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/sym"
	"github.com/smelt-ml/smelt/kernels"
	"github.com/smelt-ml/smelt/lower/plan"
	"github.com/smelt-ml/smelt/lower/predict"
)

func attention(p *phase, v *ir.Value) error {
	q := v.Args[0].Type
	few := p.bound(Extent(q.Shape[0])) <= p.chip.vecTokens
	switch {
	case p.target.XSplit:
		return pagedAttention(p, v)
	case p.out.Longest.Max == 1: // a tile holds queries of one sequence: here it would hold one
		return attentionRows(p, v, 1)
	case few || p.target.SameBits:
		return attentionRows(p, v, p.rowsAtOnce(q.Shape.Last()))
	}
	return attentionTiles(p, v)
}

// attends starts a dispatch of attention of a family over a cache, with its operands bound.
func (p *phase) attends(v *ir.Value, family string) (emitter, error) {
	q, cache := v.Args[0], v.Args[1]
	d := p.dispatch(family+"_"+v.Type.DType.String()+"_"+cache.Type.Cache.DType.String(), v)
	d.in("q", q)
	for i, name := range []string{"positions", "cu_seqlens", "context_lens", "block_table"} {
		d.in(name, v.Args[2+i])
	}
	a := v.Attr.(ir.AttentionAttr)
	_, slopes := a.Optional(v.Args)
	given, err := d.attend(v, a, cache, slopes)
	if err == nil {
		maps.Copy(given, gateOf(v).words())
		d.params(given)
	}
	return d, err
}

// headGate is the gate of an attention; its operand is nil where there is none.
type headGate struct {
	attr    ir.GateAttr
	operand *ir.Value
}

func gateOf(v *ir.Value) headGate {
	if a, ok := v.Attr.(ir.AttentionAttr); ok {
		return headGate{a.Gate, a.Gated(v.Args)}
	}
	a, ok := v.Attr.(ir.AttentionWriteAttr)
	if !ok {
		return headGate{}
	}
	return headGate{a.Attention.Gate, a.Operands(v.Args, v.Op).Gate}
}

// words returns where the gate lies.
func (g headGate) words() words {
	if g.operand == nil {
		return words{"gate_stride": size(0), "gate_from": size(0)}
	}
	return words{"gate_stride": size(last(g.operand)), "gate_from": size(int64(g.attr.From))}
}

// gate binds the gate of an attention, where its results are complete.
func (e emitter) gate(v *ir.Value) {
	if g := gateOf(v); g.operand != nil {
		e.constant("fc_gate", uint32(g.attr.Activation))
		e.constant("fc_head_gate", bit(g.attr.ByHead))
		e.in("gate", g.operand)
	}
}

func sinksOf(v *ir.Value) *ir.Value {
	sinks, _ := v.Attr.(ir.AttentionAttr).Optional(v.Args)
	return sinks
}

// rowsAtOnce returns the number of tokens of a sequence that one threadgroup of attention_vec
// processes: as many as keep their queries and sums in registers. It is 1 without Launches.
func (p *phase) rowsAtOnce(head int64) int64 {
	rows := int64(1)
	if p.target.Launches {
		rows = kernels.MaxVecRows
	}
	for rows > 1 && rows*head > kernels.MaxHead {
		rows /= 2
	}
	return rows
}

// attentionRows lowers attention to attention_vec, with rows tokens of a sequence per threadgroup.
func attentionRows(p *phase, v *ir.Value, rows int64) error {
	heads, _ := v.Args[0].Type.Shape[1].IsConst()
	d, err := p.attends(v, "attention_vec")
	if err != nil {
		return err
	}
	by := p.find(rows, heads)
	if rows > 1 {
		d.constant("fc_rows", uint32(rows))
	}
	d.owners(by.owners, v.Args[3])
	return singleQueries(p, v, d, sinksOf(v), v.Args[1].Type.Cache.KVHeads, rows, by)
}

// attentionTiles lowers attention to attention_tile. Sequences with few tokens leave most of a tile
// empty. Where that is predicted to cost more than idle threadgroups, it adds a dispatch of
// attention_vec for those sequences, and each kernel skips the sequences of the other.
func attentionTiles(p *phase, v *ir.Value) error {
	q := v.Args[0].Type
	shape, head := p.attentionShape(q), q.Shape.Last()
	heads, _ := q.Shape[1].IsConst()
	by := p.find(kernels.AttentionTile, heads)
	why := fmt.Sprintf("more than %d tokens", p.chip.vecTokens)
	if rows := p.rowsAtOnce(head); p.target.Launches && p.out.Bounds[sym.B] > 1 {
		few, rest := &plan.Owners{Tile: rows, Least: 1, Most: rows}, &plan.Owners{Tile: kernels.AttentionTile, Least: rows + 1, Most: plan.MaxTokens}
		empty := (p.out.Bounds[sym.B] - 1) * (kernels.AttentionTile - rows) * p.out.Bounds[sym.Smax]
		wasted := float64(empty*heads*predict.ScoreOps(head)) * p.chip.like.Rates().Op
		surplus := float64(heads*p.bound(few.Count())) * searchLoad / float64(p.chip.cores)
		figures := fmt.Sprintf("empty rows of tiles would cost up to %.1f µs a layer, threadgroups without a sequence %.1f µs, on %s", wasted, surplus, &p.chip)
		if wasted > surplus {
			d, err := p.attends(v, "attention_vec")
			if err != nil {
				return err
			}
			d.constant("fc_rows", uint32(rows))
			d.owners(few, v.Args[3])
			p.chose(v, d, shape, fmt.Sprintf("sequences of up to %d tokens, by map", rows), figures)
			d.launchRows(v, heads, rows, one(), d.kernel.MaxThreads)
			d.sinks(sinksOf(v))
			d.gate(v)
			d.out("out", v)
			by, why = found{rest, fmt.Sprintf("sequences of more than %d tokens, by map", rows), ""}, figures
		}
	}
	d, err := p.attends(v, "attention_tile")
	if err != nil {
		return err
	}
	d.owners(by.owners, v.Args[3])
	p.chose(v, d, shape, join(fmt.Sprintf("tiles of %d queries", kernels.AttentionTile), by.how), join(why, by.why))
	tiles := over(q.Shape[0], kernels.AttentionTile).Plus(Extent(ir.Var(sym.B)))
	d.launch([3]plan.Expr{tiles, Extent(q.Shape[1]), size(int64(kernels.AttentionParts(head)))}, d.kernel.MaxThreads)
	d.sinks(sinksOf(v))
	d.gate(v)
	d.out("out", v)
	return nil
}

// launchRows launches attention_vec with rows tokens per tile, and with groups threadgroups per
// tile and partition to cover all heads.
func (e emitter) launchRows(v *ir.Value, groups, rows int64, parts plan.Expr, threads int) {
	e.launch([3]plan.Expr{plan.Number(groups), (&plan.Owners{Tile: rows}).Count(), parts}, threads)
}

// join joins the words that are not empty by "; ".
func join(words ...string) string {
	return strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "" }), "; ")
}

// attentionShape returns the shape of a site of attention, given the type of the queries.
func (p *phase) attentionShape(q ir.Type) string {
	return fmt.Sprintf("%s, Smax ≤ %d", p.queriesShape(q), p.out.Bounds[sym.Smax])
}

func (p *phase) queriesShape(q ir.Type) string {
	n, _ := q.Shape[1].IsConst()
	return fmt.Sprintf("%s × %d heads of %d", p.upTo(q.Shape[0]), n, q.Shape.Last())
}

// attend binds a cache, sets the function constants that all kernels of attention over a cache
// share, and returns their parameters.
func (e emitter) attend(v *ir.Value, a ir.AttentionAttr, cache, slopes *ir.Value) (words, error) {
	c := cache.Type.Cache
	t := tensorOf(v)
	if !e.p.target.TakesHeads(c) {
		return nil, fmt.Errorf("%s: heads of %d elements; the attention kernels take multiples of %d up to %d", v, c.Head, e.p.target.HeadStep, e.p.target.MaxHead)
	}
	row := int64(c.Head)
	plane := int64(c.Block) * row // elements of a block of one KV head
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
	maps.Copy(given, words{"tokens": Extent(t.Shape[0]), "seqs": Extent(ir.Var(sym.B)), "heads": Extent(t.Shape[1]), "table_stride": Extent(ir.Var(sym.NB)),
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

// cut reports whether the phase splits contexts along the keys (split-K).
func (p *phase) cut() bool {
	return p.target.SplitContext > 0 && p.out.Bounds[sym.Smax] > p.target.SplitContext
}

// cutElsewhere reports whether other phases split contexts such that those of this phase have one
// partition there. Results must be the same in both. They are without a split here, except with
// sinks, which attention_reduce applies.
func (p *phase) cutElsewhere() bool {
	return p.target.SplitContext > 0 && p.target.SplitContext == p.target.SplitKeys && int64(p.plan.Context) > p.target.SplitContext
}

// singleQueries launches a kernel of attention with rows tokens of a sequence per threadgroup. It
// splits long contexts along the keys.
func singleQueries(p *phase, v *ir.Value, d emitter, sinks *ir.Value, kvHeads int, rows int64, by found) error {
	t := tensorOf(v)
	shape := p.attentionShape(t)
	if !p.target.Launches {
		d.hints(v, sizes{shape: p.queriesShape(t), tokens: p.bound(Extent(t.Shape[0]))}, ahead)
	}
	keys, parts := int64(0), int64(1) // keys per partition; maximum number of partitions
	if p.cut() || sinks != nil && p.cutElsewhere() {
		cut := p.launch(partition, v, d, sizes{shape: shape}, plan.Setting{"keys": p.target.SplitKeys},
			fmt.Sprintf("contexts over %d keys leave %s idle", p.target.SplitContext, &p.chip))
		keys = cut.Setting["keys"]
		parts = ceilDiv(p.out.Bounds[sym.Smax], keys)
		p.choseBy(v, d, shape, fmt.Sprintf("partitions of %d keys", keys), cut)
	}
	groups, _ := t.Shape[1].IsConst()
	if rows == 1 {
		groups = p.shareHeads(v, d, int64(kvHeads), parts, by)
	} else {
		p.chose(v, d, shape, join(fmt.Sprintf("a threadgroup for a head and %d tokens", rows), by.how), by.why)
	}
	if keys > 0 {
		return splitAttention(p, v, d, sinks, keys, groups, rows)
	}
	d.launchRows(v, groups, rows, one(), d.kernel.MaxThreads)
	d.sinks(sinks)
	d.gate(v)
	d.out("out", v)
	return nil
}

// shareHeads chooses the number of query heads per threadgroup of attention, and returns the number
// of threadgroups per token and partition.
func (p *phase) shareHeads(v *ir.Value, d emitter, kvHeads, parts int64, by found) int64 {
	t := tensorOf(v)
	heads, _ := t.Shape[1].IsConst()
	at := sizes{shape: p.attentionShape(t), shared: heads / kvHeads, head: t.Shape.Last()}
	n := p.target.costs.SharedHeads(heads, kvHeads, at.head, parts*p.out.Least[sym.T])
	why := p.whyHeads(at, n)
	for more := 2 * n; more < 2*at.shared && p.target.costs.MayShare(more, at.head); more *= 2 {
		alone, together := p.attending(d, kernels.HeadGroups(heads, kvHeads, n), parts), p.attending(d, kernels.HeadGroups(heads, kvHeads, more), parts)
		if together < quicker*alone {
			n, why = more, fmt.Sprintf("predicted %.1f µs rather than %.1f, on %s", together, alone, &p.chip)
		}
	}
	shared := p.launch(sharedHeads, v, d, at, plan.Setting{"heads": n}, why)
	n = shared.Setting["heads"]
	what := "a threadgroup for a head and token"
	if n > 1 {
		what = fmt.Sprintf("a threadgroup for %d of %d heads and a token", min(n, at.shared), at.shared)
		d.constant("fc_heads", uint32(n))
	}
	shared.why = join(shared.why, by.why)
	p.choseBy(v, d, at.shape, join(what, by.how), shared)
	return kernels.HeadGroups(heads, kvHeads, n)
}

// attending predicts the µs of attention in the phase's smallest step over its longest context,
// with groups threadgroups per token and partition.
func (p *phase) attending(d emitter, groups, parts int64) float64 {
	d.launch([3]plan.Expr{plan.Number(groups), Extent(ir.Var(sym.T)), plan.Number(parts)}, d.kernel.MaxThreads)
	step := p.out.Bounds
	step[sym.T] = p.out.Least[sym.T]
	step[sym.B] = min(step[sym.B], step[sym.T])
	return p.chip.like.Alone(predict.CostOf(p.plan, d.dispatch(), &step), d.dispatch(), &step)
}

// whyHeads returns the reason why n query heads share a threadgroup, and not more.
func (p *phase) whyHeads(at sizes, n int64) string {
	switch {
	case at.shared == 1:
		return "no other reads its keys"
	case n >= at.shared:
		return "they read the same keys"
	case n == p.target.costs.Heads:
		return "a threadgroup takes no more"
	case !p.target.costs.MayShare(2*n, at.head):
		return fmt.Sprintf("queries of more than %d elements leave a thread no registers", p.target.costs.Elements)
	}
	return fmt.Sprintf("fewer than %d threadgroups a core otherwise, on %s", p.chip.attending, &p.chip)
}

// attentionWrite lowers the ops that write the cache and attend over it, and the one that normalises and
// rotates queries alone. Their kernel reads no slot that its own launch writes, and so requires one token
// per sequence.
func attentionWrite(p *phase, v *ir.Value) error {
	if p.out.Longest.Max > 1 {
		return fmt.Errorf("%s: sequences of up to %d tokens; %s takes one of each", v, p.out.Longest.Max, v.Op)
	}
	a := v.Attr.(ir.AttentionWriteAttr)
	o := a.Operands(v.Args, v.Op)
	d := p.dispatch("attention_write_"+tensorOf(v).DType.String()+"_"+o.Cache.Type.Cache.DType.String(), v)
	d.in("qkv", o.QKV)
	d.in("positions", o.Positions)
	d.in("cu_seqlens", o.CuSeqlens)
	d.in("context_lens", o.ContextLens)
	d.in("block_table", o.BlockTable)
	given, err := d.attend(v, a.Attention, o.Cache, o.Slopes)
	if err != nil {
		return err
	}
	if o.Slots != nil {
		d.in("slots", o.Slots)
		d.cache("k_slots", o.Cache, false, true)
		d.cache("v_slots", o.Cache, true, true)
	} else {
		d.constant("fc_queries", 1)
	}
	var factors []*ir.Value
	if o.Factors != nil {
		factors = []*ir.Value{o.Factors}
	}
	maps.Copy(given, rotation(d, a.Write.Rope, factors))
	delete(given, "first") // the kernel has positions instead
	maps.Copy(given, gateOf(v).words())
	given["eps"] = float(a.Write.Eps)
	given["qkv_stride"] = size(last(o.QKV))
	d.constant("fc_norms", bit(o.QNorm != nil))
	if a.Write.NormValues {
		d.constant("fc_norm_values", 1)
	}
	if o.QNorm != nil {
		d.in("q_norm", o.QNorm)
	}
	if o.KNorm != nil {
		d.in("k_norm", o.KNorm)
	}
	d.params(given)
	return singleQueries(p, v, d, o.Sinks, o.Cache.Type.Cache.KVHeads, 1, p.searched())
}

// latentAttention lowers latent_attention, as attentionWrite does.
func latentAttention(p *phase, v *ir.Value) error {
	if p.out.Longest.Max > 1 {
		return fmt.Errorf("%s: sequences of up to %d tokens; %s takes one of each", v, p.out.Longest.Max, v.Op)
	}
	a := v.Attr.(ir.LatentAttentionAttr)
	in, attend := a.Parts(v.Args, v, v.Args[4])
	o := a.Write.Operands(in)
	d := p.dispatch("latent_attention_"+tensorOf(v).DType.String()+"_"+o.Cache.Type.Cache.DType.String(), v)
	given := d.latent(a.Write, o)
	for i, name := range []string{"cu_seqlens", "context_lens", "block_table"} {
		d.in(name, attend[3+i])
	}
	more, err := d.attend(v, a.Attention, o.Cache, nil)
	if err != nil {
		return err
	}
	d.cache("k_slots", o.Cache, false, true)
	maps.Copy(given, more)
	d.params(given)
	return singleQueries(p, v, d, nil, 1, 1, p.searched())
}

// splitAttention splits the keys of attention_vec into partitions (split-K), whose results
// attention_reduce combines. Partitions beyond a token's keys are marked empty in their statistics
// and do no work.
func splitAttention(p *phase, v *ir.Value, d emitter, sinks *ir.Value, partition, groups, rows int64) error {
	t := tensorOf(v)
	heads, head := t.Shape[1], t.Shape.Last()
	n, _ := heads.IsConst()
	results := n * p.bound(Extent(t.Shape[0])) // of one partition
	parts := over(ir.Var(sym.Smax), partition)
	scratch := func(width int64) (place, plan.Expr) {
		smax, _ := ir.Var(sym.Smax).Times(ir.Const(int(4 * results * width)))
		bytes := over(smax, partition).Plus(plan.Number(4 * results * width))
		return p.scratch(bytes), bytes
	}
	sums, sumBytes := scratch(head)
	statistics, statisticBytes := scratch(2)
	d.constant("fc_split", uint32(partition))
	d.bind("part", sums, plan.Binding{Bytes: sumBytes, Write: true})
	d.bind("statistics", statistics, plan.Binding{Bytes: statisticBytes, Write: true})
	d.launchRows(v, groups, rows, parts, d.kernel.MaxThreads)

	r := p.dispatch("attention_reduce_"+t.DType.String(), v)
	r.bind("part", sums, plan.Binding{Bytes: sumBytes, Read: true})
	r.bind("statistics", statistics, plan.Binding{Bytes: statisticBytes, Read: true})
	r.out("out", v)
	r.sinks(sinks) // once, not in every partition
	r.gate(v)
	given := gateOf(v).words()
	maps.Copy(given, words{"tokens": Extent(t.Shape[0]), "heads": Extent(heads), "head": size(head), "partitions": parts})
	r.params(given)
	r.coverBy(int(roundUp((head+3)/4, 32)))
	return nil
}

func cacheWrite(p *phase, v *ir.Value) error {
	k, c := v.Args[1], v.Type.Cache
	width := int64(c.KVHeads * c.Head)
	kernel := "cache_write_" + k.Type.DType.String() + "_" + c.DType.String()
	if p.target.XSplit {
		kernel = "reshape_and_cache_" + c.DType.String()
	}
	d := p.dispatch(kernel, v)
	d.in("k", k)
	d.in("v", v.Args[2])
	d.in("slots", v.Args[3])
	d.caches(v.Args[0], true)
	given := block(c)
	maps.Copy(given, words{"tokens": Extent(k.Type.Shape[0]), "k_stride": size(width), "v_stride": size(width)})
	if p.target.XSplit {
		maps.Copy(given, pagedStrides(c))
	}
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
	maps.Copy(given, words{"seqs": Extent(ir.Var(sym.B)), "context": Extent(ir.Var(sym.Smax)), "table_stride": Extent(ir.Var(sym.NB))})
	d.params(given)
	d.cover()
	return nil
}

// copyBlocks binds the caches twice, for reading and for writing: the blocks are disjoint.
func copyBlocks(p *phase, v *ir.Value) error {
	c := v.Type.Cache
	d := p.dispatch("copy_blocks_"+c.DType.String(), v)
	d.cache("k_from", v.Args[0], false, false)
	d.cache("v_from", v.Args[0], true, false)
	d.in("pairs", v.Args[1])
	d.caches(v.Args[0], true)
	width := size(int64(c.KVHeads) * int64(c.Block) * int64(c.Head))
	d.params(words{"pairs": Extent(ir.Var(sym.C)), "width": width, "block_stride": width})
	d.cover()
	return nil
}

// pagedStrides returns the strides of a cache of the x-split layout.
func pagedStrides(c ir.Cache) words {
	plane := int64(c.Block) * int64(c.Head)
	return words{"block_stride": size(int64(c.KVHeads) * plane), "head_stride": size(plane)}
}

// pagedPartition is the number of keys per threadgroup of paged_attention_v2.
const pagedPartition = 512

// pagedAttention lowers attention over a cache of the x-split layout. Its kernels process each
// token separately.
func pagedAttention(p *phase, v *ir.Value) error {
	q, c, a := v.Args[0].Type, v.Args[1].Type.Cache, v.Attr.(ir.AttentionAttr)
	if err := CheckXSplit(q.DType, c.DType, c.Block); err != nil {
		return fmt.Errorf("%s: %w", v, err)
	}
	suffix, tokens, heads, head := "_"+v.Type.DType.String(), q.Shape[0], q.Shape[1], q.Shape.Last()
	n, _ := heads.IsConst()
	parts, split := one(), p.cut() || p.cutElsewhere()
	if split {
		parts = over(ir.Var(sym.Smax), pagedPartition)
	}
	given := block(c)
	maps.Copy(given, pagedStrides(c))
	maps.Copy(given, words{"heads": Extent(heads), "table_stride": Extent(ir.Var(sym.NB)), "q_stride": size(n * head), "partitions": parts,
		"scale": float(a.Scale), "window": size(int64(a.Window)), "soft_cap": float(a.SoftCap)})
	sinks, slopes := a.Optional(v.Args)

	rows := func(d emitter) { // binds what determines the keys that each row sees
		d.constant("fc_head", uint32(head))
		d.in("context_lens", v.Args[4])
		if p.out.Bounds[sym.T] > 1 {
			d.owners(&plan.Owners{Tile: 1, Least: 1, Most: plan.MaxTokens}, v.Args[3])
			d.in("positions", v.Args[2])
		}
		d.params(given)
	}
	name := "paged_attention_v1"
	if split {
		name = "paged_attention_v2"
	}
	d := p.dispatch(name+suffix, v)
	rows(d)
	d.constant("fc_block", uint32(c.Block))
	d.constant("fc_window", bit(a.Window != 0))
	d.constant("fc_soft_cap", bit(a.SoftCap != 0))
	d.constant("fc_alibi", bit(slopes != nil))
	if slopes != nil {
		d.in("alibi_slopes", slopes)
	}
	d.in("q", v.Args[0])
	d.caches(v.Args[1], false)
	d.in("block_table", v.Args[5])
	d.launch([3]plan.Expr{Extent(heads), Extent(tokens), parts}, d.kernel.MaxThreads)
	if !split {
		d.sinks(sinks)
		d.out("out", v)
		return nil
	}
	partial := func(row int64) (place, plan.Expr) {
		smax, _ := ir.Var(sym.Smax).Times(ir.Const(int(row)))
		bytes := over(smax, pagedPartition).Plus(plan.Number(row))
		return p.scratch(bytes), bytes
	}
	results := n * p.bound(Extent(tokens)) // of one partition
	part, partBytes := partial(v.Type.DType.Bytes(results * head))
	sums, sumBytes := partial(4 * results)
	maxima, maximaBytes := partial(4 * results)
	d.bind("part", part, plan.Binding{Bytes: partBytes, Write: true})
	d.bind("exp_sums", sums, plan.Binding{Bytes: sumBytes, Write: true})
	d.bind("max_logits", maxima, plan.Binding{Bytes: maximaBytes, Write: true})

	r := p.dispatch("paged_attention_reduce"+suffix, v)
	rows(r)
	r.bind("part", part, plan.Binding{Bytes: partBytes, Read: true})
	r.bind("exp_sums", sums, plan.Binding{Bytes: sumBytes, Read: true})
	r.bind("max_logits", maxima, plan.Binding{Bytes: maximaBytes, Read: true})
	r.sinks(sinks)
	r.out("out", v)
	r.launch([3]plan.Expr{Extent(heads), Extent(tokens), one()}, int(roundUp(head, 32)))
	return nil
}
