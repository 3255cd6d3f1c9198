package device

import (
	"encoding/binary"
	"math"
	"unsafe"

	"github.com/smelt-ml/smelt/ir/dtype/half"

	"github.com/smelt-ml/smelt/ir/dtype"
)

// Alignment returns the alignment in bytes that kernels need of a weight of type t. Blocks are read
// in 32-bit words where their size is a multiple of 4 bytes, else in 16-bit words.
func Alignment(t dtype.Type) int {
	if t.BlockBytes()%4 == 0 {
		return 4
	}
	return 2
}

// Aligned reports whether kernels can read elements of type t in place. An unaligned weight is
// copied when an executable is loaded.
func Aligned(data []byte, t dtype.Type) bool {
	return uintptr(unsafe.Pointer(unsafe.SliceData(data)))%uintptr(Alignment(t)) == 0
}

// widen converts F16 or BF16 to F32, all little-endian.
func widen(to, from []byte, t dtype.Type) {
	widened := half.BF16ToF32
	if t == dtype.F16 {
		widened = half.F16ToF32
	}
	for i := range len(from) / 2 {
		x := widened(binary.LittleEndian.Uint16(from[2*i:]))
		binary.LittleEndian.PutUint32(to[4*i:], math.Float32bits(x))
	}
}
