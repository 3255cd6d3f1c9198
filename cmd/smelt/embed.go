package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/samber/lo"
	"github.com/spf13/cobra"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/internal/engine"
	"github.com/smelt-ml/smelt/internal/npy"
)

// embedFlags are the flags of smelt embed.
type embedFlags struct {
	compile compileFlags
	device  deviceFlags

	pooling string
	raw     bool
	tokens  string
	output  string
}

func embedVerb() *cobra.Command {
	var f embedFlags
	cmd := &cobra.Command{
		Use:   "embed MODEL [--pooling none|mean|cls|last|rank] [--raw]",
		Short: "Write an embedding of each line of standard input, or a reranker's scores",
		Long: `Writes {"index", "embedding", "tokens" (a count)} for each line of standard input, with
index from 0; the embedding of a line without tokens is null. Embeddings are normalised
to length 1 unless --raw. With --pooling none each token has an unnormalised embedding.
With --pooling rank, the only one of a reranker, a line has a query and a document, as a JSON
array or with a tab between them, and the output {"index", "score", "scores", "tokens"}: the score,
the first of the scores, is the document's relevance.
With --tokens and -o it writes a float32 array for these tokens, [1, width], or
[tokens, width] with --pooling none.`,
		Example: `  smelt embed model.gguf < lines.txt
  echo '["capital of Peru", "Lima is a city."]' | smelt embed reranker.gguf
  smelt embed model.gguf --tokens 101,2023,102 -o embedding.npy`,
		Args: modelArg,
	}
	flags := cmd.Flags()
	f.compile.add(flags)
	f.device.add(flags)
	flags.StringVar(&f.pooling, "pooling", "", "pooling of tokens' embeddings: "+oneOf(engine.Poolings)+" (default: the model's)")
	flags.BoolVar(&f.raw, "raw", false, "do not normalise embeddings to length 1")
	flags.StringVar(&f.tokens, "tokens", "", "token ids to embed, separated by commas, in place of standard input")
	flags.StringVarP(&f.output, "output", "o", "", "with --tokens: file to write (- for standard output)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return f.run(cmd, args[0]) }
	return cmd
}

func (f *embedFlags) run(cmd *cobra.Command, path string) error {
	if f.compile.help(cmd) {
		return nil
	}
	if f.pooling != "" && !slices.Contains(engine.Poolings, f.pooling) {
		return usagef("--pooling %s: want %s", f.pooling, oneOf(engine.Poolings))
	}
	if isPlan(path) {
		return usagef("%s: embed needs the model itself, not a plan made from it", path)
	}
	var ids []int32
	given := cmd.Flags().Changed("tokens")
	if given != (f.output != "") {
		return usagef("--tokens and -o FILE.npy go together")
	}
	if given {
		var err error
		if ids, err = parseTokens(f.tokens); err != nil {
			return err
		}
		if err := checkOutput("-o", f.output); err != nil {
			return err
		}
	}
	opts, err := executionOptions(cmd, path, &f.compile, &f.device)
	if err != nil {
		return err
	}
	opts.Embeddings, opts.Prefill, opts.Block = true, 0, 0
	useTuning(cmd.ErrOrStderr(), smelt.Device{Name: f.device.device, Threads: f.device.threads}, &opts)
	p, err := program(path, opts, &f.compile, "")
	if err != nil {
		return err
	}
	defer p.Close()
	l, err := p.Load(smelt.Device{Name: f.device.device, Threads: f.device.threads})
	if err != nil {
		return fmt.Errorf("%s: %w", path, hintDevice(p, err))
	}
	defer l.Close()
	e, err := l.NewEmbedder(f.pooling)
	if err != nil {
		return err
	}
	defer e.Close()
	if given {
		return f.array(cmd, e, ids, p.Model().File().Config.Vocab)
	}
	return f.lines(cmd, e)
}

// none reports whether each token has an embedding of its own, ranks whether a text has scores.
func none(e *smelt.Embedder) bool  { return e.Pooling() == "none" }
func ranks(e *smelt.Embedder) bool { return e.Pooling() == "rank" }

// array writes the embedding of token ids.
func (f *embedFlags) array(cmd *cobra.Command, e *smelt.Embedder, ids []int32, vocab int) error {
	for i, id := range ids {
		if int(id) >= vocab {
			return usagef("--tokens: id %d, number %d of the list, is outside the vocabulary of %d", id, i+1, vocab)
		}
	}
	if len(ids) > e.Longest() {
		return usagef("--tokens: %d ids do not fit into a context of %d (--ctx)", len(ids), e.Longest())
	}
	made, err := e.Embed(cmd.Context(), [][]int32{ids})
	if err != nil {
		return err
	}
	vector := made[0]
	if !f.raw && !none(e) && !ranks(e) {
		e.Normalize(vector)
	}
	err = writeFile(f.output, cmd.OutOrStdout(), func(w io.Writer) error {
		return npy.Write(w, []int{len(vector) / e.Width(), e.Width()}, vector)
	})
	if err != nil {
		return fmt.Errorf("writing %s: %w", f.output, err)
	}
	return nil
}

// scored is a line of a reranker's output.
type scored struct {
	Index  int       `json:"index"`
	Score  float32   `json:"score"`
	Scores []float32 `json:"scores"`
	Tokens int       `json:"tokens"`
}

// embedded is another's. Embedding is a list of numbers, with --pooling none a list per token, and
// null for a line without tokens.
type embedded struct {
	Index     int `json:"index"`
	Embedding any `json:"embedding"`
	Tokens    int `json:"tokens"`
}

// maxPending bounds the lines of one batch.
const maxPending = 256

// lines embeds the lines of standard input, in batches of those that are already buffered. It
// writes all lines before one that fails.
func (f *embedFlags) lines(cmd *cobra.Command, e *smelt.Embedder) error {
	in := bufio.NewReaderSize(cmd.InOrStdin(), 1<<16)
	out := bufio.NewWriter(cmd.OutOrStdout())
	var pending [][]int32
	for index := 0; ; {
		ids, wrong := nextLine(in, e, index+len(pending)+1)
		if wrong == nil {
			pending = append(pending, ids)
		}
		if wrong != nil || len(pending) == maxPending || in.Buffered() == 0 {
			if err := f.write(cmd.Context(), out, e, index, pending); err != nil {
				return err
			}
			index, pending = index+len(pending), pending[:0]
		}
		if errors.Is(wrong, io.EOF) {
			return nil
		}
		if wrong != nil {
			return wrong
		}
	}
}

// nextLine returns the tokens of a line, or io.EOF after the last.
func nextLine(in *bufio.Reader, e *smelt.Embedder, number int) ([]int32, error) {
	line, err := in.ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("standard input: %w", err)
	}
	if line == "" {
		return nil, io.EOF
	}
	ids, err := encodeLine(e, strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r"), number)
	if err == nil && len(ids) > e.Longest() {
		err = fmt.Errorf("line %d has %d tokens, which do not fit into a context of %d (--ctx)", number, len(ids), e.Longest())
	}
	return ids, err
}

// encodeLine returns the tokens of a text, or of a pair of texts.
func encodeLine(e *smelt.Embedder, line string, number int) ([]int32, error) {
	if !ranks(e) {
		return e.Encode(line)
	}
	var texts []string
	if json.Unmarshal([]byte(line), &texts) != nil || len(texts) != 2 {
		texts = strings.SplitN(line, "\t", 2)
	}
	if len(texts) != 2 {
		return nil, fmt.Errorf("line %d has no tab: a reranker takes a query and a document with a tab between them, or as a JSON array", number)
	}
	return e.EncodePair(texts[0], texts[1])
}

// write embeds a batch of lines and writes the results; first is the index of the first line.
func (f *embedFlags) write(ctx context.Context, out *bufio.Writer, e *smelt.Embedder, first int, lines [][]int32) error {
	made, err := e.Embed(ctx, lo.Reject(lines, func(ids []int32, _ int) bool { return len(ids) == 0 }))
	if err != nil {
		return err
	}
	encoder := json.NewEncoder(out)
	for i, ids := range lines {
		var vector []float32
		if len(ids) > 0 {
			vector, made = made[0], made[1:]
		}
		if err := encoder.Encode(f.line(e, first+i, len(ids), vector)); err != nil {
			return err
		}
	}
	return out.Flush()
}

// line returns a text's line of output; vector is nil for a text without tokens.
func (f *embedFlags) line(e *smelt.Embedder, index, tokens int, vector []float32) any {
	switch {
	case ranks(e):
		return scored{index, lo.FirstOrEmpty(vector), vector, tokens}
	case vector == nil:
		return embedded{index, nil, tokens}
	case none(e):
		return embedded{index, slices.Collect(slices.Chunk(vector, e.Width())), tokens}
	case !f.raw:
		e.Normalize(vector)
	}
	return embedded{index, vector, tokens}
}
