//go:build cgo

package limits

// #cgo CXXFLAGS: -std=c++17 -O3 -Wall -Wextra -Wno-psabi
// #include <stdlib.h>
// #include "peaks.h"
// #include "sum.h"
import "C"

import "unsafe"

func peaksOf(isa string) peaks {
	run := func(of C.int) chains {
		return func(n int64) int64 {
			name := C.CString(isa)
			defer C.free(unsafe.Pointer(name))
			return int64(C.limits_chains(name, of, C.int64_t(n)))
		}
	}
	if run(C.LIMITS_F32)(1) == 0 {
		return peaks{}
	}
	p := peaks{f32: run(C.LIMITS_F32), int8: run(C.LIMITS_INT8)}
	if nibbles := run(C.LIMITS_NIBBLES); nibbles(1) != 0 {
		p.nibbles = nibbles
	}
	return p
}

// loads returns the ways in which this build sums, on pages of either size.
func loads() []Way {
	var list []Way
	widths := int(C.limits_widths())
	for width := 16; width <= widths; width *= 2 {
		if widths&width == 0 {
			continue
		}
		for _, s := range []struct{ streams, ahead int }{{1, 0}, {1, 512}, {1, 2048}, {1, 8192}, {2, 2048}, {4, 0}, {4, 512}, {4, 2048}} {
			list = append(list, Way{Width: width, Streams: s.streams, Ahead: s.ahead})
		}
	}
	return list
}

func (w Way) sum(b []byte) uint64 {
	return uint64(C.limits_sum((*C.uint8_t)(unsafe.SliceData(b)), C.size_t(len(b)), C.int(w.Width), C.int(w.Streams), C.size_t(w.Ahead)))
}
