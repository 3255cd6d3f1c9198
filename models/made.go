package models

import (
	"fmt"
	"slices"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/internal/quant"
	"github.com/smelt-ml/smelt/ir/dtype"
)

// source is a tensor of a layer in GGUF files whose rows lie otherwise than in the weights that a
// definition asks for. Unlike the parts of a join they are copied, unless they follow each other.
type source struct {
	role  string // "attn_kv_b.weight"
	shape []int
	makes []made
}

// made is a weight of a definition, [rows, K], made of a source.
type made struct {
	role string
	rows int
	row  func(i int) int // which row of the source is row i, counted over all its matrices; −1: zeros
	// turned says that each matrix of the source is transposed. Of blocks, which lie along rows,
	// that makes halves.
	turned bool
}

// sources lists those of the family's files, by role; nil where there are none.
func (f *Family) sources(c *Config) map[string]source {
	if f.Sources == nil {
		return nil
	}
	return lo.KeyBy(f.Sources(c), func(s source) string { return s.role })
}

// sourceOf returns the source that a tensor of that name is, in one of so many layers.
func sourceOf(sources map[string]source, name string, layers int) (source, bool) {
	s, ok := sources[role(name)]
	i := layerOf(name)
	return s, ok && i >= 0 && i < layers && name == inLayerOf(i, s.role)
}

func inLayerOf(layer int, role string) string { return fmt.Sprintf("blk.%d.%s", layer, role) }

// name is what the weight is called that is made of a tensor.
func (m *made) name(from string) string { return inLayerOf(layerOf(from), m.role) }

// unmake replaces weights of a definition by what they are made of in GGUF files.
func (f *Family) unmake(c *Config, mix *mixture, weights []Tensor) []Tensor {
	from := make(map[string]source)
	for _, s := range f.sources(c) {
		for _, m := range s.makes {
			from[m.role] = s
		}
	}
	var out []Tensor
	for _, w := range weights {
		s, ok := from[role(w.Name)]
		if !ok {
			out = append(out, w)
			continue
		}
		w.Name, w.Shape = inLayerOf(layerOf(w.Name), s.role), s.shape
		if slices.ContainsFunc(out, func(t Tensor) bool { return t.Name == w.Name }) {
			continue
		}
		w.DType = mix.dtype(w.Name, layerOf(w.Name), w.Shape, c)
		w.Stored = w.DType.String()
		out = append(out, w)
	}
	return out
}

// make makes the weights of a tensor. Where that has no data, neither have they.
func (s *source) make(t *Tensor, memory *arena) ([]Tensor, error) {
	if !slices.Equal(t.Shape, s.shape) {
		return nil, configError("tensor %q is %v, want %v", t.Name, t.Shape, s.shape)
	}
	out := make([]Tensor, len(s.makes))
	for i, m := range s.makes {
		from := *t
		if m.turned {
			var err error
			if from, err = turned(t); err != nil {
				return nil, err
			}
		}
		w, err := m.of(&from, memory)
		if err != nil {
			return nil, err
		}
		w.Name = m.name(t.Name)
		out[i] = w
	}
	return out, nil
}

func (m *made) of(t *Tensor, memory *arena) (Tensor, error) {
	w, k := *t, t.Shape[len(t.Shape)-1]
	w.Shape = []int{m.rows, k}
	if t.Data == nil || !readable(t.DType) {
		return w, nil
	}
	size := int(t.DType.Bytes(int64(k)))
	first := m.row(0)
	if m.follow(first) {
		w.Offset += int64(first * size)
		w.Data = t.Data[first*size:][:m.rows*size]
		return w, nil
	}
	data, err := memory.take(w.Bytes())
	if err != nil {
		return w, fmt.Errorf("tensor %q: %w", t.Name, err)
	}
	for i := range m.rows {
		if from := m.row(i); from >= 0 {
			copy(data[i*size:][:size], t.Data[from*size:])
		}
	}
	w.File, w.Offset, w.Data = "", 0, data
	return w, nil
}

// follow reports whether the rows are those from first on.
func (m *made) follow(first int) bool {
	for i := range m.rows {
		if m.row(i) != first+i {
			return false
		}
	}
	return first >= 0
}

// turned transposes each matrix of a stack.
func turned(t *Tensor) (Tensor, error) {
	out := *t
	n, rows, k := t.Shape[0], t.Shape[1], t.Shape[2]
	out.Shape = []int{n, k, rows}
	if t.DType.IsQuantized() {
		out.DType, out.Stored = dtype.F16, dtype.F16.String()
	}
	if t.Data == nil || !readable(t.DType) {
		return out, nil
	}
	out.File, out.Offset, out.Data = "", 0, make([]byte, out.Bytes())
	before, after := len(t.Data)/n, len(out.Data)/n
	return out, inParallel(n, func(i int) error {
		wide, across := make([]float32, rows*k), make([]float32, rows*k)
		if err := quant.Dequantize(wide, t.Data[i*before:][:before], t.DType); err != nil {
			return fmt.Errorf("tensor %q: %w", t.Name, err)
		}
		for r := range rows {
			for c := range k {
				across[c*rows+r] = wide[r*k+c]
			}
		}
		return quant.Quantize(out.Data[i*after:][:after], across, out.DType)
	})
}
