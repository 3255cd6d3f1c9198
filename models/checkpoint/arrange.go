package checkpoint

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/models"
	"github.com/smelt-ml/smelt/models/quant"
)

// arrange derives the definition's weights from the tensors of a folder. Tensors that no weight
// uses keep their names.
func arrange(f *models.Family, c *models.Config) rule {
	return func(tensors []Tensor, emit func(Derivation) error) error {
		at := make(map[string]int, len(tensors))
		for i, t := range tensors {
			at[f.Bare(t.Name)] = i
		}
		var add func(name string, s models.Stored, layer int) error
		add = func(name string, s models.Stored, layer int) error {
			if s.When != nil && !s.When(c) {
				return nil
			}
			number := fmt.Sprint(layer)
			if s.Stacked() { // or of a [models.Stack]
				whole := strings.Replace(s.Names[0], ".%", "", 1)
				if _, ok := at[f.Bare(strings.ReplaceAll(whole, "#", number))]; ok {
					s = models.As(whole)
				}
			}
			var from []Tensor
			for _, n := range s.TensorNames(c) {
				i, ok := at[f.Bare(strings.ReplaceAll(n, "#", number))]
				switch {
				case !ok && s.Or != nil:
					return add(name, *s.Or, layer)
				case !ok:
					return nil // Build names the missing weights
				}
				from = append(from, tensors[i])
			}
			if len(from) == 0 { // a mixture's entry in a model without experts
				return nil
			}
			d, err := arranged(&s, c, from)
			if err != nil {
				return err
			}
			d.to.Name = strings.ReplaceAll(name, "#", number)
			return emit(d)
		}
		stored := f.Stored()
		for _, name := range slices.Sorted(maps.Keys(stored)) {
			if c.Classifier.Classes == 0 && slices.Contains(models.ClassifierTensors, name) {
				continue // the pooler of a model that embeds texts
			}
			layers := 1
			if strings.Contains(name, "#") {
				layers = c.Layers
			}
			for i := range layers {
				if err := add(name, stored[name], i); err != nil {
					return err
				}
			}
		}
		return nil
	}
}

// arranged derives a weight from the tensors that hold it.
func arranged(s *models.Stored, c *models.Config, from []Tensor) (Derivation, error) {
	t, parts := from[0], from
	if s.Times != nil && !slices.ContainsFunc(lo.Range(t.Shape[0]), func(row int) bool { return s.Times(c, row) != 1 }) {
		plain := *s
		plain.Times, s = nil, &plain
	}
	if s.Depthwise && len(t.Shape) == 3 && t.Shape[1] == 1 {
		t.Shape = []int{t.Shape[0], t.Shape[2]}
		parts = []Tensor{t}
	}
	d := Derivation{From: from, to: Tensor{DType: t.DType, Stored: t.Stored, Shape: t.Shape}}
	d.Way, d.Steps = stepsOf(s, c)
	if s.Whole() {
		d.bytes = int64(len(t.Data))
		return d, nil
	}
	rows, err := rowsFor(s, c, parts, &d.to)
	if err != nil {
		return d, err
	}
	if data, ok := contiguous(rows); ok && !s.Changes() {
		d.bytes = int64(len(data))
		if len(rows) > 0 { // a row's data extends to the tensor's end
			d.at = int64(len(t.Data) - len(rows[0].data))
		}
		return d, nil
	}
	if s.Value != nil {
		d.to.DType, d.to.Stored = dtype.F32, dtype.F32.String()
	}
	d.fill = func(out []byte) error {
		for i, r := range rows {
			if !s.Changes() {
				out = out[r.copyTo(out):]
				continue
			}
			elements, err := changed(s, c, &t, r, i)
			if err != nil {
				return err
			}
			out = out[copy(out, elements):]
		}
		return nil
	}
	return d, nil
}

// stepsOf returns how a weight is derived from its tensors, for [Tensor.History].
func stepsOf(s *models.Stored, c *models.Config) (way Way, steps []string) {
	way = Stored
	for _, step := range []struct {
		done bool
		way  Way
		text string
	}{
		{len(s.Names) > 1 || s.Stacked(), Joined, lo.Ternary(s.Stacked(), "a stack", "")}, {s.Rows != nil, Parted, ""},
		{s.Order != nil, Made, "rows reordered"}, {s.Columns != nil, Made, "columns reordered"},
		{s.Transposed, Made, "transposed"}, {s.Value != nil, Made, "each element computed"}, {s.Times != nil, Made, "multiplied"},
	} {
		if step.done {
			way, steps = step.way, append(steps, step.text)
		}
	}
	if s.Rows != nil {
		steps = append(steps, rowsText(s.Rows(c)))
	}
	return way, lo.Compact(steps)
}

// rowsFor returns the stored rows of a weight, in the weight's order, and sets its shape.
func rowsFor(s *models.Stored, c *models.Config, parts []Tensor, to *Tensor) ([]row, error) {
	t := parts[0]
	for _, p := range parts {
		switch {
		case !p.DType.IsFloat() && (!p.DType.IsQuantized() || s.Transposed || s.Changes()):
			return nil, models.ConfigError("tensor %q is %s: only floats can be rearranged", p.Name, p.Stored)
		case p.DType != t.DType:
			return nil, models.ConfigError("tensors %q and %q, of one weight, are %s and %s", t.Name, p.Name, t.Stored, p.Stored)
		case len(p.Shape) != len(t.Shape) || len(p.Shape) < 1 || len(p.Shape) > 2 || s.Transposed && len(p.Shape) != 2:
			return nil, models.ConfigError("tensor %q is %v", p.Name, p.Shape)
		case s.Stacked() && !slices.Equal(p.Shape, t.Shape):
			return nil, models.ConfigError("tensors %q and %q, of one stack, are %v and %v", t.Name, p.Name, t.Shape, p.Shape)
		}
	}
	var rows []row
	width := 0
	for _, p := range parts {
		w, r := rowsOf(p, s.Transposed)
		if width != 0 && w != width {
			return nil, models.ConfigError("tensors %q and %q, of one weight, have rows of %d and %d elements", t.Name, p.Name, width, w)
		}
		width, rows = w, append(rows, r...)
	}
	if s.Order != nil {
		ordered := make([]row, len(rows))
		for i := range rows {
			from := s.Order(c, i)
			if from < 0 || from >= len(rows) {
				return nil, models.ConfigError("tensor %q has %d rows, too few for the model's heads", t.Name, len(rows))
			}
			ordered[i] = rows[from]
		}
		rows = ordered
	}
	if s.Rows != nil {
		first, n := s.Rows(c)
		if n < 0 {
			n = max(len(rows)-first, 0)
		}
		if first < 0 || n < 0 || first+n > len(rows) {
			return nil, models.ConfigError("tensor %q has %d rows, not %d", t.Name, len(rows), first+n)
		}
		rows = rows[first : first+n]
	}
	to.Shape = append([]int{len(rows)}, t.Shape[1:]...)
	if len(to.Shape) == 2 {
		to.Shape[1] = width
	}
	if s.Stacked() {
		to.Shape = append([]int{len(parts), len(rows) / len(parts)}, to.Shape[1:]...)
	}
	return rows, nil
}

// changed returns row i with its elements permuted, mapped or multiplied. Mapped values are F32, in which
// adding one is exact for most gains.
func changed(s *models.Stored, c *models.Config, t *Tensor, r row, i int) (elements []byte, err error) {
	elements = make([]byte, r.bytes())
	r.copyTo(elements)
	if s.Columns != nil {
		if elements, err = permuted(elements, r.size, func(i int) int { return s.Columns(c, i) }); err != nil {
			return nil, models.ConfigError("tensor %q has %d columns, too few for the model's heads", t.Name, r.n)
		}
	}
	switch {
	case s.Value != nil:
		elements, err = valued(elements, t.DType, dtype.F32, s.Value)
	case s.Times != nil:
		by := s.Times(c, i)
		elements, err = valued(elements, t.DType, t.DType, func(x float32) float32 { return float32(float64(x) * by) })
	}
	if err != nil {
		return nil, fmt.Errorf("tensor %q: %w", t.Name, err)
	}
	return elements, nil
}

// permuted returns the row with element from(i), of size bytes, at place i.
func permuted(row []byte, size int, from func(i int) int) ([]byte, error) {
	out := make([]byte, 0, len(row))
	for i := range len(row) / size {
		at := from(i)
		if at < 0 || at >= len(row)/size {
			return nil, fmt.Errorf("element %d is outside rows of %d", at, len(row)/size)
		}
		out = append(out, row[at*size:][:size]...)
	}
	return out, nil
}

// valued maps each element, as F32, and returns them in a type.
func valued(row []byte, stored, to dtype.Type, value func(float32) float32) ([]byte, error) {
	wide := make([]float32, len(row)/int(stored.Bytes(1)))
	if err := quant.Dequantize(wide, row, stored); err != nil {
		return nil, err
	}
	for i, x := range wide {
		wide[i] = value(x)
	}
	out := make([]byte, to.Bytes(int64(len(wide))))
	return out, quant.Quantize(out, wide, to)
}

// row is a stored row of a weight: elements of `size` bytes, `step` bytes apart.
type row struct {
	data       []byte // begins with its first element
	n          int
	size, step int
}

func (r row) bytes() int { return r.n * r.size }

func (r row) copyTo(out []byte) int {
	if r.step == r.size {
		return copy(out, r.data[:r.bytes()])
	}
	for i := range r.n {
		copy(out[i*r.size:], r.data[i*r.step:][:r.size])
	}
	return r.bytes()
}

// rowsOf splits a tensor into rows of `width` elements, transposed if so stored. Tensors of block
// formats are never transposed.
func rowsOf(t Tensor, transposed bool) (width int, rows []row) {
	outer, inner := t.Shape[0], 1
	if len(t.Shape) == 2 {
		inner = t.Shape[1]
	}
	if t.DType.IsQuantized() { // a row is one element of many bytes
		size := int(t.DType.Bytes(int64(inner)))
		for i := range outer {
			rows = append(rows, row{t.Data[i*size:], 1, size, size})
		}
		return inner, rows
	}
	size := int(t.DType.Bytes(1))
	if transposed {
		for i := range inner {
			rows = append(rows, row{t.Data[i*size:], outer, size, inner * size})
		}
		return outer, rows
	}
	for i := range outer {
		rows = append(rows, row{t.Data[i*inner*size:], inner, size, size})
	}
	return inner, rows
}

// contiguous returns the memory of rows if they are adjacent in it.
func contiguous(rows []row) ([]byte, bool) {
	if len(rows) == 0 {
		return nil, true
	}
	first := rows[0]
	whole := len(rows) * first.bytes()
	if len(first.data) < whole {
		return nil, false
	}
	for i, r := range rows {
		if r.step != r.size || r.bytes() == 0 || &r.data[0] != &first.data[:i*r.bytes()+1][i*r.bytes()] {
			return nil, false
		}
	}
	return first.data[:whole], true
}
