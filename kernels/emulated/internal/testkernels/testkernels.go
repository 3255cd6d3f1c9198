// Package testkernels holds the kernels of kernels/emulated/testdata, which exercise
// the emulation itself: awkward features, and kernels that are wrong on purpose.
package testkernels

//go:generate go run ../../../internal/mslgen/cmd -sources kernels/emulated/testdata -output kernels/emulated/internal/testkernels -levels v3:_amd64

/*
#cgo CXXFLAGS: -std=c++17 -O3 -g1 -fno-strict-aliasing -fno-exceptions -fno-rtti -DMSL_VARIANT=test_base -DMSL_LIBRARY=smelt_emulated_test_base
#cgo LDFLAGS: -lm
#include "../../library.h"
const smelt_emulated_library *smelt_emulated_test_base(void);
*/
import "C"

import (
	"unsafe"

	"github.com/smelt-ml/smelt/kernels/emulated/internal/host"
)

// Libraries returns the builds that this processor can run, the best one first.
func Libraries() []host.Library {
	return append(levels(), host.Open(unsafe.Pointer(C.smelt_emulated_test_base())))
}
