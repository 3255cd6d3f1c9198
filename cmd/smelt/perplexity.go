package main

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"github.com/smelt-ml/smelt/internal/perplexity"
)

func perplexityVerb() *cobra.Command {
	var (
		compile compileFlags
		device  deviceFlags
		file    string
		window  int
		asJSON  bool
	)
	cmd := &cobra.Command{
		Use:   "perplexity MODEL --file F",
		Short: "Measure the perplexity of a text",
		Long: `Encodes a text, splits the tokens into consecutive windows, and scores each window from
an empty cache: every token after the first, given the earlier tokens of the window. A
window begins with the start token if the model has one. An incomplete last window is
dropped.`,
		Example: `  smelt perplexity model.gguf --file valid.txt --window 512`,
		Args:    modelArg,
	}
	flags := cmd.Flags()
	compile.add(flags)
	device.add(flags)
	device.addWeights(flags)
	flags.StringVar(&file, "file", "", "file of the text to score")
	flags.IntVar(&window, "window", 512, "tokens of a window, the start token included")
	flags.BoolVar(&asJSON, "json", false, "print one JSON object")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if compile.help(cmd) {
			return nil
		}
		if file == "" {
			return usagef("--file F is missing")
		}
		if window < 2 || window > maxContext {
			return usagef("--window %d: want 2 to %d tokens", window, maxContext)
		}
		switch {
		case compile.context == 0 && !isPlan(args[0]):
			compile.context = window
		case compile.context != 0 && compile.context < window:
			return usagef("--ctx %d: the window takes %d", compile.context, window)
		}
		text, err := readNamed(file, maxText)
		if err != nil {
			return fmt.Errorf("--file: %w", err)
		}
		s, p, err := openSession(cmd, args[0], &compile, &device)
		if err != nil {
			return err
		}
		defer p.Close()
		defer s.Loaded().Close()
		if window > s.Context() {
			return usagef("--window %d: %s was compiled for a context of %d", window, args[0], s.Context())
		}
		progress, finish := countBar(cmd.ErrOrStderr(), "scoring windows")
		result, err := perplexity.Of(cmd.Context(), s, string(text), window, progress)
		finish()
		if err != nil {
			return hintNaN(args[0], fmt.Errorf("%s: %w", file, err))
		}
		if asJSON {
			return json.NewEncoder(cmd.OutOrStdout()).Encode(struct {
				Tokens     int     `json:"tokens"`
				NLL        float64 `json:"nll"`
				Perplexity float64 `json:"perplexity"`
			}{result.Tokens, result.NLL, result.Perplexity})
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "perplexity %.4f, %.5f nats a token, over %d tokens in %d windows\n",
			result.Perplexity, result.NLL, result.Tokens, len(result.Windows))
		return err
	}
	return cmd
}

// countBar shows a progress bar of n things after patience has passed. It shows
// nothing off a terminal.
func countBar(w io.Writer, what string) (progress func(done, total int), finish func()) {
	if !showsBars(w) {
		return func(int, int) {}, func() {}
	}
	start := time.Now()
	var b *progressbar.ProgressBar
	progress = func(done, total int) {
		if b == nil {
			if time.Since(start) < patience {
				return
			}
			b = progressbar.NewOptions(total, progressbar.OptionSetWriter(w), progressbar.OptionSetDescription(what),
				progressbar.OptionShowCount(), progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish())
		}
		_ = b.Set(done)
	}
	return progress, func() {
		if b != nil {
			_ = b.Finish()
		}
	}
}
