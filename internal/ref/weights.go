package ref

import (
	"fmt"
	"sync"

	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/models/quant"
)

// Weights dequantizes the tensors of a model at their first use and keeps them. Its Load is an
// [Env.Weight].
type Weights struct {
	source func(name string) (t dtype.Type, data []byte, ok bool)
	mu     sync.Mutex
	kept   map[string][]float64
}

// NewWeights returns the weights of source, which returns stored tensors.
func NewWeights(source func(name string) (t dtype.Type, data []byte, ok bool)) *Weights {
	return &Weights{source: source, kept: make(map[string][]float64)}
}

// Load returns the elements of a tensor.
func (w *Weights) Load(name string) ([]float64, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if x, ok := w.kept[name]; ok {
		return x, nil
	}
	t, data, ok := w.source(name)
	if !ok {
		return nil, fmt.Errorf("there is no weight %q", name)
	}
	if t == dtype.Invalid || t.BlockBytes() == 0 {
		return nil, fmt.Errorf("weight %q has element type %s", name, t)
	}
	narrow := make([]float32, len(data)/t.BlockBytes()*t.BlockElems())
	if err := quant.Dequantize(narrow, data, t); err != nil {
		return nil, fmt.Errorf("weight %q: %w", name, err)
	}
	w.kept[name] = widen(narrow)
	return w.kept[name], nil
}

// Of returns an [Env.Weight] for weights held as float32.
func Of(weights map[string][]float32) func(name string) ([]float64, error) {
	return func(name string) ([]float64, error) {
		x, ok := weights[name]
		if !ok {
			return nil, fmt.Errorf("there is no weight %q", name)
		}
		return widen(x), nil
	}
}

func widen(x []float32) []float64 {
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = float64(v)
	}
	return out
}
