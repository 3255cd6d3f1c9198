//go:build (darwin && arm64) || openblas

#include <stdint.h>
#include <string.h>

#include "../../params.h"
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
#include "../src/blocks.h"
#include "../src/linear.h"
#include "gemm.h"

const smelt_native_kernel kernels[] = {
    {"linear_vec_f32_f32", gemm_supports, linear_shared, 2, {{prepare_units, prepare}, {gemm_units, gemm}}, 0},
    {"linear_mat_f32_f32", gemm_supports, linear_shared, 2, {{prepare_units, prepare}, {gemm_units, gemm}}, 0},
};

const smelt_native_kernel *find(const char *name) {
    for (const auto &k : kernels)
        if (strcmp(k.name, name) == 0)
            return &k;
    return nullptr;
}

const smelt_native_set set = {{"blas", find, nullptr}, kernels, 2};
} // namespace

extern "C" const smelt_native_set *smelt_native_blas(void) { return &set; }
