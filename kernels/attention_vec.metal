// Attention of single tokens over the paged cache: decoding, and the verification of
// drafts. Long contexts are cut along the keys, and a second kernel puts the parts
// together.
#include <metal_stdlib>
#include "params.h"
#include "teams.h"
using namespace metal;

// The head size, where a pipeline is made for one: its loops are then unrolled to
// length. Otherwise it is read from the parameters.
constant uint fc_head [[function_constant(0)]];
constant bool has_head = is_function_constant_defined(fc_head);

// Keys of a partition, a multiple of 8; without the constant the keys are not cut.
constant uint fc_split [[function_constant(1)]];
constant bool is_split = is_function_constant_defined(fc_split);

constant bool fc_window [[function_constant(2)]];   // tokens see the window of the parameters
constant bool fc_soft_cap [[function_constant(3)]]; // scores have the cap of the parameters
constant bool fc_sinks [[function_constant(4)]];    // heads have sinks
constant bool fc_map [[function_constant(5)]];      // the host says who owns what
constant bool fc_slopes [[function_constant(7)]];   // scores fall with distance
constant bool has_window = is_function_constant_defined(fc_window) ? fc_window : false;
constant bool has_soft_cap = is_function_constant_defined(fc_soft_cap) ? fc_soft_cap : false;
constant bool has_sinks = is_function_constant_defined(fc_sinks) ? fc_sinks : false;
constant bool has_map = is_function_constant_defined(fc_map) ? fc_map : false;
constant bool has_slopes = is_function_constant_defined(fc_slopes) ? fc_slopes : false;

// Tokens of a threadgroup, up to most_rows; 1 without the constant. Their queries and
// sums stay in registers: 64 a thread as long as rows · head is at most 256, twice that
// is what there is.
constant uint fc_rows [[function_constant(6)]];
constant uint rows = is_function_constant_defined(fc_rows) ? fc_rows : 1;
constant constexpr uint most_rows = 8;

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
// fc_sinks every head has one more logit, which takes its share of the softmax and
// carries no value (StreamingLLM, GPT-OSS). With fc_map the sequence is read from `map`
// instead of searched for, −1 standing for none: threadgroups without a token write
// nothing.
//
// One pass with an online softmax (Milakov and Gimelshein, 2018). Grid (heads, tokens,
// 1) of 256 threads: eight simdgroups take steps of 32 keys in turn; in a simdgroup
// eight lanes share a key, and the four such teams take eight neighbouring keys each.
// The scores of a step are folded so that each lane has one of its own, weighs it, and
// hands the weight back to its team; the output needs no reduction until the end, when
// the simdgroups' states are merged. Scores are in units of log2. Threadgroup memory:
// one output row for each simdgroup, 8 KB, and its statistics. Heads of up to 256, a
// multiple of 8, as are the strides of the cache.
//
// With fc_split, grid z cuts the keys: threadgroup z takes keys [z·fc_split,
// (z+1)·fc_split) and writes the sum of the weighted values, not yet divided, to
// `part` and the largest score and the sum of weights to `statistics`, for
// attention_reduce, which adds the sinks too. A partition without keys leaves `part` as
// it is.
//
// With fc_rows, a threadgroup takes that many consecutive tokens of a sequence, the
// drafts that a step verifies, and loads each key once for all that see it: the tiles
// of paged.h, whose number, at most tokens/rows + seqs, replaces the tokens in the grid
// and in `map`. Which simdgroup and lane takes a key does not depend on the tokens beside
// it, so that a token's result is the same bit for bit.
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
                          uint3 group [[threadgroup_position_in_grid]], uint3 groups [[threadgroups_per_grid]],
                          uint tid [[thread_index_in_threadgroup]], uint sg [[simdgroup_index_in_threadgroup]],
                          uint lane [[thread_index_in_simdgroup]]) {
    threadgroup float4 states[8][64];
    threadgroup float maxima[8];
    threadgroup float totals[8];

    const uint head = has_head ? fc_head : p.head;
    const uint q_head = group.x;
    const uint kv_head = q_head / (p.heads / p.kv_heads);
    if (group.y >= (rows == 1 ? p.tokens : first_tile(int(p.tokens), p.seqs, rows)))
        return;
    int owner;
    if (has_map) {
        owner = map[group.y];
    } else if (rows == 1) {
        owner = int(sequence_of(cu_seqlens, p.seqs, group.y));
    } else {
        owner = int(sequence_of_tile(cu_seqlens, p.seqs, group.y, rows));
    }
    if (owner < 0)
        return;
    const uint seq = uint(owner);
    uint token = group.y, tokens = 1;
    if (rows != 1) {
        const int seq_start = cu_seqlens[seq];
        token = uint(seq_start) + (group.y - first_tile(seq_start, seq, rows)) * rows;
        const uint seq_end = uint(cu_seqlens[seq + 1]);
        if (token >= seq_end)
            return;
        tokens = min(rows, seq_end - token);
    }
    device const int *pages = block_table + ulong(seq) * p.table_stride;
    const CacheStrides strides = {p.block_stride, p.head_stride, p.row_stride};

    // What each token sees of this partition, and what any does.
    const uint start = is_split ? group.z * fc_split : 0;
    KeyRange seen[most_rows];
    KeyRange any = {0xffffffffu, 0};
    for (uint r = 0; r < rows; r++) {
        seen[r] = {0, 0};
        if (r < tokens)
            seen[r] = keys_seen(positions[token + r], context_lens[seq], has_window ? p.window : 0);
        if (is_split)
            seen[r] = {max(seen[r].begin, start), min(seen[r].end, start + fc_split)};
        if (seen[r].begin < seen[r].end)
            any = {min(any.begin, seen[r].begin), max(any.end, seen[r].end)};
    }

    // Capped scores are tanh(s / cap) until they are multiplied by the cap.
    const bool capped = has_soft_cap && p.soft_cap > 0.0f;
    const float scale = capped ? p.scale / p.soft_cap : p.scale * log2_e;
    const float slope = has_slopes ? slopes[q_head] * log2_e : 0.0f;
    float4 query[most_rows][8], sum[most_rows][8];
    float highest[most_rows], total[most_rows];
    for (uint r = 0; r < rows; r++) {
        device const A *from = q + (ulong(token + r) * p.heads + q_head) * head;
        highest[r] = lowest;
        total[r] = 0.0f;
        for (uint i = 0; i < 8; i++) {
            const uint d = first_four(k_cache, i, lane);
            query[r][i] = 0.0f;
            sum[r][i] = 0.0f;
            if (r < tokens && d < head)
                query[r][i] = float4(*(device const vec<A, 4> *)(from + d)) * scale;
        }
    }

    const uint team = lane / 8;
    uint first = sg * 32 + start;
    if (any.begin < any.end) {
        first += (any.begin - start) / 256 * 256;
        first += first + 32 <= any.begin ? 256 : 0;
    }
    const bool has_keys = first < any.end;
    for (; first < any.end; first += 256) {
        // The rows of the team's keys: one look at the table for each block.
        const uint key = first + team * 8;
        ulong row[8];
        uint within = key % p.block;
        device const int *page = pages + key / p.block;
        ulong at = key < any.end ? cache_row(uint(*page), within, kv_head, strides) : 0;
        for (uint s = 0; s < 8; s++) {
            row[s] = at;
            at += strides.row;
            if (++within == p.block && key + s + 1 < any.end) {
                within = 0;
                page++;
                at = cache_row(uint(*page), 0, kv_head, strides);
            }
        }

        float score[most_rows][8];
        for (uint s = 0; s < 8; s++) {
            for (uint r = 0; r < rows; r++)
                score[r][s] = 0.0f;
            if (key + s < any.begin || key + s >= any.end)
                continue;
            for (uint i = 0; i < 8; i += 2) {
                const uint d = first_four(k_cache, i, lane);
                if (d >= head)
                    continue;
                const Fours k = load_fours(k_cache, row[s], d, head);
                for (uint r = 0; r < rows; r++)
                    score[r][s] += dot(query[r][i], k.first) + dot(query[r][i + 1], k.second);
            }
        }

        // Lane i weighs key first + i, the i % 8-th of its team.
        Eight weights[most_rows];
        for (uint r = 0; r < rows; r++) {
            thread const float *v = score[r];
            float own = fold(float4(v[0], v[1], v[2], v[3]), float4(v[4], v[5], v[6], v[7]), lane);
            if (capped)
                own = p.soft_cap * log2_e * precise::tanh(own);
            if (has_slopes && r < tokens)
                own += slope * float(int(first + lane) - positions[token + r]);
            const bool sees = first + lane >= seen[r].begin && first + lane < seen[r].end;
            const float peak = simd_max(sees ? max(highest[r], own) : highest[r]);
            const float keep = exp2(highest[r] - peak);
            const float weight = sees ? exp2(own - peak) : 0.0f;
            highest[r] = peak;
            total[r] = total[r] * keep + weight;
            if (keep != 1.0f) {
                for (uint i = 0; i < 8; i++)
                    sum[r][i] *= keep;
            }
            weights[r] = spread(weight, lane);
        }

        for (uint s = 0; s < 8; s++) {
            float weight[most_rows];
            bool wanted = false;
            for (uint r = 0; r < rows; r++) {
                weight[r] = s < 4 ? weights[r].low[s % 4] : weights[r].high[s % 4];
                wanted = wanted || weight[r] != 0.0f;
            }
            if (!wanted)
                continue;
            for (uint i = 0; i < 8; i += 2) {
                const uint d = first_four(v_cache, i, lane);
                if (d >= head)
                    continue;
                const Fours v = load_fours(v_cache, row[s], d, head);
                for (uint r = 0; r < rows; r++) {
                    if (weight[r] == 0.0f) // an infinite value is none of its business
                        continue;
                    sum[r][i] += weight[r] * v.first;
                    sum[r][i + 1] += weight[r] * v.second;
                }
            }
        }
    }

    for (uint r = 0; r < rows; r++) {
        if (r >= tokens)
            break;
        // Teams of a simdgroup share their maximum, so their states add up. A simdgroup
        // without keys leaves its row unwritten and a sum of weights that says so.
        if (has_keys) {
            total[r] = simd_sum(total[r]);
            for (uint i = 0; i < 8; i += 4) {
                if (first_four(v_cache, i, 0) >= head)
                    continue;
                const float4 whole = fold_teams(sum[r][i], sum[r][i + 1], sum[r][i + 2], sum[r][i + 3], lane);
                const uint d = first_four(v_cache, i + team, lane);
                if (d < head)
                    states[sg][d / 4] = whole;
            }
        }
        if (lane == 0) {
            maxima[sg] = highest[r];
            totals[sg] = total[r];
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if (tid * 4 < head) {
            const ulong slot = ulong(token + r) * p.heads + q_head;
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
                const ulong at = slot * groups.z + group.z;
                if (tid == 0) {
                    statistics[at * 2] = peak;
                    statistics[at * 2 + 1] = norm;
                }
                if (norm != 0.0f)
                    *(device float4 *)(part + at * head + tid * 4) = result;
            } else {
                if (norm != 0.0f)
                    result /= norm;
                store_four(out, slot * head + tid * 4, result);
            }
        }
        if (r + 1 < rows) // states are written again
            threadgroup_barrier(mem_flags::mem_threadgroup);
    }
}

// attention_reduce puts the partitions of attention_vec together: each weighs by
// exp2 of its largest score against the largest of all, with fc_sinks the head's sink
// among them. Partitions without keys have a sum of weights of 0 and are not read. Every
// simdgroup weighs 32 partitions at a time, one a lane, before it adds them up. Grid
// (heads, tokens, 1) of head/4 threads, rounded up to whole simdgroups. No threadgroup
// memory.
template <typename A>
kernel void attention_reduce(device const float *part [[buffer(0)]],       // [tokens, heads, partitions, head]
                             device const float *statistics [[buffer(1)]], // [tokens, heads, partitions, 2]
                             device A *out [[buffer(2)]],                  // [tokens, heads, head]
                             constant ReduceParams &p [[buffer(3)]],       //
                             device const float *sinks [[buffer(4)]],      // [heads], in units of e
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
    if (writes)
        store_four(out, row * p.head + tid * 4, norm != 0.0f ? sum / norm : float4(0.0f));
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
