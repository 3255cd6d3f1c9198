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
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/lower"
	"github.com/smelt-ml/smelt/lower/predict"
	"github.com/smelt-ml/smelt/models"
	"github.com/smelt-ml/smelt/models/checkpoint"
	"github.com/smelt-ml/smelt/passes"
)

// maxSequences bounds the sequences of a step, whose logits are a row of the vocabulary each.
const maxSequences = 1024

const planSuffix = ".plan"

func isPlan(path string) bool { return strings.HasSuffix(path, planSuffix) }
func isArch(path string) bool { return strings.HasPrefix(path, checkpoint.ArchPrefix) }

// openModel opens what MODEL names, other than a plan.
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

// localModel returns where MODEL lies: in the cache, if it is the name of a model of the hub or a
// URL. What else it may be is returned as it is.
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

// known reports a name that is not on the list of such things.
func known(thing, name string, names []string) error {
	if slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, name) }) {
		return nil
	}
	return usagef("no %s is called %q%s (known: %s)", thing, name, suggestion(name, "", names), strings.Join(names, ", "))
}

// suggestion names what was probably meant, if anything comes near.
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
	prefill int // most tokens of a prefill step; no flag of its own
	same    bool
	theta   float64
	scaling string

	sequences int  // of a step; 0 for one; no flag of its own
	paged     bool // the cache is for an engine: blocks, and a row of logits for each sequence
	guesses   bool // and rows for guesses

	flags    *pflag.FlagSet
	products string                               // where matrix products go
	chip     string                               // that choices by size are made for
	observer func(phase, pass string, f *ir.Func) // see smelt.Options
}

func (f *compileFlags) add(flags *pflag.FlagSet) {
	f.flags = flags
	flags.IntVarP(&f.level, "optimize", "O", 1, "0 runs the source graph as it is, 1 optimises")
	flags.StringVar(&f.debug, "debug", "", "NAME/off|dump|time|stats[,…] of a pass or fusion rule, or a layout of the cache; help lists them")
	flags.StringVar(&f.kv, "kv", "f16", "element type of the KV cache: "+oneOf(cacheTypes()))
	flags.StringVar(&f.weights, "type", "", "with arch:NAME: the type of its weights (default f16)")
	flags.StringVar(&f.products, "products", "gpu", "in plans for Metal, what multiplies matrices: gpu, cpu, auto, or from how many multiply-adds on the CPU")
	flags.BoolVar(&f.same, "same-bits", false, "on metal and emu: a token's logits do not depend, in any bit, on who is beside it, how its prompt is cut or what was cached")
	flags.Float64Var(&f.theta, "rope-theta", 0, "the base of RoPE's angles, in place of the file's")
	flags.StringVar(&f.scaling, "rope-scaling", "", "how angles are scaled for long contexts, in place of what the file says: none, or linear, yarn or dynamic with a factor, such as yarn:4")
	flags.IntVar(&f.context, "ctx", 0, "slots of the KV cache (default: what the model was trained for, at most 4096)")
}

// setChip makes choices by size for a chip, or for none in particular.
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

// targetOf returns what --target names.
func targetOf(name string) (*lower.Target, error) {
	t, err := lower.NewTarget(name)
	if err != nil {
		return nil, usagef("--target %s: want metal or cpu", name)
	}
	return t, nil
}

// maxContext is far above what any model was trained for.
const maxContext = 1 << 24

// compiledIn are the flags whose values a plan has in it.
var compiledIn = []string{"optimize", "debug", "kv", "type", "ctx", "act", "products", "same-bits", "rope-theta", "rope-scaling"}

// checkPlan reports flags that do not go with MODEL being a plan, or not being one.
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

// options checks the flags and turns them into compile options.
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
	if knobs.Products == nil && f.flags.Changed("products") { // asked for, so no target may ignore it
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
		if !knobs.Debug.XSplit { // which has blocks of its own size
			opts.Block = compiler.DefaultBlock
		}
		if f.context > 0 && opts.Block > 0 {
			opts.Block = min(opts.Block, f.context)
		}
	}
	return opts, nil
}

// cacheTypes are what --kv takes.
func cacheTypes() []string {
	return lo.Map(lower.CacheTypes(), func(t dtype.Type, _ int) string { return t.String() })
}

// oneOf lists two values and more in words.
func oneOf(values []string) string {
	last := len(values) - 1
	return strings.Join(values[:last], ", ") + " or " + values[last]
}

// help prints the list of passes where --debug=help asks for it.
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

	rearrange device.Rearrange // no flag: what a verb wants
}

func (f *deviceFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.device, "device", "auto", "auto, metal, cpu or emu")
	flags.IntVar(&f.threads, "threads", 0, "threads (default: one a core)")
	flags.StringVar(&f.act, "act", "", "on metal and emu: element type of activations, f16 or f32 (default f16)")
}

// addWeights adds the flag of verbs that also run plans.
func (f *deviceFlags) addWeights(flags *pflag.FlagSet) {
	flags.StringVar(&f.weights, "weights", "", "with a plan: the model that it was made from (default: beside the plan)")
}

// samplingFlags say how tokens are chosen.
type samplingFlags struct{ smelt.Sampling }

func (f *samplingFlags) add(flags *pflag.FlagSet) {
	flags.Float64Var(&f.Temperature, "temp", 0, "temperature; 0 always takes the most likely token")
	flags.IntVar(&f.TopK, "top-k", 0, "choose among the k most likely tokens; 0: all")
	flags.Float64Var(&f.TopP, "top-p", 1, "choose among the fewest tokens that together are this likely")
	flags.Float64Var(&f.MinP, "min-p", 0, "choose among tokens this likely, relative to the most likely")
	flags.Uint64Var(&f.Seed, "seed", 0, "of the random choices; 0: another each time")
}

// check reports a value that makes no sense, and draws a seed where none is given.
func (f *samplingFlags) check() error {
	for flag, s := range map[string]smelt.Sampling{
		"temp": {Temperature: f.Temperature}, "top-k": {TopK: f.TopK}, "top-p": {TopP: f.TopP}, "min-p": {MinP: f.MinP},
	} {
		if err := s.Validate(); err != nil {
			return usageError{fmt.Errorf("--%s: %w", flag, err)}
		}
	}
	if f.Seed == 0 {
		f.Seed = rand.Uint64()
	}
	return nil
}

// resolve replaces auto by the device that it stands for, and fills in the compile
// options that follow from it.
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

// checkProducts reports --products where the target has no GPU.
func checkProducts(opts smelt.Options) error {
	if t, err := targetOf(opts.Target); err != nil {
		return err
	} else if compiler.KnobsOf(&opts).Products != nil && !t.GPU {
		return usageError{fmt.Errorf("--products: %w in a plan for %s", compiler.ErrPlacement, opts.Target)}
	}
	return nil
}

// open opens what MODEL names, other than a plan, with what the flags say of it.
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

// chooseFor has choices by size made for a chip.
func chooseFor(opts *smelt.Options, chip *predict.Chip) {
	knobs := compiler.KnobsOf(opts)
	opts.Chip, knobs.Family, knobs.Cores = chip.Name, chip.Family, chip.Cores
}

// loadPlan reads a Plan file and opens the model that it belongs to: weights, or, if that is "",
// the file beside the Plan.
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

// program compiles MODEL, or loads it where it is a plan.
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

// checkOutput reports a destination that cannot be written, before work is put
// into what should go there; name is what the tool calls it.
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

// writeFile writes a result to a file, or to standard output for "" and "-". A
// file appears only once it is whole.
func writeFile(path string, stdout io.Writer, write func(io.Writer) error) error {
	if path == "" || path == "-" {
		return write(stdout)
	}
	if err := checkOutput("-o", path); err != nil {
		return err
	}
	// What is no plain file, such as /dev/stdout, is written to and never replaced.
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
