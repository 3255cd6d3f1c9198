//go:build amd64

#include <stdint.h>
#include <string.h>
#include <immintrin.h>

#include "../../params.h"
#include "../src/set.h"

#define SIMD "simd_avxvnni.h"

namespace {
#include "../src/kernels.h"
} // namespace

extern "C" const smelt_native_set *smelt_native_avxvnni(void) { return &set; }
