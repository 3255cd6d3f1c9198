//go:build cgo

package device

// #include <stdlib.h>
// #include <sys/mman.h>
// #include <sys/sysctl.h>
// #include <unistd.h>
import "C"

import (
	"math"
	"unsafe"
)

func availableCores() int { return math.MaxInt }

// availableNodes returns none: Apple's chips have one memory for all processors.
func availableNodes() []Node { return nil }

// availableMemory returns the machine's memory: macOS compresses and swaps idle pages, and has no
// figure for the bytes that fit without. A GPU's memory is bounded by its working set.
func availableMemory() int64 {
	pages, bytes := C.sysconf(C._SC_PHYS_PAGES), C.sysconf(C._SC_PAGESIZE)
	if pages <= 0 || bytes <= 0 {
		return math.MaxInt64
	}
	return int64(pages) * int64(bytes)
}

func touchedMemory() int64 { return 0 }

// askPages makes the system begin to read the missing pages of a mapped file.
func askPages(memory []byte) {
	memory = wholePages(memory)
	C.posix_madvise(unsafe.Pointer(unsafe.SliceData(memory)), C.size_t(len(memory)), C.POSIX_MADV_WILLNEED)
}

// mapPages does nothing and reports a wait, as macOS has no call that maps pages before they are
// touched.
func mapPages([]byte, bool) (waited bool) { return true }

func processor() string {
	name := C.CString("machdep.cpu.brand_string")
	defer C.free(unsafe.Pointer(name))
	var brand [64]C.char
	size := C.size_t(len(brand) - 1)
	if C.sysctlbyname(name, unsafe.Pointer(&brand[0]), &size, nil, 0) != 0 {
		return ""
	}
	return C.GoString(&brand[0])
}
