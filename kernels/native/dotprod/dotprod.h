// What the source files of set dotprod have in common.
#include <stdint.h>
#include <string.h>

#include <arm_neon.h>

#include "../../abi/arguments.gen.h"
#include "../../abi/attributes.gen.h"
#include "../../abi/params.h"
#include "../src/set.h"

#define SET smelt_dotprod
#define ENTRY smelt_native_dotprod
#define SIMD "simd_dotprod.h"
#define BASE smelt_native_neon
