#include <stdint.h>
#include <string.h>

#include "../../params.h"
#include "../src/set.h"

#define SIMD "simd_portable.h"

namespace {
#include "../src/kernels.h"
} // namespace

extern "C" const smelt_native_set *smelt_native_portable(void) { return &set; }
