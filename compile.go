package smelt

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
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
	"github.com/smelt-ml/smelt/models/checkpoint"
	"github.com/smelt-ml/smelt/passes"
)

// Options choose how a model is compiled. The zero value, with a Target, gives
// the unoptimised program; [DefaultOptions] is what the tool starts from.
type Options struct {
	Target string // "metal" or "cpu": that of the device it shall run on, see [TargetOf]
	Chip   string // one of [Chips], which choices by size are made for; "": none in particular
	// Family and Cores are those of the chip's GPU where a device tells them: see
	// [OptionsFor]. A chip with a family need not be one of Chips.
	Family, Cores int
	Act           dtype.Type // activations between matrix products; Invalid: what the target prefers
	KV            dtype.Type // element type of the KV cache; Invalid: F16
	Context       int        // slots of the cache; 0: the model's context, at most DefaultContext
	Prefill       int        // most tokens of a prefill step; 0: DefaultPrefill
	// Sequences is how many sequences a step may pack; 0: one. Of two and more, steps that
	// bring one token each have phases of their own.
	Sequences int
	// Rows is how many rows of logits a step may compute, where that is more than one for
	// each sequence; 0: DefaultRows. Whoever wants logits for more tokens gets them in
	// several steps.
	Rows int
	// Embeddings compiles a program that embeds texts, for [Loaded.NewEmbedder]: of up to
	// Context tokens each, Sequences of them and Prefill tokens a step.
	Embeddings bool
	Block      int      // slots of a cache block; 0: Context, so that a sequence has one
	Level      int      // 0: the source graph as it is; 1: optimised
	Disabled   []string // passes and fusion rules to leave out, by name

	// Tuning is what was measured on the device that the program is for; nil: nothing. See
	// [LoadTuning].
	Tuning *lower.Tuning

	// SameBits makes a token's logits the same, bit by bit, in whatever step computes them:
	// beside whom, however its prompt is cut and whatever of it was cached. Kernels of one
	// family then serve all rows, which costs time: see [Program.SameBits]. On target "cpu"
	// they always are.
	SameBits bool

	// Products places matrix products of target "metal" on the CPU; nil: none. See
	// [ParsePlacement]. For target "cpu" it is an error, [ErrPlacement].
	Products lower.Placement

	Debug       passes.Debug // see [ParseDebug]
	DebugOutput io.Writer

	// Observer, if set, sees the graph of each phase before the first pass, with an
	// empty name, and after each pass. It must not keep it; Clone does that.
	Observer func(phase, pass string, f *ir.Func)
}

// Defaults of Options.
const (
	DefaultContext = 4096
	DefaultPrefill = 512
	DefaultRows    = 64
)

// ErrPlacement is wrapped where products shall be shared out in a program without a GPU.
var ErrPlacement = errors.New("there is no GPU to share products with")

// DefaultOptions are those of an optimised program for the machine's own device: the
// one that the zero [Device] stands for.
func DefaultOptions() Options {
	o, err := OptionsFor(Device{})
	if err != nil {
		panic(err) // it is on the list of names
	}
	return o
}

// OptionsFor returns those of an optimised program for a device: its target, of a GPU its
// chip, and what smelt tune kept for it, unless that is of no use: see [LoadTuning]. Errors
// wrap [device.ErrDevice].
func OptionsFor(d Device) (Options, error) {
	d, err := Resolve(d)
	if err != nil {
		return Options{}, err
	}
	o := Options{Level: 1}
	if o.Target, err = TargetOf(d.Name); err != nil {
		return o, err
	}
	o.ChooseFor(ChipOf(d))
	o.Tuning, _ = LoadTuning(d) // without it a program is slower, and the same
	return o, nil
}

// ChooseFor has choices by size made for a chip; nil: for none in particular.
func (o *Options) ChooseFor(chip *predict.Chip) {
	o.Chip, o.Family, o.Cores = "", 0, 0
	if chip != nil {
		o.Chip, o.Family, o.Cores = chip.Name, chip.Family, chip.Cores
	}
}

// ParseDebug reads a list of NAME/off|dump|time|stats, separated by commas.
func ParseDebug(text string) (passes.Debug, error) { return passes.ParseDebug(text) }

// ParsePlacement reads where matrix products go: "gpu", "cpu", "auto", which takes the
// processor that is predicted to be quicker on the chip, or the least multiply-adds of
// a product for the CPU.
func ParsePlacement(text, chip string) (lower.Placement, error) {
	return lower.ParsePlacement(text, chip)
}

// WriteDebugHelp lists the passes and rules that a debug list can name.
func WriteDebugHelp(w io.Writer) error { return passes.WriteHelp(w) }

// Program is a compiled model.
type Program struct {
	Plan *plan.Plan
	// Stages are the graphs that the Plan was made from, one pair for each phase;
	// nil where the Plan was read from a file.
	Stages []Stages
	// Elapsed is how long compiling took, from the definition to the Plan.
	Elapsed time.Duration

	model   *Model // nil where only a Plan was read
	options Options
}

// Stages are the graphs of one phase.
type Stages struct {
	Phase  string
	Source *ir.Func
	Fused  *ir.Func
	Report *passes.Report
}

// Compile turns the model into a Plan: build the source graph, run the passes for
// each phase, lower.
func (m *Model) Compile(opts Options) (*Program, error) {
	start := time.Now()
	release, err := m.use()
	if err != nil {
		return nil, err
	}
	defer release()
	if err := m.defaults(&opts); err != nil {
		return nil, err
	}
	source, err := m.build(ir.Options{KV: opts.KV, Block: opts.Block, Context: opts.Context, Embeddings: opts.Embeddings})
	if err == nil {
		err = chooseNext(source)
	}
	if err != nil {
		return nil, err
	}
	phases, err := ranges(opts)
	if err != nil {
		return nil, err
	}
	if recurs(source) { // who shares a block goes on after it, and never writes there
		phases = slices.DeleteFunc(phases, func(r lower.Range) bool { return r.MaxC > 0 })
	}
	p := &Program{model: m, options: opts}
	target, err := opts.target(lower.DecodeTokens)
	if err != nil {
		return nil, err
	}
	for i := range phases {
		r, from := &phases[i], source
		if r.MaxC > 0 {
			if from, err = copying(source); err != nil {
				return nil, err
			}
		}
		report, err := opts.optimise(r, from)
		if err != nil {
			return nil, fmt.Errorf("compiling %s for %s: %w", m.name, r.Name, err)
		}
		p.Stages = append(p.Stages, Stages{r.Name, from, r.Func, report})
	}
	if p.Plan, err = lower.Lower(m.name, phases, target, opts.lowering()); err != nil {
		return nil, err
	}
	p.Elapsed = time.Since(start)
	return p, nil
}

// lowering are the bounds that a Plan of these options is made for.
func (o *Options) lowering() lower.Options {
	return lower.Options{Context: o.Context, Sequences: o.Sequences, Rows: o.Rows, Products: o.Products, Tuning: o.Tuning}
}

// optimise makes the graph of one phase from the source graph.
func (o *Options) optimise(r *lower.Range, source *ir.Func) (*passes.Report, error) {
	target, err := o.target(r.MaxT)
	if err != nil {
		return nil, err
	}
	target.OneEach = r.Longest.Max == 1
	target.Rows = min(int64(o.Sequences), r.MaxT)
	if o.Embeddings { // they may be made of all tokens
		target.Rows = r.MaxT
	}
	r.Func = source.Clone()
	var observer func(string, *ir.Func)
	if o.Observer != nil {
		observer = func(pass string, f *ir.Func) { o.Observer(r.Name, pass, f) }
	}
	return passes.Compile(r.Func, target, passes.Options{
		Level: o.Level, Disabled: o.Disabled, Debug: o.Debug, Output: o.DebugOutput, Observer: observer,
	})
}

// recurs reports whether a graph has recurrent states.
func recurs(f *ir.Func) bool {
	return slices.ContainsFunc(f.Values, func(v *ir.Value) bool { return v.Op == ir.OpState })
}

// copying returns the graph that copies blocks of all caches of a source graph.
func copying(source *ir.Func) (*ir.Func, error) {
	caches := lo.Filter(source.Values, func(v *ir.Value, _ int) bool { return v.Op == ir.OpCache })
	c := caches[0].Type.Cache // of all layers the same but for heads
	return ir.Build(source.Name, nil, ir.Options{KV: c.DType, Block: c.Block}, func(b *ir.Builder) {
		for _, v := range caches {
			b.Layer(v.Layer, func() { b.CopyBlocks(b.Cache(v.Type.Cache.KVHeads, v.Type.Cache.Head)) })
		}
	})
}

// chooseNext makes a graph that returns logits return the most likely token of each
// row as well, so that greedy decoding reads one number of a step and not a row of
// the vocabulary's width.
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

// target returns the target of steps of up to maxTokens tokens.
func (o *Options) target(maxTokens int64) (*ir.Target, error) {
	t, err := lower.NewTarget(o.Target, maxTokens)
	if err != nil {
		return nil, err
	}
	t.Act = cmp.Or(o.Act, t.Act)
	chip, err := o.chip()
	if err != nil {
		return nil, err
	}
	lower.Tune(t, chip)
	if o.Debug.XSplit {
		lower.XSplit(t)
	}
	switch {
	case o.SameBits:
		lower.SameBits(t)
	case o.Sequences > 1:
		lower.CutAlike(t)
	}
	if o.Products != nil && maxTokens > t.FewTokens { // what runs on the CPU takes rows as they are
		t.NormPrologue, t.NormTokens = nil, t.FewTokens
	}
	return t, nil
}

// chip returns what choices by size are made for; nil for none in particular.
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
func ranges(opts Options) ([]lower.Range, error) {
	target, err := opts.target(lower.DecodeTokens)
	if err != nil {
		return nil, err
	}
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
	return phases, nil
}

func (m *Model) defaults(opts *Options) error {
	if opts.Embeddings {
		m.embeddingDefaults(opts)
	}
	if opts.Context == 0 {
		opts.Context = DefaultContext
		if m.context > 0 {
			opts.Context = min(m.context, DefaultContext)
		}
	}
	if opts.Prefill == 0 {
		opts.Prefill = DefaultPrefill
	}
	block := opts.Context
	if opts.Debug.XSplit {
		block = lower.XSplitBlock
	}
	opts.Sequences, opts.Rows, opts.Block = cmp.Or(opts.Sequences, 1), cmp.Or(opts.Rows, DefaultRows), cmp.Or(opts.Block, block)
	if opts.KV == dtype.Invalid {
		opts.KV = dtype.F16
	}
	target, err := opts.target(lower.DecodeTokens)
	if err != nil {
		return err
	}
	if opts.Debug.XSplit {
		if err := lower.CheckXSplit(target.Act, opts.KV, opts.Block); err != nil {
			return err
		}
		if opts.Level == 0 {
			return errors.New("the x-split layout needs the attention that optimising makes: -O 1")
		}
	}
	if opts.Products != nil && !target.GPU {
		return fmt.Errorf("%w in a plan for %s", ErrPlacement, target.Name)
	}
	if opts.Products != nil && opts.SameBits {
		return errors.New("the same bits in every step: products on the CPU have others than the GPU's")
	}
	if m.bounded && opts.Context > m.context {
		return fmt.Errorf("%s has embeddings for %d positions, too few for a context of %d", m.name, m.context, opts.Context)
	}
	if opts.Context < 1 || opts.Prefill < 1 {
		return fmt.Errorf("a context of %d and prefill steps of %d tokens: want 1 or more", opts.Context, opts.Prefill)
	}
	if opts.Sequences < 1 || opts.Rows < 1 || opts.Block < 1 {
		return fmt.Errorf("steps of %d sequences and %d rows of logits, cache blocks of %d slots: want 1 or more", opts.Sequences, opts.Rows, opts.Block)
	}
	return nil
}

// Options returns what the program was compiled with, defaults filled in; of a Plan from a
// file, the zero value.
func (p *Program) Options() Options { return p.options }

// Model returns the model that was compiled; for a Plan from a file, the one that
// was found for it, or nil.
func (p *Program) Model() *Model { return p.model }

// Close closes the program's model.
func (p *Program) Close() error { return p.model.Close() }

// Phase returns the Plan's phase of that name for the largest steps over the whole context
// and, where the program was compiled here, its graphs. "decode" of several sequences is
// the phase that takes a token of each.
func (p *Program) Phase(name string, sequences ...int) (*plan.Phase, *Stages, error) {
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

// Save writes the program as a Plan file. The same model and options give the
// same bytes.
func (p *Program) Save(w io.Writer) error {
	if p.model == nil {
		return fmt.Errorf("the plan of %s is a file already: saving needs its model", p.Plan.Model)
	}
	return (&plan.File{Plan: p.Plan, Model: identify(p.model)}).Write(w)
}

// ErrNoWeights is wrapped where a shape without weights is asked to run.
var ErrNoWeights = checkpoint.ErrNoWeights

// ReadPlan reads a Plan file without its model: a program to be looked at.
func ReadPlan(path string) (*Program, error) {
	f, err := readPlan(path)
	if err != nil {
		return nil, err
	}
	return &Program{Plan: f.Plan}, nil
}

func readPlan(path string) (*plan.File, error) {
	r, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	f, err := plan.Read(r)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

// LoadPlan reads a Plan file and opens the model that it belongs to: weights, or,
// if that is "", the file of the recorded name beside the Plan.
func LoadPlan(path, weights string) (*Program, error) {
	f, err := readPlan(path)
	if err != nil {
		return nil, err
	}
	if weights == "" {
		if f.Model.Base == "" || f.Model.Base != filepath.Base(f.Model.Base) || f.Model.Base == ".." {
			return nil, fmt.Errorf("%s: %w: it was compiled from the shape %s; give the model with --weights", path, ErrNoWeights, checkpoint.ArchPrefix+f.Model.Arch)
		}
		weights = filepath.Join(filepath.Dir(path), f.Model.Base)
		if _, err := os.Stat(weights); err != nil {
			return nil, fmt.Errorf("%s: its model should be beside it; give another place with --weights: %w", path, err)
		}
	}
	m, err := Open(weights, "")
	if err != nil {
		return nil, err
	}
	if !m.HasWeights() {
		return nil, fmt.Errorf("%s: %w", weights, ErrNoWeights)
	}
	if err := matches(f, m); err != nil {
		m.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &Program{Plan: f.Plan, model: m}, nil
}
