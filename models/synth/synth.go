// Package synth fills a shape with random weights, to measure the speed of a model that was
// never trained. Its output is meaningless.
//
// The weights have the magnitudes of trained ones. Matrices are normally distributed with a
// deviation of 1/√width, so that activations keep their magnitude from layer to layer without
// overflow or decay; norm gains are near one, and biases near zero. Tensors that the shape itself
// defines, such as the factors of RoPE, stay as they are.
//
//	m, err := checkpoint.Arch("qwen3-0.6b", "q4_k_m")
//	err = synth.Write(out, m, "q4_k_m", seed, nil)      // a file
//	tensors, err := synth.Tensors(ctx, m, seed)         // or in memory
//
// Quantizing every weight of a large model would take minutes. Instead a tensor is concatenated
// from a pool of runs, each quantized once: 4096 runs of 256 elements, which are whole blocks of
// any format. The bytes of a tensor depend only on the seed, its index in the list, its shape and
// its type; the same seed gives the same file on every machine.
package synth

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/models/checkpoint"
	"github.com/smelt-ml/smelt/models/gguf"
	"github.com/smelt-ml/smelt/models/quant"
)

const (
	synthRun   = 256  // elements of a run, whole blocks of any format
	synthRuns  = 4096 // runs in the pool
	synthChunk = 1 << 20
	normSpread = 0.1 // deviation of the weights of norms
	biasSpread = 0.3 // deviation of biases
)

// synthesiser generates the weights of one seed.
type synthesiser struct {
	seed   uint64
	normal []float32
	pools  map[poolKey][]byte
}

// poolKey identifies a pool of runs: width is that of the rows, 0 for vectors.
type poolKey struct {
	dtype dtype.Type
	width int
	bias  bool
	decay bool
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
func (s *synthesiser) pool(t *checkpoint.Tensor) ([]byte, error) {
	key := poolKey{dtype: t.DType}
	mean, scale := float32(1), float32(normSpread)
	switch {
	case strings.HasSuffix(t.Name, ".bias"):
		key.bias, mean, scale = true, 0, biasSpread
	case strings.HasSuffix(t.Name, ".ssm_a"): // negative, so that the recurrent state decays
		key.decay, mean = true, -1
	case strings.HasSuffix(t.Name, ".ssm_d") || strings.HasSuffix(t.Name, ".ssm_norm.weight"):
	case len(t.Shape) > 1:
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
			errs[w] = quant.Quantize(pool[t.DType.Bytes(int64(first)):t.DType.Bytes(int64(end))], values, t.DType)
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	s.pools[key] = pool
	return pool, nil
}

// tensor generates a tensor and passes it to emit in order, piece by piece.
func (s *synthesiser) tensor(t *checkpoint.Tensor, index int, emit func([]byte) error) error {
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

// ErrShape is wrapped if the model is not a shape, or a type can be read but not generated.
var ErrShape = errors.New("no random weights can be made")

// Bytes returns the size of a shape's weights, or the reason why they cannot be generated.
func Bytes(m *checkpoint.Checkpoint) (int64, error) {
	if m.HasWeights() {
		return 0, fmt.Errorf("%s: %w: it has weights", m.Path, ErrShape)
	}
	var need int64
	for _, t := range m.Tensors() {
		if !quant.CanQuantize(t.DType) {
			return 0, fmt.Errorf("tensor %q: %w of type %s", t.Name, ErrShape, t.DType)
		}
		need += t.Bytes()
	}
	return need, nil
}

// Tensors returns a shape's tensors with random weights in memory.
func Tensors(ctx context.Context, m *checkpoint.Checkpoint, seed uint64) ([]checkpoint.Tensor, error) {
	if _, err := Bytes(m); err != nil {
		return nil, err
	}
	s := newSynthesiser(seed)
	out := slices.Clone(m.Tensors())
	for i := range out {
		t := &out[i]
		data := make([]byte, 0, t.Bytes())
		if err := s.tensor(t, i, func(part []byte) error { data = append(data, part...); return ctx.Err() }); err != nil {
			return nil, err
		}
		t.Data = data
	}
	return out, nil
}

// Write writes a shape with random weights and a placeholder vocabulary, as a GGUF file. weightType
// is the mixture that the shape was opened with. progress is called with the bytes written so far
// and in all; its error stops the writing.
func Write(out io.Writer, m *checkpoint.Checkpoint, weightType string, seed uint64, progress func(done, total int64) error) error {
	total, err := Bytes(m)
	if err != nil {
		return err
	}
	metadata, tensors, err := m.Rewrite(weightType)
	if err != nil {
		return err
	}
	s := newSynthesiser(seed)
	sources := make([]gguf.TensorWriter, len(tensors))
	var done int64
	for i := range tensors {
		t := tensors[i].From[0]
		if sources[i], err = tensors[i].Writer(func(w io.Writer) error {
			return s.tensor(t, i, func(part []byte) error {
				n, err := w.Write(part)
				if done += int64(n); err == nil && progress != nil {
					err = progress(done, total)
				}
				return err
			})
		}); err != nil {
			return err
		}
	}
	return gguf.Write(out, metadata, sources)
}
