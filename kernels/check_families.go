package kernels

import (
	"fmt"
	"math"
	"slices"
)

func checkEmbed(c *checker) {
	p := paramsOf[EmbedParams](c)
	c.positive(size{"tokens", p.Tokens}, size{"width", p.Width}, size{"vocab", p.Vocab})
	c.weight("table", "fc_type", p.Vocab, p.Width)
	c.dense("tokens", p.Tokens)
	c.dense("out", p.Tokens, p.Width)
	c.covered()
}

func checkLinear(c *checker) {
	p := paramsOf[LinearParams](c)
	c.positive(size{"tokens", p.Tokens}, size{"k", p.K})
	experts, _ := c.constant("fc_experts")
	columns := uint64(0)
	for i, w := range []struct {
		field, buffer, constant string
		n                       uint32
	}{{"n0", "w0", "fc_type0", p.N0}, {"n1", "w1", "fc_type1", p.N1}, {"n2", "w2", "fc_type2", p.N2}, {"n3", "w3", "fc_type3", p.N3}} {
		if typ, _ := c.constant(w.constant); i > 0 && typ == 0 {
			c.require(w.n == 0, w.field, "%d, but %s names no weight", w.n, w.constant)
			continue
		}
		c.positive(size{w.field, w.n})
		c.weights(w.buffer, w.constant, uint64(w.n)*max(uint64(experts), 1), p.K)
		columns += uint64(w.n)
	}
	gated := c.on("fc_gated")
	c.activation(gated)
	if gated {
		c.require(p.N1 == p.N0 && p.N2 == 0 && p.N3 == 0, "n1", "%d, %d, %d: a gate of %d rows needs one weight of as many beside it", p.N1, p.N2, p.N3, p.N0)
		columns = uint64(p.N0)
	}
	c.require(columns <= 1<<31, "n0+n1+n2+n3", "%d has more than 31 bits", columns)
	c.require(p.Tokens == 1 || uint64(p.OutStride) >= columns, "out_stride", "%d, with %d columns", p.OutStride, columns)
	results := spread(uint64(p.Tokens), uint64(p.OutStride), columns)
	inputs, extra := p.Tokens, uint32(0) // extra: tiles that experts add to the grid
	if experts != 0 {
		inputs, extra = c.experts(p, experts), experts+1
	}
	if c.on("fc_gather") {
		c.gathered(p.XStride, p.K)
		c.dense("rows", p.Tokens)
	} else {
		c.rows("x", inputs, p.XStride, p.K)
	}
	c.holds("out", results)
	if c.on("fc_residual") {
		c.holds("residual", results)
	}
	if c.on("fc_bias") {
		for i, n := range []uint32{p.N0, p.N1, p.N2, p.N3} {
			if n > 0 {
				c.dense([]string{"bias0", "bias1", "bias2", "bias3"}[i], max(experts, 1), n)
			}
		}
	}
	if kind, _ := c.constant("fc_row_gate"); kind != 0 {
		if c.require(int(kind) < len(activations), "fc_row_gate", "%d is unknown", kind); int(kind) < len(activations) {
			c.require(!activations[kind].gated, "fc_row_gate", "%s exists as a gate of two products only", activations[kind].name)
		}
		c.require(experts == 0, "fc_row_gate", "of experts, which are mixed by shares")
		c.rowsFrom("gate", p.Tokens, p.GateStride, p.GateFrom, 1)
	}
	if c.on("fc_column_gate") {
		c.require(experts == 0, "fc_column_gate", "of experts, which are mixed by shares")
		c.rowsFrom("gate", p.Tokens, p.GateStride, p.GateFrom, uint32(columns))
	}
	norm, _ := c.constant("fc_norm")
	c.require(int(norm) < len(norms), "fc_norm", "%d is unknown", norm)
	if norm == rmsNorm || c.on("fc_gain") || c.kernel.Family == "norm_linear_mat" {
		c.dense("gain", p.K)
	}
	if c.on("fc_shift") {
		c.dense("shift", p.K)
	}
	if c.kernel.Family == "linear_vec" {
		rows, tokens := c.choice("fc_rows", VecRows, VecRowsShared), c.choice("fc_tokens", 1, 2, 4, 8)
		if tokens > 1 {
			rows = VecRowsShared
		}
		c.threadsBetween(32, 256)
		c.grid(tiles(uint32(columns), rows*max(c.Group[0]/32, 1)), tiles(p.Tokens, tokens), 1)
	} else {
		tile, width := c.choice("fc_tile", MatTokens, 2*MatTokens), uint32(MatColumns)
		if MatTile(c.kernel) == Float {
			tile = MatTokens
		}
		if gated {
			width /= 2
		}
		c.grid(tiles(p.Tokens, tile)+uint64(extra), tiles(uint32(columns), width), 1)
		c.threads(uint32(c.kernel.MaxThreads))
	}
}

// experts checks the constants and index buffers of a product of stacked expert weights, and
// returns the number of rows of x.
func (c *checker) experts(p LinearParams, experts uint32) (inputs uint32) {
	top, _ := c.constant("fc_top")
	c.require(top > 0 && top <= experts, "fc_top", "%d of %d experts", top, experts)
	c.require(p.N2 == 0 && p.N3 == 0 && (p.N1 == 0 || c.on("fc_gated")), "n1", "%d, %d: experts have one weight, or a gate of two", p.N1, p.N2)
	c.require(!c.on("fc_gather"), "fc_gather", "rows of x belong to experts")
	if tokens, set := c.constant("fc_tokens"); set {
		c.require(tokens == 1, "fc_tokens", "%d; each expert has its own weights", tokens)
	}
	pairs, tokens := p.Tokens, p.Tokens/max(top, 1)
	if c.on("fc_mixed") {
		c.require(uint64(p.Tokens)*uint64(top) <= math.MaxUint32, "tokens", "%d of %d experts each", p.Tokens, top)
		pairs, tokens = p.Tokens*top, p.Tokens
		c.dense("share", pairs)
	} else {
		c.require(p.Tokens%max(top, 1) == 0, "tokens", "%d rows of %d experts each", p.Tokens, top)
		c.require(!c.on("fc_residual"), "fc_residual", "of experts that are not mixed")
	}
	if c.kernel.Family == "linear_vec" {
		c.dense("expert", pairs)
	} else {
		c.dense("rows", pairs)
		c.holds("starts", uint64(experts)+2)
	}
	if c.on("fc_each") {
		return pairs
	}
	return tokens
}

func checkGroupByExpert(c *checker) {
	p := paramsOf[GroupByExpertParams](c)
	c.positive(size{"rows", p.Rows})
	c.narrow(size{"rows", p.Rows})
	c.require(p.Groups > 1, "groups", "%d; the last is of rows without an expert", p.Groups)
	c.dense("expert", p.Rows)
	c.dense("order", p.Rows)
	c.holds("starts", uint64(p.Groups)+1)
	c.covered()
}

// choice returns a function constant, or the first of the values if it is not set or, which it
// refuses, none of them.
func (c *checker) choice(name string, values ...uint32) uint32 {
	bits, set := c.constant(name)
	if !set {
		return values[0]
	}
	if !slices.Contains(values, bits) {
		c.refuse(name, "%d; it may be one of %v", bits, values)
		return values[0]
	}
	return bits
}

// checkNorm checks rms_norm, norm_residual, and layer_norm, whose weight and bias are optional.
func checkNorm(c *checker) {
	p := paramsOf[NormParams](c)
	c.positive(size{"rows", p.Rows}, size{"width", p.Width})
	c.narrow(size{"width", p.Width})
	c.rows("x", p.Rows, p.XStride, p.Width)
	layer, rms := c.kernel.Family == "layer_norm", c.kernel.Family == "rms_norm"
	c.require(p.Groups == 1 || rms && p.Groups > 1, "groups", "%d", p.Groups)
	if !layer || c.on("fc_weight") {
		c.dense("weight", p.Groups, p.Width)
	}
	if layer && c.on("fc_bias") {
		c.dense("bias", p.Width)
	}
	if c.kernel.Family == "norm_residual" {
		c.dense("residual", p.Rows, p.Width)
		if c.on("fc_gain") {
			c.dense("gain", 1)
		}
	}
	c.dense("out", p.Rows, p.Width)
	c.coveredBy(32, uint32(c.kernel.MaxThreads))
}

// activation refuses an unknown fc_activation, and activations that exist as gates only
// where there is no gate.
func (c *checker) activation(gated bool) {
	n, _ := c.constant("fc_activation")
	c.require(int(n) < len(activations), "fc_activation", "%d is unknown", n)
	if int(n) < len(activations) {
		c.require(gated || !activations[n].gated, "fc_activation", "%s exists as a gate only", activations[n].name)
	}
}

func checkActivate(c *checker) {
	c.activation(false)
	checkElements(c)
}

func checkGate(c *checker) {
	c.activation(true)
	checkElements(c)
}

// checkElements checks kernels with one thread per element: results are dense, operands
// may be strided.
func checkElements(c *checker) {
	p := paramsOf[ElementParams](c)
	c.positive(size{"rows", p.Rows}, size{"width", p.Width})
	c.rows(c.kernel.Args[0].Name, p.Rows, p.AStride, p.Width)
	if len(c.kernel.Args) > 2 {
		c.rows("b", p.Rows, p.BStride, p.Width)
	}
	c.dense("out", p.Rows, p.Width)
	c.covered()
}

func checkGather(c *checker) {
	p := paramsOf[ElementParams](c)
	c.positive(size{"rows", p.Rows}, size{"width", p.Width})
	c.gathered(p.AStride, p.Width)
	c.dense("index", p.Rows)
	c.dense("out", p.Rows, p.Width)
	c.covered()
}

// checkRows checks kernels with one threadgroup per row; argmax writes one element per row.
func checkRows(c *checker) {
	p := paramsOf[ElementParams](c)
	c.positive(size{"rows", p.Rows}, size{"width", p.Width})
	c.narrow(size{"width", p.Width})
	c.rows("x", p.Rows, p.AStride, p.Width)
	results := p.Width
	if c.kernel.Family == "argmax" {
		results = 1
	}
	c.dense("out", p.Rows, results)
	if c.on("fc_sinks") {
		c.positive(size{"b_stride", p.BStride})
		c.holds("sinks", tiles(p.Rows, max(p.BStride, 1)))
	}
	c.covered()
}

func checkConcat(c *checker) {
	p := paramsOf[ConcatParams](c)
	parts, _ := c.constant("fc_parts")
	c.require(parts >= 2 && parts <= MaxParts, "fc_parts", "%d, not 2 to %d", parts, MaxParts)
	c.positive(size{"rows", p.Rows}, size{"width", p.Width})
	width := uint64(0)
	for i, n := range []uint32{p.N0, p.N1, p.N2, p.N3} {
		if field := fmt.Sprint("n", i); uint32(i) < parts {
			c.positive(size{field, n})
			c.dense(fmt.Sprint("x", i), p.Rows, n)
		} else {
			c.require(n == 0, field, "%d, of a part that is none of %d", n, parts)
		}
		width += uint64(n)
	}
	c.require(width == uint64(p.Width), "width", "%d, of parts of %d columns", p.Width, width)
	c.dense("out", p.Rows, p.Width)
	c.covered()
}

func checkWeightedSum(c *checker) {
	p := paramsOf[WeightedSumParams](c)
	c.positive(size{"rows", p.Rows}, size{"width", p.Width}, size{"each", p.Each})
	c.dense("x", p.Rows, p.Each, p.Width)
	c.dense("weights", p.Rows, p.Each)
	c.dense("out", p.Rows, p.Width)
	c.covered()
}

func checkRouter(c *checker) {
	p := paramsOf[RouterParams](c)
	c.positive(size{"rows", p.Rows}, size{"experts", p.Experts}, size{"chosen", p.Chosen})
	c.require(p.Experts <= MaxExperts, "experts", "%d, at most %d", p.Experts, MaxExperts)
	from := p.Experts
	if p.Groups > 1 {
		c.require(p.Groups <= MaxChosen && p.Experts%p.Groups == 0, "groups", "%d of %d experts, at most %d", p.Groups, p.Experts, MaxChosen)
		c.require(p.UsedGroups >= 1 && p.UsedGroups <= p.Groups, "used_groups", "%d of %d", p.UsedGroups, p.Groups)
		from = p.Experts / p.Groups * p.UsedGroups
	}
	c.require(p.Chosen <= min(from, MaxChosen), "chosen", "%d, at most %d", p.Chosen, min(from, MaxChosen))
	c.require(p.Sharpness > 0, "sharpness", "%g; it must be positive", p.Sharpness)
	c.choice("fc_score", 1, 2, 3, 4)
	c.rows("logits", p.Rows, p.Stride, p.Experts)
	c.dense("weights", p.Rows, p.Chosen)
	c.dense("experts", p.Rows, p.Chosen)
	for _, name := range []string{"bias", "gains"} {
		if c.on("fc_" + name) {
			c.dense(name, p.Experts)
		}
	}
	c.covered()
}

// rotated checks the number of rotated elements of a head, and the buffers of positions and
// frequency factors.
func (c *checker) rotated(tokens, first, head, rotated uint32) {
	c.require(rotated <= head && rotated%2 == 0, "rotated", "%d of %d elements; it must be even and no more", rotated, head)
	if c.on("fc_factors") || c.on("fc_table") {
		c.dense("factors", rotated/2)
	}
	if c.unlessOff("fc_positions") {
		c.dense("positions", tokens)
	} else {
		c.require(uint64(first)+uint64(tokens) <= 1<<31, "first", "%d and %d tokens: positions have 31 bits", first, tokens)
	}
}

func checkRope(c *checker) {
	p := paramsOf[RopeParams](c)
	c.positive(size{"tokens", p.Tokens}, size{"heads", p.Heads}, size{"head", p.Head})
	c.require(p.Head%2 == 0, "head", "%d is odd", p.Head)
	c.narrow(size{"heads", p.Heads}, size{"head", p.Head})
	c.rotated(p.Tokens, p.First, p.Head, p.Rotated)
	c.rows("x", p.Tokens, p.XStride, p.Heads*p.Head)
	c.dense("out", p.Tokens, p.Heads, p.Head)
	c.covered()
}

func checkRopeWrite(c *checker) {
	p := paramsOf[RopeWriteParams](c)
	c.positive(size{"tokens", p.Tokens})
	c.head(p.Head)
	c.groups(p.Heads, p.KvHeads)
	c.rotated(p.Tokens, p.First, p.Head, p.Rotated)
	queries, keys := product(uint64(p.Heads), uint64(p.Head)), product(uint64(p.KvHeads), uint64(p.Head))
	tokens := uint64(p.Tokens)
	if c.on("fc_separate") {
		c.holds("qkv", spread(tokens, uint64(p.QStride), queries))
		c.holds("k", spread(tokens, uint64(p.KStride), keys))
		c.holds("v", spread(tokens, uint64(p.VStride), keys))
	} else {
		c.holds("qkv", max(spread(tokens, uint64(p.QStride), queries), spread(tokens, uint64(p.KStride), sum(queries, keys)),
			spread(tokens, uint64(p.VStride), sum(queries, product(2, keys)))))
	}
	if c.unlessOff("fc_slots") {
		c.dense("slots", p.Tokens)
	} else if !c.unlessOff("fc_positions") {
		c.require(uint64(p.First)+tokens <= uint64(p.Block), "first", "%d and %d tokens, of %d rows in the cache", p.First, p.Tokens, p.Block)
	}
	c.dense("q_out", p.Tokens, p.Heads, p.Head)
	c.caches(p.KvHeads, p.Block, p.Head, "k_cache", "v_cache")
	if c.kernel.Family == "head_norm_rope_kv_write" {
		queries, keys := uint32(1), uint32(1)
		if c.on("fc_all_heads") {
			queries, keys = p.Heads, p.KvHeads
		}
		c.dense("q_norm", queries, p.Head)
		c.dense("k_norm", keys, p.Head)
	}
	rows := uint64(p.Heads) + 2*uint64(p.KvHeads)
	c.require(rows <= math.MaxInt32, "heads", "%d and %d: rows have 31 bits", p.Heads, p.KvHeads)
	c.grid(tiles(uint32(rows), uint32(RopeWriteRows(int(p.Head)))), uint64(p.Tokens), 1)
	c.threads(uint32(c.kernel.MaxThreads))
}

func checkLatentWrite(c *checker) {
	p := paramsOf[LatentWriteParams](c)
	c.positive(size{"tokens", p.Tokens}, size{"heads", p.Heads})
	c.headUpTo(p.Head, MaxLatent)
	c.latent(p)
	c.require(uint64(p.Rows) == uint64(p.Heads)+1, "rows", "%d for %d heads and a row of the cache", p.Rows, p.Heads)
	c.dense("positions", p.Tokens)
	c.dense("q_out", p.Tokens, p.Heads, p.Head)
	c.caches(p.KvHeads, p.Block, p.Head, "k_cache")
	c.covered()
}

// latent checks what queries over a latent cache and a row of it are made of.
func (c *checker) latent(p LatentWriteParams) {
	c.positive(size{"rotated", p.Rotated})
	c.require(p.KvHeads == 1, "kv_heads", "%d; all heads share one row", p.KvHeads)
	c.require(p.Rotated%2 == 0 && p.Rotated < p.Head && p.Rotated <= p.QHead, "rotated", "%d of rows of %d and heads of %d; it must be even and less", p.Rotated, p.Head, p.QHead)
	if c.on("fc_factors") || c.on("fc_table") {
		c.dense("factors", p.Rotated/2)
	}
	c.dense("slots", p.Tokens)
	c.dense("absorbed", p.Tokens, p.Heads, p.Head-p.Rotated)
	c.dense("q", p.Tokens, p.Heads, p.QHead)
	c.rowsFrom("all", p.Tokens, p.AllStride, p.AllFrom, p.Head)
	c.dense("gain", p.Head-p.Rotated)
}

func checkLatentAttention(c *checker) {
	p := c.attention()
	l := paramsOf[LatentAttentionParams](c)
	c.latent(LatentWriteParams{Tokens: l.Tokens, Heads: l.Heads, KvHeads: l.KvHeads, Head: l.Head, QHead: l.QHead, AllStride: l.AllStride, AllFrom: l.AllFrom, Rotated: l.Rotated})
	have, want := c.bytes(c.arg("k_slots").Index), c.bytes(c.arg("k_cache").Index)
	c.require(have == want, "k_slots", "%d bytes, k_cache has %d", have, want)
	each := c.choice("fc_heads", 1, 2, MaxHeads)
	c.require(each == 1 || p.Head <= MaxSmallHead && product(uint64(each), uint64(p.Head)) <= MaxQueries, "fc_heads", "%d of %d elements; a threadgroup takes up to %d", each, p.Head, MaxQueries)
	c.grid(uint64(HeadGroups(int64(p.Heads), 1, int64(each))), uint64(p.Tokens), uint64(c.partitions(p)))
	c.threads(uint32(c.kernel.MaxThreads))
}

func checkIndices(c *checker) {
	p := paramsOf[IndicesParams](c)
	c.positive(size{"rows", p.Rows}, size{"width", p.Width})
	c.dense("positions", p.Rows)
	c.dense("out", p.Rows, p.Width)
	c.covered()
}

// attention checks the arguments that all kernels over the paged cache share, except the
// queries. The parameter structs of these kernels begin with the same fields.
func (c *checker) attention() AttentionParams {
	p := paramsOf[AttentionParams](c)
	c.positive(size{"tokens", p.Tokens}, size{"seqs", p.Seqs}, size{"block", p.Block}, size{"table_stride", p.TableStride})
	if c.kernel.Family == "attention_write" {
		c.head(p.Head)
	} else {
		c.headUpTo(p.Head, MaxLatent)
	}
	c.groups(p.Heads, p.KvHeads)
	c.dense("positions", p.Tokens)
	c.holds("cu_seqlens", uint64(p.Seqs)+1)
	c.dense("context_lens", p.Seqs)
	c.dense("block_table", p.Seqs, p.TableStride)
	for _, name := range []string{"k_cache", "v_cache"} {
		whole := uint32(8) // elements per load
		if c.arg(name).Element == Blocks {
			whole = 32
			c.require(p.Head%whole == 0, "head", "%d; blocks of Q8_0 need a multiple of 32", p.Head)
		}
		for _, s := range []size{{"block_stride", p.BlockStride}, {"head_stride", p.HeadStride}, {"row_stride", p.RowStride}} {
			c.require(s.n%whole == 0, s.field, "%d is no multiple of %d", s.n, whole)
		}
		c.holds(name, sum(product(uint64(p.KvHeads)-1, uint64(p.HeadStride)), spread(uint64(p.Block), uint64(p.RowStride), uint64(p.Head))))
	}
	k, v := c.bytes(c.arg("k_cache").Index), c.bytes(c.arg("v_cache").Index)
	c.require(k == v, "v_cache", "%d bytes, k_cache has %d", v, k)
	c.slopes(p.Heads)
	return p
}

// headGate checks the gate that attention's results are multiplied by.
func (c *checker) headGate(tokens, heads, head, stride, from uint32) {
	kind, _ := c.constant("fc_gate")
	if c.require(int(kind) < len(activations), "fc_gate", "%d is unknown", kind); kind == 0 || int(kind) >= len(activations) {
		return
	}
	c.require(!activations[kind].gated, "fc_gate", "%s exists as a gate of two products only", activations[kind].name)
	width := heads
	if !c.on("fc_head_gate") {
		width *= head
		c.require(stride%4 == 0 && from%4 == 0, "gate_stride", "%d from %d: elements are read four at a time", stride, from)
	}
	c.rowsFrom("gate", tokens, stride, from, width)
}

func (c *checker) slopes(heads uint32) {
	if c.on("fc_slopes") {
		c.dense("slopes", heads)
	}
}

func checkAttentionVec(c *checker) {
	p := c.attention()
	c.dense("q", p.Tokens, p.Heads, p.Head)
	rows := c.choice("fc_rows", 1, 2, 4, MaxVecRows)
	owners := uint64(p.Tokens) // upper bound of the threadgroups with tokens
	if rows > 1 {
		owners = uint64(p.Tokens)/uint64(rows) + uint64(p.Seqs)
	}
	partitions := c.partitions(p)
	each := c.choice("fc_heads", 1, 2, MaxHeads)
	most := uint32(MaxVecRows)
	if p.Head > MaxSmallHead {
		most = 1
	}
	c.require(rows*each <= most, "fc_heads", "%d of %d tokens; a threadgroup takes up to %d rows", each, rows, most)
	c.owners(c.Grid[1], owners)
	c.grid(uint64(HeadGroups(int64(p.Heads), int64(p.KvHeads), int64(each))), uint64(c.Grid[1]), uint64(partitions))
	c.threads(uint32(c.kernel.MaxThreads))
}

// partitions checks the result buffers, and returns the number of partitions of the keys
// (split-KV): 1 without fc_split.
func (c *checker) partitions(p AttentionParams) uint32 {
	split, set := c.constant("fc_split")
	if !set {
		c.dense("out", p.Tokens, p.Heads, p.Head)
		c.sinks(p.Heads)
		if _, gated := c.kernel.Named("gate"); gated {
			c.headGate(p.Tokens, p.Heads, p.Head, p.GateStride, p.GateFrom)
		}
		return 1
	}
	c.require(split > 0 && split%8 == 0, "fc_split", "partitions of %d keys; a multiple of 8 is needed", split)
	c.dense("part", p.Tokens, p.Heads, c.Grid[2], p.Head)
	c.dense("statistics", p.Tokens, p.Heads, c.Grid[2], 2)
	return c.Grid[2]
}

func checkAttentionWrite(c *checker) {
	p := c.attention()
	heads, w := uint64(p.Heads), paramsOf[AttentionWriteParams](c)
	writes := !c.on("fc_queries")
	if writes {
		heads = sum(heads, product(2, uint64(p.KvHeads)))
		c.dense("slots", p.Tokens)
	}
	c.holds("qkv", spread(uint64(p.Tokens), uint64(w.QkvStride), product(heads, uint64(p.Head))))
	c.rotated(p.Tokens, 0, p.Head, w.Rotated)
	if c.on("fc_norms") {
		c.dense("q_norm", p.Head)
	}
	if c.on("fc_norms") && writes {
		c.dense("k_norm", p.Head)
	}
	for _, name := range []string{"k_slots", "v_slots"} {
		if !writes {
			break
		}
		have, want := c.bytes(c.arg(name).Index), c.bytes(c.arg("k_cache").Index)
		c.require(have == want, name, "%d bytes, k_cache has %d", have, want)
	}
	each := c.choice("fc_heads", 1, 2, MaxHeads)
	c.require(each == 1 || product(uint64(each), uint64(p.Head)) <= MaxQueries, "fc_heads", "%d of %d elements; a threadgroup takes up to %d", each, p.Head, MaxQueries)
	c.grid(uint64(HeadGroups(int64(p.Heads), int64(p.KvHeads), int64(each))), uint64(p.Tokens), uint64(c.partitions(p)))
	c.threads(uint32(c.kernel.MaxThreads))
}

func checkAttentionTile(c *checker) {
	p := c.attention()
	c.dense("q", p.Tokens, p.Heads, p.Head)
	c.dense("out", p.Tokens, p.Heads, p.Head)
	c.sinks(p.Heads)
	c.headGate(p.Tokens, p.Heads, p.Head, p.GateStride, p.GateFrom)
	c.owners(c.Grid[0], tiles(p.Tokens, AttentionTile)+uint64(p.Seqs))
	if c.on("fc_map") {
		c.holds("map", uint64(c.Grid[0])) // surplus threadgroups read it too
	}
	c.grid(uint64(c.Grid[0]), uint64(p.Heads), AttentionParts(int64(p.Head)))
	c.threads(uint32(c.kernel.MaxThreads))
}

// owners checks a grid axis that may have surplus threadgroups, and the map of its
// threadgroups to sequences.
func (c *checker) owners(have uint32, least uint64) {
	c.require(uint64(have) >= least, "grid", "%v threadgroups, one axis needs %d", c.Grid, least)
	if c.on("fc_map") {
		c.holds("map", least)
	}
}

func (c *checker) sinks(heads uint32) {
	if c.on("fc_sinks") {
		c.dense("sinks", heads)
	}
}

func checkReduce(c *checker) {
	p := paramsOf[ReduceParams](c)
	c.positive(size{"tokens", p.Tokens}, size{"heads", p.Heads}, size{"partitions", p.Partitions})
	c.headUpTo(p.Head, MaxLatent)
	c.dense("part", p.Tokens, p.Heads, p.Partitions, p.Head)
	c.dense("statistics", p.Tokens, p.Heads, p.Partitions, 2)
	c.dense("out", p.Tokens, p.Heads, p.Head)
	c.sinks(p.Heads)
	c.headGate(p.Tokens, p.Heads, p.Head, p.GateStride, p.GateFrom)
	c.coveredBy(round32(p.Head/4), uint32(c.kernel.MaxThreads))
}

func checkCacheWrite(c *checker) {
	p := paramsOf[CacheWriteParams](c)
	c.positive(size{"tokens", p.Tokens})
	c.narrow(size{"kv_heads", p.KvHeads}, size{"head", p.Head})
	c.caches(p.KvHeads, p.Block, p.Head, "k_cache", "v_cache")
	c.rows("k", p.Tokens, p.KStride, p.KvHeads*p.Head)
	c.rows("v", p.Tokens, p.VStride, p.KvHeads*p.Head)
	c.dense("slots", p.Tokens)
	c.covered()
}

func checkCacheRead(c *checker) {
	p := paramsOf[CacheReadParams](c)
	c.positive(size{"seqs", p.Seqs}, size{"context", p.Context}, size{"table_stride", p.TableStride})
	c.narrow(size{"kv_heads", p.KvHeads}, size{"head", p.Head})
	c.caches(p.KvHeads, p.Block, p.Head, "cache")
	c.dense("context_lens", p.Seqs)
	c.dense("block_table", p.Seqs, p.TableStride)
	c.dense("out", p.Seqs, p.Context, p.KvHeads, p.Head)
	c.covered()
}

func checkShortConv(c *checker) {
	p := paramsOf[ShortConvParams](c)
	c.positive(size{"tokens", p.Tokens}, size{"seqs", p.Seqs}, size{"width", p.Width})
	c.require(p.Taps >= 2 && p.Taps <= MaxTaps, "taps", "%d; there may be 2 to %d", p.Taps, MaxTaps)
	c.rows("x", p.Tokens, p.XStride, p.Width)
	if c.on("fc_gated") {
		c.rows("in_gate", p.Tokens, p.XStride, p.Width)
		c.rows("out_gate", p.Tokens, p.XStride, p.Width)
	}
	if c.on("fc_bias") {
		c.dense("bias", p.Width)
	}
	c.dense("w", p.Width, p.Taps)
	c.dense("state", p.Taps-1, p.Width)
	c.dense("state_out", p.Taps-1, p.Width)
	c.steps(p.Seqs)
	c.dense("out", p.Tokens, p.Width)
	c.covered()
}

func checkDeltaNet(c *checker) {
	p := paramsOf[DeltaNetParams](c)
	c.deltaRule(p)
	c.coveredBy(round32(p.Head), round32(p.Head))
}

func checkDeltaNetPieces(c *checker) {
	p := paramsOf[DeltaNetParams](c)
	c.require(p.Head%8 == 0 && p.Head <= MaxPieceHead, "head", "%d; it may be a multiple of 8 up to %d", p.Head, MaxPieceHead)
	c.deltaRule(p)
	c.covered()
}

func (c *checker) deltaRule(p DeltaNetParams) {
	c.positive(size{"tokens", p.Tokens}, size{"seqs", p.Seqs}, size{"head", p.Head})
	c.groups(p.Heads, p.KeyHeads)
	c.require(p.Head <= MaxSmallHead, "head", "%d; it may be up to %d", p.Head, MaxSmallHead)
	c.require(p.Share == 1 || p.Share == p.Heads/max(p.KeyHeads, 1), "share", "%d; it may be 1, or %d heads over %d", p.Share, p.Heads, p.KeyHeads)
	c.narrow(size{"heads", p.Heads}, size{"head", p.Head}, size{"head", p.Head})
	c.narrow(size{"key_heads", p.KeyHeads}, size{"head", p.Head})
	c.rows("alpha", p.Tokens, p.GateStride, p.Heads)
	c.rowsFrom("beta", p.Tokens, p.GateStride, p.BetaFrom, p.Heads)
	if c.on("fc_gated") {
		c.dense("gain", p.Head)
		c.rowsFrom("z", p.Tokens, p.ZStride, p.ZFrom, p.Heads*p.Head)
	}
	for _, name := range []string{"decay", "bias"} {
		c.dense(name, p.Heads)
	}
	for _, name := range []string{"state", "state_out"} {
		c.dense(name, p.Heads, p.Head, p.Head)
	}
	c.holds("qkv", product(product(uint64(p.Tokens), uint64(p.Head)), 2*uint64(p.KeyHeads)+uint64(p.Heads)))
	c.dense("out", p.Tokens, p.Heads, p.Head)
	c.steps(p.Seqs)
}

func checkMamba2(c *checker) {
	p := paramsOf[Mamba2Params](c)
	c.stateSpace(p)
	across := max(round32(p.Head), 32)
	c.coveredBy(Mamba2Threads(across), Mamba2Threads(across))
}

func checkMamba2Pieces(c *checker) {
	p := paramsOf[Mamba2Params](c)
	for _, s := range []size{{"head", p.Head}, {"states", p.States}} {
		c.require(s.n%8 == 0 && s.n <= MaxPieceHead, s.field, "%d; it may be a multiple of 8 up to %d", s.n, MaxPieceHead)
	}
	c.stateSpace(p)
	c.covered()
}

func (c *checker) stateSpace(p Mamba2Params) {
	c.positive(size{"tokens", p.Tokens}, size{"seqs", p.Seqs}, size{"head", p.Head}, size{"states", p.States})
	c.groups(p.Heads, p.Groups)
	for _, s := range []size{{"head", p.Head}, {"states", p.States}} {
		c.require(s.n <= MaxSmallHead, s.field, "%d; it may be up to %d", s.n, MaxHead)
	}
	c.narrow(size{"heads", p.Heads}, size{"head", p.Head}, size{"states", p.States})
	c.rowsFrom("dt", p.Tokens, p.DtStride, p.DtFrom, p.Heads)
	if c.on("fc_gated") {
		c.rows("z", p.Tokens, p.ZStride, p.Heads*p.Head)
	}
	for _, name := range []string{"decay", "bias", "skip"} {
		c.dense(name, p.Heads)
	}
	for _, name := range []string{"state", "state_out"} {
		c.dense(name, p.Heads, p.States, p.Head)
	}
	c.holds("xbc", product(uint64(p.Tokens), uint64(p.Heads)*uint64(p.Head)+2*uint64(p.Groups)*uint64(p.States)))
	c.dense("out", p.Tokens, p.Heads, p.Head)
	c.steps(p.Seqs)
}

// steps checks the buffers by which a kernel finds the recurrent states of a step's
// sequences.
func (c *checker) steps(seqs uint32) {
	c.require(seqs < math.MaxUint32, "seqs", "%d", seqs)
	c.dense("cu_seqlens", seqs+1)
	c.dense("states", seqs, 2)
}

func checkRepeat(c *checker) {
	p := paramsOf[RepeatParams](c)
	c.positive(size{"tokens", p.Tokens}, size{"kv_heads", p.KvHeads}, size{"head", p.Head}, size{"repeats", p.Repeats})
	for _, a := range c.kernel.Args {
		if a.Access == Read {
			c.dense(a.Name, p.Tokens, p.KvHeads, p.Head)
		} else {
			c.dense(a.Name, p.Tokens, p.KvHeads, p.Repeats, p.Head)
		}
	}
	c.require(uint64(c.Grid[0])*RepeatThreads < 1<<32, "grid", "%v: the number of threads has 32 bits", c.Grid)
	c.grid(uint64(c.Grid[0]), 1, 1) // threads stride over the elements
	c.threads(RepeatThreads)
}

func checkTranspose(c *checker) {
	p := paramsOf[TransposeParams](c)
	last := uint64(1)
	for i, n := range p.Size {
		c.positive(size{[]string{"size[0]", "size[1]", "size[2]"}[i], n})
		last = sum(last, product(uint64(max(n, 1))-1, uint64(p.Stride[i])))
	}
	c.holds("x", last)
	c.dense("out", p.Size[:]...)
	c.covered()
}

func checkMatmul(c *checker) {
	p := paramsOf[MatmulParams](c)
	c.positive(size{"batch", p.Batch}, size{"m", p.M}, size{"n", p.N}, size{"k", p.K})
	c.dense("a", p.Batch, p.M, p.K)
	c.dense("b", p.Batch, p.N, p.K)
	c.dense("out", p.Batch, p.M, p.N)
	c.covered()
}

func checkMask(c *checker) {
	p := paramsOf[MaskParams](c)
	c.positive(size{"heads", p.Heads}, size{"tokens", p.Tokens}, size{"seqs", p.Seqs}, size{"context", p.Context})
	c.narrow(size{"seqs", p.Seqs}, size{"context", p.Context})
	c.dense("scores", p.Heads, p.Tokens, p.Seqs, p.Context)
	c.dense("positions", p.Tokens)
	c.holds("cu_seqlens", uint64(p.Seqs)+1)
	c.dense("context_lens", p.Seqs)
	c.slopes(p.Heads)
	c.dense("out", p.Heads, p.Tokens, p.Seqs, p.Context)
	c.covered()
}

func checkCopyBlocks(c *checker) {
	p := paramsOf[CopyBlocksParams](c)
	c.positive(size{"pairs", p.Pairs}, size{"width", p.Width})
	c.require(p.Width%4 == 0, "width", "%d is no multiple of 4", p.Width)
	c.require(p.BlockStride >= p.Width, "block_stride", "%d, with blocks of %d", p.BlockStride, p.Width)
	if c.arg("k_from").Element == Blocks {
		for _, n := range []size{{"width", p.Width}, {"block_stride", p.BlockStride}} {
			c.require(n.n%32 == 0, n.field, "%d; blocks of Q8_0 need a multiple of 32", n.n)
		}
	}
	for _, name := range []string{"k_from", "v_from", "k_cache", "v_cache"} {
		c.dense(name, p.Width) // the number of blocks depends on the pairs' contents
	}
	c.dense("pairs", p.Pairs, 2)
	c.covered()
}
