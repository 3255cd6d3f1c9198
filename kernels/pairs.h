// Heads processed by simdgroups: the elements of a lane of a head that is normalised,
// rotated and copied. A step is 128 elements, four per lane.
#ifndef SMELT_KERNELS_PAIRS_H
#define SMELT_KERNELS_PAIRS_H

#include <metal_stdlib>
#include "rotate.h"
#include "paged.h"
using namespace metal;

constant constexpr uint step_width = 128;

// What a lane has of a step: two neighbouring pairs. Of NeoX they are two neighbours in
// each half of what rotates; others are four neighbours, `flat`.
struct Pairs {
    Pair one, two;
    bool flat;
};

inline Pairs pairs_of(uint i, uint rotated, bool interleaved) {
    Pairs at;
    at.one = pair_of(i, rotated, interleaved);
    at.two = pair_of(i + 1, rotated, interleaved);
    at.flat = at.one.second == at.one.first + 1;
    return at;
}

// load_two and store_two move elements i and i + 1; i is even.
inline float2 load_two(device const float *from, uint i) { return *(device const float2 *)(from + i); }
inline float2 load_two(device const half *from, uint i) { return float2(*(device const half2 *)(from + i)); }
inline float2 load_two(device const bfloat *from, uint i) { return float2(*(device const bfloat2 *)(from + i)); }
inline void store_two(device float *to, uint i, float2 v) { *(device float2 *)(to + i) = v; }
inline void store_two(device half *to, uint i, float2 v) { *(device half2 *)(to + i) = half2(v); }
inline void store_two(device bfloat *to, uint i, float2 v) { *(device bfloat2 *)(to + i) = bfloat2(v); }

// load_pairs and store_pairs move both pairs, as vectors if `whole` is set, which requires
// alignment.
template <typename A> inline float4 load_pairs(device const A *head, Pairs at, bool whole) {
    if (!whole)
        return float4(load_pair(head, at.one), load_pair(head, at.two));
    if (at.flat)
        return load_four(head, at.one.first);
    const float2 first = load_two(head, at.one.first), second = load_two(head, at.one.second);
    return float4(first.x, second.x, first.y, second.y);
}
template <typename A> inline void store_pairs(device A *head, Pairs at, float4 v, bool whole) {
    if (!whole) {
        store_pair(head, at.one, v.xy);
        store_pair(head, at.two, v.zw);
    } else if (at.flat) {
        store_four(head, at.one.first, v);
    } else {
        store_two(head, at.one.first, v.xz);
        store_two(head, at.one.second, v.yw);
    }
}
inline void store_pairs(threadgroup float *head, Pairs at, float4 v, bool whole) {
    if (whole && at.flat) {
        *(threadgroup float4 *)(head + at.one.first) = v;
    } else if (whole) {
        *(threadgroup float2 *)(head + at.one.first) = v.xz;
        *(threadgroup float2 *)(head + at.one.second) = v.yw;
    } else {
        head[at.one.first] = v.x;
        head[at.one.second] = v.y;
        head[at.two.first] = v.z;
        head[at.two.second] = v.w;
    }
}

// rotations are cosine and sine of both pairs, i being the first. `factors` divide the
// frequencies where there are any; from a table they are whole divisors.
template <typename P>
inline float4 rotations(constant P &p, int position, uint i, Pairs at, device const float *factors, bool divides,
                        bool table) {
    float4 r = float4(1.0f, 0.0f, 1.0f, 0.0f);
    if (at.one.rotates)
        r.xy = rotation(p, position, i, divides ? factors[i] : 1.0f, table);
    if (at.two.rotates)
        r.zw = rotation(p, position, i + 1, divides ? factors[i + 1] : 1.0f, table);
    return r;
}

inline float4 turn_pairs(float4 v, Pairs at, float4 r) {
    return float4(at.one.rotates ? turn(v.xy, r.xy) : v.xy, at.two.rotates ? turn(v.zw, r.zw) : v.zw);
}

#endif
