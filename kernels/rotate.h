// Rotary position embedding (Su et al., "RoFormer", 2021) of one pair of elements.
#ifndef SMELT_KERNELS_ROTATE_H
#define SMELT_KERNELS_ROTATE_H

#include <metal_stdlib>
using namespace metal;

// Pair is what one thread rotates or, past the rotated part of a head, copies.
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

// rotation returns cosine (x) and sine (y) of pair i at a position: the angle is
// position · freq_scale · theta^(-2i/rotated) / factor. Angles reach the context's
// length in radians, where only the precise functions hold.
inline float2 rotation(int position, uint i, uint rotated, float log2_theta, float freq_scale, float factor,
                       float magnitude) {
    const float freq = precise::exp2(-log2_theta * float(2 * i) / float(rotated)) / factor;
    const float angle = float(position) * freq_scale * freq;
    return float2(precise::cos(angle), precise::sin(angle)) * magnitude;
}

inline float2 turn(float2 v, float2 r) { return float2(v.x * r.x - v.y * r.y, v.x * r.y + v.y * r.x); }

#endif
