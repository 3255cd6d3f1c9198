//go:build amd64

#include <stdint.h>
#include <string.h>
#include <immintrin.h>

#include "../../params.h"
#include "../src/set.h"

#define SIMD "simd_avx2.h"

namespace {
#include "../src/kernels.h"
} // namespace

extern "C" const smelt_native_set *smelt_native_avx2(void) { return &set; }
