package gguf

import (
	"fmt"
	"math"
	"math/bits"

	"github.com/smelt-ml/smelt/ir"
)

// TensorType is the type of a tensor's elements by its number in the file
// (ggml_type). Its String is the name as ggml writes it, in upper case.
type TensorType uint32

// The tensor types that smelt computes with.
const (
	TypeF32  TensorType = 0
	TypeF16  TensorType = 1
	TypeQ4_0 TensorType = 2
	TypeQ4_1 TensorType = 3
	TypeQ5_0 TensorType = 6
	TypeQ5_1 TensorType = 7
	TypeQ8_0 TensorType = 8
	TypeQ2_K TensorType = 10
	TypeQ3_K TensorType = 11
	TypeQ4_K TensorType = 12
	TypeQ5_K TensorType = 13
	TypeQ6_K TensorType = 14
	TypeI32  TensorType = 26
	TypeBF16 TensorType = 30
)

// tensorTypes is indexed by TensorType. Sizes are those of ggml-common.h; a row
// without a size is a number that ggml has withdrawn.
var tensorTypes = [...]struct {
	name         string
	elems, bytes int64 // of a block
	dtype        ir.DType
}{
	0:  {"F32", 1, 4, ir.F32},
	1:  {"F16", 1, 2, ir.F16},
	2:  {"Q4_0", 32, 18, ir.Q4_0},
	3:  {"Q4_1", 32, 20, ir.Q4_1},
	4:  {name: "Q4_2"},
	5:  {name: "Q4_3"},
	6:  {"Q5_0", 32, 22, ir.Q5_0},
	7:  {"Q5_1", 32, 24, ir.Q5_1},
	8:  {"Q8_0", 32, 34, ir.Q8_0},
	9:  {"Q8_1", 32, 36, ir.Invalid},
	10: {"Q2_K", 256, 84, ir.Q2_K},
	11: {"Q3_K", 256, 110, ir.Q3_K},
	12: {"Q4_K", 256, 144, ir.Q4_K},
	13: {"Q5_K", 256, 176, ir.Q5_K},
	14: {"Q6_K", 256, 210, ir.Q6_K},
	15: {"Q8_K", 256, 292, ir.Invalid},
	16: {"IQ2_XXS", 256, 66, ir.Invalid},
	17: {"IQ2_XS", 256, 74, ir.Invalid},
	18: {"IQ3_XXS", 256, 98, ir.Invalid},
	19: {"IQ1_S", 256, 50, ir.Invalid},
	20: {"IQ4_NL", 32, 18, ir.Invalid},
	21: {"IQ3_S", 256, 110, ir.Invalid},
	22: {"IQ2_S", 256, 82, ir.Invalid},
	23: {"IQ4_XS", 256, 136, ir.Invalid},
	24: {"I8", 1, 1, ir.Invalid},
	25: {"I16", 1, 2, ir.Invalid},
	26: {"I32", 1, 4, ir.I32},
	27: {"I64", 1, 8, ir.Invalid},
	28: {"F64", 1, 8, ir.Invalid},
	29: {"IQ1_M", 256, 56, ir.Invalid},
	30: {"BF16", 1, 2, ir.BF16},
	31: {name: "Q4_0_4_4"},
	32: {name: "Q4_0_4_8"},
	33: {name: "Q4_0_8_8"},
	34: {"TQ1_0", 256, 54, ir.Invalid},
	35: {"TQ2_0", 256, 66, ir.Invalid},
	36: {name: "IQ4_NL_4_4"},
	37: {name: "IQ4_NL_4_8"},
	38: {name: "IQ4_NL_8_8"},
	39: {"MXFP4", 32, 17, ir.Invalid},
}

func (t TensorType) String() string {
	if int64(t) < int64(len(tensorTypes)) {
		return tensorTypes[t].name
	}
	return fmt.Sprintf("ggml_type(%d)", uint32(t))
}

// DType returns the type as the compiler knows it, or [ir.Invalid].
func (t TensorType) DType() ir.DType {
	if int64(t) < int64(len(tensorTypes)) {
		return tensorTypes[t].dtype
	}
	return ir.Invalid
}

// TypeOf is the inverse of [TensorType.DType].
func TypeOf(d ir.DType) (TensorType, bool) {
	for t := range tensorTypes {
		if tensorTypes[t].dtype == d && d != ir.Invalid {
			return TensorType(t), true
		}
	}
	return 0, false
}

// maxDims is GGML_MAX_DIMS.
const maxDims = 4

// size returns the bytes that a tensor of this shape (outermost first) takes,
// or -1 where the type's size is not known.
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
	if int64(t) >= int64(len(tensorTypes)) || tensorTypes[t].elems == 0 {
		return -1, nil
	}
	block := tensorTypes[t]
	row := int64(1)
	if len(shape) > 0 {
		row = shape[len(shape)-1]
	}
	if row%block.elems != 0 {
		return 0, fmt.Errorf("rows of %d elements are not whole %v blocks of %d", row, t, block.elems)
	}
	hi, lo := bits.Mul64(elems/uint64(block.elems), uint64(block.bytes))
	if hi != 0 || lo > math.MaxInt64 {
		return 0, fmt.Errorf("shape %v has too many bytes", shape)
	}
	return int64(lo), nil
}
