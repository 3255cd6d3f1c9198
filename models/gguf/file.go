package gguf

import (
	"cmp"
	"errors"
	"fmt"
	"math"

	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/models/mapped"
)

// File is an open GGUF file, or the first of its parts with the tensors of all. Its methods may be
// called from several goroutines.
type File struct {
	Name       string // argument of Open or Parse; prefix of errors
	Version    uint32
	Alignment  int64 // of tensor data
	DataOffset int64 // where tensor data start
	Size       int64 // of the file, in bytes

	Metadata []KV     // in the order of the file
	Tensors  []Tensor // in the order of the file, part by part

	keys    map[string]int // into Metadata
	names   map[string]int // into Tensors
	mapping *mapped.File
	parts   []*File // after the first, of a file in parts
}

// Tensor is a named array in a file.
type Tensor struct {
	Name   string
	File   string // the part that holds it, as an argument of Open or Parse
	Type   TensorType
	DType  dtype.Type // smelt's equivalent of Type, or dtype.Invalid
	Shape  []int64    // outermost dimension first; empty for a single number
	Offset int64      // from the start of the file, in bytes
	Size   int64      // in bytes; -1 if the type's size is unknown
	Data   []byte     // Size bytes; nil if the size is unknown. Valid until Close, read-only
}

// Elems returns the number of elements.
func (t Tensor) Elems() int64 {
	n := int64(1)
	for _, d := range t.Shape {
		n *= d
	}
	return n
}

// Open maps and checks the file at path, and those of its parts.
func Open(path string) (*File, error) {
	f, err := openOne(path)
	if err != nil {
		return nil, err
	}
	if err := f.addParts(path); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func openOne(path string) (*File, error) {
	m, err := mapped.Open(path)
	if err != nil {
		return nil, err
	}
	f, err := Parse(m.Bytes(), path)
	err = cmp.Or(m.Intact(), err)
	if err != nil {
		m.Close()
		return nil, err
	}
	f.mapping = m
	return f, nil
}

// Close unmaps the file. Tensor data must not be read afterwards; everything else remains valid.
func (f *File) Close() error {
	for i := range f.Tensors {
		f.Tensors[i].Data = nil
	}
	var err error
	for _, p := range f.parts {
		err = errors.Join(err, p.Close())
	}
	if f.mapping == nil {
		return err
	}
	return errors.Join(err, f.mapping.Close())
}

// Intact returns [mapped.File.Intact]'s error, of the first part that has one.
func (f *File) Intact() error {
	for _, p := range f.parts {
		if err := p.Intact(); err != nil {
			return err
		}
	}
	if f.mapping == nil {
		return nil
	}
	return f.mapping.Intact()
}

// Tensor returns the tensor of that name.
func (f *File) Tensor(name string) (Tensor, bool) {
	i, ok := f.names[name]
	if !ok {
		return Tensor{}, false
	}
	return f.Tensors[i], true
}

// Lookup returns the metadata entry of that key.
func (f *File) Lookup(key string) (Value, bool) {
	i, ok := f.keys[key]
	if !ok {
		return Value{}, false
	}
	return f.Metadata[i].Value, true
}

// Has reports whether there is a metadata entry of that key.
func (f *File) Has(key string) bool {
	_, ok := f.keys[key]
	return ok
}

// entry returns the value of a key for a getter of the kind want, if is accepts it.
func (f *File) entry(key, want string, is func(Value) bool) (Value, error) {
	v, ok := f.Lookup(key)
	switch {
	case !ok:
		return v, &KeyError{File: f.Name, Key: key, Want: want}
	case !is(v):
		return v, f.mismatch(key, want, v, "")
	}
	return v, nil
}

// mismatch returns the error for a value of another kind than want, or with an invalid value, which
// detail describes.
func (f *File) mismatch(key, want string, v Value, detail string) error {
	got := v.kind.String()
	if v.kind == KindArray {
		got = fmt.Sprintf("array of %d %v", v.n, v.elem)
	}
	return &KeyError{File: f.Name, Key: key, Want: want, Got: got + detail}
}

// String returns a string entry.
func (f *File) String(key string) (string, error) {
	v, err := f.entry(key, "string", func(v Value) bool { return v.kind == KindString })
	if err != nil {
		return "", err
	}
	return v.raw[8:], nil
}

// Uint returns a non-negative entry of any integer kind.
func (f *File) Uint(key string) (uint64, error) {
	const want = "unsigned integer"
	v, err := f.entry(key, want, func(v Value) bool { is, _ := v.kind.isInteger(); return is })
	if err != nil {
		return 0, err
	}
	x := v.kind.integer(v.raw)
	if _, signed := v.kind.isInteger(); signed && int64(x) < 0 {
		return 0, f.mismatch(key, want, v, fmt.Sprintf(" %d", int64(x)))
	}
	return x, nil
}

// Int returns an entry of any integer kind that fits int64.
func (f *File) Int(key string) (int64, error) {
	const want = "integer of 64 bits"
	v, err := f.entry(key, want, func(v Value) bool { is, _ := v.kind.isInteger(); return is })
	if err != nil {
		return 0, err
	}
	x := v.kind.integer(v.raw)
	if _, signed := v.kind.isInteger(); !signed && x > math.MaxInt64 {
		return 0, f.mismatch(key, want, v, fmt.Sprintf(" %d", x))
	}
	return int64(x), nil
}

// Float returns an entry of a floating-point kind.
func (f *File) Float(key string) (float64, error) {
	v, err := f.entry(key, "float", func(v Value) bool { return v.kind == KindFloat32 || v.kind == KindFloat64 })
	if err != nil {
		return 0, err
	}
	return v.kind.float(v.raw), nil
}

// Bool returns a bool entry.
func (f *File) Bool(key string) (bool, error) {
	v, err := f.entry(key, "bool", func(v Value) bool { return v.kind == KindBool })
	if err != nil {
		return false, err
	}
	return v.raw[0] != 0, nil
}

// Strings returns an array of strings. They share the memory of the file's header.
func (f *File) Strings(key string) ([]string, error) {
	v, err := f.entry(key, "array of strings", func(v Value) bool { return v.kind == KindArray && v.elem == KindString })
	if err != nil {
		return nil, err
	}
	return v.strings(), nil
}

// Floats returns an array of floats; 64-bit ones are rounded.
func (f *File) Floats(key string) ([]float32, error) {
	v, err := f.entry(key, "array of floats", func(v Value) bool { return v.kind == KindArray && (v.elem == KindFloat32 || v.elem == KindFloat64) })
	if err != nil {
		return nil, err
	}
	out, size := make([]float32, v.n), kinds[v.elem].min
	for i := range out {
		out[i] = float32(v.elem.float(v.raw[i*size:]))
	}
	return out, nil
}

// Bools returns an array of bools.
func (f *File) Bools(key string) ([]bool, error) {
	v, err := f.entry(key, "array of bools", func(v Value) bool { return v.kind == KindArray && v.elem == KindBool })
	if err != nil {
		return nil, err
	}
	out := make([]bool, v.n)
	for i := range out {
		out[i] = v.raw[i] != 0
	}
	return out, nil
}

// Ints returns an array of any integer kind whose values fit int64.
func (f *File) Ints(key string) ([]int64, error) {
	const want = "array of integers of 64 bits"
	v, err := f.entry(key, want, func(v Value) bool { is, _ := v.elem.isInteger(); return v.kind == KindArray && is })
	if err != nil {
		return nil, err
	}
	_, signed := v.elem.isInteger()
	out, size := make([]int64, v.n), kinds[v.elem].min
	for i := range out {
		x := v.elem.integer(v.raw[i*size:])
		if !signed && x > math.MaxInt64 {
			return nil, f.mismatch(key, want, v, fmt.Sprintf(", element %d is %d", i, x))
		}
		out[i] = int64(x)
	}
	return out, nil
}
