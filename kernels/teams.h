// Attention of single queries: how a simdgroup shares keys out. Its lanes are four teams of
// eight; a team takes a key at a time, eight keys that follow each other in a step.
#ifndef SMELT_KERNELS_TEAMS_H
#define SMELT_KERNELS_TEAMS_H

#include <metal_stdlib>
#include "paged.h"
using namespace metal;

// What no score reaches: a sentinel that stays exact where infinities are optimised
// away.
constant constexpr float lowest = -3.0e38f;

constant constexpr float log2_e = 1.44269504f;

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

// fold adds eight values over the eight lanes that share keys: the i-th of them gets the
// sum of value i. Each of its three steps halves what is left to add.
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

#endif
