package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/smelt-ml/smelt/constrain"
	"github.com/smelt-ml/smelt/models/tokenizer"
)

func constrainVerb() *cobra.Command {
	var schema, regex, grammar, order string
	var lines bool
	cmd := &cobra.Command{
		Use:   "constrain MODEL (--schema F | --regex R | --grammar F | --lines)",
		Short: "Say what a constraint lets through",
		Long: `Reads texts, a JSON string a line, and follows each with the model's tokens through a
constraint: a JSON schema, a regular expression of ECMA-262 for the whole text, or a
grammar in the form of GBNF or of Lark. For each it prints whether the text is let
through, at which byte it was refused, its number of tokens, and the microseconds that the
mask before each of them took.

With --lines a line is {"schema": …, "instances": [texts]}, and the answer has why the
schema is refused, or null, the microseconds that it took to compile, and the texts'
answers. A GGUF file that holds only a vocabulary will do.`,
		Example: `  echo '"{\"a\": 1}"' | smelt constrain model.gguf --schema schema.json
  echo '"2026-11-23"' | smelt constrain model.gguf --regex '\d{4}-\d\d-\d\d'
  echo '{"schema": {"type": "integer"}, "instances": ["12", "true"]}' | smelt constrain model.gguf --lines`,
		Args: modelArg,
	}
	flags := cmd.Flags()
	flags.StringVar(&schema, "schema", "", "a file with a JSON schema")
	flags.StringVar(&regex, "regex", "", "a regular expression")
	flags.StringVar(&grammar, "grammar", "", "a file with a grammar")
	flags.BoolVar(&lines, "lines", false, "each line has a schema with its texts")
	flags.StringVar(&order, "order", "schema", "of properties: schema, or any")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		given := 0
		for _, name := range []string{"schema", "regex", "grammar", "lines"} {
			if flags.Changed(name) {
				given++
			}
		}
		if given != 1 {
			return usagef("want one of --schema, --regex, --grammar and --lines, not %d", given)
		}
		if order != "schema" && order != "any" {
			return usagef("--order %s: want schema or any", order)
		}
		tok, err := openTokenizer(args[0])
		if err != nil {
			return err
		}
		vocabulary, err := vocabularyOf(tok)
		if err != nil {
			return fmt.Errorf("%s: %w", args[0], err)
		}
		f := &follower{tok: tok, Vocabulary: vocabulary, options: constrain.Options{AnyOrder: order == "any"}, mask: make([]uint64, vocabulary.Words())}
		var c *constrain.Constraint
		var file string
		switch {
		case flags.Changed("schema"):
			file = schema
			c, err = fromFile(file, func(text []byte) (*constrain.Constraint, error) { return f.JSONSchema(text, f.options) })
		case flags.Changed("grammar"):
			file = grammar
			c, err = fromFile(file, func(text []byte) (*constrain.Constraint, error) { return f.Grammar(string(text)) })
		case flags.Changed("regex"):
			file = "--regex"
			c, err = f.Regexp(regex)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		return eachLine(cmd.InOrStdin(), cmd.OutOrStdout(), func(line []byte) (any, error) {
			if lines {
				return f.schemaLine(line)
			}
			var text string
			if err := json.Unmarshal(line, &text); err != nil {
				return nil, fmt.Errorf("want a JSON string: %w", err)
			}
			return f.follow(c, text), nil
		})
	}
	return cmd
}

func fromFile(file string, compile func([]byte) (*constrain.Constraint, error)) (*constrain.Constraint, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return compile(text)
}

// eachLine answers the lines of in that are not empty, each by a line of JSON.
func eachLine(in io.Reader, out io.Writer, answer func(line []byte) (any, error)) error {
	r := bufio.NewReader(in)
	w := bufio.NewWriter(out)
	for number := 1; ; number++ {
		line, err := r.ReadBytes('\n')
		if line = bytes.TrimSpace(line); len(line) > 0 {
			a, problem := answer(line)
			if problem != nil {
				return errors.Join(fmt.Errorf("standard input, line %d: %w", number, problem), w.Flush())
			}
			if problem := json.NewEncoder(w).Encode(a); problem != nil {
				return problem
			}
			if problem := w.Flush(); problem != nil {
				return problem
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading standard input: %w", err)
		}
	}
}

// vocabularyOf is a tokenizer's tokens for constraints: those that are text.
func vocabularyOf(tok *tokenizer.Tokenizer) (*constrain.Vocabulary, error) {
	tokens := make([][]byte, tok.Len())
	for i := range tokens {
		switch tok.Type(int32(i)) {
		case tokenizer.Normal, tokenizer.UserDefined, tokenizer.Byte:
			tokens[i] = tok.Piece(int32(i))
		}
	}
	return constrain.New(tokens, tok.StopIDs())
}

// follower reads texts through constraints.
type follower struct {
	*constrain.Vocabulary
	tok     *tokenizer.Tokenizer
	options constrain.Options
	mask    []uint64
}

// followed is what became of a text.
type followed struct {
	Accepted bool      `json:"accepted"`
	At       *int      `json:"at"`
	Tokens   int       `json:"tokens"`
	MaskUS   []float64 `json:"mask_us"`
	Error    string    `json:"error,omitempty"` // a bound was met on the way
}

// schemaAnswer is the answer to a line with a schema.
type schemaAnswer struct {
	Error     *string    `json:"error"`
	CompileUS float64    `json:"compile_us"`
	Instances []followed `json:"instances"`
}

func (f *follower) schemaLine(line []byte) (any, error) {
	var request struct {
		Schema    json.RawMessage `json:"schema"`
		Instances []string        `json:"instances"`
	}
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&request); err != nil {
		return nil, fmt.Errorf(`want {"schema", "instances": [texts]}: %w`, err)
	}
	if request.Schema == nil {
		return nil, errors.New(`want {"schema", "instances": [texts]}: there is no "schema"`)
	}
	answer := schemaAnswer{Instances: []followed{}}
	start := time.Now()
	c, err := f.JSONSchema(request.Schema, f.options)
	answer.CompileUS = microseconds(start)
	if err != nil {
		why := err.Error()
		answer.Error = &why
		return answer, nil
	}
	for _, text := range request.Instances {
		answer.Instances = append(answer.Instances, f.follow(c, text))
	}
	return answer, nil
}

func microseconds(since time.Time) float64 { return float64(time.Since(since).Nanoseconds()) / 1000 }

// encode gives the tokens that a model would write text with: without the space that some
// vocabularies put before a text.
func (f *follower) encode(text string) []int32 {
	return f.tok.EncodeAfter(f.tok.Encode("\n", false), text, false)
}

func (f *follower) follow(c *constrain.Constraint, text string) followed {
	ids := f.encode(text)
	r := followed{Tokens: len(ids), MaskUS: []float64{}}
	stop := func(at int, err error) followed {
		r.At = &at
		if err != nil {
			r.Error = err.Error()
		}
		return r
	}
	var joined strings.Builder
	for _, id := range ids {
		joined.Write(f.tok.Piece(id))
	}
	if joined.String() != text {
		return stop(0, errors.New("the vocabulary cannot spell this text"))
	}
	s := c.Start()
	at := 0
	for _, id := range ids {
		start := time.Now()
		err := s.Mask(f.mask)
		r.MaskUS = append(r.MaskUS, microseconds(start))
		if err != nil {
			return stop(at, err)
		}
		piece := f.tok.Piece(id)
		n, err := s.AcceptBytes(piece)
		if err != nil || n < len(piece) {
			return stop(at+n, err)
		}
		if f.mask[id>>6]>>(id&63)&1 == 0 {
			return stop(at, fmt.Errorf("token %d is not in the mask", id))
		}
		at += len(piece)
	}
	if !s.CanStop() {
		return stop(at, nil)
	}
	r.Accepted = true
	return r
}
