package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/smelt-ml/smelt/models/checkpoint"
	"github.com/smelt-ml/smelt/models/mapped"
	"github.com/smelt-ml/smelt/models/tokenizer"
)

func tokenizeVerb() *cobra.Command {
	var decode, noSpecial bool
	cmd := &cobra.Command{
		Use:   "tokenize MODEL",
		Short: "Convert standard input to token ids, and back",
		Long: `Encodes standard input, byte for byte, and prints a JSON array of token ids,
without a start token. With --decode it reads such an array and prints the text.
A GGUF file with a vocabulary alone suffices.`,
		Example: `  printf 'Hello world' | smelt tokenize model.gguf
  echo '[1, 2, 3]' | smelt tokenize model.gguf --decode`,
		Args: modelArg,
	}
	cmd.Flags().BoolVar(&decode, "decode", false, "ids to text")
	cmd.Flags().BoolVar(&noSpecial, "no-special", false, "take special tokens in the text as plain text")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		tok, err := openTokenizer(args[0])
		if err != nil {
			return err
		}
		in, err := mapped.ReadAll(cmd.InOrStdin(), "standard input", maxText)
		if err != nil {
			return err
		}
		if decode {
			ids, err := parseIDs(in, tok.Len())
			if err != nil {
				return fmt.Errorf("standard input: %w", err)
			}
			_, err = cmd.OutOrStdout().Write(tok.Decode(ids, true))
			return err
		}
		ids := tok.Encode(string(in), !noSpecial)
		if ids == nil {
			ids = []int32{}
		}
		return json.NewEncoder(cmd.OutOrStdout()).Encode(ids)
	}
	return cmd
}

func parseIDs(text []byte, vocab int) ([]int32, error) {
	var ids []int32
	if err := json.Unmarshal(text, &ids); err != nil {
		return nil, fmt.Errorf("want a JSON array of token ids: %w", err)
	}
	if ids == nil {
		return nil, errors.New("want a JSON array of token ids, not null")
	}
	for i, id := range ids {
		if id < 0 || int(id) >= vocab {
			return nil, fmt.Errorf("id %d, number %d of the array, is outside the vocabulary of %d", id, i+1, vocab)
		}
	}
	return ids, nil
}

// openTokenizer reads the vocabulary alone, so that a GGUF file needs no tensors.
func openTokenizer(path string) (*tokenizer.Tokenizer, error) {
	if isPlan(path) || isArch(path) {
		return nil, usagef("%s holds no vocabulary: want a GGUF file or a folder", path)
	}
	path, err := localModel(path)
	if err != nil {
		return nil, err
	}
	tok, err := checkpoint.OpenTokenizer(path)
	if err != nil && !strings.Contains(err.Error(), path) {
		err = fmt.Errorf("%s: %w", path, err)
	}
	return tok, err
}
