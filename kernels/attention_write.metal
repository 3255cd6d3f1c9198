// Attention of single tokens that takes Q, K and V as the projection leaves them: it
// rotates them, with head norms before, and writes the cache. What stands between the
// projection and attention's result in one dispatch.
#include <metal_stdlib>
#include "params.h"
#include "teams.h"
#include "pairs.h"
using namespace metal;

// As of attention_vec.
constant uint fc_head [[function_constant(0)]];
constant uint fc_split [[function_constant(1)]];
constant bool fc_window [[function_constant(2)]];
constant bool fc_soft_cap [[function_constant(3)]];
constant bool fc_sinks [[function_constant(4)]];
constant bool fc_slopes [[function_constant(7)]];

constant bool fc_interleaved [[function_constant(8)]]; // else NeoX pairs
constant bool fc_factors [[function_constant(9)]];     // divide each frequency by its factor
constant bool fc_table [[function_constant(10)]];      // factors are whole divisors: theta has no part
constant bool fc_norms [[function_constant(11)]];      // heads of Q and K are normalised

constant bool has_head = is_function_constant_defined(fc_head);
constant bool is_split = is_function_constant_defined(fc_split);
constant bool has_window = is_function_constant_defined(fc_window) ? fc_window : false;
constant bool has_soft_cap = is_function_constant_defined(fc_soft_cap) ? fc_soft_cap : false;
constant bool has_sinks = is_function_constant_defined(fc_sinks) ? fc_sinks : false;
constant bool has_slopes = is_function_constant_defined(fc_slopes) ? fc_slopes : false;
constant bool from_table = is_function_constant_defined(fc_table) ? fc_table : false;
constant bool has_factors = (is_function_constant_defined(fc_factors) ? fc_factors : false) || from_table;
constant bool has_norms = is_function_constant_defined(fc_norms) ? fc_norms : false;

// The row of a token that a simdgroup makes: a query head, or a KV head's key or value.
constant constexpr uint query_row = 0, key_row = 1, value_row = 2;

// rounded is what is left of four elements in a type.
template <typename T> inline float4 rounded(device const T *, float4 v) { return float4(vec<T, 4>(v)); }
inline float4 rounded(device const CacheBlock *, float4 v) { return v; } // by neighbours: see store_row

// store_row puts a row that lies in threadgroup memory into the cache, if it is to be
// written, and leaves there what the cache gives back.
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
// value is but copied.
template <typename A, typename T>
inline void make_row(constant AttentionWriteParams &p, device const A *from, device const T *as,
                     device const float *factors, device const float *gains, int position, bool turns,
                     threadgroup float *to, uint head, uint lane) {
    const bool whole = (p.rotated & 3) == 0;
    const uint rotated = turns ? p.rotated : 0;
    float4 x[2];
    float squares = 0.0f;
    for (uint s = 0; s < 2; s++) {
        const uint i = (s * 32 + lane) * 2;
        x[s] = 0.0f;
        if (2 * i < head)
            x[s] = load_pairs(from, pairs_of(i, rotated, fc_interleaved), whole);
        squares += dot(x[s], x[s]);
    }
    float scale = 1.0f;
    if (has_norms && turns)
        scale = precise::rsqrt(simd_sum(squares) / float(head) + p.eps);
    for (uint s = 0; s < 2; s++) {
        const uint i = (s * 32 + lane) * 2;
        if (2 * i >= head)
            continue;
        const Pairs at = pairs_of(i, rotated, fc_interleaved);
        float4 v = x[s];
        if (has_norms && turns)
            v *= scale * load_pairs(gains, at, whole);
        if (turns)
            v = turn_pairs(v, at, rotations(p, position, i, at, factors, has_factors, from_table));
        store_pairs(to, at, rounded(as, v), whole);
    }
}

// own_fours is load_fours of a row in threadgroup memory.
template <typename C>
inline Fours own_fours(device const C *cache, threadgroup const float *row, uint i, uint lane, uint head) {
    const uint first = first_four(cache, i, lane), second = first_four(cache, i + 1, lane);
    return {*(threadgroup const float4 *)(row + first),
            second < head ? *(threadgroup const float4 *)(row + second) : float4(0.0f)};
}

// attention_write computes what head_norm_rope_kv_write (with fc_norms) or rope_qkv_write
// and attention_vec compute one after the other, and leaves the same in the cache, for
// steps in which each sequence brings one token, its last. Constants, partitions and
// results are those of attention_vec; parts are put together by attention_reduce.
//
// No threadgroup waits for another. Each makes its query head for itself and, where the
// token's own key is one of those it takes, that key and its value, rounded as the cache
// would give them back: slots that this dispatch writes are not read. The first query head
// of each KV head writes both to the token's slot, in the partition that holds its key or,
// where none does, the last; below 0 nothing is written.
//
// Grid (heads, tokens, partitions or 1) of 256 threads. Threadgroup memory: that of
// attention_vec, and three rows. Heads of up to 256, a multiple of 8, as are the strides
// of the cache.
template <typename A, typename C>
kernel void attention_write(device const A *qkv [[buffer(0)]],            // [tokens, (heads + 2·kv_heads)·head]
                            device const C *k_cache [[buffer(1)]],        // [blocks, kv_heads, block, head] by strides
                            device const C *v_cache [[buffer(2)]],        // [blocks, kv_heads, block, head] by strides
                            device const int *positions [[buffer(3)]],    // [tokens]
                            device const int *cu_seqlens [[buffer(4)]],   // [seqs + 1]
                            device const int *context_lens [[buffer(5)]], // [seqs]
                            device const int *block_table [[buffer(6)]],  // [seqs, table_stride]
                            device A *out [[buffer(7)]],                  // [tokens, heads, head]
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
                            uint3 group [[threadgroup_position_in_grid]], uint3 groups [[threadgroups_per_grid]],
                            uint tid [[thread_index_in_threadgroup]], uint sg [[simdgroup_index_in_threadgroup]],
                            uint lane [[thread_index_in_simdgroup]]) {
    threadgroup float4 states[8][64];
    threadgroup float4 rows[3][64];
    threadgroup float maxima[8];
    threadgroup float totals[8];

    const uint head = has_head ? fc_head : p.head;
    const uint q_head = group.x, token = group.y;
    const uint shared = p.heads / p.kv_heads, kv_head = q_head / shared;
    if (token >= p.tokens)
        return;
    const uint seq = sequence_of(cu_seqlens, p.seqs, token);
    device const int *pages = block_table + ulong(seq) * p.table_stride;
    const CacheStrides strides = {p.block_stride, p.head_stride, p.row_stride};
    const int position = positions[token], slot = slots[token];

    const uint start = is_split ? group.z * fc_split : 0;
    KeyRange seen = keys_seen(position, context_lens[seq], has_window ? p.window : 0);
    if (is_split)
        seen = {max(seen.begin, start), min(seen.end, start + fc_split)};
    const uint own = uint(position); // key
    const bool sees_own = own >= seen.begin && own < seen.end;
    const bool writes =
        q_head % shared == 0 && slot >= 0 && (!is_split || group.z == min(own / fc_split, groups.z - 1));

    // Uniform in the threadgroup, as are the barriers: partitions without keys skip it.
    if (seen.begin < seen.end || writes) {
        const uint made = sg == query_row ? q_head : p.heads + (sg - key_row) * p.kv_heads + kv_head;
        device const A *from = qkv + (ulong(token) * (p.heads + 2 * p.kv_heads) + made) * head;
        threadgroup float *row = (threadgroup float *)rows[min(sg, value_row)];
        if (sg == query_row) {
            make_row(p, from, out, factors, q_norm, position, true, row, head, lane);
        } else if (sg <= value_row && (sees_own || writes)) {
            const ulong at = writes ? cache_row(uint(slot) / p.block, uint(slot) % p.block, kv_head, strides) : 0;
            make_row(p, from, k_slots, factors, k_norm, position, sg == key_row, row, head, lane);
            simdgroup_barrier(mem_flags::mem_threadgroup);
            store_row(sg == key_row ? k_slots : v_slots, at, writes, row, head, lane);
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    threadgroup const float *own_key = (threadgroup const float *)rows[key_row];
    threadgroup const float *own_value = (threadgroup const float *)rows[value_row];

    // Capped scores are tanh(s / cap) until they are multiplied by the cap.
    const bool capped = has_soft_cap && p.soft_cap > 0.0f;
    const float scale = capped ? p.scale / p.soft_cap : p.scale * log2_e;
    const float slope = has_slopes ? slopes[q_head] * log2_e : 0.0f;
    float4 query[8], sum[8];
    float highest = lowest, total = 0.0f;
    for (uint i = 0; i < 8; i++) {
        const uint d = first_four(k_cache, i, lane);
        query[i] = 0.0f;
        sum[i] = 0.0f;
        if (seen.begin < seen.end && d < head)
            query[i] = rows[query_row][d / 4] * scale;
    }

    const uint team = lane / 8;
    uint first = sg * 32 + start;
    if (seen.begin < seen.end) {
        first += (seen.begin - start) / 256 * 256;
        first += first + 32 <= seen.begin ? 256 : 0;
    }
    const bool has_keys = first < seen.end;
    for (; first < seen.end; first += 256) {
        // The rows of the team's keys: one look at the table for each block.
        const uint key = first + team * 8;
        ulong row[8];
        uint within = key % p.block;
        device const int *page = pages + key / p.block;
        ulong at = key < seen.end ? cache_row(uint(*page), within, kv_head, strides) : 0;
        for (uint s = 0; s < 8; s++) {
            row[s] = at;
            at += strides.row;
            if (++within == p.block && key + s + 1 < seen.end) {
                within = 0;
                page++;
                at = cache_row(uint(*page), 0, kv_head, strides);
            }
        }

        float score[8];
        for (uint s = 0; s < 8; s++) {
            score[s] = 0.0f;
            if (key + s < seen.begin || key + s >= seen.end)
                continue;
            for (uint i = 0; i < 8; i += 2) {
                const uint d = first_four(k_cache, i, lane);
                if (d >= head)
                    continue;
                const Fours k =
                    key + s == own ? own_fours(k_cache, own_key, i, lane, head) : load_fours(k_cache, row[s], d, head);
                score[s] += dot(query[i], k.first) + dot(query[i + 1], k.second);
            }
        }

        // Lane i weighs key first + i, the i % 8-th of its team.
        float mine =
            fold(float4(score[0], score[1], score[2], score[3]), float4(score[4], score[5], score[6], score[7]), lane);
        if (capped)
            mine = p.soft_cap * log2_e * precise::tanh(mine);
        if (has_slopes)
            mine += slope * float(int(first + lane) - position);
        const bool sees = first + lane >= seen.begin && first + lane < seen.end;
        const float peak = simd_max(sees ? max(highest, mine) : highest);
        const float keep = exp2(highest - peak);
        const float weight = sees ? exp2(mine - peak) : 0.0f;
        highest = peak;
        total = total * keep + weight;
        if (keep != 1.0f) {
            for (uint i = 0; i < 8; i++)
                sum[i] *= keep;
        }
        const Eight weights = spread(weight, lane);

        for (uint s = 0; s < 8; s++) {
            const float of = s < 4 ? weights.low[s % 4] : weights.high[s % 4];
            if (of == 0.0f) // an infinite value is none of its business
                continue;
            for (uint i = 0; i < 8; i += 2) {
                const uint d = first_four(v_cache, i, lane);
                if (d >= head)
                    continue;
                const Fours v = key + s == own ? own_fours(v_cache, own_value, i, lane, head)
                                               : load_fours(v_cache, row[s], d, head);
                sum[i] += of * v.first;
                sum[i + 1] += of * v.second;
            }
        }
    }

    // Teams of a simdgroup share their maximum, so their states add up. A simdgroup
    // without keys leaves its row unwritten and a sum of weights that says so.
    if (has_keys) {
        total = simd_sum(total);
        for (uint i = 0; i < 8; i += 4) {
            if (first_four(v_cache, i, 0) >= head)
                continue;
            const float4 whole = fold_teams(sum[i], sum[i + 1], sum[i + 2], sum[i + 3], lane);
            const uint d = first_four(v_cache, i + team, lane);
            if (d < head)
                states[sg][d / 4] = whole;
        }
    }
    if (lane == 0) {
        maxima[sg] = highest;
        totals[sg] = total;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (tid * 4 >= head)
        return;
    const ulong result_at = ulong(token) * p.heads + q_head;
    const bool sinks_here = has_sinks && !is_split;
    const float sink = sinks_here ? sinks[q_head] * log2_e : lowest;
    float peak = max(lowest, sink);
    for (uint i = 0; i < 8; i++)
        peak = max(peak, maxima[i]);
    float4 result = 0.0f;
    float norm = sinks_here ? exp2(sink - peak) : 0.0f;
    for (uint i = 0; i < 8; i++) {
        if (totals[i] == 0.0f)
            continue;
        const float weight = exp2(maxima[i] - peak);
        norm += weight * totals[i];
        result += weight * states[i][tid];
    }
    if (is_split) {
        const ulong at = result_at * groups.z + group.z;
        if (tid == 0) {
            statistics[at * 2] = peak;
            statistics[at * 2 + 1] = norm;
        }
        if (norm != 0.0f)
            *(device float4 *)(part + at * head + tid * 4) = result;
    } else {
        if (norm != 0.0f)
            result /= norm;
        store_four(out, result_at * head + tid * 4, result);
    }
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
