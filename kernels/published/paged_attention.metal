// Attention of one query token a sequence, or of every token of a step by itself, over a paged
// cache in the layout of vLLM and Aphrodite: K is [blocks, kv_heads, head/x, block, x] with x elements to 16 bytes, so
// that neighbouring slots lie side by side in pieces of 16 bytes, and V is [blocks,
// kv_heads, head, block]. Both have the same strides from block to block and from head
// to head. Blocks have 8, 16 or 32 slots, heads up to 256 elements, a multiple of 8.
#include <metal_stdlib>
#include "../abi/params.h"
#include "../paged.h"
#include "../unroll.h"
using namespace metal;

// Head and block size, where a pipeline is made for them: loops are then unrolled to
// length. Otherwise they are read from the parameters.
constant uint fc_head [[function_constant(0)]];
constant uint fc_block [[function_constant(1)]];
constant bool has_head = is_function_constant_defined(fc_head);
constant bool has_block = is_function_constant_defined(fc_block);

constant bool fc_alibi [[function_constant(2)]];    // scores fall with distance
constant bool fc_window [[function_constant(3)]];   // queries see the window of the parameters
constant bool fc_soft_cap [[function_constant(4)]]; // scores have the cap of the parameters
constant bool fc_sinks [[function_constant(5)]];    // heads have sinks
constant bool fc_map [[function_constant(6)]];      // rows are tokens, and `map` gives their sequences
constant bool has_alibi = is_function_constant_defined(fc_alibi) ? fc_alibi : false;
constant bool has_window = is_function_constant_defined(fc_window) ? fc_window : false;
constant bool has_soft_cap = is_function_constant_defined(fc_soft_cap) ? fc_soft_cap : false;
constant bool has_sinks = is_function_constant_defined(fc_sinks) ? fc_sinks : false;
constant bool has_map = is_function_constant_defined(fc_map) ? fc_map : false;

constant uint partition = 512; // keys of a threadgroup of paged_attention_v2, a multiple of 32

// What no score reaches: a sentinel that stays exact where infinities are optimised
// away.
constant float lowest = -3.0e38f;

constant float log2_e = 1.44269504f;

// What a row of queries, and of results, is of: a sequence, and the keys that it sees.
struct Row {
    uint seq, context;
};

// row_of is the sequence of that number, whose last key is the query's own; with fc_map that
// of a token, which sees the keys up to its position. A token of no sequence has no keys.
inline Row row_of(uint row, device const int *context_lens, device const int *positions, device const int *map) {
    if (!has_map)
        return {row, uint(max(0, context_lens[row]))};
    const int seq = map[row];
    if (seq < 0)
        return {0, 0};
    return {uint(seq), uint(max(0, min(context_lens[seq], positions[row] + 1)))};
}

// Memory of a threadgroup of eight simdgroups.
struct Shared {
    float4 query[64];     // scaled
    float4 weights[8][8]; // of the 32 keys of each simdgroup's step
    float rows[8][256];   // each simdgroup's sums of weighted values
    float maxima[8];
    float totals[8];
};

// What a thread knows in the end: the largest score in units of log2, the sum of the
// weights relative to it, and the sum of weighted values for element tid of the head.
struct Sums {
    float highest, total, value;
};

inline uint block_of(constant PagedAttentionParams &p) { return has_block ? fc_block : p.block; }

// attend takes the keys [low, end) of a sequence in steps of 32 to a simdgroup.
template <typename A>
inline Sums attend(device const A *q, device const A *k_cache, device const A *v_cache, device const int *pages,
                   device const float *alibi_slopes, constant PagedAttentionParams &p, uint context, uint low, uint end,
                   uint q_head, threadgroup Shared &shared, uint tid, uint sg, uint lane) {
    constexpr uint x = 16 / sizeof(A);
    const uint head = has_head ? fc_head : p.head, block = block_of(p);
    const ulong kv_offset = ulong(q_head / (p.heads / p.kv_heads)) * p.head_stride;

    if (tid < head)
        ((threadgroup float *)shared.query)[tid] = float(q[tid]) * p.scale;
    threadgroup_barrier(mem_flags::mem_threadgroup);

    const uint per_row = block / x;         // lanes that share a row of V: 1 to 8
    const uint row_step = 32 / per_row;     // rows that the simdgroup reads at a time
    const uint column = lane % per_row * x; // of the lane's piece of a row
    float sum[64];                          // of rows lane/per_row, lane/per_row + row_step, …
    UNROLL for (uint r = 0; r < 64; r++)
        sum[r] = 0.0f;
    float highest = lowest, total = 0.0f;
    const uint start = low / 32 * 32;
    for (uint first = start + sg * 32; first < end; first += 256) {
        const uint key = first + lane;
        const bool seen = key >= low && key < end;
        float score = lowest;
        if (seen) {
            device const A *from =
                k_cache + (ulong(uint(pages[key / block])) * p.block_stride + kv_offset + key % block * x);
            float4 products = 0.0f;
            for (uint d = 0; d < head; d += x) {
                for (uint i = 0; i < x; i += 4)
                    products += shared.query[(d + i) / 4] * load_four(from, d * block + i);
            }
            score = products.x + products.y + products.z + products.w;
            if (has_soft_cap)
                score = p.soft_cap * precise::tanh(score / p.soft_cap);
            if (has_alibi)
                score += alibi_slopes[q_head] * (float(key) - float(context - 1));
            score *= log2_e;
        }
        const float peak = max(highest, simd_max(score));
        const float keep = exp2(highest - peak), weight = seen ? exp2(score - peak) : 0.0f;
        highest = peak;
        total = total * keep + weight;
        ((threadgroup float *)shared.weights[sg])[lane] = weight;
        simdgroup_barrier(mem_flags::mem_threadgroup);

        UNROLL for (uint r = 0; r < 64; r++) {
            if (r * row_step >= head)
                break;
            sum[r] *= keep;
        }
        for (uint base = first; base < first + 32; base += block) {
            if (base >= end || base + block <= low)
                continue;
            device const A *from = v_cache + (ulong(uint(pages[base / block])) * p.block_stride + kv_offset + column);
            // Slots that are not seen may hold anything: no weight of 0 makes a NaN 0.
            const uint piece = base + column;
            const bool whole = piece >= low && piece + x <= end;
            for (uint i = 0; i < x; i += 4) {
                const float4 weights = shared.weights[sg][(piece - first + i) / 4];
                UNROLL for (uint r = 0; r < 64; r++) {
                    if (r * row_step >= head)
                        break;
                    const uint d = r * row_step + lane / per_row;
                    if (d >= head)
                        continue;
                    const float4 values = load_four(from, ulong(d) * block + i);
                    if (whole) {
                        sum[r] += dot(weights, values);
                        continue;
                    }
                    UNROLL for (uint j = 0; j < 4; j++) {
                        if (piece + i + j >= low && piece + i + j < end)
                            sum[r] += weights[j] * values[j];
                    }
                }
            }
        }
        simdgroup_barrier(mem_flags::mem_threadgroup);
    }

    // A simdgroup without keys leaves its row unwritten.
    if (start + sg * 32 < end) {
        UNROLL for (uint r = 0; r < 64; r++) {
            if (r * row_step >= head)
                break;
            for (ushort step = 1; step < per_row; step *= 2)
                sum[r] += simd_shuffle_xor(sum[r], step);
            const uint d = r * row_step + lane / per_row;
            if (column == 0 && d < head)
                shared.rows[sg][d] = sum[r];
        }
        total = simd_sum(total);
    }
    if (lane == 0) {
        shared.maxima[sg] = highest;
        shared.totals[sg] = total;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    Sums all = {lowest, 0.0f, 0.0f};
    for (uint i = 0; i < 8; i++)
        all.highest = max(all.highest, shared.maxima[i]);
    for (uint i = 0; i < 8 && start + i * 32 < end; i++) {
        const float weight = exp2(shared.maxima[i] - all.highest);
        all.total += weight * shared.totals[i];
        if (tid < head)
            all.value += weight * shared.rows[i][tid];
    }
    return all;
}

// first_seen is the first key that the query, the last of its context, sees.
inline uint first_seen(uint context, constant PagedAttentionParams &p) {
    return has_window && p.window > 0 && context > p.window ? context - p.window : 0;
}

// paged_attention_v1 computes softmax(scale · q·Kᵀ)·V for one query of each sequence,
// the last of its context; query head h reads KV head h / (heads/kv_heads). A sequence
// without keys gets zeros, and slots past a context may hold anything. With fc_soft_cap
// a score s becomes soft_cap · tanh(s / soft_cap); then with fc_alibi it gets slope ·
// (key - context + 1) (Press, Smith and Lewis, "Train Short, Test Long", 2022); with
// fc_window the query sees the last `window` keys only. With fc_sinks every head has one more
// logit, which carries no value. With fc_map there is a query for each token of the step
// instead, map[t] is its sequence, and it sees the keys up to positions[t].
//
// After paged_attention_v1 of vLLM (Kwon et al., "Efficient Memory Management for Large
// Language Model Serving with PagedAttention", 2023), which Aphrodite has too. That
// keeps the scores of a whole context in shared memory; 32 KB hold 8,192 of them, so
// here the softmax is online (Milakov and Gimelshein, 2018) and a context has no limit.
// The layout suits a simdgroup as it is. For scores each lane takes a key: lanes read 16
// bytes side by side, and no score needs a reduction. For values each lane takes 16
// bytes of a row, that is one element of a few keys; lanes of the same row are added up
// once, at the end.
//
// Grid (heads, seqs, 1) of 256 threads: eight simdgroups take steps of 32 keys in turn.
// Threadgroup memory: the query, 32 weights and an output row for each simdgroup, and
// its statistics, 10 KB.
template <typename A>
kernel void paged_attention_v1(device const A *q [[buffer(0)]],                // [seqs, heads, head], q_stride apart
                               device const A *k_cache [[buffer(1)]],          // [blocks, kv_heads, head/x, block, x]
                               device const A *v_cache [[buffer(2)]],          // [blocks, kv_heads, head, block]
                               device const int *block_table [[buffer(3)]],    // [seqs, table_stride]
                               device const int *context_lens [[buffer(4)]],   // [seqs]
                               device A *out [[buffer(5)]],                    // [seqs, heads, head]
                               constant PagedAttentionParams &p [[buffer(6)]], //
                               device const float *alibi_slopes [[buffer(7)]], // [heads]
                               device const int *positions [[buffer(10)]],     // [seqs], with fc_map
                               device const int *map [[buffer(11)]],           // [seqs], with fc_map
                               device const float *sinks [[buffer(12)]],       // [heads], in units of e
                               uint3 group [[threadgroup_position_in_grid]], uint tid [[thread_index_in_threadgroup]],
                               uint sg [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
    threadgroup Shared shared;
    const uint head = has_head ? fc_head : p.head, q_head = group.x;
    const Row row = row_of(group.y, context_lens, positions, map);
    Sums sums = attend(q + (ulong(group.y) * p.q_stride + q_head * head), k_cache, v_cache,
                       block_table + ulong(row.seq) * p.table_stride, alibi_slopes, p, row.context,
                       first_seen(row.context, p), row.context, q_head, shared, tid, sg, lane);
    if (has_sinks) {
        const float sink = sinks[q_head] * log2_e, peak = max(sums.highest, sink), keep = exp2(sums.highest - peak);
        sums.total = sums.total * keep + exp2(sink - peak);
        sums.value *= keep;
    }
    if (tid < head)
        out[(ulong(group.y) * p.heads + q_head) * head + tid] = A(sums.total != 0.0f ? sums.value / sums.total : 0.0f);
}

// paged_attention_v2 is paged_attention_v1 for partitions of 512 keys, as vLLM's is, so
// that long contexts keep many cores busy. Each leaves its largest score, in units of
// log2, the sum of its weights, and its output, divided by that sum. A partition without
// keys has a sum of 0 and leaves its output as it is.
//
// Grid (heads, seqs, partitions) of 256 threads. Threadgroup memory: as for
// paged_attention_v1.
template <typename A>
kernel void paged_attention_v2(device const A *q [[buffer(0)]],                // [seqs, heads, head], q_stride apart
                               device const A *k_cache [[buffer(1)]],          // [blocks, kv_heads, head/x, block, x]
                               device const A *v_cache [[buffer(2)]],          // [blocks, kv_heads, head, block]
                               device const int *block_table [[buffer(3)]],    // [seqs, table_stride]
                               device const int *context_lens [[buffer(4)]],   // [seqs]
                               device A *part [[buffer(5)]],                   // [seqs, heads, partitions, head]
                               constant PagedAttentionParams &p [[buffer(6)]], //
                               device const float *alibi_slopes [[buffer(7)]], // [heads]
                               device float *exp_sums [[buffer(8)]],           // [seqs, heads, partitions]
                               device float *max_logits [[buffer(9)]],         // [seqs, heads, partitions]
                               device const int *positions [[buffer(10)]],     // [seqs], with fc_map
                               device const int *map [[buffer(11)]],           // [seqs], with fc_map
                               uint3 group [[threadgroup_position_in_grid]], uint tid [[thread_index_in_threadgroup]],
                               uint sg [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
    threadgroup Shared shared;
    const uint head = has_head ? fc_head : p.head, q_head = group.x;
    const Row row = row_of(group.y, context_lens, positions, map);
    const uint low = max(first_seen(row.context, p), group.z * partition);
    const uint end = min(row.context, (group.z + 1) * partition);
    const ulong at = (ulong(group.y) * p.heads + q_head) * p.partitions + group.z;
    if (low >= end) {
        if (tid == 0) {
            exp_sums[at] = 0.0f;
            max_logits[at] = lowest;
        }
        return;
    }
    const Sums sums = attend(q + (ulong(group.y) * p.q_stride + q_head * head), k_cache, v_cache,
                             block_table + ulong(row.seq) * p.table_stride, alibi_slopes, p, row.context, low, end,
                             q_head, shared, tid, sg, lane);
    if (tid == 0) {
        exp_sums[at] = sums.total;
        max_logits[at] = sums.highest;
    }
    if (tid < head && sums.total != 0.0f)
        part[at * head + tid] = A(sums.value / sums.total);
}

// paged_attention_reduce puts the partitions of paged_attention_v2 together: each counts
// by its sum of weights, scaled to the largest score of all, with fc_sinks the head's sink
// among them. Partitions past the context are not read.
//
// Grid (heads, seqs, 1) of `head` threads, rounded up to whole simdgroups. No
// threadgroup memory.
template <typename A>
kernel void paged_attention_reduce(device const float *exp_sums [[buffer(0)]],     // [seqs, heads, partitions]
                                   device const float *max_logits [[buffer(1)]],   // [seqs, heads, partitions]
                                   device const A *part [[buffer(2)]],             // [seqs, heads, partitions, head]
                                   device const int *context_lens [[buffer(3)]],   // [seqs]
                                   device A *out [[buffer(4)]],                    // [seqs, heads, head]
                                   constant PagedAttentionParams &p [[buffer(5)]], //
                                   device const int *positions [[buffer(10)]],     // [seqs], with fc_map
                                   device const int *map [[buffer(11)]],           // [seqs], with fc_map
                                   device const float *sinks [[buffer(12)]],       // [heads], in units of e
                                   uint3 group [[threadgroup_position_in_grid]],
                                   uint tid [[thread_index_in_threadgroup]]) {
    const uint head = has_head ? fc_head : p.head;
    if (tid >= head)
        return;
    const ulong row = ulong(group.y) * p.heads + group.x;
    const uint context = row_of(group.y, context_lens, positions, map).context;
    const uint partitions = min((context + partition - 1) / partition, p.partitions);
    exp_sums += row * p.partitions;
    max_logits += row * p.partitions;
    part += row * p.partitions * head + tid;
    const float sink = has_sinks ? sinks[group.x] * log2_e : lowest;
    float peak = sink;
    for (uint i = 0; i < partitions; i++) {
        if (exp_sums[i] != 0.0f)
            peak = max(peak, max_logits[i]);
    }
    float value = 0.0f, total = has_sinks ? exp2(sink - peak) : 0.0f;
    for (uint i = 0; i < partitions; i++) {
        if (exp_sums[i] == 0.0f)
            continue;
        const float weight = exp_sums[i] * exp2(max_logits[i] - peak);
        total += weight;
        value += weight * float(part[ulong(i) * head]);
    }
    out[row * head + tid] = A(total != 0.0f ? value / total : 0.0f);
}

template [[host_name("paged_attention_v1_f32")]] kernel decltype(paged_attention_v1<float>) paged_attention_v1<float>;
template [[host_name("paged_attention_v1_f16")]] kernel decltype(paged_attention_v1<half>) paged_attention_v1<half>;
template
    [[host_name("paged_attention_v1_bf16")]] kernel decltype(paged_attention_v1<bfloat>) paged_attention_v1<bfloat>;
template [[host_name("paged_attention_v2_f32")]] kernel decltype(paged_attention_v2<float>) paged_attention_v2<float>;
template [[host_name("paged_attention_v2_f16")]] kernel decltype(paged_attention_v2<half>) paged_attention_v2<half>;
template
    [[host_name("paged_attention_v2_bf16")]] kernel decltype(paged_attention_v2<bfloat>) paged_attention_v2<bfloat>;
template [[host_name(
    "paged_attention_reduce_f32")]] kernel decltype(paged_attention_reduce<float>) paged_attention_reduce<float>;
template [[host_name(
    "paged_attention_reduce_f16")]] kernel decltype(paged_attention_reduce<half>) paged_attention_reduce<half>;
template [[host_name(
    "paged_attention_reduce_bf16")]] kernel decltype(paged_attention_reduce<bfloat>) paged_attention_reduce<bfloat>;
