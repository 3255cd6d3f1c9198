package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"
	"github.com/samber/lo"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/device"
	"github.com/smelt-ml/smelt/hub"
	"github.com/smelt-ml/smelt/internal/compiler"
	"github.com/smelt-ml/smelt/internal/openai"
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/lower"
	"github.com/smelt-ml/smelt/lower/predict"
	"github.com/smelt-ml/smelt/models"
	"github.com/smelt-ml/smelt/models/checkpoint"
	"github.com/smelt-ml/smelt/models/mapped"
	"github.com/smelt-ml/smelt/passes"
)

// maxSequences bounds the sequences of a step, each of which needs a row of logits.
const maxSequences = 1024

const planSuffix = ".plan"

func isPlan(path string) bool { return strings.HasSuffix(path, planSuffix) }
func isArch(path string) bool { return strings.HasPrefix(path, checkpoint.ArchPrefix) }

// openModel opens MODEL, which must not be a plan.
func openModel(path, weightType string) (*smelt.Model, error) {
	if !isArch(path) && weightType != "" {
		return nil, usagef("--type goes with arch:NAME: the weights of %s have their types", path)
	}
	if isPlan(path) {
		return nil, fmt.Errorf("%s: this needs the model itself, not a plan made from it", path)
	}
	path, err := localModel(path)
	if err != nil {
		return nil, err
	}
	if name, ok := strings.CutPrefix(path, checkpoint.ArchPrefix); ok {
		name, _, _ = strings.Cut(name, ",") // settings follow
		if err := known("shape", name, checkpoint.Archs()); err != nil {
			return nil, err
		}
		if err := known("weight type", weightType, checkpoint.ShapeTypes()); weightType != "" && err != nil {
			return nil, usageError{fmt.Errorf("--type: %w", err)}
		}
	}
	m, err := smelt.Open(path, weightType)
	if err != nil && isArch(path) {
		return nil, usageError{err}
	}
	return m, err
}

// localModel returns the cached path of a hub name or URL, and any other MODEL unchanged.
func localModel(model string) (string, error) {
	if _, err := os.Lstat(model); err == nil || model == "" || isArch(model) {
		return model, nil
	}
	h, err := hub.FromEnvironment()
	if err != nil {
		return "", fmt.Errorf("%s: there is no such file, and %w", model, err)
	}
	path, err := h.Local(model)
	if errors.Is(err, hub.ErrNotCached) {
		err = fmt.Errorf("there is no such file, and the model %w: smelt pull %s fetches it", err, model)
	}
	return path, err
}

// known returns a usage error for a name that is not in names.
func known(thing, name string, names []string) error {
	if slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, name) }) {
		return nil
	}
	return usagef("no %s is called %q%s (known: %s)", thing, name, suggestion(name, "", names), strings.Join(names, ", "))
}

// suggestion returns a "did you mean" clause for the nearest name, or "" if none is near.
func suggestion(name, prefix string, names []string) string {
	away := func(other string) int { return levenshtein.ComputeDistance(name, other) }
	best := lo.MinBy(names, func(a, b string) bool { return away(a) < away(b) })
	if best == "" || away(best) > max(2, len(name)/3) || away(best) >= len(name) {
		return ""
	}
	return "; did you mean " + prefix + best + "?"
}

// compileFlags are the flags of every verb that compiles.
type compileFlags struct {
	level   int
	debug   string
	kv      string
	weights string
	context int
	prefill int // maximum number of tokens of a prefill step; no flag of its own
	same    bool
	theta   float64
	scaling string

	sequences int  // sequences of a step; 0: one; no flag of its own
	paged     bool // compile for an engine: a paged cache, one row of logits per sequence
	guesses   bool // with paged: more rows, for speculation
	blocks    bool // compile for a cache in the blocks of engines, as paged does

	flags    *pflag.FlagSet
	products string                               // see lower.ParsePlacement
	chip     string                               // GPU whose kernel variants are chosen
	observer func(phase, pass string, f *ir.Func) // see smelt.Options
}

func (f *compileFlags) add(flags *pflag.FlagSet) {
	f.flags = flags
	flags.IntVarP(&f.level, "optimize", "O", 1, "0 runs the source graph unchanged, 1 optimises")
	flags.StringVar(&f.debug, "debug", "", "NAME/off|dump|time|stats[,…] of a pass or fusion rule, or a cache layout; help lists them")
	flags.StringVar(&f.kv, "kv", "f16", "element type of the KV cache: "+oneOf(cacheTypes()))
	flags.StringVar(&f.weights, "type", "", "with arch:NAME: type of the weights (default f16)")
	flags.StringVar(&f.products, "products", "gpu", "in plans for Metal, the processor of matrix products: gpu, cpu, auto, or the number of multiply-adds from which the CPU computes them")
	flags.BoolVar(&f.same, "same-bits", false, "on metal and emu: batch-invariant logits, bit-identical for any batch, prefill chunks and prefix cache")
	flags.Float64Var(&f.theta, "rope-theta", 0, "base of RoPE's frequencies (default: the file's)")
	flags.StringVar(&f.scaling, "rope-scaling", "", "RoPE scaling for long contexts: none, or linear, yarn or dynamic with a factor, such as yarn:4 (default: the file's)")
	flags.IntVar(&f.context, "ctx", 0, "tokens of the KV cache (default: the model's trained context, at most 4096)")
}

// setChip validates --chip against --target and sets the chip whose kernel variants are chosen.
func (f *compileFlags) setChip(chip, target string) error {
	if chip != "" && !slices.Contains(predict.Chips(), strings.ToLower(chip)) {
		return usagef("--chip %s: want one of %s", chip, strings.Join(predict.Chips(), ", "))
	}
	if t, err := targetOf(target); err != nil {
		return err
	} else if chip != "" && !t.GPU {
		return usagef("--chip %s: a plan for %s runs on no such chip", chip, target)
	}
	f.chip = chip
	return nil
}

// targetOf returns the target that --target names.
func targetOf(name string) (*lower.Target, error) {
	t, err := lower.NewTarget(name)
	if err != nil {
		return nil, usagef("--target %s: want metal or cpu", name)
	}
	return t, nil
}

// maxContext bounds --ctx; it exceeds the trained context of any model.
const maxContext = 1 << 24

// compiledIn are the flags whose values a plan fixes.
var compiledIn = []string{"optimize", "debug", "kv", "type", "ctx", "act", "products", "same-bits", "rope-theta", "rope-scaling"}

// checkPlan returns a usage error for flags that apply only to plans, or only to other MODELs.
func checkPlan(flags *pflag.FlagSet, path string) error {
	if !isPlan(path) {
		if flags.Changed("weights") {
			return usagef("--weights goes with a plan, and %s is none", path)
		}
		return nil
	}
	for _, name := range compiledIn {
		if flags.Changed(name) {
			return usagef("%s: %s is compiled already", lo.Ternary(name == "optimize", "-O", "--"+name), path)
		}
	}
	return nil
}

// options validates the flags and returns them as compile options.
func (f *compileFlags) options(stderr io.Writer) (smelt.Options, error) {
	opts := smelt.Options{Level: f.level, Chip: f.chip, Context: f.context, Prefill: f.prefill, Sequences: f.sequences, SameBits: f.same, Observer: f.observer}
	if f.level == 0 {
		opts.Level = smelt.Unoptimised
	}
	knobs := compiler.KnobsOf(&opts)
	knobs.DebugOutput = stderr
	if f.level != 0 && f.level != 1 {
		return opts, usagef("-O %d: want 0 or 1", f.level)
	}
	if f.context < 0 || f.context > maxContext {
		return opts, usagef("--ctx %d: want 1 to %d slots", f.context, maxContext)
	}
	if f.flags.Changed("rope-theta") && !(f.theta > 0 && f.theta <= math.MaxFloat32) {
		return opts, usagef("--rope-theta %g: want a positive number", f.theta)
	}
	var err error
	if f.flags.Changed("rope-scaling") {
		if _, err = models.ParseRopeScaling(f.scaling); err != nil {
			return opts, usageError{fmt.Errorf("--rope-scaling: %w", err)}
		}
	}
	if opts.KV, err = dtype.Parse(f.kv); err != nil || !slices.Contains(lower.CacheTypes(), opts.KV) {
		return opts, usagef("--kv %s: want %s", f.kv, oneOf(cacheTypes()))
	}
	if knobs.Products, err = lower.ParsePlacement(f.products, f.chip); err != nil {
		return opts, usagef("--products %s: want gpu, cpu, auto or a number of multiply-adds", f.products)
	}
	if knobs.Products == nil && f.flags.Changed("products") { // non-nil, so that checkProducts sees an explicit gpu
		knobs.Products = func(lower.Product) bool { return false }
	}
	if opts.SameBits && knobs.Products != nil {
		return opts, usagef("--same-bits with --products %s: the CPU's products have other bits", f.products)
	}
	if knobs.Debug, err = passes.ParseDebug(f.debug); err != nil {
		return opts, usageError{fmt.Errorf("--debug: %w", err)}
	}
	if f.paged {
		opts.Rows = 1
		if f.guesses {
			opts.Rows = compiler.GuessedRows(f.sequences)
		}
	}
	if f.paged || f.blocks {
		if !knobs.Debug.XSplit { // that layout sets its own block size
			opts.Block = compiler.DefaultBlock
		}
		if f.context > 0 && opts.Block > 0 {
			opts.Block = min(opts.Block, f.context)
		}
	}
	return opts, nil
}

// cacheTypes returns the values of --kv.
func cacheTypes() []string {
	return lo.Map(lower.CacheTypes(), func(t dtype.Type, _ int) string { return t.String() })
}

// oneOf joins two or more values as "a, b or c".
func oneOf(values []string) string {
	last := len(values) - 1
	return strings.Join(values[:last], ", ") + " or " + values[last]
}

// help prints the list of passes and reports true if --debug=help is given.
func (f *compileFlags) help(cmd *cobra.Command) bool {
	d, err := passes.ParseDebug(f.debug)
	if err != nil || !d.Help {
		return false
	}
	_ = passes.WriteHelp(cmd.OutOrStdout())
	return true
}

// deviceFlags are the flags of every verb that executes.
type deviceFlags struct {
	device  string
	threads int
	act     string
	weights string

	rearrange device.Rearrange // set by verbs, no flag
}

func (f *deviceFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.device, "device", "auto", "auto, metal, cpu or emu")
	flags.IntVar(&f.threads, "threads", 0, "threads (default: one per core)")
	flags.StringVar(&f.act, "act", "", "on metal and emu: element type of activations, f16 (f32 in steps of up to 8 tokens) or f32 (default f16)")
}

// addWeights adds the flag of verbs that also run plans.
func (f *deviceFlags) addWeights(flags *pflag.FlagSet) {
	flags.StringVar(&f.weights, "weights", "", "with a plan: the model that it was compiled from (default: beside the plan)")
}

// addSampling adds the flags of sampling's parameters, whose help begins with about, and draws a
// seed.
func addSampling(flags *pflag.FlagSet, to *smelt.Generation, about string, list ...*openai.Parameter) {
	to.Sampling.Seed = rand.Uint64()
	for _, p := range list {
		flags.Var(&parameterFlag{p, to, p.Default}, strings.ReplaceAll(p.Name, "_", "-"), about+p.Doc)
	}
}

// addLength adds -n.
func addLength(flags *pflag.FlagSet, to *smelt.Generation, otherwise, doc string) {
	flags.VarP(&parameterFlag{openai.Length, to, otherwise}, "n", "n", doc)
}

// parameterFlag is the flag of a parameter of generation.
type parameterFlag struct {
	of   *openai.Parameter
	to   *smelt.Generation
	text string
}

func (f *parameterFlag) Set(text string) error {
	f.text = text
	return f.of.Set(f.to, text)
}

func (f *parameterFlag) String() string { return f.text }
func (f *parameterFlag) Type() string   { return f.of.Kind() }

// resolve replaces auto by a device of this machine, and sets the compile options that
// depend on the device.
func (f *deviceFlags) resolve(opts *smelt.Options) error {
	if f.threads < 0 || f.threads > 1024 {
		return usagef("--threads %d: want 1 to 1024", f.threads)
	}
	on, err := smelt.Resolve(smelt.Device{Name: f.device})
	if err != nil {
		return usageError{fmt.Errorf("--device: %w", err)}
	}
	f.device = on.Name
	if opts.Target, err = device.TargetOf(f.device); err != nil {
		return err
	}
	if chip := compiler.ChipOf(on.Name); chip != nil {
		chooseFor(opts, chip)
	}
	if f.act == "" {
		return nil
	}
	if opts.Act, err = dtype.Parse(f.act); err != nil || opts.Act != dtype.F16 && opts.Act != dtype.F32 {
		return usagef("--act %s: want f16 or f32", f.act)
	}
	if t, err := targetOf(opts.Target); err != nil {
		return err
	} else if !t.Native(opts.Act) {
		return usagef("--act %s: the device %s computes in %s", f.act, f.device, t.Act)
	}
	return nil
}

// checkProducts rejects --products for a target without a GPU.
func checkProducts(opts smelt.Options) error {
	if t, err := targetOf(opts.Target); err != nil {
		return err
	} else if compiler.KnobsOf(&opts).Products != nil && !t.GPU {
		return usageError{fmt.Errorf("--products: %w in a plan for %s", compiler.ErrPlacement, opts.Target)}
	}
	return nil
}

// open opens MODEL, which must not be a plan, and applies the flags about its weights and RoPE.
func (f *compileFlags) open(path string) (*smelt.Model, error) {
	m, err := openModel(path, f.weights)
	if err != nil || f.theta == 0 && f.scaling == "" {
		return m, err
	}
	var scaling models.RopeScaling
	if f.scaling != "" {
		scaling, err = models.ParseRopeScaling(f.scaling)
	}
	if err == nil {
		err = m.File().ChangeRope(f.theta, scaling)
	}
	if err != nil {
		m.Close()
		return nil, fmt.Errorf("--rope-theta, --rope-scaling: %w", err)
	}
	return m, nil
}

// chooseFor selects the chip whose kernel variants are chosen.
func chooseFor(opts *smelt.Options, chip *predict.Chip) {
	knobs := compiler.KnobsOf(opts)
	opts.Chip, knobs.Family, knobs.Cores = chip.Name, chip.Family, chip.Cores
}

// loadPlan reads a Plan file and opens the model that it was compiled from: weights, or, if that
// is "", the file beside the Plan.
func loadPlan(path, weights string) (*smelt.Program, error) {
	if weights == "" {
		var err error
		if weights, err = compiler.PlanModel(path); err != nil {
			return nil, err
		}
	}
	m, err := smelt.Open(weights, "")
	if err != nil {
		return nil, err
	}
	p, err := m.ReadPlan(path)
	if err != nil {
		m.Close()
	}
	return p, err
}

// program compiles MODEL, or loads it if it is a plan.
func program(path string, opts smelt.Options, compile *compileFlags, weightsPath string) (*smelt.Program, error) {
	if isPlan(path) {
		weights, err := localModel(weightsPath)
		if err != nil {
			return nil, fmt.Errorf("--weights: %w", err)
		}
		return loadPlan(path, weights)
	}
	if err := checkProducts(opts); err != nil {
		return nil, err
	}
	m, err := compile.open(path)
	if err != nil {
		return nil, err
	}
	p, err := m.Compile(opts)
	if err != nil {
		m.Close()
		return nil, err
	}
	return p, nil
}

// Bounds in bytes of what is read whole: schemas, grammars, templates and keys; and texts.
const maxRules, maxText = 16 << 20, 256 << 20

// readNamed returns the bytes of a file that a flag names. A pipe is read as well, such as a
// shell's <(command).
func readNamed(path string, most int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil || info.Mode().IsRegular() || info.IsDir() {
		return mapped.ReadFile(path, most)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return mapped.ReadAll(f, path, most)
}

// checkOutput returns an error for a destination that cannot be written, so that a verb fails
// before its work; name is the flag or argument.
func checkOutput(name, path string) error {
	if path == "-" {
		return nil
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return fmt.Errorf("%s %s is a folder", name, path)
	}
	dir := filepath.Dir(path)
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return fmt.Errorf("%s %s: there is no folder %s", name, path, dir)
	}
	return nil
}

// writeFile writes a result to a file, or to standard output for "" and "-". It replaces
// the file atomically.
func writeFile(path string, stdout io.Writer, write func(io.Writer) error) error {
	if path == "" || path == "-" {
		return write(stdout)
	}
	if err := checkOutput("-o", path); err != nil {
		return err
	}
	// Anything but a regular file, such as /dev/stdout, is opened and never replaced.
	if info, err := os.Lstat(path); err == nil && !info.Mode().IsRegular() {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC|os.O_CREATE, 0o644)
		if err != nil {
			return err
		}
		return errors.Join(write(f), f.Close())
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	if err := write(f); err != nil {
		f.Close()
		return err
	}
	if err := f.Chmod(0o644); err != nil {
		f.Close()
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
