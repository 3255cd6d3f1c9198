// Package portable holds the native kernels compiled for no instruction set in particular.
package portable

// #cgo CXXFLAGS: -std=c++17 -Os -Wall -Wextra -Wno-psabi -Wno-maybe-uninitialized -Wno-uninitialized -g0 -fno-exceptions -fno-asynchronous-unwind-tables
// #include "../src/set.h"
// const smelt_native_set *smelt_native_portable(void);
import "C"

import (
	"unsafe"

	_ "github.com/smelt-ml/smelt/kernels/abi"        // whose headers the sources include
	_ "github.com/smelt-ml/smelt/kernels/native/src" // likewise
)

// Set returns the kernels as a const smelt_native_set*.
func Set() unsafe.Pointer { return unsafe.Pointer(C.smelt_native_portable()) }
