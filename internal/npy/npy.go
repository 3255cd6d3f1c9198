// Package npy reads and writes NumPy's .npy files, which hold reference tensors
// and logits. NumPy's NEP 1 specifies the format:
//
//	"\x93NUMPY", version, length of the header, header, data
//
// The header is a Python dictionary: {'descr': '<f4', 'fortran_order': False,
// 'shape': (24, 512), }. Versions 1 to 3 are read, little endian, in C order
// (last dimension contiguous); version 1 is written.
//
//	logits, err := npy.ReadFile[float32]("logits.npy") // stored as f4 or f8
//	fmt.Println(logits.Shape, logits.Data[0])
package npy

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
	"os"
	"strconv"
	"strings"
)

var (
	// ErrFormat is wrapped if a file is malformed or in Fortran order.
	ErrFormat = errors.New("malformed .npy file")
	// ErrType is wrapped if the elements cannot be converted to the requested type.
	ErrType = errors.New("element type does not fit")
)

// Element is the Go type of an array's elements.
type Element interface {
	float32 | float64 | int32 | int64
}

// Array is an array of any rank in C order. A rank of 0 is a single number.
type Array[T Element] struct {
	Shape []int // outermost dimension first
	Data  []T   // their number is the product of Shape
}

const magic = "\x93NUMPY"

// kinds are the stored types, by their descr.
var kinds = map[string]struct {
	size  int
	float bool
}{
	"<f4": {4, true}, "<f8": {8, true}, "<i4": {4, false}, "<i8": {8, false},
}

// ReadFile reads a file. Floats are rounded to T; integers must fit T; floats are
// not read as integers nor integers as floats.
func ReadFile[T Element](path string) (Array[T], error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Array[T]{}, err
	}
	a, err := Parse[T](data)
	if err != nil {
		return Array[T]{}, fmt.Errorf("%s: %w", path, err)
	}
	return a, nil
}

// Parse reads the bytes of a file, as [ReadFile] does.
func Parse[T Element](data []byte) (Array[T], error) {
	header, data, err := split(data)
	if err != nil {
		return Array[T]{}, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	h, err := parseHeader(header)
	if err != nil {
		return Array[T]{}, fmt.Errorf("%w: header: %w", ErrFormat, err)
	}
	if h.fortran {
		return Array[T]{}, fmt.Errorf("%w: fortran_order: only C order is read", ErrFormat)
	}
	kind, ok := kinds[h.descr]
	if !ok {
		return Array[T]{}, fmt.Errorf("%w: descr %q: only <f4, <f8, <i4 and <i8 are read", ErrType, h.descr)
	}
	elems := uint64(1)
	for _, n := range h.shape {
		hi, lo := bits.Mul64(elems, uint64(n))
		if hi != 0 || lo > math.MaxInt64/8 {
			return Array[T]{}, fmt.Errorf("%w: shape %v has too many elements", ErrFormat, h.shape)
		}
		elems = lo
	}
	if want := elems * uint64(kind.size); want != uint64(len(data)) {
		return Array[T]{}, fmt.Errorf("%w: shape %v of %s takes %d bytes, the file has %d", ErrFormat, h.shape, h.descr, want, len(data))
	}
	out := Array[T]{Shape: h.shape, Data: make([]T, elems)}
	if err := convert(out.Data, data, h.descr); err != nil {
		return Array[T]{}, err
	}
	return out, nil
}

// split checks what precedes the header and returns header and data.
func split(data []byte) (header, rest []byte, err error) {
	const fixed = len(magic) + 2
	if len(data) < fixed || string(data[:len(magic)]) != magic {
		return nil, nil, errors.New("it does not begin with \\x93NUMPY")
	}
	width := 4
	switch major := data[len(magic)]; major {
	case 1:
		width = 2
	case 2, 3:
	default:
		return nil, nil, fmt.Errorf("version %d", major)
	}
	rest = data[fixed:]
	if len(rest) < width {
		return nil, nil, errors.New("the header's length is cut off")
	}
	n := uint64(binary.LittleEndian.Uint16(rest))
	if width == 4 {
		n = uint64(binary.LittleEndian.Uint32(rest))
	}
	rest = rest[width:]
	if n > uint64(len(rest)) {
		return nil, nil, fmt.Errorf("header of %d bytes, %d left", n, len(rest))
	}
	return rest[:n], rest[n:], nil
}

type header struct {
	descr   string
	fortran bool
	shape   []int
}

// parseHeader reads the dictionary. NumPy writes its three keys only.
func parseHeader(text []byte) (h header, err error) {
	s := scanner{strings.TrimSpace(string(text))}
	seen := map[string]bool{}
	if !s.accept("{") {
		return h, errors.New("not a dictionary")
	}
	for !s.accept("}") {
		key, ok := s.quoted()
		if !ok || !s.accept(":") {
			return h, fmt.Errorf("a key is expected at %q", s.excerpt())
		}
		if seen[key] {
			return h, fmt.Errorf("%q occurs twice", key)
		}
		seen[key] = true
		switch key {
		case "descr":
			h.descr, ok = s.quoted()
		case "fortran_order":
			h.fortran = s.accept("True")
			ok = h.fortran || s.accept("False")
		case "shape":
			h.shape, ok = s.tuple()
		default:
			return h, fmt.Errorf("unknown key %q", key)
		}
		if !ok {
			return h, fmt.Errorf("%s: unexpected %q", key, s.excerpt())
		}
		if !s.accept(",") && !strings.HasPrefix(s.rest, "}") {
			return h, fmt.Errorf("a comma is expected at %q", s.excerpt())
		}
	}
	if s.rest != "" {
		return h, fmt.Errorf("%q follows the dictionary", s.excerpt())
	}
	for _, key := range []string{"descr", "fortran_order", "shape"} {
		if !seen[key] {
			return h, fmt.Errorf("%q is missing", key)
		}
	}
	return h, nil
}

// scanner reads Python literals; blanks before and after tokens do not count.
type scanner struct{ rest string }

func (s *scanner) accept(token string) bool {
	rest, ok := strings.CutPrefix(s.rest, token)
	if ok {
		s.rest = strings.TrimLeft(rest, " \t\n")
	}
	return ok
}

func (s *scanner) quoted() (string, bool) {
	for _, quote := range []string{"'", `"`} {
		if rest, ok := strings.CutPrefix(s.rest, quote); ok {
			text, rest, ok := strings.Cut(rest, quote)
			s.rest = strings.TrimLeft(rest, " \t\n")
			return text, ok
		}
	}
	return "", false
}

// maxRank is NumPy's own limit, NPY_MAXDIMS.
const maxRank = 64

func (s *scanner) tuple() ([]int, bool) {
	shape := []int{}
	if !s.accept("(") {
		return nil, false
	}
	for !s.accept(")") {
		digits := s.rest[:len(s.rest)-len(strings.TrimLeft(s.rest, "0123456789"))]
		n, err := strconv.ParseInt(digits, 10, strconv.IntSize)
		if err != nil || len(shape) == maxRank {
			return nil, false
		}
		s.accept(digits)
		shape = append(shape, int(n))
		// One number without a comma is not a tuple in Python, but unambiguous.
		if !s.accept(",") && !strings.HasPrefix(s.rest, ")") {
			return nil, false
		}
	}
	return shape, true
}

func (s *scanner) excerpt() string { return s.rest[:min(len(s.rest), 20)] }

// convert decodes elements stored as descr.
func convert[T Element](dst []T, data []byte, descr string) error {
	kind := kinds[descr]
	var zero T
	if floating := isFloat(zero); floating != kind.float {
		return fmt.Errorf("%w: %s cannot be read as %T", ErrType, descr, zero)
	}
	le := binary.LittleEndian
	for i := range dst {
		b := data[i*kind.size:]
		switch descr {
		case "<f4":
			dst[i] = T(math.Float32frombits(le.Uint32(b)))
		case "<f8":
			dst[i] = T(math.Float64frombits(le.Uint64(b)))
		case "<i4":
			dst[i] = T(int32(le.Uint32(b)))
		case "<i8":
			x := int64(le.Uint64(b))
			if dst[i] = T(x); int64(dst[i]) != x {
				return fmt.Errorf("%w: element %d is %d, too large for %T", ErrType, i, x, zero)
			}
		}
	}
	return nil
}

func isFloat[T Element](x T) bool {
	switch any(x).(type) {
	case float32, float64:
		return true
	}
	return false
}

// descrOf returns the descr of a slice of T.
func descrOf[T Element]() string {
	var zero T
	switch any(zero).(type) {
	case float32:
		return "<f4"
	case float64:
		return "<f8"
	case int32:
		return "<i4"
	}
	return "<i8"
}

// Write writes data as an array of the given shape, with the bytes that NumPy
// would write.
func Write[T Element](w io.Writer, shape []int, data []T) error {
	elems := 1
	dims := make([]string, len(shape))
	for i, n := range shape {
		if n < 0 || n > 0 && elems > math.MaxInt/n {
			return fmt.Errorf("write .npy: shape %v", shape)
		}
		elems *= n
		dims[i] = strconv.Itoa(n)
	}
	if elems != len(data) {
		return fmt.Errorf("write .npy: shape %v does not hold %d elements", shape, len(data))
	}
	tuple := strings.Join(dims, ", ")
	if len(dims) == 1 {
		tuple += ","
	}
	text := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", descrOf[T](), tuple)
	// Data begin at a multiple of 64; the header ends with a line feed.
	const before = len(magic) + 4
	text += strings.Repeat(" ", 63-(before+len(text))%64) + "\n"
	if len(text) > math.MaxUint16 {
		return fmt.Errorf("write .npy: rank %d", len(shape))
	}
	var head bytes.Buffer
	head.WriteString(magic + "\x01\x00")
	head.Write(binary.LittleEndian.AppendUint16(nil, uint16(len(text))))
	head.WriteString(text)
	if _, err := w.Write(head.Bytes()); err != nil {
		return err
	}
	return binary.Write(w, binary.LittleEndian, data)
}

// WriteFile writes a file, replacing an existing one.
func WriteFile[T Element](path string, shape []int, data []T) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	buf := bufio.NewWriter(f)
	err = Write(buf, shape, data)
	if flush := buf.Flush(); err == nil {
		err = flush
	}
	if shut := f.Close(); err == nil {
		err = shut
	}
	return err
}
