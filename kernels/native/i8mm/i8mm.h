// What the source files of set i8mm have in common.
#include <stdint.h>
#include <string.h>

#include <arm_neon.h>

#include "../../abi/arguments.gen.h"
#include "../../abi/attributes.gen.h"
#include "../../abi/params.h"
#include "../src/set.h"

#define SET smelt_i8mm
#define ENTRY smelt_native_i8mm
#define SIMD "simd_i8mm.h"
#define BASE smelt_native_neon
