package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/internal/compiler"
	"github.com/smelt-ml/smelt/internal/verify"
)

func verifyVerb() *cobra.Command {
	var (
		compile compileFlags
		device  deviceFlags
		bisect  bool
		asJSON  bool
	)
	cmd := &cobra.Command{
		Use:   "verify MODEL",
		Short: "Compare all ways to run a model",
		Long: `Runs the model on fixed tokens in ways that must agree, and prints the difference of each
from its reference, and the bound:

  bits     ways that must be bit-identical: threads, rearranged weights, orders of
           execution, a plan from a file; on cpu also batched and single tokens
  float64  every op by itself, on native kernels, in emulation and in half precision,
           against float64 over the device's operands, with activations and weights of
           products rounded as the device rounds them. A matrix row that is 1 % off is
           named
  other    two ways against each other, after all layers: source and fused graph, float
           and half, native and emulated, on a GPU batched and single tokens

The exit status is 1 if a difference exceeds its bound or a result is NaN or infinite.
Large models are emulated in part, and float64 computes a sample of the rows of their
products, which the table lists.

--bisect also names the first wrong op, the first pass that changes the results, and the
first value that is NaN or infinite. arch:NAME gets random weights of --type.`,
		Example: `  smelt verify model.gguf
  smelt verify model.gguf --bisect --json`,
		Args: modelArg,
	}
	flags := cmd.Flags()
	compile.add(flags)
	device.add(flags)
	device.addWeights(flags)
	flags.BoolVar(&bisect, "bisect", false, "name the first wrong op, pass and value")
	flags.BoolVar(&asJSON, "json", false, "print one JSON object")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if compile.help(cmd) {
			return nil
		}
		v, m, err := openVerify(cmd, args[0], &compile, &device)
		if err != nil {
			return err
		}
		defer m.Close()
		v.Bisect = bisect
		stop := func() {}
		v.Progress = func(what string) {
			stop()
			stop = spin(cmd.ErrOrStderr(), what)
		}
		f, err := verify.Model(cmd.Context(), m, *v)
		stop()
		if err = cmp.Or(m.File().Intact(), err); err != nil {
			return fmt.Errorf("%s: %w", args[0], err)
		}
		if asJSON {
			err = json.NewEncoder(cmd.OutOrStdout()).Encode(f)
		} else {
			err = writeFindings(cmd.OutOrStdout(), f)
		}
		if err == nil && !f.OK {
			err = fmt.Errorf("%s: %w", args[0], errDisagree)
		}
		return err
	}
	return cmd
}

var errDisagree = errors.New("the ways to run it do not agree")

// openVerify opens MODEL for verification: a model, a plan with its model, or an
// arch:NAME with random weights.
func openVerify(cmd *cobra.Command, path string, compile *compileFlags, device *deviceFlags) (*verify.Job, *smelt.Model, error) {
	opts, err := executionOptions(cmd, path, compile, device)
	if err != nil {
		return nil, nil, err
	}
	v := &verify.Job{Program: opts, Device: smelt.Device{Name: device.device}}
	v.Device.Threads = device.threads
	if isPlan(path) {
		p, err := loadPlan(path, device.weights)
		if err != nil {
			return nil, nil, err
		}
		plan := p.Plan
		if err := compiler.Accept(plan.Target, device.device); err != nil {
			p.Close()
			return nil, nil, fmt.Errorf("%s: %w", path, hintDevice(p, err))
		}
		v.Plan, v.Program.Target, v.Program.Act, v.Program.Context = plan, plan.Target, plan.Act, plan.Context
		for _, c := range plan.Caches { // layers with recurrent states have no cache
			v.Program.KV = cmp.Or(v.Program.KV, c.DType)
		}
		return v, p.Model(), nil
	}
	m, err := compile.open(path)
	if err != nil || !isArch(path) {
		return v, m, err
	}
	defer spin(cmd.ErrOrStderr(), "making random weights")()
	m, err = m.Randomise(cmd.Context(), 1)
	return v, m, err
}

func writeFindings(w io.Writer, f *verify.Findings) error {
	tokens := make([]string, len(f.Steps))
	for i, n := range f.Steps {
		tokens[i] = fmt.Sprint(n)
	}
	fmt.Fprintf(w, "%s: steps of %s tokens\n", f.Model, strings.Join(tokens, ", "))
	if f.Partly != "" {
		fmt.Fprintf(w, "In part, since %s\n", f.Partly)
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "CHECK\tWITH\tLARGEST\tRELATIVE\tBOUND\tVERDICT\tOF")
	for _, c := range f.Checks {
		verdict := string(c.Verdict)
		if c.Informational {
			verdict += " (for information)"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", c.Name, c.Against, numbers(&c.Difference), verdict, c.What)
	}
	fmt.Fprintln(t, "\nKERNEL, AGAINST FLOAT64\tON\tLARGEST\tRELATIVE\tBOUND\tVERDICT\tOPS\tWORST AT")
	for _, k := range f.Kernels {
		name := k.Kernel
		if k.Weights != "" {
			name += " " + k.Weights
		}
		on := k.Device
		if on == "cpu" && !k.Native {
			on = "cpu (emulated)"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%s\n", name, on, numbers(&k.Difference), k.Verdict, k.Dispatches, k.Where)
	}
	if b := f.Bisect; b != nil {
		writeBisection(t, b)
	}
	return t.Flush()
}

func writeBisection(t io.Writer, b *verify.Bisection) {
	fmt.Fprintln(t, "\nPASS\tLARGEST\tRELATIVE\tBOUND\tVERDICT\tWORST AT")
	for _, p := range b.Passes {
		if !p.Changed {
			fmt.Fprintf(t, "%s\t–\t–\t–\tsame graph\t\n", p.Pass)
			continue
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", p.Pass, numbers(&p.Difference), p.Verdict, p.Where)
	}
	fmt.Fprintln(t)
	if b.Pass == "" {
		fmt.Fprintf(t, "No pass changes the %s beyond its bound.\n", b.What)
	} else {
		fmt.Fprintf(t, "%s is the first pass that changes the %s.\n", b.Pass, b.What)
	}
	if o := b.Wrong; o == nil {
		fmt.Fprintln(t, "No op is off from float64 beyond its bound.")
	} else {
		fmt.Fprintf(t, "%s %s, %s, is the first op that is wrong: %.6g instead of %.6g ± %.2g at row %d, element %d, in step %d (%s), from the kernel %s on %s.\n",
			o.Op, o.Value, layerOf(o.Layer), float64(o.Got), float64(o.Want), float64(o.Bound), o.Row, o.Element, o.Step+1, o.Phase, o.Kernel, o.Device)
		if o.Weight != "" {
			fmt.Fprintf(t, "  It is made of row %d of %s.\n", o.WeightRow, o.Weight)
		}
		fmt.Fprintf(t, "  %s\n", o.Line)
	}
	n := b.NonFinite
	if n == nil {
		fmt.Fprintf(t, "No element is NaN or infinite: %s.\n", b.Watched)
		return
	}
	fmt.Fprintf(t, "%s %s, %s, is the first value that is no number: %s at row %d, element %d, in step %d (%s), from the kernel %s.\n  %s\n",
		n.Op, n.Value, layerOf(n.Layer), n.Is, n.Row, n.Element, n.Step+1, n.Phase, n.Kernel, n.Line)
	for _, w := range n.Weights {
		fmt.Fprintf(t, "  Its weight %s is none either.\n", w)
	}
}

func layerOf(layer int) string {
	if layer < 0 {
		return "outside the layers"
	}
	return fmt.Sprintf("of layer %d", layer)
}

// numbers returns the columns that every difference has.
func numbers(d *verify.Difference) string {
	if d.Verdict == verify.Skipped {
		return "–\t–\t–"
	}
	return fmt.Sprintf("%.2g\t%.2g\t%.2g", float64(d.Absolute), float64(d.Relative), d.Bound)
}
