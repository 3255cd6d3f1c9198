package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/samber/lo"
	"github.com/spf13/cobra"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/internal/compiler"
	"github.com/smelt-ml/smelt/internal/graphviz"
	"github.com/smelt-ml/smelt/internal/page"
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/lower/plan"
	"github.com/smelt-ml/smelt/lower/predict"
)

func explainVerb() *cobra.Command {
	var (
		compile compileFlags
		phase   string
		target  string
		tokens  int
		many    int
		chip    string
		html    string
		asJSON  bool
	)
	cmd := &cobra.Command{
		Use:   "explain MODEL",
		Short: "Report the compiler's fusions, dispatches and memory",
		Long: `Prints, for one phase, the number of ops of each stage of the graph, the matches and
savings of each fusion rule, and what a step executes: dispatches, barriers, command
buffers, kernels and memory.

A rule's savings are the difference to the same step compiled with all other rules:
dispatches, bytes, and predicted time on --chip (default ` + defaultChip + `). Rules build on
each other and replace each other, so savings do not add up.

--sequences sets the number of sequences of the step: of one token each for decode, of
--tokens each for prefill.

With --same-bits, the predicted cost of batch invariance is printed too.

--chip compiles for an Apple chip: tiles, rows per simdgroup and attention's split follow
from its family and cores. It also predicts the time of a step there, from the bytes and
operations of each dispatch; nothing is measured. --html writes a page with the graph
after every pass, pictures of the stages, the predicted timeline and the arena.`,
		Example: `  smelt explain arch:qwen3-0.6b --phase decode
  smelt explain arch:llama3.1-8b --type q4_0 --chip m4-max --html llama.html`,
		Args: modelArg,
	}
	flags := cmd.Flags()
	compile.add(flags)
	flags.Lookup("ctx").Usage = "tokens of the KV cache (default 512)"
	flags.StringVar(&phase, "phase", "decode", "prefill, decode, or copy (of shared cache blocks)")
	flags.StringVar(&target, "target", "metal", "metal or cpu")
	flags.IntVar(&tokens, "tokens", 512, "tokens of a prefill step")
	flags.IntVar(&many, "sequences", 1, "sequences of the step")
	flags.StringVar(&chip, "chip", "", "select kernel variants for this chip and predict a step on it: "+strings.Join(predict.Chips(), ", "))
	flags.StringVar(&html, "html", "", "file to write an HTML page to (timeline of --chip, default "+defaultChip+")")
	flags.BoolVar(&asJSON, "json", false, "print one JSON object")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if compile.help(cmd) {
			return nil
		}
		if tokens < 2 {
			return usagef("--tokens %d: a prefill step has 2 or more", tokens)
		}
		if many < 1 || many > maxSequences {
			return usagef("--sequences %d: want 1 to %d", many, maxSequences)
		}
		if compile.context == 0 {
			compile.context = 512
		}
		compile.context = max(compile.context, tokens)
		compile.prefill, compile.sequences, compile.blocks = tokens*many, many, many > 1
		if err := compile.setChip(chip, target); err != nil {
			return err
		}
		var trace page.Trace
		if html != "" {
			compile.observer = func(of, pass string, f *ir.Func) {
				if of == phase || of == "batch" && phase == "decode" && many > 1 { // the trace keeps the last such phase
					trace.Observe(pass, f)
				}
			}
		}
		p, err := compileFor(args[0], &compile, target, phase, cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		defer p.Close()
		of, err := p.Explain(phase, many)
		if err != nil {
			return err
		}
		e, compared := &explanation{Explanation: of}, compiler.Of(p)
		if chip != "" {
			timeline, err := compared.Simulate(phase, chip, many)
			if err != nil {
				return err
			}
			prediction := timeline.Predict()
			e.Prediction = &prediction
		}
		if compile.same {
			if e.SameBits, err = compared.SameBits(phase, cmp.Or(chip, defaultChip), many); err != nil {
				return err
			}
		}
		if len(e.Fusions) > 0 {
			if e.Savings, err = compared.Savings(phase, cmp.Or(chip, defaultChip), many); err != nil {
				return err
			}
		}
		if html != "" {
			err := writeFile(html, cmd.OutOrStdout(), func(w io.Writer) error {
				return writePage(cmd.Context(), w, p, e, &trace, cmp.Or(chip, defaultChip), many)
			})
			if err != nil || html == "-" {
				return err
			}
		}
		if asJSON {
			return json.NewEncoder(cmd.OutOrStdout()).Encode(e)
		}
		return printExplanation(cmd.OutOrStdout(), p, e, many)
	}
	return cmd
}

// explanation is the report of a phase, with the optional predictions.
type explanation struct {
	*smelt.Explanation
	Prediction *predict.Prediction `json:"prediction,omitempty"`
	SameBits   *compiler.SameBits  `json:"same_bits,omitempty"`
	*compiler.Savings
}

// defaultChip is the chip of predicted times without --chip.
const defaultChip = "m4-max"

func writePage(ctx context.Context, w io.Writer, p *smelt.Program, e *explanation, trace *page.Trace, chip string, sequences int) error {
	ph, _, err := p.Phase(e.Phase, sequences)
	if err != nil {
		return err
	}
	timeline, err := compiler.Of(p).Simulate(e.Phase, chip, sequences)
	if err != nil {
		return err
	}
	return page.Write(w, &page.Input{
		Plan: p.Plan, Phase: ph, Trace: trace, Timeline: timeline, Sizes: compiler.StepSizes(ph), Fusions: fusions(e),
		WeightBytes: e.WeightBytes, CacheBytes: e.CacheBytes,
		Draw: func(dot []byte, format string) ([]byte, error) { return graphviz.Render(ctx, dot, format) },
	})
}

// fusions returns the rows of a page's table of rules.
func fusions(e *explanation) (rows []page.Fusion) {
	if e.Savings == nil {
		return nil
	}
	row := func(rule string, matches int, s compiler.Saving) {
		rows = append(rows, page.Fusion{
			Rule: rule, Matches: matches, Dispatches: s.Dispatches, Read: s.BytesRead, Written: s.BytesWritten, Micros: s.Seconds * 1e6,
		})
	}
	for _, rule := range slices.Sorted(maps.Keys(e.Fusions)) {
		row(rule, e.Fusions[rule], e.Savings.ByRule[rule])
	}
	row("", 0, e.Savings.Together)
	return rows
}

func printExplanation(out io.Writer, p *smelt.Program, e *explanation, sequences int) error {
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

	printFusions(w, e)
	fmt.Fprintf(w, "\nKERNEL\tDISPATCHES\n")
	for _, k := range slices.Sorted(maps.Keys(e.Kernels)) {
		fmt.Fprintf(w, "%s\t%d%s\n", k, e.Kernels[k], lo.Ternary(slices.Contains(e.Emulated, k), "\temulated: slow", ""))
	}
	printChoices(w, e.Choices)
	fmt.Fprintf(w, "\ndispatches\t%d: %d a layer in %d layers, %d outside\n", e.Dispatches, e.DispatchesPerLayer, e.Layers, e.DispatchesOutsideLayers)
	fmt.Fprintf(w, "barriers\t%d\n", e.Barriers)
	fmt.Fprintf(w, "command buffers\t%d\n", e.CommandBuffers)
	fmt.Fprintf(w, "weights\t%d bytes\n", e.WeightBytes)
	fmt.Fprintf(w, "KV cache\t%d bytes for %d tokens\n", e.CacheBytes, sequences*p.Plan.Context)
	for _, k := range e.Keeps {
		fmt.Fprintf(w, "\tlayers %s: %d bytes a sequence in each; %s\n", ranges(k.Layers), k.Bytes, k.What)
	}
	fmt.Fprintf(w, "arena\t%d bytes; no less than %d would do, %d if no values shared memory\n", e.ArenaBytes, e.MinArenaBytes, e.UnplannedBytes)
	if e.ScratchBytes > 0 {
		fmt.Fprintf(w, "scratch\t%d bytes of the arena, for widening weights that the CPU multiplies\n", e.ScratchBytes)
	}
	if x := e.SameBits; x != nil {
		fmt.Fprintf(w, "same bits\ta step is predicted to take %.2f ms on %s, %+.0f %%, with %+d dispatches, to have them\n",
			x.With*1e3, x.Chip, 100*x.More.Seconds/(x.With-x.More.Seconds), x.More.Dispatches)
	}
	if x := e.Prediction; x != nil {
		fmt.Fprintf(w, "\npredicted on %s\t%.1f tokens/s: %.2f ms a step, %.0f %% of the memory bandwidth, bound by %s\n",
			x.Chip, x.TokensPerSecond, x.MS, 100*x.BandwidthShare, x.Bound)
		fmt.Fprintf(w, "\ta prediction from bytes and operations, which no one has measured\n")
	}
	return w.Flush()
}

// ranges writes ascending numbers as "0-4, 6".
func ranges(numbers []int) string {
	var b strings.Builder
	for i, n := range numbers {
		switch next := i+1 < len(numbers) && numbers[i+1] == n+1; {
		case i == 0:
			fmt.Fprint(&b, n)
		case numbers[i-1] != n-1:
			fmt.Fprintf(&b, ", %d", n)
		case !next:
			fmt.Fprintf(&b, "-%d", n)
		}
	}
	return b.String()
}

// printFusions prints the matches and savings of each rule.
func printFusions(w io.Writer, e *explanation) {
	if e.Savings == nil {
		return
	}
	fmt.Fprintf(w, "\nFUSION RULE\tMATCHES\tSAVES DISPATCHES\tBYTES READ\tBYTES WRITTEN\tPREDICTED ON %s\n", e.Savings.Chip)
	row := func(rule, matches string, s compiler.Saving) {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t", rule, matches, count(s.Dispatches), count(s.BytesRead), count(s.BytesWritten))
		if s == (compiler.Saving{}) {
			fmt.Fprintln(w, "·")
		} else {
			fmt.Fprintf(w, "%.1f µs\n", s.Seconds*1e6)
		}
	}
	for _, rule := range slices.Sorted(maps.Keys(e.Fusions)) {
		row(rule, count(e.Fusions[rule]), e.Savings.ByRule[rule])
	}
	row("all rules together", "", e.Savings.Together)
}

// printChoices prints the kernel variants chosen by size.
func printChoices(w io.Writer, choices []plan.Decision) {
	if len(choices) == 0 {
		return
	}
	fmt.Fprintf(w, "\nCHOICE BY SIZE\tSHAPE\tDISPATCHES\tWHY\n")
	for _, c := range choices {
		fmt.Fprintf(w, "%s: %s\t%s\t%d\t%s\n", c.Kernel, c.Choice, c.Shape, c.Dispatches, c.Reason)
	}
}

// count formats a number for a table, 0 as a dot.
func count[N int | int64](n N) string {
	if n == 0 {
		return "·"
	}
	return fmt.Sprint(n)
}
