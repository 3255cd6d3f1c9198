package kernels

import (
	"slices"
	"strings"
)

const (
	attentionArgs = "0 q read $0; 1 k_cache read $1; 2 v_cache read $1; 3 positions read int; 4 cu_seqlens read int; " +
		"5 context_lens read int; 6 block_table read int; "
	attentionOptions   = "11 sinks read float?; 12 map read int?; 13 slopes read float?; 14 gate read $0?"
	attentionConstants = "2 fc_window bool?; 3 fc_soft_cap bool?; 4 fc_sinks bool?; 5 fc_map bool?; 7 fc_slopes bool?; "
	headsConstant      = "; 12 fc_heads uint?"
	gateConstants      = "; 13 fc_gate uint?; 14 fc_head_gate bool?"
)

// attentionPart is the number of elements of a head that a threadgroup of attention_tile sums, and that
// those of attention_vec merge at a time.
const attentionPart = 256

// cachedOrBfloat adds the instance for models whose activations and cache are bfloat.
var cachedOrBfloat = append(slices.Clone(cached), "bf16_bf16")

// attentionFamilies read and write the KV cache.
var attentionFamilies = []family{
	{name: "attention_vec", check: checkAttentionVec, file: "attention_vec.metal", summary: "attention of single tokens over the paged cache",
		instances: cachedOrBfloat, args: attentionArgs + "7 out write $0?; 9 part write float?; 10 statistics write float?; " + attentionOptions, params: AttentionParams{},
		paramsIndex: 8, constants: "0 fc_head uint?; 1 fc_split uint?; " + attentionConstants + "6 fc_rows uint?" + headsConstant + gateConstants, threadgroup: floats(8*attentionPart + 16), maxThreads: 256},
	{name: "attention_write", check: checkAttentionWrite, file: "attention_write.metal", summary: "RoPE, the cache write and attention of single tokens, heads normalised before",
		instances: cachedOrBfloat, args: "0 qkv read $0; 1 k_cache read $1; 2 v_cache read $1; 3 positions read int; 4 cu_seqlens read int; 5 context_lens read int; 6 block_table read int; " +
			"7 out write $0?; 9 part write float?; 10 statistics write float?; 11 sinks read float?; 12 slots read int?; 13 slopes read float?; 14 factors read float?; " +
			"15 q_norm read float?; 16 k_norm read float?; 17 k_slots write $1?; 18 v_slots write $1?; 19 gate read $0?", params: AttentionWriteParams{},
		paramsIndex: 8, constants: "0 fc_head uint?; 1 fc_split uint?; " + "2 fc_window bool?; 3 fc_soft_cap bool?; 4 fc_sinks bool?; 7 fc_slopes bool?; " +
			"8 fc_interleaved bool; 9 fc_factors bool?; 10 fc_table bool?; 11 fc_norms bool?" + headsConstant + gateConstants + "; 15 fc_norm_values bool?; 16 fc_queries bool?", threadgroup: floats(8*attentionPart + 2*MaxHead + MaxQueries + 16), maxThreads: 256},
	{name: "latent_attention", check: checkLatentAttention, file: "latent_attention.metal", summary: "norm and RoPE of what latent attention caches, the write and attention of single tokens",
		instances: cachedOrBfloat, args: "0 absorbed read $0; 1 q read $0; 2 all read $0; 3 gain read float; 4 positions read int; 5 slots read int; 6 factors read float?; 7 out write $0?; " +
			"8 k_cache read $1; 10 v_cache read $1; 11 k_slots write $1; 12 cu_seqlens read int; 13 context_lens read int; 14 block_table read int; 15 part write float?; 16 statistics write float?", params: LatentAttentionParams{},
		paramsIndex: 9, constants: "0 fc_head uint?; 1 fc_split uint?; 2 fc_window bool?; 3 fc_soft_cap bool?; 8 fc_interleaved bool; 9 fc_factors bool?; 10 fc_table bool?" + headsConstant,
		threadgroup: floats(8*attentionPart + 2*MaxLatent + 16), maxThreads: 256},
	{name: "attention_reduce", check: checkReduce, file: "attention_vec.metal", summary: "merges the partitions of attention_vec",
		instances: []string{"f32", "f16", "bf16"},
		args:      "0 part read float; 1 statistics read float; 2 out write $0; 4 sinks read float?; 5 gate read $0?", params: ReduceParams{}, paramsIndex: 3, constants: "4 fc_sinks bool?" + gateConstants, grid: "heads, tokens", maxThreads: 160},
	{name: "attention_tile", check: checkAttentionTile, file: "attention_tile.metal", summary: "attention of 32 tokens at a time over the paged cache",
		instances: cachedOrBfloat, args: attentionArgs + "7 out write $0; " + attentionOptions, params: AttentionParams{},
		paramsIndex: 8, constants: "0 fc_head uint?; " + strings.TrimSuffix(attentionConstants, "; ") + gateConstants,
		threadgroup: tileMemory, maxThreads: 128},
	{name: "cache_write", check: checkCacheWrite, file: "cache.metal", summary: "K and V of every token into its slot", instances: cached,
		args:   "0 k read $0; 1 v read $0; 2 slots read int; 3 k_cache write $1; 4 v_cache write $1",
		params: CacheWriteParams{}, paramsIndex: 5, grid: "kv_heads·head/64, tokens", maxThreads: 64},
	{name: "cache_read", check: checkCacheRead, file: "cache.metal", summary: "the cached rows of every sequence, zeros past its length",
		instances: []string{"f32", "f16", "q8_0"}, args: "0 cache read $0; 1 context_lens read int; 2 block_table read int; 3 out write float",
		params: CacheReadParams{}, paramsIndex: 4, grid: "kv_heads·head/64, seqs·context", maxThreads: 64},
	{name: "copy_blocks", check: checkCopyBlocks, file: "cache.metal", summary: "whole blocks of both caches", instances: append(slices.Clone(rowTypes), "q8_0"),
		args:   "0 k_from read $0; 1 v_from read $0; 2 pairs read int; 3 k_cache write $0; 4 v_cache write $0",
		params: CopyBlocksParams{}, paramsIndex: 5, grid: "width/1024, pairs", maxThreads: 256},
}

// tileMemory returns the threadgroup memory of attention_core.h in bytes.
func tileMemory(e []Element) int { return 32*136*e[0].Size() + 4*(4*8*36+4*64+64) }
