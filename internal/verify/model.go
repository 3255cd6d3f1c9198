package verify

import (
	"context"
	"fmt"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/internal/compiler"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/lower"
	"github.com/smelt-ml/smelt/lower/plan"
)

// Job configures the verification of a model on a device.
type Job struct {
	Program smelt.Options // of the model as it would run on the device
	Device  smelt.Device
	// Plan, if set, is one of the model's, as it was read from a file. It is
	// compared with what Program compiles to.
	Plan *plan.Plan
	// Bisect also looks for the first pass that changes the results, and for the
	// first value that is no number.
	Bisect bool
	// Progress, if set, is called with the name of each part before it begins.
	Progress func(what string)
}

// Model runs a model in several ways that should agree, on fixed tokens, and returns how
// far they are apart: what promises the same bits, in bits; every op by itself with
// float64; whole ways to run it with each other, within a bound. Large models are emulated
// in part, and the findings say so. An error means that something could not run; what does
// not agree is in the findings.
func Model(ctx context.Context, m *smelt.Model, j Job) (*Findings, error) {
	if !m.HasWeights() {
		return nil, fmt.Errorf("%s: %w", m.Name(), smelt.ErrNoWeights)
	}
	d, err := smelt.Resolve(j.Device)
	if err != nil {
		return nil, err
	}
	o := &j.Program
	on := d.Options
	on.Threads, on.Mapped = d.Threads, m.File() != nil
	level := 1
	if o.Level == smelt.Unoptimised {
		level = 0
	}
	if j.Plan != nil {
		if err := compiler.Accept(j.Plan.Target, d.Name); err != nil {
			return nil, err
		}
	}
	return Run(ctx, Verification{
		Subject: &subject{Model: m, options: j.Program},
		Options: Options{
			Target: o.Target, Act: o.Act, KV: o.KV, Context: o.Context, Prefill: o.Prefill, Level: level, Observer: o.Observer,
			Sequences: o.Sequences, Rows: o.Rows, Block: o.Block,
		},
		Device: d.Name, DeviceOptions: on, Plan: j.Plan,
		Bisect: j.Bisect, Progress: j.Progress,
	})
}

// subject is a model of package smelt.
type subject struct {
	*smelt.Model
	options smelt.Options // of the model as it would run: what no check varies
}

// Compile makes a program with the options that a check varies.
func (s *subject) Compile(o Options) (*Compiled, error) {
	opts := s.options
	opts.Target, opts.Act, opts.KV, opts.Context, opts.Prefill = o.Target, o.Act, o.KV, o.Context, o.Prefill
	opts.Sequences, opts.Rows, opts.Block = o.Sequences, o.Rows, o.Block
	opts.Observer = o.Observer
	if opts.Level = o.Level; o.Level == 0 {
		opts.Level = smelt.Unoptimised
	}
	if t, err := lower.NewTarget(opts.Target); err == nil && !t.GPU {
		compiler.KnobsOf(&opts).Products = nil // they are shared with a GPU in the plan under test, which is for one
	}
	p, err := s.Model.Compile(opts)
	if err != nil {
		return nil, err
	}
	compiler.KnobsOf(&s.options).DebugOutput = nil // once is enough
	out := &Compiled{Plan: p.Plan}
	for i := range p.Stages {
		out.Fused = append(out.Fused, p.Stages[i].Fused)
	}
	return out, nil
}

// Data returns a weight as it is stored.
func (s *subject) Data(name string) (dtype.Type, []byte, bool) { return s.Weights().Data(name) }
