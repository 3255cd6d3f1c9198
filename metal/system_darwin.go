//go:build cgo

package metal

// #include <unistd.h>
import "C"

import (
	"math"
	"syscall"
)

func availableCores() int { return math.MaxInt }

// availableMemory is all that the machine has: macOS compresses and swaps what rests, and
// tells no number that would say when that begins to hurt. What a GPU uses has a bound of
// its own.
func availableMemory() int64 {
	pages, bytes := C.sysconf(C._SC_PHYS_PAGES), C.sysconf(C._SC_PAGESIZE)
	if pages <= 0 || bytes <= 0 {
		return math.MaxInt64
	}
	return int64(pages) * int64(bytes)
}

func touchedMemory() int64 { return 0 }

func processor() string {
	name, err := syscall.Sysctl("machdep.cpu.brand_string")
	if err != nil {
		return ""
	}
	return name
}
