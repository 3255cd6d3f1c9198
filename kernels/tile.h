// Products of tiles in threadgroup memory: what linear_mat and matmul share.
//
// A threadgroup of four simdgroups makes a 32 × 32 tile of the result; simdgroup i
// owns the quadrant of 16 × 16 at (i / 2, i % 2) as 2 × 2 matrices of 8 × 8.
#ifndef SMELT_KERNELS_TILE_H
#define SMELT_KERNELS_TILE_H

#include <metal_stdlib>
#include "unroll.h"
using namespace metal;

struct Quadrant {
    simdgroup_float8x8 part[4];
};

inline void clear(thread Quadrant &acc) {
    UNROLL for (uint i = 0; i < 4; i++)
        acc.part[i] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
}

// accumulate adds a·bᵀ over `depth` columns, a multiple of 8; a and b hold 32 rows of
// `stride` elements each. Where b_rows is set, b is [depth, 32] and the product a·b.
template <typename T>
inline void accumulate(threadgroup const T *a, threadgroup const T *b, uint stride, uint depth, bool b_rows, uint sg,
                       thread Quadrant &acc) {
    const uint m = (sg / 2) * 16, n = (sg % 2) * 16;
    for (uint k = 0; k < depth; k += 8) {
        simdgroup_matrix<T, 8, 8> left[2], right[2];
        UNROLL for (uint i = 0; i < 2; i++) {
            simdgroup_load(left[i], a + (m + 8 * i) * stride + k, stride);
            if (b_rows) {
                simdgroup_load(right[i], b + k * stride + n + 8 * i, stride);
            } else {
                simdgroup_load(right[i], b + (n + 8 * i) * stride + k, stride, ulong2(0, 0), true);
            }
        }
        UNROLL for (uint i = 0; i < 4; i++) {
            simdgroup_multiply_accumulate(acc.part[i], left[i / 2], right[i % 2], acc.part[i]);
        }
    }
}

// store writes the simdgroup's quadrant into a [32, 32] tile.
inline void store(thread const Quadrant &acc, threadgroup float *tile, uint sg) {
    const uint m = (sg / 2) * 16, n = (sg % 2) * 16;
    UNROLL for (uint i = 0; i < 4; i++)
        simdgroup_store(acc.part[i], tile + (m + 8 * (i / 2)) * 32 + n + 8 * (i % 2), 32);
}

#endif
