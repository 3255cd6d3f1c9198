package metal

import (
	"encoding/binary"
	"math"
	"unsafe"

	"github.com/x448/float16"

	"github.com/smelt-ml/smelt/lower"
)

// aligned reports whether kernels may read elements of t from data's address.
// Blocks are read in words of 32 bits where their size is a multiple of that, else of
// 16.
func aligned(data []byte, t lower.DType) bool {
	to := uintptr(2)
	if t.BlockBytes()%4 == 0 {
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
