package smelt

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/smelt-ml/smelt/internal/compiler"
	"github.com/smelt-ml/smelt/lower/plan"
	"github.com/smelt-ml/smelt/models/checkpoint"
	"github.com/smelt-ml/smelt/passes"
)

// Program is a compiled model.
type Program struct {
	Plan *plan.Plan
	// Stages are the graphs that the Plan was made from, one pair for each phase;
	// nil where the Plan was read from a file.
	Stages []passes.Stages
	// Elapsed is how long compiling took, from the definition to the Plan.
	Elapsed time.Duration

	model    *Model
	device   Device // of the options
	compiled *compiler.Program
}

// Compile turns the model into a Plan: build the source graph, run the passes for
// each phase, lower.
func (m *Model) Compile(opts Options) (*Program, error) {
	release, err := m.use()
	if err != nil {
		return nil, err
	}
	defer release()
	full, err := opts.full()
	if err != nil {
		return nil, err
	}
	p, err := compiler.Compile(compiler.Source{Name: m.name, Context: m.context, Bounded: m.bounded, Build: m.build}, full)
	if err != nil {
		return nil, err
	}
	return &Program{Plan: p.Plan, Stages: p.Stages, Elapsed: p.Elapsed, model: m, device: opts.Device, compiled: p}, nil
}

// Options returns what the program was compiled with, defaults filled in; of a Plan from a
// file, the zero value.
func (p *Program) Options() Options {
	if p.Stages == nil {
		return Options{}
	}
	return optionsOf(p.device, &p.compiled.Options)
}

// Model returns the model that was compiled, or to which the Plan from a file belongs.
func (p *Program) Model() *Model { return p.model }

// Close closes the program's model.
func (p *Program) Close() error { return p.model.Close() }

// Phase returns the Plan's phase of that name for the largest steps over the whole context
// and, where the program was compiled here, its graphs. "decode" of several sequences is
// the phase that takes a token of each.
func (p *Program) Phase(name string, sequences ...int) (*plan.Phase, *passes.Stages, error) {
	return p.compiled.Phase(name, sequences...)
}

// Save writes the program as a Plan file. The same model and options give the
// same bytes.
func (p *Program) Save(w io.Writer) error {
	return (&plan.File{Plan: p.Plan, Model: identify(p.model)}).Write(w)
}

// ReadPlan reads a Plan file that was made of the model: a program as it was saved, without its
// graphs.
func (m *Model) ReadPlan(path string) (*Program, error) {
	f, err := compiler.ReadPlan(path)
	if err != nil {
		return nil, err
	}
	if !m.HasWeights() {
		return nil, m.noWeights()
	}
	if err := matches(f, m); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &Program{Plan: f.Plan, model: m, compiled: &compiler.Program{Plan: f.Plan}}, nil
}

// errOtherModel is wrapped where a Plan is run with weights it was not made for.
var errOtherModel = errors.New("the plan belongs to another model")

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
			return fmt.Errorf("%s: %w: it has no tensor %q", m.path, errOtherModel, t.Name)
		}
		if d != t.DType || !slices.Equal(shape, t.Shape) {
			return fmt.Errorf("%s: %w: tensor %q is %s %v, the plan wants %s %v", m.path, errOtherModel, t.Name, d, shape, t.DType, t.Shape)
		}
	}
	if f.Model.Arch != "" { // a shape fits any file whose tensors fit
		return nil
	}
	if part := checkpoint.Identity(f.Model).Differs(checkpoint.Identity(identify(m))); part != "" {
		return fmt.Errorf("%s: %w: the %s differs", m.path, errOtherModel, part)
	}
	return nil
}
