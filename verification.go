package smelt

import (
	"context"
	"fmt"

	"github.com/smelt-ml/smelt/internal/verify"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/lower"
)

// Verification says what [Model.Verify] does.
type Verification struct {
	Options Options // of the model as it would run on the device
	Device  Device
	// Program, if set, is a Plan of the model, as it was read from a file. It is
	// compared with what Options compile to.
	Program *Program
	// Bisect also looks for the first pass that changes the results, and for the
	// first value that is no number.
	Bisect bool
	// Progress, if set, is told what begins.
	Progress func(what string)
}

// Findings are what [Model.Verify] found: OK says whether all that decides agrees, Checks
// and Kernels what was compared and how far it is apart, Bisect where it begins to be.
type Findings = verify.Findings

// Verify runs the model in several ways that should agree, on fixed tokens, and tells how
// far they are apart: what promises the same bits, in bits; every op by itself with
// float64; whole ways to run it with each other, within a bound. Large models are emulated
// in part, and the findings say so. An error means that something could not run; what does
// not agree is in the findings.
func (m *Model) Verify(ctx context.Context, v Verification) (*Findings, error) {
	if !m.HasWeights() {
		return nil, fmt.Errorf("%s: %w", m.name, ErrNoWeights)
	}
	release, err := m.use()
	if err != nil {
		return nil, err
	}
	defer release()
	device, err := Resolve(v.Device)
	if err != nil {
		return nil, err
	}
	o := &v.Options
	on := device.options()
	on.Mapped = m.file != nil
	in := verify.Verification{
		Subject: &verified{Model: m, options: v.Options},
		Options: verify.Options{
			Target: o.Target, Act: o.Act, KV: o.KV, Context: o.Context, Prefill: o.Prefill, Level: o.Level, Observer: o.Observer,
			Sequences: o.Sequences, Rows: o.Rows, Block: o.Block,
		},
		Device: device.Name, Opening: on,
		Bisect: v.Bisect, Progress: v.Progress,
	}
	if v.Program != nil {
		in.Plan = v.Program.Plan
		if err := device.accept(in.Plan.Target); err != nil {
			return nil, err
		}
	}
	return verify.Run(ctx, in)
}

// verified is a model as package verify sees it.
type verified struct {
	*Model
	options Options // of the model as it would run: what no check varies
}

// Compile makes a program with the options that a check varies.
func (v *verified) Compile(o verify.Options) (*verify.Compiled, error) {
	opts := v.options
	opts.Target, opts.Act, opts.KV, opts.Context, opts.Prefill, opts.Level = o.Target, o.Act, o.KV, o.Context, o.Prefill, o.Level
	opts.Sequences, opts.Rows, opts.Block = o.Sequences, o.Rows, o.Block
	opts.Observer = o.Observer
	if t, err := lower.NewTarget(opts.Target, lower.DecodeTokens); err == nil && !t.GPU {
		opts.Products = nil // they are shared with a GPU in the plan under test, which is for one
	}
	p, err := v.Model.Compile(opts)
	if err != nil {
		return nil, err
	}
	v.options.DebugOutput = nil // once is enough
	out := &verify.Compiled{Plan: p.Plan}
	for i := range p.Stages {
		out.Fused = append(out.Fused, p.Stages[i].Fused)
	}
	return out, nil
}

// Data returns a weight as it is stored.
func (v *verified) Data(name string) (dtype.Type, []byte, bool) { return v.weights.Data(name) }
