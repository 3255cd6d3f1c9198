package gguf

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

const (
	writtenVersion = 3
	// maxWrittenName is the longest name of a tensor that llama.cpp accepts: GGML_MAX_NAME minus
	// the terminating zero.
	maxWrittenName = 63
)

// TensorWriter writes a tensor of a new file.
type TensorWriter struct {
	Name  string // at most 63 bytes
	Type  TensorType
	Shape []int64 // outermost dimension first, 1 to 4 dimensions
	// Write streams the data, in rows of Type's blocks; it must write exactly the bytes that type
	// and shape require.
	Write func(w io.Writer) error
}

// Writer returns the tensor, unchanged, for another file.
func (t Tensor) Writer() TensorWriter {
	return TensorWriter{Name: t.Name, Type: t.Type, Shape: t.Shape, Write: func(w io.Writer) error {
		_, err := w.Write(t.Data)
		return err
	}}
}

// Write writes a file of version 3. Metadata and tensors keep their order; tensors are padded only
// to the alignment, as llama.cpp requires. The alignment is that of the entry general.alignment, a
// uint32, by default 32.
func Write(w io.Writer, metadata []KV, tensors []TensorWriter) error {
	head, sizes, alignment, err := header(metadata, tensors)
	if err != nil {
		return fmt.Errorf("write GGUF: %w", err)
	}
	buf := bufio.NewWriterSize(w, 1<<20)
	pad := make([]byte, alignment)
	padding := func(written int64) []byte { return pad[:-written&(alignment-1)] }
	buf.Write(head) // a bufio.Writer keeps its first error for Flush
	buf.Write(padding(int64(len(head))))
	for i, t := range tensors {
		exact := &exactWriter{w: buf, left: sizes[i]}
		if err := t.Write(exact); err != nil {
			return fmt.Errorf("write GGUF: tensor %q: %w", t.Name, err)
		}
		if exact.left != 0 {
			return fmt.Errorf("write GGUF: tensor %q: %d of %d bytes are missing", t.Name, exact.left, sizes[i])
		}
		buf.Write(padding(sizes[i]))
	}
	if err := buf.Flush(); err != nil {
		return fmt.Errorf("write GGUF: %w", err)
	}
	return nil
}

// WriteFile writes a file under a temporary name and renames it to path once it is complete.
func WriteFile(path string, metadata []KV, tensors []TensorWriter) (err error) {
	partial := path + ".partial"
	f, err := os.Create(partial)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(partial)
		}
	}()
	if err := Write(f, metadata, tensors); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(partial, path)
}

// header encodes everything before the tensor data, unpadded.
func header(metadata []KV, tensors []TensorWriter) (head []byte, sizes []int64, alignment int64, err error) {
	le := binary.LittleEndian
	alignment = defaultAlignment
	head = append(head, magic...)
	head = le.AppendUint32(head, writtenVersion)
	head = le.AppendUint64(head, uint64(len(tensors)))
	head = le.AppendUint64(head, uint64(len(metadata)))

	seen := make(map[string]bool, len(metadata)+len(tensors))
	for _, kv := range metadata {
		v := kv.Value
		switch {
		case kv.Key == "" || len(kv.Key) > maxName:
			return nil, nil, 0, fmt.Errorf("metadata key of %d bytes", len(kv.Key))
		case seen[kv.Key]:
			return nil, nil, 0, fmt.Errorf("metadata %q occurs twice", kv.Key)
		case v.raw == "" && v.kind != KindArray:
			return nil, nil, 0, fmt.Errorf("metadata %q has no value", kv.Key)
		}
		seen[kv.Key] = true
		head = appendString(head, kv.Key)
		head = le.AppendUint32(head, uint32(v.kind))
		if v.kind == KindArray {
			head = le.AppendUint32(head, uint32(v.elem))
			head = le.AppendUint64(head, uint64(v.n))
		}
		head = append(head, v.raw...)
		if kv.Key == alignmentKey {
			a, ok := v.Any().(uint32)
			if !ok || a == 0 || a&(a-1) != 0 || a > maxAlignment {
				return nil, nil, 0, fmt.Errorf("metadata %q is %v %v, not an uint32 that is a power of two up to %d", kv.Key, v.kind, v, maxAlignment)
			}
			alignment = int64(a)
		}
	}

	clear(seen)
	offset := int64(0)
	for _, t := range tensors {
		size, err := t.Type.size(t.Shape)
		switch {
		case t.Name == "" || len(t.Name) > maxWrittenName:
			err = fmt.Errorf("the name has %d bytes, not 1 to %d", len(t.Name), maxWrittenName)
		case seen[t.Name]:
			err = errors.New("the name occurs twice")
		case len(t.Shape) == 0:
			err = errors.New("the shape is empty")
		case err == nil && size < 0:
			err = fmt.Errorf("the size of type %v is not known", t.Type)
		case err == nil && offset+size+maxAlignment < 0:
			err = errors.New("the file is too large")
		}
		if err != nil {
			return nil, nil, 0, fmt.Errorf("tensor %q: %w", t.Name, err)
		}
		seen[t.Name] = true
		sizes = append(sizes, size)
		head = appendString(head, t.Name)
		head = le.AppendUint32(head, uint32(len(t.Shape)))
		for d := range t.Shape {
			head = le.AppendUint64(head, uint64(t.Shape[len(t.Shape)-1-d]))
		}
		head = le.AppendUint32(head, uint32(t.Type))
		head = le.AppendUint64(head, uint64(offset))
		offset = (offset + size + alignment - 1) &^ (alignment - 1)
	}
	return head, sizes, alignment, nil
}

// exactWriter passes on at most left bytes.
type exactWriter struct {
	w    io.Writer
	left int64
}

func (e *exactWriter) Write(b []byte) (int, error) {
	if int64(len(b)) > e.left {
		return 0, fmt.Errorf("more data than the shape takes, by %d bytes or more", int64(len(b))-e.left)
	}
	n, err := e.w.Write(b)
	e.left -= int64(n)
	return n, err
}
