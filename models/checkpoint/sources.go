package checkpoint

import (
	"fmt"
	"slices"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/models"
	"github.com/smelt-ml/smelt/models/quant"
)

// sourcesOf returns the sources of the family's files by role; nil: none.
func sourcesOf(f *models.Family, c *models.Config) map[string]models.Source {
	if f.Sources == nil {
		return nil
	}
	return lo.KeyBy(f.Sources(c), func(s models.Source) string { return s.Role })
}

// sourceOf returns the source of that name, in one of the given number of layers.
func sourceOf(sources map[string]models.Source, name string, layers int) (models.Source, bool) {
	s, ok := sources[role(name)]
	i := layerOf(name)
	return s, ok && i >= 0 && i < layers && name == inLayerOf(i, s.Role)
}

// madeName returns the name of a weight derived from the tensor `from`.
func madeName(m *models.Made, from string) string { return inLayerOf(layerOf(from), m.Role) }

// unmake replaces weights of a definition by the sources that GGUF files have.
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

// remade derives the weights of the family's sources.
func remade(f *models.Family, c *models.Config) rule {
	return func(tensors []Tensor, emit func(Derivation) error) error {
		sources := sourcesOf(f, c)
		for i := range tensors {
			t := &tensors[i]
			s, ok := sourceOf(sources, t.Name, c.Layers)
			if !ok {
				continue
			}
			if !slices.Equal(t.Shape, s.Shape) {
				return models.ConfigError("tensor %q is %v, want %v", t.Name, t.Shape, s.Shape)
			}
			for _, m := range s.Makes {
				if err := emit(madeOf(&m, t)); err != nil {
					return err
				}
			}
		}
		return nil
	}
}

// madeOf derives a weight from its source.
func madeOf(m *models.Made, t *Tensor) Derivation {
	k, w := t.Shape[len(t.Shape)-1], Tensor{Name: madeName(m, t.Name), DType: t.DType, Stored: t.Stored}
	steps := []string{"rows reordered"}
	rows := m.Rows / max(m.Stack, 1)
	if m.Turned {
		steps = append(steps, "transposed")
		if t.DType.IsQuantized() {
			w.DType, w.Stored = dtype.F16, dtype.F16.String()
		}
	}
	if slices.ContainsFunc(lo.Range(m.Rows), func(i int) bool { return m.Row(i) < 0 }) {
		steps = append(steps, "zeros between")
	}
	w.Shape = []int{rows, k}
	if m.Turned {
		w.Shape = []int{k, rows}
	}
	if m.Stack > 0 {
		w.Shape = append([]int{m.Stack}, w.Shape...)
	}
	d := Derivation{Way: Made, From: []Tensor{*t}, Steps: steps, to: w}
	if !readable(t.DType) { // Build reports it
		d.bytes = int64(len(t.Data))
		return d
	}
	size := int(t.DType.Bytes(int64(k)))
	if first := m.Row(0); !m.Turned && follow(m, first) {
		d.Way, d.Steps = Parted, []string{rowsText(first, m.Rows)}
		d.at, d.bytes = int64(first*size), int64(m.Rows*size)
		return d
	}
	d.fill = func(out []byte) error {
		to := out
		if m.Turned {
			to = make([]byte, m.Rows*size)
		}
		for i := range m.Rows {
			if from := m.Row(i); from >= 0 {
				copy(to[i*size:][:size], t.Data[from*size:])
			}
		}
		if !m.Turned {
			return nil
		}
		if err := turn(out, w.DType, to, t.DType, max(m.Stack, 1), rows, k); err != nil {
			return fmt.Errorf("tensor %q: %w", t.Name, err)
		}
		return nil
	}
	return d
}

// follow reports whether the source's rows are contiguous from first on.
func follow(m *models.Made, first int) bool {
	for i := range m.Rows {
		if m.Row(i) != first+i {
			return false
		}
	}
	return first >= 0
}

// turn transposes each of n matrices, [rows, k] of one type, to [k, rows] of another.
func turn(out []byte, as dtype.Type, data []byte, is dtype.Type, n, rows, k int) error {
	before, after := len(data)/n, len(out)/n
	return inParallel(n, func(i int) error {
		wide, across := make([]float32, rows*k), make([]float32, rows*k)
		if err := quant.Dequantize(wide, data[i*before:][:before], is); err != nil {
			return err
		}
		for r := range rows {
			for c := range k {
				across[c*rows+r] = wide[r*k+c]
			}
		}
		return quant.Quantize(out[i*after:][:after], across, as)
	})
}
