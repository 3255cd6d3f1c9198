package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/samber/lo"
	"github.com/spf13/cobra"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/device"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/models/checkpoint"
	"github.com/smelt-ml/smelt/models/quantize"
)

func quantizeVerb() *cobra.Command {
	var (
		weightType string
		asJSON     bool
	)
	cmd := &cobra.Command{
		Use:   "quantize IN OUT --type T",
		Short: "Convert a model's weights to another type",
		Long: `Reads a GGUF file or a folder of safetensors and writes a GGUF file with the mixture of
types that llama.cpp's quantizer makes for --type: ` + strings.Join(checkpoint.WeightTypes(), ", ") + `.
Metadata are kept, norms are F32. A tensor whose rows are no whole number of blocks gets
llama.cpp's fallback type. OUT is replaced atomically; "-" is standard output.`,
		Example: `  smelt quantize model-f16.gguf model-q4_k_m.gguf --type q4_k_m`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 2 {
				return usagef("quantize takes IN and OUT, not %d arguments", len(args))
			}
			if args[0] == "" || args[1] == "" {
				return usagef("IN or OUT is empty")
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&weightType, "type", "", "type of the new weights, such as q8_0, q4_0 or q4_k_m")
	flags.BoolVar(&asJSON, "json", false, "print one JSON object")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		in, out := args[0], args[1]
		switch {
		case weightType == "":
			return usagef("--type T is missing")
		case asJSON && out == "-":
			return usagef("--json and the file cannot both go to standard output")
		}
		if err := known("weight type", weightType, checkpoint.WeightTypes()); err != nil {
			return usagef("--type: %w", err)
		}
		if err := checkOutput("OUT", out); err != nil {
			return err
		}
		in, err := localModel(in)
		if err != nil {
			return err
		}
		m, err := openModel(in, "")
		if err != nil {
			return err
		}
		defer m.Close()
		if !m.HasWeights() {
			return fmt.Errorf("%s: %w", in, smelt.ErrNoWeights)
		}
		if err := checkApart(m, in, out); err != nil {
			return err
		}
		progress, finish := bar(cmd.ErrOrStderr(), "writing "+out)
		var q *quantize.Result
		err = writeFile(out, cmd.OutOrStdout(), func(w io.Writer) (err error) {
			q, err = quantize.Write(cmd.Context(), w, m.File(), weightType, progress)
			return err
		})
		finish()
		if err != nil {
			return fmt.Errorf("writing %s: %w", out, err)
		}
		report(cmd.ErrOrStderr(), q)
		if !asJSON {
			return nil
		}
		return json.NewEncoder(cmd.OutOrStdout()).Encode(struct {
			Type    string         `json:"type"`
			Tensors map[string]int `json:"tensors"`
			Before  int64          `json:"bytes_before"`
			After   int64          `json:"bytes_after"`
			Narrow  int            `json:"narrow_rows"`
			Again   int            `json:"requantized"`
		}{
			strings.ToLower(weightType), lo.MapKeys(q.Tensors, func(_ int, t dtype.Type) string { return strings.ToUpper(t.String()) }),
			q.Before, q.After, q.Narrow, q.Again,
		})
	}
	return cmd
}

// checkApart returns an error if OUT is a file of the model that is read.
func checkApart(m *smelt.Model, in, out string) error {
	target, err := os.Stat(out)
	if err != nil {
		return nil // OUT does not exist
	}
	files := lo.Uniq(lo.Map(m.File().Tensors(), func(t checkpoint.Tensor, _ int) string { return t.File }))
	for _, file := range append(files, in) {
		for _, path := range []string{file, filepath.Join(in, file)} {
			if info, err := os.Stat(path); err == nil && os.SameFile(info, target) {
				return usagef("%s is read from: OUT must be another file", out)
			}
		}
	}
	return nil
}

// report prints the types and sizes of the new file, with notes on fallbacks and requantized tensors.
func report(w io.Writer, q *quantize.Result) {
	counts := lo.FilterMap(dtype.All(), func(t dtype.Type, _ int) (string, bool) {
		n := q.Tensors[t]
		return fmt.Sprintf("%d %s", n, strings.ToUpper(t.String())), n > 0
	})
	fmt.Fprintf(w, "smelt: tensors: %s; %s became %s\n", strings.Join(counts, ", "), device.FormatBytes(q.Before), device.FormatBytes(q.After))
	if q.Narrow > 0 {
		fmt.Fprintf(w, "smelt: %d tensors have a fallback type: their rows are no whole number of blocks\n", q.Narrow)
	}
	if q.Again > 0 {
		fmt.Fprintf(w, "smelt: %d tensors were already quantized and have lost precision twice\n", q.Again)
	}
}
