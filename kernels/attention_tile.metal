// Attention of many tokens of a sequence over the paged cache: prefill.
#include <metal_stdlib>
#include "abi/params.h"
#include "paged.h"
#include "attention_core.h"
using namespace metal;

// The head size, where a pipeline is made for one: registers and loops then fit it.
// Otherwise it is read from the parameters.
constant uint fc_head [[function_constant(0)]];
constant bool has_head = is_function_constant_defined(fc_head);

// Whether a token sees the last `window` of its keys only; whether scores become
// soft_cap · tanh(score / soft_cap); whether each head has a sink, a score without a
// value; whether the sequence of each tile is in `map` and not searched for; whether a
// score falls with the distance of its key by the slope of its head.
constant bool fc_window [[function_constant(2)]];
constant bool fc_soft_cap [[function_constant(3)]];
constant bool fc_sinks [[function_constant(4)]];
constant bool fc_map [[function_constant(5)]];
constant bool fc_slopes [[function_constant(7)]];
constant uint fc_gate [[function_constant(13)]]; // as of attention_vec
constant bool fc_head_gate [[function_constant(14)]];

constant bool has_window = is_function_constant_defined(fc_window) ? fc_window : false;
constant bool has_soft_cap = is_function_constant_defined(fc_soft_cap) ? fc_soft_cap : false;
constant bool has_sinks = is_function_constant_defined(fc_sinks) ? fc_sinks : false;
constant bool has_map = is_function_constant_defined(fc_map) ? fc_map : false;
constant bool has_slopes = is_function_constant_defined(fc_slopes) ? fc_slopes : false;
constant uint gate_kind = is_function_constant_defined(fc_gate) ? fc_gate : SMELT_ACTIVATION_NONE;
constant bool gate_by_head = is_function_constant_defined(fc_head_gate) ? fc_head_gate : false;

// A sequence's keys and values for one KV head.
template <typename C> struct PagedRows {
    device const C *keys, *values;
    device const int *pages;
    uint block, kv_head;
    CacheStrides strides;
};
template <typename C> inline ulong row_at(thread const PagedRows<C> &rows, uint key) {
    return cache_row(uint(rows.pages[key / rows.block]), key % rows.block, rows.kv_head, rows.strides);
}

// attention_tile computes what attention_vec does, for up to 32 tokens of one sequence
// at a time: any mixture of prompts, single tokens and drafts in one launch (the varlen
// attention of vllm-metal, after vLLM's unified kernel). The grid is sized for the worst
// case, any larger one will do, and surplus threadgroups return. With fc_map, map[tile]
// is the sequence that the search would find, or negative for a surplus tile.
//
// Steps of keys that lie wholly before every token's window are not read.
//
// Grid (ceil(tokens/32) + seqs, heads, ceil(head/256)) of 128 threads. Threadgroup memory: a slice of
// K or V (8.5 KB in 16 bits, 17 KB of floats), scores and probabilities (4.5 KB),
// factors of rows (1 KB) and marks of keys. Heads of up to 576, a multiple of 8.
template <typename A, typename C>
kernel void attention_tile(device const A *q [[buffer(0)]],              // [tokens, heads, head]
                           device const C *k_cache [[buffer(1)]],        // [blocks, kv_heads, block, head] by strides
                           device const C *v_cache [[buffer(2)]],        // [blocks, kv_heads, block, head] by strides
                           device const int *positions [[buffer(3)]],    // [tokens]
                           device const int *cu_seqlens [[buffer(4)]],   // [seqs + 1]
                           device const int *context_lens [[buffer(5)]], // [seqs]
                           device const int *block_table [[buffer(6)]],  // [seqs, table_stride]
                           device A *out [[buffer(7)]],                  // [tokens, heads, head]
                           constant AttentionParams &p [[buffer(8)]],    //
                           device const float *sinks [[buffer(11)]],     // [heads]
                           device const int *map [[buffer(12)]],         // [tiles of the grid]
                           device const float *slopes [[buffer(13)]],    // [heads]
                           device const A *gate [[buffer(14)]],          // [tokens, heads·head or heads], by stride
                           uint3 group [[threadgroup_position_in_grid]], uint tid [[thread_index_in_threadgroup]],
                           uint sg [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
    threadgroup float4 tile[2 * sizeof(A) * tile_stride];
    threadgroup float4 score_rows[8 * score_stride];
    threadgroup float factor_rows[4 * 64];
    threadgroup uint key_marks[64];
    TileMemory<A> memory;
    memory.tile = (threadgroup A *)tile;
    memory.scores = (threadgroup float *)score_rows;
    memory.factors = factor_rows;
    memory.marks = key_marks;

    if (has_map && map[group.x] < 0)
        return;
    const uint seq = has_map ? uint(map[group.x]) : sequence_of_tile(cu_seqlens, p.seqs, group.x, 32);
    const uint seq_start = uint(cu_seqlens[seq]), seq_end = uint(cu_seqlens[seq + 1]);
    const uint first_token = seq_start + (group.x - first_tile(cu_seqlens[seq], seq, 32)) * 32;
    if (first_token >= seq_end)
        return;

    const uint head = has_head ? fc_head : p.head;
    const uint q_head = group.y;
    const ulong at = (ulong(first_token) * p.heads + q_head) * head;
    QueryRows<A> queries;
    queries.from = q + at;
    queries.to = out + at;
    queries.stride = ulong(p.heads) * head;
    queries.count = min(32u, seq_end - first_token);
    queries.head = head;
    queries.gate = gate_row(gate_kind, gate_by_head, gate, first_token, p.gate_stride, p.gate_from);
    queries.gate_stride = p.gate_stride;
    queries.q_head = q_head;

    PagedRows<C> rows;
    rows.keys = k_cache;
    rows.values = v_cache;
    rows.pages = block_table + ulong(seq) * p.table_stride;
    rows.kv_head = q_head / (p.heads / p.kv_heads);
    rows.block = p.block;
    rows.strides.block = p.block_stride;
    rows.strides.head = p.head_stride;
    rows.strides.row = p.row_stride;

    const uint token = first_token + sg * 8 + lane / 4, other = first_token + lane;
    const int context = context_lens[seq];
    const uint window = has_window ? p.window : 0;
    Sight sight;
    sight.first = sight.end = 0;
    if (token < seq_end) {
        const KeyRange seen = keys_seen(positions[token], context, window);
        sight.first = seen.begin;
        sight.end = seen.end;
    }
    uint earliest = UINT_MAX, latest = 0;
    if (other < seq_end) {
        const KeyRange seen = keys_seen(positions[other], context, window);
        earliest = seen.begin;
        latest = seen.end;
    }
    sight.start = has_window ? simd_min(earliest) / 32 * 32 : 0;
    sight.stop = simd_max(latest);

    Scoring scoring;
    scoring.scale = p.scale;
    scoring.cap = has_soft_cap ? p.soft_cap : 0.0f;
    scoring.sink = has_sinks ? sinks[q_head] * 1.44269504f : lowest;
    scoring.slope = has_slopes ? slopes[q_head] : 0.0f;
    scoring.position = token < seq_end ? positions[token] : 0;
    const uint from = group.z * part_width;
    if (head > 512)
        attend<80>(queries, rows, sight, scoring, memory, from, tid, sg, lane);
    else if (head > 256)
        attend<64>(queries, rows, sight, scoring, memory, from, tid, sg, lane);
    else
        attend<32>(queries, rows, sight, scoring, memory, 0, tid, sg, lane);
}

template [[host_name("attention_tile_f32_f32")]]
kernel decltype(attention_tile<float, float>) attention_tile<float, float>;
template [[host_name("attention_tile_f32_f16")]]
kernel decltype(attention_tile<float, half>) attention_tile<float, half>;
template [[host_name("attention_tile_f16_f32")]]
kernel decltype(attention_tile<half, float>) attention_tile<half, float>;
template [[host_name("attention_tile_f16_f16")]]
kernel decltype(attention_tile<half, half>) attention_tile<half, half>;
template [[host_name("attention_tile_bf16_bf16")]]
kernel decltype(attention_tile<bfloat, bfloat>) attention_tile<bfloat, bfloat>;
template [[host_name("attention_tile_f16_q8_0")]]
kernel decltype(attention_tile<half, CacheBlock>) attention_tile<half, CacheBlock>;
template [[host_name("attention_tile_f32_q8_0")]]
kernel decltype(attention_tile<float, CacheBlock>) attention_tile<float, CacheBlock>;
