// Kernels over rows, rotation, and the writes of caches, for one instruction set.

namespace SET {
#include "base.h"
#include SIMD
#include "functions.h"
#include "elements.h"
#include "matrix.h"
#include "groups.h"
#include "rope.h"
#include "rows.h"
#include "replicate.h"
#include "source.h"
#include "families.h"

template <class C> static int write_supports(const smelt_launch *l) { return cache_write_supports(l, cache_of<C>); }
template <class C> static void write(const smelt_launch *l, void *, uint64_t begin, uint64_t end) {
    cache_write(l, begin, end, cache_of<C>);
}
template <class C> static int read_supports(const smelt_launch *l) { return cache_read_supports(l, cache_of<C>); }
template <class C> static void read(const smelt_launch *l, void *, uint64_t begin, uint64_t end) {
    cache_read(l, begin, end, cache_of<C>);
}
template <class C, bool NORM> static int rotated_supports(const smelt_launch *l) {
    return rope_write_supports(l, cache_of<C>, NORM);
}
template <class C, bool NORM> static void rotated(const smelt_launch *l, void *, uint64_t begin, uint64_t end) {
    rope_write(l, begin, end, cache_of<C>, NORM);
}

static const smelt_native_kernel kernels[] = {
    {"embed", embed_supports, no_shared, 1, {{embed_units, embed}, {nullptr, nullptr}}, 1 << 1},
    ONE("rms_norm_f32_f32", norm_supports, norm_units, norm),
    ONE("rope_f32", rope_supports, rope_units, rope),
#define CACHED(name, C)                                                                                                \
    ONE("cache_write_f32_" name, write_supports<C>, cache_write_units, write<C>),                                      \
        ONE("cache_read_" name, read_supports<C>, cache_read_units, read<C>),                                          \
        ONE("rope_qkv_write_f32_" name, (rotated_supports<C, false>), rope_write_units, (rotated<C, false>)),          \
        ONE("head_norm_rope_kv_write_f32_" name, (rotated_supports<C, true>), rope_write_units, (rotated<C, true>))
    CACHED("f16", F16),
    CACHED("f32", F32),
    CACHED("q8_0", Blocks),
#undef CACHED
    ONE("silu_f32", element_supports<1>, element_units<1>, element1<Silu>),
    ONE("scale_f32", element_supports<1>, element_units<1>, element1<Scale>),
    ONE("soft_cap_f32", element_supports<1>, element_units<1>, element1<SoftCap>),
    ONE("add_f32", element_supports<2>, element_units<2>, element2<Add>),
    ONE("mul_f32", element_supports<2>, element_units<2>, element2<Mul>),
    ONE("silu_mul_f32", element_supports<2>, element_units<2>, element2<SiluMul>),
    ONE("gather_rows_f32", gather_supports, gather_units, gather_rows),
    ONE("softmax_f32", softmax_supports, element_units<1>, softmax),
    ONE("argmax_f32", argmax_supports, element_units<1>, argmax),
    ONE("repeat_kv_f32", repeat_supports<1>, repeat_units<2>, repeat<1>),
    ONE("repeat_kv_pair_f32", repeat_supports<2>, repeat_units<4>, repeat<2>),
    ONE("transpose_f32", transpose_supports, transpose_units, transpose),
    ONE("matmul_f32", matmul_supports, matmul_units, matmul),
    ONE("mask_f32", mask_supports, mask_units, mask),
};
FAMILY(rows_family, kernels);
} // namespace SET
