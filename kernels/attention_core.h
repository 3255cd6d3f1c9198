// Attention of a tile: up to 32 query rows of one head against their keys, with matrix
// products and an online softmax (Dao, "FlashAttention-2", 2023). What attention_tile
// and flash_attention share; they differ in where a key's row lies and in which keys a
// query row sees.
//
// A threadgroup of four simdgroups takes 32 keys in a step. A simdgroup owns eight rows:
// their queries and sums stay in its registers as 8 × 8 matrices (at heads of 256, in
// half, 96 registers of a lane), and four lanes keep the statistics of each row. K and V
// pass through one buffer of threadgroup memory in slices of up to 128 elements of a
// head, so that any head fits and, in half, two threadgroups fit in 32 KB. Of larger heads a
// threadgroup sums `part_width` columns of V: registers hold no more beside the queries, and
// those that share a row of queries compute its scores each for itself.
// Heads of up to 64 have K and V in it side by side, which saves two barriers of four.
//
// A key's row is read once for 32 query rows: 32 multiply-adds for each element of K or
// V from device memory. So query heads of one KV head are threadgroups of their own:
// only tiles of few tokens would gain from sharing one.
//
// The buffer's rows are 68 words apart in half and 136 in float, the scores' 36: the
// eight rows of a matrix start at banks 4 or 8 apart, and no two of its lanes meet in
// one more often than their number demands. Nor do they where sixteen lanes fill 64
// elements of one row and sixteen those of another, which are whole lines of device
// memory in half.
//
// Results take the way of the queries back: 64 columns of a simdgroup's rows at a time
// go as floats through its part of the buffer, and from there to whole lines.
#ifndef SMELT_KERNELS_ATTENTION_CORE_H
#define SMELT_KERNELS_ATTENTION_CORE_H

#include <metal_stdlib>
#include "head_gate.h"
#include "paged.h"
#include "unroll.h"
using namespace metal;

constant constexpr uint slice_width = 128;  // elements of a head in threadgroup memory
constant constexpr uint part_width = 256;   // columns of V that a threadgroup sums
constant constexpr uint tile_stride = 136;  // elements between rows of K or V there
constant constexpr uint pair_offset = 72;   // where V starts in a row that K shares
constant constexpr uint score_stride = 36;  // floats between rows of scores
constant constexpr uint result_stride = 68; // floats between rows of 64 columns of results

// What no score reaches: a sentinel that stays exact where infinities are optimised
// away.
constant constexpr float lowest = -3.0e38f;

// is_finite reports whether v is a number, by its bits: fast-math assumptions of a compiler
// cannot remove the test.
inline bool is_finite(float v) { return (as_type<uint>(v) & 0x7f800000u) != 0x7f800000u; }

// store_four writes elements i to i + 3; i is a multiple of 4.
inline void store_four(threadgroup float *to, ulong i, float4 v) { *(threadgroup float4 *)(to + i) = v; }
inline void store_four(threadgroup half *to, ulong i, float4 v) { *(threadgroup half4 *)(to + i) = half4(v); }
inline void store_four(threadgroup bfloat *to, ulong i, float4 v) { *(threadgroup bfloat4 *)(to + i) = bfloat4(v); }

// Keys and values, a stride from one row to the next.
template <typename C> struct DenseRows {
    device const C *keys, *values;
    uint stride;
};
template <typename C> inline ulong row_at(thread const DenseRows<C> &rows, uint key) {
    return ulong(key) * rows.stride;
}

// The query rows of a tile, and where their results go.
template <typename A> struct QueryRows {
    device const A *from;
    device A *to;
    ulong stride; // elements between rows of both
    uint count;   // of the 32; rows from there on are neither read nor written
    uint head;
    HeadGate<A> gate; // of the first row; those of the others are gate_stride apart
    uint gate_stride, q_head;
};

// Keys that are seen, [first, end) by the lane's row and [start, stop) by any row of
// the tile. A lane's row is simdgroup · 8 + lane / 4.
struct Sight {
    uint first, end;
    uint start, stop;
};

// How a product of query and key becomes a score, in units of log2.
struct Scoring {
    float scale;
    float cap;    // limits scores to cap · tanh(score / cap); 0 for none
    float sink;   // a score that takes its share and adds no value; `lowest` for none
    float slope;  // a score gets slope · (key - position); 0 for none
    int position; // of the lane's row
};

// The threadgroup memory of a tile, at multiples of 16 bytes: kernels declare it as
// vectors.
template <typename A> struct TileMemory {
    threadgroup A *tile;        // [32, tile_stride]: K, V or queries; [4, 8, result_stride] floats: results
    threadgroup float *scores;  // [4, 8, score_stride]: scores, then probabilities
    threadgroup float *factors; // [4, 8, 8]: diagonal matrices
    threadgroup uint *marks;    // [2, 32]: keys whose values are not finite, in turns
};

// A step's rows in device memory, as a thread copies them: those of keys tid/16, and 8,
// 16 and 24 further. Keys from the end of the sight on have none.
struct StepRows {
    ulong at[4];
    bool has[4];
};

// load_rows copies elements [d0, d0 + width) of the rows of 32 keys, zeros for keys
// without a row; sixteen threads read one row. In a matrix product an infinity or NaN of
// one value would reach every row, because a weight of 0 times it is NaN. Values therefore
// get zeros in its place, and a mark at the key.
template <typename A, typename C>
inline void load_rows(device const C *from, thread const StepRows &rows, uint d0, uint width, bool values, uint tid,
                      threadgroup A *tile, threadgroup uint *marks) {
    UNROLL for (uint i = 0; i < 4; i++) {
        const uint r = i * 8 + tid / 16;
        threadgroup A *to = tile + r * tile_stride;
        for (uint d = tid % 16 * 4; d < width; d += 64) {
            float4 v = rows.has[i] ? load_four(from, rows.at[i] + d0 + d) : float4(0.0f);
            UNROLL for (uint j = 0; j < 4; j++) {
                if (values && !is_finite(float(A(v[j])))) {
                    v[j] = 0.0f;
                    marks[r] = 1;
                }
            }
            store_four(to, d, v);
        }
    }
}

// attend computes softmax(scores)·V for the rows of a tile, the columns of V from `from` on, up to
// part_width of them. Heads have up to 8·Q elements. All 128 threads call it. A
// row without keys gets zeros. A row that sees something not finite gets NaN for its
// total and zeros in the matrices: the factors are a diagonal matrix, and rows must not
// meet through it. Sums are rescaled only in steps that raise a row's maximum.
template <uint Q, typename A, typename Rows>
inline void attend(thread const QueryRows<A> &q, thread const Rows &rows, thread const Sight &sight,
                   thread const Scoring &scoring, thread const TileMemory<A> &memory, uint from, uint tid, uint sg,
                   uint lane) {
    const uint head = q.head, columns = min(part_width, head - from);
    const bool pair = head <= 64;
    threadgroup A *tile = memory.tile;
    threadgroup A *v_tile = pair ? tile + pair_offset : tile;
    threadgroup float *scores = memory.scores + sg * 8 * score_stride;
    threadgroup float *factors = memory.factors + sg * 64;
    const uint row = lane / 4, part = lane % 4;

    factors[lane] = 0.0f;
    factors[lane + 32] = 0.0f;
    if (tid < 64)
        memory.marks[tid] = 0;

    simdgroup_matrix<A, 8, 8> query[Q];
    simdgroup_float8x8 sum[32];
    UNROLL for (uint i = 0; i < 32; i++) {
        if (i * 8 < columns)
            sum[i] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    }
    UNROLL for (uint d0 = 0; d0 < Q * 8; d0 += slice_width) {
        if (d0 >= head)
            break;
        const uint width = min(slice_width, head - d0);
        for (uint r = tid / 16; r < 32; r += 8) {
            for (uint d = tid % 16 * 4; d < width; d += 64) {
                const float4 v = r < q.count ? load_four(q.from, r * q.stride + d0 + d) : float4(0.0f);
                store_four(tile + r * tile_stride, d, v);
            }
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        UNROLL for (uint i = 0; i < slice_width / 8; i++) {
            if (i * 8 < width)
                simdgroup_load(query[d0 / 8 + i], tile + sg * 8 * tile_stride + i * 8, tile_stride);
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }

    float highest = scoring.sink;
    float total = part == 0 && highest > lowest ? 1.0f : 0.0f;
    uint turn = 0;
    for (uint key = sight.start; key < sight.stop; key += 32) {
        // A turn's marks are cleared in the step before, between barriers on both sides.
        threadgroup uint *marks = memory.marks + turn * 32;
        turn = 1 - turn;
        if (tid < 32)
            memory.marks[turn * 32 + tid] = 0;

        StepRows step; // K and V have theirs at the same places
        UNROLL for (uint i = 0; i < 4; i++) {
            const uint own = key + i * 8 + tid / 16;
            step.has[i] = own < sight.stop;
            step.at[i] = step.has[i] ? row_at(rows, own) : 0;
        }

        simdgroup_float8x8 score[4];
        UNROLL for (uint j = 0; j < 4; j++)
            score[j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
        UNROLL for (uint d0 = 0; d0 < Q * 8; d0 += slice_width) {
            if (d0 >= head)
                break;
            load_rows(rows.keys, step, d0, min(slice_width, head - d0), false, tid, tile, marks);
            if (pair)
                load_rows(rows.values, step, 0, head, true, tid, v_tile, marks);
            threadgroup_barrier(mem_flags::mem_threadgroup);
            UNROLL for (uint i = 0; i < slice_width / 8; i++) {
                if (d0 + i * 8 >= head)
                    break;
                UNROLL for (uint j = 0; j < 4; j++) {
                    simdgroup_matrix<A, 8, 8> k;
                    simdgroup_load(k, tile + j * 8 * tile_stride + i * 8, tile_stride, ulong2(0, 0), true);
                    simdgroup_multiply_accumulate(score[j], query[d0 / 8 + i], k, score[j]);
                }
            }
            if (!pair)
                threadgroup_barrier(mem_flags::mem_threadgroup);
        }
        UNROLL for (uint j = 0; j < 4; j++)
            simdgroup_store(score[j], scores + j * 8, score_stride);
        simdgroup_barrier(mem_flags::mem_threadgroup);

        // The lane's eight keys of its row are four apart.
        float weight[8];
        float peak = highest;
        UNROLL for (uint j = 0; j < 8; j++) {
            const uint column = j * 4 + part;
            float v = scores[row * score_stride + column] * scoring.scale;
            if (scoring.cap > 0.0f)
                v = scoring.cap * tanh(v / scoring.cap);
            if (scoring.slope != 0.0f)
                v += scoring.slope * float(int(key + column) - scoring.position);
            v *= 1.44269504f;
            if (key + column < sight.first || key + column >= sight.end) {
                v = lowest;
            } else if (!is_finite(v)) {
                v = lowest;
                total = NAN;
            }
            weight[j] = v;
            peak = max(peak, v);
        }
        peak = max(peak, simd_shuffle_xor(peak, 1));
        peak = max(peak, simd_shuffle_xor(peak, 2));
        const float keep = exp2(highest - peak);
        total *= keep;
        UNROLL for (uint j = 0; j < 8; j++) {
            weight[j] = weight[j] > lowest ? exp2(weight[j] - peak) : 0.0f;
            total += weight[j];
            scores[row * score_stride + j * 4 + part] = weight[j];
        }
        if (part == 0)
            factors[row * 9] = keep;
        const bool rescale = simd_any(highest < peak);
        highest = peak;
        simdgroup_barrier(mem_flags::mem_threadgroup);

        if (rescale) {
            simdgroup_float8x8 factor;
            simdgroup_load(factor, factors, 8);
            UNROLL for (uint i = 0; i < 32; i++) {
                if (i * 8 < columns)
                    simdgroup_multiply(sum[i], factor, sum[i]);
            }
        }
        simdgroup_float8x8 probability[4];
        UNROLL for (uint j = 0; j < 4; j++)
            simdgroup_load(probability[j], scores + j * 8, score_stride);
        UNROLL for (uint d0 = 0; d0 < part_width; d0 += slice_width) {
            if (d0 >= columns)
                break;
            if (!pair) {
                load_rows(rows.values, step, from + d0, min(slice_width, columns - d0), true, tid, v_tile, marks);
                threadgroup_barrier(mem_flags::mem_threadgroup);
            }
            UNROLL for (uint j = 0; j < 8; j++) {
                if (marks[j * 4 + part] != 0 && weight[j] > 0.0f)
                    total = NAN;
            }
            UNROLL for (uint i = 0; i < slice_width / 8; i++) {
                if (d0 + i * 8 >= columns)
                    break;
                UNROLL for (uint j = 0; j < 4; j++) {
                    simdgroup_matrix<A, 8, 8> v;
                    simdgroup_load(v, v_tile + j * 8 * tile_stride + i * 8, tile_stride);
                    simdgroup_multiply_accumulate(sum[d0 / 8 + i], probability[j], v, sum[d0 / 8 + i]);
                }
            }
            threadgroup_barrier(mem_flags::mem_threadgroup);
        }
    }

    total += simd_shuffle_xor(total, 1);
    total += simd_shuffle_xor(total, 2);
    const float norm = total == 0.0f ? 0.0f : 1.0f / total;
    float norms[4]; // of the rows that the lane writes, which are two apart
    UNROLL for (uint i = 0; i < 4; i++)
        norms[i] = simd_shuffle(norm, (i * 2 + lane / 16) * 4);
    threadgroup float *results = (threadgroup float *)tile + sg * 8 * result_stride;
    UNROLL for (uint d0 = 0; d0 < part_width; d0 += 64) {
        if (d0 >= columns)
            break;
        UNROLL for (uint j = 0; j < 8; j++) {
            if (d0 + j * 8 < columns)
                simdgroup_store(sum[d0 / 8 + j], results + j * 8, result_stride);
        }
        simdgroup_barrier(mem_flags::mem_threadgroup);
        const uint d = lane % 16 * 4;
        UNROLL for (uint i = 0; i < 4; i++) {
            const uint r = i * 2 + lane / 16;
            if (sg * 8 + r < q.count && d0 + d < columns) {
                const float4 v = *(threadgroup const float4 *)(results + r * result_stride + d);
                HeadGate<A> gate = q.gate;
                gate.at += ulong(sg * 8 + r) * q.gate_stride;
                store_four(q.to, (sg * 8 + r) * q.stride + from + d0 + d,
                           gated(gate, q.q_head, head, from + d0 + d, v * norms[i]));
            }
        }
        simdgroup_barrier(mem_flags::mem_threadgroup);
    }
}

#endif
