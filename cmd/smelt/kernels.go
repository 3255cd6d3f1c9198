package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/samber/lo"
	"github.com/spf13/cobra"

	"github.com/smelt-ml/smelt/kernels"
	"github.com/smelt-ml/smelt/kernels/native"
)

func kernelsVerb() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "kernels",
		Short: "List the kernels",
		Long: `Lists every kernel: its host name, the file of its source, its threadgroup memory,
its largest threadgroup, and whether this machine has a native version for the
device cpu. A kernel without one runs there from its Metal source.`,
		Args: subcommand,
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		here := lo.SliceToMap(native.Names(), func(n string) (string, bool) { return n, true })
		if asJSON {
			type row struct {
				Name             string `json:"name"`
				File             string `json:"file"`
				Summary          string `json:"summary"`
				ThreadgroupBytes int    `json:"threadgroup_bytes"`
				MaxThreads       int    `json:"max_threads"`
				Native           bool   `json:"native"`
			}
			rows := lo.Map(kernels.All(), func(k kernels.Kernel, _ int) row {
				return row{k.Name, k.File, k.Summary, k.ThreadgroupBytes, k.MaxThreads, here[k.Name]}
			})
			return json.NewEncoder(cmd.OutOrStdout()).Encode(map[string]any{"isa": native.ISA(), "kernels": rows})
		}
		w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 8, 2, ' ', 0)
		fmt.Fprintf(w, "KERNEL\tSOURCE\tTHREADGROUP BYTES\tTHREADS\t%s\tWHAT IT COMPUTES\n", strings.ToUpper(native.ISA()))
		for _, k := range kernels.All() {
			fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%s\t%s\n", k.Name, k.File, k.ThreadgroupBytes, k.MaxThreads,
				lo.Ternary(here[k.Name], "native", "-"), k.Summary)
		}
		return w.Flush()
	}
	return cmd
}
