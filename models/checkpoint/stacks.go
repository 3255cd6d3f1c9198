package checkpoint

import (
	"fmt"
	"slices"
	"strings"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/models"
)

// stack is a tensor of a [models.Stack]. Rows of biases have one element.
type stack struct {
	Tensor                   // codes or floats
	exponents     *Tensor    // of codes; nil for floats
	experts, rows int        // rows of each expert
	k             int        // elements of a row
	as            dtype.Type // type of the derived tensors
	of            *models.Stack
}

// unstack derives a tensor for each role of each stack, in a model of the given width.
func unstack(stacks []models.Stack, width int) rule {
	return func(tensors []Tensor, emit func(Derivation) error) error {
		if len(stacks) == 0 {
			return nil
		}
		stacks := laid(stacks, tensors, width)
		named := lo.KeyBy(tensors, func(t Tensor) string { return t.Name })
		for _, t := range tensors {
			module, kind := t.Name, ""
			for _, suffix := range []string{"_blocks", "_bias"} {
				if m, ok := strings.CutSuffix(t.Name, suffix); ok {
					module, kind = m, suffix
				}
			}
			of, ok := lo.Find(stacks, func(s models.Stack) bool { return strings.HasSuffix(module, "."+s.Name) })
			if !ok {
				continue
			}
			layer, roles := strings.TrimSuffix(module, of.Name), of.Roles
			s, err := stackOf(t, kind, &of, named[module+"_scales"])
			if err == nil && s.rows%len(roles) != 0 {
				err = models.ConfigError("tensor %q is %v: its %d rows do not divide evenly among the weights", t.Name, t.Shape, s.rows)
			}
			for i, role := range roles {
				if err == nil {
					d := s.every(len(roles), i)
					d.to.Name = layer + role + lo.Ternary(kind == "_bias", ".bias", ".weight")
					err = emit(d)
				}
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
}

// laid returns the stacks with RowMajor set where Either is and the tensors are laid so. One of them
// tells of all: no product of experts with a gate has square matrices in both its stacks.
func laid(stacks []models.Stack, tensors []Tensor, width int) []models.Stack {
	rows := slices.ContainsFunc(tensors, func(t Tensor) bool {
		s, ok := lo.Find(stacks, func(s models.Stack) bool { return s.Either && strings.HasSuffix(t.Name, "."+s.Name) })
		if !ok || len(t.Shape) != 3 {
			return false
		}
		outer, inner := t.Shape[1] == width, t.Shape[2] == width
		return outer != inner && outer == (len(s.Roles) == 1) // rows of the last product are as many as the width, those of the others as long
	})
	return lo.Map(stacks, func(s models.Stack, _ int) models.Stack {
		s.RowMajor = s.RowMajor || s.Either && rows
		return s
	})
}

// stackOf returns the dimensions of a stack, or an error if its shape or type is not one of a
// stack.
func stackOf(t Tensor, kind string, of *models.Stack, exponents Tensor) (*stack, error) {
	s := &stack{Tensor: t, as: t.DType, of: of}
	d := t.Shape
	switch {
	case kind == "_blocks" && t.Stored == "U8" && len(d) == 4 && d[3] == 16:
		if exponents.Stored != "U8" || !slices.Equal(exponents.Shape, d[:3]) {
			return nil, models.ConfigError("tensor %q has exponents of %s %v, where U8 %v is wanted", t.Name, exponents.Stored, exponents.Shape, d[:3])
		}
		s.experts, s.rows, s.k, s.as, s.exponents = d[0], d[1], 32*d[2], dtype.MXFP4, &exponents
	case kind == "_bias" && t.DType.IsFloat() && len(d) == 2:
		s.experts, s.rows, s.k = d[0], d[1], 1
	case kind == "" && of.RowMajor && t.DType.IsFloat() && len(d) == 3:
		s.experts, s.rows, s.k = d[0], d[1], d[2]
	case kind == "" && t.DType.IsFloat() && len(d) == 3:
		s.experts, s.rows, s.k = d[0], d[2], d[1]
	default:
		return nil, models.ConfigError("tensor %q is %s %v, not a stack of experts", t.Name, t.Stored, d)
	}
	return s, nil
}

// every derives the rows of role number i of n, of each expert.
func (s *stack) every(n, i int) Derivation {
	to := Tensor{DType: s.as, Stored: s.as.String(), Shape: []int{s.experts, s.rows / n, s.k}}
	if len(s.Shape) == 2 {
		to.Shape = to.Shape[:2]
	}
	d := Derivation{Way: Made, From: []Tensor{s.Tensor}, to: to}
	if s.of.RowMajor {
		return s.span(d, n, i)
	}
	switch {
	case s.exponents != nil:
		d.Way, d.From = Unpacked, []Tensor{s.Tensor, *s.exponents}
	case len(s.Shape) == 3:
		d.Steps = []string{"transposed"}
	}
	rows, size := s.rows/n, int(s.as.Bytes(int64(s.k)))
	first, step := i, n
	if s.of.Apart {
		first, step = i*rows, 1
	}
	switch {
	case n == 1:
	case s.of.Apart:
		d.Steps = append(d.Steps, rowsOfEach(first, rows))
	default:
		d.Steps = append(d.Steps, fmt.Sprintf("row %d of each %d", first, n))
	}
	d.fill = func(out []byte) error {
		return inParallel(s.experts*rows, func(i int) error {
			s.row(i/rows, i%rows*step+first, out[i*size:][:size])
			return nil
		})
	}
	return d
}

// span derives part number i of n of each expert's rows, of a stack with the rows outermost. All rows
// are a view.
func (s *stack) span(d Derivation, n, i int) Derivation {
	if n == 1 {
		d.Way, d.bytes = Stored, int64(len(s.Data))
		return d
	}
	rows := s.rows / n
	size := rows * int(s.as.Bytes(int64(s.k)))
	d.Steps = []string{rowsOfEach(i*rows, rows)}
	d.fill = func(out []byte) error {
		return inParallel(s.experts, func(e int) error {
			copy(out[e*size:][:size], s.Data[(e*n+i)*size:])
			return nil
		})
	}
	return d
}

func rowsOfEach(first, n int) string {
	return fmt.Sprintf("rows %d to %d of each expert", first, first+n-1)
}

// row writes one row of an expert.
func (s *stack) row(expert, row int, out []byte) {
	if s.exponents == nil {
		size := int(s.as.Bytes(1))
		for k := range s.k {
			copy(out[k*size:], s.Data[((expert*s.k+k)*s.rows+row)*size:][:size])
		}
		return
	}
	for block := (expert*s.rows + row) * s.k / 32; len(out) > 0; block++ {
		out[0] = s.exponents.Data[block]
		spread(out[1:], s.Data[16*block:])
		out = out[s.as.BlockBytes():]
	}
}
