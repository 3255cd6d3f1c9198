package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/samber/lo"
	"golang.org/x/exp/stats"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/device"
	"github.com/smelt-ml/smelt/internal/engine"
	"github.com/smelt-ml/smelt/internal/tools/limits"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/lower/plan"
	"github.com/smelt-ml/smelt/lower/predict"
)

// timedRow is the cost in a test of one kernel's dispatches for one op.
type timedRow struct {
	Test       string `json:"test"`
	Phase      string `json:"phase"` // phase of the plan
	Kernel     string `json:"kernel"`
	Op         string `json:"op"`
	Dispatches int    `json:"dispatches"`
	NS         int64  `json:"ns"`    // the median of the repetitions
	Bytes      int64  `json:"bytes"` // minimum bytes read and written, see predict.Cost
	Ops        int64  `json:"ops"`

	int8Ops  int64   // of Ops, those of dispatches that multiply 8-bit integers
	int4Ops  int64   // of Ops, those that multiply 4-bit by 8-bit integers
	int16Ops int64   // of Ops, those that multiply 16-bit integers
	times    []int64 // ns, by repetition
}

// ceilings are the limits of a device; zero is unknown.
type ceilings struct {
	Source     string  `json:"source"` // "probe" of this machine, or the "table" of chips
	Name       string  `json:"name"`   // of the instruction set or the chip
	ReadGBs    float64 `json:"bandwidth_gbps"`
	F32GOPs    float64 `json:"float_gops"`
	Int8GOPs   float64 `json:"int8_gops"`
	NibbleGOPs float64 `json:"-"` // at least Int8GOPs
}

// ceilingsOf probes the CPU or looks a GPU's limits up. It returns nil for an unknown device and
// for the emulator, whose time no limit of a machine explains.
func ceilingsOf(info device.Info) *ceilings {
	switch {
	case info.GPU != "":
		if chip, known := predict.FindGPU(info.GPU, info.Family, info.Cores); known {
			return &ceilings{"table", chip.Name, chip.Bandwidth, chip.TFLOPS() * 1e3, 0, 0}
		}
	case info.ISA != "":
		c := limits.Probe(info.ISA, info.Threads)
		return &ceilings{"probe", info.ISA, c.ReadGBs, c.F32GOPs, c.Int8GOPs, c.NibbleGOPs}
	}
	return nil
}

// timedTest is a test of bench with a time for each dispatch.
type timedTest struct {
	name  string
	rows  []*timedRow // in order of decreasing time
	steps int         // steps of the test
	ns    int64       // total time, the median of the repetitions
}

// profileTests times the dispatches of prefill and of one decode step, as requested.
func profileTests(ctx context.Context, s *smelt.Session, plan *plan.Plan, prompt, n, depth, runs int) ([]*timedTest, error) {
	var tests []*timedTest
	for _, test := range []struct {
		name        string
		asked, does int // tokens
	}{{"pp", prompt, prompt}, {"tg", n, 1}} {
		if test.asked == 0 {
			continue
		}
		t, err := profileTest(ctx, s, plan, fmt.Sprintf("%s%d", test.name, test.does), depth, test.does, runs)
		if err != nil {
			return nil, err
		}
		tests = append(tests, t)
	}
	return tests, nil
}

// profileTest times the dispatches of a test, with the repetitions of measure.
func profileTest(ctx context.Context, s *smelt.Session, plan *plan.Plan, name string, depth, tokens, runs int) (*timedTest, error) {
	sequence, err := engine.NewSequence(plan, s.Loaded().OnDevice())
	if err != nil {
		return nil, err
	}
	defer sequence.Close()
	if err := sequence.FillRandom(depth, rand.New(rand.NewPCG(1, 3))); err != nil {
		return nil, err
	}
	random := randomTokens(s)
	t := &timedTest{name: name}
	var totals []int64
	for run := range runs + 1 { // the first warms up
		steps, err := sequence.Profile(ctx, random(tokens))
		if err != nil {
			return nil, err
		}
		sequence.Truncate(depth)
		if run == 0 {
			t.steps = len(steps)
			continue
		}
		totals = append(totals, t.add(plan, s.Loaded(), steps))
	}
	t.ns = median(totals)
	for _, r := range t.rows {
		r.NS = median(r.times)
	}
	slices.SortStableFunc(t.rows, func(a, b *timedRow) int { return cmp.Compare(b.NS, a.NS) })
	return t, nil
}

// add adds a repetition, and returns its time. It counts bytes and operations once, since every
// repetition has the same.
func (t *timedTest) add(plan *plan.Plan, on *smelt.Loaded, steps []engine.Profiled) (total int64) {
	natives, halves := on.OnDevice().Natives(), on.Info().HalfIntegers
	type key struct{ phase, kernel, op string }
	rows := map[key]*timedRow{}
	for _, r := range t.rows {
		rows[key{r.Phase, r.Kernel, r.Op}] = r
		r.times = append(r.times, 0)
	}
	first := len(t.rows) == 0
	for _, step := range steps {
		phase := &plan.Phases[step.Phase]
		for i := range phase.Dispatches {
			d := &phase.Dispatches[i]
			k := key{phase.Name, d.Kernel, d.Op}
			r := rows[k]
			if r == nil {
				r = &timedRow{Test: t.name, Phase: k.phase, Kernel: k.kernel, Op: k.op, times: []int64{0}}
				rows[k] = r
				t.rows = append(t.rows, r)
			}
			r.times[len(r.times)-1] += step.Nanoseconds[i]
			total += step.Nanoseconds[i]
			if !first {
				continue
			}
			cost := predict.CostOf(plan, d, &step.Sizes)
			r.Dispatches++
			r.Bytes += cost.Bytes()
			r.Ops += cost.Ops
			switch {
			case !natives[d.Kernel]:
			case reads(plan, d, hasNibbles):
				r.int4Ops += cost.Ops
			case reads(plan, d, dtype.Type.IsQuantized):
				r.int8Ops += cost.Ops
			case halves && reads(plan, d, func(w dtype.Type) bool { return w == dtype.F16 || w == dtype.BF16 }):
				r.int16Ops += cost.Ops
			}
		}
	}
	return total
}

// hasNibbles reports whether a type's elements have at most four bits, stored apart from the scales.
func hasNibbles(w dtype.Type) bool { return w.IsQuantized() && w.Bytes(256) <= 256*5/8 }

// reads reports whether a dispatch reads weights of a type that is accepts.
func reads(compiled *plan.Plan, d *plan.Dispatch, some func(dtype.Type) bool) bool {
	return slices.ContainsFunc(d.Bindings, func(b plan.Binding) bool {
		of := &compiled.Buffers[b.Buffer]
		return of.Kind == plan.Weight && some(of.DType)
	})
}

func median(ns []int64) int64 {
	floats := make([]float64, len(ns))
	for i, n := range ns {
		floats[i] = float64(n)
	}
	return int64(stats.Median(floats))
}

// profileNote returns a note on the clock that times dispatches, what it excludes, and the
// limits.
func profileNote(info device.Info, c *ceilings) string {
	how := "by the clock of the host"
	switch {
	case info.GPU != "" && info.Samples:
		how = "by the GPU's clock, sampled at the stage boundaries of a pass for each"
	case info.GPU != "":
		how = "as command buffers of their own: this GPU has no clock to read between passes"
	}
	return "profile: dispatches timed one after the other, " + how + ";\n" +
		"in a usual step those between two barriers may run at once\n" + c.String()
}

// printProfiles prints a table for each test.
func printProfiles(out io.Writer, tests []*timedTest, c *ceilings) error {
	for _, t := range tests {
		w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
		fmt.Fprintf(w, "\n%s: %.3f ms in %d %s, one dispatch after the other\n", t.name, float64(t.ns)/1e6, t.steps, lo.Ternary(t.steps == 1, "step", "steps"))
		fmt.Fprintf(w, "PHASE\tKERNEL\tOP\tDISPATCHES\tMS\tSHARE\tMB\tGB/S\tMOP\tGOP/S\tOF THE LIMITS\n")
		for _, r := range t.rows {
			ns := float64(max(r.NS, 1))
			fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%.3f\t%.1f %%\t%.3f\t%.2f\t%.2f\t%.2f\t%s\n", r.Phase, r.Kernel, r.Op, r.Dispatches,
				float64(r.NS)/1e6, 100*ns/float64(max(t.ns, 1)), float64(r.Bytes)/1e6, float64(r.Bytes)/ns, float64(r.Ops)/1e6, float64(r.Ops)/ns, c.shares(r))
		}
		if err := w.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// shares returns a row's share of the limits: the time of its bytes and of its operations at the
// limits, divided by its time.
func (c *ceilings) shares(r *timedRow) string {
	if c == nil {
		return "·"
	}
	var of []string
	ns := float64(max(r.NS, 1))
	if c.ReadGBs > 0 {
		of = append(of, fmt.Sprintf("%.0f %% memory", 100*float64(r.Bytes)/c.ReadGBs/ns))
	}
	bytes := r.int8Ops + 2*r.int16Ops // an instruction does half as many 16-bit products as 8-bit ones
	if c.F32GOPs > 0 && (bytes+r.int4Ops == 0 || c.Int8GOPs > 0) {
		least := float64(r.Ops-r.int8Ops-r.int4Ops-r.int16Ops) / c.F32GOPs
		if bytes+r.int4Ops > 0 {
			least += float64(bytes)/c.Int8GOPs + float64(r.int4Ops)/c.NibbleGOPs
		}
		of = append(of, fmt.Sprintf("%.0f %% compute", 100*least/ns))
	}
	return strings.Join(of, ", ")
}

// String returns the limits and their source.
func (c *ceilings) String() string {
	switch {
	case c == nil:
		return "limits of this device: unknown"
	case c.Source == "table":
		return fmt.Sprintf("limits of %s, as published of its largest form: %.0f GB/s, %.0f GFLOP/s", c.Name, c.ReadGBs, c.F32GOPs)
	case c.F32GOPs == 0:
		return fmt.Sprintf("limits of this machine, probed now: reads %.1f GB/s; no probe of multiply-adds for %q", c.ReadGBs, c.Name)
	}
	nibbles := ""
	if c.NibbleGOPs > c.Int8GOPs {
		nibbles = fmt.Sprintf(", nibbles %.0f GOP/s", c.NibbleGOPs)
	}
	return fmt.Sprintf("limits of this machine, probed now with %s: reads %.1f GB/s, float %.0f GOP/s, int8 %.0f GOP/s%s;\nwhat stays in caches can exceed the first",
		c.Name, c.ReadGBs, c.F32GOPs, c.Int8GOPs, nibbles)
}
