package kernels

import (
	"fmt"
	"runtime"
	"slices"
	"sync"

	"github.com/smelt-ml/smelt/ir/dtype"
)

// Lines is a flag in the number of a weight type: the matrix is stored in lines (quant.h), the
// codes of all its blocks first, each block's a multiple of 16 bytes, then the scales of all
// blocks. In a file's blocks a scale of two bytes precedes 16 or 32 bytes of codes, so the loads
// of lanes are unaligned.
const Lines = 128

// stored returns the weight type of a number with or without the flag Lines: Invalid if no
// kernel decodes it.
func stored(typ uint32) dtype.Type {
	t := dtype.Type(typ &^ Lines)
	if typ >= 2*Lines || !slices.Contains(dtype.Weights(), t) || typ&Lines != 0 && t.Row().Codes.Len() == 0 {
		return dtype.Invalid
	}
	return t
}

// HasLines reports whether kernels can read weights of a type in lines.
func HasLines(typ uint32) bool { return stored(typ|Lines) != dtype.Invalid && typ < Lines }

// PutLines rearranges a matrix from a file's blocks into lines, on several threads if it is
// large. The slices have the same length, in whole blocks, and do not overlap; a type without
// lines panics.
func PutLines(typ uint32, to, from []byte) {
	if !HasLines(typ) || len(to) != len(from) || len(from)%stored(typ).BlockBytes() != 0 {
		panic(fmt.Sprintf("kernels: lines of %d bytes of type %d for %d", len(from), typ, len(to)))
	}
	at, size := stored(typ).Row().Codes, stored(typ).BlockBytes()
	line, blocks := at.Len(), len(from)/size
	codes, rest := to[:blocks*line], to[blocks*line:]
	var all sync.WaitGroup
	each := max(linesPiece, (blocks+runtime.GOMAXPROCS(0)-1)/runtime.GOMAXPROCS(0))
	for first := 0; first < blocks; first += each {
		last := min(first+each, blocks)
		all.Go(func() {
			for i := first; i < last; i++ {
				block, left := from[i*size:(i+1)*size], rest[i*(size-line):(i+1)*(size-line)]
				copy(codes[i*line:(i+1)*line], block[at.From:at.To])
				copy(left[copy(left, block[:at.From]):], block[at.To:])
			}
		})
	}
	all.Wait()
}

// linesPiece is the minimum number of blocks per thread.
const linesPiece = 4096

// ShiftCycles returns the cycles of the shift-and-convert pipe in which linear_vec decodes n
// weights of a type; that pipe is a quarter as wide as the multiply-add pipe of a GPU core. A
// test compares them with counts of the emulated kernel.
func ShiftCycles(typ uint32, weights int64) int64 {
	return weights * stored(typ).Row().Cycles / 16
}
