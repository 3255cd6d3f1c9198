package kernels

import (
	"fmt"
	"runtime"
	"sync"
)

// Lines is added to the number of a type of stored weights whose scales stand apart from its
// codes (quant.h): the codes of all blocks of a matrix, each whole lines of 16 bytes, and
// behind them all the rest, in the order of the blocks. Blocks of a file put a scale of two
// bytes before 16 or 32 of codes, so that rows and what a lane loads of them start anywhere.
const Lines = 32

// span is where a block has its codes; what else it has are scales.
type span struct{ from, to int }

// codes are those of the types that kernels read in lines.
var codes = map[uint32]span{
	6:  {2, 34},   // q8_0
	7:  {2, 18},   // q4_0
	11: {16, 80},  // q2_k
	12: {0, 96},   // q3_k
	13: {16, 144}, // q4_k
	14: {16, 176}, // q5_k
	15: {0, 192},  // q6_k
	16: {1, 17},   // mxfp4
	17: {2, 18},   // iq4_nl
}

// HasLines reports whether kernels that decode weights read a type in lines.
func HasLines(typ uint32) bool { return codes[typ] != span{} }

// PutLines writes the blocks of a matrix of a type that has lines, as a file has them, in
// lines, on several threads where there are many. Both have the same length, in whole blocks,
// and do not overlap.
func PutLines(typ uint32, to, from []byte) {
	at, size := codes[typ], int(layouts[typ].bytes)
	if at == (span{}) || len(to) != len(from) || len(from)%size != 0 {
		panic(fmt.Sprintf("kernels: lines of %d bytes of type %d for %d", len(from), typ, len(to)))
	}
	line, blocks := at.to-at.from, len(from)/size
	codes, rest := to[:blocks*line], to[blocks*line:]
	var all sync.WaitGroup
	each := max(linesPiece, (blocks+runtime.GOMAXPROCS(0)-1)/runtime.GOMAXPROCS(0))
	for first := 0; first < blocks; first += each {
		last := min(first+each, blocks)
		all.Go(func() {
			for i := first; i < last; i++ {
				block, left := from[i*size:(i+1)*size], rest[i*(size-line):(i+1)*(size-line)]
				copy(codes[i*line:(i+1)*line], block[at.from:at.to])
				copy(left[copy(left, block[:at.from]):], block[at.to:])
			}
		})
	}
	all.Wait()
}

// linesPiece is the fewest blocks that are worth a thread.
const linesPiece = 4096
