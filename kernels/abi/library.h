// The table of one variant, as the Go side takes it.
#ifndef SMELT_KERNELS_LIBRARY_H
#define SMELT_KERNELS_LIBRARY_H

#include "abi.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct smelt_emulated_library {
    smelt_emulator emulator;
    const char *isa;                     // the instruction set of the build
    const char *(*name)(uint32_t index); // host name of a kernel, null past the last
} smelt_emulated_library;

#ifdef __cplusplus
}
#endif
#endif
