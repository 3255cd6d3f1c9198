package metal

import (
	"encoding/binary"
	"math"
	"unsafe"

	"github.com/x448/float16"

	"github.com/smelt-ml/smelt/ir"
)

// aligned reports whether kernels may read elements of t from data's address.
// Blocks begin with, or hold, 16-bit scales.
func aligned(data []byte, t ir.DType) bool {
	to := uintptr(2)
	if t == ir.F32 || t == ir.I32 {
		to = 4
	}
	return uintptr(unsafe.Pointer(unsafe.SliceData(data)))%to == 0
}

// widen converts F16 or BF16 to F32, all little-endian.
func widen(to, from []byte, t ir.DType) {
	for i := range len(from) / 2 {
		h := binary.LittleEndian.Uint16(from[2*i:])
		bits := uint32(h) << 16
		if t == ir.F16 {
			bits = math.Float32bits(float16.Frombits(h).Float32())
		}
		binary.LittleEndian.PutUint32(to[4*i:], bits)
	}
}
