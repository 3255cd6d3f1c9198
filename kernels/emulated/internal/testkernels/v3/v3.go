//go:build amd64

// Package v3 is the test kernels compiled as package emulated/v3 compiles the real ones.
package v3

/*
#cgo CXXFLAGS: -std=c++17 -O3 -g1 -fno-strict-aliasing -fno-exceptions -fno-rtti -march=ivybridge -mavx2 -mtune=haswell -DMSL_HAS_FMA -DMSL_VARIANT=test_v3 -DMSL_LIBRARY=smelt_emulated_test_v3
#cgo LDFLAGS: -lm
#include "../../../library.h"
const smelt_emulated_library *smelt_emulated_test_v3(void);

static int supported(void) {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c") && __builtin_cpu_supports("fma");
}
*/
import "C"

import "unsafe"

// Supported reports whether this processor can run the package's kernels.
func Supported() bool { return C.supported() != 0 }

// Library returns the kernels as a const smelt_emulated_library*.
func Library() unsafe.Pointer { return unsafe.Pointer(C.smelt_emulated_test_v3()) }
