package smelt

import (
	"cmp"
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
	// Stages are the source and fused graphs of each phase; nil for a Plan read from a
	// file.
	Stages []passes.Stages
	// Elapsed is the time of the compilation, from the definition to the Plan.
	Elapsed time.Duration

	model    *Model
	device   Device // of the options
	compiled *compiler.Program
}

// Compile builds the source graph, and runs the passes and lowers the result for each
// phase.
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
	p, err := compiler.Compile(compiler.Definition{Name: m.name, Context: m.context, Bounded: m.bounded, Build: m.build}, full)
	if err != nil {
		return nil, err
	}
	return &Program{Plan: p.Plan, Stages: p.Stages, Elapsed: p.Elapsed, model: m, device: opts.Device, compiled: p}, nil
}

// Options returns the options of the compilation with defaults filled in, or the zero value for a
// Plan read from a file.
func (p *Program) Options() Options {
	if p.Stages == nil {
		return Options{}
	}
	return optionsOf(p.device, &p.compiled.Options)
}

// Model returns the model that was compiled.
func (p *Program) Model() *Model { return p.model }

// Close closes the program's model.
func (p *Program) Close() error { return p.model.Close() }

// Phase returns the Plan's phase of that name for the largest steps at full context, and its
// graphs unless the Plan was read from a file. With sequences above 1, "decode" is the phase
// of one token per sequence.
func (p *Program) Phase(name string, sequences ...int) (*plan.Phase, *passes.Stages, error) {
	return p.compiled.Phase(name, sequences...)
}

// Save writes the program as a Plan file, without the weights. The output is
// deterministic.
func (p *Program) Save(w io.Writer) error {
	id := identify(p.model)
	if err := p.model.intact(); err != nil {
		return err
	}
	return (&plan.File{Plan: p.Plan, Model: id}).Write(w)
}

// ReadPlan reads a Plan file that was compiled from m. The program has no graphs.
func (m *Model) ReadPlan(path string) (*Program, error) {
	f, err := compiler.ReadPlan(path)
	if err != nil {
		return nil, err
	}
	if !m.HasWeights() {
		return nil, m.noWeights()
	}
	err = matches(f, m)
	if err = cmp.Or(m.intact(), err); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &Program{Plan: f.Plan, model: m, compiled: &compiler.Program{Plan: f.Plan}}, nil
}

// errOtherModel is wrapped by errors about a Plan that was compiled from other weights.
var errOtherModel = errors.New("the plan belongs to another model")

// identify returns the identity of a model that a Plan file stores to recognise its weights.
func identify(m *Model) plan.ModelID {
	if m.file == nil { // it is defined in Go
		return plan.ModelID{}
	}
	return plan.ModelID(m.file.Identity())
}

// matches returns an error that names the first difference between m and the model that the Plan
// was compiled from.
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
	if f.Model.Arch != "" { // the plan of a shape fits any model with the same tensors
		return nil
	}
	if part := checkpoint.Identity(f.Model).Differs(checkpoint.Identity(identify(m))); part != "" {
		return fmt.Errorf("%s: %w: the %s differs", m.path, errOtherModel, part)
	}
	return nil
}
