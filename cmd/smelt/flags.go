package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/ir"
)

const planSuffix = ".plan"

func isGGUF(path string) bool { return strings.EqualFold(filepath.Ext(path), ".gguf") }
func isPlan(path string) bool { return strings.HasSuffix(path, planSuffix) }
func isArch(path string) bool { return strings.HasPrefix(path, "arch:") }

// openModel opens what MODEL names, other than a plan.
func openModel(path, weightType string) (*smelt.Model, error) {
	if !isArch(path) && weightType != "" {
		return nil, usagef("--type goes with arch:NAME: the weights of %s have their types", path)
	}
	if isPlan(path) {
		return nil, fmt.Errorf("%s: this needs the model itself, not a plan made from it", path)
	}
	return smelt.Open(path, weightType)
}

// compileFlags are the flags of every verb that compiles.
type compileFlags struct {
	level   int
	debug   string
	kv      string
	weights string
	context int
	prefill int // most tokens of a prefill step; no flag of its own
}

func (f *compileFlags) add(flags *pflag.FlagSet) {
	flags.IntVarP(&f.level, "optimize", "O", 1, "0 runs the source graph as it is, 1 optimises")
	flags.StringVar(&f.debug, "debug", "", "NAME/off|dump|time|stats[,…] of a pass or fusion rule; help lists them")
	flags.StringVar(&f.kv, "kv", "f16", "element type of the KV cache: f32, f16 or q8_0")
	flags.StringVar(&f.weights, "type", "", "with arch:NAME: the type of its weights (default f16)")
	flags.IntVar(&f.context, "ctx", 0, "slots of the KV cache (default: what the model was trained for, at most 4096)")
}

// options checks the flags and turns them into compile options.
func (f *compileFlags) options(stderr io.Writer) (smelt.Options, error) {
	opts := smelt.Options{Level: f.level, Context: f.context, Prefill: f.prefill, DebugOutput: stderr}
	if f.level != 0 && f.level != 1 {
		return opts, usagef("-O %d: want 0 or 1", f.level)
	}
	if f.context < 0 {
		return opts, usagef("--ctx %d: want a positive number of slots", f.context)
	}
	var err error
	if opts.KV, err = ir.ParseDType(f.kv); err != nil || opts.KV != ir.F32 && opts.KV != ir.F16 && opts.KV != ir.Q8_0 {
		return opts, usagef("--kv %s: want f32, f16 or q8_0", f.kv)
	}
	if opts.Debug, err = smelt.ParseDebug(f.debug); err != nil {
		return opts, usageError{fmt.Errorf("--debug: %w", err)}
	}
	return opts, nil
}

// help prints the list of passes where --debug=help asks for it.
func (f *compileFlags) help(cmd *cobra.Command) bool {
	d, err := smelt.ParseDebug(f.debug)
	if err != nil || !d.Help {
		return false
	}
	_ = smelt.WriteDebugHelp(cmd.OutOrStdout())
	return true
}

// deviceFlags are the flags of every verb that executes.
type deviceFlags struct {
	device  string
	threads int
	act     string
	weights string
}

func (f *deviceFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.device, "device", "auto", "auto, metal, cpu or emu")
	flags.IntVar(&f.threads, "threads", 0, "threads (default: one a core)")
	flags.StringVar(&f.act, "act", "", "on emu: element type of activations, f16 or f32 (default f16)")
}

// addWeights adds the flag of verbs that also run plans.
func (f *deviceFlags) addWeights(flags *pflag.FlagSet) {
	flags.StringVar(&f.weights, "weights", "", "with a plan: the model that it was made from (default: beside the plan)")
}

// check fills in the compile options that follow from the device.
func (f *deviceFlags) check(opts *smelt.Options) error {
	if f.threads < 0 || f.threads > 1024 {
		return usagef("--threads %d: want 1 to 1024", f.threads)
	}
	target, err := smelt.TargetOf(f.device)
	if err != nil {
		return usageError{fmt.Errorf("--device: %w", err)}
	}
	opts.Target = target
	if f.act == "" {
		return nil
	}
	if opts.Act, err = ir.ParseDType(f.act); err != nil || opts.Act != ir.F16 && opts.Act != ir.F32 {
		return usagef("--act %s: want f16 or f32", f.act)
	}
	if target != "metal" && opts.Act != ir.F32 {
		return usagef("--act %s: the device %s computes in f32", f.act, f.device)
	}
	return nil
}

// program compiles MODEL, or reads it where it is a plan, and checks that it can
// run.
func program(path string, opts smelt.Options, weightType, weightsPath string) (*smelt.Program, error) {
	if isPlan(path) {
		return smelt.LoadPlan(path, weightsPath)
	}
	m, err := openModel(path, weightType)
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

// writeFile writes a result to a file, or to standard output for "" and "-". A
// file appears only once it is whole.
func writeFile(path string, stdout io.Writer, write func(io.Writer) error) error {
	if path == "" || path == "-" {
		return write(stdout)
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
