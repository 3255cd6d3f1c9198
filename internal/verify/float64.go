package verify

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/internal/compare"
	"github.com/smelt-ml/smelt/internal/ref"
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/ir/sym"
	"github.com/smelt-ml/smelt/lower"
	"github.com/smelt-ml/smelt/lower/plan"
)

// KernelCheck compares all dispatches of a kernel with float64: what each wrote with the float64
// result of the operands that it read on the device.
type KernelCheck struct {
	Kernel     string `json:"kernel"`
	Weights    string `json:"weights,omitempty"` // element types of quantized weights
	Device     string `json:"device"`
	Native     bool   `json:"native"` // compiled natively; else emulated from its Metal source
	Dispatches int    `json:"dispatches"`
	// Bound and Relative are those of the element that uses the largest share of its bound.
	Difference
}

// WrongOp is an op whose result differs from float64 beyond the bound.
type WrongOp struct {
	Value   string `json:"value"`
	Op      string `json:"op"`
	Layer   int    `json:"layer"` // -1 outside the layers
	Device  string `json:"device"`
	Kernel  string `json:"kernel"`
	Phase   string `json:"phase"`
	Step    int    `json:"step"`    // of Findings.Steps, from 0
	Row     int    `json:"row"`     // of the value, usually the index of the token in the step
	Element int    `json:"element"` // of the row
	// Weight and WeightRow are the weight, and its row, that a product or an embedding computed
	// the element from: "A and B" where a gate combines two weights. In a mixture WeightRow
	// counts within an expert.
	Weight    string  `json:"weight,omitempty"`
	WeightRow int     `json:"weight_row"`
	Want      Measure `json:"want"`
	Got       Measure `json:"got"`
	Bound     Measure `json:"bound"` // of their difference
	Line      string  `json:"line"`  // the value's line in the graph's text
}

// Bounds of one op's error against float64, relative to the largest magnitude in its row.
// Products and embeddings have bounds per element, see package ref.
const (
	// opBound is for float. Sums of K terms are off by some √K·2⁻²⁴ of them, and the
	// exponential, sine and division by a few units more: below 1e-5 for every K in use. Scores
	// of attention, some tens in size, and so their exponentials, are off by ten times that.
	opBound = 1e-4
	// opBoundHalf is for ops that compute with halves or store them, 2⁻¹¹ for each
	// rounding: attention rounds its probabilities, its result, and in tiles the values.
	opBoundHalf = 0x1p-9
)

// referenceWeights returns the weights that float64 computes with. Tests set it to weights other
// than the device's.
var referenceWeights = func(m Subject) weights { return m }

// weights are a model's weights as they are stored.
type weights interface {
	Data(name string) (t dtype.Type, data []byte, ok bool)
}

// follower compares a device with float64 op by op.
type follower struct {
	c       *verifier
	rig     *rig
	device  string
	natives map[string]bool
	weights *ref.Weights // except matrices
	caches  []*ref.Cache
	worst   Difference
	ops     int

	// The current step.
	step  int
	phase *plan.Phase
	seen  map[string]sighting // by key
	after map[string]int      // the dispatch after which a probe was read
}

// followed runs a plan on a device dispatch by dispatch, and computes each op in float64 from
// the operands on the device. One op's rounding is not carried into the next, whose layers could
// amplify it, so the bounds are those of a single op and a failure names the op.
func (c *verifier) followed(ctx context.Context, g *graphs, device string, layers int) error {
	opts := "float"
	if g.target.Act != dtype.F32 {
		opts = g.target.Act.String()
	}
	name := fmt.Sprintf("float64 / %s", device)
	if device != "cpu" {
		name += " " + opts
	}
	if g.target.Emulates && device != "cpu" {
		name = "float64 / emulated"
	}
	c.progress("comparing %s with float64, op by op", device)
	r, err := newRig(g, c.Subject, c.at(device), everyValue(c.depth(layers)), true)
	if err != nil {
		return err
	}
	defer r.close()
	f := &follower{
		c: c, rig: r, device: device, worst: Difference{Verdict: Within},
		weights: ref.NewWeights(referenceWeights(c.Subject).Data), caches: ref.CachesFor(r.funcs[0], len(r.blocks)),
	}
	if device == "cpu" {
		f.natives = r.program.Natives()
	}
	ids := c.ids
	for step, n := range c.steps {
		if err := f.run(ctx, step, ids[:n], layers); err != nil {
			return err
		}
		ids = ids[n:]
	}
	if err := c.everyToken(ctx, g, f); err != nil {
		return err
	}
	of := ""
	if layers < c.layers {
		of = fmt.Sprintf(" of layers 0-%d of %d", layers-1, c.layers)
	}
	c.findings.Checks = append(c.findings.Checks, Check{
		Name: name, Against: AgainstFloat64,
		What:       fmt.Sprintf("%d ops%s, each from its operands on %s, cache in %s", f.ops, of, device, c.Options.KV),
		Difference: f.worst,
	})
	return nil
}

// everyToken embeds the whole vocabulary, because the steps embed only a few of its rows.
func (c *verifier) everyToken(ctx context.Context, g *graphs, f *follower) error {
	r, err := newRig(g, c.Subject, c.at(f.device), func(*ir.Func) func(*ir.Value) bool {
		return func(v *ir.Value) bool { return v.Op == ir.OpEmbed }
	}, true)
	if err != nil {
		return err
	}
	defer r.close()
	f.rig = r
	ids := make([]int32, c.vocab)
	for i := range ids {
		ids[i] = int32(i)
	}
	for part := range slices.Chunk(ids, int(slices.Max(fullSteps))) {
		r.length = 0
		if err := f.run(ctx, 0, part, c.layers); err != nil {
			return err
		}
	}
	return nil
}

// key returns the map key of what a probe sees.
func key(v *ir.Value, part string) string { return v.String() + " " + part }

// run runs one step on the device and then in float64.
func (f *follower) run(ctx context.Context, step int, ids []int32, layers int) error {
	var err error
	if f.phase, err = f.rig.begin(ids); err != nil {
		return err
	}
	f.step, f.seen, f.after = step, make(map[string]sighting), make(map[string]int)
	for k := range f.phase.Dispatches {
		if err := f.rig.runOne(ctx, k); err != nil {
			return err
		}
		for _, p := range f.rig.written(&f.phase.Dispatches[k]) {
			data, err := f.rig.read(p)
			if err != nil {
				return err
			}
			at := key(p.value, p.part)
			f.seen[at] = sighting{step, p, p.rows(&f.rig.step.Sizes), slices.Clone(data)}
			f.after[at] = k
		}
	}
	_, err = ref.Run(f.rig.funcs[f.rig.phase], ref.Env{
		Sizes: f.rig.step.Sizes, Inputs: f.rig.step.Inputs, Weight: f.weights.Load, Caches: f.caches, RoundCache: true,
		Followed: &ref.Followed{
			Stored: referenceWeights(f.c.Subject).Data, Arithmetic: f.arithmetic, Rows: f.c.productRows(layers, len(ids)),
			Computed: f.computed, Written: f.written,
		},
	})
	return err
}

// productRows returns the number of rows of a product that float64 computes in a step of n
// tokens: all n, or as many as emulatedWork allows for every layer.
func (c *verifier) productRows(layers, n int) int {
	share := float64(min(layers, c.layers)) / float64(max(1, c.layers))
	rows := int(emulatedWork / (float64(c.work) * share * float64(len(c.steps))))
	return max(1, min(n, rows))
}

// kernel returns the kernel that computed a value.
func (f *follower) kernel(v *ir.Value) string {
	d, _ := producer(f.phase, f.after[key(v, "")], origin(v))
	return d.Kernel
}

// arithmetic returns how the device rounds the operands of a product.
func (f *follower) arithmetic(v *ir.Value) ref.Arithmetic {
	kernel := f.kernel(v)
	if f.natives[kernel] {
		return ref.Arithmetic{Int8: true, Int16: f.rig.device.Info().HalfIntegers}
	}
	return ref.Arithmetic{Tile: lower.TileType(kernel)}
}

// computed compares a tensor with the device's and returns the device's, which float64 continues
// from.
func (f *follower) computed(v *ir.Value, want *ref.Tensor) (*ref.Tensor, error) {
	s, ok := f.seen[key(v, "")]
	if !ok {
		return nil, nil
	}
	if want.Ints != nil {
		got := &ref.Tensor{Shape: want.Shape, Ints: make([]int32, len(want.Ints))}
		data := make([]float64, len(want.Ints))
		for i, n := range want.Ints {
			data[i], got.Ints[i] = float64(n), int32(s.data[i])
		}
		return got, f.note(v, &s, data, nil, 0)
	}
	got := &ref.Tensor{Shape: want.Shape, Data: make([]float64, len(want.Data))}
	if len(s.data) != len(want.Data) {
		return nil, fmt.Errorf("%w: %s has %d elements, want %d", errTraces, s.probe, len(s.data), len(want.Data))
	}
	for i, x := range s.data {
		got.Data[i] = float64(x)
	}
	bound := opBound
	if halves(v) {
		bound = opBoundHalf
	}
	return got, f.note(v, &s, want.Data, want.Slack, bound)
}

// halves reports whether an op reads or stores activations narrower than floats.
func halves(v *ir.Value) bool {
	narrow := func(t dtype.Type) bool { return t == dtype.F16 || t == dtype.BF16 }
	return narrow(v.Type.DType) || slices.ContainsFunc(origin(v).Args, func(a *ir.Value) bool {
		return a.Op != ir.OpWeight && a.Type.Kind == ir.Tensor && narrow(a.Type.DType)
	})
}

// written compares a cache after the step with the device's and continues float64 from the
// device's.
func (f *follower) written(v *ir.Value, cache *ref.Cache) error {
	total := f.rig.length
	for _, side := range []struct {
		part string
		to   []float64
	}{{"keys", cache.K}, {"values", cache.V}} {
		to := side.to
		s, ok := f.seen[key(v, side.part)]
		if !ok {
			continue
		}
		s.rows = total * cache.KVHeads
		s.data = s.data[:s.rows*cache.Head]
		want := make([]float64, len(s.data))
		for i := range s.rows {
			j, head := i/cache.KVHeads, i%cache.KVHeads // blocks are in order
			at := ((j/cache.Block*cache.KVHeads+head)*cache.Block + j%cache.Block) * cache.Head
			row := to[at : at+cache.Head]
			copy(want[i*cache.Head:], row)
			for j := range row {
				row[j] = float64(s.data[i*cache.Head+j])
			}
		}
		bound := opBound
		if halves(v) {
			bound = opBoundHalf
		}
		// Values close to the middle between two steps of the cache's format may round to
		// either.
		if err := f.note(v, &s, want, nil, bound+cacheBound[cache.DType]); err != nil {
			return err
		}
	}
	return nil
}

// note adds one comparison to the row of the kernel that computed the value. Elements have a
// slack each, or a bound relative to their row.
func (f *follower) note(v *ir.Value, s *sighting, want, slack []float64, bound float64) error {
	from := origin(v)
	d, _ := producer(f.phase, f.after[key(v, s.probe.part)], from)
	worst, at, allowed := Difference{Verdict: Within, Bound: bound}, -1, 0.0
	width := len(want) / max(s.rows, 1)
	broken := false
	for r := 0; r < s.rows; r++ {
		row, got := want[r*width:(r+1)*width], s.data[r*width:(r+1)*width]
		most := 0.0
		for _, x := range row {
			if !math.IsInf(x, 0) && !math.IsNaN(x) {
				most = max(most, math.Abs(x))
			}
		}
		for i, x := range row {
			limit := bound * most
			if slack != nil {
				limit = slack[r*width+i]
				if math.IsInf(limit, 1) {
					continue // the row was not computed
				}
			}
			masked := v.Op == ir.OpMask && math.IsInf(x, -1)
			broken = broken || !finite(got[i], v.Op) || !masked && (math.IsNaN(x) || math.IsInf(x, 0))
			off := compare.Apart(x, got[i])
			if math.IsNaN(x) && math.IsNaN(float64(got[i])) || off == 0 {
				continue
			}
			next := Difference{Absolute: Measure(off), Relative: Measure(off / most), Bound: limit / most, Verdict: Within}
			switch {
			case !(off <= limit):
				next.Verdict = Beyond
				if most == 0 || math.IsNaN(limit) {
					next.Relative, next.Bound = Measure(math.Inf(1)), bound
				}
			case most == 0: // below the smallest step
				continue
			}
			if at < 0 || worse(next, worst) {
				worst, at, allowed = next, r*width+i, limit
			}
		}
	}
	f.ops++
	weights := quantizedWeights(from)
	id := d.Kernel + " " + weights + " " + f.device
	line := f.c.kernels[id]
	if line == nil {
		line = &KernelCheck{
			Kernel: d.Kernel, Weights: weights, Device: f.device, Native: f.natives[d.Kernel],
			Difference: Difference{Verdict: Within, Bound: bound},
		}
		f.c.kernels[id] = line
	}
	line.Dispatches++
	if at >= 0 {
		worst.Where = fmt.Sprintf("%s, %s, row %d", s.when(f.c.steps), s.probe, at/width)
		if name, n := f.madeOf(from, at/width, at%width); name != "" {
			worst.Where += fmt.Sprintf(", of row %d of %s", n, name)
		}
	}
	if broken {
		worst.Verdict = NotFinite
	}
	if worst.Verdict == Beyond && f.c.wrong == nil {
		name, n := f.madeOf(from, at/width, at%width)
		f.c.wrong = &WrongOp{
			Value: from.String(), Op: from.Op.String(), Layer: from.Layer, Device: f.device, Kernel: d.Kernel, Phase: f.phase.Name,
			Step: f.step, Row: at / width, Element: at % width, Weight: name, WeightRow: n,
			Want: Measure(want[at]), Got: Measure(s.data[at]), Bound: Measure(allowed),
			Line: from.LongString(),
		}
	}
	if worse(worst, line.Difference) {
		line.Difference = worst
	}
	if worse(worst, f.worst) {
		f.worst = worst
	}
	return nil
}

// madeOf returns the weight, and its row, that an element of a row of a product or an embedding
// is computed from. An element of a gated pair comes from the same row of both weights, and an
// element of a mixture from that row of its token's experts.
func (f *follower) madeOf(v *ir.Value, row, element int) (string, int) {
	var weights []*ir.Value
	switch v.Op {
	case ir.OpEmbed:
		return v.Args[1].Name(), int(f.rig.step.Inputs[sym.Tokens][row])
	case ir.OpLinear:
		weights = v.Args[1:2]
	case ir.OpFusedLinear:
		a := v.Attr.(ir.LinearAttr)
		if weights = v.Args[1 : 1+a.Weights]; a.Gated {
			return weights[0].Name() + " and " + weights[1].Name(), element
		}
	case ir.OpExpertLinear, ir.OpRoutedLinear:
		_, o := ir.AsRoutedLinear(v)
		names := lo.Map(o.Weights, func(w *ir.Value, _ int) string { return w.Name() })
		return strings.Join(names, " and "), element % int(v.Type.Shape.Last())
	default:
		return "", 0
	}
	for _, w := range weights {
		rows, _ := w.Type.Shape[0].IsConst()
		if element < int(rows) {
			return w.Name(), element
		}
		element -= int(rows)
	}
	return "", 0
}
