package smelt

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"sync"

	"github.com/smelt-ml/smelt/device"
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/models/checkpoint"
	"github.com/smelt-ml/smelt/models/synth"
	"github.com/smelt-ml/smelt/models/tokenizer"
)

// Weights is a source of a model's tensors. A model file is one; [Tensors]
// is one in memory.
type Weights interface {
	ir.Weights
	// Data returns the stored bytes of a tensor: rows of GGUF blocks, little endian. They
	// must stay valid while a Session that uses them is open.
	Data(name string) (t dtype.Type, data []byte, ok bool)
}

// Tensor is a weight in memory.
type Tensor struct {
	DType dtype.Type
	Shape []int // outermost extent first
	Data  []byte
}

// Tensors are weights in memory, by name.
type Tensors map[string]Tensor

// Weight implements [ir.Weights].
func (t Tensors) Weight(name string, _ []int) (dtype.Type, []int, bool) {
	w, ok := t[name]
	return w.DType, w.Shape, ok
}

// Data implements [Weights].
func (t Tensors) Data(name string) (dtype.Type, []byte, bool) {
	w, ok := t[name]
	return w.DType, w.Data, ok
}

// Model is a graph definition with its weights.
type Model struct {
	name    string
	path    string // path of the file or folder, if any
	context int    // trained context in tokens; 0 if unknown
	bounded bool   // context is a hard limit: later positions have no embedding
	build   func(ir.Options) (*ir.Func, error)
	weights Weights                // nil for a shape without weights
	file    *checkpoint.Checkpoint // nil for a model defined in Go

	mu     sync.Mutex
	users  int // number of Loaded programs and running compilations
	closed bool
}

// ErrClosed is wrapped by errors about a use after Close.
var ErrClosed = device.ErrClosed

// use keeps the model's file open until release is called.
func (m *Model) use() (release func(), err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, fmt.Errorf("the model %s is %w", m.name, ErrClosed)
	}
	m.users++
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.users--
		if m.closed && m.users == 0 {
			_ = m.release() // Close has returned; no caller takes the error
		}
	}, nil
}

// Open opens a model: a .gguf file, a folder with config.json and safetensors, or
// arch:NAME, the shape of a known model without weights. The argument weights applies to
// arch:NAME only and sets the tensors' types: a mixture such as "q4_0" or "q4_k_m", "" for
// f16.
func Open(path, weights string) (*Model, error) {
	if name, ok := strings.CutPrefix(path, checkpoint.ArchPrefix); ok {
		file, err := checkpoint.Arch(name, cmp.Or(weights, "f16"))
		if err != nil {
			return nil, err
		}
		return fromFile(name, "", file), nil
	}
	file, err := checkpoint.Open(path)
	if err != nil {
		return nil, err
	}
	name := strings.TrimSuffix(filepath.Base(filepath.Clean(path)), filepath.Ext(path))
	return fromFile(name, path, file), nil
}

func fromFile(name, path string, file *checkpoint.Checkpoint) *Model {
	m := &Model{name: name, path: path, context: file.Config.Context, bounded: file.Config.Positions, build: file.Build, file: file}
	if file.HasWeights() {
		m.weights = file
	}
	return m
}

// Define returns a model defined in Go, with the given weights.
func Define(name string, weights Weights, define func(b *ir.Builder)) *Model {
	return &Model{
		name: name, weights: weights,
		build: func(opts ir.Options) (*ir.Func, error) { return ir.Build(name, weights, opts, define) },
	}
}

// Close releases the model's file, or defers that until every [Loaded] of the model is
// closed. Further calls do nothing.
func (m *Model) Close() error {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	already := m.closed
	m.closed = true
	if already || m.users > 0 {
		return nil
	}
	return m.release()
}

// release closes the model's file, and the random weights of a shape.
func (m *Model) release() error {
	if m.file == nil {
		return nil
	}
	if made, ok := m.weights.(*checkpoint.Checkpoint); ok && made != m.file {
		return errors.Join(made.Close(), m.file.Close())
	}
	return m.file.Close()
}

// Name returns a short name: that of the file without its extension, of the shape or of the
// definition.
func (m *Model) Name() string { return m.name }

// File returns the model's checkpoint, or nil for a model defined in Go.
func (m *Model) File() *checkpoint.Checkpoint { return m.file }

// intact returns the error of [checkpoint.Checkpoint.Intact], nil for a model defined in Go.
func (m *Model) intact() error {
	if m.file == nil {
		return nil
	}
	return m.file.Intact()
}

// Context returns the trained context in tokens, 0 if unknown.
func (m *Model) Context() int { return m.context }

// HasWeights reports whether the model has weights; a shape without weights can only be
// compiled.
func (m *Model) HasWeights() bool { return m.weights != nil }

// Tokenizer returns the model's tokenizer.
func (m *Model) Tokenizer() (*tokenizer.Tokenizer, error) {
	if m.file == nil {
		return nil, fmt.Errorf("%s: %w", m.name, checkpoint.ErrNoTokenizer)
	}
	return m.file.Tokenizer()
}

// Source builds the model's source graph, before any pass.
func (m *Model) Source(opts ir.Options) (*ir.Func, error) { return m.build(opts) }

// Weights returns the source of the model's tensors, nil for a shape without weights.
func (m *Model) Weights() Weights { return m.weights }

// ErrNoWeights is wrapped by errors about loading a shape without weights.
var ErrNoWeights = checkpoint.ErrNoWeights

// noWeights returns the error for a model without weights, which is a shape.
func (m *Model) noWeights() error {
	return fmt.Errorf("%s: %w", checkpoint.ArchPrefix+m.name, ErrNoWeights)
}

// errDefined is returned for a model without a known family.
var errDefined = errors.New("the model is defined in Go and no shape of a known family")

// Randomise returns the same shape with random weights in memory, for benchmarks.
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

// Float32 returns an F32 tensor of the given values.
func Float32(values []float32, shape ...int) Tensor {
	raw := make([]byte, 0, 4*len(values))
	for _, x := range values {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(x))
	}
	return Tensor{DType: dtype.F32, Shape: shape, Data: raw}
}
