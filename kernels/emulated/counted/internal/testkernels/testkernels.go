// Package testkernels holds kernels whose counts are known, compiled to be counted.
package testkernels

//go:generate go run ../../../../internal/mslgen/cmd -sources kernels/emulated/counted/testdata -output kernels/emulated/counted/internal/testkernels -levels=

/*
#cgo CFLAGS: -O2 -DSMELT_COUNTED=smelt_counted_test -DSMELT_COUNTED_LIBRARY=smelt_emulated_counted_test
#cgo CXXFLAGS: -std=c++17 -O1 -g1 -fno-strict-aliasing -fno-exceptions -fno-rtti -DMSL_COUNTED -DMSL_VARIANT=counted_test -DMSL_LIBRARY=smelt_emulated_counted_test
#cgo !asan,!msan,!race CXXFLAGS: -fsanitize=thread
#cgo asan msan race CFLAGS: -DSMELT_NO_HOOKS
#cgo LDFLAGS: -lm
#include "../../trace.h"
const smelt_counted *smelt_counted_test(void);
*/
import "C"

import (
	"unsafe"

	"github.com/smelt-ml/smelt/kernels/emulated/internal/meter"
)

// Library returns the kernels.
func Library() meter.Library { return meter.Open(unsafe.Pointer(C.smelt_counted_test())) }
