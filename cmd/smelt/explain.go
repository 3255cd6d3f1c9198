package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/smelt-ml/smelt"
)

func explainVerb() *cobra.Command {
	var (
		compile compileFlags
		phase   string
		target  string
		tokens  int
		asJSON  bool
	)
	cmd := &cobra.Command{
		Use:   "explain MODEL",
		Short: "Say what the compiler did",
		Long: `Shows, for one phase, how many ops each stage of the graph has, what each fusion
rule rewrote, and what a step executes: dispatches, barriers, command buffers,
kernels, and the memory it needs.`,
		Example: `  smelt explain arch:qwen3-0.6b --phase decode`,
		Args:    modelArg,
	}
	flags := cmd.Flags()
	compile.add(flags)
	flags.Lookup("ctx").Usage = "slots of the KV cache (default 512)"
	flags.StringVar(&phase, "phase", "decode", "prefill or decode")
	flags.StringVar(&target, "target", "metal", "metal or cpu")
	flags.IntVar(&tokens, "tokens", 512, "tokens of a prefill step")
	flags.BoolVar(&asJSON, "json", false, "print one JSON object")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if compile.help(cmd) {
			return nil
		}
		if tokens < 2 {
			return usagef("--tokens %d: a prefill step has 2 or more", tokens)
		}
		if compile.context == 0 {
			compile.context = 512
		}
		compile.context = max(compile.context, tokens)
		compile.prefill = tokens
		p, err := compileFor(args[0], &compile, target, phase, cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		defer p.Close()
		e, err := p.Explain(phase)
		if err != nil {
			return err
		}
		if asJSON {
			return json.NewEncoder(cmd.OutOrStdout()).Encode(e)
		}
		return printExplanation(cmd.OutOrStdout(), p, e)
	}
	return cmd
}

func printExplanation(out io.Writer, p *smelt.Program, e *smelt.Explanation) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintf(w, "%s, %s on %s, compiled in %.1f ms\n\n", p.Plan.Model, e.Phase, e.Target, float64(p.Elapsed.Microseconds())/1e3)

	fmt.Fprintf(w, "OP\t")
	ops := map[string]bool{}
	graphs := e.Stages[:len(e.Stages)-1]
	for _, s := range graphs {
		fmt.Fprintf(w, "%s\t", s.Name)
		for op := range s.Ops {
			ops[op] = true
		}
	}
	fmt.Fprintln(w)
	for _, op := range slices.Sorted(maps.Keys(ops)) {
		fmt.Fprintf(w, "%s\t", op)
		for _, s := range graphs {
			fmt.Fprintf(w, "%s\t", count(s.Ops[op]))
		}
		fmt.Fprintln(w)
	}

	fmt.Fprintf(w, "\nFUSION RULE\tMATCHES\n")
	for _, rule := range slices.Sorted(maps.Keys(e.Fusions)) {
		fmt.Fprintf(w, "%s\t%s\n", rule, count(e.Fusions[rule]))
	}
	fmt.Fprintf(w, "\nKERNEL\tDISPATCHES\n")
	for _, k := range slices.Sorted(maps.Keys(e.Kernels)) {
		fmt.Fprintf(w, "%s\t%d\n", k, e.Kernels[k])
	}
	fmt.Fprintf(w, "\ndispatches\t%d: %d a layer in %d layers, %d outside\n", e.Dispatches, e.DispatchesPerLayer, e.Layers, e.DispatchesOutsideLayers)
	fmt.Fprintf(w, "barriers\t%d\n", e.Barriers)
	fmt.Fprintf(w, "command buffers\t%d\n", e.CommandBuffers)
	fmt.Fprintf(w, "weights\t%d bytes\n", e.WeightBytes)
	fmt.Fprintf(w, "KV cache\t%d bytes for %d tokens\n", e.CacheBytes, p.Plan.Context)
	fmt.Fprintf(w, "arena\t%d bytes; %d if no values shared memory\n", e.ArenaBytes, e.UnplannedBytes)
	return w.Flush()
}

// count prints nothing for zero, so that tables show where something is.
func count(n int) string {
	if n == 0 {
		return "·"
	}
	return fmt.Sprint(n)
}
