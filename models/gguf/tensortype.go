package gguf

import (
	"fmt"
	"math"
	"math/bits"
	"strings"

	"github.com/smelt-ml/smelt/ir/dtype"
)

// TensorType is the type of a tensor's elements by its number in the file
// (ggml_type). Its String is the name as ggml writes it, in upper case.
type TensorType uint32

type tensorType struct {
	name         string
	elems, bytes int64 // of a block; zeros if ggml has withdrawn the number
}

// otherTypes are the types of ggml-common.h that smelt does not support, by number.
var otherTypes = [...]tensorType{
	4:  {name: "Q4_2"},
	5:  {name: "Q4_3"},
	9:  {name: "Q8_1", elems: 32, bytes: 36},
	15: {name: "Q8_K", elems: 256, bytes: 292},
	16: {name: "IQ2_XXS", elems: 256, bytes: 66},
	17: {name: "IQ2_XS", elems: 256, bytes: 74},
	18: {name: "IQ3_XXS", elems: 256, bytes: 98},
	19: {name: "IQ1_S", elems: 256, bytes: 50},
	21: {name: "IQ3_S", elems: 256, bytes: 110},
	22: {name: "IQ2_S", elems: 256, bytes: 82},
	24: {name: "I8", elems: 1, bytes: 1},
	25: {name: "I16", elems: 1, bytes: 2},
	27: {name: "I64", elems: 1, bytes: 8},
	28: {name: "F64", elems: 1, bytes: 8},
	29: {name: "IQ1_M", elems: 256, bytes: 56},
	31: {name: "Q4_0_4_4"},
	32: {name: "Q4_0_4_8"},
	33: {name: "Q4_0_8_8"},
	34: {name: "TQ1_0", elems: 256, bytes: 54},
	35: {name: "TQ2_0", elems: 256, bytes: 66},
	36: {name: "IQ4_NL_4_4"},
	37: {name: "IQ4_NL_4_8"},
	38: {name: "IQ4_NL_8_8"},
	40: {name: "NVFP4", elems: 64, bytes: 36},
	41: {name: "Q1_0", elems: 128, bytes: 18},
	42: {name: "Q2_0", elems: 64, bytes: 18},
}

// known returns the type's name and block, and false if neither smelt nor ggml has the type.
func (t TensorType) known() (tensorType, bool) {
	if d := t.DType(); d != dtype.Invalid {
		return tensorType{strings.ToUpper(d.String()), int64(d.BlockElems()), int64(d.BlockBytes())}, true
	}
	if int64(t) < int64(len(otherTypes)) {
		return otherTypes[t], true
	}
	return tensorType{}, false
}

func (t TensorType) String() string {
	if known, ok := t.known(); ok {
		return known.name
	}
	return fmt.Sprintf("ggml_type(%d)", uint32(t))
}

// DType returns smelt's equivalent of the type, or [dtype.Invalid].
func (t TensorType) DType() dtype.Type { return dtype.OfGGUF(uint32(t)) }

// block returns the elements and bytes of a block; zeros if they are unknown.
func (t TensorType) block() (elems, bytes int64) {
	known, _ := t.known()
	return known.elems, known.bytes
}

// TypeOf is the inverse of [TensorType.DType].
func TypeOf(d dtype.Type) (TensorType, bool) {
	n, ok := d.GGUF()
	return TensorType(n), ok
}

// maxDims is GGML_MAX_DIMS.
const maxDims = 4

// size returns the bytes of a tensor of this shape (outermost first), or -1 if the type's size is
// unknown.
func (t TensorType) size(shape []int64) (int64, error) {
	if len(shape) > maxDims {
		return 0, fmt.Errorf("%d dimensions are more than %d", len(shape), maxDims)
	}
	elems := uint64(1)
	for _, n := range shape {
		if n <= 0 {
			return 0, fmt.Errorf("dimension of %d in shape %v", n, shape)
		}
		hi, lo := bits.Mul64(elems, uint64(n))
		if hi != 0 || lo > math.MaxInt64 {
			return 0, fmt.Errorf("shape %v has too many elements", shape)
		}
		elems = lo
	}
	blockElems, blockBytes := t.block()
	if blockElems == 0 {
		return -1, nil
	}
	row := int64(1)
	if len(shape) > 0 {
		row = shape[len(shape)-1]
	}
	if row%blockElems != 0 {
		return 0, fmt.Errorf("rows of %d elements are not whole %v blocks of %d", row, t, blockElems)
	}
	hi, lo := bits.Mul64(elems/uint64(blockElems), uint64(blockBytes))
	if hi != 0 || lo > math.MaxInt64 {
		return 0, fmt.Errorf("shape %v has too many bytes", shape)
	}
	return int64(lo), nil
}
