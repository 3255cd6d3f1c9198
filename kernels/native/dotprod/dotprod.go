//go:build arm64

// Package dotprod holds the native kernels compiled for NEON with dot products.
package dotprod

// #cgo CXXFLAGS: -std=c++17 -O2 -Wall -Wextra -Wno-psabi -Wno-maybe-uninitialized -Wno-uninitialized -g0 -fno-exceptions -fno-asynchronous-unwind-tables -march=armv8.2-a+dotprod
// #include "../src/set.h"
// const smelt_native_set *smelt_native_dotprod(void);
import "C"

import (
	"unsafe"

	_ "github.com/smelt-ml/smelt/kernels/abi"         // whose headers the sources include
	_ "github.com/smelt-ml/smelt/kernels/native/neon" // the kernels that this set has in common with it
	_ "github.com/smelt-ml/smelt/kernels/native/src"  // likewise
)

// Set returns the kernels as a const smelt_native_set*.
func Set() unsafe.Pointer { return unsafe.Pointer(C.smelt_native_dotprod()) }
