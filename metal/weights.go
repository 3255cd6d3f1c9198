package metal

import (
	"encoding/binary"
	"math"
	"unsafe"

	"github.com/x448/float16"

	"github.com/smelt-ml/smelt/lower"
)

// aligned reports whether kernels may read elements of t from data's address.
// Blocks begin with, or hold, 16-bit scales.
func aligned(data []byte, t lower.DType) bool {
	to := uintptr(2)
	if t == lower.F32 || t == lower.I32 {
		to = 4
	}
	return uintptr(unsafe.Pointer(unsafe.SliceData(data)))%to == 0
}

// widen converts F16 or BF16 to F32, all little-endian.
func widen(to, from []byte, t lower.DType) {
	for i := range len(from) / 2 {
		h := binary.LittleEndian.Uint16(from[2*i:])
		bits := uint32(h) << 16
		if t == lower.F16 {
			bits = math.Float32bits(float16.Frombits(h).Float32())
		}
		binary.LittleEndian.PutUint32(to[4*i:], bits)
	}
}
