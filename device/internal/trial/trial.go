//go:build cgo && linux && (amd64 || arm64)

// Package trial has kernels for tests of package device: small ones with known results, and ones
// that fail, block, or are wrong on purpose. It is a separate package because test files cannot use
// cgo.
package trial

/*
#cgo CXXFLAGS: -I../../.. -std=c++17 -O2 -Wall -Wextra
#include <stdint.h>
const void *trial_emulator(void);
const void *trial_native(void);
uint32_t trial_waiting(void);
void trial_release(void);
*/
import "C"

import "unsafe"

// Suppliers returns the smelt_emulator and the smelt_native.
func Suppliers() (emulator, native unsafe.Pointer) {
	return unsafe.Pointer(C.trial_emulator()), unsafe.Pointer(C.trial_native())
}

// Waiting returns the number of threads that are blocked in the kernel "hold".
func Waiting() int { return int(C.trial_waiting()) }

// Release unblocks one of them.
func Release() { C.trial_release() }
