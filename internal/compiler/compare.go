package compiler

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/smelt-ml/smelt/ir/sym"
	"github.com/smelt-ml/smelt/lower"
	"github.com/smelt-ml/smelt/lower/plan"
	"github.com/smelt-ml/smelt/lower/predict"
	"github.com/smelt-ml/smelt/passes"
)

// SameBits is the predicted extra cost of a step with [Options.SameBits].
type SameBits struct {
	Chip string  `json:"chip"`
	More Saving  `json:"more"`
	With float64 `json:"seconds"` // of the step
}

// Savings are the costs that fusion saves a step of a phase: the cost of the Plan compiled
// without a rule, all else being equal, less that of the Plan with it. Savings do not add up to
// Together: a rule that replaces the missing one reduces its saving, and the saving of a rule that
// others build upon includes theirs.
type Savings struct {
	Chip     string            `json:"savings_chip"` // for which seconds are predicted
	ByRule   map[string]Saving `json:"savings"`      // of the rules in Fusions
	Together Saving            `json:"savings_together"`
}

// Saving is the difference between the costs of two Plans. A negative figure is a loss.
type Saving struct {
	Dispatches   int     `json:"dispatches"`
	Bytes        int64   `json:"bytes"` // read and written
	BytesRead    int64   `json:"bytes_read"`
	BytesWritten int64   `json:"bytes_written"`
	Seconds      float64 `json:"seconds"` // predicted; see [Program.Simulate]
}

// Less returns the difference of two savings.
func (s Saving) Less(than Saving) Saving {
	return Saving{
		s.Dispatches - than.Dispatches, s.Bytes - than.Bytes, s.BytesRead - than.BytesRead, s.BytesWritten - than.BytesWritten,
		s.Seconds - than.Seconds,
	}
}

// StepSizes returns the sizes of the largest step of a phase that samples one
// token: all of its tokens, at the end of a full context.
func StepSizes(ph *plan.Phase) *sym.Sizes {
	s := ph.Bounds
	s[sym.R] = s[sym.B]
	return &s
}

// Simulate predicts the timeline of the largest step of a phase on a chip. Nothing is measured.
func (p *Program) Simulate(phase, chip string, sequences ...int) (*predict.Timeline, error) {
	ph, _, err := p.Phase(phase, sequences...)
	if err != nil {
		return nil, err
	}
	c, err := predict.FindChip(chip)
	if err != nil {
		return nil, err
	}
	return predict.Simulate(p.Plan, ph, StepSizes(ph), c)
}

// Savings compiles a phase once more without each rule that matched, and without all of
// them, and compares the largest steps, as [StepSizes] gives them, on a chip.
func (p *Program) Savings(phase, chip string, sequences ...int) (*Savings, error) {
	_, stages, err := p.Phase(phase, sequences...)
	if err != nil {
		return nil, err
	}
	if stages == nil {
		return nil, fmt.Errorf("the plan of %s has no graph to compile without a rule", p.Plan.Model)
	}
	c, err := predict.FindChip(chip)
	if err != nil {
		return nil, err
	}
	with, err := p.costWithout(stages, c)
	if err != nil {
		return nil, err
	}
	out := &Savings{Chip: c.Name, ByRule: map[string]Saving{}}
	var all []string
	for _, rule := range slices.Sorted(maps.Keys(stages.Report.Fusions)) {
		all = append(all, rule)
		if stages.Report.Fusions[rule] == 0 { // removing it changes nothing
			out.ByRule[rule] = Saving{}
			continue
		}
		without, err := p.costWithout(stages, c, rule)
		if errors.Is(err, passes.ErrUnsupported) { // the target needs the rule: there is nothing to compare
			out.ByRule[rule] = Saving{}
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("without %s: %w", rule, err)
		}
		out.ByRule[rule] = without.Less(with)
	}
	without, err := p.costWithout(stages, c, all...)
	if errors.Is(err, passes.ErrUnsupported) {
		return out, nil
	}
	if err != nil {
		return nil, fmt.Errorf("without fusion: %w", err)
	}
	out.Together = without.Less(with)
	return out, nil
}

// SameBits compiles a program with [Options.SameBits] once more without it, and compares the largest
// steps of a phase, as [StepSizes] gives them, on a chip.
func (p *Program) SameBits(phase, chip string, sequences ...int) (*SameBits, error) {
	if !p.Options.SameBits {
		return nil, fmt.Errorf("the plan of %s was not compiled for the same bits in every step", p.Plan.Model)
	}
	opts := p.Options
	opts.SameBits, opts.DebugOutput, opts.Observer = false, nil, nil
	other, err := Compile(p.definition, opts)
	if err != nil {
		return nil, err
	}
	out := new(SameBits)
	for _, of := range []struct {
		*Program
		sign int
	}{{p, 1}, {other, -1}} {
		t, err := of.Simulate(phase, chip, sequences...)
		if err != nil {
			return nil, err
		}
		cost := Saving{len(t.Spans), t.Cost.Bytes(), t.Cost.Read, t.Cost.Written, t.Total / 1e6}
		if of.sign > 0 {
			out.Chip, out.With, out.More = t.Chip.Name, cost.Seconds, cost
		} else {
			out.More = out.More.Less(cost)
		}
	}
	return out, nil
}

// costWithout compiles one phase, that of stages, without some rules, and returns the cost of its
// largest step.
func (p *Program) costWithout(stages *passes.Stages, chip *predict.Chip, rules ...string) (cost Saving, err error) {
	opts := p.Options
	opts.Disabled = append(slices.Clone(opts.Disabled), rules...)
	opts.DebugOutput, opts.Observer = nil, nil
	phases := ranges(opts, p.target)
	at := slices.IndexFunc(p.Stages, func(of passes.Stages) bool { return of.Fused == stages.Fused })
	r := phases[at : at+1]
	if _, err := opts.optimise(&r[0], stages.Source, p.target); err != nil {
		return cost, err
	}
	plan, err := lower.Lower(p.definition.Name, r, p.target, opts.lowering())
	if err != nil {
		return cost, err
	}
	ph := &plan.Phases[0]
	t, err := predict.Simulate(plan, ph, StepSizes(ph), chip)
	if err != nil {
		return cost, err
	}
	return Saving{len(ph.Dispatches), t.Cost.Bytes(), t.Cost.Read, t.Cost.Written, t.Total / 1e6}, nil
}
