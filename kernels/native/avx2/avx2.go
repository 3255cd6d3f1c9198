//go:build amd64

// Package avx2 holds the native kernels compiled for AVX2, FMA and F16C.
package avx2

// #cgo CXXFLAGS: -std=c++17 -O2 -Wall -Wextra -Wno-psabi -Wno-maybe-uninitialized -Wno-uninitialized -g0 -fno-exceptions -fno-asynchronous-unwind-tables -march=x86-64-v3
// #include "../src/set.h"
// const smelt_native_set *smelt_native_avx2(void);
import "C"

import (
	"unsafe"

	_ "github.com/smelt-ml/smelt/kernels/abi"        // whose headers the sources include
	_ "github.com/smelt-ml/smelt/kernels/native/src" // likewise
)

// Set returns the kernels as a const smelt_native_set*.
func Set() unsafe.Pointer { return unsafe.Pointer(C.smelt_native_avx2()) }
