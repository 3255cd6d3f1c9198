//go:build cgo && ((linux && (amd64 || arm64)) || (darwin && arm64))

package host

/*
#cgo CFLAGS: -I../.. -O2
// Optimised for size, since steps spend their time in kernels.
#cgo CXXFLAGS: -I../.. -std=c++17 -Os -Wall -Wextra
#cgo LDFLAGS: -lpthread
#include "device/provider/device.h"

const smelt_provider *smelt_host_provider(void);
const smelt_host *smelt_host_half(void);
*/
import "C"

import (
	"unsafe"

	_ "github.com/smelt-ml/smelt/device/provider" // and its device.h
	_ "github.com/smelt-ml/smelt/kernels/abi"     // whose headers the sources include
)

// Provider returns a const smelt_provider*: a device on the CPU.
func Provider() unsafe.Pointer { return unsafe.Pointer(C.smelt_host_provider()) }

// Half returns a const smelt_host*: the CPU beside a GPU, over the same memory.
func Half() unsafe.Pointer { return unsafe.Pointer(C.smelt_host_half()) }
