package smelt

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/lower"
)

// Verification says what Verify does.
type Verification struct {
	Options Options // of the model as it would run on the device
	Device  Device
	// Program, if set, is a Plan of the model, as it was read from a file. It is
	// compared with what Options compile to.
	Program *Program
	// Bisect also looks for the first pass that changes the results, and for the
	// first value that is no number.
	Bisect bool
	// Progress, if set, is told what begins.
	Progress func(what string)
}

// Findings are what Verify found.
type Findings struct {
	Model  string `json:"model"`
	Device string `json:"device"`
	Steps  []int  `json:"steps"`  // tokens of each step
	Layers int    `json:"layers"` // of the model
	// Partly says what was left out, "" where nothing was.
	Partly string  `json:"partly,omitempty"`
	Checks []Check `json:"checks"`
	// Kernels compares each native kernel with its emulation, dispatch by dispatch
	// on the same operands.
	Kernels []KernelCheck `json:"kernels"`
	Bisect  *Bisection    `json:"bisect,omitempty"`
	OK      bool          `json:"ok"`
}

// Check compares two ways to run the model on the same tokens.
type Check struct {
	Name string `json:"name"`
	What string `json:"what"` // which values, how they were computed
	Difference
	// Informational checks do not decide whether the model passes, unless a result
	// is no number.
	Informational bool `json:"informational,omitempty"`
}

// KernelCheck is the largest difference of all dispatches of a kernel.
type KernelCheck struct {
	Kernel     string `json:"kernel"`
	Weights    string `json:"weights,omitempty"` // element types of quantised weights
	Native     bool   `json:"native"`            // or emulated on the CPU, too
	Dispatches int    `json:"dispatches"`
	Difference
}

// Difference is how far two results are apart.
type Difference struct {
	// Absolute is the largest difference of two elements, Relative the largest in
	// relation to the row that they are in: to the standard deviation of a row of
	// logits, since only differences between logits mean anything, and to the
	// largest magnitude in other rows. Both may belong to different elements.
	Absolute Measure `json:"absolute"`
	Relative Measure `json:"relative"`
	Bound    float64 `json:"bound"` // of Relative
	Where    string  `json:"where,omitempty"`
	Verdict  Verdict `json:"verdict"`
}

// Verdict is what a comparison came to.
type Verdict string

// The verdicts.
const (
	Within    Verdict = "ok"
	Beyond    Verdict = "out of bounds"
	NotFinite Verdict = "not finite" // a result is NaN or infinite
	Skipped   Verdict = "skipped"    // What says why
)

// Measure is a size, in JSON null if it is not finite.
type Measure float64

// MarshalJSON writes a number or null.
func (m Measure) MarshalJSON() ([]byte, error) {
	if math.IsNaN(float64(m)) || math.IsInf(float64(m), 0) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(m))
}

// Bounds of relative differences.
const (
	// dispatchBound is for one dispatch in float. A sum of K products in another
	// order differs by some √K·2⁻²⁴, below 1e-5 for every K in use.
	dispatchBound = 1e-4
	// floatBound is for logits and caches after all layers in float. The layers in
	// turn amplify what the dispatches leave: by ten is usual, a hundred would pass.
	floatBound = 1e-3
	// halfBound is for logits with half activations: 2⁻¹¹ for each rounding, some
	// hundred roundings that add up like their root, and the tail of many logits.
	halfBound = 5e-2
)

// cacheBound is one step of a cache's format in relation to the largest element:
// what is nearly equal may be rounded apart.
var cacheBound = map[ir.DType]float64{ir.F32: 0, ir.F16: 0x1p-10, ir.Q8_0: 1. / 127}

// Native kernels round the activations of quantised weights to int8, in blocks of
// 32. Each is then off by at most 1/254 of its block's largest, uniformly, so by
// 1/(254·√3) in the root mean square. The worst block holds a single large element,
// and 31 errors of that size beside it: √32 times as much. The errors of products
// that follow each other add up like their root; the largest of a million logits
// lies some five standard deviations out.
const (
	int8Product = 3.266 / 254 // √32/√3
	int8Tail    = 5
	// int8Step is what a single element rounded the other way may change.
	int8Step = 1. / 127
)

// Steps that are verified: one more than a tile of 32 tokens, one less, from an
// offset within a tile, across 64 keys; the smallest prefill; single tokens. The
// short ones are for models that take long to emulate.
var (
	fullSteps  = []int{33, 31, 2, 1, 1, 1}
	shortSteps = []int{33, 1, 1}
)

const (
	// bisectShare is the share of emulatedWork for each graph of a bisection.
	bisectShare = 1. / 8
	// minLayers shows at least one layer's result, in the next one's cache.
	minLayers = 2
	// verifyContext holds all steps.
	verifyContext = 128
	verifySeed    = 20261
)

// emulatedWork is how many multiplications the emulation is given for one run over
// the tokens: around half a minute's. Tests give less.
var emulatedWork = 24e9

// afterPass, set by tests, may change a graph after a pass, as a wrong pass would.
var afterPass func(pass string, f *ir.Func)

// verifier holds what the checks of one Verify share.
type verifier struct {
	Verification
	m        *Model
	ids      []int32
	steps    []int
	work     int64 // multiplications for one token
	layers   int
	emulated int  // layers that are emulated; layers if all
	int8     bool // some weights are quantised
	products int  // on the way through the model
	inFloat  trace
	findings Findings
}

// Verify runs the model in several ways that should agree, on fixed tokens, and
// tells how far they are apart:
//
//   - the source graph and the fused graph, with float activations and cache;
//   - native kernels and the emulation of the same kernels, each dispatch by itself
//     and in a row;
//   - activations in half precision, as on Metal, and in float;
//   - tokens at once and one after the other;
//   - a Plan from a file, if one is given, and the model.
//
// For large models fewer tokens, and fewer layers, are emulated; the findings say
// so. An error means that something could not run; what does not agree is in the
// findings.
func (m *Model) Verify(ctx context.Context, v Verification) (*Findings, error) {
	if !m.HasWeights() {
		return nil, fmt.Errorf("%s: %w", m.name, ErrNoWeights)
	}
	c := &verifier{Verification: v, m: m}
	if err := c.prepare(); err != nil {
		return nil, err
	}
	for _, check := range []func(context.Context) error{c.sourceAndFused, c.nativeAndEmulated, c.prefillAndDecode, c.planAndModel} {
		if err := check(ctx); err != nil {
			return nil, err
		}
	}
	f := &c.findings
	f.OK = true
	for _, check := range f.Checks {
		f.OK = f.OK && (check.Verdict == Within || check.Verdict == Skipped || check.Informational && check.Verdict == Beyond)
	}
	for _, k := range f.Kernels {
		f.OK = f.OK && k.Verdict == Within
	}
	if v.Bisect {
		var err error
		if f.Bisect, err = c.bisect(ctx); err != nil {
			return nil, err
		}
		f.OK = f.OK && f.Bisect.Pass == "" && f.Bisect.NonFinite == nil
	}
	return f, nil
}

// prepare chooses tokens, steps and layers.
func (c *verifier) prepare() error {
	if c.Options.Context == 0 || c.Options.Context > verifyContext { // more would be room, and nothing else
		c.Options.Context = verifyContext
	}
	if c.Options.KV == ir.Invalid {
		c.Options.KV = ir.F16
	}
	c.Options.Prefill = slices.Max(fullSteps)
	var err error
	if c.Options.Target, err = TargetOf(c.underTest()); err != nil {
		return err
	}
	g, err := c.compile(c.Options)
	if err != nil {
		return err
	}
	c.Options.DebugOutput = nil // once is enough
	source, err := c.m.build(ir.Options{KV: c.Options.KV, Block: c.Options.Context})
	if err != nil {
		return err
	}
	vocab := int64(0)
	c.work = 1
	for _, v := range source.Values {
		switch v.Op {
		case ir.OpEmbed:
			vocab, _ = v.Args[1].Type.Shape[0].IsConst()
		case ir.OpLinear:
			w := v.Args[1].Type
			n, _ := w.Shape[0].IsConst()
			c.work += n * w.Shape.Last()
			c.int8 = c.int8 || w.DType.IsQuantised()
		}
	}
	if vocab == 0 {
		return fmt.Errorf("%s: its graph embeds no tokens, so there is nothing to feed it", c.m.name)
	}
	for _, v := range g.ranges[len(g.ranges)-1].Func.Values {
		if v.Op == ir.OpLinear || v.Op == ir.OpFusedLinear {
			c.products++
		}
	}
	c.layers = source.Layers()
	c.steps = fullSteps
	if float64(c.work)*float64(sum(fullSteps)) > emulatedWork {
		c.steps = shortSteps
	}
	c.emulated = c.affordable(sum(c.steps), emulatedWork)
	if need := sum(c.steps); need > c.Options.Context {
		return fmt.Errorf("verifying takes %d tokens, and the context has %d", need, c.Options.Context)
	}
	rng := rand.New(rand.NewPCG(verifySeed, 0))
	for range sum(c.steps) {
		c.ids = append(c.ids, int32(rng.Int64N(vocab)))
	}
	c.findings = Findings{Model: c.m.name, Device: c.underTest(), Steps: c.steps, Layers: c.layers}
	if !slices.Equal(c.steps, fullSteps) {
		c.findings.Partly = fmt.Sprintf("emulating it takes long: %d tokens instead of %d", sum(c.steps), sum(fullSteps))
		if c.emulated < c.layers {
			c.findings.Partly += fmt.Sprintf(", %d of %d layers", c.emulated, c.layers)
		}
	}
	return nil
}

func sum(list []int) int {
	n := 0
	for _, x := range list {
		n += x
	}
	return n
}

// affordable returns how many layers can be emulated for so many tokens.
func (c *verifier) affordable(tokens int, work float64) int {
	need := float64(c.work) * float64(tokens)
	if need <= work {
		return c.layers
	}
	return min(c.layers, max(minLayers, int(float64(c.layers)*work/need)))
}

// tokens returns how many can be emulated through all layers, two or more.
func (c *verifier) tokens(work float64) int { return max(2, int(work/float64(c.work))) }

// results says which results are compared where only some layers are emulated.
func (c *verifier) results(layers int) string {
	if layers >= c.layers {
		return "logits and caches"
	}
	return fmt.Sprintf("caches of layers 0-%d of %d", layers-1, c.layers)
}

// all is more layers than a model has.
const all = math.MaxInt

// depth is the number of layers for a picker.
func (c *verifier) depth(layers int) int {
	if layers >= c.layers {
		return all
	}
	return layers
}

func (c *verifier) progress(format string, args ...any) {
	if c.Progress != nil {
		c.Progress(fmt.Sprintf(format, args...))
	}
}

// compile compiles the model and keeps the graphs.
func (c *verifier) compile(opts Options) (*graphs, error) {
	opts.Observer = func(_, pass string, f *ir.Func) {
		if afterPass != nil {
			afterPass(pass, f)
		}
	}
	if opts.Target == "cpu" {
		opts.Products = nil // the native kernels are compared with; the plan under test is for metal
	}
	p, err := c.m.Compile(opts)
	if err != nil {
		return nil, err
	}
	return graphsOf(p, opts)
}

// graphsOf returns what a program was lowered from.
func graphsOf(p *Program, opts Options) (*graphs, error) {
	target, err := lower.NewTarget(p.Plan.Target, lower.DecodeTokens)
	if err != nil {
		return nil, err
	}
	target.Act = p.Plan.Act
	g := &graphs{name: p.Plan.Model, target: target, opts: lower.Options{Context: opts.Context}}
	for i := range p.Plan.Phases {
		ph := &p.Plan.Phases[i]
		g.ranges = append(g.ranges, lower.Range{
			Name: ph.Name, Func: p.Stages[i].Fused, MinT: ph.MinT, MaxT: ph.MaxT, MaxContext: ph.MaxContext,
		})
	}
	return g, nil
}

// on returns the device of that name, with the options of the one under test.
func (c *verifier) on(name string) Device { return Device{Name: name, Options: c.Device.Options} }

// underTest returns the device that the model would run on.
func (c *verifier) underTest() string {
	if name := strings.ToLower(c.Device.Name); name != "auto" && name != "" {
		return name
	}
	return "cpu"
}

// act returns the type of activations on a device.
func (c *verifier) act(device string) ir.DType {
	switch {
	case device == "cpu":
		return ir.F32
	case c.Options.Act != ir.Invalid:
		return c.Options.Act
	}
	return ir.F16
}

// float returns the options and device for comparisons in float alone: the native
// kernels of quantised weights round activations, so those models are emulated.
func (c *verifier) float() (Options, string, int) {
	opts := c.Options
	opts.KV, opts.Act = ir.F32, ir.F32
	if device := c.underTest(); !c.int8 || device != "cpu" {
		opts.Target, _ = TargetOf(device)
		return opts, device, c.layersOn(device)
	}
	opts.Target = "metal"
	return opts, "emu", c.emulated
}

func (c *verifier) layersOn(device string) int {
	if device == "emu" {
		return c.emulated
	}
	return c.layers
}

// trace runs compiled graphs over the tokens and keeps what is picked.
func (c *verifier) trace(ctx context.Context, g *graphs, device string, pick picker, ids []int32, steps []int) (trace, error) {
	r, err := newRig(g, c.m, c.on(device), pick, false, nil)
	if err != nil {
		return nil, err
	}
	defer r.close()
	return r.follow(ctx, ids, steps)
}

func (c *verifier) sourceAndFused(ctx context.Context) error {
	opts, device, layers := c.float()
	run := func(level int, name string) (trace, error) {
		c.progress("running the %s graph on %s", name, device)
		opts.Level = level
		g, err := c.compile(opts)
		if err != nil {
			return nil, err
		}
		t, err := c.trace(ctx, g, device, everyResult(c.depth(layers)), c.ids, c.steps)
		if err != nil {
			return nil, fmt.Errorf("running the %s graph: %w", name, err)
		}
		return t, nil
	}
	source, err := run(0, "source")
	if err != nil {
		return err
	}
	c.inFloat = source
	row := Check{Name: "source / fused", What: fmt.Sprintf("%s on %s in float", c.results(layers), device)}
	if c.Options.Level == 0 {
		row.What, row.Verdict = "level 0 leaves the source graph as it is", Skipped
		c.findings.Checks = append(c.findings.Checks, row)
		return nil
	}
	if c.inFloat, err = run(c.Options.Level, "fused"); err != nil {
		return err
	}
	return c.check(row, floatBound, source, c.inFloat)
}

// check compares two traces and notes the outcome.
func (c *verifier) check(row Check, bound float64, want, got trace) error {
	d, err := compareTraces(want, got)
	if err != nil {
		return fmt.Errorf("%s: %w", row.Name, err)
	}
	row.Difference = d.judge(bound)
	c.findings.Checks = append(c.findings.Checks, row)
	return nil
}

// nativeAndEmulated runs one Plan twice: with native kernels, and emulated. Every
// dispatch is compared by itself, on what the emulation made of those before. Then
// it compares what happens to activations, on either side, with float.
func (c *verifier) nativeAndEmulated(ctx context.Context) error {
	opts := c.Options
	opts.Target, opts.Act = "cpu", ir.F32
	g, err := c.compile(opts)
	if err != nil {
		return err
	}
	c.progress("comparing native and emulated kernels")
	emulated, err := c.lockstep(ctx, g)
	if err != nil {
		return err
	}
	depth := c.depth(c.emulated)
	native, err := c.trace(ctx, g, "cpu", everyResult(depth), c.ids, c.steps)
	if err != nil {
		return err
	}
	row := Check{Name: "native / emulated", What: fmt.Sprintf("%s, cache in %s", c.results(c.emulated), opts.KV)}
	if c.int8 {
		row.What += ", the emulation with activations rounded as native kernels do"
	}
	if err := c.check(row, c.bound(ir.F32, true), emulated, native); err != nil {
		return err
	}
	if c.int8 {
		if err := c.check(Check{
			Name: "float / int8", What: fmt.Sprintf("%s, emu in float, native with int8 activations, cache in %s", c.results(c.emulated), opts.KV),
			Informational: true,
		}, c.bound(ir.F32, true), c.inFloat, native); err != nil {
			return err
		}
	}

	c.progress("emulating half precision")
	opts.Target, opts.Act = "metal", ir.F16
	if g, err = c.compile(opts); err != nil {
		return err
	}
	half, err := c.trace(ctx, g, "emu", everyResult(depth), c.ids, c.steps)
	if err != nil {
		return err
	}
	return c.check(Check{
		Name: "float / half", What: fmt.Sprintf("%s, emu with half activations, cache in %s", c.results(c.emulated), opts.KV),
		Informational: c.act(c.underTest()) != ir.F16,
	}, c.bound(ir.F16, false), c.inFloat, half)
}

// bound is that of results after all layers with activations of that type. Native
// kernels round activations to int8 for quantised weights.
func (c *verifier) bound(act ir.DType, native bool) float64 {
	b := floatBound + cacheBound[c.Options.KV]
	if act == ir.F16 {
		b = max(b, halfBound)
	}
	if c.int8 && native {
		b = max(b, int8Tail*int8Product*math.Sqrt(float64(c.products)))
	}
	return b
}

// lockstep runs each dispatch on both devices and compares what it wrote; the
// native side then goes on from the emulated result. It returns the results of the
// emulation.
func (c *verifier) lockstep(ctx context.Context, g *graphs) (trace, error) {
	pick := everyValue(c.depth(c.emulated))
	native, err := newRig(g, c.m, c.on("cpu"), pick, true, nil)
	if err != nil {
		return nil, err
	}
	defer native.close()
	natives := native.program.Natives()
	emulated, err := newRig(g, c.m, c.on("emu"), pick, true, natives)
	if err != nil {
		return nil, err
	}
	defer emulated.close()
	rigs := [2]*rig{emulated, native}
	var results trace
	rows := make(map[string]*KernelCheck)
	ids := c.ids
	for step, n := range c.steps {
		var ph *lower.Phase
		for _, r := range rigs {
			var err error
			if ph, err = r.begin(ids[:n]); err != nil {
				return nil, err
			}
		}
		ids = ids[n:]
		for k := range ph.Dispatches {
			d := &ph.Dispatches[k]
			for _, r := range rigs {
				if err := r.runOne(ctx, k); err != nil {
					return nil, err
				}
			}
			for _, p := range native.written(d) {
				want, err := emulated.read(p)
				if err != nil {
					return nil, err
				}
				got, err := native.read(p)
				if err != nil {
					return nil, err
				}
				seen := sighting{step, p, p.rows(&native.step.Sizes), want}
				c.note(rows, ph, k, natives, emulated.rounding[emulated.phase], seen, got)
				copy(got, want) // the outputs of a host device are its memory
				if p.result != "" {
					seen.data = slices.Clone(want)
					results = append(results, seen)
				}
			}
		}
	}
	for _, row := range rows {
		c.findings.Kernels = append(c.findings.Kernels, *row)
	}
	slices.SortFunc(c.findings.Kernels, func(a, b KernelCheck) int {
		return cmp.Or(cmp.Compare(a.Kernel, b.Kernel), cmp.Compare(a.Weights, b.Weights))
	})
	return results, nil
}

// note adds one comparison to the row of the kernel that computed it.
func (c *verifier) note(rows map[string]*KernelCheck, ph *lower.Phase, k int, natives map[string]bool, rounding []*rounding, want sighting, got []float32) {
	from := origin(want.probe.value)
	d, k := producer(ph, k, from)
	bound := dispatchBound
	switch {
	case want.probe.isInt():
		bound = 0
	case want.probe.fromCache():
		bound += cacheBound[c.Options.KV]
	}
	weights := quantisedWeights(from)
	if weights != "" && natives[d.Kernel] {
		switch round := rounding[k]; {
		case round == nil:
			bound = int8Tail * int8Product
		case round.norm != nil: // the norm is not the same to the last bit
			bound += int8Step
		}
	}
	key := d.Kernel + " " + weights
	row := rows[key]
	if row == nil {
		row = &KernelCheck{Kernel: d.Kernel, Weights: weights, Native: natives[d.Kernel], Difference: Difference{Verdict: Within, Bound: bound}}
		rows[key] = row
	}
	row.Dispatches++
	var g gap
	g.add(want, got)
	if next := g.judge(bound); worse(next, row.Difference) {
		next.Where = fmt.Sprintf("%s, %s", want.place(c.steps), next.Where)
		row.Difference = next
	}
}

// worse orders differences by how much of their bound they take.
func worse(a, b Difference) bool {
	if (a.Verdict == NotFinite) != (b.Verdict == NotFinite) {
		return a.Verdict == NotFinite
	}
	return float64(a.Relative)/a.Bound > float64(b.Relative)/b.Bound
}

// origin returns the value that a dispatch computes v with.
func origin(v *ir.Value) *ir.Value {
	for v.Op == ir.OpSelect {
		v = v.Args[0]
	}
	return v
}

// producer returns the dispatch that computed a value: the last of its label up to
// dispatch k, which shows the value and may be no more than a copy.
func producer(ph *lower.Phase, k int, v *ir.Value) (*lower.Dispatch, int) {
	label := fmt.Sprintf("%s %s", v.Op, v)
	for i := k; i >= 0; i-- {
		if d := &ph.Dispatches[i]; d.Label == label || strings.HasSuffix(d.Label, ": "+label) {
			return d, i
		}
	}
	return &ph.Dispatches[k], k
}

// quantisedWeights names the element types of a product's quantised weights.
func quantisedWeights(v *ir.Value) string {
	if v.Op != ir.OpLinear && v.Op != ir.OpFusedLinear {
		return ""
	}
	var names []string
	for _, a := range v.Args {
		if name := a.Type.DType.String(); a.Op == ir.OpWeight && a.Type.DType.IsQuantised() && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, "+")
}

// prefillAndDecode feeds tokens at once and one by one, on the device under test.
func (c *verifier) prefillAndDecode(ctx context.Context) error {
	device := c.underTest()
	opts := c.Options
	opts.Act = c.act(device)
	var err error
	if opts.Target, err = TargetOf(device); err != nil {
		return err
	}
	n := slices.Max(c.steps)
	if device == "emu" { // products of single tokens are slow to emulate
		n = min(n, c.tokens(emulatedWork/4))
	}
	c.progress("feeding %d tokens at once and one by one", n)
	g, err := c.compile(opts)
	if err != nil {
		return err
	}
	atOnce, err := c.trace(ctx, g, device, everyResult(all), c.ids[:n], []int{n})
	if err != nil {
		return err
	}
	single, err := c.trace(ctx, g, device, everyResult(all), c.ids[:n], slices.Repeat([]int{1}, n))
	if err != nil {
		return err
	}
	return c.check(Check{
		Name: "prefill / decode", What: fmt.Sprintf("logits and caches of %d tokens on %s, activations in %s, cache in %s", n, device, opts.Act, opts.KV),
	}, c.bound(opts.Act, device == "cpu"), atOnce.joined(), single.joined())
}

// planAndModel compares a Plan from a file with the model, compiled afresh.
func (c *verifier) planAndModel(ctx context.Context) error {
	if c.Program == nil {
		return nil
	}
	device := c.underTest()
	opts := c.Options
	opts.Target, opts.Act = c.Program.Plan.Target, c.Program.Plan.Act
	n := slices.Max(c.steps)
	if device == "emu" {
		n = min(n, c.tokens(emulatedWork))
	}
	steps := []int{n - 1, 1}
	c.progress("running the plan on %s", device)
	planned, err := c.planned(ctx, device, steps)
	if err != nil {
		return fmt.Errorf("running the plan: %w", err)
	}
	g, err := c.compile(opts)
	if err != nil {
		return err
	}
	compiled, err := c.trace(ctx, g, device, everyResult(all), c.ids, steps)
	if err != nil {
		return err
	}
	return c.check(Check{
		Name: "model / plan", What: fmt.Sprintf("logits of %d tokens on %s, activations in %s, cache in %s", n, device, opts.Act, opts.KV),
	}, c.bound(opts.Act, device == "cpu"), compiled, planned)
}

// planned returns the logits of the Plan under test.
func (c *verifier) planned(ctx context.Context, device string, steps []int) (trace, error) {
	s, err := c.Program.NewSession(c.on(device))
	if err != nil {
		return nil, err
	}
	defer s.Close()
	logits := &probe{result: logitsName, value: &ir.Value{Layer: ir.NoLayer}}
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

// joined puts the logits of all steps together, and keeps the caches as the last
// step leaves them.
func (t trace) joined() trace {
	last := 0
	for _, s := range t {
		last = max(last, s.step)
	}
	var out trace
	var logits sighting
	for _, s := range t {
		switch {
		case s.probe.part == "" && logits.probe == nil:
			logits = s
			logits.step = last
		case s.probe.part == "":
			logits.rows += s.rows
			logits.data = append(logits.data, s.data...)
		case s.step == last:
			out = append(out, s)
		}
	}
	for i := range out {
		out[i].step = 0
	}
	if logits.probe != nil {
		logits.step = 0
		out = append(out, logits)
	}
	return out
}

// place says in which step something was seen.
func (s *sighting) place(steps []int) string {
	if s.step < len(steps) {
		return fmt.Sprintf("step %d of %d tokens", s.step+1, steps[s.step])
	}
	return fmt.Sprintf("step %d", s.step+1)
}

// errTraces is our own mistake: traces that do not belong together.
var errTraces = errors.New("the two graphs do not return the same")

// compareTraces compares the results of two runs: those of got, which may be fewer.
func compareTraces(want, got trace) (gap, error) {
	type key struct {
		step         int
		result, part string
	}
	wanted := make(map[key]sighting, len(want))
	for _, s := range want {
		wanted[key{s.step, s.probe.result, s.probe.part}] = s
	}
	var g gap
	if len(got) == 0 {
		return g, fmt.Errorf("%w: there are no results", errTraces)
	}
	for _, o := range got {
		s, ok := wanted[key{o.step, o.probe.result, o.probe.part}]
		if !ok || len(o.data) != len(s.data) {
			return g, fmt.Errorf("%w: %s in step %d", errTraces, o.probe, o.step+1)
		}
		before := g.relative
		if g.add(s, o.data); g.relative != before {
			g.where = fmt.Sprintf("step %d, %s", s.step+1, g.where)
		}
	}
	return g, nil
}

// gap collects how far results are apart.
type gap struct {
	absolute, relative float64
	where              string
	broken             bool // there were NaNs or infinities
}

// add compares what a probe saw with what another saw there.
func (g *gap) add(want sighting, got []float32) {
	width := len(want.data) / max(want.rows, 1)
	logits := want.probe.result == logitsName
	for r := range want.rows {
		a, b := want.data[r*width:(r+1)*width], got[r*width:(r+1)*width]
		most := 0.0
		for i := range a {
			x, y := float64(a[i]), float64(b[i])
			d := math.Abs(x - y)
			switch {
			case x == y && math.IsInf(x, -1) && want.probe.value.Op == ir.OpMask:
				continue
			case math.IsNaN(d) || math.IsInf(d, 0):
				g.broken = true
				if math.IsNaN(x) && math.IsNaN(y) || x == y {
					continue // both are wrong, and alike
				}
				d = math.Inf(1)
			}
			most = max(most, d)
		}
		if most == 0 {
			continue
		}
		relative := most / magnitude(a, logits)
		if math.IsNaN(relative) {
			relative = math.Inf(1)
		}
		if g.absolute = max(g.absolute, most); relative > g.relative {
			g.relative = relative
			g.where = fmt.Sprintf("%s, row %d", want.probe, r)
		}
	}
}

// logitsName is what graphs call their logits.
const logitsName = "logits"

// magnitude is what the differences in a row are measured by: the numbers in it.
func magnitude(row []float32, logits bool) float64 {
	most, mean, squares, n := 0.0, 0.0, 0.0, 0.0
	for _, x := range row {
		if e := float64(x); !math.IsNaN(e) && !math.IsInf(e, 0) {
			most = max(most, math.Abs(e))
			n++
			d := e - mean // Welford's way: logits may lie far from zero
			mean += d / n
			squares += d * (e - mean)
		}
	}
	if logits {
		return math.Sqrt(squares / n)
	}
	return most
}

// judge compares a gap with its bound.
func (g *gap) judge(bound float64) Difference {
	d := Difference{Absolute: Measure(g.absolute), Relative: Measure(g.relative), Bound: bound, Where: g.where, Verdict: Within}
	switch {
	case g.broken:
		d.Verdict = NotFinite
	case g.relative > bound:
		d.Verdict = Beyond
	}
	return d
}
