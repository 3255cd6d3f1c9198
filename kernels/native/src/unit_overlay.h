// A set that differs from BASE in the products of integers alone: linear layers whose weights
// are all quantized are its own, and everything else is BASE's, the order of interleaved
// weights included.

extern "C" const smelt_native_set *BASE(void);

namespace SET {
#include "base.h"
#include SIMD
#include "functions.h"
#include "groups.h"
#include "processor.h"
#include "linear.h"
#include "routed.h"

const WeightType *find_weight_type(uint32_t type) {
    const WeightType *t = find_offset_type(type);
    return t != nullptr ? t : find_minimum_type(type);
}

// Float weights are BASE's.
bool columns_pay(uint64_t, uint32_t) { return false; }
void put_column(const Columns &, const float *, uint64_t) {}

// Whether all weights of a launch are quantized.
static bool own(const smelt_launch *l, const LinearArguments &of) {
    for (uint32_t number : of.fc_type)
        if (constant(l, number) != SMELT_NONE && find_weight_type(constant(l, number)) == nullptr)
            return false;
    return true;
}
template <const LinearArguments &OF> static const smelt_native_kernel &below() {
    static const smelt_native_kernel *const kernel = BASE()->native.find(OF.kernel);
    return *kernel;
}
template <const LinearArguments &OF> static int overlay_supports(const smelt_launch *l) {
    return own(l, OF) ? linear_supports(l, OF) : below<OF>().supports(l);
}
template <const LinearArguments &OF> static size_t overlay_shared(const smelt_launch *l) {
    return own(l, OF) ? linear_shared<OF>(l) : below<OF>().shared_bytes(l);
}
template <const LinearArguments &OF> static uint64_t overlay_prepare_units(const smelt_launch *l) {
    return own(l, OF) ? prepare_units<OF>(l) : below<OF>().stages[0].units(l);
}
template <const LinearArguments &OF>
static void overlay_prepare(const smelt_launch *l, void *shared, uint64_t begin, uint64_t end) {
    (own(l, OF) ? prepare<OF> : below<OF>().stages[0].run)(l, shared, begin, end);
}
template <const LinearArguments &OF> static uint64_t overlay_multiply_units(const smelt_launch *l) {
    return own(l, OF) ? multiply_units<OF>(l) : below<OF>().stages[1].units(l);
}
template <const LinearArguments &OF>
static void overlay_multiply(const smelt_launch *l, void *shared, uint64_t begin, uint64_t end) {
    (own(l, OF) ? multiply<OF> : below<OF>().stages[1].run)(l, shared, begin, end);
}

static const smelt_native_kernel kernels[] = {
#define LINEAR(OF)                                                                                                     \
    {OF.kernel,                                                                                                        \
     overlay_supports<OF>,                                                                                             \
     overlay_shared<OF>,                                                                                               \
     2,                                                                                                                \
     {{overlay_prepare_units<OF>, overlay_prepare<OF>}, {overlay_multiply_units<OF>, overlay_multiply<OF>}},           \
     OF.interleaved(),                                                                                                 \
     readers<OF>}
    LINEAR(LINEAR_VEC),
    LINEAR(LINEAR_MAT),
#undef LINEAR
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

static uint64_t interleaved_bytes(uint32_t type, uint64_t k, uint64_t rows) {
    return BASE()->native.interleaved_bytes(type, k, rows);
}

// A base with integers for halves has every kind of dot product itself.
static const smelt_native_set set = {{ISA, find_kernel, interleave_rows, interleaved_bytes, 0}, kernel_at};
} // namespace SET

extern "C" const smelt_native_set *ENTRY(void) { return &SET::set; }
