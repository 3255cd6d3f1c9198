//go:build cgo && ((darwin && arm64) || openblas)

// Package blas holds kernels that multiply matrices with the system's BLAS: Accelerate on
// macOS; on Linux, for tests, OpenBLAS under the tag openblas. Other builds have none.
//
// Accelerate uses the matrix units of Apple's processors, which compilers have no
// instructions for. The kernels call it in one function, smelt_sgemm.
package blas

// #cgo CXXFLAGS: -std=c++17 -O3 -Wall -Wextra -Wno-psabi -Wno-maybe-uninitialized -Wno-uninitialized -Wno-unused-function -g0 -fno-exceptions -fno-asynchronous-unwind-tables
// #cgo darwin CFLAGS: -DACCELERATE_NEW_LAPACK
// #cgo darwin LDFLAGS: -framework Accelerate
// #cgo linux LDFLAGS: -lopenblas
// #include "../src/set.h"
// const smelt_native_set *smelt_native_blas(void);
import "C"

import (
	"unsafe"

	_ "github.com/smelt-ml/smelt/kernels/abi"        // whose headers the sources include
	_ "github.com/smelt-ml/smelt/kernels/native/src" // likewise
)

// Set returns the kernels as a const smelt_native_set*.
func Set() unsafe.Pointer { return unsafe.Pointer(C.smelt_native_blas()) }
