//go:build arm64

#include <stdint.h>
#include <string.h>
#include <arm_neon.h>

#include "../../params.h"
#include "../src/set.h"

#define SIMD "simd_dotprod.h"

namespace {
#include "../src/kernels.h"
} // namespace

extern "C" const smelt_native_set *smelt_native_dotprod(void) { return &set; }
