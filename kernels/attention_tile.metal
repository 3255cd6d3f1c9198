// Attention of many tokens of a sequence over the paged cache: prefill.
#include <metal_stdlib>
#include "params.h"
#include "paged.h"
using namespace metal;

// The head size, where a pipeline is made for one: registers and loops then fit it.
// Otherwise it is read from the parameters.
constant uint fc_head [[function_constant(0)]];
constant bool has_head = is_function_constant_defined(fc_head);

// What no score reaches: a sentinel that stays exact where infinities are optimised
// away.
constant float lowest = -3.0e38f;

// A step takes 32 keys. Their K and V pass through threadgroup memory in slices of
// 128 elements of a head, at most two, in rows padded by 8.
constant constexpr uint slice = 128;
constant constexpr uint stride = 136;

// is_finite tells numbers from infinities and NaN by their bits, which no compiler's
// assumptions about mathematics remove.
inline bool is_finite(float v) { return (as_type<uint>(v) & 0x7f800000u) != 0x7f800000u; }

// load_slice copies elements [d0, d0 + slice) of 32 rows of a cache, zeros for keys from
// `keys` on; eight threads read one row. A product of matrices would carry what is not
// finite in one value to every token, with a probability of zero to those that do not
// see it. So values take zeros in its place and a mark at their key; loading keys
// clears the marks.
template <typename A, typename C>
inline void load_slice(device const C *cache, device const int *pages, uint first, uint keys, uint kv_head, uint head,
                       uint d0, bool values, constant AttentionParams &p, uint tid, threadgroup A *tile,
                       threadgroup uint *marks) {
    const uint width = min(slice, head - d0);
    const CacheStrides strides = {p.block_stride, p.head_stride, p.row_stride};
    for (uint r = tid / 8; r < 32; r += 16) {
        const uint key = first + r;
        threadgroup A *to = tile + r * stride;
        if (!values && tid % 8 == 0)
            marks[r] = 0;
        if (key < keys) {
            const ulong from = cache_row(uint(pages[key / p.block]), key % p.block, kv_head, strides) + d0;
            for (uint d = tid % 8 * 4; d < width; d += 32) {
                const float4 v = load_four(cache, from + d);
                for (uint j = 0; j < 4; j++) {
                    A element = A(v[j]);
                    if (values && !is_finite(float(element))) {
                        element = A(0.0f);
                        marks[r] = 1;
                    }
                    to[d + j] = element;
                }
            }
        } else {
            for (uint d = tid % 8 * 4; d < width; d += 32) {
                for (uint j = 0; j < 4; j++)
                    to[d + j] = A(0.0f);
            }
        }
    }
}

// attention_tile computes what attention_vec does, for up to 32 tokens of one sequence
// at a time, with matrix products and an online softmax (Dao, "FlashAttention-2",
// 2023). A threadgroup finds its tile through the running lengths: sequence i starts
// at tile cu_seqlens[i]/32 + i, which leaves room for its ragged tail; the grid is
// sized for the worst case and surplus threadgroups return.
//
// Grid (ceil(tokens/32) + seqs, heads, 1) of 128 threads. A simdgroup owns eight
// tokens: their queries and outputs stay in its registers as 8 × 8 matrices, and four
// lanes keep the statistics of each row. Scores are in units of log2. Threadgroup
// memory: a slice of K or V (8.5 KB of halves, 17 KB of floats), the scores and
// probabilities (4 KB), the row factors (1 KB) and a mark for each key. Heads of up to
// 256, a multiple of 8.
//
// A row that sees something not finite gets NaN for its total and zeros in the
// matrices: the factors are a diagonal matrix, and rows must not meet through it.
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
                           uint3 group [[threadgroup_position_in_grid]], uint tid [[thread_index_in_threadgroup]],
                           uint sg [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
    threadgroup A tile[32 * stride];
    threadgroup float score_rows[4 * 8 * 32];
    threadgroup float factor_rows[4 * 64];
    threadgroup uint marks[32];

    const uint head = has_head ? fc_head : p.head;
    const uint q_head = group.y;
    const uint kv_head = q_head / (p.heads / p.kv_heads);
    uint seq = 0;
    for (uint high = p.seqs; high - seq > 1;) {
        const uint mid = (seq + high) / 2;
        if (uint(cu_seqlens[mid]) / 32 + mid <= group.x) {
            seq = mid;
        } else {
            high = mid;
        }
    }
    const uint seq_start = uint(cu_seqlens[seq]), seq_end = uint(cu_seqlens[seq + 1]);
    const uint first_token = seq_start + (group.x - seq_start / 32 - seq) * 32;
    if (first_token >= seq_end)
        return;
    device const int *pages = block_table + ulong(seq) * p.table_stride;

    threadgroup float *scores = score_rows + sg * 256;
    threadgroup float *factors = factor_rows + sg * 64;
    factors[lane] = 0.0f;
    factors[lane + 32] = 0.0f;

    // The lane's row and the keys it sees; all lanes know the most that any row sees.
    const uint row = lane / 4, part = lane % 4 * 8;
    const uint token = first_token + sg * 8 + row;
    const int context = context_lens[seq];
    const uint seen = token < seq_end ? uint(max(0, min(positions[token] + 1, context))) : 0;
    const uint other = first_token + lane;
    const uint keys = simd_max(other < seq_end ? uint(max(0, min(positions[other] + 1, context))) : 0u);

    simdgroup_matrix<A, 8, 8> query[32];
    simdgroup_float8x8 sum[32];
    for (uint i = 0; i < 32; i++) {
        if (i * 8 < head)
            sum[i] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    }
    for (uint d0 = 0; d0 < 256; d0 += slice) {
        if (d0 >= head)
            break;
        const uint width = min(slice, head - d0);
        for (uint r = tid / 8; r < 32; r += 16) {
            device const A *from = q + (ulong(first_token + r) * p.heads + q_head) * head + d0;
            for (uint d = tid % 8; d < width; d += 8) {
                tile[r * stride + d] = first_token + r < seq_end ? from[d] : A(0.0f);
            }
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (uint i = 0; i < slice / 8; i++) {
            if (i * 8 < width)
                simdgroup_load(query[d0 / 8 + i], tile + sg * 8 * stride + i * 8, stride);
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }

    float highest = lowest, total = 0.0f;
    for (uint first = 0; first < keys; first += 32) {
        simdgroup_float8x8 score[4];
        for (uint j = 0; j < 4; j++)
            score[j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
        for (uint d0 = 0; d0 < 256; d0 += slice) {
            if (d0 >= head)
                break;
            load_slice(k_cache, pages, first, keys, kv_head, head, d0, false, p, tid, tile, marks);
            threadgroup_barrier(mem_flags::mem_threadgroup);
            for (uint i = 0; i < slice / 8; i++) {
                if (d0 + i * 8 >= head)
                    break;
                for (uint j = 0; j < 4; j++) {
                    simdgroup_matrix<A, 8, 8> k;
                    simdgroup_load(k, tile + j * 8 * stride + i * 8, stride, ulong2(0, 0), true);
                    simdgroup_multiply_accumulate(score[j], query[d0 / 8 + i], k, score[j]);
                }
            }
            threadgroup_barrier(mem_flags::mem_threadgroup);
        }
        for (uint j = 0; j < 4; j++)
            simdgroup_store(score[j], scores + j * 8, 32);
        simdgroup_barrier(mem_flags::mem_threadgroup);

        float weight[8];
        float peak = highest;
        for (uint j = 0; j < 8; j++) {
            weight[j] = scores[row * 32 + part + j] * (p.scale * 1.44269504f);
            if (first + part + j >= seen) {
                weight[j] = lowest;
            } else if (!is_finite(weight[j])) {
                weight[j] = lowest;
                total = NAN;
            }
            peak = max(peak, weight[j]);
        }
        peak = max(peak, simd_shuffle_xor(peak, 1));
        peak = max(peak, simd_shuffle_xor(peak, 2));
        const float keep = exp2(highest - peak);
        highest = peak;
        total *= keep;
        for (uint j = 0; j < 8; j++) {
            weight[j] = weight[j] > lowest ? exp2(weight[j] - peak) : 0.0f;
            total += weight[j];
            scores[row * 32 + part + j] = weight[j];
        }
        if (part == 0)
            factors[row * 9] = keep;
        simdgroup_barrier(mem_flags::mem_threadgroup);

        simdgroup_float8x8 factor, probability[4];
        simdgroup_load(factor, factors, 8);
        for (uint j = 0; j < 4; j++)
            simdgroup_load(probability[j], scores + j * 8, 32);
        for (uint d0 = 0; d0 < 256; d0 += slice) {
            if (d0 >= head)
                break;
            load_slice(v_cache, pages, first, keys, kv_head, head, d0, true, p, tid, tile, marks);
            threadgroup_barrier(mem_flags::mem_threadgroup);
            for (uint j = 0; j < 8; j++) {
                if (marks[part + j] != 0 && weight[j] > 0.0f)
                    total = NAN;
            }
            for (uint i = 0; i < slice / 8; i++) {
                if (d0 + i * 8 >= head)
                    break;
                simdgroup_float8x8 acc;
                simdgroup_multiply(acc, factor, sum[d0 / 8 + i]);
                for (uint j = 0; j < 4; j++) {
                    simdgroup_matrix<A, 8, 8> v;
                    simdgroup_load(v, tile + j * 8 * stride + i * 8, stride);
                    simdgroup_multiply_accumulate(acc, probability[j], v, acc);
                }
                sum[d0 / 8 + i] = acc;
            }
            threadgroup_barrier(mem_flags::mem_threadgroup);
        }
    }

    total += simd_shuffle_xor(total, 1);
    total += simd_shuffle_xor(total, 2);
    const float norm = total == 0.0f ? 0.0f : 1.0f / total;
    device A *to = out + (ulong(token) * p.heads + q_head) * head;
    for (uint d0 = 0; d0 < 256; d0 += 32) {
        if (d0 >= head)
            break;
        for (uint j = 0; j < 4; j++) {
            if (d0 + j * 8 < head)
                simdgroup_store(sum[d0 / 8 + j], scores + j * 8, 32);
        }
        simdgroup_barrier(mem_flags::mem_threadgroup);
        for (uint j = 0; j < 8; j++) {
            if (token < seq_end && d0 + part + j < head)
                to[d0 + part + j] = A(scores[row * 32 + part + j] * norm);
        }
        simdgroup_barrier(mem_flags::mem_threadgroup);
    }
}

template [[host_name("attention_tile_f32_f32")]]
kernel decltype(attention_tile<float, float>) attention_tile<float, float>;
template [[host_name("attention_tile_f32_f16")]]
kernel decltype(attention_tile<float, half>) attention_tile<float, half>;
template [[host_name("attention_tile_f16_f32")]]
kernel decltype(attention_tile<half, float>) attention_tile<half, float>;
template [[host_name("attention_tile_f16_f16")]]
kernel decltype(attention_tile<half, half>) attention_tile<half, half>;
template [[host_name("attention_tile_f16_q8_0")]]
kernel decltype(attention_tile<half, CacheBlock>) attention_tile<half, CacheBlock>;
template [[host_name("attention_tile_f32_q8_0")]]
kernel decltype(attention_tile<float, CacheBlock>) attention_tile<float, CacheBlock>;
