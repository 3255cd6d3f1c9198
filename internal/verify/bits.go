package verify

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/smelt-ml/smelt/device"
	"github.com/smelt-ml/smelt/internal/batch"
	"github.com/smelt-ml/smelt/internal/compare"
	"github.com/smelt-ml/smelt/internal/engine"
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/ir/sym"
	"github.com/smelt-ml/smelt/lower/plan"
)

// sameBits compares ways to run the model that promise the same bits: the laws of package
// kernels/native, and the thread orders under which an emulated kernel must not change its
// results.
func (c *verifier) sameBits(ctx context.Context) error {
	device := c.Device
	opts := c.Options
	opts.Act = c.act(device)
	steps := c.steps
	if device == "emu" { // one run per way, with a fraction of the work
		if n := c.tokens(emulatedWork * bitsShare); n < sum(steps) {
			steps = []int{min(n-1, slices.Max(steps)), 1}
		}
	}
	c.progress("comparing what has the same bits on %s", device)
	g, err := c.compile(opts)
	if err != nil {
		return err
	}
	of := fmt.Sprintf("logits of %d tokens on %s", sum(steps), device)
	want, err := c.logits(ctx, g.plan, c.at(device), steps)
	if err != nil {
		return err
	}
	for _, way := range bitWays {
		on := c.at(device)
		if way.device != "" && way.device != device || !way.change(&on.options) {
			continue
		}
		got, err := c.logits(ctx, g.plan, on, steps)
		if err != nil {
			return fmt.Errorf("%s: %w", way.name, err)
		}
		c.checkBits(Check{Name: way.name, What: of + ", " + way.what}, want, got)
	}

	var file bytes.Buffer
	if err := (&plan.File{Plan: g.plan}).Write(&file); err != nil {
		return err
	}
	read, err := plan.Read(&file)
	if err != nil {
		return err
	}
	got, err := c.logits(ctx, read.Plan, c.at(device), steps)
	if err != nil {
		return err
	}
	c.checkBits(Check{Name: "plan read back", What: of + ", from a file"}, want, got)

	if got, err = c.trace(ctx, g, device, everyResult(all), c.ids, steps); err != nil {
		return err
	}
	got = slices.DeleteFunc(got, func(s sighting) bool { return s.probe.result != engine.Logits })
	c.checkBits(Check{Name: "plan looked at", What: of + ", by a plan that shows its values"}, want, got)
	if device == "cpu" {
		return c.productsAlone(ctx, g, device)
	}
	return nil
}

// bitsShare is the share of emulatedWork for each way to run the model that should have
// the same bits.
const bitsShare = 1. / 16

// bitWays are the options that leave results bit-identical. change sets such an option and
// reports whether it differs from the device's own.
var bitWays = []struct {
	name, device, what string
	change             func(o *device.Options) bool
}{
	{"threads", "", "on one thread or three", func(o *device.Options) bool {
		if o.Threads == 1 {
			o.Threads = 3
		} else {
			o.Threads = 1
		}
		return true
	}},
	{"rearranged weights", "cpu", "rearranged when they are loaded", func(o *device.Options) bool {
		o.Rearrange = device.RearrangeNow
		return true
	}},
	{"stored weights", "cpu", "as they are stored", func(o *device.Options) bool {
		o.Rearrange = device.RearrangeNever
		return true
	}},
	{"descending order", "emu", "threads in descending order", func(o *device.Options) bool {
		o.Own, o.Poison = map[string]string{"order": "descending"}, true
		return true
	}},
	{"shuffled order", "emu", "threads and dispatches in any order", func(o *device.Options) bool {
		o.Own, o.Poison, o.Seed = map[string]string{"order": "shuffled", "shuffle": "on"}, true, verifySeed
		return true
	}},
}

// logits returns the logits of all steps of a plan, run through [engine.Sequence] as production
// code runs them.
func (c *verifier) logits(ctx context.Context, plan *plan.Plan, on openable, steps []int) (trace, error) {
	device, err := device.Open(on.device, on.options)
	if err != nil {
		return nil, err
	}
	defer device.Close()
	program, err := device.Load(plan, stored(c.Subject))
	if err != nil {
		return nil, err
	}
	s, err := engine.NewSequence(plan, program)
	if err != nil {
		return nil, err
	}
	logits := &probe{result: engine.Logits, value: &ir.Value{Layer: ir.NoLayer}}
	var t trace
	ids := c.ids
	for i, n := range steps {
		seen := sighting{step: i, probe: logits, rows: n}
		if err := s.Score(ctx, ids[:n], func(_ int, row []float32) error {
			seen.data = append(seen.data, row...)
			return nil
		}); err != nil {
			return nil, err
		}
		ids, t = ids[n:], append(t, seen)
	}
	return t, nil
}

// checkBits compares two traces of the same results bit by bit and appends the outcome to the
// findings.
func (c *verifier) checkBits(row Check, want, got trace) {
	row.Against = AgainstBits
	row.Verdict = Within
	if len(want) != len(got) {
		row.Verdict = Beyond
	}
	for i := range min(len(want), len(got)) {
		d := differentBits(&want[i], got[i].data)
		if d.Where != "" {
			d.Where = fmt.Sprintf("step %d, %s", want[i].step+1, d.Where)
		}
		if worse(d, row.Difference) {
			row.Difference = d
		}
	}
	c.findings.Checks = append(c.findings.Checks, row)
}

// differentBits compares what a probe saw with what another saw of the same value. A NaN fails
// whatever its bits.
func differentBits(want *sighting, got []float32) Difference {
	d := Difference{Verdict: Within}
	if len(got) != len(want.data) {
		return Difference{Absolute: Measure(math.Inf(1)), Relative: Measure(math.Inf(1)), Verdict: Beyond, Where: want.probe.String()}
	}
	width := len(want.data) / max(want.rows, 1)
	logits := want.probe.result == engine.Logits
	for i, x := range want.data {
		if !finite(x, want.probe.value.Op) || !finite(got[i], want.probe.value.Op) {
			d.Verdict = NotFinite
		}
		if math.Float32bits(x) == math.Float32bits(got[i]) {
			continue
		}
		if d.Verdict == Within {
			d.Verdict = Beyond
		}
		row := i / width
		off := compare.Apart(x, got[i])
		relative := off / magnitude(want.data[row*width:(row+1)*width], logits)
		if d.Where == "" || relative > float64(d.Relative) {
			d.Relative, d.Where = Measure(relative), fmt.Sprintf("%s, row %d", want.probe, row)
		}
		d.Absolute = max(d.Absolute, Measure(off))
	}
	return d
}

// productsAlone feeds a prompt, and then reruns each product for single tokens of it, as
// decoding does. The check's What lists the kernels whose operands cannot be shown, which are
// skipped.
func (c *verifier) productsAlone(ctx context.Context, g *graphs, device string) error {
	copied, err := withCopies(g)
	if err != nil {
		return err
	}
	r, err := newRig(copied, c.Subject, c.at(device), everyValue(all), true)
	if err != nil {
		return err
	}
	defer r.close()
	n := c.steps[0]
	ph, err := r.begin(c.ids[:n])
	if err != nil {
		return err
	}
	row := Check{Name: "products alone", Against: AgainstBits, Difference: Difference{Verdict: Within}}
	tokens := []int{0, n / 2, n - 1}
	products := 0
	var skipped []string
	for k := range ph.Dispatches {
		if err := r.runOne(ctx, k); err != nil {
			return err
		}
		d := &ph.Dispatches[k]
		if op, _ := ir.ParseOp(d.Op); !isProduct(op) {
			continue
		}
		written := r.written(d)
		operands, shown, err := r.operands(k)
		if err != nil {
			return err
		}
		if len(written) != 1 || !shown {
			if !slices.Contains(skipped, d.Kernel) {
				skipped = append(skipped, d.Kernel)
			}
			continue
		}
		together := sighting{probe: written[0], rows: n}
		data, err := r.read(written[0])
		if err != nil {
			return err
		}
		together.data = slices.Clone(data)
		products++
		for _, t := range tokens {
			if err := r.alone(ctx, k, operands, t, n); err != nil {
				return err
			}
			width := len(data) / n
			one := sighting{probe: written[0], rows: 1, data: together.data[t*width : (t+1)*width]}
			alone, err := r.read(written[0])
			if err != nil {
				return err
			}
			if d := differentBits(&one, alone[:width]); worse(d, row.Difference) {
				d.Where = fmt.Sprintf("token %d, %s", t, d.Where)
				row.Difference = d
			}
			copy(data, together.data) // on a host device this view is the output itself
		}
	}
	row.What = fmt.Sprintf("%d products of %d tokens on %s, and of single ones", products, n, device)
	if len(skipped) > 0 {
		row.What += "; some are not fed alone, of " + strings.Join(skipped, ", ")
	}
	c.findings.Checks = append(c.findings.Checks, row)
	return nil
}

// withCopies returns graphs whose products read copies of secondary outputs of kernels, such as
// the weights of experts: a copy can be both read and overwritten by a rig.
func withCopies(g *graphs) (*graphs, error) {
	at := *g
	at.ranges = slices.Clone(g.ranges)
	for i := range at.ranges {
		f := at.ranges[i].Func.Clone()
		copies := map[*ir.Value]*ir.Value{}
		for _, v := range slices.Clone(f.Values) {
			for k, a := range v.Args {
				if !isProduct(v.Op) || a.Op != ir.OpSelect || a.Type.DType == dtype.I32 {
					continue
				}
				if copies[a] == nil {
					var err error
					if copies[a], err = shownAs(f, a); err != nil {
						return nil, err
					}
				}
				v.Args[k] = copies[a]
			}
		}
		if err := f.Sort(); err != nil {
			return nil, err
		}
		at.ranges[i].Func = f
	}
	return &at, nil
}

// operands are views of the device's memory: the operands of a dispatch that other dispatches
// computed.
type operands struct {
	floats [][]float32
	ints   [][]int32
}

// operands returns the computed operands of a dispatch of the step that has run. shown reports
// whether all of them are visible; a secondary output of a kernel is visible only through a
// copy, see [withCopies].
func (r *rig) operands(dispatch int) (o operands, shown bool, err error) {
	shown = true
	for _, b := range r.plan.Phases[r.phase].Dispatches[dispatch].Bindings {
		buffer := &r.plan.Buffers[b.Buffer]
		if b.Write || buffer.Kind != plan.Output {
			shown = shown && (b.Write || buffer.Kind != plan.Arena)
			continue
		}
		if buffer.DType == dtype.I32 {
			x, err := r.session.OutputInts(buffer.Name)
			if err != nil {
				return operands{}, false, err
			}
			o.ints = append(o.ints, x)
			continue
		}
		x, err := r.session.Output(buffer.Name)
		if err != nil {
			return operands{}, false, err
		}
		o.floats = append(o.floats, x)
	}
	return o, shown, nil
}

// alone reruns a dispatch of the step for one of its n tokens. Meanwhile that token's rows
// replace the first rows of the operands.
func (r *rig) alone(ctx context.Context, dispatch int, of operands, token, n int) error {
	step := r.step
	defer func() { r.step = step }()
	one := batch.Piece{Tokens: step.Inputs[sym.Tokens][:1], Blocks: r.blocks, Rows: batch.All}
	r.step.Inputs = batch.Pack(r.plan.Block(), r.plan.Context, one).Inputs
	r.step.Sizes[sym.T], r.step.Sizes[sym.R] = 1, 1
	for _, x := range of.floats {
		defer moveFirst(x, token, n)()
	}
	for _, x := range of.ints {
		defer moveFirst(x, token, n)()
	}
	return r.runOne(ctx, dispatch)
}

// moveFirst copies row number row of the n rows of x over the first row, which the returned
// function restores.
func moveFirst[T int32 | float32](x []T, row, n int) (restore func()) {
	width := len(x) / n
	first := slices.Clone(x[:width])
	copy(x[:width], x[row*width:(row+1)*width])
	return func() { copy(x, first) }
}

// samePlan reports whether two plans are byte-identical.
func samePlan(a, b *plan.Plan) (bool, error) {
	var files [2]bytes.Buffer
	for i, p := range []*plan.Plan{a, b} {
		if err := (&plan.File{Plan: p}).Write(&files[i]); err != nil {
			return false, err
		}
	}
	return bytes.Equal(files[0].Bytes(), files[1].Bytes()), nil
}
