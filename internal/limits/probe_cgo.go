//go:build cgo

package limits

// #cgo CXXFLAGS: -std=c++17 -O3 -Wall -Wextra -Wno-psabi
// #include <stdlib.h>
// #include "peaks.h"
import "C"

import "unsafe"

func peaksOf(isa string) peaks {
	run := func(int8 int) chains {
		return func(n int64) int64 {
			name := C.CString(isa)
			defer C.free(unsafe.Pointer(name))
			return int64(C.limits_chains(name, C.int(int8), C.int64_t(n)))
		}
	}
	if run(0)(1) == 0 {
		return peaks{}
	}
	return peaks{run(0), run(1)}
}

func sum(b []byte) uint64 {
	return uint64(C.limits_sum((*C.uint8_t)(unsafe.SliceData(b)), C.size_t(len(b))))
}
