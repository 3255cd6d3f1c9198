package kernels

import "fmt"

const (
	pagedArgs      = "0 q read $0; 1 k_cache read $0; 2 v_cache read $0; 3 block_table read int; 4 context_lens read int; 5 %s write $0; 7 alibi_slopes read float?; 10 positions read int?; 11 map read int?"
	pagedConstants = "0 fc_head uint?; 1 fc_block uint?; 2 fc_alibi bool?; 3 fc_window bool?; 4 fc_soft_cap bool?; 6 fc_map bool?"
)

// publishedFamilies are kernels with the interfaces of other engines, for conformance tests:
// attention over contiguous tensors, and over a cache in the layout of vLLM and Aphrodite. Their
// checks follow; package published has where each comes from.
var publishedFamilies = []family{
	{name: "flash_attention", check: checkFlash, file: "published/flash.metal", summary: "attention over contiguous tensors", instances: []string{"f32", "f16", "bf16"},
		args: "0 q read $0; 1 k read $0; 2 v read $0; 3 out write $0", params: FlashParams{}, paramsIndex: 4,
		constants: "0 fc_head uint?; 1 fc_causal bool?", threadgroup: tileMemory, grid: "seq_q/32, heads, batch", maxThreads: 128},
	{name: "paged_attention_v1", check: checkPaged, file: "published/paged_attention.metal", summary: "attention of one query per sequence, or of single tokens, over vLLM's cache layout", instances: rowTypes,
		args: fmt.Sprintf(pagedArgs, "out") + "; 12 sinks read float?", params: PagedAttentionParams{}, paramsIndex: 6, constants: pagedConstants + "; 5 fc_sinks bool?",
		threadgroup: pagedMemory, maxThreads: 256},
	{name: "paged_attention_v2", check: checkPaged, file: "published/paged_attention.metal", summary: "paged_attention_v1 in partitions of 512 keys", instances: rowTypes,
		args: fmt.Sprintf(pagedArgs, "part") + "; 8 exp_sums write float; 9 max_logits write float", params: PagedAttentionParams{},
		paramsIndex: 6, constants: pagedConstants, threadgroup: pagedMemory, maxThreads: 256},
	{name: "paged_attention_reduce", check: checkPagedReduce, file: "published/paged_attention.metal", summary: "merges the partitions of paged_attention_v2",
		instances: rowTypes, args: "0 exp_sums read float; 1 max_logits read float; 2 part read $0; 3 context_lens read int; 4 out write $0; " +
			"10 positions read int?; 11 map read int?; 12 sinks read float?",
		params: PagedAttentionParams{}, paramsIndex: 5, constants: "0 fc_head uint?; 5 fc_sinks bool?; 6 fc_map bool?", maxThreads: 256},
	{name: "reshape_and_cache", check: checkPagedWrite, file: "published/reshape_and_cache.metal", summary: "K and V of every token into its slot of vLLM's cache layout",
		instances: rowTypes, args: "0 k read $0; 1 v read $0; 2 slots read int; 3 k_cache write $0; 4 v_cache write $0",
		params: PagedWriteParams{}, paramsIndex: 5, grid: "kv_heads·head/256, tokens", maxThreads: 256},
}

// pagedMemory returns the threadgroup memory in bytes: the query, and for each of eight
// simdgroups its weights, an output row and statistics.
func pagedMemory([]Element) int { return 4 * (MaxSmallHead + 8*(32+MaxSmallHead+2)) }

func checkFlash(c *checker) {
	p := paramsOf[FlashParams](c)
	c.positive(size{"batch", p.Batch}, size{"seq_q", p.SeqQ}) // no keys give zeros
	c.head(p.Head)
	c.groups(p.Heads, p.KvHeads)
	for _, s := range []size{{"q_head_stride", p.QHeadStride}, {"q_row_stride", p.QRowStride}, {"kv_head_stride", p.KvHeadStride}, {"kv_row_stride", p.KvRowStride}} {
		c.require(s.n%4 == 0, s.field, "%d is no multiple of 4", s.n)
	}
	c.require(p.Heads == 1 || p.QHeadStride >= p.Head, "q_head_stride", "%d, with heads of %d", p.QHeadStride, p.Head)
	c.require(p.SeqQ == 1 || p.QRowStride >= p.Head, "q_row_stride", "%d, with heads of %d", p.QRowStride, p.Head)
	tensor := func(name string, heads, rows, headStride, rowStride uint32) {
		if rows == 0 {
			c.holds(name, 0)
			return
		}
		batch := product(product(uint64(heads), uint64(rows)), uint64(p.Head))
		one := sum(product(uint64(heads)-1, uint64(headStride)), spread(uint64(rows), uint64(rowStride), uint64(p.Head)))
		c.holds(name, sum(product(uint64(p.Batch)-1, batch), one))
	}
	tensor("q", p.Heads, p.SeqQ, p.QHeadStride, p.QRowStride)
	tensor("k", p.KvHeads, p.SeqKv, p.KvHeadStride, p.KvRowStride)
	tensor("v", p.KvHeads, p.SeqKv, p.KvHeadStride, p.KvRowStride)
	tensor("out", p.Heads, p.SeqQ, p.QHeadStride, p.QRowStride)
	c.covered()
}

// pagedBlocks checks the caches in vLLM's layout, which hold at least one block each.
func (c *checker) pagedBlocks(kvHeads, head, block, headStride uint32, fc string) {
	c.require(block == 8 || block == 16 || block == 32, "block", "%d slots; a block has 8, 16 or 32", block)
	if fixed, set := c.constant(fc); set {
		c.require(fixed == block, fc, "%d, for blocks of %d slots", fixed, block)
	}
	if kvHeads > 0 {
		one := sum(product(uint64(kvHeads)-1, uint64(headStride)), product(uint64(head), uint64(block)))
		c.holds("k_cache", one)
		c.holds("v_cache", one)
	}
	k, v := c.bytes(c.arg("k_cache").Index), c.bytes(c.arg("v_cache").Index)
	c.require(k == v, "v_cache", "%d bytes, k_cache has %d", v, k)
}

// checkPaged checks attention with one query per sequence; the grid gives the number of
// sequences.
func checkPaged(c *checker) {
	p := paramsOf[PagedAttentionParams](c)
	seqs := c.Grid[1]
	c.positive(size{"table_stride", p.TableStride})
	c.head(p.Head)
	c.groups(p.Heads, p.KvHeads)
	for _, s := range []size{{"block_stride", p.BlockStride}, {"head_stride", p.HeadStride}} {
		c.require(s.n%8 == 0, s.field, "%d is no multiple of 8", s.n)
	}
	c.pagedBlocks(p.KvHeads, p.Head, p.Block, p.HeadStride, "fc_block")
	c.holds("q", spread(uint64(seqs), uint64(p.QStride), product(uint64(p.Heads), uint64(p.Head))))
	c.pagedRows(seqs)
	c.dense("block_table", c.sequences(seqs), p.TableStride)
	if c.on("fc_alibi") {
		c.dense("alibi_slopes", p.Heads)
	}
	partitions := uint32(1)
	if c.kernel.Family == "paged_attention_v2" {
		c.positive(size{"partitions", p.Partitions})
		partitions = p.Partitions
		c.dense("part", seqs, p.Heads, partitions, p.Head)
		c.dense("exp_sums", seqs, p.Heads, partitions)
		c.dense("max_logits", seqs, p.Heads, partitions)
	} else {
		c.dense("out", seqs, p.Heads, p.Head)
		c.sinks(p.Heads)
	}
	c.grid(uint64(p.Heads), uint64(seqs), uint64(partitions))
	c.threads(uint32(c.kernel.MaxThreads))
}

// pagedRows checks the buffers that define the visible keys of each query row.
func (c *checker) pagedRows(rows uint32) {
	c.dense("context_lens", c.sequences(rows))
	if c.on("fc_map") {
		c.dense("map", rows)
		c.dense("positions", rows)
	}
}

// sequences returns the least number of sequences: that of rows, or 1 if a map gives the
// sequence of each row.
func (c *checker) sequences(rows uint32) uint32 {
	if c.on("fc_map") {
		return 1
	}
	return rows
}

func checkPagedReduce(c *checker) {
	p := paramsOf[PagedAttentionParams](c)
	seqs := c.Grid[1]
	c.positive(size{"heads", p.Heads}, size{"partitions", p.Partitions})
	c.head(p.Head)
	c.dense("part", seqs, p.Heads, p.Partitions, p.Head)
	c.dense("exp_sums", seqs, p.Heads, p.Partitions)
	c.dense("max_logits", seqs, p.Heads, p.Partitions)
	c.pagedRows(seqs)
	c.sinks(p.Heads)
	c.dense("out", seqs, p.Heads, p.Head)
	c.grid(uint64(p.Heads), uint64(seqs), 1)
	c.threadsBetween(round32(p.Head), uint32(c.kernel.MaxThreads))
}

func checkPagedWrite(c *checker) {
	p := paramsOf[PagedWriteParams](c)
	c.positive(size{"tokens", p.Tokens}, size{"kv_heads", p.KvHeads})
	c.head(p.Head)
	c.narrow(size{"kv_heads", p.KvHeads}, size{"head", p.Head})
	c.pagedBlocks(p.KvHeads, p.Head, p.Block, p.HeadStride, "")
	c.rows("k", p.Tokens, p.KStride, p.KvHeads*p.Head)
	c.rows("v", p.Tokens, p.VStride, p.KvHeads*p.Head)
	c.dense("slots", p.Tokens)
	c.covered()
}
