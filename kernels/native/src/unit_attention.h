// Attention, for one instruction set.

namespace SET {
#include "base.h"
#include SIMD
#include "functions.h"
#include "elements.h"
#include "matrix.h"
#include "tile.h"
#ifdef __AVX512F__
#include "keys_avx512.h"
#else
#include "keys.h"
#endif
#include "processor.h"
#include "attention.h"
#include "families.h"

template <class C> static int vec_supports(const smelt_launch *l) {
    return attention_supports(l, ATTENTION_VEC, cache_of<C>);
}
template <class C> static int tile_supports(const smelt_launch *l) {
    return attention_supports(l, ATTENTION_TILE, cache_of<C>);
}
template <class C> static void attention_vec(const smelt_launch *l, void *shared, uint64_t begin, uint64_t end) {
    attention_vec(l, shared, begin, end, cache_of<C>, loops_of<C>);
}
template <class C> static void combine(const smelt_launch *l, void *shared, uint64_t begin, uint64_t end) {
    combine(l, shared, begin, end, cache_of<C>);
}
template <class C> static void attention_tile(const smelt_launch *l, void *, uint64_t begin, uint64_t end) {
    attention_tile(l, begin, end, cache_of<C>);
}

static const smelt_native_kernel kernels[] = {
#define CACHED(name, C)                                                                                                \
    {"attention_vec_f32_" name,                                                                                        \
     vec_supports<C>,                                                                                                  \
     attention_vec_shared,                                                                                             \
     2,                                                                                                                \
     {{attention_vec_units, attention_vec<C>}, {combine_units, combine<C>}},                                           \
     0,                                                                                                                \
     nullptr},                                                                                                         \
        ONE("attention_tile_f32_" name, tile_supports<C>, attention_tile_units, attention_tile<C>)
    CACHED("f16", F16),
    CACHED("f32", F32),
    CACHED("q8_0", Blocks),
#undef CACHED
    ONE("attention_reduce_f32", reduce_supports, reduce_units, reduce),
};
FAMILY(attention_family, kernels);
} // namespace SET
