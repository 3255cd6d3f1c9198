// A set that differs from BASE in the products of integers alone: linear layers whose weights
// are all quantised are its own, and everything else is BASE's, the order of interleaved
// weights included.

extern "C" const smelt_native_set *BASE(void);

namespace SET {
#include "base.h"
#include SIMD
#include "functions.h"
#include "groups.h"
#include "linear.h"

const WeightType *find_weight_type(uint32_t type) {
    const WeightType *t = find_offset_type(type);
    return t != nullptr ? t : find_minimum_type(type);
}

// Whether all weights of a launch are quantised. Both host names run the same code.
static bool own(const smelt_launch *l) {
    for (uint32_t i = 0; i < 3; i++)
        if (constant(l, i) != SMELT_NONE && find_weight_type(constant(l, i)) == nullptr)
            return false;
    return true;
}
static const smelt_native_kernel &below() {
    static const smelt_native_kernel *const kernel = BASE()->native.find("linear_vec_f32_f32");
    return *kernel;
}
static int overlay_supports(const smelt_launch *l) { return own(l) ? linear_supports(l) : below().supports(l); }
static size_t overlay_shared(const smelt_launch *l) { return own(l) ? linear_shared(l) : below().shared_bytes(l); }
static uint64_t overlay_prepare_units(const smelt_launch *l) {
    return own(l) ? prepare_units(l) : below().stages[0].units(l);
}
static void overlay_prepare(const smelt_launch *l, void *shared, uint64_t begin, uint64_t end) {
    (own(l) ? prepare : below().stages[0].run)(l, shared, begin, end);
}
static uint64_t overlay_multiply_units(const smelt_launch *l) {
    return own(l) ? multiply_units(l) : below().stages[1].units(l);
}
static void overlay_multiply(const smelt_launch *l, void *shared, uint64_t begin, uint64_t end) {
    (own(l) ? multiply : below().stages[1].run)(l, shared, begin, end);
}

static const smelt_native_kernel kernels[] = {
    {"linear_vec_f32_f32",
     overlay_supports,
     overlay_shared,
     2,
     {{overlay_prepare_units, overlay_prepare}, {overlay_multiply_units, overlay_multiply}},
     WEIGHTS},
    {"linear_mat_f32_f32",
     overlay_supports,
     overlay_shared,
     2,
     {{overlay_prepare_units, overlay_prepare}, {overlay_multiply_units, overlay_multiply}},
     WEIGHTS},
};

static const smelt_native_kernel *find_own(const char *name) {
    for (const smelt_native_kernel &k : kernels)
        if (strcmp(k.name, name) == 0)
            return &k;
    return nullptr;
}
static const smelt_native_kernel *find_kernel(const char *name) {
    const smelt_native_kernel *k = find_own(name);
    return k != nullptr ? k : BASE()->native.find(name);
}
static const smelt_native_kernel *kernel_at(uint32_t i) {
    const smelt_native_kernel *k = BASE()->at(i);
    return k == nullptr ? nullptr : find_kernel(k->name);
}
static uint32_t interleave_rows(uint32_t type, uint64_t k, const void *from, uint64_t rows, void *to) {
    return BASE()->native.interleave(type, k, from, rows, to);
}

static const smelt_native_set set = {{ISA, find_kernel, interleave_rows}, kernel_at};
} // namespace SET

extern "C" const smelt_native_set *ENTRY(void) { return &SET::set; }
