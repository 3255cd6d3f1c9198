package ir

import (
	"fmt"
	"strings"
)

// DType is the element type of a tensor or of a stored weight. The quantised
// types are GGUF's block formats: a row is a sequence of blocks of BlockElems
// elements, each BlockBytes long.
type DType uint8

// The element types. Activations are F32, F16 or BF16; indices are I32; the
// quantised types occur on weights and, for Q8_0, on caches.
const (
	Invalid DType = iota
	F32
	F16
	BF16
	I32
	Bool
	Q8_0
	Q4_0
	Q4_1
	Q5_0
	Q5_1
	Q2_K
	Q3_K
	Q4_K
	Q5_K
	Q6_K
)

// dtypes is indexed by DType. Block sizes are those of ggml-common.h.
var dtypes = [...]struct {
	name         string
	elems, bytes int
}{
	Invalid: {"invalid", 1, 0},
	F32:     {"f32", 1, 4},
	F16:     {"f16", 1, 2},
	BF16:    {"bf16", 1, 2},
	I32:     {"i32", 1, 4},
	Bool:    {"bool", 1, 1},
	Q8_0:    {"q8_0", 32, 34},
	Q4_0:    {"q4_0", 32, 18},
	Q4_1:    {"q4_1", 32, 20},
	Q5_0:    {"q5_0", 32, 22},
	Q5_1:    {"q5_1", 32, 24},
	Q2_K:    {"q2_k", 256, 84},
	Q3_K:    {"q3_k", 256, 110},
	Q4_K:    {"q4_k", 256, 144},
	Q5_K:    {"q5_k", 256, 176},
	Q6_K:    {"q6_k", 256, 210},
}

// DTypes lists every valid element type.
func DTypes() []DType {
	all := make([]DType, 0, len(dtypes)-1)
	for t := F32; int(t) < len(dtypes); t++ {
		all = append(all, t)
	}
	return all
}

// String returns the lower-case name, such as "q4_0".
func (t DType) String() string {
	if int(t) < len(dtypes) {
		return dtypes[t].name
	}
	return fmt.Sprintf("dtype(%d)", uint8(t))
}

// ParseDType is the inverse of String; case does not matter.
func ParseDType(s string) (DType, error) {
	for t := F32; int(t) < len(dtypes); t++ {
		if strings.EqualFold(dtypes[t].name, s) {
			return t, nil
		}
	}
	return Invalid, fmt.Errorf("unknown element type %q", s)
}

// BlockElems returns how many elements one block holds: 1 for plain types.
func (t DType) BlockElems() int { return dtypes[t].elems }

// BlockBytes returns the size of one block in bytes.
func (t DType) BlockBytes() int { return dtypes[t].bytes }

// Bytes returns the size of n elements; n must be a multiple of BlockElems.
func (t DType) Bytes(n int64) int64 {
	return n / int64(dtypes[t].elems) * int64(dtypes[t].bytes)
}

// IsQuantised reports whether elements come in blocks with shared scales.
func (t DType) IsQuantised() bool { return dtypes[t].elems > 1 }

// IsFloat reports whether t is a plain floating-point type.
func (t DType) IsFloat() bool { return t == F32 || t == F16 || t == BF16 }
