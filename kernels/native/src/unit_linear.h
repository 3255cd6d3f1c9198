// Linear layers with float weights, the launch of all of them, and the set's tables.

namespace SET {
#include "base.h"
#include SIMD
#include "functions.h"
#include "elements.h"
#include "groups.h"
#include "tile.h"
#include "columns.h"
#include "floats.h"
#ifdef __AVX512VNNI__
#include "shorts_avx512.h"
#endif
#include "processor.h"
#include "linear.h"
#include "routed.h"
#include "families.h"

#ifdef __AVX512VNNI__
static const WeightType types[] = {float_type<F32>(), short_type<F16>(), short_type<BF16>()};
#else
static const WeightType types[] = {float_type<F32>(), float_type<F16>(), float_type<BF16>()};
#endif

const WeightType *find_weight_type(uint32_t type) {
    const WeightType *t = find_among(types, type);
    if (t == nullptr)
        t = find_offset_type(type);
    return t != nullptr ? t : find_minimum_type(type);
}

static const smelt_native_kernel kernels[] = {
#define LINEAR(OF)                                                                                                     \
    {OF.kernel,                                                                                                        \
     linear_supports<OF>,                                                                                              \
     linear_shared<OF>,                                                                                                \
     2,                                                                                                                \
     {{prepare_units<OF>, prepare<OF>}, {multiply_units<OF>, multiply<OF>}},                                           \
     OF.interleaved(),                                                                                                 \
     readers<OF>}
    LINEAR(LINEAR_VEC),
    LINEAR(LINEAR_MAT),
#undef LINEAR
};
FAMILY(linear_family, kernels);

static const Family *const families[] = {&linear_family, &attention_family, &rows_family};

static const smelt_native_kernel *kernel_at(uint32_t i) {
    for (const Family *f : families) {
        if (i < f->count)
            return f->kernels + i;
        i -= f->count;
    }
    return nullptr;
}
static const smelt_native_kernel *find_kernel(const char *name) {
    for (const Family *f : families)
        for (uint32_t i = 0; i < f->count; i++)
            if (strcmp(f->kernels[i].name, name) == 0)
                return f->kernels + i;
    return nullptr;
}

static uint32_t interleave_rows(uint32_t type, uint64_t k, const void *from, uint64_t rows, void *to) {
    const WeightType *t = find_weight_type(type);
    if (t == nullptr || t->interleave == nullptr || k % t->whole() != 0)
        return 0;
    const auto put = [&](const uint8_t *first, uint64_t groups, uint64_t row) {
        t->interleave(first, k / t->elems, groups, static_cast<uint8_t *>(to) + row * t->row_bytes(k, true));
    };
    const uint64_t whole = rows / ROWS, bytes = t->row_bytes(k, false);
    const uint8_t *first = static_cast<const uint8_t *>(from), *end = first + rows * bytes;
    put(first, whole, 0);
    if (rows % ROWS != 0)
        put(end - ROWS * bytes, 1, whole * ROWS);
    return ROWS;
}

static uint64_t interleaved_bytes(uint32_t type, uint64_t k, uint64_t rows) {
    if (interleave_rows(type, k, nullptr, 0, nullptr) == 0)
        return 0;
    return (rows + ROWS - 1) / ROWS * ROWS * find_weight_type(type)->row_bytes(k, true);
}

static const smelt_native_set set = {{ISA, find_kernel, interleave_rows, interleaved_bytes, SHORT_DOTS}, kernel_at};
} // namespace SET

extern "C" const smelt_native_set *ENTRY(void) { return &SET::set; }
