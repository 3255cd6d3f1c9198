package limits

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// hugeBytes is the size and alignment of a huge page.
const hugeBytes = 2 << 20

// pageKinds lists the arguments of allocate that this system supports: true for huge pages.
var pageKinds = []bool{true, false}

// allocate maps memory on huge pages, where the system has them, or on pages of the usual size.
func allocate(bytes int, huge bool) (b []byte, release func()) {
	mapped, err := unix.Mmap(-1, 0, bytes+hugeBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return make([]byte, bytes), func() {}
	}
	skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(mapped)))) & (hugeBytes - 1)
	advice := unix.MADV_NOHUGEPAGE
	if huge {
		advice = unix.MADV_HUGEPAGE
	}
	_ = unix.Madvise(mapped, advice) // a system without huge pages uses small ones
	return mapped[skip : skip+bytes], func() { _ = unix.Munmap(mapped) }
}
