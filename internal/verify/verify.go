package verify

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/smelt-ml/smelt/device"
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/ir/sym"
	"github.com/smelt-ml/smelt/lower"
	"github.com/smelt-ml/smelt/lower/plan"
)

// Subject is the model that is verified: a definition with its weights, and the compiler
// of its programs.
type Subject interface {
	// Name returns a short name.
	Name() string
	// Source builds the graph of the definition, before any pass.
	Source(ir.Options) (*ir.Func, error)
	// Compile compiles the model to a Plan.
	Compile(Options) (*Compiled, error)
	// Data returns the bytes of a weight as they are stored.
	Data(name string) (t dtype.Type, data []byte, ok bool)
}

// Options are the options of a program that the checks vary. The model sets all others, and
// fills in zeroes.
type Options struct {
	Target  string     // "metal" or "cpu"
	Act     dtype.Type // activations between matrix products
	KV      dtype.Type // element type of the cache
	Context int        // slots of the cache
	Prefill int        // maximum number of tokens of a prefill step
	// Sequences and Rows are the maxima of a step, Block the number of slots of a cache block.
	Sequences, Rows, Block int
	Level                  int // 0: the source graph without passes
	// Observer sees the graph of each phase before the first pass, with an empty
	// name, and after each pass.
	Observer func(phase, pass string, f *ir.Func)
}

// Compiled is the outcome of [Subject].Compile.
type Compiled struct {
	Plan  *plan.Plan
	Fused []*ir.Func // the graph of each phase that was lowered
}

// Verification configures [Run].
type Verification struct {
	Subject       Subject
	Options       Options // those that the model would run with on the device
	Device        string  // "cpu", "emu" or "metal"
	DeviceOptions device.Options
	// Plan, if set, is one of the model's Plans, read from a file. It is compared with the Plan
	// that Options compile to.
	Plan *plan.Plan
	// Bisect also searches for the first pass that changes the results and for the first
	// non-finite value.
	Bisect bool
	// Progress, if set, is called when a check begins.
	Progress func(what string)
}

// Findings are the outcome of [Run].
type Findings struct {
	Model  string `json:"model"`
	Device string `json:"device"`
	Steps  []int  `json:"steps"`  // tokens of each step
	Layers int    `json:"layers"` // of the model
	// Partly describes what was left out, "" where nothing was.
	Partly string  `json:"partly,omitempty"`
	Checks []Check `json:"checks"`
	// Kernels compares each kernel, native or emulated, with float64, dispatch by dispatch.
	Kernels []KernelCheck `json:"kernels"`
	Bisect  *Bisection    `json:"bisect,omitempty"`
	OK      bool          `json:"ok"`
}

// Check compares two ways to run the model on the same tokens.
type Check struct {
	Name string `json:"name"`
	What string `json:"what"` // which values, and how they were computed
	// Against is the manner of comparison.
	Against Against `json:"against"`
	Difference
	// Informational checks do not decide whether the model passes, unless a result is not
	// finite.
	Informational bool `json:"informational,omitempty"`
}

// Against is a manner of comparison.
type Against string

// The manners of comparison.
const (
	AgainstBits    Against = "bits"    // bit-identical
	AgainstFloat64 Against = "float64" // each op by itself, from the device's own operands
	AgainstOther   Against = "other"   // the two ways with each other, within a bound
)

// Bounds of relative differences after all layers.
const (
	// floatBound is for logits and caches after all layers in float. An op is off by some
	// √K·2⁻²⁴ of a sum of K terms, below 1e-5 for every K in use, and the layers amplify that:
	// tenfold is usual, a hundredfold would pass.
	floatBound = 1e-3
	// halfBound is for logits with half activations: 2⁻¹¹ for each rounding, some hundred
	// roundings that add up in quadrature, and the tail of many logits.
	halfBound = 5e-2
)

// cacheBound is one step of a cache's format, relative to the largest element: nearly equal
// values may round to different steps.
var cacheBound = map[dtype.Type]float64{dtype.F32: 0, dtype.F16: 0x1p-10, dtype.Q8_0: 1. / 127}

// Native kernels round the activations of quantized weights to int8, in blocks of 32. Each is
// then off by at most 1/254 of its block's largest, uniformly, so by 1/(254·√3) in the root mean
// square. The worst block holds a single large element and 31 errors of that size beside it: √32
// times as much. The errors of consecutive products add up in quadrature; the largest of a
// million logits lies some five standard deviations out. This bound measures what rounding
// costs, for information, and would hide most faults: the checks that decide are those of each
// op by itself, in bits or against float64.
const (
	int8Product = 3.266 / 254 // √32/√3
	roundedTail = 5
)

// Where processors multiply 16-bit integers, native kernels round half weights and their
// activations in blocks of 64. A step of weights is at most 1/2¹³ of their largest, one of
// activations 1/131000 of the sum of their sizes, which is at most √64 times the root of their
// squares' sum; the error of a step is 1/√12 of it in the root mean square, and √64 of them add
// up. That is narrow enough for a bound that decides.
const int16Product = 3.2e-4 // √((√64/2¹³)² + (64/131000)²)/√12, rounded up

// Steps that are verified: one more than a tile of 32 tokens, one less, from an offset within a
// tile, across 64 keys; the smallest prefill; single tokens. The short list is for models that
// are slow to emulate.
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

// emulatedWork is the budget of multiplications for emulating one run over the tokens: about
// half a minute. Tests set it lower.
var emulatedWork = 24e9

// afterPass, set by tests, may change a graph after a pass, as a wrong pass would.
var afterPass func(pass string, f *ir.Func)

// verifier holds what the checks of one Run share.
type verifier struct {
	Verification
	ids      []int32
	steps    []int
	work     int64 // multiplications per token
	vocab    int64
	layers   int
	emulated int  // number of layers that are emulated; all of them where it equals layers
	int8     bool // whether some weights are quantized
	int16    bool // whether native kernels round some half weights, see int16Product
	products int  // number of products on the path through the model
	inFloat  trace
	kernels  map[string]*KernelCheck
	wrong    *WrongOp // the first op that differs from float64
	findings Findings
}

// Run runs a model on fixed tokens in several ways that should agree, and returns how far they
// differ:
//
//   - what promises the same bits, in bits: any number of threads; weights as stored and
//     rearranged; orders of dispatches and of threads within them; on the CPU tokens at once
//     and one after the other, and a token's products by itself and in a prompt; a Plan written
//     to a file and read; the plan whose values are looked at, below, and the one that runs;
//   - every op with float64, by itself: native kernels, their emulated twins, and half
//     precision as on Metal. Each op is computed from the operands that the device had,
//     and a product rounds activations and weights where the device does, so that one
//     wrong row of one matrix shows. See package ref for the bounds;
//   - with each other, logits and caches after all layers: the source graph and the fused
//     graph in float; native and emulated kernels; activations in half precision and in
//     float; on a GPU tokens at once and one after the other; a Plan from a file, if one is
//     given, and the model. Here bounds are wider, and where native kernels round activations to
//     int8 the comparison is for information.
//
// Large models are emulated on fewer tokens and layers; [Findings].Partly lists what is left
// out. Run returns an error where something could not run; differences are in the findings.
func Run(ctx context.Context, v Verification) (*Findings, error) {
	c := &verifier{Verification: v, kernels: make(map[string]*KernelCheck)}
	if err := c.prepare(); err != nil {
		return nil, err
	}
	for _, check := range []func(context.Context) error{c.sourceAndFused, c.nativeAndEmulated, c.opByOp, c.prefillAndDecode, c.planAndModel, c.sameBits} {
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
		f.OK = f.OK && f.Bisect.Pass == "" && f.Bisect.NonFinite == nil && f.Bisect.Wrong == nil
	}
	return f, nil
}

// prepare chooses tokens, steps and layers.
func (c *verifier) prepare() error {
	if c.Options.Context == 0 || c.Options.Context > verifyContext { // the steps need no more
		c.Options.Context = verifyContext
	}
	if c.Options.KV == dtype.Invalid {
		c.Options.KV = dtype.F16
	}
	c.Options.Prefill = slices.Max(fullSteps)
	var err error
	if c.Options.Target, err = device.TargetOf(c.Device); err != nil {
		return err
	}
	g, err := c.compile(c.Options)
	if err != nil {
		return err
	}
	source, err := c.Subject.Source(ir.Options{KV: c.Options.KV, Block: c.Options.Context})
	if err != nil {
		return err
	}
	halves, err := roundsHalves()
	if err != nil {
		return err
	}
	c.work = 1
	for _, v := range source.Values {
		switch v.Op {
		case ir.OpEmbed:
			c.vocab, _ = v.Args[1].Type.Shape[0].IsConst()
		case ir.OpLinear:
			w := v.Args[1].Type
			n, _ := w.Shape[0].IsConst()
			c.work += n * w.Shape.Last()
			c.round(w.DType, halves)
		case ir.OpExpertLinear:
			w, experts := v.Args[1].Type, v.Args[2].Type
			n, _ := w.Shape[1].IsConst()
			c.work += n * w.Shape.Last() * experts.Shape.Last()
			c.round(w.DType, halves)
		}
	}
	if c.vocab == 0 {
		return fmt.Errorf("%s: its graph embeds no tokens", c.Subject.Name())
	}
	for _, v := range g.ranges[len(g.ranges)-1].Func.Values {
		if isProduct(v.Op) {
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
		return fmt.Errorf("verifying needs %d tokens; the context has %d", need, c.Options.Context)
	}
	rng := rand.New(rand.NewPCG(verifySeed, 0))
	for range sum(c.steps) {
		c.ids = append(c.ids, int32(rng.Int64N(c.vocab)))
	}
	c.findings = Findings{Model: c.Subject.Name(), Device: c.Device, Steps: c.steps, Layers: c.layers}
	if !slices.Equal(c.steps, fullSteps) {
		c.findings.Partly = fmt.Sprintf("emulating it takes long: %d tokens instead of %d", sum(c.steps), sum(fullSteps))
		if c.emulated < c.layers {
			c.findings.Partly += fmt.Sprintf(", %d of %d layers", c.emulated, c.layers)
		}
	}
	return nil
}

// roundsHalves reports whether this processor's native kernels round half weights.
func roundsHalves() (bool, error) {
	d, err := device.Open("cpu", device.Options{})
	if err != nil {
		return false, err
	}
	defer d.Close()
	return d.Info().HalfIntegers, nil
}

// round records how native kernels round activations beside a weight of that type.
func (c *verifier) round(weight dtype.Type, halves bool) {
	c.int8 = c.int8 || weight.IsQuantized()
	c.int16 = c.int16 || halves && (weight == dtype.F16 || weight == dtype.BF16)
}

func sum(list []int) int {
	n := 0
	for _, x := range list {
		n += x
	}
	return n
}

// affordable returns the number of layers whose emulation for the tokens fits into work.
func (c *verifier) affordable(tokens int, work float64) int {
	need := float64(c.work) * float64(tokens)
	if need <= work {
		return c.layers
	}
	return min(c.layers, max(minLayers, int(float64(c.layers)*work/need)))
}

// tokens returns the number of tokens, two or more, whose emulation through all layers fits into
// work.
func (c *verifier) tokens(work float64) int { return max(2, int(work/float64(c.work))) }

// results describes the results that are compared where only some layers are emulated.
func (c *verifier) results(layers int) string {
	if layers >= c.layers {
		return "logits and caches"
	}
	return fmt.Sprintf("caches of layers 0-%d of %d", layers-1, c.layers)
}

// all is a number of layers larger than any model's.
const all = math.MaxInt

// depth returns the number of layers for a picker.
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
	observer := opts.Observer
	opts.Observer = func(phase, pass string, f *ir.Func) {
		if afterPass != nil {
			afterPass(pass, f)
		}
		if observer != nil {
			observer(phase, pass, f)
		}
	}
	p, err := c.Subject.Compile(opts)
	if err != nil {
		return nil, err
	}
	return graphsOf(p, opts)
}

// graphsOf returns the graphs that a program was lowered from.
func graphsOf(p *Compiled, opts Options) (*graphs, error) {
	target, err := lower.NewTarget(p.Plan.Target)
	if err != nil {
		return nil, err
	}
	target.Act = p.Plan.Act
	g := &graphs{plan: p.Plan, target: target, opts: lower.Options{Context: opts.Context, Sequences: opts.Sequences}}
	for i := range p.Plan.Phases {
		ph := &p.Plan.Phases[i]
		if ph.Bounds[sym.T] == 0 {
			continue // a phase that only copies
		}
		g.ranges = append(g.ranges, lower.Range{
			Name: ph.Name, Func: p.Fused[i], MinT: ph.Least[sym.T], MaxT: ph.Bounds[sym.T], Longest: ph.Longest, MaxContext: ph.Bounds[sym.Smax],
		})
	}
	return g, nil
}

// openable is a device to open, with its options.
type openable struct {
	device  string
	options device.Options
}

// at returns the named device with the options of the one under test, less those that only that one has.
func (c *verifier) at(name string) openable {
	o := c.DeviceOptions
	if name != c.Device {
		o.Own = nil
	}
	return openable{name, o}
}

// act returns the type of activations on a device.
func (c *verifier) act(device string) dtype.Type {
	switch {
	case device == "cpu":
		return dtype.F32
	case c.Options.Act != dtype.Invalid:
		return c.Options.Act
	}
	return dtype.F16
}

// float returns the options, device and number of layers for comparisons in float alone. Models
// with quantized weights are emulated, because their native kernels round activations.
func (c *verifier) float() (Options, string, int) {
	opts := c.Options
	opts.KV, opts.Act = dtype.F32, dtype.F32
	if device := c.Device; !c.int8 || device != "cpu" {
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

// trace runs compiled graphs over the tokens and returns the values that are picked.
func (c *verifier) trace(ctx context.Context, g *graphs, device string, pick picker, ids []int32, steps []int) (trace, error) {
	r, err := newRig(g, c.Subject, c.at(device), pick, false)
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
		row.Against = AgainstOther
		c.findings.Checks = append(c.findings.Checks, row)
		return nil
	}
	if c.inFloat, err = run(c.Options.Level, "fused"); err != nil {
		return err
	}
	return c.check(row, c.inFloatOn(device), source, c.inFloat)
}

// check compares two traces and appends the outcome to the findings.
func (c *verifier) check(row Check, bound float64, want, got trace) error {
	d, err := compareTraces(want, got)
	if err != nil {
		return fmt.Errorf("%s: %w", row.Name, err)
	}
	row.Difference, row.Against = d.judge(bound), AgainstOther
	c.findings.Checks = append(c.findings.Checks, row)
	return nil
}

// nativeAndEmulated runs one Plan with native kernels and emulated, and then compares int8 and
// half activations with float.
func (c *verifier) nativeAndEmulated(ctx context.Context) error {
	opts := c.Options
	opts.Target, opts.Act = "cpu", dtype.F32
	g, err := c.compile(opts)
	if err != nil {
		return err
	}
	depth := c.depth(c.emulated)
	c.progress("comparing native and emulated kernels")
	native, err := c.trace(ctx, g, "cpu", everyResult(depth), c.ids, c.steps)
	if err != nil {
		return err
	}
	if c.int8 {
		if err := c.check(Check{
			Name: "float / int8", What: fmt.Sprintf("%s, emu in float, native with int8 activations, cache in %s", c.results(c.emulated), opts.KV),
			Informational: true,
		}, c.bound(dtype.F32, true), c.inFloat, native); err != nil {
			return err
		}
	} else {
		emulated, err := c.trace(ctx, g, "emu", everyResult(depth), c.ids, c.steps)
		if err != nil {
			return err
		}
		if err := c.check(Check{
			Name: "native / emulated", What: fmt.Sprintf("%s, cache in %s", c.results(c.emulated), opts.KV),
		}, c.bound(dtype.F32, true), emulated, native); err != nil {
			return err
		}
	}

	c.progress("emulating half precision")
	opts.Target, opts.Act = "metal", dtype.F16
	if g, err = c.compile(opts); err != nil {
		return err
	}
	half, err := c.trace(ctx, g, "emu", everyResult(depth), c.ids, c.steps)
	if err != nil {
		return err
	}
	return c.check(Check{
		Name: "float / half", What: fmt.Sprintf("%s, emu with half activations, cache in %s", c.results(c.emulated), opts.KV),
		Informational: c.act(c.Device) != dtype.F16,
	}, c.bound(dtype.F16, false), c.inFloat, half)
}

// opByOp compares the ops of three plans with float64, each op by itself: the plan of the device
// under test, that of native kernels, and the same plan emulated.
func (c *verifier) opByOp(ctx context.Context) error {
	type way struct {
		target string
		act    dtype.Type
		device string
	}
	ways := []way{{"cpu", dtype.F32, "cpu"}, {"cpu", dtype.F32, "emu"}, {"metal", dtype.F16, "emu"}}
	if device := c.Device; device != "cpu" {
		own := way{"metal", c.act(device), device}
		ways = append([]way{own}, slices.DeleteFunc(ways, func(w way) bool { return w == own })...)
	}
	for _, w := range ways {
		opts := c.Options
		opts.Target, opts.Act = w.target, w.act
		g, err := c.compile(opts)
		if err != nil {
			return err
		}
		if err := c.followed(ctx, g, w.device, c.layersOn(w.device)); err != nil {
			return fmt.Errorf("comparing %s with float64: %w", w.device, err)
		}
	}
	for _, row := range c.kernels {
		c.findings.Kernels = append(c.findings.Kernels, *row)
	}
	slices.SortFunc(c.findings.Kernels, func(a, b KernelCheck) int {
		return cmp.Or(cmp.Compare(a.Kernel, b.Kernel), cmp.Compare(a.Weights, b.Weights), cmp.Compare(a.Device, b.Device))
	})
	return nil
}

// bound returns the bound of results after all layers with activations of that type. Native
// kernels also round activations to int8 for quantized weights.
func (c *verifier) bound(act dtype.Type, native bool) float64 {
	b := floatBound + cacheBound[c.Options.KV]
	if act == dtype.F16 {
		b = max(b, halfBound)
	}
	if native && c.int8 {
		b = max(b, c.rounded(int8Product))
	}
	if native && c.int16 {
		b = max(b, c.rounded(int16Product))
	}
	return b
}

// inFloatOn returns the bound of results after all layers in float on a device.
func (c *verifier) inFloatOn(device string) float64 {
	if device == "cpu" && c.int16 {
		return max(floatBound, c.rounded(int16Product))
	}
	return floatBound
}

// rounded returns the bound of results after products with the given relative error each.
func (c *verifier) rounded(product float64) float64 {
	return roundedTail * product * math.Sqrt(float64(c.products))
}

// origin returns the value that a dispatch computes v with.
func origin(v *ir.Value) *ir.Value {
	for v.Op == ir.OpSelect {
		v = v.Args[0]
	}
	return v
}

// producer returns the dispatch that computed a value: the last one of it up to dispatch k,
// which exposes the value and may only copy it.
func producer(ph *plan.Phase, k int, v *ir.Value) (*plan.Dispatch, int) {
	for i := k; i >= 0; i-- {
		if d := &ph.Dispatches[i]; d.Op == v.Op.String() && d.Value == int32(v.ID) {
			return d, i
		}
	}
	return &ph.Dispatches[k], k
}

// isProduct reports whether an op multiplies with weights.
func isProduct(op ir.Op) bool {
	return slices.Contains([]ir.Op{ir.OpLinear, ir.OpFusedLinear, ir.OpExpertLinear, ir.OpRoutedLinear}, op)
}

// quantizedWeights returns the element types of a product's quantized weights.
func quantizedWeights(v *ir.Value) string {
	if !isProduct(v.Op) {
		return ""
	}
	var names []string
	for _, w := range v.Matrices() {
		if name := w.Type.DType.String(); w.Type.DType.IsQuantized() && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, "+")
}

// prefillAndDecode feeds the same tokens in one step and one by one, on the device under test.
func (c *verifier) prefillAndDecode(ctx context.Context) error {
	device := c.Device
	opts := c.Options
	opts.Act = c.act(device)
	n := slices.Max(c.steps)
	if device == "emu" { // single-token products are slow to emulate
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
	row := Check{Name: "prefill / decode", What: fmt.Sprintf("logits and caches of %d tokens on %s, activations in %s, cache in %s", n, device, opts.Act, opts.KV)}
	if device == "cpu" && opts.Act == dtype.F32 { // where all kernels are native
		c.checkBits(row, atOnce.joined(), single.joined())
		return nil
	}
	row.Informational = c.int8 && device == "cpu"
	return c.check(row, c.bound(opts.Act, device == "cpu"), atOnce.joined(), single.joined())
}

// planAndModel compares a Plan from a file with one that is compiled again from the model.
func (c *verifier) planAndModel(ctx context.Context) error {
	if c.Plan == nil {
		return nil
	}
	device := c.Device
	opts := c.Options
	opts.Target, opts.Act = c.Plan.Target, c.Plan.Act
	n := slices.Max(c.steps)
	if device == "emu" {
		n = min(n, c.tokens(emulatedWork))
	}
	steps := []int{n - 1, 1}
	c.progress("running the plan on %s", device)
	planned, err := c.logits(ctx, c.Plan, c.at(device), steps)
	if err != nil {
		return fmt.Errorf("running the plan: %w", err)
	}
	most := &c.Plan.Phases[0].Bounds
	opts.Context, opts.Prefill, opts.Block = c.Plan.Context, int(most[sym.T]), c.Plan.Block()
	opts.Sequences, opts.Rows = int(most[sym.B]), int(most[sym.R])
	g, err := c.compile(opts)
	if err != nil {
		return err
	}
	compiled, err := c.logits(ctx, g.plan, c.at(device), steps)
	if err != nil {
		return err
	}
	row := Check{Name: "model / plan", What: fmt.Sprintf("logits of %d tokens on %s, activations in %s, cache in %s", n, device, opts.Act, opts.KV)}
	if same, err := samePlan(g.plan, c.Plan); err != nil {
		return err
	} else if same {
		c.checkBits(row, compiled, planned)
		return nil
	}
	row.What += "; it was compiled with other options"
	return c.check(row, c.bound(opts.Act, device == "cpu"), compiled, planned)
}
