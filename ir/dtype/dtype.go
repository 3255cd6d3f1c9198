// Package dtype holds the table of element types and weight types: names, block sizes, and
// their numbers in kernels, Plans and files. It imports no package of this module, so any
// package may import it.
//
//	t, err := dtype.Parse("q4_0")
//	t.Bytes(256) // 8 blocks of 18 bytes: 144
package dtype

import (
	"fmt"
	"slices"
	"strings"
)

// Type is the element type of a tensor or of a stored weight. The quantized
// types are GGUF's block formats, and MLX4 and MLX8 for groups that MLX packs: a row is a
// sequence of blocks of BlockElems elements, each BlockBytes long.
type Type uint8

// All returns every valid element type.
func All() []Type {
	all := make([]Type, 0, len(rows)-1)
	for t := F32; int(t) < len(rows); t++ {
		all = append(all, t)
	}
	return all
}

// Weights returns the types of stored weights: the plain floats and the quantized types.
func Weights() []Type {
	return slices.DeleteFunc(All(), func(t Type) bool { return !t.IsFloat() && !t.IsQuantized() })
}

// String returns the lower-case name, such as "q4_0".
func (t Type) String() string {
	if int(t) < len(rows) {
		return rows[t].Name
	}
	return fmt.Sprintf("dtype(%d)", uint8(t))
}

// Parse returns the type whose [Type.String] is s, ignoring case.
func Parse(s string) (Type, error) {
	for t := F32; int(t) < len(rows); t++ {
		if strings.EqualFold(rows[t].Name, s) {
			return t, nil
		}
	}
	return Invalid, fmt.Errorf("unknown element type %q", s)
}

// Known reports whether t is an element type or Invalid.
func (t Type) Known() bool { return int(t) < len(rows) }

// GGUF returns the type's number in GGUF files (ggml_type); ok is false if it has none.
func (t Type) GGUF() (number uint32, ok bool) {
	n := rows[t].GGUF
	return uint32(max(n, 0)), n != NoGGUF
}

// OfGGUF returns the type of a number in GGUF files, or Invalid.
func OfGGUF(number uint32) Type {
	return Type(max(slices.IndexFunc(rows, func(r Row) bool { return int64(r.GGUF) == int64(number) }), 0))
}

// BlockElems returns the number of elements of one block: 1 for plain types.
func (t Type) BlockElems() int { return rows[t].Elems }

// BlockBytes returns the size of one block in bytes.
func (t Type) BlockBytes() int { return rows[t].Bytes }

// Bytes returns the size of n elements; n must be a multiple of BlockElems.
func (t Type) Bytes(n int64) int64 {
	return n / int64(rows[t].Elems) * int64(rows[t].Bytes)
}

// IsQuantized reports whether elements are stored in blocks with shared scales.
func (t Type) IsQuantized() bool { return rows[t].Elems > 1 }

// IsFloat reports whether t is a plain floating-point type.
func (t Type) IsFloat() bool { return t == F32 || t == F16 || t == BF16 }
