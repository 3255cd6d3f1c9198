package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/smelt-ml/smelt/internal/npy"
)

func logitsVerb() *cobra.Command {
	var (
		compile        compileFlags
		device         deviceFlags
		tokens, output string
	)
	cmd := &cobra.Command{
		Use:     "logits MODEL --tokens 1,2,3 -o FILE.npy",
		Short:   "Write the logits at every position",
		Long:    "Feeds the token ids unchanged, without a start token, and writes a float32 array,\n[tokens, vocabulary].",
		Example: `  smelt logits model.gguf --tokens 704,703,258,513 -o logits.npy`,
		Args:    modelArg,
	}
	flags := cmd.Flags()
	compile.add(flags)
	device.add(flags)
	device.addWeights(flags)
	flags.StringVar(&tokens, "tokens", "", "token ids, separated by commas")
	flags.StringVarP(&output, "output", "o", "", "file to write (- for standard output)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if compile.help(cmd) {
			return nil
		}
		ids, err := parseTokens(tokens)
		if err != nil {
			return err
		}
		if output == "" {
			return usagef("-o FILE.npy is missing")
		}
		if err := checkOutput("-o", output); err != nil {
			return err
		}
		s, p, err := openSession(cmd, args[0], &compile, &device)
		if err != nil {
			return err
		}
		defer p.Close()
		defer s.Loaded().Close()
		for i, id := range ids {
			if vocab := s.Vocab(); int(id) >= vocab {
				return usagef("--tokens: id %d, number %d of the list, is outside the vocabulary of %d", id, i+1, vocab)
			}
		}
		if len(ids) > s.Context() {
			return usagef("--tokens: %d ids do not fit into a context of %d (--ctx)", len(ids), s.Context())
		}
		all := make([]float32, 0, len(ids)*s.Vocab())
		err = s.Score(cmd.Context(), ids, func(_ int, logits []float32) error {
			all = append(all, logits...)
			return nil
		})
		if err != nil {
			return err
		}
		err = writeFile(output, cmd.OutOrStdout(), func(w io.Writer) error {
			return npy.Write(w, []int{len(ids), s.Vocab()}, all)
		})
		if err != nil {
			return fmt.Errorf("writing %s: %w", output, err)
		}
		return nil
	}
	return cmd
}

func parseTokens(text string) ([]int32, error) {
	if strings.TrimSpace(text) == "" {
		return nil, usagef("--tokens is missing: want ids such as 1,2,3")
	}
	var ids []int32
	for _, field := range strings.Split(text, ",") {
		id, err := strconv.ParseInt(strings.TrimSpace(field), 10, 32)
		if err != nil || id < 0 {
			return nil, usagef("--tokens: %q is no token id", field)
		}
		ids = append(ids, int32(id))
	}
	return ids, nil
}
