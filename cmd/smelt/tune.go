package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/internal/compiler"
	"github.com/smelt-ml/smelt/internal/tune"
	"github.com/smelt-ml/smelt/lower"
)

func tuneVerb() *cobra.Command {
	var (
		compile compileFlags
		device  deviceFlags
		t       tune.Job
		asJSON  bool
	)
	cmd := &cobra.Command{
		Use:   "tune MODEL",
		Short: "Time kernel variants on this device and keep the fastest",
		Long: `Times, on this device, the variants that the compiler otherwise chooses by size: launch
shapes of kernels, and on cpu also the tile along a row, the number of streams, the
prefetch distance and the layout of weights. Each variant alternates with the default, on
the model's own weights: in prefill, in decode, and in steps of several sequences. A
variant that changes a bit of the logits, or saves less than 3 %, is rejected.

The winners are stored in the user's cache folder, by chip and version of the kernels,
for all models together. Plans compiled on this machine for this device use them for equal
shapes, and explain marks them as measured. The environment variable SMELT_TUNED=off
disables them. arch:NAME gets random weights of --type.`,
		Example: `  smelt tune model.gguf
  smelt tune arch:qwen3-0.6b --type q4_0 --device cpu --json`,
		Args: modelArg,
	}
	flags := cmd.Flags()
	compile.add(flags)
	device.add(flags)
	flags.IntVarP(&t.Prompt, "prompt", "p", 0, "tokens of the timed prompt (default: those of one prefill step)")
	flags.IntVarP(&t.Tokens, "n", "n", 8, "decode steps per round")
	flags.IntVarP(&t.Rounds, "runs", "r", 7, "rounds of each variant against the default")
	flags.IntVar(&t.Sequences, "sequences", compiler.DefaultSequences, "sequences of the batched steps; 1: no batched steps")
	flags.StringSliceVar(&t.Only, "only", nil, "tune these choices only: "+strings.Join(lower.Choices(), ", "))
	flags.BoolVar(&asJSON, "json", false, "print one JSON object")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if compile.help(cmd) {
			return nil
		}
		if t.Prompt < 0 || t.Tokens < 1 || t.Rounds < 1 {
			return usagef("-p %d -n %d -r %d: want 0, 1, 1 or more", t.Prompt, t.Tokens, t.Rounds)
		}
		if t.Sequences < 1 || t.Sequences > maxSequences {
			return usagef("--sequences %d: want 1 to %d", t.Sequences, maxSequences)
		}
		for _, name := range t.Only {
			if err := known("choice", name, lower.Choices()); err != nil {
				return err
			}
		}
		var err error
		if t.Program, err = executionOptions(cmd, args[0], &compile, &device); err != nil {
			return err
		}
		if device.device == "emu" {
			return usagef("--device emu: times of the emulator hold for no device")
		}
		t.Device = smelt.Device{Name: device.device, Threads: device.threads}
		m, err := weighed(cmd, args[0], &compile)
		if err != nil {
			return err
		}
		defer m.Close()
		t.Progress = func(what string) { fmt.Fprintf(cmd.ErrOrStderr(), "smelt: timing %s\n", what) }
		found, err := tune.Model(cmd.Context(), m, t)
		if err = cmp.Or(m.File().Intact(), err); err != nil {
			return fmt.Errorf("%s: %w", args[0], err)
		}
		path, err := compiler.KeepTuning(t.Device.Name, t.Device.Threads, found.Winners()...)
		if err != nil {
			return fmt.Errorf("keeping what was measured: %w", err)
		}
		if asJSON {
			return json.NewEncoder(cmd.OutOrStdout()).Encode(struct {
				Device string             `json:"device"`
				File   string             `json:"file"`
				Sites  []*tune.SiteResult `json:"sites"`
			}{device.device, path, append([]*tune.SiteResult{}, found.Sites...)})
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "smelt: kept in %s\n", path)
		return printTuned(cmd.OutOrStdout(), found)
	}
	return cmd
}

// weighed opens a model with its weights, or an arch:NAME with random ones.
func weighed(cmd *cobra.Command, path string, compile *compileFlags) (*smelt.Model, error) {
	m, err := compile.open(path)
	if err != nil || !isArch(path) {
		return m, err
	}
	defer spin(cmd.ErrOrStderr(), "making random weights")()
	return m.Randomise(cmd.Context(), 1)
}

func printTuned(out io.Writer, found *tune.Result) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintf(w, "CHOICE\tKERNEL\tSHAPE\tDEFAULT\tµS\tBEST OF THE OTHERS\tTAKES\tKEPT\n")
	for _, s := range found.Sites {
		best, takes := "·", "·"
		ratio := 0.0
		var differ []string
		for _, t := range s.Tried {
			switch {
			case !t.Same:
				differ = append(differ, t.Setting.String())
			case ratio == 0 || t.Ratio < ratio:
				ratio = t.Ratio
				best, takes = t.Setting.String(), fmt.Sprintf("%.2f", t.Ratio)
			}
		}
		if differ != nil {
			takes += " (other bits: " + strings.Join(differ, "; ") + ")"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%.1f\t%s\t%s\t%s\n", s.Choice, s.Kernel, s.Shape, s.Default, s.Micros, best, takes, s.Winner)
	}
	return w.Flush()
}

// useTuning sets the stored tuning of a device in the compile options.
func useTuning(stderr io.Writer, d smelt.Device, opts *smelt.Options) {
	t, err := compiler.LoadTuning(d.Name, d.Threads)
	if err != nil {
		fmt.Fprintf(stderr, "smelt: compiling without what smelt tune kept: %v\n", err)
	}
	compiler.KnobsOf(opts).Tuning = t
}

// useOwnTuning is useTuning for a target whose device this machine has, without --chip.
func useOwnTuning(stderr io.Writer, opts *smelt.Options) {
	device := opts.Target // targets have the names of their devices
	d := smelt.Device{Name: device}
	chip := compiler.ChipOf(device)
	if opts.Chip != "" || device == "metal" && chip == nil {
		return
	}
	useTuning(stderr, d, opts)
	if chip != nil && compiler.KnobsOf(opts).Tuning != nil {
		chooseFor(opts, chip)
	}
}
