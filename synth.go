package smelt

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"

	"github.com/smelt-ml/smelt/internal/quant"
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/models"
	"github.com/smelt-ml/smelt/models/gguf"
	"github.com/smelt-ml/smelt/models/tokenizer"
)

// Random weights: matrices are normal with a deviation of 1/√width, so that
// activations keep their size; vectors, which are the weights of norms, are near
// one.
const (
	synthChunk = 1 << 16 // elements that one call makes, whole rows of any block format
	synthPool  = 1 << 16 // normal values that all weights are drawn from
	normSpread = 0.1
)

// synthesiser makes the weights of one seed. The bytes of a tensor depend on the
// seed, its place in the list and its type, not on how many threads make them.
type synthesiser struct {
	seed uint64
	pool []float32
}

func newSynthesiser(seed uint64) *synthesiser {
	s := &synthesiser{seed: seed, pool: make([]float32, synthPool+quantRun)}
	rng := rand.New(rand.NewPCG(seed, 0))
	for i := range s.pool {
		s.pool[i] = float32(rng.NormFloat64())
	}
	return s
}

// quantRun is the run of values taken from the pool at one random place.
const quantRun = 256

// fill makes elements [start, start+n) of a tensor.
func (s *synthesiser) fill(dst []byte, t *models.Tensor, index int, start int64, values []float32) error {
	rng := rand.New(rand.NewPCG(s.seed, uint64(index)<<40|uint64(start)))
	mean, scale := float32(0), float32(1/math.Sqrt(float64(t.Shape[len(t.Shape)-1])))
	if len(t.Shape) == 1 {
		mean, scale = 1, normSpread
	}
	for i := 0; i < len(values); i += quantRun {
		at := int(rng.Uint64() % synthPool)
		for j := i; j < min(i+quantRun, len(values)); j++ {
			values[j] = mean + scale*s.pool[at+j-i]
		}
	}
	return quant.Quantise(dst, values, t.DType)
}

// tensor makes a whole tensor, on all cores, a stretch at a time, and hands the
// stretches to emit in order.
func (s *synthesiser) tensor(t *models.Tensor, index int, emit func([]byte) error) error {
	if t.Data != nil { // a table that the shape defines, such as RoPE factors
		return emit(t.Data)
	}
	workers := runtime.GOMAXPROCS(0)
	total := t.Elements()
	for start := int64(0); start < total; start += int64(workers) * synthChunk {
		parts := make([][]byte, workers)
		errs := make([]error, workers)
		var wg sync.WaitGroup
		for w := range workers {
			from := start + int64(w)*synthChunk
			if from >= total {
				break
			}
			wg.Go(func() {
				values := make([]float32, min(synthChunk, total-from))
				parts[w] = make([]byte, t.DType.Bytes(int64(len(values))))
				errs[w] = s.fill(parts[w], t, index, from, values)
			})
		}
		wg.Wait()
		for w, part := range parts {
			if errs[w] != nil {
				return fmt.Errorf("tensor %q: %w", t.Name, errs[w])
			}
			if part == nil {
				break
			}
			if err := emit(part); err != nil {
				return err
			}
		}
	}
	return nil
}

// Randomise returns the shape with random weights in memory, to be measured.
func (m *Model) Randomise(seed uint64) (*Model, error) {
	if m.file == nil || m.HasWeights() {
		return nil, fmt.Errorf("%s is not a shape without weights", m.name)
	}
	s := newSynthesiser(seed)
	weights := make(Tensors)
	for i, t := range m.file.Tensors() {
		data := make([]byte, 0, t.Bytes())
		if err := s.tensor(&t, i, func(part []byte) error { data = append(data, part...); return nil }); err != nil {
			return nil, err
		}
		weights[t.Name] = Tensor{DType: t.DType, Shape: t.Shape, Data: data}
	}
	r := *m
	r.weights = weights
	return &r, nil
}

// WriteRandom writes the shape with random weights and a placeholder vocabulary as
// a GGUF file. weightType is the mixture that the shape was opened with; progress
// is told the bytes written so far and in all, and stops the writing by an error.
func (m *Model) WriteRandom(path, weightType string, seed uint64, progress func(done, total int64) error) error {
	if m.file == nil || m.HasWeights() {
		return fmt.Errorf("%s is not a shape without weights", m.name)
	}
	metadata, err := m.metadata(weightType)
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
		shape := make([]int64, len(t.Shape))
		for k, n := range t.Shape {
			shape[k] = int64(n)
		}
		sources = append(sources, gguf.Source{Name: t.Name, Type: typ, Shape: shape, Write: func(w io.Writer) error {
			return s.tensor(&t, i, func(part []byte) error {
				n, err := w.Write(part)
				if done += int64(n); err == nil && progress != nil {
					err = progress(done, total)
				}
				return err
			})
		}})
	}
	return gguf.WriteFile(path, metadata, sources)
}

// metadata describes the shape, its type and a vocabulary of the right size.
func (m *Model) metadata(weightType string) ([]gguf.KV, error) {
	c := m.file.Config
	fileType, err := models.FileType(weightType)
	if err != nil {
		return nil, err
	}
	list := append(c.Metadata(),
		gguf.KV{Key: "general.file_type", Value: gguf.Uint32(fileType)},
		gguf.KV{Key: "general.quantization_version", Value: gguf.Uint32(quantVersion)})
	vocabulary, err := tokenizer.Placeholder(c.Vocab)
	if err != nil {
		return nil, err
	}
	entries, err := vocabulary.Metadata()
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		v, err := ggufValue(e.Value)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", e.Key, err)
		}
		list = append(list, gguf.KV{Key: e.Key, Value: v})
	}
	return list, nil
}

// quantVersion is GGUF's number for today's block formats.
const quantVersion = 2

func ggufValue(v any) (gguf.Value, error) {
	switch v := v.(type) {
	case string:
		return gguf.String(v), nil
	case bool:
		return gguf.Bool(v), nil
	case uint32:
		return gguf.Uint32(v), nil
	case []string:
		return gguf.StringArray(v), nil
	case []int32:
		return gguf.Int32Array(v), nil
	case []float32:
		return gguf.Float32Array(v), nil
	}
	return gguf.Value{}, fmt.Errorf("no metadata value is a %T", v)
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
