package checkpoint

import (
	"fmt"
	"slices"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/internal/quant"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/models"
)

// sourcesOf lists those of the family's files, by role; nil where there are none.
func sourcesOf(f *models.Family, c *models.Config) map[string]models.Source {
	if f.Sources == nil {
		return nil
	}
	return lo.KeyBy(f.Sources(c), func(s models.Source) string { return s.Role })
}

// sourceOf returns the source that a tensor of that name is, in one of so many layers.
func sourceOf(sources map[string]models.Source, name string, layers int) (models.Source, bool) {
	s, ok := sources[role(name)]
	i := layerOf(name)
	return s, ok && i >= 0 && i < layers && name == inLayerOf(i, s.Role)
}

func inLayerOf(layer int, role string) string { return fmt.Sprintf("blk.%d.%s", layer, role) }

// madeName is what the weight is called that is made of a tensor.
func madeName(m *models.Made, from string) string { return inLayerOf(layerOf(from), m.Role) }

// unmake replaces weights of a definition by what they are made of in GGUF files.
func unmake(f *models.Family, c *models.Config, mix *mixture, weights []Tensor) []Tensor {
	from := make(map[string]models.Source)
	for _, s := range sourcesOf(f, c) {
		for _, m := range s.Makes {
			from[m.Role] = s
		}
	}
	var out []Tensor
	for _, w := range weights {
		s, ok := from[role(w.Name)]
		if !ok {
			out = append(out, w)
			continue
		}
		w.Name, w.Shape = inLayerOf(layerOf(w.Name), s.Role), s.Shape
		if slices.ContainsFunc(out, func(t Tensor) bool { return t.Name == w.Name }) {
			continue
		}
		w.DType = mix.dtype(w.Name, layerOf(w.Name), w.Shape, c)
		w.Stored = w.DType.String()
		out = append(out, w)
	}
	return out
}

// makeOf makes the weights of a tensor. Where that has no data, neither have they.
func makeOf(s *models.Source, t *Tensor, memory *arena) ([]Tensor, error) {
	if !slices.Equal(t.Shape, s.Shape) {
		return nil, models.ConfigError("tensor %q is %v, want %v", t.Name, t.Shape, s.Shape)
	}
	out := make([]Tensor, len(s.Makes))
	for i, m := range s.Makes {
		from := *t
		if m.Turned {
			var err error
			if from, err = turned(t); err != nil {
				return nil, err
			}
		}
		w, err := madeOf(&m, &from, memory)
		if err != nil {
			return nil, err
		}
		w.Name = madeName(&m, t.Name)
		out[i] = w
	}
	return out, nil
}

func madeOf(m *models.Made, t *Tensor, memory *arena) (Tensor, error) {
	w, k := *t, t.Shape[len(t.Shape)-1]
	w.Shape = []int{m.Rows, k}
	if t.Data == nil || !readable(t.DType) {
		return w, nil
	}
	size := int(t.DType.Bytes(int64(k)))
	first := m.Row(0)
	if follow(m, first) {
		w.Offset += int64(first * size)
		w.Data = t.Data[first*size:][:m.Rows*size]
		return w, nil
	}
	data, err := memory.take(w.Bytes())
	if err != nil {
		return w, fmt.Errorf("tensor %q: %w", t.Name, err)
	}
	for i := range m.Rows {
		if from := m.Row(i); from >= 0 {
			copy(data[i*size:][:size], t.Data[from*size:])
		}
	}
	w.File, w.Offset, w.Data = "", 0, data
	return w, nil
}

// follow reports whether the rows are those from first on.
func follow(m *models.Made, first int) bool {
	for i := range m.Rows {
		if m.Row(i) != first+i {
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
