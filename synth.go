package smelt

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/internal/quant"
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/metal"
	"github.com/smelt-ml/smelt/models"
	"github.com/smelt-ml/smelt/models/gguf"
)

// Random weights: matrices are normal with a deviation of 1/√width, so that
// activations keep their size; vectors, which are the weights of norms, are near
// one. Tensors are strung together from the runs of a pool, each run quantised
// once: quantising every weight of a large model would take minutes.
const (
	synthRun   = 256  // elements of a run, whole blocks of any format
	synthRuns  = 4096 // runs in the pool
	synthChunk = 1 << 20
	normSpread = 0.1
)

// synthesiser makes the weights of one seed. The bytes of a tensor depend on the
// seed, its place in the list, its shape and its type.
type synthesiser struct {
	seed   uint64
	normal []float32
	pools  map[poolKey][]byte
}

// poolKey tells pools of runs apart: width is that of the rows, 0 for vectors.
type poolKey struct {
	dtype ir.DType
	width int
}

func newSynthesiser(seed uint64) *synthesiser {
	s := &synthesiser{seed: seed, normal: make([]float32, synthRuns*synthRun), pools: make(map[poolKey][]byte)}
	rng := rand.New(rand.NewPCG(seed, 0))
	for i := range s.normal {
		s.normal[i] = float32(rng.NormFloat64())
	}
	return s
}

// pool returns the runs for a tensor.
func (s *synthesiser) pool(t *models.Tensor) ([]byte, error) {
	key := poolKey{dtype: t.DType}
	mean, scale := float32(1), float32(normSpread)
	if len(t.Shape) > 1 {
		key.width = t.Shape[len(t.Shape)-1]
		mean, scale = 0, float32(1/math.Sqrt(float64(key.width)))
	}
	if pool, ok := s.pools[key]; ok {
		return pool, nil
	}
	pool := make([]byte, t.DType.Bytes(int64(len(s.normal))))
	workers := runtime.GOMAXPROCS(0)
	errs := make([]error, workers)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			first, end := w*synthRuns/workers*synthRun, (w+1)*synthRuns/workers*synthRun
			values := make([]float32, end-first)
			for i := range values {
				values[i] = mean + scale*s.normal[first+i]
			}
			errs[w] = quant.Quantise(pool[t.DType.Bytes(int64(first)):t.DType.Bytes(int64(end))], values, t.DType)
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	s.pools[key] = pool
	return pool, nil
}

// tensor makes a whole tensor and hands it to emit in stretches, in order.
func (s *synthesiser) tensor(t *models.Tensor, index int, emit func([]byte) error) error {
	if t.Data != nil { // a table that the shape defines, such as RoPE factors
		return emit(t.Data)
	}
	pool, err := s.pool(t)
	if err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(s.seed, uint64(index)+1))
	run := int(t.DType.Bytes(synthRun))
	var chunk []byte
	for left := int(t.Bytes()); left > 0; left -= len(chunk) {
		chunk = chunk[:0]
		for len(chunk) < min(left, synthChunk) {
			at := rng.IntN(synthRuns) * run
			chunk = append(chunk, pool[at:at+min(run, left-len(chunk))]...)
		}
		if err := emit(chunk); err != nil {
			return err
		}
	}
	return nil
}

func (m *Model) canRandomise() error {
	if m.file == nil || m.HasWeights() {
		return fmt.Errorf("%s is not a shape without weights", m.name)
	}
	for _, t := range m.file.Tensors() {
		if !quant.CanQuantise(t.DType) {
			return fmt.Errorf("tensor %q: weights of type %s can be read, but not made yet", t.Name, t.DType)
		}
	}
	return nil
}

// Randomise returns the shape with random weights in memory, to be measured.
func (m *Model) Randomise(ctx context.Context, seed uint64) (*Model, error) {
	if err := m.canRandomise(); err != nil {
		return nil, err
	}
	var need int64
	for _, t := range m.file.Tensors() {
		need += t.Bytes()
	}
	if have := metal.AvailableMemory(); need > have {
		return nil, fmt.Errorf("%w: random weights for %s take %s, %s is available", metal.ErrMemory, archPrefix+m.name, metal.FormatBytes(need), metal.FormatBytes(have))
	}
	s := newSynthesiser(seed)
	weights := make(Tensors)
	for i, t := range m.file.Tensors() {
		data := make([]byte, 0, t.Bytes())
		if err := s.tensor(&t, i, func(part []byte) error { data = append(data, part...); return ctx.Err() }); err != nil {
			return nil, err
		}
		weights[t.Name] = Tensor{DType: t.DType, Shape: t.Shape, Data: data}
	}
	return &Model{name: m.name, path: m.path, context: m.context, build: m.build, file: m.file, weights: weights}, nil
}

// WriteRandom writes the shape with random weights and a placeholder vocabulary, as
// a GGUF file. weightType is the mixture that the shape was opened with; progress
// is told the bytes written so far and in all, and stops the writing by an error.
func (m *Model) WriteRandom(out io.Writer, weightType string, seed uint64, progress func(done, total int64) error) error {
	if err := m.canRandomise(); err != nil {
		return err
	}
	metadata, _, err := m.file.Rewrite(weightType)
	if err != nil {
		return err
	}
	s := newSynthesiser(seed)
	var sources []gguf.Source
	var done, total int64
	for i, t := range m.file.Tensors() {
		total += t.Bytes()
		typ, ok := gguf.TypeOf(t.DType)
		if !ok {
			return fmt.Errorf("tensor %q: GGUF has no type %s", t.Name, t.DType)
		}
		sources = append(sources, gguf.Source{Name: t.Name, Type: typ, Shape: extents(t.Shape), Write: func(w io.Writer) error {
			return s.tensor(&t, i, func(part []byte) error {
				n, err := w.Write(part)
				if done += int64(n); err == nil && progress != nil {
					err = progress(done, total)
				}
				return err
			})
		}})
	}
	return gguf.Write(out, metadata, sources)
}

// extents is a shape as package gguf has it.
func extents(shape []int) []int64 {
	return lo.Map(shape, func(n, _ int) int64 { return int64(n) })
}

// floats returns the bytes of float32 values, for weights made in Go.
func floats(values []float32) []byte {
	raw := make([]byte, 0, 4*len(values))
	for _, x := range values {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(x))
	}
	return raw
}

// Float32 returns a weight in memory.
func Float32(values []float32, shape ...int) Tensor {
	return Tensor{DType: ir.F32, Shape: shape, Data: floats(values)}
}
