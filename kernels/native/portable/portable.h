// What the source files of set portable have in common.

// A processor that has fused products would take them in some of the loops and not in others
// that add up the same numbers. Those of x86 have none to take.
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__aarch64__)
#pragma GCC optimize("fp-contract=off")
#endif

#include <stdint.h>
#include <string.h>

#include "../../abi/arguments.gen.h"
#include "../../abi/attributes.gen.h"
#include "../../abi/params.h"
#include "../src/set.h"

#define SET smelt_portable
#define ENTRY smelt_native_portable
#define SIMD "simd_portable.h"
