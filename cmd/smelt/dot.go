package main

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/internal/compiler"
	"github.com/smelt-ml/smelt/internal/graphviz"
)

func dotVerb() *cobra.Command {
	var (
		compile                      compileFlags
		stage, phase, layers, output string
		target                       string
		svg                          bool
	)
	cmd := &cobra.Command{
		Use:   "dot MODEL",
		Short: "Draw the source graph, fused graph or plan",
		Long: `Writes the graph of one stage as DOT: source is the graph of the model's definition,
fused the graph after the passes, plan the dispatches and their data dependences.
--svg writes a picture instead; Graphviz is not required.`,
		Example: `  smelt dot arch:qwen3-0.6b --stage fused --phase decode --layers 0-0 --svg -o layer.svg`,
		Args:    modelArg,
	}
	flags := cmd.Flags()
	compile.add(flags)
	flags.StringVar(&stage, "stage", "fused", "source, fused or plan")
	flags.StringVar(&phase, "phase", "decode", "prefill or decode")
	flags.StringVar(&layers, "layers", "", "only layers A-B, counted from 0, with stubs for their operands and readers (default: all)")
	flags.StringVarP(&output, "output", "o", "", "file to write (default: standard output)")
	flags.StringVar(&target, "target", "metal", "metal or cpu")
	flags.BoolVar(&svg, "svg", false, "write SVG instead of DOT")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if compile.help(cmd) {
			return nil
		}
		within, err := parseLayers(layers)
		if err != nil {
			return err
		}
		if stage != "source" && stage != "fused" && stage != "plan" {
			return usagef("--stage %s: want source, fused or plan", stage)
		}
		if err := checkPlan(cmd.Flags(), args[0]); err != nil {
			return err
		}
		var p *compiler.Program
		if isPlan(args[0]) {
			if p, err = readPlan(cmd, args[0], stage); err != nil {
				return err
			}
		} else {
			of, err := compileFor(args[0], &compile, target, phase, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			defer of.Close()
			p = compiler.Of(of)
		}
		var picture bytes.Buffer
		if err := writeDOT(&picture, p, stage, phase, within); err != nil {
			return err
		}
		if svg {
			done := spin(cmd.ErrOrStderr(), "laying out the graph")
			drawn, err := graphviz.Render(cmd.Context(), picture.Bytes(), "svg")
			done()
			if err != nil {
				return fmt.Errorf("laying out the graph: %w", err)
			}
			picture = *bytes.NewBuffer(drawn)
		}
		return writeFile(output, cmd.OutOrStdout(), func(w io.Writer) error {
			_, err := picture.WriteTo(w)
			return err
		})
	}
	return cmd
}

// readPlan reads a plan to draw, without its model. A plan has one stage.
func readPlan(cmd *cobra.Command, path, stage string) (*compiler.Program, error) {
	switch {
	case stage != "plan" && cmd.Flags().Changed("stage"):
		return nil, usagef("--stage %s: %s has only the stage plan", stage, path)
	case stage != "plan":
		return nil, usagef("%s has only the stage plan: add --stage plan", path)
	case cmd.Flags().Changed("target"):
		return nil, usagef("--target: %s is compiled already", path)
	}
	f, err := compiler.ReadPlan(path)
	if err != nil {
		return nil, err
	}
	return &compiler.Program{Plan: f.Plan}, nil
}

// compileFor compiles MODEL for a target, whether or not this machine has its device.
func compileFor(path string, compile *compileFlags, target, phase string, stderr io.Writer) (*smelt.Program, error) {
	if !slices.Contains(flagValues["phase"], phase) {
		return nil, usagef("--phase %s: want prefill, decode or copy", phase)
	}
	opts, err := compile.options(stderr)
	if err != nil {
		return nil, err
	}
	if phase == "copy" { // a contiguous cache of one block has no copy phase
		opts.Block = compiler.DefaultBlock
	}
	if _, err := targetOf(target); err != nil {
		return nil, err
	}
	opts.Target = target
	if isPlan(path) {
		return nil, fmt.Errorf("%s: this needs the model itself, not a plan made from it", path)
	}
	useOwnTuning(stderr, &opts)
	return program(path, opts, compile, "")
}

// layerRange selects layers from A to B; the zero value selects everything.
type layerRange struct {
	from, to int
	some     bool
}

func (r layerRange) has(layer int) bool { return !r.some || r.from <= layer && layer <= r.to }

func parseLayers(text string) (layerRange, error) {
	if text == "" {
		return layerRange{}, nil
	}
	first, last, ok := strings.Cut(text, "-")
	if !ok {
		last = first
	}
	from, err1 := strconv.Atoi(first)
	to, err2 := strconv.Atoi(last)
	if err1 != nil || err2 != nil || from < 0 || to < from {
		return layerRange{}, usagef("--layers %s: want A-B, such as 0-1", text)
	}
	return layerRange{from, to, true}, nil
}

func writeDOT(w io.Writer, p *compiler.Program, stage, phase string, layers layerRange) error {
	if layers.some && layers.from >= len(p.Plan.Caches) {
		return usagef("--layers %d-%d: the model has layers 0 to %d", layers.from, layers.to, len(p.Plan.Caches)-1)
	}
	return p.WriteDOT(w, stage, phase, layers.has)
}
