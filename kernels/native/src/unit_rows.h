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
#include "recurrent.h"
#include "families.h"

template <class C> static int write_supports(const smelt_launch *l) { return cache_write_supports(l, cache_of<C>); }
template <class C> static void write(const smelt_launch *l, void *, uint64_t begin, uint64_t end) {
    cache_write(l, begin, end, cache_of<C>);
}
template <class C> static int read_supports(const smelt_launch *l) { return cache_read_supports(l, cache_of<C>); }
template <class C> static void read(const smelt_launch *l, void *, uint64_t begin, uint64_t end) {
    cache_read(l, begin, end, cache_of<C>);
}
template <class C> static int copy_supports(const smelt_launch *l) { return copy_blocks_supports(l, cache_of<C>); }
template <class C> static void copy(const smelt_launch *l, void *, uint64_t begin, uint64_t end) {
    copy_blocks(l, begin, end, cache_of<C>);
}
template <class C, const RopeWriteArguments &OF> static int rotated_supports(const smelt_launch *l) {
    return rope_write_supports(l, cache_of<C>, OF);
}
template <class C, const RopeWriteArguments &OF>
static void rotated(const smelt_launch *l, void *, uint64_t begin, uint64_t end) {
    rope_write(l, begin, end, cache_of<C>, OF);
}

template <class C> static int latent_supports(const smelt_launch *l) { return latent_write_supports(l, cache_of<C>); }
template <class C> static void latent(const smelt_launch *l, void *, uint64_t begin, uint64_t end) {
    latent_write(l, begin, end, cache_of<C>);
}

static const smelt_native_kernel kernels[] = {
    {"embed",
     embed_supports,
     no_shared,
     1,
     {{embed_units, embed}, {nullptr, nullptr}},
     1 << SMELT_EMBED_TABLE,
     nullptr},
    ONE("rms_norm_f32_f32", norm_supports, norm_units, norm),
    ONE("norm_residual_f32", norm_residual_supports, norm_residual_units, norm_residual),
    ONE("layer_norm_f32_f32", layer_norm_supports, layer_norm_units, layer_norm),
    ONE("rope_f32", rope_supports, rope_units, rope),
#define CACHED(name, C)                                                                                                \
    ONE("cache_write_f32_" name, write_supports<C>, cache_write_units, write<C>),                                      \
        ONE("cache_read_" name, read_supports<C>, cache_read_units, read<C>),                                          \
        ONE("copy_blocks_" name, copy_supports<C>, copy_blocks_units, copy<C>),                                        \
        ONE("rope_qkv_write_f32_" name, (rotated_supports<C, ROPE_QKV_WRITE>), rope_write_units<ROPE_QKV_WRITE>,       \
            (rotated<C, ROPE_QKV_WRITE>)),                                                                             \
        ONE("latent_write_f32_" name, latent_supports<C>, latent_write_units, latent<C>),                              \
        ONE("head_norm_rope_kv_write_f32_" name, (rotated_supports<C, HEAD_NORM_ROPE_KV_WRITE>),                       \
            rope_write_units<HEAD_NORM_ROPE_KV_WRITE>, (rotated<C, HEAD_NORM_ROPE_KV_WRITE>))
    CACHED("f16", F16),
    CACHED("f32", F32),
    CACHED("q8_0", Blocks),
#undef CACHED
    ONE("activate_f32", activate_supports, element_units<Activate>, activate),
    ONE("scale_f32", element_supports<Scale>, element_units<Scale>, element1<Scale>),
    ONE("soft_cap_f32", element_supports<SoftCap>, element_units<SoftCap>, element1<SoftCap>),
    ONE("add_f32", element_supports<Add>, element_units<Add>, element2<Add>),
    ONE("mul_f32", element_supports<Mul>, element_units<Mul>, element2<Mul>),
    ONE("gate_f32", gate_supports, element_units<Gate>, gate),
    ONE("gather_rows_f32", gather_supports, gather_units, gather_rows),
    ONE("softmax_f32", softmax_supports, softmax_units, softmax),
    ONE("argmax_f32", argmax_supports, argmax_units, argmax),
    ONE("router_f32", router_supports, router_units, router),
    ONE("indices", indices_supports, indices_units, indices),
    ONE("concat_f32", concat_supports, concat_units, concat),
    ONE("weighted_sum_f32", weighted_sum_supports, weighted_sum_units, weighted_sum),
    ONE("repeat_kv_f32", repeat_supports<REPEAT_KV>, repeat_units<REPEAT_KV>, repeat<REPEAT_KV>),
    ONE("repeat_kv_pair_f32", repeat_supports<REPEAT_KV_PAIR>, repeat_units<REPEAT_KV_PAIR>, repeat<REPEAT_KV_PAIR>),
    ONE("transpose_f32", transpose_supports, transpose_units, transpose),
    ONE("matmul_f32", matmul_supports, matmul_units, matmul),
    ONE("mask_f32", mask_supports, mask_units, mask),
    ONE("short_conv_f32", short_conv_supports, short_conv_units, short_conv),
    ONE("delta_net_f32", delta_net_supports, delta_net_units, delta_net),
    ONE("mamba2_f32", mamba2_supports, mamba2_units, mamba2),
};
FAMILY(rows_family, kernels);
} // namespace SET
