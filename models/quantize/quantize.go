// Package quantize writes a model as a GGUF file whose weights have another type.
//
//	m, err := checkpoint.Open("model-f16.gguf") // or a folder of safetensors
//	r, err := quantize.Write(ctx, out, m, "q4_k_m", nil)
//
// A type is one of llama.cpp's mixtures ([checkpoint.WeightTypes]).
// [checkpoint.Checkpoint.Rewrite] chooses each tensor's element type, and package quant encodes
// blocks, so that the file equals that of llama.cpp's own tool. This package converts tensors
// slice by slice, with one worker for each processor. Memory is bounded by the slices rather than
// the model, and the result does not depend on the number of workers. A weight that is not finite,
// or too large for its new type, is an error that names tensor and element ([ErrWeight]), since a
// file with a NaN would fail later, far from the cause.
package quantize

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"sync"

	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/models/checkpoint"
	"github.com/smelt-ml/smelt/models/gguf"
	"github.com/smelt-ml/smelt/models/quant"
)

// Result describes the weights of a written file.
type Result struct {
	Tensors map[dtype.Type]int // number of tensors of each type
	Before  int64              // bytes of the tensors that were read
	After   int64              // bytes of those written
	// Again counts matrices that already were quantized in another type, whose values had lost
	// precision.
	Again int
	// Narrow counts matrices of another type than the mixture's, since their rows are not whole
	// blocks of that one.
	Narrow int
}

// ErrWeight is wrapped if a weight is not finite or does not fit its new type.
var ErrWeight = errors.New("a weight cannot be stored")

// quantizeElements is the number of elements that a worker converts at a time, or one row if that
// is longer. It bounds memory, together with the bytes of the result.
const quantizeElements = 1 << 18

// Write writes the model with weights of the named type. progress, if not nil, is called with the
// bytes written so far and in all.
func Write(ctx context.Context, out io.Writer, m *checkpoint.Checkpoint, weightType string, progress func(done, total int64)) (*Result, error) {
	if !m.HasWeights() {
		return nil, fmt.Errorf("%s: %w", m.Path, checkpoint.ErrNoWeights)
	}
	metadata, tensors, err := m.Rewrite(weightType)
	if err != nil {
		return nil, err
	}
	q := &Result{Tensors: make(map[dtype.Type]int)}
	sources := make([]gguf.TensorWriter, len(tensors))
	var done int64
	c := &converter{ctx: ctx, wrote: func(n int) {
		done += int64(n)
		if progress != nil {
			progress(done, q.After)
		}
	}}
	for i := range tensors {
		t := &tensors[i]
		q.add(t)
		if sources[i], err = t.Writer(func(w io.Writer) error { return c.tensor(w, t) }); err != nil {
			return nil, err
		}
	}
	if err := gguf.Write(out, metadata, sources); err != nil {
		return nil, fmt.Errorf("%s: %w", m.Path, err)
	}
	if err := m.Intact(); err != nil {
		return nil, err
	}
	return q, nil
}

func (q *Result) add(t *checkpoint.Rewritten) {
	q.Tensors[t.DType]++
	q.After += t.DType.Bytes(t.Elements())
	if t.Narrow {
		q.Narrow++
	}
	if t.From == nil {
		return
	}
	again := false
	for _, from := range t.From {
		q.Before += from.Bytes()
		again = again || from.DType.IsQuantized() && from.DType != t.DType
	}
	if again {
		q.Again++
	}
}

// converter writes tensors in their new types.
type converter struct {
	ctx     context.Context
	wrote   func(n int)
	workers []conversion
}

// conversion is a worker's memory.
type conversion struct {
	values []float32
	bytes  []byte
	err    error
}

// tensor converts a tensor: workers convert slices of rows, which are written in order.
func (c *converter) tensor(w io.Writer, t *checkpoint.Rewritten) error {
	if t.From == nil {
		return c.write(w, t.Data)
	}
	width := t.Width()
	rows := int(t.Elements() / int64(width))
	step := max(1, quantizeElements/width)
	if c.workers == nil {
		c.workers = make([]conversion, runtime.GOMAXPROCS(0))
	}
	for first := 0; first < rows; {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		var running sync.WaitGroup
		used := 0
		for ; used < len(c.workers) && first < rows; used++ {
			from, to, worker := first, min(first+step, rows), &c.workers[used]
			running.Go(func() { worker.err = worker.convert(t, from, to) })
			first = to
		}
		running.Wait()
		for i := range c.workers[:used] {
			if err := c.workers[i].err; err != nil {
				return err
			}
			if err := c.write(w, c.workers[i].bytes); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *converter) write(w io.Writer, data []byte) error {
	n, err := w.Write(data)
	c.wrote(n)
	return err
}

// convert converts the rows [from, to) of a tensor. Rows that already have the new type are copied.
func (c *conversion) convert(t *checkpoint.Rewritten, from, to int) error {
	width := t.Width()
	made, kept := int(t.DType.Bytes(int64(width))), t.Kept()
	c.values = sized(c.values, (to-from)*width)
	c.bytes = sized(c.bytes, (to-from)*made)
	for i := range to - from {
		tensor, row := t.Row(from + i)
		stored := int(tensor.DType.Bytes(int64(width)))
		source, values := tensor.Data[row*stored:][:stored], c.values[i*width:][:width]
		if err := quant.Dequantize(values, source, tensor.DType); err != nil {
			return err
		}
		if at := unfit(values, t.DType); at >= 0 {
			return weightError(t, row*width+at, values[at])
		}
		if kept {
			copy(c.bytes[i*made:], source)
		}
	}
	if kept {
		return nil
	}
	err := quant.Quantize(c.bytes, c.values, t.DType)
	if out := (*quant.RangeError)(nil); errors.As(err, &out) {
		_, row := t.Row(from + out.Index/width)
		return weightError(t, row*width+out.Index%width, out.Value)
	}
	return err
}

func sized[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

// overflow is the least magnitude that rounds to infinity.
var overflow = map[dtype.Type]float32{dtype.F16: 65520, dtype.BF16: 0x1.ffp127}

// unfit returns the index of the first value that is not finite, or would not be after conversion
// to t, or -1.
func unfit(values []float32, t dtype.Type) int {
	bound, ok := overflow[t]
	if !ok {
		bound = float32(math.Inf(1))
	}
	for i, v := range values {
		if !(v < bound && v > -bound) {
			return i
		}
	}
	return -1
}

// weightError names the element of a tensor that cannot be stored, and the reason.
func weightError(t *checkpoint.Rewritten, index int, v float32) error {
	if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
		return fmt.Errorf("%w: element %d is %g", ErrWeight, index, v)
	}
	return fmt.Errorf("%w: element %d is %g, too large for %s", ErrWeight, index, v, t.DType)
}
