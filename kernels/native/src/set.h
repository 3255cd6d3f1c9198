// What each instruction set's package hands to package native.
#ifndef SMELT_KERNELS_NATIVE_SET_H
#define SMELT_KERNELS_NATIVE_SET_H

#include "../../abi/abi.h"
#include "../../abi/types.gen.h"

typedef struct smelt_native_set {
    smelt_native native;                              // first, so that a set is a smelt_native
    const smelt_native_kernel *(*at)(uint32_t index); // each kernel once; null behind the last
} smelt_native_set;

#endif
