package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/smelt-ml/smelt/lower/predict"
)

func compileVerb() *cobra.Command {
	var (
		compile              compileFlags
		output, target, chip string
	)
	cmd := &cobra.Command{
		Use:   "compile MODEL -o FILE.plan",
		Short: "Compile ahead of time",
		Long: `Writes a plan: the compiled program without its weights. "smelt run FILE.plan" looks for
the model beside the plan. The same model and flags give the same bytes.

--chip selects kernel variants by size for an Apple chip; explain lists them. A plan
without --chip runs on every chip, with variants tuned for none.`,
		Example: `  smelt compile model.gguf --target cpu -o model.plan && smelt run model.plan --device cpu -p 'Once'`,
		Args:    modelArg,
	}
	flags := cmd.Flags()
	compile.add(flags)
	flags.StringVarP(&output, "output", "o", "", "the plan file, whose name ends in .plan")
	flags.StringVar(&target, "target", "metal", "metal or cpu")
	flags.StringVar(&chip, "chip", "", "select kernel variants for this chip: "+strings.Join(predict.Chips(), ", "))
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if compile.help(cmd) {
			return nil
		}
		if !isPlan(output) {
			return usagef("-o %q: want a file whose name ends in %s", output, planSuffix)
		}
		if err := compile.setChip(chip, target); err != nil {
			return err
		}
		if err := checkOutput("-o", output); err != nil {
			return err
		}
		p, err := compileFor(args[0], &compile, target, "decode", cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		defer p.Close()
		if err := writeFile(output, nil, func(w io.Writer) error { return p.Save(w) }); err != nil {
			return fmt.Errorf("writing %s: %w", output, err)
		}
		return nil
	}
	return cmd
}
