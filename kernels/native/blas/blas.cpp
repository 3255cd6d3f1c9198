//go:build (darwin && arm64) || openblas

#include <stdint.h>
#include <string.h>

#include "../../abi/arguments.gen.h"
#include "../../abi/attributes.gen.h"
#include "../../abi/params.h"
#include "../src/set.h"
#include "sgemm.h"

#ifdef __ARM_NEON
#include <arm_neon.h>
#define SIMD "../src/simd_neon.h"
#else
#define SIMD "../src/simd_portable.h"
#endif

namespace {
#include "../src/base.h"
#include SIMD
#include "../src/functions.h"
#include "../src/elements.h"
#include "../src/groups.h"
#include "../src/processor.h"
#include "../src/linear.h"

// What else is not a product of this library is refused.
bool columns_pay(uint64_t, uint32_t) { return false; }
void put_column(const Columns &, const float *, uint64_t) {}
#include "gemm.h"

template <class E> constexpr WeightType float_type() {
    return {E::TYPE, 1, E::BYTES, STREAMS, false, {1, 0, false}, nullptr, widen<E>, nullptr, nullptr};
}
const WeightType types[] = {float_type<F32>(), float_type<F16>(), float_type<BF16>()};
const WeightType *find_weight_type(uint32_t type) { return find_among(types, type); }

const smelt_native_kernel kernels[] = {
#define LINEAR(OF)                                                                                                     \
    {OF.kernel,                                                                                                        \
     gemm_supports<OF>,                                                                                                \
     gemm_shared<OF>,                                                                                                  \
     2,                                                                                                                \
     {{gemm_prepare_units<OF>, gemm_prepare<OF>}, {gemm_units<OF>, gemm<OF>}},                                         \
     0,                                                                                                                \
     nullptr}
    LINEAR(LINEAR_VEC),
    LINEAR(LINEAR_MAT),
#undef LINEAR
};

const smelt_native_kernel *find(const char *name) {
    for (const auto &k : kernels)
        if (strcmp(k.name, name) == 0)
            return &k;
    return nullptr;
}

const smelt_native_kernel *kernel_at(uint32_t i) {
    return i < sizeof kernels / sizeof kernels[0] ? kernels + i : nullptr;
}

const smelt_native_set set = {{"blas", find, nullptr, nullptr, 0}, kernel_at};
} // namespace

extern "C" const smelt_native_set *smelt_native_blas(void) { return &set; }
