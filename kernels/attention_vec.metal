// Attention of single tokens over the paged cache: decoding. Long contexts are cut
// along the keys, and a second kernel puts the parts together.
#include <metal_stdlib>
#include "params.h"
#include "paged.h"
using namespace metal;

// The head size, where a pipeline is made for one: its loops are then unrolled to
// length. Otherwise it is read from the parameters.
constant uint fc_head [[function_constant(0)]];
constant bool has_head = is_function_constant_defined(fc_head);

// Keys of a partition, where the keys are cut; 0 and no such constant mean that they
// are not.
constant uint fc_split [[function_constant(1)]];
constant bool is_split = is_function_constant_defined(fc_split);

// What no score reaches: a sentinel that stays exact where infinities are optimised
// away.
constant float lowest = -3.0e38f;

// attention_vec computes softmax(scale · q·Kᵀ)·V for every token and query head over
// the keys j that the token sees: j ≤ positions[t] and j < context_lens[b], b being
// the sequence that owns the token. Query head h reads KV head h / (heads/kv_heads):
// grouped queries are an index map. Keys that are not seen are never loaded. A token
// without keys gets zeros.
//
// One pass with an online softmax (Milakov and Gimelshein, 2018). Grid (heads, tokens,
// 1) of 256 threads: eight simdgroups take steps of 32 keys in turn; in a simdgroup
// eight lanes share a key, each with every eighth group of four elements, and the four
// such groups take eight neighbouring keys each. So a step costs two reductions over
// eight lanes (of four scores each) and one maximum, and the output needs none until
// the end, when the simdgroups' states are merged. Scores are in units of log2.
// Threadgroup memory: one output row for each simdgroup, 8 KB, and its statistics.
// Heads of up to 256, a multiple of 8.
//
// With fc_split, grid z cuts the keys: threadgroup z takes keys [z·fc_split,
// (z+1)·fc_split) and writes the sum of the weighted values, not yet divided, to
// `part` and the largest score and the sum of weights to `statistics`, for
// attention_reduce. A partition without keys leaves `part` as it is.
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
                          uint3 group [[threadgroup_position_in_grid]], uint3 groups [[threadgroups_per_grid]],
                          uint tid [[thread_index_in_threadgroup]], uint sg [[simdgroup_index_in_threadgroup]],
                          uint lane [[thread_index_in_simdgroup]]) {
    threadgroup float4 rows[8][64];
    threadgroup float maxima[8];
    threadgroup float totals[8];

    const uint head = has_head ? fc_head : p.head;
    const uint q_head = group.x, token = group.y;
    const uint kv_head = q_head / (p.heads / p.kv_heads);
    const uint seq = sequence_of(cu_seqlens, p.seqs, token);
    device const int *pages = block_table + ulong(seq) * p.table_stride;
    const CacheStrides strides = {p.block_stride, p.head_stride, p.row_stride};
    const int visible = max(0, min(positions[token] + 1, context_lens[seq]));
    const uint start = is_split ? group.z * fc_split : 0;
    const int keys = is_split ? min(visible, int(start + fc_split)) : visible; // exclusive end

    const uint member = lane % 8 * 4, team = lane / 8; // first element of the lane's fours; which keys
    const ulong at = (ulong(token) * p.heads + q_head) * head;
    float4 query[8], sum[8];
    for (uint c = 0; c < 8; c++) {
        sum[c] = 0.0f;
        query[c] = 0.0f;
        const uint d = c * 32 + member;
        if (d < head)
            query[c] = float4(*(device const vec<A, 4> *)(q + at + d)) * (p.scale * 1.44269504f);
    }

    float highest = lowest, total = 0.0f;
    for (uint first = start + sg * 32; int(first) < keys; first += 256) {
        const uint key = first + team * 8;
        uint page = key / p.block, within = key % p.block;
        ulong row[8];
        float score[8];
        for (uint s = 0; s < 8; s++) {
            score[s] = 0.0f;
            row[s] = 0;
            if (key + s < uint(keys)) {
                row[s] = cache_row(uint(pages[page]), within, kv_head, strides);
                for (uint c = 0; c < 8; c++) {
                    const uint d = c * 32 + member;
                    if (d < head)
                        score[s] += dot(query[c], load_four(k_cache, row[s] + d));
                }
            }
            if (++within == p.block) {
                within = 0;
                page++;
            }
        }
        float4 low = float4(score[0], score[1], score[2], score[3]);
        float4 high = float4(score[4], score[5], score[6], score[7]);
        for (ushort step = 1; step < 8; step *= 2) {
            low += simd_shuffle_xor(low, step);
            high += simd_shuffle_xor(high, step);
        }
        for (uint s = 0; s < 4; s++) {
            score[s] = low[s];
            score[s + 4] = high[s];
        }
        float peak = highest;
        for (uint s = 0; s < 8; s++) {
            if (key + s < uint(keys))
                peak = max(peak, score[s]);
        }
        peak = simd_max(peak);
        const float keep = exp2(highest - peak);
        highest = peak;
        total *= keep;
        for (uint c = 0; c < 8; c++)
            sum[c] *= keep;
        for (uint s = 0; s < 8; s++) {
            if (key + s >= uint(keys))
                continue;
            const float weight = exp2(score[s] - peak);
            total += weight;
            for (uint c = 0; c < 8; c++) {
                const uint d = c * 32 + member;
                if (d < head)
                    sum[c] += weight * load_four(v_cache, row[s] + d);
            }
        }
    }

    // Teams of a simdgroup share their maximum, so their states add up. A simdgroup
    // without keys leaves its row unwritten and a maximum that says so.
    if (int(start + sg * 32) < keys) {
        for (ushort step = 8; step < 32; step *= 2) {
            total += simd_shuffle_xor(total, step);
            for (uint c = 0; c < 8; c++) {
                if (c * 32 < head)
                    sum[c] += simd_shuffle_xor(sum[c], step);
            }
        }
        for (uint c = 0; c < 8; c++) {
            if (team == 0 && c * 32 + member < head)
                rows[sg][c * 8 + lane] = sum[c];
        }
    }
    if (lane == 0) {
        maxima[sg] = highest;
        totals[sg] = total;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (tid * 4 >= head)
        return;
    float peak = lowest;
    for (uint i = 0; i < 8; i++)
        peak = max(peak, maxima[i]);
    float4 result = 0.0f;
    float norm = 0.0f;
    for (uint i = 0; i < 8 && int(start + i * 32) < keys; i++) {
        const float weight = exp2(maxima[i] - peak);
        norm += weight * totals[i];
        result += weight * rows[i][tid];
    }
    if (is_split) {
        const ulong slot = (ulong(token) * p.heads + q_head) * groups.z + group.z;
        if (tid == 0) {
            statistics[slot * 2] = peak;
            statistics[slot * 2 + 1] = norm;
        }
        for (uint j = 0; j < 4 && norm != 0.0f; j++)
            part[slot * head + tid * 4 + j] = result[j];
        return;
    }
    if (norm != 0.0f)
        result /= norm;
    for (uint j = 0; j < 4; j++)
        out[at + tid * 4 + j] = A(result[j]);
}

// attention_reduce puts the partitions of attention_vec together: each weighs by
// exp2 of its largest score against the largest of all. Partitions without keys have a
// sum of weights of 0 and are not read. Grid (heads, tokens, 1) of head/4 threads,
// rounded up to whole simdgroups. No threadgroup memory.
template <typename A>
kernel void attention_reduce(device const float *part [[buffer(0)]],       // [tokens, heads, partitions, head]
                             device const float *statistics [[buffer(1)]], // [tokens, heads, partitions, 2]
                             device A *out [[buffer(2)]],                  // [tokens, heads, head]
                             constant ReduceParams &p [[buffer(3)]],       //
                             uint3 group [[threadgroup_position_in_grid]], uint tid [[thread_index_in_threadgroup]]) {
    if (tid * 4 >= p.head)
        return;
    const ulong row = ulong(group.y) * p.heads + group.x;
    statistics += row * p.partitions * 2;
    part += row * p.partitions * p.head + tid * 4;
    float peak = lowest;
    for (uint i = 0; i < p.partitions; i++) {
        if (statistics[i * 2 + 1] != 0.0f)
            peak = max(peak, statistics[i * 2]);
    }
    float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    float norm = 0.0f;
    for (uint i = 0; i < p.partitions; i++) {
        if (statistics[i * 2 + 1] == 0.0f)
            continue;
        const float weight = exp2(statistics[i * 2] - peak);
        norm += weight * statistics[i * 2 + 1];
        for (uint j = 0; j < 4; j++)
            sum[j] += weight * part[ulong(i) * p.head + j];
    }
    for (uint j = 0; j < 4; j++)
        out[row * p.head + tid * 4 + j] = A(norm != 0.0f ? sum[j] / norm : 0.0f);
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
