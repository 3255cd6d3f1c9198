// Attention of single tokens that takes Q, K and V as the projection leaves them: it
// rotates them, with head norms before, and writes the cache. What stands between the
// projection and attention's result in one dispatch.
#include <metal_stdlib>
#include "abi/params.h"
#include "pairs.h"
#include "activation.h"
#include "unroll.h"
using namespace metal;

// As of attention_vec.
constant uint fc_head [[function_constant(0)]];
constant uint fc_split [[function_constant(1)]];
constant bool fc_window [[function_constant(2)]];
constant bool fc_soft_cap [[function_constant(3)]];
constant bool fc_sinks [[function_constant(4)]];
constant bool fc_slopes [[function_constant(7)]];
constant uint fc_gate [[function_constant(13)]]; // as of attention_vec
constant bool fc_head_gate [[function_constant(14)]];

constant bool fc_interleaved [[function_constant(8)]];  // else NeoX pairs
constant bool fc_factors [[function_constant(9)]];      // divide each frequency by its factor
constant bool fc_table [[function_constant(10)]];       // factors are whole divisors: theta has no part
constant bool fc_norms [[function_constant(11)]];       // heads of Q and K are normalised
constant uint fc_heads [[function_constant(12)]];       // query heads of a threadgroup, as of attention_vec
constant bool fc_norm_values [[function_constant(15)]]; // heads of V are normalised too, without weights
constant bool fc_queries [[function_constant(16)]];     // the cache has the token's key: of Q alone

constant bool has_head = is_function_constant_defined(fc_head);
constant bool is_split = is_function_constant_defined(fc_split);
constant bool has_window = is_function_constant_defined(fc_window) ? fc_window : false;
constant bool has_soft_cap = is_function_constant_defined(fc_soft_cap) ? fc_soft_cap : false;
constant bool has_sinks = is_function_constant_defined(fc_sinks) ? fc_sinks : false;
constant bool has_slopes = is_function_constant_defined(fc_slopes) ? fc_slopes : false;
constant uint gate_kind = is_function_constant_defined(fc_gate) ? fc_gate : SMELT_ACTIVATION_NONE;
constant bool gate_by_head = is_function_constant_defined(fc_head_gate) ? fc_head_gate : false;
constant bool from_table = is_function_constant_defined(fc_table) ? fc_table : false;
constant bool has_factors = (is_function_constant_defined(fc_factors) ? fc_factors : false) || from_table;
constant bool has_norms = is_function_constant_defined(fc_norms) ? fc_norms : false;
constant bool norm_values = is_function_constant_defined(fc_norm_values) ? fc_norm_values : false;
constant bool is_cached = is_function_constant_defined(fc_queries) ? fc_queries : false;
constant uint head_count = is_function_constant_defined(fc_heads) && fc_heads > 1 ? fc_heads : 1;

#include "attention_rows.h"

// The rows of a token, each made by the simdgroup of its number: a KV head's key and value, and
// the query heads from query_row on.
constant constexpr uint key_row = 0, value_row = 1, query_row = 2;

// Made are these rows: keys and values at the start of theirs, query heads one after the
// other.
struct Made {
    float4 key[128], value[128], queries[128];
};

// rounded returns four elements rounded to a type.
inline float4 rounded(device const half *, float4 v) { return float4(half4(v)); }
inline float4 rounded(device const bfloat *, float4 v) { return float4(bfloat4(v)); }
inline float4 rounded(device const float *, float4 v) { return v; }
inline float4 rounded(device const CacheBlock *, float4 v) { return v; } // by neighbours: see store_row

// store_row writes a row from threadgroup memory to the cache if the token has a slot, and
// replaces it by the values that a read of the cache returns.
template <typename C>
inline void store_row(device C *cache, ulong at, bool writes, threadgroup float *row, uint head, uint lane) {
    for (uint d = lane * 4; writes && d < head; d += 128)
        store_four(cache, at + d, *(threadgroup const float4 *)(row + d));
}
inline void store_row(device CacheBlock *cache, ulong at, bool writes, threadgroup float *row, uint head, uint lane) {
    for (uint d = 0; d < head; d += 32) {
        const BlockElement e = block_element(row[d + lane]);
        row[d + lane] = float(e.q) * float(e.d);
        if (!writes)
            continue;
        device CacheBlock *b = cache + (at + d) / 32;
        b->qs[lane] = e.q;
        if (lane == 0)
            b->d = e.d;
    }
}

// make_row normalises and rotates one head of a token and leaves it in threadgroup memory,
// rounded as `as` points to: every step as the fused writes of rope_write.metal do it. A
// value is but copied, or normalised. Heads have up to steps · step_width elements.
template <uint steps, typename A, typename T>
inline void make_row(constant AttentionWriteParams &p, device const A *from, device const T *as,
                     device const float *factors, device const float *gains, int position, bool turns,
                     threadgroup float *to, uint head, uint lane) {
    const bool whole = ((p.rotated | p.qkv_stride) & 3) == 0;
    const uint rotated = turns ? p.rotated : 0;
    float4 x[steps];
    float squares = 0.0f;
    UNROLL for (uint s = 0; s < steps; s++) {
        const uint i = (s * 32 + lane) * 2;
        x[s] = 0.0f;
        if (2 * i < head)
            x[s] = load_pairs(from, pairs_of(i, rotated, fc_interleaved), whole);
        squares += dot(x[s], x[s]);
    }
    float scale = 1.0f;
    if (has_norms && (turns || norm_values))
        scale = precise::rsqrt(simd_sum(squares) / float(head) + p.eps);
    UNROLL for (uint s = 0; s < steps; s++) {
        const uint i = (s * 32 + lane) * 2;
        if (2 * i >= head)
            continue;
        const Pairs at = pairs_of(i, rotated, fc_interleaved);
        float4 v = x[s];
        if (has_norms && turns)
            v *= scale * load_pairs(gains, at, whole);
        else if (norm_values)
            v *= scale;
        if (turns)
            v = turn_pairs(v, at, rotations(p, position, i, at, factors, has_factors, from_table));
        store_pairs(to, at, rounded(as, v), whole);
    }
}

// Arguments are those of the kernel.
template <typename A, typename C> struct Arguments {
    device const A *qkv;
    device const C *k_cache;
    device const C *v_cache;
    device const int *positions;
    device const int *cu_seqlens;
    device const int *context_lens;
    device const int *block_table;
    Results<A> results;
    device const int *slots;
    device const float *slopes;
    device const float *factors;
    device const float *q_norm;
    device const float *k_norm;
    device C *k_slots;
    device C *v_slots;
};

// make_rows makes the rows of a token: the query heads of the threadgroup, and the key and
// value if a query sees them or they are to be written to the token's slot.
template <uint steps, typename A, typename C>
inline void make_rows(thread const Arguments<A, C> &a, constant AttentionWriteParams &p, thread const Heads &heads,
                      uint token, bool sees_own, bool writes, uint head, threadgroup Made &made, uint sg, uint lane) {
    if (sg >= query_row + heads.count)
        return;
    const int position = a.positions[token];
    const bool is_query = sg >= query_row;
    const uint source = is_query ? heads.first + sg - query_row : p.heads + sg * p.kv_heads + heads.kv;
    device const A *from = a.qkv + ulong(token) * p.qkv_stride + ulong(source) * head;
    if (is_query) {
        threadgroup float *query = (threadgroup float *)made.queries + (sg - query_row) * head;
        make_row<steps>(p, from, a.results.out, a.factors, a.q_norm, position, true, query, head, lane);
    } else if (sees_own || writes) {
        threadgroup float *own = (threadgroup float *)(sg == key_row ? made.key : made.value);
        const CacheStrides strides = {p.block_stride, p.head_stride, p.row_stride};
        const uint slot = uint(a.slots[token]);
        const ulong at = writes ? cache_row(slot / p.block, slot % p.block, heads.kv, strides) : 0;
        make_row<steps>(p, from, a.k_slots, a.factors, a.k_norm, position, sg == key_row, own, head, lane);
        simdgroup_barrier(mem_flags::mem_threadgroup);
        store_row(sg == key_row ? a.k_slots : a.v_slots, at, writes, own, head, lane);
    }
}

// attend takes R query heads of a token, all of which read one KV head, of up to 32·G elements.
template <uint R, uint G, typename A, typename C>
inline void attend(thread const Arguments<A, C> &a, constant AttentionWriteParams &p, threadgroup States &states,
                   threadgroup Made &made, uint3 group, uint3 groups, uint tid, uint sg, uint lane) {
    const uint head = has_head ? fc_head : p.head;
    const uint token = group.y;
    const Heads heads = heads_of(group.x, p.heads, p.kv_heads, R);
    if (token >= p.tokens)
        return;
    const uint seq = sequence_of(a.cu_seqlens, p.seqs, token);
    const int position = a.positions[token], slot = is_cached ? -1 : a.slots[token];
    OwnPages<C> pages;
    pages.keys = a.k_cache;
    pages.values = a.v_cache;
    pages.table = a.block_table + ulong(seq) * p.table_stride;
    pages.block = p.block;
    pages.kv_head = heads.kv;
    pages.strides = {p.block_stride, p.head_stride, p.row_stride};
    pages.own = is_cached ? 0xffffffff : uint(position);
    pages.own_key = (threadgroup const float *)made.key;
    pages.own_value = (threadgroup const float *)made.value;
    const Scoring scoring = scoring_of(p.scale, p.soft_cap);

    const uint start = is_split ? group.z * fc_split : 0;
    KeyRange seen = keys_seen(position, a.context_lens[seq], has_window ? p.window : 0);
    if (is_split)
        seen = {max(seen.begin, start), min(seen.end, start + fc_split)};
    const bool sees_own = pages.own >= seen.begin && pages.own < seen.end;
    const bool writes = heads.first == heads.kv * (p.heads / p.kv_heads) && slot >= 0 &&
                        (!is_split || (pages.own >= start && pages.own - start < fc_split));

    // Uniform in the threadgroup, as is the barrier: partitions without keys skip it.
    if (seen.begin < seen.end || writes) {
        make_rows<G / 4>(a, p, heads, token, sees_own, writes, head, made, sg, lane);
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    Rows<R, G> rows;
    clear(rows);
    UNROLL for (uint r = 0; r < R; r++) {
        const bool exists = r < heads.count;
        rows.position[r] = position;
        rows.slope[r] = has_slopes && exists ? a.slopes[heads.first + r] * log2_e : 0.0f;
        rows.seen[r] = {0, 0};
        if (exists)
            rows.seen[r] = seen;
        UNROLL for (uint i = 0; i < G; i++) {
            const uint d = first_four(a.k_cache, i, lane);
            rows.query[r][i] = 0.0f;
            if (exists && seen.begin < seen.end && d < head)
                rows.query[r][i] = made.queries[(r * head + d) / 4] * scoring.scale;
        }
    }

    const bool has_keys = take_keys(rows, pages, scoring, head, start, sg, lane);
    UNROLL for (uint r = 0; r < R; r++) {
        if (r >= heads.count)
            break;
        UNROLL for (uint part = 0; part < G / 8; part++) {
            if (part * state_width >= head)
                break;
            if (r + part > 0) // states are written again
                threadgroup_barrier(mem_flags::mem_threadgroup);
            share(rows, r, part, has_keys, a.v_cache, head, states, sg, lane);
            threadgroup_barrier(mem_flags::mem_threadgroup);
            if (part * state_width + tid * 4 < head && tid * 4 < state_width)
                put(a.results, states, token, heads.first + r, head, part, group.z, groups.z, tid);
        }
    }
}

// attention_write fuses head_norm_rope_kv_write (with fc_norms) or rope_qkv_write with
// attention_vec, with the same bits in the result and in the cache, for steps in which each
// sequence has one token, its last. Constants, partitions and results are those of
// attention_vec; attention_reduce merges the partitions.
//
// Threadgroups do not synchronise. Each computes its query heads and, if the token's own key
// is in its partition, that key and its value, rounded as a read of the cache would return
// them: slots that this dispatch writes are not read. The threadgroup of the first query head
// of each KV head, in the partition of the token's position, writes both to the token's slot,
// unless the slot is negative. With fc_queries the cache has both already, and qkv is Q.
//
// Grid (heads, tokens, partitions or 1) of 256 threads, with fc_heads as of attention_vec.
// Threadgroup memory: that of attention_vec, and three rows of 512 elements, of which one holds the
// query heads of a threadgroup. Heads of up to 512, a multiple of 8, as are the strides of the cache.
template <typename A, typename C>
kernel void attention_write(device const A *qkv [[buffer(0)]],         // [tokens, (heads + 2·kv_heads)·head], by stride
                            device const C *k_cache [[buffer(1)]],     // [blocks, kv_heads, block, head] by strides
                            device const C *v_cache [[buffer(2)]],     // [blocks, kv_heads, block, head] by strides
                            device const int *positions [[buffer(3)]], // [tokens]
                            device const int *cu_seqlens [[buffer(4)]],     // [seqs + 1]
                            device const int *context_lens [[buffer(5)]],   // [seqs]
                            device const int *block_table [[buffer(6)]],    // [seqs, table_stride]
                            device A *out [[buffer(7)]],                    // [tokens, heads, head]
                            constant AttentionWriteParams &p [[buffer(8)]], //
                            device float *part [[buffer(9)]],               // [tokens, heads, partitions, head]
                            device float *statistics [[buffer(10)]],        // [tokens, heads, partitions, 2]
                            device const float *sinks [[buffer(11)]],       // [heads], in units of e
                            device const int *slots [[buffer(12)]],         // [tokens]
                            device const float *slopes [[buffer(13)]],      // [heads]
                            device const float *factors [[buffer(14)]],     // [rotated/2]
                            device const float *q_norm [[buffer(15)]],      // [head]
                            device const float *k_norm [[buffer(16)]],      // [head]
                            device C *k_slots [[buffer(17)]],               // the memory of k_cache
                            device C *v_slots [[buffer(18)]],               // the memory of v_cache
                            device const A *gate [[buffer(19)]],            // [tokens, heads·head or heads], by stride
                            uint3 group [[threadgroup_position_in_grid]], uint3 groups [[threadgroups_per_grid]],
                            uint tid [[thread_index_in_threadgroup]], uint sg [[simdgroup_index_in_threadgroup]],
                            uint lane [[thread_index_in_simdgroup]]) {
    threadgroup States states;
    threadgroup Made made;
    Arguments<A, C> a;
    a.qkv = qkv;
    a.k_cache = k_cache;
    a.v_cache = v_cache;
    a.positions = positions;
    a.cu_seqlens = cu_seqlens;
    a.context_lens = context_lens;
    a.block_table = block_table;
    a.results = {out, part, statistics, sinks, gate, p.heads, p.gate_stride, p.gate_from};
    a.slots = slots;
    a.slopes = slopes;
    a.factors = factors;
    a.q_norm = q_norm;
    a.k_norm = k_norm;
    a.k_slots = k_slots;
    a.v_slots = v_slots;
#ifdef SMELT_SINGLE
    attend<(is_function_constant_defined(fc_heads) ? fc_heads : 1),
           is_function_constant_defined(fc_head) && fc_head <= 256 ? 8 : 16>(a, p, states, made, group, groups, tid, sg,
                                                                             lane);
#else
    if ((has_head ? fc_head : p.head) > 256) {
        attend<1, 16>(a, p, states, made, group, groups, tid, sg, lane);
        return;
    }
    switch (head_count) {
    case 1:
        attend<1, 8>(a, p, states, made, group, groups, tid, sg, lane);
        break;
    case 2:
        attend<2, 8>(a, p, states, made, group, groups, tid, sg, lane);
        break;
    default:
        attend<4, 8>(a, p, states, made, group, groups, tid, sg, lane);
        break;
    }
#endif
}

template [[host_name("attention_write_f32_f32")]]
kernel decltype(attention_write<float, float>) attention_write<float, float>;
template [[host_name("attention_write_f32_f16")]]
kernel decltype(attention_write<float, half>) attention_write<float, half>;
template [[host_name("attention_write_f16_f32")]]
kernel decltype(attention_write<half, float>) attention_write<half, float>;
template [[host_name("attention_write_f16_f16")]]
kernel decltype(attention_write<half, half>) attention_write<half, half>;
template [[host_name("attention_write_bf16_bf16")]]
kernel decltype(attention_write<bfloat, bfloat>) attention_write<bfloat, bfloat>;
template [[host_name("attention_write_f16_q8_0")]]
kernel decltype(attention_write<half, CacheBlock>) attention_write<half, CacheBlock>;
template [[host_name("attention_write_f32_q8_0")]]
kernel decltype(attention_write<float, CacheBlock>) attention_write<float, CacheBlock>;
