package compiler

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/internal/engine"
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/ir/sym"
	"github.com/smelt-ml/smelt/lower"
	"github.com/smelt-ml/smelt/lower/plan"
	"github.com/smelt-ml/smelt/lower/predict"
	"github.com/smelt-ml/smelt/passes"
)

// Definition is a model to be compiled.
type Definition struct {
	Name    string
	Context int  // the model's trained context in tokens; 0 if unknown
	Bounded bool // positions from Context on have no embedding
	Build   func(ir.Options) (*ir.Func, error)
}

// Program is a compiled definition.
type Program struct {
	Plan *plan.Plan
	// Stages are the graphs of the Plan, one pair for each phase; nil if the Plan was read from
	// a file.
	Stages []passes.Stages
	// Elapsed is the compile time, from the definition to the Plan.
	Elapsed time.Duration
	Options Options // with defaults filled in; zero if the Plan was read from a file

	definition Definition
	target     *lower.Target
}

// Compile turns a definition into a Plan: it builds the source graph, runs the passes for each
// phase, and lowers.
func Compile(d Definition, opts Options) (*Program, error) {
	start := time.Now()
	target, err := opts.fill(d)
	if err != nil {
		return nil, err
	}
	source, err := d.Build(ir.Options{KV: opts.KV, Block: opts.Block, Context: opts.Context, Embeddings: opts.Embeddings})
	if err == nil {
		err = chooseNext(source)
	}
	if err != nil {
		return nil, err
	}
	phases := ranges(opts, target)
	if recurs(source) { // who shares a block goes on after it, and never writes there
		phases = slices.DeleteFunc(phases, func(r lower.Range) bool { return r.MaxC > 0 })
	}
	p := &Program{Options: opts, definition: d, target: target}
	for i := range phases {
		r, from := &phases[i], source
		if r.MaxC > 0 {
			if from, err = copying(source, opts.Context); err != nil {
				return nil, err
			}
		}
		report, err := opts.optimise(r, from, target)
		if err != nil {
			return nil, fmt.Errorf("compiling %s for %s: %w", d.Name, r.Name, err)
		}
		p.Stages = append(p.Stages, passes.Stages{Phase: r.Name, Source: from, Fused: r.Func, Report: report})
	}
	if p.Plan, err = lower.Lower(d.Name, phases, target, opts.lowering()); err != nil {
		return nil, err
	}
	p.Elapsed = time.Since(start)
	return p, nil
}

// lowering returns the options of lowering.
func (o *Options) lowering() lower.Options {
	return lower.Options{Context: o.Context, Sequences: o.Sequences, Rows: o.Rows, Products: o.Products, Tuning: o.Tuning}
}

// optimise makes the graph of one phase from the source graph.
func (o *Options) optimise(r *lower.Range, source *ir.Func, target *lower.Target) (*passes.Report, error) {
	step := ir.Steps{Tokens: r.MaxT, Rows: min(int64(o.Sequences), r.MaxT), OneEach: r.Longest.Max == 1}
	if o.Embeddings { // they may be made of all tokens
		step.Rows = r.MaxT
	}
	r.Func = source.Clone()
	var observer func(string, *ir.Func)
	if o.Observer != nil {
		observer = func(pass string, f *ir.Func) { o.Observer(r.Name, pass, f) }
	}
	return passes.Compile(r.Func, &target.Target, step, passes.Options{
		Level: o.Level, Disabled: o.Disabled, Debug: o.Debug, Output: o.DebugOutput, Observer: observer,
	})
}

// recurs reports whether a graph has recurrent states.
func recurs(f *ir.Func) bool {
	return slices.ContainsFunc(f.Values, func(v *ir.Value) bool { return v.Op == ir.OpState })
}

// copying returns a graph that copies blocks of all caches of a source graph.
func copying(source *ir.Func, context int) (*ir.Func, error) {
	caches := lo.Filter(source.Values, func(v *ir.Value, _ int) bool { return v.Op == ir.OpCache })
	c := caches[0].Type.Cache // equal in all layers except for heads
	return ir.Build(source.Name, nil, ir.Options{KV: c.DType, Block: c.Block, Context: context}, func(b *ir.Builder) {
		for _, v := range caches {
			b.Layer(v.Layer, func() { b.CopyBlocks(b.CacheLike(v.Type.Cache)) })
		}
	})
}

// chooseNext adds the most likely token of each row to the results of a graph that returns logits,
// so that greedy decoding reads one number per row and not the logits of the whole vocabulary.
func chooseNext(f *ir.Func) error {
	logits := f.Result(engine.Logits)
	if logits == nil || len(logits.Type.Shape) != 2 || logits.Type.DType != dtype.F32 || f.Result(engine.Next) != nil {
		return nil
	}
	next, err := f.Emit(ir.OpArgmax, nil, ir.NoLayer, logits)
	if err != nil {
		return err
	}
	f.Results = append(f.Results, ir.Result{Name: engine.Next, Value: next})
	return nil
}

// target returns what the options compile for.
func (o *Options) target() (*lower.Target, error) {
	t, err := lower.NewTarget(o.Target)
	if err != nil {
		return nil, err
	}
	t.Act = cmp.Or(o.Act, t.Act)
	chip, err := o.chip()
	if err != nil {
		return nil, err
	}
	t.Tune(chip)
	if o.Debug.XSplit {
		t.UseXSplit()
	}
	switch {
	case o.SameBits:
		t.UseSameBits()
	case o.Sequences > 1:
		t.CutAlike()
	}
	if o.Products != nil { // what runs on the CPU takes rows as they are
		t.ManyNorms = nil
	}
	return t, nil
}

// chip returns the chip that choices by size are made for; nil for none in particular.
func (o *Options) chip() (*predict.Chip, error) {
	switch {
	case o.Chip == "":
		return nil, nil
	case o.Family == 0:
		return predict.FindChip(o.Chip)
	}
	c, _ := predict.FindGPU(o.Chip, o.Family, o.Cores)
	return c, nil
}

// ranges cuts the sizes of steps into phases, so that each step has one: "decode" takes a
// token, "batch" one token of each of several sequences, and "prefill" whatever has more
// than one token of a sequence in it. Few tokens have kernels of their own, so that there
// are batches of few sequences and of many, and prompts of few tokens. A target that splits attention over long
// contexts gets two phases, the second for these, of each that decodes. Where a block of the
// cache may be that of several sequences, "copy" copies some before a step writes there.
func ranges(opts Options, target *lower.Target) []lower.Range {
	context, sequences, normed := int64(opts.Context), int64(opts.Sequences), int64(lower.DecodeTokens)
	if target.NormTokens > target.FewTokens {
		normed = target.NormTokens
	}
	var phases []lower.Range
	prefill := min(int64(opts.Prefill), context*sequences)
	for _, least := range []int64{normed + 1, lower.DecodeTokens + 1} {
		if prefill < least {
			continue
		}
		phases = append(phases, lower.Range{
			Name: "prefill", MinT: least, MaxT: prefill, Longest: plan.Interval{Min: 2, Max: prefill}, MaxContext: context,
		})
		prefill = least - 1
	}
	decode := func(name string, least, most int64) {
		r := lower.Range{Name: name, MinT: least, MaxT: most, Longest: plan.Interval{Min: 1, Max: 1}, MaxContext: context}
		if short := target.SplitContext; short > 0 && short < context {
			r.MaxContext = short
			phases = append(phases, r)
			r.MaxContext = context
		}
		phases = append(phases, r)
	}
	decode("decode", 1, lower.DecodeTokens)
	least := int64(lower.DecodeTokens + 1)
	for _, most := range []int64{min(target.FewTokens, sequences), min(normed, sequences), sequences} {
		if least <= most {
			decode("batch", least, most)
			least = most + 1
		}
	}
	if opts.Block < opts.Context || opts.Sequences > 1 {
		phases = append(phases, lower.Range{Name: "copy", MaxC: sequences, MaxContext: context})
	}
	return phases
}

// Phase returns the phase of a name with the largest steps over the whole context and, unless the
// Plan was read from a file, its graphs. "decode" of several sequences is the phase "batch" that
// takes a token of each.
func (p *Program) Phase(name string, sequences ...int) (*plan.Phase, *passes.Stages, error) {
	tokens := int64(0) // of a step, where it is known
	if len(sequences) > 0 && sequences[0] > 1 && name == "decode" {
		name, tokens = "batch", int64(sequences[0])
	}
	for i := range p.Plan.Phases {
		ph := &p.Plan.Phases[i]
		if ph.Name != name || ph.Bounds[sym.Smax] < int64(p.Plan.Context) || tokens > 0 && (tokens < ph.Least[sym.T] || tokens > ph.Bounds[sym.T]) {
			continue
		}
		if p.Stages == nil {
			return &p.Plan.Phases[i], nil, nil
		}
		return &p.Plan.Phases[i], &p.Stages[i], nil
	}
	return nil, nil, fmt.Errorf("the plan of %s has no phase %q", p.Plan.Model, name)
}
