// Everything, and the table of host names.

#include "base.h"
#include SIMD
#include "functions.h"
#include "elements.h"
#include "blocks.h"
#include "linear.h"
#include "attention.h"
#include "rope.h"
#include "rows.h"
#include "replicate.h"
#include "source.h"

static size_t no_shared(const smelt_launch *) { return 0; }

#define ONE(name, supports, units, run) {name, supports, no_shared, 1, {{units, run}, {nullptr, nullptr}}, 0}

constexpr uint32_t WEIGHTS = 1 << 1 | 1 << 2 | 1 << 3; // of a linear layer

static const smelt_native_kernel kernels[] = {
    {"embed", embed_supports, no_shared, 1, {{embed_units, embed}, {nullptr, nullptr}}, 1 << 1},
    ONE("rms_norm_f32_f32", norm_supports, norm_units, norm),
    {"linear_vec_f32_f32",
     linear_supports,
     linear_shared,
     2,
     {{prepare_units, prepare}, {multiply_units, multiply}},
     WEIGHTS},
    {"linear_mat_f32_f32",
     linear_supports,
     linear_shared,
     2,
     {{prepare_units, prepare}, {multiply_units, multiply}},
     WEIGHTS},
    ONE("rope_f32", rope_supports, rope_units, rope),
#define CACHED(name, type)                                                                                             \
    ONE("cache_write_f32_" name, cache_write_supports<type>, cache_write_units, cache_write<type>),                    \
        ONE("cache_read_" name, cache_read_supports<type>, cache_read_units, cache_read<type>),                        \
        ONE("rope_qkv_write_f32_" name, (rope_write_supports<type, false>), rope_write_units,                          \
            (rope_write<type, false>)),                                                                                \
        ONE("head_norm_rope_kv_write_f32_" name, (rope_write_supports<type, true>), rope_write_units,                  \
            (rope_write<type, true>)),                                                                                 \
        {"attention_vec_f32_" name,                                                                                    \
         (attention_supports<type, false>),                                                                            \
         attention_vec_shared,                                                                                         \
         2,                                                                                                            \
         {{attention_vec_units, attention_vec<type>}, {combine_units, combine<type>}},                                 \
         0},                                                                                                           \
        ONE("attention_tile_f32_" name, (attention_supports<type, true>), attention_tile_units, attention_tile<type>)
    CACHED("f16", F16),
    CACHED("f32", F32),
    CACHED("q8_0", Blocks),
    ONE("attention_reduce_f32", reduce_supports, reduce_units, reduce),
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
constexpr uint32_t kernel_count = sizeof kernels / sizeof kernels[0];

static const smelt_native_kernel *find_kernel(const char *name) {
    for (const smelt_native_kernel &k : kernels)
        if (strcmp(k.name, name) == 0)
            return &k;
    return nullptr;
}

static uint32_t interleave_rows(uint32_t type, uint64_t k, const void *from, uint64_t rows, void *to) {
    const WeightType *t = find_weight_type(type);
    if (t == nullptr || t->interleave == nullptr || k % (t->quantised ? t->elems : W) != 0)
        return 0;
    t->interleave(static_cast<const uint8_t *>(from), k / t->elems, rows / ROWS, static_cast<uint8_t *>(to));
    return ROWS;
}

static const smelt_native_set set = {{ISA, find_kernel, interleave_rows}, kernels, kernel_count};
