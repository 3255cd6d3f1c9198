package lower

import (
	"fmt"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/sym"
	"github.com/smelt-ml/smelt/lower/plan"
)

// Range is a graph compiled for a range of steps.
type Range struct {
	Name       string // "prefill", "decode", "batch" or "copy"
	Func       *ir.Func
	MinT, MaxT int64         // tokens
	Longest    plan.Interval // tokens of the longest sequence of a step; the zero value: 1 to MaxT
	MaxContext int64         // slots; 0: Options.Context
	MaxC       int64         // maximum cache blocks that a step without tokens copies; 0: steps copy none
}

// Options are the bounds and choices of a Plan.
type Options struct {
	Context   int // slots of a sequence's cache
	Sequences int // sequences in a step; 1 if unset
	// Rows is the maximum number of rows of logits of a step, and is raised to Sequences; 0: one
	// row per token.
	Rows int
	// Products places matrix products on the CPU of a target with a GPU; nil: none.
	Products Placement
	// Tuning holds the measurements of the device that the Plan is for; nil: none.
	Tuning *Tuning
}

// Lower turns one graph per range into a Plan: every value becomes kernel launches, an alias or a
// buffer, in program order. It rewrites no graph: the last pass has decomposed the ops that the
// target lacks, and any that remain give an error that wraps ErrUnsupported.
func Lower(name string, ranges []Range, target *Target, opts Options) (*plan.Plan, error) {
	if opts.Context <= 0 {
		return nil, fmt.Errorf("a context of %d slots", opts.Context)
	}
	opts.Sequences = max(opts.Sequences, 1)
	compiled := &plan.Plan{Model: name, Target: target.Name, Act: target.Act, Context: opts.Context, Tuned: opts.Tuning.Hash()}
	t := &tables{plan: compiled, index: make(map[bufferKey]int32)}
	for _, r := range ranges {
		p := newPhase(t, r, target, opts)
		if err := p.lower(); err != nil {
			return nil, fmt.Errorf("lowering %s for %s on %s: %w", name, r.Name, target.Name, err)
		}
		compiled.Phases = append(compiled.Phases, p.out)
	}
	for _, p := range compiled.Phases {
		if i, ok := t.index[bufferKey{plan.Arena, ""}]; ok {
			b := &compiled.Buffers[i]
			b.Bytes = plan.Number(max(b.Bytes.Constant, p.ArenaBytes))
		}
	}
	chooseLayouts(compiled, target, opts.Tuning)
	return compiled, compiled.Validate()
}

func newPhase(t *tables, r Range, target *Target, opts Options) *phase {
	bounds := sym.Sizes{}
	if r.MaxContext == 0 {
		r.MaxContext = int64(opts.Context)
	}
	if r.Longest == (plan.Interval{}) && r.MaxT > 0 {
		r.Longest = plan.Interval{Min: 1, Max: r.MaxT}
	}
	block := opts.Context
	for _, v := range r.Func.Values {
		switch v.Op {
		case ir.OpCache:
			block = v.Type.Cache.Block
		case ir.OpState:
			block = v.Type.Recurrent.Block
		}
	}
	bounds[sym.T] = r.MaxT
	bounds[sym.B] = min(int64(opts.Sequences), r.MaxT)
	bounds[sym.R] = r.MaxT
	if opts.Rows > 0 {
		bounds[sym.R] = min(int64(max(opts.Rows, opts.Sequences)), r.MaxT)
	}
	bounds[sym.NB] = int64((opts.Context + block - 1) / block)
	bounds[sym.Smax] = r.MaxContext
	bounds[sym.C] = r.MaxC
	return &phase{
		tables: t, f: r.Func, target: target, chip: machineOf(target.chip), products: opts.Products, tuning: opts.Tuning, decided: make(map[decisionKey]decided),
		out:      plan.Phase{Name: r.Name, Least: sym.Sizes{sym.T: r.MinT, sym.C: min(1, r.MaxC)}, Bounds: bounds, Longest: r.Longest},
		matrices: r.Func.Matrices(),
		places:   make([]place, r.Func.MaxID()),
		orders:   make(map[part][2]place),
		parts:    make(map[part]place),
		lastUse:  make([]int, r.Func.MaxID()),
	}
}

func (p *phase) lower() error {
	for i, v := range p.f.Values {
		for _, a := range v.Args {
			p.lastUse[root(a).ID] = i
		}
	}
	if err := p.placeResults(); err != nil {
		return err
	}
	for i, v := range p.f.Values {
		p.at = i
		sel := selectors[v.Op]
		if sel == nil {
			return fmt.Errorf("%w computes %s", ErrUnsupported, v.LongString())
		}
		if err := sel(p, v); err != nil {
			return err
		}
		if p.err != nil {
			return fmt.Errorf("%s: %w", v.LongString(), p.err)
		}
	}
	p.planArena()
	p.barriers()
	p.commandBuffers()
	return nil
}
