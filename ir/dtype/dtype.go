// Package dtype holds the one table of element types and of types of weights: names, blocks,
// bytes, numbers in kernels, Plans and files. It is a leaf that every room may import.
//
//	t, err := dtype.Parse("q4_0")
//	t.Bytes(256) // 8 blocks of 18 bytes: 144
package dtype

import (
	"fmt"
	"strings"
)

// Type is the element type of a tensor or of a stored weight. The quantized
// types are GGUF's block formats, and two of ours for what MLX packs: a row is a
// sequence of blocks of BlockElems elements, each BlockBytes long.
type Type uint8

// The element types. Activations are F32, F16 or BF16; indices are I32; the
// quantized types occur on weights and, for Q8_0, on caches.
const (
	Invalid Type = iota
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
	MXFP4
	IQ4_NL
	IQ4_XS
	MLX4
	MLX8
)

// table is indexed by Type, which is the type's number in kernels and in Plans. Block
// sizes are those of ggml-common.h, or of quant.h; gguf is the number in GGUF files (ggml_type), noGGUF
// where files have no such type.
var table = [...]struct {
	name         string
	elems, bytes int
	gguf         int
}{
	Invalid: {"invalid", 1, 0, noGGUF},
	F32:     {"f32", 1, 4, 0},
	F16:     {"f16", 1, 2, 1},
	BF16:    {"bf16", 1, 2, 30},
	I32:     {"i32", 1, 4, 26},
	Bool:    {"bool", 1, 1, noGGUF},
	Q8_0:    {"q8_0", 32, 34, 8},
	Q4_0:    {"q4_0", 32, 18, 2},
	Q4_1:    {"q4_1", 32, 20, 3},
	Q5_0:    {"q5_0", 32, 22, 6},
	Q5_1:    {"q5_1", 32, 24, 7},
	Q2_K:    {"q2_k", 256, 84, 10},
	Q3_K:    {"q3_k", 256, 110, 11},
	Q4_K:    {"q4_k", 256, 144, 12},
	Q5_K:    {"q5_k", 256, 176, 13},
	Q6_K:    {"q6_k", 256, 210, 14},
	MXFP4:   {"mxfp4", 32, 17, 39},
	IQ4_NL:  {"iq4_nl", 32, 18, 20},
	IQ4_XS:  {"iq4_xs", 256, 136, 23},
	MLX4:    {"mlx4", 64, 36, noGGUF},
	MLX8:    {"mlx8", 64, 68, noGGUF},
}

const noGGUF = -1

// All lists every valid element type.
func All() []Type {
	all := make([]Type, 0, len(table)-1)
	for t := F32; int(t) < len(table); t++ {
		all = append(all, t)
	}
	return all
}

// String returns the lower-case name, such as "q4_0".
func (t Type) String() string {
	if int(t) < len(table) {
		return table[t].name
	}
	return fmt.Sprintf("dtype(%d)", uint8(t))
}

// Parse returns the type of a name that [Type.String] gives, in any case.
func Parse(s string) (Type, error) {
	for t := F32; int(t) < len(table); t++ {
		if strings.EqualFold(table[t].name, s) {
			return t, nil
		}
	}
	return Invalid, fmt.Errorf("unknown element type %q", s)
}

// Known reports whether t is an element type or Invalid, and no other number.
func (t Type) Known() bool { return int(t) < len(table) }

// GGUF returns the number that GGUF files have for the type; ok is false where they have
// none.
func (t Type) GGUF() (number uint32, ok bool) {
	n := table[t].gguf
	return uint32(max(n, 0)), n != noGGUF
}

// BlockElems returns how many elements one block holds: 1 for plain types.
func (t Type) BlockElems() int { return table[t].elems }

// BlockBytes returns the size of one block in bytes.
func (t Type) BlockBytes() int { return table[t].bytes }

// Bytes returns the size of n elements; n must be a multiple of BlockElems.
func (t Type) Bytes(n int64) int64 {
	return n / int64(table[t].elems) * int64(table[t].bytes)
}

// IsQuantized reports whether elements come in blocks with shared scales.
func (t Type) IsQuantized() bool { return table[t].elems > 1 }

// IsFloat reports whether t is a plain floating-point type.
func (t Type) IsFloat() bool { return t == F32 || t == F16 || t == BF16 }
