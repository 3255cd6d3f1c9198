// What the source files of set neon have in common.
#include <stdint.h>
#include <string.h>

#include <arm_neon.h>

#include "../../abi/arguments.gen.h"
#include "../../abi/attributes.gen.h"
#include "../../abi/params.h"
#include "../src/set.h"

#define SET smelt_neon
#define ENTRY smelt_native_neon
#define SIMD "simd_neon.h"
