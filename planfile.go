package smelt

import (
	"errors"
	"fmt"
	"slices"

	"github.com/smelt-ml/smelt/lower/plan"
	"github.com/smelt-ml/smelt/models/checkpoint"
)

// ErrOtherModel is wrapped where a Plan is run with weights it was not made for.
var ErrOtherModel = errors.New("the plan belongs to another model")

// identify describes a model so that a Plan file can recognise its weights.
func identify(m *Model) plan.ModelID {
	if m.file == nil { // it is defined in Go
		return plan.ModelID{}
	}
	return plan.ModelID(m.file.Identity())
}

// matches says in which way a model is not the one that a Plan was made for.
func matches(f *plan.File, m *Model) error {
	for _, t := range f.Plan.Tensors {
		d, shape, ok := m.weights.Weight(t.Name, t.Shape)
		if !ok {
			return fmt.Errorf("%s: %w: it has no tensor %q", m.path, ErrOtherModel, t.Name)
		}
		if d != t.DType || !slices.Equal(shape, t.Shape) {
			return fmt.Errorf("%s: %w: tensor %q is %s %v, the plan wants %s %v", m.path, ErrOtherModel, t.Name, d, shape, t.DType, t.Shape)
		}
	}
	if f.Model.Arch != "" { // a shape fits any file whose tensors fit
		return nil
	}
	if part := checkpoint.Identity(f.Model).Differs(checkpoint.Identity(identify(m))); part != "" {
		return fmt.Errorf("%s: %w: the %s differs", m.path, ErrOtherModel, part)
	}
	return nil
}
