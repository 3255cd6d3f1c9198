// Attention of a few rows (queries of one KV head) in the registers of a threadgroup,
// shared by the kernels of single tokens, attention_vec and attention_write.
//
// One pass with an online softmax (Milakov and Gimelshein, 2018). Eight simdgroups process
// steps of 32 keys round robin; in a simdgroup eight lanes share a key, and each of the four
// such teams has eight neighbouring keys. A key is loaded once for all rows. The scores
// of a step are reduced so that each lane has one score per row, computes its weight, and
// broadcasts it to its team; the output needs no reduction until the end, when
// the simdgroups' states are merged. Scores are in units of log2. The simdgroup and lane
// of a key do not depend on the rows, so a row's result is bit-identical whatever the
// other rows.
//
//     rows.query, rows.seen            set by the kernel
//     clear(rows)                      reset to no keys
//     take_keys(rows, pages, …)        process the keys from `start` on that any row sees
//     share(rows, r, part, states, …)  for each row and part of it, followed by a barrier
//     put(results, states, …)          merge the simdgroups' states and write
//
// A file includes it after its function constants, because it uses has_soft_cap,
// has_slopes, has_sinks, is_split, gate_kind and gate_by_head.
#ifndef SMELT_KERNELS_ATTENTION_ROWS_H
#define SMELT_KERNELS_ATTENTION_ROWS_H

#include <metal_stdlib>
#include "head_gate.h"
#include "paged.h"
#include "unroll.h"
using namespace metal;

// What no score reaches: a sentinel that stays exact where infinities are optimised
// away.
constant float lowest = -3.0e38f;

constant float log2_e = 1.44269504f;

// Eight lanes share a key. A lane has two groups of four in every 64 elements of a head,
// so placed that the eight read 128 bytes in one go: side by side in halves, 32 apart in
// floats. first_four is the first element of group i; load_fours loads groups i and
// i + 1, i even, of which the second may lie past the head: zeros then.
struct Fours {
    float4 first, second;
};

inline uint first_four(device const float *, uint i, uint lane) { return i / 2 * 64 + lane % 8 * 4 + i % 2 * 32; }
template <typename C> inline uint first_four(device const C *, uint i, uint lane) {
    return i / 2 * 64 + lane % 8 * 8 + i % 2 * 4;
}

inline Fours load_fours(device const float *cache, ulong at, uint d, uint head) {
    return {load_four(cache, at + d), d + 32 < head ? load_four(cache, at + d + 32) : float4(0.0f)};
}
template <typename T> inline Fours load_fours(device const T *cache, ulong at, uint d, uint) {
    const uint4 words = *(device const uint4 *)(cache + at + d);
    return {float4(as_type<vec<T, 4>>(words.xy)), float4(as_type<vec<T, 4>>(words.zw))};
}
inline Fours load_fours(device const CacheBlock *cache, ulong at, uint d, uint) {
    return {load_four(cache, at + d), load_four(cache, at + d + 4)};
}

// fold sums eight values over the eight lanes that share keys: lane i gets the sum of
// value i. Each of its three steps halves the number of values per lane.
inline float fold(float4 low, float4 high, uint lane) {
    const bool upper = (lane & 4) != 0, later = (lane & 2) != 0, odd = (lane & 1) != 0;
    const float4 four = (upper ? high : low) + simd_shuffle_xor(upper ? low : high, 4);
    const float2 two = (later ? four.zw : four.xy) + simd_shuffle_xor(later ? four.xy : four.zw, 2);
    return (odd ? two.y : two.x) + simd_shuffle_xor(odd ? two.x : two.y, 1);
}

// spread is the way back: every lane gets the values of the eight, in their order.
struct Eight {
    float4 low, high;
};
inline Eight spread(float own, uint lane) {
    const bool upper = (lane & 4) != 0, later = (lane & 2) != 0, odd = (lane & 1) != 0;
    const float one = simd_shuffle_xor(own, 1);
    const float2 two = odd ? float2(one, own) : float2(own, one);
    const float2 more = simd_shuffle_xor(two, 2);
    const float4 four = later ? float4(more, two) : float4(two, more);
    const float4 rest = simd_shuffle_xor(four, 4);
    return {upper ? rest : four, upper ? four : rest};
}

// fold_teams adds four values over the teams: team t gets the sum of value t. The lanes
// then hold 128 elements of a row between them, and store them in one go.
inline float4 fold_teams(float4 a, float4 b, float4 c, float4 d, uint lane) {
    const bool upper = (lane & 16) != 0, later = (lane & 8) != 0;
    const float4 even = (upper ? c : a) + simd_shuffle_xor(upper ? a : c, 16);
    const float4 odd = (upper ? d : b) + simd_shuffle_xor(upper ? b : d, 16);
    return (later ? odd : even) + simd_shuffle_xor(later ? even : odd, 8);
}

// Rows are R queries of one KV head, and a lane's part of their softmax state. Heads have up to
// 32·G elements.
template <uint R, uint G> struct Rows {
    float4 query[R][G]; // scaled; groups of four as first_four has them, zeros past the head
    float4 sum[R][G];   // of weighted values, likewise
    float highest[R];   // score so far
    float total[R];     // of weights
    KeyRange seen[R];   // by the row; of those past the last none
    int position[R];    // with fc_slopes
    float slope[R];     // likewise, in units of log2
};

// The query heads of a threadgroup: `count` from `first` on, all of which read KV head `kv`.
struct Heads {
    uint kv, first, count;
};

// heads_of returns the query heads of a threadgroup: those of each KV head are distributed
// to threadgroups of up to `most` heads.
inline Heads heads_of(uint group, uint heads, uint kv_heads, uint most) {
    const uint shared = heads / kv_heads, groups = (shared + most - 1) / most;
    const uint kv = group / groups, skipped = group % groups * most;
    return {kv, kv * shared + skipped, min(most, shared - skipped)};
}

// Keys and values of a sequence for one KV head.
template <typename C> struct Pages {
    device const C *keys, *values;
    device const int *table;
    uint block, kv_head;
    CacheStrides strides;
};

// key_fours and value_fours are load_fours of the row of a key, which is at an element of
// the caches.
template <typename C>
inline Fours key_fours(thread const Pages<C> &pages, uint, ulong at, uint i, uint lane, uint head) {
    return load_fours(pages.keys, at, first_four(pages.keys, i, lane), head);
}
template <typename C>
inline Fours value_fours(thread const Pages<C> &pages, uint, ulong at, uint i, uint lane, uint head) {
    return load_fours(pages.values, at, first_four(pages.values, i, lane), head);
}

// OwnPages are Pages of which one key is not read from the cache: the token's own, whose
// rows of floats the threadgroup has made.
template <typename C> struct OwnPages {
    device const C *keys, *values;
    device const int *table;
    uint block, kv_head;
    CacheStrides strides;
    uint own;
    threadgroup const float *own_key, *own_value;
};

// own_fours is load_fours of a row in threadgroup memory.
template <typename C>
inline Fours own_fours(device const C *cache, threadgroup const float *row, uint i, uint lane, uint head) {
    const uint first = first_four(cache, i, lane), second = first_four(cache, i + 1, lane);
    return {*(threadgroup const float4 *)(row + first),
            second < head ? *(threadgroup const float4 *)(row + second) : float4(0.0f)};
}

template <typename C>
inline Fours key_fours(thread const OwnPages<C> &pages, uint key, ulong at, uint i, uint lane, uint head) {
    if (key == pages.own)
        return own_fours(pages.keys, pages.own_key, i, lane, head);
    return load_fours(pages.keys, at, first_four(pages.keys, i, lane), head);
}
template <typename C>
inline Fours value_fours(thread const OwnPages<C> &pages, uint key, ulong at, uint i, uint lane, uint head) {
    if (key == pages.own)
        return own_fours(pages.values, pages.own_value, i, lane, head);
    return load_fours(pages.values, at, first_four(pages.values, i, lane), head);
}

// How a product becomes a score: products are of queries that are scaled, by scale / cap
// where there is a cap.
struct Scoring {
    float scale;
    float cap; // 0 for none
};

inline Scoring scoring_of(float scale, float cap) {
    // Capped scores are tanh(s / cap) until they are multiplied by the cap.
    const bool capped = has_soft_cap && cap > 0.0f;
    return {capped ? scale / cap : scale * log2_e, capped ? cap : 0.0f};
}

// Memory of the threadgroup for merging: `state_width` elements of a row of each simdgroup, and
// its statistics. Rows of larger heads are merged part by part.
constant constexpr uint state_width = 256;
struct States {
    float4 sums[8][64];
    float maxima[8];
    float totals[8];
};

template <uint R, uint G> inline void clear(thread Rows<R, G> &rows) {
    UNROLL for (uint r = 0; r < R; r++) {
        rows.highest[r] = lowest;
        rows.total[r] = 0.0f;
        UNROLL for (uint i = 0; i < G; i++)
            rows.sum[r][i] = 0.0f;
    }
}

// seen_by_any is from the first key that a row sees to the last.
template <uint R, uint G> inline KeyRange seen_by_any(thread const Rows<R, G> &rows) {
    KeyRange any = {0xffffffffu, 0};
    UNROLL for (uint r = 0; r < R; r++) {
        if (rows.seen[r].begin < rows.seen[r].end)
            any = {min(any.begin, rows.seen[r].begin), max(any.end, rows.seen[r].end)};
    }
    return any;
}

// take_keys processes the simdgroup's share of the keys from `start` on, a multiple of 8,
// and reports whether there were any. Keys that no row sees are not loaded. Pages are Pages
// or OwnPages.
template <uint R, uint G, typename P>
inline bool take_keys(thread Rows<R, G> &rows, thread const P &pages, thread const Scoring &scoring, uint head,
                      uint start, uint sg, uint lane) {
    const KeyRange any = seen_by_any(rows);
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
        ulong at[8];
        uint within = key % pages.block;
        device const int *page = pages.table + key / pages.block;
        ulong own = key < any.end ? cache_row(uint(*page), within, pages.kv_head, pages.strides) : 0;
        UNROLL for (uint s = 0; s < 8; s++) {
            at[s] = own;
            own += pages.strides.row;
            if (++within == pages.block && key + s + 1 < any.end) {
                within = 0;
                page++;
                own = cache_row(uint(*page), 0, pages.kv_head, pages.strides);
            }
        }

        float score[R][8];
        UNROLL for (uint s = 0; s < 8; s++) {
            UNROLL for (uint r = 0; r < R; r++)
                score[r][s] = 0.0f;
            if (key + s < any.begin || key + s >= any.end)
                continue;
            UNROLL for (uint i = 0; i < G; i += 2) {
                if (first_four(pages.keys, i, lane) >= head)
                    continue;
                const Fours k = key_fours(pages, key + s, at[s], i, lane, head);
                UNROLL for (uint r = 0; r < R; r++)
                    score[r][s] += dot(rows.query[r][i], k.first) + dot(rows.query[r][i + 1], k.second);
            }
        }

        // Lane i weighs key first + i, the i % 8-th of its team.
        Eight weights[R];
        UNROLL for (uint r = 0; r < R; r++) {
            thread const float *v = score[r];
            float own = fold(float4(v[0], v[1], v[2], v[3]), float4(v[4], v[5], v[6], v[7]), lane);
            if (has_soft_cap && scoring.cap > 0.0f)
                own = scoring.cap * log2_e * precise::tanh(own);
            if (has_slopes)
                own += rows.slope[r] * float(int(first + lane) - rows.position[r]);
            const bool sees = first + lane >= rows.seen[r].begin && first + lane < rows.seen[r].end;
            const float peak = simd_max(sees ? max(rows.highest[r], own) : rows.highest[r]);
            const float keep = exp2(rows.highest[r] - peak);
            const float weight = sees ? exp2(own - peak) : 0.0f;
            rows.highest[r] = peak;
            rows.total[r] = rows.total[r] * keep + weight;
            if (keep != 1.0f) {
                UNROLL for (uint i = 0; i < G; i++)
                    rows.sum[r][i] *= keep;
            }
            weights[r] = spread(weight, lane);
        }

        UNROLL for (uint s = 0; s < 8; s++) {
            float weight[R];
            bool wanted = false;
            UNROLL for (uint r = 0; r < R; r++) {
                weight[r] = s < 4 ? weights[r].low[s % 4] : weights[r].high[s % 4];
                wanted = wanted || weight[r] != 0.0f;
            }
            if (!wanted)
                continue;
            UNROLL for (uint i = 0; i < G; i += 2) {
                if (first_four(pages.values, i, lane) >= head)
                    continue;
                const Fours v = value_fours(pages, key + s, at[s], i, lane, head);
                UNROLL for (uint r = 0; r < R; r++) {
                    if (weight[r] == 0.0f) // an infinite value is none of its business
                        continue;
                    rows.sum[r][i] += weight[r] * v.first;
                    rows.sum[r][i + 1] += weight[r] * v.second;
                }
            }
        }
    }
    return has_keys;
}

// share writes a simdgroup's state of a part of a row to threadgroup memory.
template <uint R, uint G, typename C>
inline void share(thread const Rows<R, G> &rows, uint r, uint part, bool has_keys, device const C *values, uint head,
                  threadgroup States &states, uint sg, uint lane) {
    // Teams of a simdgroup share their maximum, so their states add up. A simdgroup
    // without keys leaves its row unwritten and stores a sum of weights of 0.
    float total = rows.total[r];
    if (has_keys) {
        total = simd_sum(total);
        UNROLL for (uint j = 0; j < 8; j += 4) {
            const uint i = part * 8 + j;
            if (i + 4 > G || first_four(values, i, 0) >= head)
                continue;
            const float4 whole =
                fold_teams(rows.sum[r][i], rows.sum[r][i + 1], rows.sum[r][i + 2], rows.sum[r][i + 3], lane);
            const uint d = first_four(values, i + lane / 8, lane);
            if (d < head)
                states.sums[sg][(d - part * state_width) / 4] = whole;
        }
    }
    if (lane == 0) {
        states.maxima[sg] = rows.highest[r];
        states.totals[sg] = total;
    }
}

// Merged is a threadgroup's state of a row: the largest score, the sum of weights relative
// to it, and elements 4·tid to 4·tid + 3 of a part of the sum of weighted values.
struct Merged {
    float peak, norm;
    float4 sum;
};

// merge merges the states that the simdgroups shared, for threads with elements of the head;
// it includes the sink unless the keys are partitioned (fc_split).
inline Merged merge(threadgroup const States &states, float sink, uint tid) {
    const bool sinks_here = has_sinks && !is_split;
    Merged all;
    all.peak = sinks_here ? max(lowest, sink) : lowest;
    all.sum = 0.0f;
    for (uint i = 0; i < 8; i++)
        all.peak = max(all.peak, states.maxima[i]);
    all.norm = sinks_here ? exp2(sink - all.peak) : 0.0f;
    for (uint i = 0; i < 8; i++) {
        if (states.totals[i] == 0.0f)
            continue;
        const float weight = exp2(states.maxima[i] - all.peak);
        all.norm += weight * states.totals[i];
        all.sum += weight * states.sums[i][tid];
    }
    return all;
}

// Where results go, rows of a query head of a token each; sinks, by query head; and gates, by token.
template <typename A> struct Results {
    device A *out;
    device float *part, *statistics; // of a partition
    device const float *sinks;
    device const A *gate;
    uint heads, gate_stride, gate_from;
};

// put merges the simdgroups' states of a part of a row and writes its result, or the state of one
// of `partitions` partitions, for threads with elements of that part.
template <typename A>
inline void put(thread const Results<A> &to, threadgroup const States &states, uint token, uint q_head, uint head,
                uint part, uint partition, uint partitions, uint tid) {
    const ulong row = ulong(token) * to.heads + q_head;
    const float sink = has_sinks && !is_split ? to.sinks[q_head] * log2_e : lowest;
    Merged all = merge(states, sink, tid);
    if (is_split) {
        const ulong at = row * partitions + partition;
        if (part == 0 && tid == 0) {
            to.statistics[at * 2] = all.peak;
            to.statistics[at * 2 + 1] = all.norm;
        }
        if (all.norm != 0.0f)
            *(device float4 *)(to.part + at * head + part * state_width + tid * 4) = all.sum;
    } else {
        if (all.norm != 0.0f)
            all.sum /= all.norm;
        const HeadGate<A> gate = gate_row(gate_kind, gate_by_head, to.gate, token, to.gate_stride, to.gate_from);
        const uint d = part * state_width + tid * 4;
        store_four(to.out, row * head + d, gated(gate, q_head, head, d, all.sum));
    }
}

#endif
