// Package quant converts between float32 and the formats in which weights are
// stored: F32, F16, BF16, GGUF's block formats and groups as MLX packs them.
//
// A block format cuts a row into blocks of [dtype.Type.BlockElems] consecutive
// elements; a block holds small integers and the scales that map them back:
//
//	Q8_0, Q4_0, Q5_0      32 elements   x = d·q                 d is a half
//	Q4_1, Q5_1            32 elements   x = d·q + m             d, m are halves
//	Q3_K, Q6_K           256 elements   x = d·scale[group]·q    scales are integers
//	Q2_K, Q4_K, Q5_K     256 elements   x = d·scale[group]·q − dmin·min[group]
//	MXFP4                 32 elements   x = d·value[q]          d is a power of two
//	IQ4_NL                32 elements   x = d·value[q]          d is a half
//	IQ4_XS               256 elements   x = d·scale[group]·value[q]
//	MLX4, MLX8            64 elements   x = d·q + m             d, m are halves
//
// Layouts are those of ggml-common.h, byte for byte, but for the last two. All numbers are little
// endian, on every machine.
//
// [Quantize] writes the bytes of GGML's reference quantizers (the *_ref functions
// of ggml-quants.c, which use no importance matrix): files of both compare
// equal. Arithmetic is in float32 without fused multiply-add, so the same input gives
// the same bytes on every machine. search.go documents what the searches for the
// scales of the K-quants minimise.
// [Dequantize] reads all formats; it is exact up to one float32 rounding for
// each multiplication or addition above, in GGML's order.
//
// Both work on whole blocks, never allocate, and are safe to call from several
// goroutines on disjoint slices:
//
//	dst := make([]byte, dtype.Q4_0.Bytes(int64(len(row))))
//	err := quant.Quantize(dst, row, dtype.Q4_0)
package quant

import (
	"errors"
	"fmt"
	"math"

	"github.com/smelt-ml/smelt/ir/dtype"
)

var (
	// ErrUnsupported is returned for a type that has no codec in that direction.
	ErrUnsupported = errors.New("no codec")
	// ErrSize is returned when the two slices do not hold the same whole number of blocks.
	ErrSize = errors.New("size mismatch")
	// ErrRange is wrapped by [RangeError].
	ErrRange = errors.New("value cannot be represented")
)

// RangeError names an element that a block format cannot hold: one that is infinite,
// not a number, or so large that the block's scale overflows half precision.
type RangeError struct {
	DType dtype.Type
	Index int // in what was to be quantized
	Value float32
}

func (e *RangeError) Error() string {
	return fmt.Sprintf("quantize %v: element %d is %g: %v", e.DType, e.Index, e.Value, ErrRange)
}

func (e *RangeError) Unwrap() error { return ErrRange }

// codec converts whole blocks; the caller has checked the sizes.
// encode returns the index of the first block that the format cannot hold, or -1.
type codec struct {
	decode func(dst []float32, src []byte)
	encode func(dst []byte, src []float32) int
}

// codecs holds the codec of every weight type. A type that is only read has no encoder.
var codecs = map[dtype.Type]codec{
	dtype.F32:  {decodeF32, encodeF32},
	dtype.F16:  {decodeF16, encodeF16},
	dtype.BF16: {decodeBF16, encodeBF16},
	dtype.Q8_0: {decodeQ8_0, encodeQ8_0},
	dtype.Q4_0: {decodeQ4_0, encodeQ4_0},
	dtype.Q4_1: {decodeQ4_1, encodeQ4_1},
	dtype.Q5_0: {decodeQ5_0, encodeQ5_0},
	dtype.Q5_1: {decodeQ5_1, encodeQ5_1},
	dtype.Q2_K: {decodeQ2_K, encodeQ2_K},
	dtype.Q3_K: {decodeQ3_K, encodeQ3_K},
	dtype.Q4_K: {decodeQ4_K, encodeQ4_K},
	dtype.Q5_K: {decodeQ5_K, encodeQ5_K},
	dtype.Q6_K: {decodeQ6_K, encodeQ6_K},

	dtype.MXFP4:  {decodeMXFP4, encodeMXFP4},
	dtype.IQ4_NL: {decodeIQ4_NL, encodeIQ4_NL},
	dtype.IQ4_XS: {decodeIQ4_XS, encodeIQ4_XS},

	dtype.MLX4: {decodeMLX4, encodeMLX4},
	dtype.MLX8: {decodeMLX8, encodeMLX8},
}

// Add registers a codec for a type that [dtype.Add] added, and returns a function that removes it.
// decode and encode convert whole blocks; encode may be nil, and returns the index of the first
// block that the type cannot hold, or -1.
func Add(t dtype.Type, decode func(dst []float32, src []byte), encode func(dst []byte, src []float32) int) (remove func()) {
	codecs[t] = codec{decode, encode}
	return func() { delete(codecs, t) }
}

// CanDequantize reports whether [Dequantize] reads t.
func CanDequantize(t dtype.Type) bool { return codecs[t].decode != nil }

// CanQuantize reports whether [Quantize] writes t.
func CanQuantize(t dtype.Type) bool { return codecs[t].encode != nil }

// Dequantize expands src, stored as t, into dst.
// The length of src must be t.Bytes(len(dst)).
func Dequantize(dst []float32, src []byte, t dtype.Type) error {
	c := codecs[t]
	if c.decode == nil {
		return fmt.Errorf("dequantize %v: %w", t, ErrUnsupported)
	}
	if err := checkSizes(len(dst), len(src), t); err != nil {
		return fmt.Errorf("dequantize %v: %w", t, err)
	}
	c.decode(dst, src)
	return nil
}

// Quantize stores src as t in dst. The length of dst must be t.Bytes(len(src)).
// If it returns a [RangeError], the blocks before the element's block have been written.
func Quantize(dst []byte, src []float32, t dtype.Type) error {
	c := codecs[t]
	if c.encode == nil {
		return fmt.Errorf("quantize %v: %w", t, ErrUnsupported)
	}
	if err := checkSizes(len(src), len(dst), t); err != nil {
		return fmt.Errorf("quantize %v: %w", t, err)
	}
	if bad := c.encode(dst, src); bad >= 0 {
		n := t.BlockElems()
		i := bad*n + worst(src[bad*n:][:n])
		return &RangeError{DType: t, Index: i, Value: src[i]}
	}
	return nil
}

// worst returns the index of the first element that is not finite; if all are finite,
// that of the element of largest magnitude.
func worst(x []float32) int {
	at := 0
	for i, v := range x {
		switch a := math.Abs(float64(v)); {
		case !(a <= math.MaxFloat32):
			return i
		case a > math.Abs(float64(x[at])):
			at = i
		}
	}
	return at
}

func checkSizes(elems, bytes int, t dtype.Type) error {
	if n := t.BlockElems(); elems%n != 0 {
		return fmt.Errorf("%w: %d elements are not a multiple of the block of %d", ErrSize, elems, n)
	}
	if want := t.Bytes(int64(elems)); int64(bytes) != want {
		return fmt.Errorf("%w: %d elements take %d bytes, not %d", ErrSize, elems, want, bytes)
	}
	return nil
}
