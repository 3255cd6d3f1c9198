package gguf

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
)

// Kind is the kind of a metadata value, by its number in the file.
type Kind uint32

// The kinds of metadata values.
const (
	KindUint8 Kind = iota
	KindInt8
	KindUint16
	KindInt16
	KindUint32
	KindInt32
	KindFloat32
	KindBool
	KindString
	KindArray
	KindUint64
	KindInt64
	KindFloat64
)

// kinds is indexed by Kind. min is the least size of a value in bytes.
var kinds = [...]struct {
	name  string
	min   int
	fixed bool // every value takes min bytes
}{
	KindUint8:   {"uint8", 1, true},
	KindInt8:    {"int8", 1, true},
	KindUint16:  {"uint16", 2, true},
	KindInt16:   {"int16", 2, true},
	KindUint32:  {"uint32", 4, true},
	KindInt32:   {"int32", 4, true},
	KindFloat32: {"float32", 4, true},
	KindBool:    {"bool", 1, true},
	KindString:  {"string", 8, false}, // length
	KindArray:   {"array", 12, false}, // kind, count
	KindUint64:  {"uint64", 8, true},
	KindInt64:   {"int64", 8, true},
	KindFloat64: {"float64", 8, true},
}

func (k Kind) known() bool { return int64(k) < int64(len(kinds)) }

func (k Kind) String() string {
	if k.known() {
		return kinds[k].name
	}
	return fmt.Sprintf("kind(%d)", uint32(k))
}

// KV is a metadata entry.
type KV struct {
	Key   string
	Value Value
}

// Value is a metadata value. It keeps the file's encoding, so that a value read is written back
// unchanged, whatever its kind. The zero Value is a uint8 without bytes, which [Write] refuses;
// [Uint32], [String] … create values.
type Value struct {
	kind, elem Kind
	n          int    // elements of an array
	raw        string // as in the file, after the kind (and the elements' kind and number)
}

// Kind returns the value's kind.
func (v Value) Kind() Kind { return v.kind }

// Elem returns the kind of an array's elements.
func (v Value) Elem() Kind { return v.elem }

// Len returns the number of an array's elements, 0 for other kinds.
func (v Value) Len() int { return v.n }

func scalar[T uint32 | uint64 | int32 | float32 | bool](k Kind, x T) Value {
	raw, err := binary.Append(nil, binary.LittleEndian, x)
	if err != nil {
		panic(err) // T has a fixed size
	}
	return Value{kind: k, raw: string(raw)}
}

// Uint32 returns a value of that kind, the usual one of sizes and ids.
func Uint32(x uint32) Value { return scalar(KindUint32, x) }

// Uint64 returns a value of that kind.
func Uint64(x uint64) Value { return scalar(KindUint64, x) }

// Int32 returns a value of that kind.
func Int32(x int32) Value { return scalar(KindInt32, x) }

// Float32 returns a value of that kind.
func Float32(x float32) Value { return scalar(KindFloat32, x) }

// Bool returns a value of that kind.
func Bool(x bool) Value { return scalar(KindBool, x) }

// String returns a value of that kind.
func String(s string) Value {
	return Value{kind: KindString, raw: string(appendString(nil, s))}
}

// StringArray returns an array of strings.
func StringArray(s []string) Value {
	size := 0
	for i := range s {
		size += 8 + len(s[i])
	}
	raw := make([]byte, 0, size)
	for i := range s {
		raw = appendString(raw, s[i])
	}
	return Value{kind: KindArray, elem: KindString, n: len(s), raw: string(raw)}
}

func array[T uint32 | int32 | float32 | bool](k Kind, x []T) Value {
	raw, err := binary.Append(nil, binary.LittleEndian, x)
	if err != nil {
		panic(err) // T has a fixed size
	}
	return Value{kind: KindArray, elem: k, n: len(x), raw: string(raw)}
}

// Uint32Array returns an array of that kind.
func Uint32Array(x []uint32) Value { return array(KindUint32, x) }

// Uint8Array returns an array of that kind.
func Uint8Array(x []byte) Value {
	return Value{kind: KindArray, elem: KindUint8, n: len(x), raw: string(x)}
}

// Int32Array returns an array of that kind.
func Int32Array(x []int32) Value { return array(KindInt32, x) }

// BoolArray returns an array of that kind.
func BoolArray(x []bool) Value { return array(KindBool, x) }

// Float32Array returns an array of that kind.
func Float32Array(x []float32) Value { return array(KindFloat32, x) }

func appendString(b []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint64(b, uint64(len(s))), s...)
}

// load reads the little-endian integer of size bytes at the start of s.
func load(s string, size int) uint64 {
	switch size {
	case 1:
		return uint64(s[0])
	case 2:
		return uint64(s[0]) | uint64(s[1])<<8
	case 4:
		return uint64(uint32(s[0]) | uint32(s[1])<<8 | uint32(s[2])<<16 | uint32(s[3])<<24)
	}
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

// isInteger reports whether k is an integer kind, and whether it is signed.
func (k Kind) isInteger() (is, signed bool) {
	switch k {
	case KindUint8, KindUint16, KindUint32, KindUint64:
		return true, false
	case KindInt8, KindInt16, KindInt32, KindInt64:
		return true, true
	}
	return false, false
}

// integer decodes an element of an integer kind. For a signed kind the result is
// the two's complement of the value.
func (k Kind) integer(s string) uint64 {
	x := load(s, kinds[k].min)
	if _, signed := k.isInteger(); signed {
		unused := 64 - 8*kinds[k].min
		return uint64(int64(x<<unused) >> unused)
	}
	return x
}

// float decodes an element of a floating-point kind.
func (k Kind) float(s string) float64 {
	if k == KindFloat32 {
		return float64(math.Float32frombits(uint32(load(s, 4))))
	}
	return math.Float64frombits(load(s, 8))
}

// strings decodes an array of strings; they share the memory of the header.
func (v Value) strings() []string {
	out := make([]string, v.n)
	rest := v.raw
	for i := range out {
		n := int(load(rest, 8))
		out[i], rest = rest[8:8+n], rest[8+n:]
	}
	return out
}

// scalarAny decodes a value of a fixed-size kind to the Go type of the same name.
func (k Kind) scalarAny(s string) any {
	x := load(s, kinds[k].min)
	switch k {
	case KindUint8:
		return uint8(x)
	case KindInt8:
		return int8(x)
	case KindUint16:
		return uint16(x)
	case KindInt16:
		return int16(x)
	case KindUint32:
		return uint32(x)
	case KindInt32:
		return int32(x)
	case KindInt64:
		return int64(x)
	case KindFloat32:
		return math.Float32frombits(uint32(x))
	case KindFloat64:
		return math.Float64frombits(x)
	case KindBool:
		return x != 0
	}
	return x
}

// elements decodes the first limit elements of an array and returns the rest of the encoding.
func (v Value) elements(limit int) (out []any, rest string) {
	rest = v.raw
	out = make([]any, 0, min(limit, v.n))
	for range min(limit, v.n) {
		switch v.elem {
		case KindString:
			n := int(load(rest, 8))
			out, rest = append(out, rest[8:8+n]), rest[8+n:]
		case KindArray:
			inner := Value{kind: KindArray, elem: Kind(load(rest, 4)), n: int(load(rest[4:], 8)), raw: rest[12:]}
			var list []any
			list, rest = inner.elements(inner.n)
			out = append(out, list)
		default:
			size := kinds[v.elem].min
			out, rest = append(out, v.elem.scalarAny(rest)), rest[size:]
		}
	}
	return out, rest
}

// Any returns the value as a Go value: uint8 … float64, bool, string, or []any
// of these (nested where the array is).
func (v Value) Any() any {
	switch {
	case v.raw == "" && v.kind != KindArray:
		return nil
	case v.kind == KindString:
		return v.raw[8:]
	case v.kind == KindArray:
		out, _ := v.elements(v.n)
		return out
	}
	return v.kind.scalarAny(v.raw)
}

// shown is the number of an array's elements that String prints.
const shown = 8

// String formats the value for people: strings quoted, long arrays truncated.
func (v Value) String() string {
	if v.kind != KindArray {
		if s, ok := v.Any().(string); ok {
			return fmt.Sprintf("%q", s)
		}
		return fmt.Sprint(v.Any())
	}
	var b strings.Builder
	fmt.Fprintf(&b, "[%d %v]{", v.n, v.elem)
	list, _ := v.elements(shown)
	for i, x := range list {
		if i > 0 {
			b.WriteString(", ")
		}
		if s, ok := x.(string); ok {
			fmt.Fprintf(&b, "%q", s)
		} else {
			fmt.Fprint(&b, x)
		}
	}
	if v.n > shown {
		b.WriteString(", …")
	}
	b.WriteString("}")
	return b.String()
}
