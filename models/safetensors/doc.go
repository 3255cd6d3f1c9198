// Package safetensors reads and writes the safetensors format, in which Hugging
// Face keeps weights: one file, or a folder of shards with an index. The format is
// described in the README of huggingface/safetensors.
//
//	length of the header, 8 bytes little endian
//	header: a JSON object, name → {dtype, shape, data_offsets: [begin, end]}
//	data: the tensors, without gaps
//
// [Open] takes a file, or a folder that holds model.safetensors, or
// model.safetensors.index.json with its shards, or else any *.safetensors. All files
// are memory-mapped (see package mapped) and checked as far as possible without reading
// weights: names are unique, sizes agree with type and shape, and the tensors cover the
// data exactly, as the format requires. A shard named in the index must lie in the
// folder itself.
//
// F32, F16 and BF16 tensors are supported; others are listed with DType [dtype.Invalid].
// Shapes are row-major with the outermost dimension first, as in the file. Errors about
// content are [*FormatError]: they name the file and the field.
package safetensors

import (
	"errors"
	"fmt"

	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/models/mapped"
)

var (
	// ErrTruncated is wrapped if the file is shorter than its header requires.
	ErrTruncated = errors.New("file is too short")
	// ErrNoWeights is wrapped if a folder holds no safetensors file.
	ErrNoWeights = errors.New("no *.safetensors in the folder")
)

// FormatError reports a malformed file.
type FormatError struct {
	File  string
	Field string // "header length", `tensor "lm_head.weight": shape`, …
	Err   error
}

func (e *FormatError) Error() string { return fmt.Sprintf("%s: %s: %v", e.File, e.Field, e.Err) }

func (e *FormatError) Unwrap() error { return e.Err }

// File is an open file or folder of shards.
type File struct {
	Name     string            // as given to Open or Parse
	Metadata map[string]string // the header's __metadata__; of shards, that of the first
	Tensors  []Tensor          // by shard, then by position

	names    map[string]int // into Tensors
	mappings []*mapped.File
}

// Tensor is a named array in a file.
type Tensor struct {
	Name   string
	Type   string     // as in the file: "BF16", "I64", …
	DType  dtype.Type // Type as the compiler knows it; dtype.Invalid where it does not
	Shape  []int64    // outermost dimension first; empty for a single number
	File   string     // the file (shard) that holds it
	Offset int64      // from the start of that file, in bytes
	Data   []byte     // valid until Close, never to be written
}

// Elems returns the number of elements.
func (t Tensor) Elems() int64 {
	n := int64(1)
	for _, d := range t.Shape {
		n *= d
	}
	return n
}

// Tensor returns the tensor of that name.
func (f *File) Tensor(name string) (Tensor, bool) {
	i, ok := f.names[name]
	if !ok {
		return Tensor{}, false
	}
	return f.Tensors[i], true
}

// Intact returns [mapped.File.Intact]'s error of the first shard that has one.
func (f *File) Intact() error {
	for _, m := range f.mappings {
		if err := m.Intact(); err != nil {
			return err
		}
	}
	return nil
}

// Close unmaps all shards: tensor data must not be read afterwards.
func (f *File) Close() error {
	for i := range f.Tensors {
		f.Tensors[i].Data = nil
	}
	var errs []error
	for _, m := range f.mappings {
		errs = append(errs, m.Close())
	}
	f.mappings = nil
	return errors.Join(errs...)
}
