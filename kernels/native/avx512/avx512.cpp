//go:build amd64

#include <stdint.h>
#include <string.h>
#include <immintrin.h>

#include "../../params.h"
#include "../src/set.h"

#define SIMD "simd_avx512.h"

namespace {
#include "../src/kernels.h"
} // namespace

extern "C" const smelt_native_set *smelt_native_avx512(void) { return &set; }
