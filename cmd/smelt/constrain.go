package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/samber/lo"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/smelt-ml/smelt/constrain"
	"github.com/smelt-ml/smelt/models/tokenizer"
)

func constrainVerb() *cobra.Command {
	var form constraintFlags
	var order string
	var lines bool
	cmd := &cobra.Command{
		Use:   "constrain MODEL (--schema F | --regex R | --grammar F | --lines)",
		Short: "Test texts against a constraint",
		Long: `Reads texts, one JSON string per line, and feeds the model's tokens of each to a
constraint: a JSON schema, a regular expression of ECMA-262 for the whole text, or a
grammar in GBNF or Lark. For each text it prints whether the constraint accepts it, the
byte at which it rejects it, the number of tokens, and the microseconds of each mask.

With --lines a line is {"schema": …, "instances": [texts]}, and the answer has the error
that rejects the schema, or null, the microseconds of its compilation, and the results of
the texts. Notes on standard error list keywords of a schema that the constraint does not
check. A GGUF file with a vocabulary alone suffices.`,
		Example: `  echo '"{\"a\": 1}"' | smelt constrain model.gguf --schema schema.json
  echo '"2026-11-23"' | smelt constrain model.gguf --regex '\d{4}-\d\d-\d\d'
  echo '{"schema": {"type": "integer"}, "instances": ["12", "true"]}' | smelt constrain model.gguf --lines`,
		Args: modelArg,
	}
	flags := cmd.Flags()
	form.add(flags)
	flags.BoolVar(&lines, "lines", false, "each line holds a schema and its texts")
	flags.StringVar(&order, "order", "schema", "order of properties: schema, or any")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := form.check(); err != nil {
			return err
		}
		if lines == (form != constraintFlags{}) {
			return usagef("want one of --schema, --regex, --grammar and --lines")
		}
		if order != "schema" && order != "any" {
			return usagef("--order %s: want schema or any", order)
		}
		tok, err := openTokenizer(args[0])
		if err != nil {
			return err
		}
		vocabulary, err := constrain.New(tok.Texts(), tok.StopIDs())
		if err != nil {
			return fmt.Errorf("%s: %w", args[0], err)
		}
		f := &follower{tok: tok, Vocabulary: vocabulary, options: constrain.Options{AnyOrder: order == "any"}, mask: make([]uint64, vocabulary.Words())}
		c, err := form.constraint(cmd.ErrOrStderr(), func() (*constrain.Vocabulary, error) { return vocabulary, nil }, f.options)
		if err != nil {
			return err
		}
		return eachLine(cmd.InOrStdin(), cmd.OutOrStdout(), func(number int, line []byte) (any, error) {
			if lines {
				return f.schemaLine(line, cmd.ErrOrStderr(), number)
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
	text, err := readNamed(file, maxRules)
	if err != nil {
		return nil, err
	}
	return compile(text)
}

// eachLine answers each non-empty line of in by a line of JSON.
func eachLine(in io.Reader, out io.Writer, answer func(number int, line []byte) (any, error)) error {
	r := bufio.NewReader(in)
	w := bufio.NewWriter(out)
	for number := 1; ; number++ {
		line, err := r.ReadBytes('\n')
		if line = bytes.TrimSpace(line); len(line) > 0 {
			a, problem := answer(number, line)
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

// answers are the schema options for generated JSON: compact, since a model that is free to emit
// white space can repeat it forever.
var answers = constrain.Options{NoWhitespace: true}

// constraintFlags are the flags that constrain a generated text.
type constraintFlags struct{ schema, regex, grammar string }

func (f *constraintFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.schema, "schema", "", "file of a JSON schema that the text must match")
	flags.StringVar(&f.regex, "regex", "", "regular expression that the whole text must match")
	flags.StringVar(&f.grammar, "grammar", "", "file of a grammar that the text must match, in GBNF or Lark")
}

func (f *constraintFlags) check() error {
	if lo.CountBy([]string{f.schema, f.regex, f.grammar}, func(s string) bool { return s != "" }) > 1 {
		return usagef("--schema, --regex and --grammar do not go together")
	}
	return nil
}

// constraint returns the constraint of the flags, or nil. It notes keywords of a schema that the
// constraint does not check.
func (f *constraintFlags) constraint(notes io.Writer, vocabulary func() (*constrain.Vocabulary, error), o constrain.Options) (c *constrain.Constraint, err error) {
	if *f == (constraintFlags{}) {
		return nil, nil
	}
	v, err := vocabulary()
	if err != nil {
		return nil, err
	}
	from := cmp.Or(f.schema, f.grammar, "--regex")
	switch {
	case f.schema != "":
		c, err = fromFile(f.schema, func(text []byte) (*constrain.Constraint, error) { return v.JSONSchema(text, o) })
	case f.grammar != "":
		c, err = fromFile(f.grammar, func(text []byte) (*constrain.Constraint, error) { return v.Grammar(string(text)) })
	default:
		c, err = v.Regexp(f.regex)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", from, err)
	}
	tellNotes(notes, from, c)
	return c, nil
}

func tellNotes(w io.Writer, from string, c *constrain.Constraint) {
	for _, note := range c.Notes() {
		fmt.Fprintf(w, "note: %s: %s\n", from, note)
	}
}

// follower feeds texts to constraints.
type follower struct {
	*constrain.Vocabulary
	tok     *tokenizer.Tokenizer
	options constrain.Options
	mask    []uint64
}

// followed is the result for a text.
type followed struct {
	Accepted bool      `json:"accepted"`
	At       *int      `json:"at"`
	Tokens   int       `json:"tokens"`
	MaskUS   []float64 `json:"mask_us"`
	Error    string    `json:"error,omitempty"` // the bound that was exceeded
}

// schemaAnswer is the answer to a line with a schema.
type schemaAnswer struct {
	Error     *string    `json:"error"`
	CompileUS float64    `json:"compile_us"`
	Instances []followed `json:"instances"`
}

func (f *follower) schemaLine(line []byte, notes io.Writer, number int) (any, error) {
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
	tellNotes(notes, fmt.Sprintf("line %d", number), c)
	for _, text := range request.Instances {
		answer.Instances = append(answer.Instances, f.follow(c, text))
	}
	return answer, nil
}

func microseconds(since time.Time) float64 { return float64(time.Since(since).Nanoseconds()) / 1000 }

// encode returns the tokens of text within an answer: without the space that some vocabularies
// put before a text.
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
