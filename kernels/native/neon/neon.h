// What the source files of set neon have in common.
#include <stdint.h>
#include <string.h>

#include <arm_neon.h>

#include "../../arguments.gen.h"
#include "../../attributes.gen.h"
#include "../../params.h"
#include "../src/set.h"

#define SET smelt_neon
#define ENTRY smelt_native_neon
#define SIMD "simd_neon.h"
