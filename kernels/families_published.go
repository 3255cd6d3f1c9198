package kernels

import "fmt"

const (
	pagedArgs      = "0 q read $0; 1 k_cache read $0; 2 v_cache read $0; 3 block_table read int; 4 context_lens read int; 5 %s write $0; 7 alibi_slopes read float?; 10 positions read int?; 11 map read int?"
	pagedConstants = "0 fc_head uint?; 1 fc_block uint?; 2 fc_alibi bool?; 3 fc_window bool?; 4 fc_soft_cap bool?; 6 fc_map bool?"
)

// publishedFamilies are kernels with the interfaces of other engines, for conformance tests:
// attention over contiguous tensors, and over a cache in the layout of vLLM and Aphrodite.
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
func pagedMemory([]Element) int { return 4 * (MaxHead + 8*(32+MaxHead+2)) }
