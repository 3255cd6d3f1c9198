//go:build cgo

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

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/internal/profile"
	"github.com/smelt-ml/smelt/kernels"
	"github.com/smelt-ml/smelt/lower/predict"
)

func (f *profileFlags) run(cmd *cobra.Command, asJSON bool) error {
	if err := f.check(); err != nil {
		return err
	}
	chip, err := predict.FindChip(f.chip)
	if err != nil {
		return err
	}
	budget := int64(profile.Budget)
	if f.whole {
		budget = 0
	}
	var rows []profile.Row
	ran := map[string]bool{}
	for _, name := range f.models {
		of, err := f.count(cmd, name, chip, budget, ran)
		if err != nil {
			return err
		}
		rows = append(rows, of...)
	}
	if len(rows) == 0 {
		return fmt.Errorf("%s runs in no step of %s; they run %s", f.name, strings.Join(f.models, ", "),
			strings.Join(slices.Sorted(slices.Values(lo.Keys(ran))), ", "))
	}
	if asJSON {
		return json.NewEncoder(cmd.OutOrStdout()).Encode(map[string]any{
			"chip": chip.Name, "cores": chip.Cores, "cache_bytes": chip.Cache, "ridge": chip.Ridge(), "rows": rows,
		})
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s: %d cores, %d MB of cache, ridge at %.1f operations a byte; counted on the CPU, not measured\n",
		chip.Name, chip.Cores, chip.Cache>>20, chip.Ridge())
	return printProfile(cmd.OutOrStdout(), rows)
}

// count profiles one model and records the families that it runs.
func (f *profileFlags) count(cmd *cobra.Command, name string, chip *predict.Chip, budget int64, ran map[string]bool) ([]profile.Row, error) {
	opts := smelt.Options{Target: "metal", Context: max(f.context, f.tokens), Prefill: f.tokens}
	m, err := openModel(name, f.weights)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	p, err := m.Compile(opts)
	if err != nil {
		return nil, err
	}
	return profile.Run(cmd.Context(), p.Plan, profile.Steps(p.Plan, f.tokens), func(k *kernels.Kernel) bool {
		ran[k.Family] = true
		return f.name == everyKernel || k.Name == f.name || k.Family == f.name
	}, chip, budget, func(file string) {
		fmt.Fprintf(cmd.ErrOrStderr(), "compiling %s to be counted, kept for the next time\n", file)
	})
}

func printProfile(out io.Writer, rows []profile.Row) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "MODEL\tSTEP\tKERNEL\tSHAPE\tKB\tLEAST\t×\tCACHES\tCOALESCED\tBANKS\tBARRIERS\tDIVERGENT\tSHIFTS\tOPS/BYTE\tOUTSIDE THE BOUNDS")
	for i := range rows {
		r := &rows[i]
		least := r.LeastBytes
		if r.Tiled {
			least = r.TileBytes
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s%s\t%.2f\t%s\t%.1f %%\t%s\t%.4g\t%s\t%.2f\t%.1f\t%s\n",
			r.Model, r.Step, r.Kernel, r.Shape, kilobytes(r.Bytes()), kilobytes(least), lo.Ternary(r.Tiled, " tile", ""), r.Ratio(), kilobytes(r.TileBytes), 100*r.Coalescing,
			lo.Ternary(r.LeastBankCycles == 0, "-", fmt.Sprintf("%.2f", r.Conflicts())), r.Barriers, divergence(r), r.Shifting(), r.Intensity(),
			strings.Join(r.Misses(), "; "))
	}
	return w.Flush()
}

// kilobytes formats bytes as KB, with a decimal for small numbers.
func kilobytes(n int64) string {
	return fmt.Sprintf("%.*f", lo.Ternary(n < 1e6, 1, 0), float64(n)/1e3)
}

// divergence returns the share of branches that diverge within a simdgroup.
func divergence(r *profile.Row) string {
	if r.Divergent == 0 {
		return "0"
	}
	return fmt.Sprintf("%.2g %%", 100*float64(r.Divergent)/float64(r.Branches))
}
