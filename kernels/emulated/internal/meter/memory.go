package meter

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"syscall"
	"unsafe"
)

// page is the alignment of buffers, as in Metal.
const page = 16 << 10

// Memory is device memory; accesses to it are counted.
type Memory struct {
	bytes []byte
	used  int
}

// NewMemory reserves memory. Untouched pages read as zeros and occupy no physical memory.
func NewMemory(bytes int64) (*Memory, error) {
	if bytes < 0 || bytes > math.MaxInt64/2 {
		return nil, fmt.Errorf("device memory of %d bytes", bytes)
	}
	b, err := syscall.Mmap(-1, 0, int(max(bytes, 1)), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON|noReserve)
	if err != nil {
		return nil, fmt.Errorf("device memory of %d bytes: %w", bytes, err)
	}
	m := &Memory{bytes: b}
	runtime.AddCleanup(m, func(b []byte) { _ = syscall.Munmap(b) }, b)
	return m, nil
}

// ErrFull is returned by Alloc if the memory has no room for the buffer.
var ErrFull = errors.New("device memory is full")

// Size returns n rounded up to whole pages, the bytes of a Memory that a buffer occupies.
func Size(n int64) int64 { return (n + page - 1) / page * page }

// Alloc returns a page-aligned buffer of n bytes.
func (m *Memory) Alloc(n int64) ([]byte, error) {
	if n < 0 || Size(n) > int64(len(m.bytes)-m.used) {
		return nil, fmt.Errorf("%w: %d of %d bytes are used, %d wanted", ErrFull, m.used, len(m.bytes), n)
	}
	b := m.bytes[m.used : m.used+int(n) : m.used+int(n)]
	m.used += int(Size(n))
	return b, nil
}

// holds reports whether a buffer lies in m.
func (m *Memory) holds(b []byte) bool {
	at := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	from := uintptr(unsafe.Pointer(unsafe.SliceData(m.bytes)))
	return at >= from && at < from+uintptr(len(m.bytes))
}
