// Parameter structs of launches, for the .metal sources and the native kernels.
#ifndef SMELT_KERNELS_PARAMS_H
#define SMELT_KERNELS_PARAMS_H

#ifndef __METAL_VERSION__
#include <stdint.h>
#endif

#include "params.gen.h"

#endif
