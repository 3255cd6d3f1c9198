//go:build amd64

// Package avxvnni holds the native kernels compiled for AVX2, FMA and F16C with AVX-VNNI.
package avxvnni

// #cgo CXXFLAGS: -std=c++17 -O2 -Wall -Wextra -Wno-psabi -Wno-maybe-uninitialized -Wno-uninitialized -g0 -fno-exceptions -fno-asynchronous-unwind-tables -march=x86-64-v3 -mavxvnni
// #include "../src/set.h"
// const smelt_native_set *smelt_native_avxvnni(void);
import "C"

import (
	"unsafe"

	_ "github.com/smelt-ml/smelt/kernels/abi"         // whose headers the sources include
	_ "github.com/smelt-ml/smelt/kernels/native/avx2" // the kernels that this set has in common with it
	_ "github.com/smelt-ml/smelt/kernels/native/src"  // likewise
)

// Set returns the kernels as a const smelt_native_set*.
func Set() unsafe.Pointer { return unsafe.Pointer(C.smelt_native_avxvnni()) }
