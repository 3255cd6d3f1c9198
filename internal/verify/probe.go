package verify

import (
	"context"
	"fmt"
	"slices"

	"github.com/smelt-ml/smelt/device"
	"github.com/smelt-ml/smelt/internal/batch"
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/ir/sym"
	"github.com/smelt-ml/smelt/lower"
	"github.com/smelt-ml/smelt/lower/plan"
)

// graphs are the outcome of compiling a model: the Plan and the graph of each of its phases.
type graphs struct {
	plan   *plan.Plan // without probes
	target *lower.Target
	ranges []lower.Range
	opts   lower.Options
}

// probe is a value that a rig exposes: a tensor, or the keys or values of the cache that a value
// leaves behind.
type probe struct {
	name  string // of the output
	phase string
	value *ir.Value // of the graph, before it was probed
	order int       // of the value in the graph
	// result is the name under which the graph returns the value, "" if it does not.
	result string
	part   string // "", "keys" or "values"
	shape  ir.Shape
}

// String describes what the probe sees.
func (p *probe) String() string {
	text := fmt.Sprintf("%s %s", p.value.Op, p.value)
	if p.result != "" {
		text = p.result
	}
	if p.part != "" {
		text += " " + p.part
	}
	if p.value.Layer != ir.NoLayer {
		text = fmt.Sprintf("layer %d: %s", p.value.Layer, text)
	}
	return text
}

// isInt reports whether the probe sees integers, which must be equal.
func (p *probe) isInt() bool { return p.part == "" && p.value.Type.DType == dtype.I32 }

// rows returns the number of rows of the probe's value at the sizes of a step.
func (p *probe) rows(sizes *sym.Sizes) int { return int(p.shape[0].Eval(sizes)) }

// picker chooses the values of a graph that are probed.
type picker func(f *ir.Func) func(v *ir.Value) bool

// everyValue picks the values that depend on the first layers only.
func everyValue(layers int) picker {
	return func(f *ir.Func) func(*ir.Value) bool {
		reach := reaches(f)
		return func(v *ir.Value) bool { return reach[v.ID] < layers }
	}
}

// everyResult picks the results, logits and caches, that depend on the first layers only. It
// excludes integers chosen by logits, because arithmetic decides between two nearly equal
// logits.
func everyResult(layers int) picker {
	return func(f *ir.Func) func(*ir.Value) bool {
		reach := reaches(f)
		return func(v *ir.Value) bool {
			return reach[v.ID] < layers && resultName(f, v) != "" && v.Type.DType != dtype.I32
		}
	}
}

// resultName returns the name of a result of the graph, "" for other values.
func resultName(f *ir.Func, v *ir.Value) string {
	for _, r := range f.Results {
		if r.Value == v {
			return r.Name
		}
	}
	return ""
}

// reaches returns, by value ID, the last layer that the value depends on.
func reaches(f *ir.Func) []int {
	reach := make([]int, f.MaxID())
	for _, v := range f.Values {
		reach[v.ID] = v.Layer
		for _, a := range v.Args {
			reach[v.ID] = max(reach[v.ID], reach[a.ID])
		}
	}
	return reach
}

// probed returns a copy of a graph that computes the picked values, which become its results
// with names that begin with the prefix, and nothing else.
func probed(f *ir.Func, prefix string, pick picker) (*ir.Func, []*probe, error) {
	c := f.Clone()
	picked := pick(f)
	replaced := make([]bool, f.MaxID())
	lens, tables := (*ir.Value)(nil), map[int]*ir.Value{} // tables by window
	for _, v := range c.Values {
		if i := v.Op.Writes(); i >= 0 {
			replaced[v.Args[i].ID] = true
		}
		switch base, window := sym.Window(v.Name()); base {
		case sym.ContextLens:
			lens = v
		case sym.BlockTable:
			tables[window] = v
		}
	}
	var probes []*probe
	c.Results = nil
	add := func(order int, shown *ir.Value, part string) {
		of := f.Values[order]
		p := &probe{value: of, order: order, result: resultName(f, of), part: part, shape: shown.Type.Shape}
		if p.name = prefix + " " + of.String(); part != "" {
			p.name += " " + part
		}
		probes = append(probes, p)
		c.Results = append(c.Results, ir.Result{Name: p.name, Value: shown})
	}
	for i, v := range slices.Clone(c.Values) {
		if v.Op.IsLeaf() || v.Op == ir.OpReshape || !picked(f.Values[i]) {
			continue
		}
		switch table := tables[v.Type.Cache.Window]; {
		case v.Type.Kind == ir.State && !v.Type.IsRecurrent() && !replaced[v.ID] && lens != nil && table != nil: // values after the state show what a recurrent state holds
			for _, values := range []bool{false, true} {
				read, err := c.Emit(ir.OpCacheRead, ir.CacheReadAttr{Values: values}, v.Layer, v, lens, table)
				if err != nil {
					return nil, nil, err
				}
				add(i, read, map[bool]string{false: "keys", true: "values"}[values])
			}
		case v.Type.Kind == ir.Tensor:
			shown, err := shownAs(c, v)
			if err != nil {
				return nil, nil, err
			}
			add(i, shown, "")
		}
	}
	c.Sweep()
	return c, probes, c.Verify()
}

// shownAs returns v, or a float copy where v itself cannot be an output: halves, and secondary
// outputs of a kernel.
func shownAs(c *ir.Func, v *ir.Value) (*ir.Value, error) {
	switch {
	case v.Type.DType == dtype.I32:
		return v, nil
	case v.Type.DType != dtype.F32:
		return c.Append(ir.OpCast, ir.TensorOf(dtype.F32, v.Type.Shape...), nil, v.Layer, v), nil
	case v.Op == ir.OpSelect:
		return c.Emit(ir.OpScale, ir.ScaleAttr{Value: 1}, v.Layer, v)
	}
	return v, nil
}

// rig runs probed graphs on a device, step by step, as one sequence. A split rig runs every
// dispatch by itself.
type rig struct {
	on      string // the device's name
	device  *device.Device
	program *device.Executable
	session *device.Instance
	plan    *plan.Plan // as lowered, before it is split
	split   bool
	starts  []int             // by phase: the index of its first loaded phase
	probes  map[string]*probe // by name of the output
	funcs   []*ir.Func        // by phase: the graph with its probes

	length int
	blocks []int32 // of the cache, held by the one sequence
	packed batch.Step
	step   device.Step
	phase  int
}

// newRig lowers the graphs with probes and loads them.
func newRig(g *graphs, m Subject, on openable, pick picker, split bool) (*rig, error) {
	r := &rig{on: on.device, split: split, probes: make(map[string]*probe)}
	ranges := slices.Clone(g.ranges)
	for i := range ranges {
		f, probes, err := probed(ranges[i].Func, fmt.Sprintf("%d", i), pick)
		if err != nil {
			return nil, err
		}
		ranges[i].Func = f
		r.funcs = append(r.funcs, f)
		for _, p := range probes {
			p.phase = ranges[i].Name
			r.probes[p.name] = p
		}
	}
	var err error
	if r.plan, err = lower.Lower(g.plan.Model, ranges, g.target, g.opts); err != nil {
		return nil, err
	}
	loaded := *r.plan
	if split {
		loaded.Phases = nil
		for i := range r.plan.Phases {
			ph := &r.plan.Phases[i]
			r.starts = append(r.starts, len(loaded.Phases))
			for _, alone := range r.plan.Alone(ph) {
				one := *ph
				one.Least[sym.T], one.Longest.Min = 1, 1 // a token by itself, see alone
				one.Dispatches, one.CommandBuffers = alone, []int{0}
				loaded.Phases = append(loaded.Phases, one)
			}
		}
	}
	if err := loaded.Validate(); err != nil {
		return nil, err
	}
	on.options.Mapped = false // reads weights from the file once, not for every rig
	if r.device, err = device.Open(on.device, on.options); err != nil {
		return nil, err
	}
	if r.program, err = r.device.Load(&loaded, stored(m)); err != nil {
		r.close()
		return nil, err
	}
	r.blocks = batch.Contiguous(r.plan.Block(), r.plan.Context)
	if r.session, err = r.program.NewInstance(len(r.blocks)); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

// stored returns a fetch of a model's weights as they are stored.
func stored(m Subject) device.Fetch {
	return func(name string) ([]byte, dtype.Type, error) {
		t, data, ok := m.Data(name)
		if !ok {
			return nil, dtype.Invalid, fmt.Errorf("%s has no such tensor", m.Name())
		}
		return data, t, nil
	}
}

func (r *rig) close() { _ = r.device.Close() }

// begin prepares a step that appends tokens, and returns the phase that takes it.
func (r *rig) begin(ids []int32) (*plan.Phase, error) {
	if r.phase = -1; len(ids) > 0 && r.length+len(ids) <= r.plan.Context {
		r.packed.Pack(r.plan.Block(), r.plan.Context, batch.Piece{Tokens: ids, Start: r.length, Blocks: r.blocks, Rows: batch.All})
		r.phase = r.plan.PhaseFor(&r.packed.Sizes, r.packed.Longest)
	}
	if r.phase < 0 {
		return nil, fmt.Errorf("the plan of %s takes no step of %d tokens after %d", r.plan.Model, len(ids), r.length)
	}
	r.step.Inputs, r.step.Sizes = r.packed.Inputs, r.packed.Sizes
	r.length += len(ids)
	return &r.plan.Phases[r.phase], nil
}

// run runs the step that begin prepared.
func (r *rig) run(ctx context.Context) error {
	r.step.Phase = r.phase
	return r.session.Run(ctx, &r.step)
}

// runOne runs one dispatch of the step, on a split rig.
func (r *rig) runOne(ctx context.Context, dispatch int) error {
	r.step.Phase = r.starts[r.phase] + dispatch
	if err := r.session.Run(ctx, &r.step); err != nil || afterDispatch == nil {
		return err
	}
	for _, p := range r.written(&r.plan.Phases[r.phase].Dispatches[dispatch]) {
		if p.isInt() {
			continue
		}
		data, err := r.read(p)
		if err != nil {
			return err
		}
		afterDispatch(r.on, p.value, int(r.step.Sizes[sym.T]), data)
	}
	return nil
}

// afterDispatch, set by tests, may change what a dispatch wrote of a value in a step of the
// given number of tokens, as a wrong kernel would, on a device whose outputs are its memory.
var afterDispatch func(device string, v *ir.Value, tokens int, out []float32)

// written returns the probes that a dispatch writes.
func (r *rig) written(d *plan.Dispatch) []*probe {
	var list []*probe
	for _, b := range d.Bindings {
		if buffer := &r.plan.Buffers[b.Buffer]; b.Write && buffer.Kind == plan.Output {
			list = append(list, r.probes[buffer.Name])
		}
	}
	return list
}

// read returns what a probe sees after a dispatch: floats as a view of the device's
// memory, integers as a copy.
func (r *rig) read(p *probe) ([]float32, error) {
	if !p.isInt() {
		return r.session.Output(p.name)
	}
	ints, err := r.session.OutputInts(p.name)
	floats := make([]float32, len(ints))
	for i, n := range ints {
		floats[i] = float32(n)
	}
	return floats, err
}

// trace is what the probes of some steps saw, in graph order.
type trace []sighting

// sighting is what one probe saw in one step: rows of floats.
type sighting struct {
	step  int
	probe *probe
	rows  int
	data  []float32
}

// follow runs the tokens in steps of the given lengths and returns what all probes see.
func (r *rig) follow(ctx context.Context, ids []int32, steps []int) (trace, error) {
	var t trace
	err := r.each(ctx, ids, steps, func(_ *plan.Phase, _ int, s sighting) error {
		s.data = slices.Clone(s.data)
		t = append(t, s)
		return nil
	})
	return t, err
}

// each runs the tokens in steps of the given lengths and calls show with what the probes see: on
// a split rig after each dispatch, else after each step. A sighting is valid during the call.
func (r *rig) each(ctx context.Context, ids []int32, steps []int, show func(ph *plan.Phase, dispatch int, s sighting) error) error {
	for i, n := range steps {
		ph, err := r.begin(ids[:n])
		if err != nil {
			return err
		}
		ids = ids[n:]
		if !r.split {
			if err := r.run(ctx); err != nil {
				return err
			}
		}
		for k := range ph.Dispatches {
			if r.split {
				if err := r.runOne(ctx, k); err != nil {
					return err
				}
			}
			for _, p := range r.written(&ph.Dispatches[k]) {
				data, err := r.read(p)
				if err != nil {
					return err
				}
				if err := show(ph, k, sighting{i, p, p.rows(&r.step.Sizes), data}); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
