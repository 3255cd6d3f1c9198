package safetensors

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/smelt-ml/smelt/ir/dtype"
)

// TensorWriter writes a tensor of a new file.
type TensorWriter struct {
	Name  string
	DType dtype.Type // F32, F16 or BF16
	Shape []int64    // outermost dimension first
	// Write streams exactly the bytes that type and shape require.
	Write func(w io.Writer) error
}

// Write writes a file. Tensors keep their order; metadata may be nil.
func Write(w io.Writer, metadata map[string]string, tensors []TensorWriter) error {
	header, sizes, err := header(metadata, tensors)
	if err != nil {
		return fmt.Errorf("write safetensors: %w", err)
	}
	buf := bufio.NewWriterSize(w, 1<<20)
	buf.Write(header) // a bufio.Writer keeps its first error for Flush
	for i, t := range tensors {
		exact := &exactWriter{buf, sizes[i]}
		if err := t.Write(exact); err != nil {
			return fmt.Errorf("write safetensors: tensor %q: %w", t.Name, err)
		}
		if exact.left != 0 {
			return fmt.Errorf("write safetensors: tensor %q: %d of %d bytes are missing", t.Name, exact.left, sizes[i])
		}
	}
	if err := buf.Flush(); err != nil {
		return fmt.Errorf("write safetensors: %w", err)
	}
	return nil
}

// header encodes the length and the JSON object, padded with spaces so that data begin at a
// multiple of 8.
func header(metadata map[string]string, tensors []TensorWriter) ([]byte, []int64, error) {
	var b bytes.Buffer
	b.Write(make([]byte, 8))
	member := func(key string, value any) error {
		if b.Len() > 9 {
			b.WriteByte(',')
		}
		k, err := json.Marshal(key)
		if err != nil {
			return err
		}
		v, err := json.Marshal(value)
		if err != nil {
			return err
		}
		b.Write(k)
		b.WriteByte(':')
		b.Write(v)
		return nil
	}
	b.WriteByte('{')
	if metadata != nil {
		if err := member(metadataKey, metadata); err != nil {
			return nil, nil, err
		}
	}
	seen := map[string]bool{metadataKey: true}
	sizes := make([]int64, len(tensors))
	end := int64(0)
	for i, t := range tensors {
		if !t.DType.IsFloat() {
			return nil, nil, fmt.Errorf("tensor %q: type %v", t.Name, t.DType)
		}
		if seen[t.Name] {
			return nil, nil, fmt.Errorf("tensor %q: the name is taken", t.Name)
		}
		seen[t.Name] = true
		elems := int64(1)
		for _, n := range t.Shape {
			if n < 0 || n > 0 && elems > (1<<59)/n {
				return nil, nil, fmt.Errorf("tensor %q: shape %v", t.Name, t.Shape)
			}
			elems *= n
		}
		sizes[i] = t.DType.Bytes(elems)
		if end > 1<<62-sizes[i] {
			return nil, nil, fmt.Errorf("tensor %q: the file is too large", t.Name)
		}
		shape := t.Shape
		if shape == nil {
			shape = []int64{} // not null
		}
		if err := member(t.Name, struct {
			DType   string   `json:"dtype"`
			Shape   []int64  `json:"shape"`
			Offsets [2]int64 `json:"data_offsets"`
		}{strings.ToUpper(t.DType.String()), shape, [2]int64{end, end + sizes[i]}}); err != nil {
			return nil, nil, err
		}
		end += sizes[i]
	}
	b.WriteByte('}')
	for b.Len()%8 != 0 {
		b.WriteByte(' ')
	}
	out := b.Bytes()
	binary.LittleEndian.PutUint64(out, uint64(len(out)-8))
	return out, sizes, nil
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
