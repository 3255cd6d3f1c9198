// Attention of single tokens over the paged cache: decoding, and the verification of
// drafts. Long contexts are cut along the keys, and a second kernel puts the parts
// together.
#include <metal_stdlib>
#include "abi/params.h"
#include "paged.h"
#include "activation.h"
using namespace metal;

// The head size, where a pipeline is made for one: its loops are then unrolled to
// length. Otherwise it is read from the parameters.
constant uint fc_head [[function_constant(0)]];
constant bool has_head = is_function_constant_defined(fc_head);

// Keys of a partition, a multiple of 8; without the constant the keys are not cut.
constant uint fc_split [[function_constant(1)]];
constant bool is_split = is_function_constant_defined(fc_split);

constant bool fc_window [[function_constant(2)]];     // tokens see the window of the parameters
constant bool fc_soft_cap [[function_constant(3)]];   // scores have the cap of the parameters
constant bool fc_sinks [[function_constant(4)]];      // heads have sinks
constant bool fc_map [[function_constant(5)]];        // `map` gives the sequence of each token or tile
constant bool fc_slopes [[function_constant(7)]];     // scores fall with distance
constant uint fc_gate [[function_constant(13)]];      // the activation of a gate that results are multiplied by
constant bool fc_head_gate [[function_constant(14)]]; // which has an element for each head
constant bool has_window = is_function_constant_defined(fc_window) ? fc_window : false;
constant bool has_soft_cap = is_function_constant_defined(fc_soft_cap) ? fc_soft_cap : false;
constant bool has_sinks = is_function_constant_defined(fc_sinks) ? fc_sinks : false;
constant bool has_map = is_function_constant_defined(fc_map) ? fc_map : false;
constant bool has_slopes = is_function_constant_defined(fc_slopes) ? fc_slopes : false;
constant uint gate_kind = is_function_constant_defined(fc_gate) ? fc_gate : SMELT_ACTIVATION_NONE;
constant bool gate_by_head = is_function_constant_defined(fc_head_gate) ? fc_head_gate : false;

// Tokens per threadgroup, 1 (the default), 2, 4 or 8, and query heads per token that share a
// KV head, 1, 2 or 4; their product is at most 8. Their queries and sums stay in registers: 64
// per thread while rows · head is at most 256; there are up to 160, as a row of a latent cache of 576 takes.
constant uint fc_rows [[function_constant(6)]];
constant uint fc_heads [[function_constant(12)]];
constant uint token_count = is_function_constant_defined(fc_rows) ? fc_rows : 1;
constant uint head_count = is_function_constant_defined(fc_heads) && fc_heads > 1 ? fc_heads : 1;
constant uint row_count = token_count * head_count;

// Groups of four elements in which a lane has its part of a head, where a pipeline is made for one size.
constant uint groups_of_four = has_head && fc_head <= 256 ? 8 : (has_head && fc_head <= 512 ? 16 : 20);

#include "attention_rows.h"

// Arguments are those of the kernel.
template <typename A, typename C> struct Arguments {
    device const A *q;
    device const C *k_cache;
    device const C *v_cache;
    device const int *positions;
    device const int *cu_seqlens;
    device const int *context_lens;
    device const int *block_table;
    Results<A> results;
    device const int *map;
    device const float *slopes;
};

// attend takes R rows: consecutive tokens of a sequence, and of each its heads one after the
// other.
template <uint R, uint G, typename A, typename C>
inline void attend(thread const Arguments<A, C> &a, constant AttentionParams &p, threadgroup States &states,
                   uint3 group, uint3 groups, uint tid, uint sg, uint lane) {
    const uint head = has_head ? fc_head : p.head;
    const Heads heads = heads_of(group.x, p.heads, p.kv_heads, head_count);
    if (group.y >= (token_count == 1 ? p.tokens : first_tile(int(p.tokens), p.seqs, token_count)))
        return;
    int owner;
    if (has_map) {
        owner = a.map[group.y];
    } else if (token_count == 1) {
        owner = int(sequence_of(a.cu_seqlens, p.seqs, group.y));
    } else {
        owner = int(sequence_of_tile(a.cu_seqlens, p.seqs, group.y, token_count));
    }
    if (owner < 0)
        return;
    const uint seq = uint(owner);
    uint token = group.y, tokens = 1;
    if (token_count != 1) {
        const int seq_start = a.cu_seqlens[seq];
        token = uint(seq_start) + (group.y - first_tile(seq_start, seq, token_count)) * token_count;
        const uint seq_end = uint(a.cu_seqlens[seq + 1]);
        if (token >= seq_end)
            return;
        tokens = min(token_count, seq_end - token);
    }
    Pages<C> pages;
    pages.keys = a.k_cache;
    pages.values = a.v_cache;
    pages.table = a.block_table + ulong(seq) * p.table_stride;
    pages.block = p.block;
    pages.kv_head = heads.kv;
    pages.strides = {p.block_stride, p.head_stride, p.row_stride};
    const Scoring scoring = scoring_of(p.scale, p.soft_cap);

    // What each token sees of this partition.
    const uint start = is_split ? group.z * fc_split : 0;
    Rows<R, G> rows;
    clear(rows);
    UNROLL for (uint r = 0; r < R; r++) {
        const uint t = r / head_count, h = r % head_count;
        const bool exists = t < tokens && h < heads.count;
        rows.seen[r] = {0, 0};
        rows.position[r] = 0;
        rows.slope[r] = has_slopes && exists ? a.slopes[heads.first + h] * log2_e : 0.0f;
        if (exists) {
            rows.position[r] = a.positions[token + t];
            rows.seen[r] = keys_seen(rows.position[r], a.context_lens[seq], has_window ? p.window : 0);
        }
        if (is_split)
            rows.seen[r] = {max(rows.seen[r].begin, start), min(rows.seen[r].end, start + fc_split)};
        device const A *from = a.q + (ulong(token + t) * p.heads + heads.first + h) * head;
        UNROLL for (uint i = 0; i < G; i++) {
            const uint d = first_four(a.k_cache, i, lane);
            rows.query[r][i] = 0.0f;
            if (exists && d < head)
                rows.query[r][i] = float4(*(device const vec<A, 4> *)(from + d)) * scoring.scale;
        }
    }
    const bool has_keys = take_keys(rows, pages, scoring, head, start, sg, lane);

    UNROLL for (uint r = 0; r < R; r++) {
        const uint t = r / head_count, h = r % head_count;
        if (t >= tokens || h >= heads.count)
            continue;
        const uint q_head = heads.first + h;
        UNROLL for (uint part = 0; part < (G + 7) / 8; part++) {
            if (part * state_width >= head)
                break;
            if (r + part > 0) // states are written again
                threadgroup_barrier(mem_flags::mem_threadgroup);
            share(rows, r, part, has_keys, a.v_cache, head, states, sg, lane);
            threadgroup_barrier(mem_flags::mem_threadgroup);
            if (part * state_width + tid * 4 < head && tid * 4 < state_width)
                put(a.results, states, token + t, q_head, head, part, group.z, groups.z, tid);
        }
    }
}

// attention_vec computes softmax(scale · q·Kᵀ)·V for every token and query head over
// the keys j that the token sees: j ≤ positions[t] and j < context_lens[b], b being
// the sequence that owns the token. Query head h reads KV head h / (heads/kv_heads):
// grouped queries are an index map. Keys that are not seen are never loaded. A token
// without keys gets zeros.
//
// With fc_window a token sees only the last p.window of these keys (Mistral). With
// fc_soft_cap a score s becomes p.soft_cap · tanh(s / p.soft_cap) (Gemma 2). With
// fc_slopes the score of key j then gets slopes[h] · (j − positions[t]) (ALiBi: Press,
// Smith and Lewis, "Train Short, Test Long", 2022). With
// fc_sinks every head has one more logit, which is part of the softmax's sum and
// has no value (StreamingLLM, GPT-OSS). With fc_gate the result is multiplied by that
// activation of a gate, which with fc_head_gate has an element for each head. With fc_map the sequence is read from
// `map` instead of searched for, where −1 is none: threadgroups without a token write nothing.
//
// Grid (heads, tokens, 1) of 256 threads; attention_rows.h documents their share of the keys.
// Threadgroup memory: 256 elements of an output row for each simdgroup, 8 KB, and its
// statistics. Heads of up to 576, a multiple of 8, as are the strides of the cache; heads of more
// than 256 are one row to a threadgroup.
//
// With fc_split, grid z partitions the keys: threadgroup z processes keys [z·fc_split,
// (z+1)·fc_split) and writes the undivided sum of the weighted values to `part`, and the
// largest score and the sum of weights to `statistics`. attention_reduce merges them and
// adds the sinks and the gate. A partition without keys does not write `part`.
//
// With fc_rows, a threadgroup processes that many consecutive tokens of a sequence, such as
// the drafts that a step verifies, and loads each key once for all that see it. These are the
// tiles of paged.h; their number, at most tokens/rows + seqs, replaces the tokens in the grid
// and in `map`.
template <typename A, typename C>
kernel void attention_vec(device const A *q [[buffer(0)]],              // [tokens, heads, head]
                          device const C *k_cache [[buffer(1)]],        // [blocks, kv_heads, block, head] by strides
                          device const C *v_cache [[buffer(2)]],        // [blocks, kv_heads, block, head] by strides
                          device const int *positions [[buffer(3)]],    // [tokens]
                          device const int *cu_seqlens [[buffer(4)]],   // [seqs + 1]
                          device const int *context_lens [[buffer(5)]], // [seqs]
                          device const int *block_table [[buffer(6)]],  // [seqs, table_stride]
                          device A *out [[buffer(7)]],                  // [tokens, heads, head]
                          constant AttentionParams &p [[buffer(8)]],    //
                          device float *part [[buffer(9)]],             // [tokens, heads, partitions, head]
                          device float *statistics [[buffer(10)]],      // [tokens, heads, partitions, 2]
                          device const float *sinks [[buffer(11)]],     // [heads], in units of e
                          device const int *map [[buffer(12)]],         // [tokens], or [tiles] of fc_rows
                          device const float *slopes [[buffer(13)]],    // [heads]
                          device const A *gate [[buffer(14)]],          // [tokens, heads·head or heads], by stride
                          uint3 group [[threadgroup_position_in_grid]], uint3 groups [[threadgroups_per_grid]],
                          uint tid [[thread_index_in_threadgroup]], uint sg [[simdgroup_index_in_threadgroup]],
                          uint lane [[thread_index_in_simdgroup]]) {
    threadgroup States states;
    Arguments<A, C> a;
    a.q = q;
    a.k_cache = k_cache;
    a.v_cache = v_cache;
    a.positions = positions;
    a.cu_seqlens = cu_seqlens;
    a.context_lens = context_lens;
    a.block_table = block_table;
    a.results = {out, part, statistics, sinks, gate, p.heads, p.gate_stride, p.gate_from};
    a.map = map;
    a.slopes = slopes;
#ifdef SMELT_SINGLE
    attend<(is_function_constant_defined(fc_rows) ? fc_rows : 1) *
               (is_function_constant_defined(fc_heads) ? fc_heads : 1),
           groups_of_four>(a, p, states, group, groups, tid, sg, lane);
#else
    if ((has_head ? fc_head : p.head) > 512) {
        attend<1, 20>(a, p, states, group, groups, tid, sg, lane);
        return;
    }
    if ((has_head ? fc_head : p.head) > 256) {
        attend<1, 16>(a, p, states, group, groups, tid, sg, lane);
        return;
    }
    switch (row_count) {
    case 1:
        attend<1, 8>(a, p, states, group, groups, tid, sg, lane);
        break;
    case 2:
        attend<2, 8>(a, p, states, group, groups, tid, sg, lane);
        break;
    case 4:
        attend<4, 8>(a, p, states, group, groups, tid, sg, lane);
        break;
    default:
        attend<8, 8>(a, p, states, group, groups, tid, sg, lane);
        break;
    }
#endif
}

// attention_reduce puts the partitions of attention_vec together: each weighs by
// exp2 of its largest score against the largest of all, with fc_sinks the head's sink
// among them; gates are those of attention_vec. Partitions without keys have a sum of weights of 0 and are not read.
// Every simdgroup weighs 32 partitions at a time, one a lane, before it adds them up. Grid (heads, tokens, 1) of head/4
// threads, rounded up to whole simdgroups. No threadgroup memory.
template <typename A>
kernel void attention_reduce(device const float *part [[buffer(0)]],       // [tokens, heads, partitions, head]
                             device const float *statistics [[buffer(1)]], // [tokens, heads, partitions, 2]
                             device A *out [[buffer(2)]],                  // [tokens, heads, head]
                             constant ReduceParams &p [[buffer(3)]],       //
                             device const float *sinks [[buffer(4)]],      // [heads], in units of e
                             device const A *gate [[buffer(5)]],           // [tokens, heads·head or heads], by stride
                             uint3 group [[threadgroup_position_in_grid]], uint tid [[thread_index_in_threadgroup]],
                             uint lane [[thread_index_in_simdgroup]]) {
    if (group.y >= p.tokens)
        return;
    const ulong row = ulong(group.y) * p.heads + group.x;
    device const float2 *of = (device const float2 *)statistics + row * p.partitions;
    const float sink = has_sinks ? sinks[group.x] * log2_e : lowest;
    float peak = max(lowest, sink);
    for (uint i = lane; i < p.partitions; i += 32) {
        if (of[i].y != 0.0f)
            peak = max(peak, of[i].x);
    }
    peak = simd_max(peak);
    const bool writes = tid * 4 < p.head;
    device const float *from = part + row * p.partitions * p.head + tid * 4;
    float norm = 0.0f;
    float4 sum = 0.0f;
    for (uint first = 0; first < p.partitions; first += 32) {
        float own = 0.0f;
        if (first + lane < p.partitions && of[first + lane].y != 0.0f) {
            own = exp2(of[first + lane].x - peak);
            norm += own * of[first + lane].y;
        }
        for (uint i = 0; i < min(32u, p.partitions - first); i++) {
            const float weight = simd_broadcast(own, ushort(i));
            if (writes && weight != 0.0f)
                sum += weight * *(device const float4 *)(from + ulong(first + i) * p.head);
        }
    }
    norm = simd_sum(norm);
    if (has_sinks)
        norm += exp2(sink - peak);
    const HeadGate<A> own = gate_row(gate_kind, gate_by_head, gate, group.y, p.gate_stride, p.gate_from);
    if (writes)
        store_four(out, row * p.head + tid * 4,
                   gated(own, group.x, p.head, tid * 4, norm != 0.0f ? sum / norm : float4(0.0f)));
}

template [[host_name("attention_vec_f32_f32")]]
kernel decltype(attention_vec<float, float>) attention_vec<float, float>;
template [[host_name("attention_vec_f32_f16")]]
kernel decltype(attention_vec<float, half>) attention_vec<float, half>;
template [[host_name("attention_vec_f16_f32")]]
kernel decltype(attention_vec<half, float>) attention_vec<half, float>;
template [[host_name("attention_vec_f16_f16")]]
kernel decltype(attention_vec<half, half>) attention_vec<half, half>;
template [[host_name("attention_vec_bf16_bf16")]]
kernel decltype(attention_vec<bfloat, bfloat>) attention_vec<bfloat, bfloat>;
template [[host_name("attention_vec_f16_q8_0")]]
kernel decltype(attention_vec<half, CacheBlock>) attention_vec<half, CacheBlock>;
template [[host_name("attention_vec_f32_q8_0")]]
kernel decltype(attention_vec<float, CacheBlock>) attention_vec<float, CacheBlock>;
template [[host_name("attention_reduce_f32")]]
kernel decltype(attention_reduce<float>) attention_reduce<float>;
template [[host_name("attention_reduce_f16")]]
kernel decltype(attention_reduce<half>) attention_reduce<half>;
template [[host_name("attention_reduce_bf16")]]
kernel decltype(attention_reduce<bfloat>) attention_reduce<bfloat>;
