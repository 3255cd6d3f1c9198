package kernels

import (
	"fmt"
	"runtime"
	"slices"
	"sync"

	"github.com/smelt-ml/smelt/ir/dtype"
)

// Lines is added to the number of a type of stored weights whose scales stand apart from its
// codes (quant.h): the codes of all blocks of a matrix, each whole lines of 16 bytes, and
// behind them all the rest, in the order of the blocks. Blocks of a file put a scale of two
// bytes before 16 or 32 of codes, so that rows and what a lane loads of them start anywhere.
const Lines = 128

// stored returns the type of a number, in lines or not: Invalid where kernels decode none such.
func stored(typ uint32) dtype.Type {
	t := dtype.Type(typ &^ Lines)
	if typ >= 2*Lines || !slices.Contains(dtype.Weights(), t) || typ&Lines != 0 && t.Row().Codes.Len() == 0 {
		return dtype.Invalid
	}
	return t
}

// HasLines reports whether kernels that decode weights read a type in lines.
func HasLines(typ uint32) bool { return stored(typ|Lines) != dtype.Invalid && typ < Lines }

// PutLines writes the blocks of a matrix of a type that has lines, as a file has them, in
// lines, on several threads where there are many. Both have the same length, in whole blocks,
// and do not overlap.
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

// linesPiece is the fewest blocks that are worth a thread.
const linesPiece = 4096

// ShiftCycles returns how many cycles linear_vec takes of the pipe that shifts and converts,
// of which a GPU core has a quarter of a lane for each that multiplies and adds, to decode so
// many weights of a type. A test compares them with what the emulated kernel does.
func ShiftCycles(typ uint32, weights int64) int64 {
	return weights * stored(typ).Row().Cycles / 16
}
