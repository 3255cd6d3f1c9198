package verify

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/lower/plan"
	"github.com/smelt-ml/smelt/models/quant"
	"github.com/smelt-ml/smelt/passes"
)

// Bisection locates where results begin to be wrong.
type Bisection struct {
	// Pass is the first pass after which the results differ beyond the bound from those before
	// it; "" if there is none.
	Pass   string      `json:"pass,omitempty"`
	What   string      `json:"what"` // what was compared, and on which device
	Passes []PassCheck `json:"passes"`
	// Wrong is the first op, in graph order, whose result differs from float64 on the same
	// operands; nil if there is none.
	Wrong *WrongOp `json:"wrong,omitempty"`
	// NonFinite is the first value with an element that is NaN or infinite, nil if
	// there is none.
	NonFinite *NonFinite `json:"non_finite,omitempty"`
	Watched   string     `json:"watched"` // the values that were searched for NonFinite
}

// PassCheck compares the results before and after a pass.
type PassCheck struct {
	Pass    string `json:"pass"`
	Changed bool   `json:"changed"` // whether the pass changed the graph
	Difference
}

// NonFinite is a value with an element that is NaN or infinite.
type NonFinite struct {
	Value   string   `json:"value"`
	Op      string   `json:"op"`
	Layer   int      `json:"layer"` // -1 outside the layers
	Kernel  string   `json:"kernel"`
	Phase   string   `json:"phase"`
	Step    int      `json:"step"`    // of Findings.Steps, from 0
	Row     int      `json:"row"`     // of the value, usually the index of the token in the step
	Element int      `json:"element"` // of the row
	Is      string   `json:"is"`      // "NaN", "+Inf" or "-Inf"
	Line    string   `json:"line"`    // the value's line in the graph's text
	Weights []string `json:"weights"` // those among its operands that hold such elements themselves
}

// bisect searches for the first pass that changes the results beyond the bound, and for the
// first non-finite value.
func (c *verifier) bisect(ctx context.Context) (*Bisection, error) {
	b := &Bisection{Wrong: c.wrong}
	if err := c.bisectPasses(ctx, b); err != nil {
		return nil, fmt.Errorf("looking for a pass: %w", err)
	}
	if err := c.findNonFinite(ctx, b); err != nil {
		return nil, fmt.Errorf("looking for NaN: %w", err)
	}
	return b, nil
}

// stage holds the graph of each phase after a pass.
type stage struct {
	pass  string // "" before the first
	funcs []*ir.Func
}

// stages compiles the model and keeps the graphs after every pass.
func (c *verifier) stages(opts Options) (*graphs, []stage, error) {
	var list []stage
	opts.Observer = func(_, pass string, f *ir.Func) {
		i := slices.IndexFunc(list, func(s stage) bool { return s.pass == pass })
		if i < 0 {
			i, list = len(list), append(list, stage{pass: pass})
		}
		list[i].funcs = append(list[i].funcs, f.Clone())
	}
	g, err := c.compile(opts)
	return g, list, err
}

// bisectPasses runs the graphs that each pass leaves, in order, and compares the results of each
// with those before it. It skips a graph that its pass has not changed.
func (c *verifier) bisectPasses(ctx context.Context, b *Bisection) error {
	opts, device, layers := c.float()
	if device == "emu" {
		layers = c.affordable(sum(c.steps), emulatedWork*bisectShare)
	}
	if act := c.act(c.Device); act != dtype.F32 { // includes the pass that narrows
		opts.Act = act
	}
	b.What = fmt.Sprintf("%s on %s, activations in %s", c.results(layers), device, opts.Act)
	g, list, err := c.stages(opts)
	if err != nil {
		return err
	}
	var before trace
	for i, s := range list {
		row := PassCheck{Pass: s.pass, Changed: i == 0, Difference: Difference{Verdict: Within, Bound: c.inFloatOn(device)}}
		if narrows := opts.Act != dtype.F32 && s.pass == "narrow"; narrows {
			row.Bound = halfBound
		}
		for k, f := range s.funcs {
			row.Changed = row.Changed || f.String() != list[i-1].funcs[k].String()
		}
		if !row.Changed {
			b.Passes = append(b.Passes, row)
			continue
		}
		c.progress("running the graph after %s", s.pass)
		now, err := c.runStage(ctx, g, s, device, everyResult(c.depth(layers)))
		if err != nil {
			return fmt.Errorf("the graph after %s: %w", s.pass, err)
		}
		if i > 0 {
			d, err := compareTraces(before, now)
			if err != nil {
				return fmt.Errorf("the graph after %s: %w", s.pass, err)
			}
			row.Difference = d.judge(row.Bound)
			if b.Pass == "" && d.relative > row.Bound {
				b.Pass = s.pass
			}
			b.Passes = append(b.Passes, row)
		}
		before = now
	}
	return nil
}

// runStage runs the graphs that a pass left, after replacing the ops that the target lacks.
func (c *verifier) runStage(ctx context.Context, g *graphs, s stage, device string, pick picker) (trace, error) {
	at := *g
	at.ranges = slices.Clone(g.ranges)
	for i := range at.ranges {
		f := s.funcs[i].Clone()
		if _, err := passes.Compile(f, &g.target.Target, ir.StepsOf(at.ranges[i].MaxT), passes.Options{}); err != nil { // level 0: legalize only
			return nil, err
		}
		at.ranges[i].Func = f
	}
	return c.trace(ctx, &at, device, pick, c.ids, c.steps)
}

// errFound stops a search that has its result.
var errFound = errors.New("found")

// findNonFinite runs the model on the device under test dispatch by dispatch and checks every
// value that is computed.
func (c *verifier) findNonFinite(ctx context.Context, b *Bisection) error {
	device := c.Device
	layers := c.layersOn(device)
	opts := c.Options
	opts.Act = c.act(device)
	b.Watched = fmt.Sprintf("every value on %s, activations in %s, cache in %s", device, opts.Act, opts.KV)
	if layers < c.layers {
		b.Watched += fmt.Sprintf(", layers 0-%d of %d", layers-1, c.layers)
	}
	c.progress("looking for NaN on %s", device)
	g, err := c.compile(opts)
	if err != nil {
		return err
	}
	r, err := newRig(g, c.Subject, c.at(device), everyValue(c.depth(layers)), true)
	if err != nil {
		return err
	}
	defer r.close()
	first := 0
	err = r.each(ctx, c.ids, c.steps, func(ph *plan.Phase, k int, s sighting) error {
		switch {
		case b.NonFinite == nil:
		case b.NonFinite.Step < s.step:
			return errFound
		case first <= s.probe.order: // independent dispatches have no fixed order
			return nil
		}
		i := slices.IndexFunc(s.data, func(x float32) bool { return !finite(x, s.probe.value.Op) })
		if i < 0 {
			return nil
		}
		v := origin(s.probe.value)
		width := len(s.data) / s.rows
		d, _ := producer(ph, k, v)
		first = s.probe.order
		b.NonFinite = &NonFinite{
			Value: v.String(), Op: v.Op.String(), Layer: v.Layer, Kernel: d.Kernel, Phase: ph.Name,
			Step: s.step, Row: i / width, Element: i % width, Is: fmt.Sprint(s.data[i]), Line: v.LongString(),
		}
		b.NonFinite.Weights, err = c.brokenWeights(v)
		return err
	})
	if errors.Is(err, errFound) {
		return nil
	}
	return err
}

// finite reports whether an element is finite. A mask may also hold −∞.
func finite(x float32, op ir.Op) bool {
	return !math.IsNaN(float64(x)) && (!math.IsInf(float64(x), 0) || op == ir.OpMask && x < 0)
}

// brokenWeights returns the names of the weights that a value reads and that hold non-finite
// elements, with the first such row of each.
func (c *verifier) brokenWeights(v *ir.Value) ([]string, error) {
	list := []string{}
	for _, a := range v.Args {
		if a.Op != ir.OpWeight {
			continue
		}
		t, data, ok := c.Subject.Data(a.Name())
		width, bytes := a.Type.Shape.Last(), t.Bytes(a.Type.Shape.Last())
		if !ok || bytes == 0 {
			continue
		}
		row := make([]float32, width)
		for n := 0; len(data) >= int(bytes); n, data = n+1, data[bytes:] {
			if err := quant.Dequantize(row, data[:bytes], t); err != nil {
				return nil, fmt.Errorf("weight %q: %w", a.Name(), err)
			}
			if slices.ContainsFunc(row, func(x float32) bool { return !finite(x, ir.OpWeight) }) {
				list = append(list, fmt.Sprintf("%s, row %d", a.Name(), n))
				break
			}
		}
	}
	return list, nil
}
