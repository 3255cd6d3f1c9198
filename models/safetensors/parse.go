package safetensors

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/smelt-ml/smelt/ir/dtype"
)

const (
	// maxHeader is the limit of the reference implementation, in bytes.
	maxHeader = 100_000_000
	// maxDims is far above the rank of any weight.
	maxDims     = 32
	metadataKey = "__metadata__"
)

// types holds the bits of an element by type, and smelt's equivalents of supported types.
var types = map[string]struct {
	bits  uint64
	dtype dtype.Type
}{
	"F32": {32, dtype.F32}, "F16": {16, dtype.F16}, "BF16": {16, dtype.BF16},
	"F64": {64, dtype.Invalid}, "C64": {64, dtype.Invalid},
	"I64": {64, dtype.Invalid}, "I32": {32, dtype.Invalid}, "I16": {16, dtype.Invalid}, "I8": {8, dtype.Invalid},
	"U64": {64, dtype.Invalid}, "U32": {32, dtype.Invalid}, "U16": {16, dtype.Invalid}, "U8": {8, dtype.Invalid},
	"BOOL": {8, dtype.Invalid}, "F8_E4M3": {8, dtype.Invalid}, "F8_E5M2": {8, dtype.Invalid}, "F8_E8M0": {8, dtype.Invalid},
	"F6_E2M3": {6, dtype.Invalid}, "F6_E3M2": {6, dtype.Invalid}, "F4": {4, dtype.Invalid},
}

// Parse checks the bytes of a single safetensors file; name is that of the file in errors. Tensor
// data of the result are slices of data.
func Parse(data []byte, name string) (*File, error) {
	f := &File{Name: name, names: map[string]int{}}
	fail := func(field string, err error) (*File, error) {
		return nil, &FormatError{File: name, Field: field, Err: err}
	}
	if len(data) < 8 {
		return fail("header length", fmt.Errorf("%w: it has %d bytes", ErrTruncated, len(data)))
	}
	length := binary.LittleEndian.Uint64(data)
	switch room := uint64(len(data) - 8); {
	case length > maxHeader:
		return fail("header length", fmt.Errorf("%d bytes are more than %d: is it a safetensors file?", length, maxHeader))
	case length > room:
		return fail("header length", fmt.Errorf("%w: header of %d bytes, %d left", ErrTruncated, length, room))
	}
	header, body := data[8:8+length], data[8+length:]
	if !utf8.Valid(header) {
		return fail("header", errors.New("not UTF-8"))
	}
	fields, err := object(header)
	if err != nil {
		return fail("header", err)
	}
	for _, field := range fields {
		if field.key == metadataKey {
			if f.Metadata, err = metadata(field.value); err != nil {
				return fail(metadataKey, err)
			}
			continue
		}
		t, err := entry(field.value, body)
		if err != nil {
			return fail(fmt.Sprintf("tensor %q", field.key), err)
		}
		t.Name, t.File = field.key, name
		f.Tensors = append(f.Tensors, t)
	}
	slices.SortStableFunc(f.Tensors, func(a, b Tensor) int {
		return cmp.Or(cmp.Compare(a.Offset, b.Offset), cmp.Compare(len(a.Data), len(b.Data)))
	})
	end := int64(0)
	for i := range f.Tensors {
		t := &f.Tensors[i]
		if t.Offset != end {
			return fail(fmt.Sprintf("tensor %q", t.Name), fmt.Errorf("data_offsets begin at %d where the data before end at %d", t.Offset, end))
		}
		end += int64(len(t.Data))
		t.Offset += int64(8 + length)
		f.names[t.Name] = i
	}
	if end != int64(len(body)) {
		return fail("data", fmt.Errorf("%d bytes belong to no tensor", int64(len(body))-end))
	}
	return f, nil
}

// field is a member of a JSON object.
type field struct {
	key   string
	value json.RawMessage
}

// object splits a JSON object into its members, in order. Unlike encoding/json it refuses duplicate
// keys.
func object(text []byte) ([]field, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	open, err := dec.Token()
	if err != nil {
		return nil, fmt.Errorf("not JSON: %w", err)
	}
	if open != json.Delim('{') {
		return nil, errors.New("not a JSON object")
	}
	var fields []field
	seen := map[string]bool{}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return nil, fmt.Errorf("not JSON: %w", err)
		}
		f := field{key: key.(string)}
		if seen[f.key] {
			return nil, fmt.Errorf("%q occurs twice", f.key)
		}
		seen[f.key] = true
		if err := dec.Decode(&f.value); err != nil {
			return nil, fmt.Errorf("%q: not JSON: %w", f.key, err)
		}
		fields = append(fields, f)
	}
	if _, err := dec.Token(); err != nil {
		return nil, fmt.Errorf("not JSON: %w", err)
	}
	if rest := bytes.TrimSpace(text[dec.InputOffset():]); len(rest) > 0 {
		return nil, fmt.Errorf("%d bytes after the JSON object", len(rest))
	}
	return fields, nil
}

func metadata(text json.RawMessage) (map[string]string, error) {
	fields, err := object(text)
	if err != nil {
		return nil, err
	}
	out := make(map[string]string, len(fields))
	for _, f := range fields {
		if out[f.key], err = quoted(f.value); err != nil {
			return nil, fmt.Errorf("%q: %w", f.key, err)
		}
	}
	return out, nil
}

// entry parses a tensor's entry in the header; body holds the data. The Offset of the result counts
// from the start of body.
func entry(text json.RawMessage, body []byte) (t Tensor, err error) {
	fields, err := object(text)
	if err != nil {
		return t, err
	}
	var shape, offsets []uint64
	for _, f := range fields {
		switch f.key {
		case "dtype":
			t.Type, err = quoted(f.value)
		case "shape":
			shape, err = numbers(f.value)
		case "data_offsets":
			offsets, err = numbers(f.value)
		}
		if err != nil {
			return t, fmt.Errorf("%s: %w", f.key, err)
		}
	}
	switch {
	case t.Type == "":
		return t, errors.New("dtype is missing")
	case shape == nil:
		return t, errors.New("shape is missing")
	case len(shape) > maxDims:
		return t, fmt.Errorf("shape: %d dimensions are more than %d", len(shape), maxDims)
	case len(offsets) != 2:
		return t, fmt.Errorf("data_offsets: %d numbers, not 2", len(offsets))
	case offsets[0] > offsets[1]:
		return t, fmt.Errorf("data_offsets: %d is after %d", offsets[0], offsets[1])
	case offsets[1] > uint64(len(body)):
		return t, fmt.Errorf("data_offsets: %w: the end is %d, the data have %d bytes", ErrTruncated, offsets[1], len(body))
	}
	elems := uint64(1)
	t.Shape = make([]int64, len(shape))
	for i, n := range shape {
		hi, lo := bits.Mul64(elems, n)
		if hi != 0 || lo > math.MaxInt64 || n > math.MaxInt64 {
			return t, fmt.Errorf("shape: %v has too many elements", shape)
		}
		t.Shape[i], elems = int64(n), lo
	}
	if typ, known := types[t.Type]; known {
		t.DType = typ.dtype
		hi, size := bits.Mul64(elems, typ.bits)
		if got := offsets[1] - offsets[0]; hi != 0 || size%8 != 0 || size/8 != got {
			return t, fmt.Errorf("data_offsets: %d bytes for %v elements of %s", got, t.Shape, t.Type)
		}
	}
	t.Offset = int64(offsets[0])
	t.Data = body[offsets[0]:offsets[1]:offsets[1]]
	return t, nil
}

// quoted decodes a JSON string and nothing else.
func quoted(value json.RawMessage) (s string, err error) {
	if len(value) == 0 || value[0] != '"' {
		return "", errors.New("not a string")
	}
	err = json.Unmarshal(value, &s)
	return s, err
}

// numbers decodes a JSON array of unsigned integers; the result is not nil.
func numbers(value json.RawMessage) ([]uint64, error) {
	var items []json.RawMessage
	if err := json.Unmarshal(value, &items); err != nil || items == nil {
		return nil, errors.New("not an array")
	}
	out := make([]uint64, len(items))
	for i, item := range items {
		n, err := strconv.ParseUint(string(item), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%s is not an unsigned integer", item)
		}
		out[i] = n
	}
	return out, nil
}
