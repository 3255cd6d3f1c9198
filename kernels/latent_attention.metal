// Latent attention of single tokens that takes its operands as the products leave them: it makes the queries
// whole, writes the cache and attends.
#include <metal_stdlib>
#include "abi/params.h"
#include "activation.h"
#include "unroll.h"
using namespace metal;

// As of attention_vec.
constant uint fc_head [[function_constant(0)]];
constant uint fc_split [[function_constant(1)]];
constant bool fc_window [[function_constant(2)]];
constant bool fc_soft_cap [[function_constant(3)]];
constant uint fc_heads [[function_constant(12)]];

// As of latent_write.
constant bool fc_interleaved [[function_constant(8)]];
constant bool fc_factors [[function_constant(9)]];
constant bool fc_table [[function_constant(10)]];

constant bool has_head = is_function_constant_defined(fc_head);
constant bool is_split = is_function_constant_defined(fc_split);
constant bool has_window = is_function_constant_defined(fc_window) ? fc_window : false;
constant bool has_soft_cap = is_function_constant_defined(fc_soft_cap) ? fc_soft_cap : false;
constant bool from_table = is_function_constant_defined(fc_table) ? fc_table : false;
constant bool has_factors = (is_function_constant_defined(fc_factors) ? fc_factors : false) || from_table;
constant uint groups_of_four = has_head && fc_head <= 256 ? 8 : (has_head && fc_head <= 512 ? 16 : 20);
constant uint head_count = is_function_constant_defined(fc_heads) && fc_heads > 1 ? fc_heads : 1;

// What attention_rows.h knows and latent attention has not.
constant bool has_sinks = false;
constant bool has_slopes = false;
constant uint gate_kind = SMELT_ACTIVATION_NONE;
constant bool gate_by_head = false;

#include "latent.h"
#include "attention_rows.h"

// Made are a token's row of the cache and the queries of a threadgroup, one after the other.
struct Made {
    float4 row[144], queries[144];
};

// store_element writes element i of a row to the cache if the token has a slot, and returns what a read of
// the cache returns; 32 lanes have neighbouring elements.
template <typename C> inline float store_element(device C *cache, ulong at, bool writes, uint i, float v, uint) {
    const C stored = C(v);
    if (writes)
        cache[at + i] = stored;
    return float(stored);
}
inline float store_element(device CacheBlock *cache, ulong at, bool writes, uint i, float v, uint lane) {
    const BlockElement e = block_element(v);
    if (writes) {
        device CacheBlock *b = cache + (at + i - lane) / 32;
        b->qs[lane] = e.q;
        if (lane == 0)
            b->d = e.d;
    }
    return float(e.q) * float(e.d);
}

// Arguments are those of the kernel.
template <typename A, typename C> struct Arguments {
    device const A *absorbed;
    device const A *q;
    device const A *all;
    device const float *gain;
    device const int *positions;
    device const int *slots;
    device const float *factors;
    device const C *k_cache;
    device const C *v_cache;
    device C *k_slots;
    device const int *cu_seqlens;
    device const int *context_lens;
    device const int *block_table;
    Results<A> results;
};

// make_rows makes a token's row of the cache, in the first simdgroup, if a query sees it or it is to be
// written, and the queries of the threadgroup, in the next ones, rounded as latent_write writes them.
template <typename A, typename C>
inline void make_rows(thread const Arguments<A, C> &a, constant LatentAttentionParams &p, thread const Heads &heads,
                      uint token, bool sees_own, bool writes, uint head, threadgroup Made &made, uint sg, uint lane) {
    const int position = a.positions[token];
    const uint latent = head - p.rotated;
    if (sg > 0 && sg <= heads.count) {
        const ulong of = ulong(token) * p.heads + heads.first + sg - 1;
        threadgroup float *query = (threadgroup float *)made.queries + (sg - 1) * head;
        for (uint i = lane; i < head; i += 32)
            query[i] = float(A(query_element(a.absorbed + of * latent, a.q + (of + 1) * p.q_head - p.rotated, i, latent,
                                             p, position, a.factors)));
    }
    if (sg > 0 || !(sees_own || writes))
        return;
    device const A *from = a.all + ulong(token) * p.all_stride + p.all_from;
    const float scale = latent_scale(from, latent, p.eps, lane);
    const uint slot = uint(a.slots[token]);
    const ulong at =
        writes ? cache_row(slot / p.block, slot % p.block, 0, {p.block_stride, p.head_stride, p.row_stride}) : 0;
    for (uint i = lane; i < head; i += 32) {
        const float v = latent_element(from, i, latent, scale, a.gain, p, position, a.factors);
        ((threadgroup float *)made.row)[i] = store_element(a.k_slots, at, writes, i, v, lane);
    }
}

// attend takes R query heads of a token, of up to 32·G elements.
template <uint R, uint G, typename A, typename C>
inline void attend(thread const Arguments<A, C> &a, constant LatentAttentionParams &p, threadgroup States &states,
                   threadgroup Made &made, uint3 group, uint3 groups, uint tid, uint sg, uint lane) {
    const uint head = has_head ? fc_head : p.head;
    const uint token = group.y;
    const Heads heads = heads_of(group.x, p.heads, 1, R);
    if (token >= p.tokens)
        return;
    const uint seq = sequence_of(a.cu_seqlens, p.seqs, token);
    const int position = a.positions[token], slot = a.slots[token];
    OwnPages<C> pages;
    pages.keys = a.k_cache;
    pages.values = a.v_cache;
    pages.table = a.block_table + ulong(seq) * p.table_stride;
    pages.block = p.block;
    pages.kv_head = 0;
    pages.strides = {p.block_stride, p.head_stride, p.row_stride};
    pages.own = uint(position);
    pages.own_key = (threadgroup const float *)made.row;
    pages.own_value = (threadgroup const float *)made.row;
    const Scoring scoring = scoring_of(p.scale, p.soft_cap);

    const uint start = is_split ? group.z * fc_split : 0;
    KeyRange seen = keys_seen(position, a.context_lens[seq], has_window ? p.window : 0);
    if (is_split)
        seen = {max(seen.begin, start), min(seen.end, start + fc_split)};
    const bool sees_own = pages.own >= seen.begin && pages.own < seen.end;
    const bool writes =
        heads.first == 0 && slot >= 0 && (!is_split || (pages.own >= start && pages.own - start < fc_split));

    // Uniform in the threadgroup, as is the barrier: partitions without keys skip it.
    if (seen.begin < seen.end || writes) {
        make_rows(a, p, heads, token, sees_own, writes, head, made, sg, lane);
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    Rows<R, G> rows;
    clear(rows);
    UNROLL for (uint r = 0; r < R; r++) {
        const bool exists = r < heads.count;
        rows.position[r] = position;
        rows.slope[r] = 0.0f;
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
        UNROLL for (uint part = 0; part < (G + 7) / 8; part++) {
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

// latent_attention fuses latent_write with attention_vec, with the same bits in the result and in the cache,
// for steps in which each sequence has one token, its last. Constants, partitions and results are those of
// attention_vec; attention_reduce merges the partitions.
//
// Threadgroups do not synchronise. Each makes its queries and, if the token's own row is in its partition,
// that row, rounded as a read of the cache would return it: slots that this dispatch writes are not read. The
// threadgroup of the first query head, in the partition of the token's position, writes the row to the token's
// slot, unless the slot is negative.
//
// Grid (heads, tokens, partitions or 1) of 256 threads, with fc_heads as of attention_vec.
// Threadgroup memory: that of attention_vec, a row of 576 elements and as many for the queries. Rows of up to
// 576 elements, a multiple of 8, as are the strides of the cache.
template <typename A, typename C>
kernel void latent_attention(device const A *absorbed [[buffer(0)]],    // [tokens, heads, head − rotated]
                             device const A *q [[buffer(1)]],           // [tokens, heads, q_head]
                             device const A *all [[buffer(2)]],         // [tokens, head] from all_from on, by stride
                             device const float *gain [[buffer(3)]],    // [head − rotated]
                             device const int *positions [[buffer(4)]], // [tokens]
                             device const int *slots [[buffer(5)]],     // [tokens]
                             device const float *factors [[buffer(6)]], // [rotated/2]
                             device A *out [[buffer(7)]],               // [tokens, heads, head]
                             device const C *k_cache [[buffer(8)]],     // [blocks, 1, block, head] by strides
                             constant LatentAttentionParams &p [[buffer(9)]], //
                             device const C *v_cache [[buffer(10)]],          // the memory of k_cache
                             device C *k_slots [[buffer(11)]],                // the memory of k_cache
                             device const int *cu_seqlens [[buffer(12)]],     // [seqs + 1]
                             device const int *context_lens [[buffer(13)]],   // [seqs]
                             device const int *block_table [[buffer(14)]],    // [seqs, table_stride]
                             device float *part [[buffer(15)]],               // [tokens, heads, partitions, head]
                             device float *statistics [[buffer(16)]],         // [tokens, heads, partitions, 2]
                             uint3 group [[threadgroup_position_in_grid]], uint3 groups [[threadgroups_per_grid]],
                             uint tid [[thread_index_in_threadgroup]], uint sg [[simdgroup_index_in_threadgroup]],
                             uint lane [[thread_index_in_simdgroup]]) {
    threadgroup States states;
    threadgroup Made made;
    Arguments<A, C> a;
    a.absorbed = absorbed;
    a.q = q;
    a.all = all;
    a.gain = gain;
    a.positions = positions;
    a.slots = slots;
    a.factors = factors;
    a.k_cache = k_cache;
    a.v_cache = v_cache;
    a.k_slots = k_slots;
    a.cu_seqlens = cu_seqlens;
    a.context_lens = context_lens;
    a.block_table = block_table;
    a.results = {out, part, statistics, gain, absorbed, p.heads, 0, 0}; // no sinks, no gate
#ifdef SMELT_SINGLE
    attend<(is_function_constant_defined(fc_heads) ? fc_heads : 1), groups_of_four>(a, p, states, made, group, groups,
                                                                                    tid, sg, lane);
#else
    if ((has_head ? fc_head : p.head) > 512) {
        attend<1, 20>(a, p, states, made, group, groups, tid, sg, lane);
        return;
    }
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

template [[host_name("latent_attention_f32_f32")]]
kernel decltype(latent_attention<float, float>) latent_attention<float, float>;
template [[host_name("latent_attention_f32_f16")]]
kernel decltype(latent_attention<float, half>) latent_attention<float, half>;
template [[host_name("latent_attention_f16_f32")]]
kernel decltype(latent_attention<half, float>) latent_attention<half, float>;
template [[host_name("latent_attention_f16_f16")]]
kernel decltype(latent_attention<half, half>) latent_attention<half, half>;
template [[host_name("latent_attention_bf16_bf16")]]
kernel decltype(latent_attention<bfloat, bfloat>) latent_attention<bfloat, bfloat>;
template [[host_name("latent_attention_f16_q8_0")]]
kernel decltype(latent_attention<half, CacheBlock>) latent_attention<half, CacheBlock>;
template [[host_name("latent_attention_f32_q8_0")]]
kernel decltype(latent_attention<float, CacheBlock>) latent_attention<float, CacheBlock>;
