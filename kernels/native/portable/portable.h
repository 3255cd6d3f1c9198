// What the source files of set portable have in common.
#include <stdint.h>
#include <string.h>

#include "../../arguments.gen.h"
#include "../../attributes.gen.h"
#include "../../params.h"
#include "../src/set.h"

#define SET smelt_portable
#define ENTRY smelt_native_portable
#define SIMD "simd_portable.h"
