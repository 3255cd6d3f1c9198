package smelt

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/smelt-ml/smelt/device"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/models/checkpoint"
	"github.com/smelt-ml/smelt/models/quantize"
	"github.com/smelt-ml/smelt/models/synth"
)

// Quantized says what a file that [Model.Quantize] made has become.
type Quantized = quantize.Result

// ErrWeight is wrapped where a weight is not finite or does not fit its new type.
var ErrWeight = quantize.ErrWeight

// Quantize writes the model as a GGUF file whose weights have the type of that name, one
// of llama.cpp's mixtures, such as "q4_k_m". A weight that is not finite ends it with an
// error that names tensor and element. progress, if given, is told the bytes written so
// far and in all.
func (m *Model) Quantize(ctx context.Context, out io.Writer, weightType string, progress func(done, total int64)) (*Quantized, error) {
	if m.file == nil {
		return nil, fmt.Errorf("%s: %w in a file", m.name, ErrNoWeights)
	}
	release, err := m.use()
	if err != nil {
		return nil, err
	}
	defer release()
	return quantize.Write(ctx, out, m.file, weightType, progress)
}

// errDefined is for what only shapes of known families have.
var errDefined = errors.New("the model is defined in Go and no shape of a known family")

// Randomise returns the shape with random weights in memory, to be measured.
func (m *Model) Randomise(ctx context.Context, seed uint64) (*Model, error) {
	if m.file == nil {
		return nil, fmt.Errorf("%s: %w", m.name, errDefined)
	}
	need, err := synth.Bytes(m.file)
	if err != nil {
		return nil, err
	}
	if have := device.AvailableMemory(); need > have {
		return nil, fmt.Errorf("%w: random weights for %s take %s, %s is available", device.ErrMemory, checkpoint.ArchPrefix+m.name, device.FormatBytes(need), device.FormatBytes(have))
	}
	tensors, err := synth.Tensors(ctx, m.file, seed)
	if err != nil {
		return nil, err
	}
	weights, err := m.file.With(tensors)
	if err != nil {
		return nil, err
	}
	return &Model{name: m.name, path: m.path, context: m.context, build: m.build, file: m.file, weights: weights}, nil
}

// WriteRandom writes the shape with random weights and a placeholder vocabulary, as
// a GGUF file. weightType is the mixture that the shape was opened with; progress
// is told the bytes written so far and in all, and stops the writing by an error.
func (m *Model) WriteRandom(out io.Writer, weightType string, seed uint64, progress func(done, total int64) error) error {
	if m.file == nil {
		return fmt.Errorf("%s: %w", m.name, errDefined)
	}
	return synth.Write(out, m.file, weightType, seed, progress)
}

// Float32 returns a weight in memory.
func Float32(values []float32, shape ...int) Tensor {
	raw := make([]byte, 0, 4*len(values))
	for _, x := range values {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(x))
	}
	return Tensor{DType: dtype.F32, Shape: shape, Data: raw}
}
