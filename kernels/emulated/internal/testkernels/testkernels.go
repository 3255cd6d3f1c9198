// Package testkernels holds the kernels of kernels/emulated/testdata, which test the
// emulation itself: rare features of MSL, and kernels with deliberate faults.
package testkernels

//go:generate go run ../../mslgen/cmd -sources kernels/emulated/testdata -output kernels/emulated/internal/testkernels

/*
#cgo CXXFLAGS: -std=c++17 -O2 -g0 -fno-strict-aliasing -fno-exceptions -fno-asynchronous-unwind-tables -fno-rtti -DMSL_VARIANT=test -DMSL_LIBRARY=smelt_emulated_test
#cgo asan CXXFLAGS: -g1
#cgo LDFLAGS: -lm
#include "../../../abi/library.h"
const smelt_emulated_library *smelt_emulated_test(void);
*/
import "C"

import (
	"unsafe"

	_ "github.com/smelt-ml/smelt/kernels/abi" // whose headers are included above
	"github.com/smelt-ml/smelt/kernels/emulated/internal/host"
	_ "github.com/smelt-ml/smelt/kernels/emulated/runtime" // what the sources include
)

// Library returns the kernels.
func Library() host.Library { return host.Open(unsafe.Pointer(C.smelt_emulated_test())) }
