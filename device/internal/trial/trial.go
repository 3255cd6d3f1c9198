//go:build cgo && linux && (amd64 || arm64)

// Package trial supplies kernels that tests of package device need: tiny ones
// whose results are known, and ones that fail, wait, or are wrong on purpose. It
// is a package of its own because test files cannot use cgo.
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

// Waiting returns how many threads are held in the kernel "hold".
func Waiting() int { return int(C.trial_waiting()) }

// Release lets one go.
func Release() { C.trial_release() }
