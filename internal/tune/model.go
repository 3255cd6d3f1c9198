package tune

import (
	"cmp"
	"context"
	"fmt"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/device"
	"github.com/smelt-ml/smelt/internal/compiler"
	"github.com/smelt-ml/smelt/lower"
	"github.com/smelt-ml/smelt/lower/plan"
)

// Job configures the tuning of a model on a device.
type Job struct {
	Program smelt.Options // with which the model is compiled for the device
	Device  smelt.Device
	// Sequences, if more than one, is the maximum batch of an engine; steps with a token of each
	// sequence are timed too.
	Sequences int
	Options
}

// Model times a model on a device with each of the settings that the compiler chooses among, against
// the defaults. A setting that changes a bit of the logits never wins.
func Model(ctx context.Context, m *smelt.Model, j Job) (*Result, error) {
	if !m.HasWeights() {
		return nil, fmt.Errorf("%s: %w", m.Name(), smelt.ErrNoWeights)
	}
	where, err := smelt.Resolve(j.Device)
	if err != nil {
		return nil, err
	}
	if err := compiler.Accept(j.Program.Target, where.Name); err != nil {
		return nil, err
	}
	on := where.Options
	on.Threads, on.Mapped, on.Rearrange = where.Threads, m.File() != nil, device.RearrangeNow
	d, err := device.Open(where.Name, on)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	measure := j.Options
	run := func(o smelt.Options) (*Result, error) {
		plan := func(tuning *lower.Tuning) (*plan.Plan, error) {
			compiler.KnobsOf(&o).Tuning = tuning
			p, err := m.Compile(o)
			if err != nil {
				return nil, err
			}
			return p.Plan, nil
		}
		return Run(ctx, Subject{Compile: plan, Device: d, Fetch: compiler.Fetch(m.Name(), m.Weights())}, measure)
	}
	found, err := run(j.Program)
	if err != nil || j.Sequences < 2 {
		return found, err
	}
	measure.Known = lo.SliceToMap(found.Sites, func(s *SiteResult) (string, bool) { return s.Key(), true })
	o := j.Program
	o.Sequences, o.Block = j.Sequences, cmp.Or(o.Block, compiler.DefaultBlock)
	more, err := run(o)
	if err != nil {
		return nil, fmt.Errorf("%d sequences: %w", j.Sequences, err)
	}
	found.Sites = append(found.Sites, more.Sites...)
	return found, nil
}
