//go:build arm64

// Package dotprod holds the native kernels compiled for NEON with dot products.
package dotprod

// #cgo CXXFLAGS: -std=c++17 -O3 -Wall -Wextra -Wno-psabi -Wno-maybe-uninitialized -Wno-uninitialized -g0 -march=armv8.2-a+dotprod
// #include "../src/set.h"
// const smelt_native_set *smelt_native_dotprod(void);
import "C"

import "unsafe"

// Set returns the kernels as a const smelt_native_set*.
func Set() unsafe.Pointer { return unsafe.Pointer(C.smelt_native_dotprod()) }
