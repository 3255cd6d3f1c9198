// What the source files of set avxvnni have in common.
#include <stdint.h>
#include <string.h>

#include <immintrin.h>

#include "../../abi/arguments.gen.h"
#include "../../abi/attributes.gen.h"
#include "../../abi/params.h"
#include "../src/set.h"

#define SET smelt_avxvnni
#define ENTRY smelt_native_avxvnni
#define SIMD "simd_avxvnni.h"
#define BASE smelt_native_avx2
