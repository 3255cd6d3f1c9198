package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/smelt-ml/smelt/models/synth"
)

func synthVerb() *cobra.Command {
	var (
		weightType, output string
		seed               uint64
		settings           []string
	)
	cmd := &cobra.Command{
		Use:   "synth arch:NAME -o FILE.gguf",
		Short: "Write a model of a known shape with random weights",
		Long: `Writes a GGUF file with the tensors of a known model, filled with random numbers, in
the mixture of types that llama.cpp's quantizer makes for --type, and with a placeholder
vocabulary. It serves to measure speed; its texts are random.

--set overrides metadata of the file by their keys, for a model of another geometry. Every
verb accepts the same settings after a shape's name: arch:qwen3-0.6b,block_count=4.`,
		Example: `  smelt synth arch:qwen3-0.6b --type q4_0 --seed 1 -o qwen3-0.6b-q4_0.gguf
  smelt synth arch:gemma3-1b --set block_count=6,attention.head_count=3 -o small.gguf`,
		Args: modelArg,
	}
	flags := cmd.Flags()
	flags.StringVar(&weightType, "type", "f16", "type of the weights, such as f16, q8_0, q4_0 or q4_k_m")
	flags.StringSliceVar(&settings, "set", nil, "KEY=VALUE of the file's metadata, without the architecture's prefix")
	flags.Uint64Var(&seed, "seed", 1, "seed of the random numbers")
	flags.StringVarP(&output, "output", "o", "", "file to write")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !isArch(args[0]) {
			return usagef("%s: want arch:NAME", args[0])
		}
		if output == "" {
			return usagef("-o FILE.gguf is missing")
		}
		if err := checkOutput("-o", output); err != nil {
			return err
		}
		m, err := openModel(strings.Join(append(args[:1:1], settings...), ","), weightType)
		if err != nil {
			return err
		}
		progress, finish := bar(cmd.ErrOrStderr(), "writing "+output)
		defer finish()
		stop := cmd.Context()
		err = writeFile(output, cmd.OutOrStdout(), func(w io.Writer) error {
			return synth.Write(w, m.File(), weightType, seed, func(done, total int64) error {
				progress(done, total)
				return stop.Err()
			})
		})
		if err != nil {
			return fmt.Errorf("writing %s: %w", output, err)
		}
		return nil
	}
	return cmd
}
