package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/smelt-ml/smelt/device"
	"github.com/smelt-ml/smelt/hub"
)

func pullVerb() *cobra.Command {
	return &cobra.Command{
		Use:   "pull NAME|URL",
		Short: "Fetch a model",
		Long: `Fetches a model of Hugging Face's hub, or the file at a URL, into the cache that Hugging
Face's tools share, and prints where it lies. Every verb takes the same name as MODEL then.
What has come before a break is gone on with; what is there is not fetched again.

NAME is org/name, org/name:TYPE for the GGUF file of that type of weights, or
org/name/file.gguf, each with @REVISION behind the name; hf: or hf.co/ may stand before
it. Without a TYPE it means the only GGUF file, else that of the type ` + hub.DefaultType + `, else, of a
repository without any, config.json, the safetensors and what belongs to them.

HF_TOKEN, or the file of Hugging Face's login, has the token for models that not everybody
may see; HF_ENDPOINT, HF_HOME, HF_HUB_CACHE and HF_HUB_OFFLINE mean what they mean there.`,
		Example: `  smelt pull Qwen/Qwen3-0.6B-GGUF:Q8_0
  smelt run Qwen/Qwen3-0.6B-GGUF:Q8_0 -p 'Once upon a time'`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 || args[0] == "" {
				return usagef("pull takes one NAME or URL, not %d arguments", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			h, err := hub.FromEnvironment()
			if err != nil {
				return err
			}
			progress, finish := fetching(cmd.ErrOrStderr())
			path, err := h.Pull(cmd.Context(), args[0], progress)
			finish()
			switch {
			case errors.Is(err, hub.ErrName):
				return usageError{err}
			case err != nil:
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), path)
			return err
		},
	}
}

// reportEvery is how often a line says how far a file has come, where there is no bar.
const reportEvery = 10 * time.Second

// fetching shows the progress of files that come one after the other: a bar on a terminal, else a
// line when one begins, at times, and when it is there.
func fetching(w io.Writer) (progress hub.Progress, finish func()) {
	var (
		current string
		on      func(done, total int64)
		ended   = func() {}
		said    time.Time
	)
	line := func(file string, done, total int64) {
		of := ""
		if total >= 0 {
			of = " of " + device.FormatBytes(total)
		}
		fmt.Fprintf(w, "smelt: %s: %s%s\n", file, device.FormatBytes(done), of)
		said = time.Now()
	}
	bars := showsBars(w)
	progress = func(file string, done, total int64) {
		if file != current {
			ended()
			current, said = file, time.Time{}
			if bars {
				on, ended = bar(w, file)
			}
		}
		if bars {
			on(done, total)
		} else if done == total || time.Since(said) >= reportEvery {
			line(file, done, total)
		}
	}
	return progress, func() { ended() }
}
