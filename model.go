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

// Weights is where a model's tensors come from. A model file is one; [Tensors]
// is one in memory.
type Weights interface {
	ir.Weights
	// Data returns a tensor as it is stored: rows of GGUF blocks, little endian. It
	// is read as long as a Session that uses it is open.
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

// Model is a graph definition and its weights: what Compile starts from.
type Model struct {
	name    string
	path    string // of the file or folder; "" for others
	context int    // tokens the model was trained to see; 0 if unknown
	bounded bool   // and no more: positions beyond have no embedding
	build   func(ir.Options) (*ir.Func, error)
	weights Weights                // nil for a shape without weights
	file    *checkpoint.Checkpoint // nil for a model defined in Go

	mu     sync.Mutex
	users  int // programs that are loaded
	closed bool
}

// ErrClosed is wrapped where something is used after its Close.
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
			_ = m.release() // nobody is left to tell
		}
	}, nil
}

// Open reads a model: a .gguf file, a folder with config.json and safetensors, or
// arch:NAME, the shape of a known model without weights, whose tensors get the
// types of weights (a mixture such as "q4_0" or "q4_k_m"; "" means f16).
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

// Define returns a model that is defined in Go.
func Define(name string, weights Weights, define func(b *ir.Builder)) *Model {
	return &Model{
		name: name, weights: weights,
		build: func(opts ir.Options) (*ir.Func, error) { return ir.Build(name, weights, opts, define) },
	}
}

// Close releases the model's file, once nothing that was loaded from it is open.
// Further calls do nothing.
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

// Name returns a short name: that of the file, the shape or the definition.
func (m *Model) Name() string { return m.name }

// File returns what was read from the model's file, or nil for a model that is
// defined in Go.
func (m *Model) File() *checkpoint.Checkpoint { return m.file }

// Context returns how many tokens the model was trained to see, 0 if unknown.
func (m *Model) Context() int { return m.context }

// HasWeights tells a model that can run from a shape that can only be compiled.
func (m *Model) HasWeights() bool { return m.weights != nil }

// Tokenizer returns the model's tokenizer.
func (m *Model) Tokenizer() (*tokenizer.Tokenizer, error) {
	if m.file == nil {
		return nil, fmt.Errorf("%s: %w", m.name, checkpoint.ErrNoTokenizer)
	}
	return m.file.Tokenizer()
}

// Source builds the model's graph as its definition says it.
func (m *Model) Source(opts ir.Options) (*ir.Func, error) { return m.build(opts) }

// Weights returns where the model's tensors come from; nil for a shape without.
func (m *Model) Weights() Weights { return m.weights }

// ErrNoWeights is wrapped where a shape without weights is asked to run.
var ErrNoWeights = checkpoint.ErrNoWeights

// noWeights returns the error for a model without weights, which is a shape.
func (m *Model) noWeights() error {
	return fmt.Errorf("%s: %w", checkpoint.ArchPrefix+m.name, ErrNoWeights)
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

// Float32 returns a weight in memory.
func Float32(values []float32, shape ...int) Tensor {
	raw := make([]byte, 0, 4*len(values))
	for _, x := range values {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(x))
	}
	return Tensor{DType: dtype.F32, Shape: shape, Data: raw}
}
