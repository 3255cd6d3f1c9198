// Rotary position embedding (Su et al., "RoFormer", 2021) of one pair of elements.
#ifndef SMELT_KERNELS_ROTATE_H
#define SMELT_KERNELS_ROTATE_H

#include <metal_stdlib>
using namespace metal;

// Pair is the pair of elements that a thread rotates or, past the rotated part of a head,
// copies.
struct Pair {
    uint first, second; // elements of the head
    bool rotates;
};

// pair_of returns pair i < head/2. Interleaved pairs are (2i, 2i+1), NeoX pairs
// (i, i + rotated/2); the elements past `rotated` are taken two by two.
inline Pair pair_of(uint i, uint rotated, bool interleaved) {
    Pair pair;
    pair.rotates = 2 * i < rotated;
    const bool split = pair.rotates && !interleaved;
    pair.first = split ? i : 2 * i;
    pair.second = split ? i + rotated / 2 : 2 * i + 1;
    return pair;
}

// load_pair and store_pair move the elements of a pair of one head.
template <typename A> inline float2 load_pair(device const A *head, Pair pair) {
    return float2(float(head[pair.first]), float(head[pair.second]));
}
template <typename A> inline void store_pair(device A *head, Pair pair, float2 v) {
    head[pair.first] = A(v.x);
    head[pair.second] = A(v.y);
}

// rotation returns cosine (x) and sine (y) of pair i at a position, times the
// magnitude. The angle is position · freq_scale · theta^(-2i/rotated) / divisor or, with a
// table of divisors, position · freq_scale / divisor. Angles can be as large as the
// context's length in radians, for which only the precise functions are accurate.
template <typename P> inline float2 rotation(constant P &p, int position, uint i, float divisor, bool table) {
    const float scaled = float(position) * p.freq_scale;
    float angle = scaled / divisor;
    if (!table)
        angle = scaled * (precise::exp2(-p.log2_theta * float(2 * i) / float(p.rotated)) / divisor);
    return float2(precise::cos(angle), precise::sin(angle)) * p.magnitude;
}

inline float2 turn(float2 v, float2 r) { return float2(v.x * r.x - v.y * r.y, v.x * r.y + v.y * r.x); }

#endif
