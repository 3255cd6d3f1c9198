// Package gguf reads and writes GGUF, the file format of llama.cpp: typed
// metadata, then tensors, in one file made to be memory-mapped. The format is
// described in docs/gguf.md of ggml-org/ggml.
//
//	magic "GGUF", version, number of tensors, number of metadata entries
//	metadata: key, kind, value …
//	tensor table: name, dimensions, type, offset …
//	tensor data, each tensor at a multiple of general.alignment
//
// Versions 2 and 3 are read, little endian; version 3 is written.
//
// # Reading
//
// [Open] maps a file (see package mapped) and checks everything that can be
// checked without reading weights, so that users of a [File] may trust it: counts
// and lengths lie within the file before anything is allocated for them, keys and
// tensor names are unique, and every tensor lies inside the file, aligned,
// without overlap. A tensor of a type that smelt does not support is listed with
// DType [dtype.Invalid], so that a file can be inspected even if it cannot run.
//
// The header is copied out of the mapping once; strings of the metadata are
// substrings of that copy. Only [Tensor.Data] is a view of the mapping, valid
// until [File.Close].
//
//	f, err := gguf.Open("model.gguf")
//	if err != nil {
//		return err
//	}
//	defer f.Close()
//	layers, err := f.Uint("llama.block_count")
//	embedding, ok := f.Tensor("token_embd.weight")
//
// Shapes are row-major with the outermost dimension first, [rows, columns],
// the reverse of the order in the file; rows are contiguous.
//
// # Errors
//
// A malformed file gives a [*FormatError] with the file, the field and the
// offset; a metadata entry that is absent or of another kind gives a
// [*KeyError] with the file and the key.
//
// # Writing
//
// [Write] takes metadata in the order of the file and, for every tensor, a function
// that streams its bytes, so that a model may be larger than memory.
package gguf

import (
	"errors"
	"fmt"
)

var (
	// ErrMagic is wrapped if a file is not a GGUF file.
	ErrMagic = errors.New("not a GGUF file")
	// ErrVersion is wrapped if the version or byte order is not supported.
	ErrVersion = errors.New("unsupported GGUF version")
	// ErrTruncated is wrapped if a field reaches beyond the end of the file.
	ErrTruncated = errors.New("file is too short")
	// ErrMissing matches a [*KeyError] of an absent entry.
	ErrMissing = errors.New("metadata entry is missing")
	// ErrKind matches a [*KeyError] of an entry of another kind, or out of range.
	ErrKind = errors.New("metadata entry has the wrong kind")
)

// FormatError reports a malformed file.
type FormatError struct {
	File   string
	Field  string // "version", `metadata "general.name"`, `tensor "output.weight": offset`, …
	Offset int64  // of the field, or of the byte at which reading stopped
	Err    error
}

func (e *FormatError) Error() string {
	return fmt.Sprintf("%s: %s: %v (at byte %d)", e.File, e.Field, e.Err, e.Offset)
}

func (e *FormatError) Unwrap() error { return e.Err }

// KeyError reports a metadata entry that is absent or cannot be returned as the
// requested kind.
type KeyError struct {
	File string
	Key  string
	Want string // "string", "unsigned integer", "array of floats", …
	Got  string // the entry's kind, with its value if that is the reason; empty where it is absent
}

func (e *KeyError) Error() string {
	if e.Got == "" {
		return fmt.Sprintf("%s: metadata %q is missing (%s)", e.File, e.Key, e.Want)
	}
	return fmt.Sprintf("%s: metadata %q is %s, not %s", e.File, e.Key, e.Got, e.Want)
}

// Is makes errors.Is work with [ErrMissing] and [ErrKind].
func (e *KeyError) Is(target error) bool {
	return target == ErrMissing && e.Got == "" || target == ErrKind && e.Got != ""
}
