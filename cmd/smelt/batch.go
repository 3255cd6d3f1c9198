package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/samber/lo"
	"github.com/spf13/cobra"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/chat"
	"github.com/smelt-ml/smelt/constrain"
	"github.com/smelt-ml/smelt/device"
	"github.com/smelt-ml/smelt/internal/compiler"
	"github.com/smelt-ml/smelt/internal/engine"
	"github.com/smelt-ml/smelt/internal/openai"
)

func batchVerb() *cobra.Command {
	var (
		compile          compileFlags
		form             constraintFlags
		device           deviceFlags
		template         templateFlags
		in, out          string
		parallel         int
		cacheBytes       int64
		speculate, draft string
	)
	cmd := &cobra.Command{
		Use:   "batch MODEL --in F.jsonl --out F.jsonl",
		Short: "Answer a file of requests in batches",
		Long: `Reads requests, one JSON object per line, and writes answers, one JSON object per line,
in order of completion. A line has one of "prompt", which gets the start token if the
model has one, "tokens", which are fed unchanged, or "messages" (with "tools",
"tool_choice" and "parallel_tool_calls"), which the model's template renders. Optional
are "id" (a string; default the line's number), "n" (default 128), "temp" (default 0),
"top_k", "top_p", "min_p", "seed", "stop", "logprobs" (alternatives per token),
"ignore_stop", and "schema", a JSON schema that the answer must match. Arguments of
tool calls match the schemas of their tools.

An invalid line is answered with "error", and the others continue. Requests that --out
already answers are skipped, so that an interrupted run resumes; those with errors are
retried.

--speculate ngram or a --draft model enables speculative decoding: a step verifies
several drafted tokens, as many as make it faster. Greedy answers do not change; sampled
answers with a draft differ, from the same distribution.`,
		Example: `  smelt batch model.gguf --in requests.jsonl --out answers.jsonl --parallel 16
  echo '{"prompt": "Once upon a time", "n": 20}' | smelt batch model.gguf`,
		Args: modelArg,
	}
	flags := cmd.Flags()
	compile.add(flags)
	device.add(flags)
	device.addWeights(flags)
	template.add(flags)
	flags.StringVar(&in, "in", "-", "file of requests; - is standard input")
	flags.StringVar(&out, "out", "-", "file of answers; - is standard output")
	flags.IntVar(&parallel, "parallel", compiler.DefaultSequences, "maximum number of concurrent requests")
	flags.Int64Var(&cacheBytes, "cache-bytes", 0, "size of the KV cache (default: --parallel full contexts, at most half of the free memory)")
	flags.StringVar(&speculate, "speculate", engine.SpeculateOff, "speculative decoding: ngram (drafts from the text and from other answers) or off")
	form.add(flags)
	flags.StringVar(&draft, "draft", "", "draft model for speculative decoding, of the same vocabulary")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if compile.help(cmd) {
			return nil
		}
		switch {
		case parallel < 1 || parallel > maxSequences:
			return usagef("--parallel %d: want 1 to %d", parallel, maxSequences)
		case cacheBytes < 0:
			return usagef("--cache-bytes %d: want 0 or more", cacheBytes)
		case speculate != engine.SpeculateOff && speculate != engine.SpeculateNgram:
			return usagef("--speculate %s: want ngram or off", speculate)
		case template.check() != nil:
			return template.check()
		case form.check() != nil:
			return form.check()
		case in == "-" && isTerminal(cmd.InOrStdin()):
			return usagef("--in F.jsonl is missing")
		}
		o := smelt.EngineOptions{CacheBytes: cacheBytes, Speculate: speculate}
		if !isPlan(args[0]) || cmd.Flags().Changed("parallel") {
			o.Sequences = parallel
		}
		compile.sequences, compile.paged, compile.guesses = parallel, true, speculate != engine.SpeculateOff || draft != ""
		p, err := openProgram(cmd, args[0], &compile, &device)
		if err != nil {
			return err
		}
		defer p.Close()
		lines, err := openLines(cmd.InOrStdin(), in)
		if err != nil {
			return err
		}
		defer lines.Close()
		results, err := openResults(cmd.OutOrStdout(), out, in)
		if err != nil {
			return err
		}
		defer results.Close()
		l, err := load(cmd, p, &device)
		if err != nil {
			return fmt.Errorf("%s: %w", args[0], err)
		}
		defer l.Close()
		if draft != "" {
			p, err := draftProgram(cmd, draft, compile, &device)
			if err != nil {
				return fmt.Errorf("--draft: %w", err)
			}
			defer p.Close()
			if o.Draft, err = load(cmd, p, &device); err != nil {
				return fmt.Errorf("--draft %s: %w", draft, err)
			}
			defer o.Draft.Close()
		}
		k := &keeper{vocabulary: l.Vocabulary}
		if k.whole, err = form.constraint(cmd.ErrOrStderr(), l.Vocabulary, answers); err != nil {
			return err
		}
		k.asker = sync.OnceValues(func() (*asker, error) { // most files have no messages
			a, err := template.asker(p.Model(), cmd.ErrOrStderr())
			if err == nil {
				a.vocabulary = l.Vocabulary
			}
			return a, err
		})
		e, err := l.NewEngine(o)
		if err != nil {
			return fmt.Errorf("%s: %w", args[0], err)
		}
		defer e.Close()
		m, on := e.OnDevice().Memory(), l.Info()
		fmt.Fprintf(cmd.ErrOrStderr(), "smelt: weights %d bytes, cache %d bytes, arena %d bytes, on %s with %s\n",
			l.Memory().Weights, m.Cache, m.Arena, on.Name, on.Workers())
		b := &batchRun{engine: e, keeper: k, path: args[0], results: results, start: time.Now()}
		done := watch(cmd.ErrOrStderr(), b.progress)
		err = b.run(cmd.Context(), lines, 2*parallel) // as many wait as run
		done()
		fmt.Fprintf(cmd.ErrOrStderr(), "smelt: %s\n", b.progress())
		return err
	}
	return cmd
}

// keeper makes prompts and constraints from lines.
type keeper struct {
	asker      func() (*asker, error)
	vocabulary func() (*constrain.Vocabulary, error)
	whole      *constrain.Constraint // the constraint of lines without a schema

	schema     string // the last schema, and its constraint or error
	constraint *constrain.Constraint
}

// ofSchema returns the constraint of a schema, or k.whole for no schema.
func (k *keeper) ofSchema(schema json.RawMessage) (*constrain.Constraint, error) {
	if schema == nil {
		return k.whole, nil
	}
	if k.constraint != nil && string(schema) == k.schema { // many lines have the same
		return k.constraint, nil
	}
	v, err := k.vocabulary()
	if err != nil {
		return nil, err
	}
	c, err := v.JSONSchema(schema, answers)
	if err == nil {
		k.schema, k.constraint = string(schema), c
	}
	return c, err
}

// ofQuestion returns the prompt and the constraint of a conversation.
func (k *keeper) ofQuestion(q question) (ids []int32, c *constrain.Constraint, err error) {
	a, err := k.asker()
	if err != nil {
		return nil, nil, err
	}
	template, prompt, err := a.ask(q.Conversation)
	if err != nil {
		return nil, nil, err
	}
	if q.schema == nil && k.whole != nil {
		return prompt.Tokens(), k.whole, nil
	}
	c, err = a.keep(context.Background(), template, q, prompt)
	return prompt.Tokens(), c, err
}

// openLines opens a file of requests.
func openLines(stdin io.Reader, path string) (io.ReadCloser, error) {
	if path == "-" {
		return io.NopCloser(stdin), nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("--in: %w", err)
	}
	return f, nil
}

// batchResult is a line of answers. Its ID is that of the request.
type batchResult struct {
	ID           string         `json:"id"`
	Tokens       []int32        `json:"tokens"`
	Text         string         `json:"text"`
	Logprobs     []batchLogprob `json:"logprobs"`
	Finish       string         `json:"finish"`
	Error        *string        `json:"error"`
	PromptTokens int            `json:"prompt_tokens"`
	CachedTokens int            `json:"cached_tokens"`
	Drafted      int            `json:"drafted"`
	Accepted     int            `json:"accepted"`
}

type batchLogprob struct {
	Logprob float32            `json:"logprob"`
	Top     []batchAlternative `json:"top"`
}

type batchAlternative struct {
	ID      int32   `json:"id"`
	Logprob float32 `json:"logprob"`
}

// finishError is the "finish" of a line with an error.
const finishError = "error"

func (r *batchResult) fail(err error) {
	r.Finish, r.Error = finishError, lo.ToPtr(err.Error())
}

// finite replaces −∞, the logarithm of 0, which JSON lacks.
func finite(logprob float32) float32 { return max(logprob, -math.MaxFloat32) }

func (r *batchResult) add(t *smelt.Token, logprobs bool) {
	r.Text += t.Text
	r.Tokens = append(r.Tokens, t.ID)
	r.Finish = t.Finish
	if logprobs {
		top := lo.Map(t.Top, func(a smelt.Alternative, _ int) batchAlternative { return batchAlternative{a.ID, finite(a.Logprob)} })
		r.Logprobs = append(r.Logprobs, batchLogprob{finite(t.Logprob), top})
	}
}

func (r *batchResult) take(u *smelt.Usage) {
	if u != nil {
		r.PromptTokens, r.CachedTokens, r.Drafted, r.Accepted = u.PromptTokens, u.CachedTokens, u.Drafted, u.Accepted
	}
}

// results is the file of answers and the ids that it already holds.
type results struct {
	io.Writer
	io.Closer
	answered map[string]bool   // ids answered without an error
	failed   map[string]string // the errors of other ids
}

// openResults opens a file of answers and truncates an incomplete last line.
func openResults(stdout io.Writer, path, in string) (*results, error) {
	r := &results{answered: map[string]bool{}, failed: map[string]string{}}
	if path == "-" {
		r.Writer, r.Closer = stdout, io.NopCloser(nil)
		return r, nil
	}
	if err := checkOutput("--out", path); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("--out: %w", err)
	}
	r.Writer, r.Closer = f, f
	info, err := f.Stat()
	if err == nil && info.Mode().IsRegular() {
		if other, missing := os.Stat(in); in != "-" && missing == nil && os.SameFile(info, other) {
			err = usagef("--out %s is the file of --in", path)
		} else {
			err = r.resume(f)
		}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return r, nil
}

// resume reads the answers in a file, and seeks to the end of the last complete line.
func (r *results) resume(f *os.File) error {
	from, end := bufio.NewReader(f), int64(0)
	for n := 1; ; n++ {
		line, err := from.ReadBytes('\n')
		if err == io.EOF {
			break
		} else if err != nil {
			return err
		}
		var was struct {
			ID    *string `json:"id"`
			Error *string `json:"error"`
		}
		if err := json.Unmarshal(line, &was); err != nil || was.ID == nil {
			return fmt.Errorf("--out %s: line %d is no answer of smelt batch; another file is needed, or none", f.Name(), n)
		}
		if was.Error == nil {
			r.answered[*was.ID] = true
		} else {
			r.failed[*was.ID] = *was.Error
		}
		end += int64(len(line))
	}
	if err := f.Truncate(end); err != nil {
		return err
	}
	_, err := f.Seek(end, io.SeekStart)
	return err
}

// write appends an answer, unless the file already holds the same error.
func (r *results) write(b *batchResult) error {
	if was, failed := r.failed[b.ID]; failed && b.Error != nil && *b.Error == was {
		return nil
	}
	var line bytes.Buffer
	to := json.NewEncoder(&line)
	to.SetEscapeHTML(false)
	if err := to.Encode(b); err != nil {
		return err
	}
	_, err := r.Write(line.Bytes())
	return err
}

// batchLine is a line of requests.
type batchLine struct {
	ID         *string           `json:"id"`
	Prompt     *string           `json:"prompt"`
	Tokens     []int32           `json:"tokens"`
	Messages   []chat.Message    `json:"messages"`
	Stop       []string          `json:"stop"`
	Logprobs   int               `json:"logprobs"`
	IgnoreStop bool              `json:"ignore_stop"`
	Schema     json.RawMessage   `json:"schema"`
	Tools      []json.RawMessage `json:"tools"`
	ToolChoice *chat.ToolChoice  `json:"tool_choice"`
	Parallel   *bool             `json:"parallel_tool_calls"`
}

// batchKeys are the keys of a line of requests.
var batchKeys = []string{"id", "prompt", "tokens", "messages", "n", "temp", "top_k", "top_p", "min_p", "seed", "stop", "logprobs", "ignore_stop", "schema", "tools", "tool_choice", "parallel_tool_calls"}

// parseLine parses a request. It returns the line's id, if any, with every error.
func parseLine(text []byte, number int, k *keeper) (id string, r smelt.Request, err error) {
	id = strconv.Itoa(number)
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(text, &keys); err != nil {
		var kind *json.UnmarshalTypeError
		if errors.As(err, &kind) {
			return id, r, fmt.Errorf("line %d is no JSON object", number)
		}
		return id, r, fmt.Errorf("line %d is no JSON: %w", number, err)
	}
	var own string
	if given, ok := keys["id"]; ok && json.Unmarshal(given, &own) == nil && string(given) != "null" {
		id = own
	}
	for _, key := range slices.Sorted(slices.Values(lo.Keys(keys))) {
		if !slices.Contains(batchKeys, key) {
			return id, r, fmt.Errorf("line %d: unknown key %q%s", number, key, suggestion(key, "", batchKeys))
		}
	}
	var l batchLine
	if err := json.Unmarshal(text, &l); err != nil {
		var kind *json.UnmarshalTypeError
		if errors.As(err, &kind) {
			err = fmt.Errorf("%q is a %s, want %s", kind.Field, kind.Value, kind.Type)
		}
		return id, r, fmt.Errorf("line %d: %w", number, err)
	}
	r, err = l.request(k)
	for _, p := range append(openai.Parameters(), openai.Length) {
		if given := keys[p.Name]; given != nil && string(given) != "null" && err == nil {
			if err = p.Set(&r.Generation, string(given)); err != nil {
				err = fmt.Errorf("%q is %.40s: %w", p.Name, given, err)
			}
		}
	}
	if err != nil {
		err = fmt.Errorf("line %d: %w", number, err)
	}
	return id, r, err
}

func (l *batchLine) request(k *keeper) (r smelt.Request, err error) {
	given := lo.CountBy([]bool{l.Prompt != nil, l.Tokens != nil, l.Messages != nil}, func(is bool) bool { return is })
	switch {
	case given == 0:
		return r, errors.New(`"prompt", "tokens" or "messages" is missing`)
	case given > 1:
		return r, errors.New(`"prompt", "tokens" and "messages" do not go together`)
	case l.Tools != nil && l.Messages == nil:
		return r, errors.New(`"tools" go with "messages"`)
	case (l.ToolChoice != nil || l.Parallel != nil) && l.Tools == nil:
		return r, errors.New(`"tool_choice" and "parallel_tool_calls" go with "tools"`)
	case l.Tokens != nil && len(l.Tokens) == 0:
		return r, errors.New(`"tokens" is empty`)
	case l.Logprobs < 0:
		return r, fmt.Errorf(`"logprobs" is %d, want 0 or more`, l.Logprobs)
	}
	if string(l.Schema) == "null" {
		l.Schema = nil
	}
	r.Prompt, r.Tokens = lo.FromPtr(l.Prompt), l.Tokens
	g := &r.Generation
	if l.Messages != nil {
		q := question{chat.Conversation{Messages: l.Messages, Tools: l.Tools, ToolChoice: lo.FromPtr(l.ToolChoice), OneCall: l.Parallel != nil && !*l.Parallel}, l.Schema}
		r.Tokens, g.Constraint, err = k.ofQuestion(q)
	} else if g.Constraint, err = k.ofSchema(l.Schema); err != nil {
		err = fmt.Errorf(`"schema": %w`, err)
	}
	if err != nil {
		return r, err
	}
	g.Sampling.Seed = rand.Uint64()
	g.Stop, g.IgnoreStop, g.Logprobs = l.Stop, l.IgnoreStop, l.Logprobs
	return r, nil
}

// batchRun answers the lines of a file.
type batchRun struct {
	engine *smelt.Engine
	keeper *keeper
	path   string // MODEL
	start  time.Time

	mu                       sync.Mutex
	results                  *results
	answered, failed, before int // lines
	prompts, cached, n       int // tokens; n: generated ones, including those of unfinished answers
}

// progress returns a summary of the answers so far.
func (b *batchRun) progress() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	elapsed := time.Since(b.start)
	text := fmt.Sprintf("%d lines answered, %d with errors, %d before; %d tokens in %.1f s (%.1f tokens/s)",
		b.answered, b.failed, b.before, b.n, elapsed.Seconds(), perSecond(b.n, elapsed))
	if s := b.engine.Stats(); s.Drafted > 0 {
		text += fmt.Sprintf(", %d of %d guesses right", s.Accepted, s.Drafted)
	}
	if b.prompts > 0 {
		text += fmt.Sprintf(", %d of %d prompt tokens from the cache", b.cached, b.prompts)
	}
	return text
}

// run answers all lines, several concurrently. An error about one line becomes its answer; run
// returns errors that stop all lines.
func (b *batchRun) run(ctx context.Context, lines io.Reader, most int) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wait sync.WaitGroup
	places := make(chan struct{}, most)
	err := b.read(lines, func(id string, q smelt.Request) error {
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		wait.Go(func() {
			if err := b.answer(ctx, id, q); err != nil {
				cancel(err)
			}
			<-places
		})
		return nil
	})
	if err != nil {
		cancel(err)
	}
	wait.Wait()
	return context.Cause(ctx)
}

// read sends the requests without an answer, and answers invalid lines with an error.
func (b *batchRun) read(lines io.Reader, begin func(id string, q smelt.Request) error) error {
	seen := map[string]int{}
	from := bufio.NewReader(lines)
	for number := 1; ; number++ {
		text, err := from.ReadBytes('\n')
		if err != nil && err != io.EOF {
			return fmt.Errorf("--in: %w", err)
		}
		last := err == io.EOF
		if text = bytes.TrimSpace(text); len(text) > 0 {
			id, q, err := parseLine(text, number, b.keeper)
			if first, twice := seen[id]; twice {
				err = fmt.Errorf("line %d: line %d has the id %q already", number, first, id)
			} else {
				seen[id] = number
			}
			switch {
			case err != nil:
				err = b.refuse(id, err)
			case b.results.answered[id]:
				b.mu.Lock()
				b.before++
				b.mu.Unlock()
			default:
				err = begin(id, q)
			}
			if err != nil {
				return err
			}
		}
		if last {
			return nil
		}
	}
}

// refuse answers an invalid line.
func (b *batchRun) refuse(id string, err error) error {
	r := batchResult{ID: id, Tokens: []int32{}}
	r.fail(err)
	return b.finish(&r)
}

// answer answers one request. It returns errors that concern the whole run.
func (b *batchRun) answer(ctx context.Context, id string, q smelt.Request) error {
	r := batchResult{ID: id, Tokens: []int32{}}
	if q.Generation.N < 0 { // no tokens requested; count the prompt's
		ids, err := q.Tokens, error(nil)
		if len(ids) == 0 {
			ids, err = b.engine.Encode(q.Prompt)
		}
		if r.PromptTokens, r.Finish = len(ids), smelt.FinishLength; err != nil {
			r.fail(err)
		}
		return b.finish(&r)
	}
	for token, err := range b.engine.Generate(ctx, q) {
		r.take(token.Usage)
		switch {
		case err == nil:
			r.add(&token, q.Generation.Logprobs > 0)
			b.mu.Lock()
			b.n++
			b.mu.Unlock()
		case ctx.Err() != nil, errors.Is(err, device.ErrLost), errors.Is(err, smelt.ErrClosed):
			return err
		default:
			r.Text += token.Text
			r.fail(hintNaN(b.path, err))
		}
	}
	return b.finish(&r)
}

// finish writes an answer.
func (b *batchRun) finish(r *batchResult) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.Error != nil {
		b.failed++
	} else {
		b.answered++
	}
	b.prompts += r.PromptTokens
	b.cached += r.CachedTokens
	if err := b.results.write(r); err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	return nil
}
