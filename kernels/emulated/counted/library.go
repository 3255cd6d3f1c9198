package counted

/*
#cgo CFLAGS: -O2 -DSMELT_COUNTED=smelt_counted_kernels -DSMELT_COUNTED_LIBRARY=smelt_emulated_counted
#cgo CXXFLAGS: -std=c++17 -O1 -fno-strict-aliasing -fno-exceptions -fno-rtti -DMSL_COUNTED -DMSL_VARIANT=counted -DMSL_LIBRARY=smelt_emulated_counted
#cgo !asan,!msan,!race CXXFLAGS: -fsanitize=thread
#cgo asan msan race CFLAGS: -DSMELT_NO_HOOKS
#cgo LDFLAGS: -lm
#include "trace.h"
const smelt_counted *smelt_counted_kernels(void);
*/
import "C"

import (
	"unsafe"

	"github.com/smelt-ml/smelt/kernels/emulated/internal/meter"
)

var library = meter.Open(unsafe.Pointer(C.smelt_counted_kernels()))
