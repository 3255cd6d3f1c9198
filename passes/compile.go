package passes

import (
	"fmt"
	"io"
	"maps"
	"runtime/debug"
	"slices"
	"time"

	"github.com/smelt-ml/smelt/ir"
)

// Options choose what Compile does.
type Options struct {
	Level    int      // 0: only what the target needs; 1: everything
	Disabled []string // passes and rules to leave out, by name

	Debug  Debug     // see ParseDebug
	Output io.Writer // of Debug's dumps, timings and statistics; nil: nowhere

	// Observer sees the graph before the first pass, with an empty name, and after
	// each pass that ran. It must not change or keep it; Clone does that.
	Observer func(pass string, f *ir.Func)
}

// Report describes the passes that Compile ran.
type Report struct {
	Rows    []Row          // the passes that ran, in order
	Fusions map[string]int // matches of each rule that ran, zeros included
	Elapsed time.Duration  // verification included
}

// Stages are the graphs of one phase: as it was defined, and as the passes left it.
type Stages struct {
	Phase  string
	Source *ir.Func
	Fused  *ir.Func
	Report *Report
}

// Row is one pass of a Report.
type Row struct {
	Name    string
	Rule    bool
	Changes int           // values removed or rewritten; matches of a rule
	Values  int           // in the graph afterwards
	Elapsed time.Duration // of the pass
	Verify  time.Duration // of the check after it
}

// Error names the pass that failed. A pass fails only where smelt is wrong, or, in
// legalise, where the target lacks an op that nothing can stand for.
type Error struct {
	Pass string
	Err  error
}

// Error names the pass.
func (e *Error) Error() string { return fmt.Sprintf("pass %s: %v", e.Pass, e.Err) }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Compile rewrites f in place for steps on a target. After an error f is of no use; clone
// it first to keep the source graph.
func Compile(f *ir.Func, target *ir.Target, step ir.Steps, opts Options) (*Report, error) {
	start := time.Now()
	off := slices.Clone(opts.Disabled)
	for _, name := range slices.Sorted(maps.Keys(opts.Debug.flags)) {
		if opts.Debug.has(name, offFlag) {
			off = append(off, name)
		}
	}
	if err := checkNames(off); err != nil {
		return nil, err
	}
	if err := f.Verify(); err != nil {
		return nil, err
	}
	if opts.Level > 0 {
		f.Stage = ir.Fused
	}
	if opts.Observer != nil {
		opts.Observer("", f)
	}
	report := &Report{Fusions: make(map[string]int)}
	for _, p := range pipeline {
		if p.Level > opts.Level || slices.Contains(off, p.Name) {
			continue
		}
		row, err := p.apply(f, target, step)
		if err != nil {
			return report, &Error{p.Name, err}
		}
		report.Rows = append(report.Rows, row)
		if p.Rule {
			report.Fusions[p.Name] = row.Changes
		}
		if opts.Observer != nil {
			opts.Observer(p.Name, f)
		}
		if opts.Output != nil {
			if err := opts.Debug.print(opts.Output, row, f); err != nil {
				return report, err
			}
		}
	}
	// A pass that changed something and counted nothing would go unseen else.
	if err := f.Verify(); err != nil {
		return report, err
	}
	report.Elapsed = time.Since(start)
	return report, nil
}

// apply runs one pass and verifies what it changed.
func (p *Pass) apply(f *ir.Func, target *ir.Target, step ir.Steps) (row Row, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
		}
	}()
	start := time.Now()
	changes, err := p.run(f, target, step)
	if err != nil {
		return row, err
	}
	ran := time.Now()
	if changes > 0 {
		if err := f.Verify(); err != nil {
			return row, err
		}
	}
	return Row{
		Name: p.Name, Rule: p.Rule, Changes: changes, Values: len(f.Values),
		Elapsed: ran.Sub(start), Verify: time.Since(ran),
	}, nil
}
