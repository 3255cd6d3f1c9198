//go:build amd64

// Package avx512 holds the native kernels compiled for AVX-512 (F, BW, VL, DQ) with VNNI.
package avx512

// #cgo CXXFLAGS: -std=c++17 -O3 -Wall -Wextra -Wno-psabi -Wno-maybe-uninitialized -Wno-uninitialized -g0 -fno-exceptions -fno-asynchronous-unwind-tables -march=x86-64-v4 -mavx512vnni
// #include "../src/set.h"
// const smelt_native_set *smelt_native_avx512(void);
import "C"

import (
	"unsafe"

	_ "github.com/smelt-ml/smelt/kernels/abi"        // whose headers the sources include
	_ "github.com/smelt-ml/smelt/kernels/native/src" // likewise
)

// Set returns the kernels as a const smelt_native_set*.
func Set() unsafe.Pointer { return unsafe.Pointer(C.smelt_native_avx512()) }
