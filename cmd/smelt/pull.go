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
		Long: `Fetches a model from Hugging Face's hub, or the file at a URL, into the cache that Hugging
Face's tools share, and prints its path. Every verb then takes the same name as MODEL.
Interrupted downloads resume, and cached files are not fetched again.

NAME is org/name, org/name:TYPE for the GGUF file of that type of weights, or
org/name/file.gguf, each with an optional @REVISION after org/name and an optional prefix hf:
or hf.co/. Without a TYPE, NAME selects the only GGUF file, else that of the type ` + hub.DefaultType + `; in a
repository without GGUF files it selects config.json, the safetensors and the tokenizer's files.

HF_TOKEN, or the file of Hugging Face's login, holds the token for gated and private models;
HF_ENDPOINT, HF_HOME, HF_HUB_CACHE and HF_HUB_OFFLINE have Hugging Face's meanings.`,
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

// reportEvery is the interval between lines of progress where there is no bar.
const reportEvery = 10 * time.Second

// fetching shows the progress of sequential downloads: a bar on a terminal, else a line when a
// file begins, every reportEvery, and when it is complete.
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
