// The rows of multi-head latent attention: the latent vector of a token, normalised, beside the elements of
// its key that rotate, and queries of the same form.
//
// A file includes it after its function constants, because it uses fc_interleaved, has_factors and
// from_table.
#ifndef SMELT_KERNELS_LATENT_H
#define SMELT_KERNELS_LATENT_H

#include <metal_stdlib>
#include "paged.h"
#include "rotate.h"
using namespace metal;

// turned is element i of a row that rotates, at a position.
template <typename A, typename P>
inline float turned(device const A *row, uint i, constant P &p, int position, device const float *factors) {
    const uint pair = fc_interleaved ? i / 2 : i % (p.rotated / 2);
    const Pair at = pair_of(pair, p.rotated, fc_interleaved);
    const float2 v =
        turn(load_pair(row, at), rotation(p, position, pair, has_factors ? factors[pair] : 1.0f, from_table));
    return i == at.first ? v.x : v.y;
}

// latent_scale returns RMSNorm's factor of n elements, whose squares one simdgroup sums.
template <typename A> inline float latent_scale(device const A *from, uint n, float eps, uint lane) {
    float squares = 0.0f;
    for (uint i = lane; i < n; i += 32)
        squares += float(from[i]) * float(from[i]);
    return precise::rsqrt(simd_sum(squares) / float(n) + eps);
}

// latent_element is element i of a token's row in the cache: of `latent` elements that are normalised by
// `scale`, then of those that rotate.
template <typename A, typename P>
inline float latent_element(device const A *from, uint i, uint latent, float scale, device const float *gain,
                            constant P &p, int position, device const float *factors) {
    return i < latent ? float(from[i]) * scale * gain[i] : turned(from + latent, i - latent, p, position, factors);
}

// query_element is element i of a query: an absorbed one, or one of the last of its head, which rotate.
template <typename A, typename P>
inline float query_element(device const A *absorbed, device const A *last, uint i, uint latent, constant P &p,
                           int position, device const float *factors) {
    return i < latent ? float(absorbed[i]) : turned(last, i - latent, p, position, factors);
}

#endif
