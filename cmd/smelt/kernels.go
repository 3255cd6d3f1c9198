package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/samber/lo"
	"github.com/spf13/cobra"

	"github.com/smelt-ml/smelt/kernels"
	"github.com/smelt-ml/smelt/kernels/native"
	"github.com/smelt-ml/smelt/kernels/published"
	"github.com/smelt-ml/smelt/lower/predict"
)

func kernelsVerb() *cobra.Command {
	var (
		asJSON bool
		p      profileFlags
	)
	cmd := &cobra.Command{
		Use:   "kernels",
		Short: "List the kernels, or profile one's memory accesses",
		Long: `Lists every kernel: its host name, the file of its source, its threadgroup memory,
its largest threadgroup, and whether this machine has a native version for the
device cpu. A kernel without one runs there from its Metal source.

--profile counts the memory accesses on an Apple GPU of one kernel's or family's
dispatches, as compiled for some models: bytes between memory and the last-level cache,
against the minimum; the used share of touched cache lines (coalescing); bank conflicts
of threadgroup memory; barriers; and divergent branches of simdgroups. The kernels run
on the CPU from their sources, and the counts follow the hardware models that
docs/kernels.md states; nothing is measured on a GPU.`,
		Example: `  smelt kernels --profile linear_vec
  smelt kernels --profile attention_tile_f16_f16 --model arch:qwen3-8b --tokens 256 --chip m1`,
		Args: subcommand,
	}
	flags := cmd.Flags()
	flags.BoolVar(&asJSON, "json", false, "print one JSON object")
	flags.StringVar(&p.name, "profile", "", "kernel or family to profile; all profiles every kernel")
	flags.StringArrayVar(&p.models, "model", profiled, "with --profile: MODEL whose dispatches to profile; may be repeated")
	flags.StringVar(&p.weights, "type", "", "with --profile and arch:NAME: type of the weights (default f16)")
	flags.StringVar(&p.chip, "chip", defaultChip, "with --profile: chip that sets cache, cores and ridge: "+strings.Join(predict.Chips(), ", "))
	flags.IntVar(&p.tokens, "tokens", 512, "with --profile: tokens of the prefill step")
	flags.IntVar(&p.context, "ctx", 4096, "with --profile: keys of the longest decode step")
	flags.BoolVar(&p.whole, "whole", false, "with --profile: run every grid completely, not a sample of it")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if flags.Changed("profile") {
			return p.run(cmd, asJSON)
		}
		for _, name := range []string{"model", "type", "chip", "tokens", "ctx", "whole"} {
			if flags.Changed(name) {
				return usagef("--%s goes with --profile", name)
			}
		}
		return listKernels(cmd.OutOrStdout(), asJSON)
	}
	return cmd
}

func listKernels(out io.Writer, asJSON bool) error {
	here := lo.SliceToMap(native.Names(), func(n string) (string, bool) { return n, true })
	if asJSON {
		type row struct {
			Name             string `json:"name"`
			File             string `json:"file"`
			Summary          string `json:"summary"`
			ThreadgroupBytes int    `json:"threadgroup_bytes"`
			MaxThreads       int    `json:"max_threads"`
			Native           bool   `json:"native"`
			// Published lists kernels of other engines that compute the same.
			Published []string `json:"published"`
			Kept      string   `json:"kept,omitempty"` // reason to keep a kernel that no plan uses
		}
		peers := map[string][]string{}
		for _, o := range published.Origins() {
			peers[o.Family] = append(peers[o.Family], o.By+": "+o.Name)
		}
		rows := lo.Map(kernels.All(), func(k kernels.Kernel, _ int) row {
			return row{k.Name, k.File, k.Summary, k.ThreadgroupBytes, k.MaxThreads, here[k.Name], append([]string{}, peers[k.Family]...), published.Kept(&k)}
		})
		return json.NewEncoder(out).Encode(map[string]any{"isa": native.ISA(), "kernels": rows})
	}
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintf(w, "KERNEL\tSOURCE\tTHREADGROUP BYTES\tTHREADS\t%s\tWHAT IT COMPUTES\n", strings.ToUpper(native.ISA()))
	for _, k := range kernels.All() {
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%s\t%s\n", k.Name, k.File, k.ThreadgroupBytes, k.MaxThreads,
			lo.Ternary(here[k.Name], "native", "-"), k.Summary)
	}
	return w.Flush()
}

// profiled are the default models of --profile.
var profiled = []string{"arch:qwen3-0.6b", "arch:llama3.1-8b"}

// everyKernel is the --profile name of all kernels.
const everyKernel = "all"

type profileFlags struct {
	name    string
	models  []string
	weights string
	chip    string
	tokens  int
	context int
	whole   bool
}

func (f *profileFlags) check() error {
	if f.tokens < 2 {
		return usagef("--tokens %d: a prefill step has 2 or more", f.tokens)
	}
	if f.context < 1 || f.context > maxContext {
		return usagef("--ctx %d: want 1 to %d keys", f.context, maxContext)
	}
	if f.tokens > maxContext {
		return usagef("--tokens %d: want 2 to %d", f.tokens, maxContext)
	}
	if !slices.Contains(predict.Chips(), strings.ToLower(f.chip)) {
		return usagef("--chip %s: want one of %s", f.chip, strings.Join(predict.Chips(), ", "))
	}
	if f.name == everyKernel {
		return nil
	}
	var names []string
	for _, k := range kernels.All() {
		names = append(names, k.Name, k.Family)
	}
	if !slices.Contains(names, f.name) {
		return fmt.Errorf("no kernel or family is called %q%s (smelt kernels lists them)", f.name, suggestion(f.name, "", names))
	}
	return nil
}
