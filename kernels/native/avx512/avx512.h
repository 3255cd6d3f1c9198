// What the source files of set avx512 have in common.
#include <stdint.h>
#include <string.h>

#include <immintrin.h>

#include "../../abi/arguments.gen.h"
#include "../../abi/attributes.gen.h"
#include "../../abi/params.h"
#include "../src/set.h"

#define SET smelt_avx512
#define ENTRY smelt_native_avx512
#define SIMD "simd_avx512.h"
