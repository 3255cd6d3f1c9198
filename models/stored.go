package models

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/internal/quant"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/models/mapped"
)

// Stored says where a Hugging Face folder has a weight of the definition, and in what
// form. A vector's rows have one element each.
type Stored struct {
	// Names are one tensor, or several whose rows follow each other. # stands for the
	// number of the layer, and % for that of each expert, or of whatever Each counts, whose
	// tensors make a stack.
	Names []string
	Each  func(c *Config) int
	// Transposed tensors are [K, N] where the weight is [N, K].
	Transposed bool
	// Order says which row of the tensors comes at that place; nil: the same one.
	Order func(c *Config, row int) int
	// Rows says which rows, in this order, are the weight; nil: all. Other weights may take
	// the others.
	Rows func(c *Config) (first, n int)
	// Depthwise kernels of convolutions have an axis of one between rows and columns.
	Depthwise bool
	// Columns says which column of the tensors comes at that place; nil: the same one.
	Columns func(c *Config, column int) int
	// Value makes an element of what is stored, in F32; nil: nothing is made of it.
	Value func(x float32) float32
}

// as is a weight that a folder has as one tensor, as it is.
func as(name string) Stored { return Stored{Names: []string{name}} }

// plusOne is the value of gains of which folders have the distance from one.
func plusOne(x float32) float32 { return x + 1 }

// whole reports whether the tensor itself is the weight.
func (s *Stored) whole() bool {
	return len(s.Names) == 1 && !s.stacked() && !s.Transposed && s.Rows == nil && s.Order == nil && !s.changes()
}

// changes reports whether a weight has other elements than rows of what is stored.
func (s *Stored) changes() bool { return s.Value != nil || s.Columns != nil }

// arrange turns the tensors of a folder into the weights of the definition, in the order
// of the folder. Tensors that no weight comes from keep their names. Memory that weights
// need beside the mapped files is in the arena.
func (f *Family) arrange(c *Config, tensors []Tensor, memory *arena) ([]Tensor, error) {
	at := make(map[string]int, len(tensors))
	for i, t := range tensors {
		at[f.bare(t.Name)] = i
	}
	type placed struct {
		Tensor
		at int
	}
	var out []placed
	used := make(map[int]bool)
	add := func(name string, s Stored, layer int) error {
		number := fmt.Sprint(layer)
		var parts []Tensor
		first := len(tensors)
		for _, n := range s.names(c) {
			i, ok := at[f.bare(strings.ReplaceAll(n, "#", number))]
			if !ok {
				return nil // Build says which weights are missing
			}
			parts, first = append(parts, tensors[i]), min(first, i)
			used[i] = true
		}
		if len(parts) == 0 { // of a model without experts
			return nil
		}
		t, err := s.weight(c, parts, memory)
		if err != nil {
			return err
		}
		t.Name = strings.ReplaceAll(name, "#", number)
		out = append(out, placed{t, first})
		return nil
	}
	stored := f.Stored()
	for _, name := range slices.Sorted(maps.Keys(stored)) {
		layers := 1
		if strings.Contains(name, "#") {
			layers = c.Layers
		}
		for i := range layers {
			if err := add(name, stored[name], i); err != nil {
				return nil, err
			}
		}
	}
	for i, t := range tensors {
		if !used[i] {
			out = append(out, placed{t, i})
		}
	}
	slices.SortStableFunc(out, func(a, b placed) int { return cmp.Compare(a.at, b.at) })
	return lo.Map(out, func(p placed, _ int) Tensor { return p.Tensor }), nil
}

// bare is the name of a tensor without what some folders have before it: "model." and the
// family's prefix, in any order.
func (f *Family) bare(name string) string {
	name = strings.TrimPrefix(strings.TrimPrefix(name, f.Prefix), "model.")
	return strings.TrimPrefix(name, f.Prefix)
}

// stacked reports whether each expert has a tensor.
func (s *Stored) stacked() bool { return len(s.Names) == 1 && strings.Contains(s.Names[0], "%") }

// names lists the tensors of a layer.
func (s *Stored) names(c *Config) []string {
	if !s.stacked() {
		return s.Names
	}
	count := c.Experts.Count
	if s.Each != nil {
		count = s.Each(c)
	}
	return lo.Times(count, func(i int) string { return strings.Replace(s.Names[0], "%", fmt.Sprint(i), 1) })
}

// weight makes a weight of the tensors that hold it.
func (s *Stored) weight(c *Config, parts []Tensor, memory *arena) (Tensor, error) {
	t := parts[0]
	if s.Depthwise && len(t.Shape) == 3 && t.Shape[1] == 1 {
		t.Shape = []int{t.Shape[0], t.Shape[2]}
		parts = []Tensor{t}
	}
	if s.whole() {
		return t, nil
	}
	for _, p := range parts {
		switch {
		case !p.DType.IsFloat() && (!p.DType.IsQuantized() || s.Transposed || s.changes()):
			return t, configError("tensor %q is %s: only floats can be rearranged", p.Name, p.Stored)
		case p.DType != t.DType:
			return t, configError("tensors %q and %q, of one weight, are %s and %s", t.Name, p.Name, t.Stored, p.Stored)
		case len(p.Shape) != len(t.Shape) || len(p.Shape) < 1 || len(p.Shape) > 2 || s.Transposed && len(p.Shape) != 2:
			return t, configError("tensor %q is %v", p.Name, p.Shape)
		case s.stacked() && !slices.Equal(p.Shape, t.Shape):
			return t, configError("tensors %q and %q, of one stack, are %v and %v", t.Name, p.Name, t.Shape, p.Shape)
		}
	}
	var rows []row
	width := 0
	for _, p := range parts {
		w, r := rowsOf(p, s.Transposed)
		if width != 0 && w != width {
			return t, configError("tensors %q and %q, of one weight, have rows of %d and %d elements", t.Name, p.Name, width, w)
		}
		width, rows = w, append(rows, r...)
	}
	if s.Order != nil {
		ordered := make([]row, len(rows))
		for i := range rows {
			from := s.Order(c, i)
			if from < 0 || from >= len(rows) {
				return t, configError("tensor %q has %d rows, too few for the model's heads", t.Name, len(rows))
			}
			ordered[i] = rows[from]
		}
		rows = ordered
	}
	if s.Rows != nil {
		first, n := s.Rows(c)
		if first < 0 || n < 0 || first+n > len(rows) {
			return t, configError("tensor %q has %d rows, not %d", t.Name, len(rows), first+n)
		}
		rows = rows[first : first+n]
	}
	t.Shape = append([]int{len(rows)}, t.Shape[1:]...)
	if len(t.Shape) == 2 {
		t.Shape[1] = width
	}
	if s.stacked() {
		t.Shape = append([]int{len(parts), len(rows) / len(parts)}, t.Shape[1:]...)
	}
	if data, ok := contiguous(rows); ok && !s.changes() {
		if len(rows) > 0 { // data of rows reach to the tensor's end
			t.Offset += int64(len(t.Data) - len(rows[0].data))
		}
		t.Data = data
		return t, nil
	}
	t.File, t.Offset = "", 0
	if s.changes() {
		return t.changed(s, c, rows, memory)
	}
	data, err := memory.take(t.Bytes())
	if err != nil {
		return t, fmt.Errorf("tensor %q: %w", t.Name, err)
	}
	t.Data = data
	for _, r := range rows {
		data = data[r.copyTo(data):]
	}
	return t, nil
}

// changed makes other elements of the rows: values in F32, in which the sum with one is as exact
// as it gets.
func (t Tensor) changed(s *Stored, c *Config, rows []row, memory *arena) (Tensor, error) {
	stored := t.DType
	if s.Value != nil {
		t.DType, t.Stored = dtype.F32, dtype.F32.String()
	}
	data, err := memory.take(t.Bytes())
	if err != nil {
		return t, fmt.Errorf("tensor %q: %w", t.Name, err)
	}
	t.Data = data
	for _, r := range rows {
		elements := make([]byte, r.bytes())
		r.copyTo(elements)
		if s.Columns != nil {
			if elements, err = permuted(elements, r.size, func(i int) int { return s.Columns(c, i) }); err != nil {
				return t, configError("tensor %q has %d columns, too few for the model's heads", t.Name, r.n)
			}
		}
		if s.Value != nil {
			if elements, err = valued(elements, stored, s.Value); err != nil {
				return t, fmt.Errorf("tensor %q: %w", t.Name, err)
			}
		}
		data = data[copy(data, elements):]
	}
	return t, nil
}

// permuted has at each place the element from another, of so many bytes each.
func permuted(row []byte, size int, from func(i int) int) ([]byte, error) {
	out := make([]byte, 0, len(row))
	for i := range len(row) / size {
		at := from(i)
		if at < 0 || at >= len(row)/size {
			return nil, fmt.Errorf("element %d of %d", at, len(row)/size)
		}
		out = append(out, row[at*size:][:size]...)
	}
	return out, nil
}

// valued makes an F32 of each element.
func valued(row []byte, stored dtype.Type, value func(float32) float32) ([]byte, error) {
	wide := make([]float32, len(row)/int(stored.Bytes(1)))
	if err := quant.Dequantize(wide, row, stored); err != nil {
		return nil, err
	}
	for i, x := range wide {
		wide[i] = value(x)
	}
	out := make([]byte, dtype.F32.Bytes(int64(len(wide))))
	return out, quant.Quantize(out, wide, dtype.F32)
}

// row is a row of a weight where it is stored: elements of `size` bytes that lie `step`
// bytes apart.
type row struct {
	data       []byte // from its first element on
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

// rowsOf cuts a tensor, of blocks not transposed, whose rows have `width` elements once they are the
// weight's.
func rowsOf(t Tensor, transposed bool) (width int, rows []row) {
	outer, inner := t.Shape[0], 1
	if len(t.Shape) == 2 {
		inner = t.Shape[1]
	}
	if t.DType.IsQuantized() { // a row is one piece
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

// contiguous returns the memory of rows that follow each other in it.
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

// arena is memory for weights that no file holds in the form that the definition wants.
type arena struct{ mappings []*mapped.File }

func (a *arena) take(bytes int64) ([]byte, error) {
	m, err := mapped.New(bytes)
	if err != nil {
		return nil, err
	}
	a.mappings = append(a.mappings, m)
	return m.Bytes(), nil
}

func (a *arena) close() error {
	var err error
	for _, m := range a.mappings {
		err = cmp.Or(err, m.Close())
	}
	a.mappings = nil
	return err
}
