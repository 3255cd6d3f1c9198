package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/chat"
	"github.com/smelt-ml/smelt/constrain"
	"github.com/smelt-ml/smelt/internal/openai"
	"github.com/smelt-ml/smelt/models/mapped"
)

func chatVerb() *cobra.Command {
	var (
		compile  compileFlags
		device   deviceFlags
		g        smelt.Generation
		template templateFlags
		system   string
		forget   bool
		asJSON   bool
	)
	cmd := &cobra.Command{
		Use:   "chat MODEL",
		Short: "Chat with a model",
		Long: `Chats with a model, in the model's own template. Each line is a turn; a line that ends
with \ continues on the next line, and """ encloses several lines. Ctrl-C stops an answer
or discards a line; a second Ctrl-C exits, as Ctrl-D does. Thinking is dimmed.

  /reset          starts over, with the same system text
  /system [TEXT]  sets or removes the system text
  /retry          generates the last answer again
  /save FILE      writes the conversation as JSON
  /load FILE      loads a saved conversation
  /exit           exits, as Ctrl-D does
  /help           lists the commands

With input from a file or a pipe, only answers are printed. With --json, standard input is a
list of messages, or an object with "messages", "tools", "tool_choice", "parallel_tool_calls",
as in OpenAI's API, and "schema", which an answer without tool calls must match. The output is
one JSON object.`,
		Example: `  smelt chat model.gguf --system 'Answer in one sentence.'
  echo '[{"role": "user", "content": "Hello"}]' | smelt chat model.gguf --json`,
		Args: modelArg,
	}
	flags := cmd.Flags()
	compile.add(flags)
	device.add(flags)
	device.addWeights(flags)
	addSampling(flags, &g, "", openai.Parameters()...)
	template.add(flags)
	flags.StringVar(&system, "system", "", "system text at the start of the conversation")
	addLength(flags, &g, "", "maximum number of tokens of an answer (default: the rest of the context)")
	flags.BoolVar(&forget, "forget", false, "drop the oldest turns when the context is full")
	flags.BoolVar(&asJSON, "json", false, "read one conversation from standard input and print the answer as JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if compile.help(cmd) {
			return nil
		}
		switch {
		case asJSON && system != "":
			return usagef("--system does not go with --json: put a system message into the conversation")
		case asJSON && isTerminal(cmd.InOrStdin()):
			return usagef("--json reads a conversation from standard input, which is a terminal")
		}
		if err := template.check(); err != nil {
			return err
		}
		var asked question
		if asJSON {
			var err error
			if asked, err = readQuestion(cmd.InOrStdin()); err != nil {
				return fmt.Errorf("standard input: %w", err)
			}
		}
		compile.sequences, compile.paged = 1, true
		p, err := openProgram(cmd, args[0], &compile, &device)
		if err != nil {
			return err
		}
		defer p.Close()
		t := &talker{program: p, generation: g}
		if t.asker, err = template.asker(p.Model(), cmd.ErrOrStderr()); err != nil {
			return err
		}
		l, err := load(cmd, p, &device)
		if err != nil {
			return fmt.Errorf("%s: %w", args[0], err)
		}
		defer l.Close()
		t.vocabulary = l.Vocabulary
		o := smelt.EngineOptions{Metrics: &t.times}
		if !isPlan(args[0]) {
			o.Sequences = 1
		}
		if t.engine, err = l.NewEngine(o); err != nil {
			return fmt.Errorf("%s: %w", args[0], err)
		}
		defer t.engine.Close()
		m, on := t.engine.OnDevice().Memory(), l.Info()
		fmt.Fprintf(cmd.ErrOrStderr(), "smelt: weights %d bytes, cache %d bytes, arena %d bytes, on %s with %s\n",
			l.Memory().Weights, m.Cache, m.Arena, on.Name, on.Workers())
		if asJSON {
			err = t.json(cmd.Context(), cmd.OutOrStdout(), asked, forget)
		} else {
			err = converse(cmd, t, system, forget)
		}
		return hintNaN(args[0], err)
	}
	return cmd
}

// talker answers conversations.
type talker struct {
	*asker
	program    *smelt.Program
	engine     *smelt.Engine
	generation smelt.Generation // N 0: the rest of the context
	times      laps
}

// question is a conversation to answer.
type question struct {
	chat.Conversation
	schema json.RawMessage // schema of the answer, or nil
}

// asker renders conversations to prompts.
type asker struct {
	plain, tools *chat.Template

	toolsInPrompt bool // --tools prompt

	variables  map[string]json.RawMessage
	vocabulary func() (*constrain.Vocabulary, error)
	notes      io.Writer
	noted      sync.Once
}

// ask returns the prompt for an answer to a conversation.
func (a *asker) ask(c chat.Conversation) (*chat.Template, chat.Prompt, error) {
	template := a.plain
	if len(c.Tools) > 0 {
		template = a.tools
	}
	c.Answer, c.Variables, c.ToolsInPrompt = true, a.variables, a.toolsInPrompt
	prompt, err := template.Render(c)
	if errors.Is(err, chat.ErrNoPlace) && !a.toolsInPrompt && len(c.Tools) > 0 {
		err = fmt.Errorf("%w; --tools prompt writes it into the system text", err)
	}
	return template, prompt, err
}

// keep returns the constraint of the answer to a prompt, or nil.
func (a *asker) keep(ctx context.Context, template *chat.Template, q question, prompt chat.Prompt) (*constrain.Constraint, error) {
	if q.schema == nil && len(q.Tools) == 0 && q.ToolChoice == (chat.ToolChoice{}) {
		return nil, nil
	}
	v, err := a.vocabulary()
	if err != nil {
		return nil, err
	}
	k, err := template.Constraint(ctx, v, q.Conversation, prompt, q.schema)
	if errors.Is(err, chat.ErrNotKept) {
		a.noted.Do(func() { fmt.Fprintf(a.notes, "smelt: %v\n", err) })
		err = nil
	}
	return k, err
}

// answer is a generated message.
type answer struct {
	message        chat.Message
	tokens         []int32 // with the stop token
	finish         string
	prompt, cached int // tokens
	forgotten      int // messages dropped for lack of room
}

// fit drops the oldest turns of a conversation until it and an answer fit the context. Without
// --forget, or if the last turn alone does not fit, it returns an error.
func (t *talker) fit(c *chat.Conversation, forget bool) (*chat.Template, chat.Prompt, int, error) {
	for forgotten := 0; ; {
		template, prompt, err := t.ask(*c)
		if err != nil {
			return template, prompt, forgotten, err
		}
		if len(prompt.Tokens()) < t.engine.Context() {
			return template, prompt, forgotten, nil
		}
		n := oldest(c.Messages)
		if !forget || n == 0 {
			return template, prompt, forgotten, fmt.Errorf("%w: the conversation has %d tokens, and there is room for %d with an answer", smelt.ErrContext, len(prompt.Tokens()), t.engine.Context())
		}
		left := n
		c.Messages = slices.DeleteFunc(slices.Clone(c.Messages), func(m chat.Message) bool {
			if m.Role == "system" || left == 0 {
				return false
			}
			left--
			return true
		})
		forgotten += n
	}
}

// oldest returns the number of messages of the oldest turn, without system messages: those before
// the next user message; 0 if there is one turn only.
func oldest(list []chat.Message) int {
	n := 0
	for _, m := range list {
		if m.Role == "system" {
			continue
		}
		if m.Role == "user" && n > 0 {
			return n
		}
		n++
	}
	return 0
}

// answer generates an answer. If generation stops or fails, it returns the partial answer with
// the error.
func (t *talker) answer(ctx context.Context, q question, forget bool, each func(chat.Delta) error) (answer, error) {
	a := answer{tokens: []int32{}}
	template, prompt, forgotten, err := t.fit(&q.Conversation, forget)
	if err != nil {
		return a, err
	}
	a.forgotten, a.prompt = forgotten, len(prompt.Tokens())
	t.times = laps{}
	g := t.generation
	g.NoText = true // the parser decodes the tokens
	if room := t.engine.Context() - a.prompt; g.N == 0 || g.N > room {
		g.N = room
	}
	if g.Constraint, err = t.keep(ctx, template, q, prompt); err != nil {
		return a, err
	}
	parser := template.NewParser(q.Conversation, prompt)
	if g.Sampling.Temperature > 0 {
		parser.Salt = g.Sampling.Seed
	}
	if g.N < 0 {
		a.finish = smelt.FinishLength
	}
	for token, tokenErr := range t.engine.Generate(ctx, smelt.Request{Tokens: prompt.Tokens(), Generation: g}) {
		if token.Usage != nil {
			a.cached = token.Usage.CachedTokens
		}
		if err = tokenErr; err != nil {
			break
		}
		a.tokens, a.finish = append(a.tokens, token.ID), token.Finish
		if err = each(parser.Token(token.ID)); err != nil {
			break
		}
	}
	if last := each(parser.End()); err == nil {
		err = last
	}
	a.message = parser.Message()
	return a, err
}

// maxConversation bounds the bytes of a conversation.
const maxConversation = 64 << 20

// readQuestion reads a list of messages, or an object with messages, tools, tool_choice and a
// schema.
func readQuestion(r io.Reader) (q question, err error) {
	raw, err := mapped.ReadAll(r, "a conversation", maxConversation)
	if err != nil {
		return q, err
	}
	var c struct {
		Messages   []chat.Message    `json:"messages"`
		Tools      []json.RawMessage `json:"tools"`
		ToolChoice chat.ToolChoice   `json:"tool_choice"`
		Parallel   *bool             `json:"parallel_tool_calls"`
		Schema     json.RawMessage   `json:"schema"`
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if raw = bytes.TrimSpace(raw); len(raw) > 0 && raw[0] == '[' {
		err = d.Decode(&c.Messages)
	} else {
		err = d.Decode(&c)
	}
	switch {
	case errors.Is(err, io.EOF):
		return q, errors.New("there is no conversation")
	case err != nil:
		return q, err
	case d.More():
		return q, errors.New("text follows the conversation")
	case len(c.Messages) == 0:
		return q, errors.New(`"messages" is missing`)
	case string(c.Schema) == "null":
		c.Schema = nil
	}
	return question{chat.Conversation{Messages: c.Messages, Tools: c.Tools, ToolChoice: c.ToolChoice, OneCall: c.Parallel != nil && !*c.Parallel}, c.Schema}, nil
}

// json answers one conversation.
func (t *talker) json(ctx context.Context, out io.Writer, q question, forget bool) error {
	a, err := t.answer(ctx, q, forget, func(chat.Delta) error { return nil })
	if err != nil {
		return err
	}
	type message struct {
		Role      string          `json:"role"`
		Content   string          `json:"content"`
		Reasoning string          `json:"reasoning"`
		ToolCalls []chat.ToolCall `json:"tool_calls"`
	}
	calls := a.message.ToolCalls
	if calls == nil {
		calls = []chat.ToolCall{}
	}
	e := json.NewEncoder(out)
	e.SetEscapeHTML(false)
	return e.Encode(struct {
		Message      message `json:"message"`
		Tokens       []int32 `json:"tokens"`
		Finish       string  `json:"finish"`
		PromptTokens int     `json:"prompt_tokens"`
		Timings      timings `json:"timings"`
	}{
		message{a.message.Role, a.message.Content, a.message.Reasoning, calls}, a.tokens, a.finish, a.prompt, t.timings(&a),
	})
}

func (t *talker) timings(a *answer) timings {
	return timings{
		Load: ms(t.engine.Loaded().LoadTime()), Compile: ms(t.program.Elapsed),
		Prefill: ms(t.times.prefill), PrefillTPS: perSecond(a.prompt-a.cached, t.times.prefill),
		Decode: ms(t.times.decode), DecodeTPS: perSecond(len(a.tokens)-1, t.times.decode),
	}
}

// saved writes a conversation in the form that --json and /load read.
func saved(path string, messages []chat.Message) error {
	return writeFile(path, nil, func(w io.Writer) error {
		e := json.NewEncoder(w)
		e.SetEscapeHTML(false)
		e.SetIndent("", " ")
		return e.Encode(struct {
			Messages []chat.Message `json:"messages"`
		}{messages})
	})
}

func loaded(path string) (chat.Conversation, error) {
	f, err := os.Open(path)
	if err != nil {
		return chat.Conversation{}, err
	}
	defer f.Close()
	q, err := readQuestion(f)
	if err == nil && q.schema != nil {
		err = errors.New(`"schema" is for --json`)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", path, err)
	}
	return q.Conversation, err
}

// pace returns the timings of an answer.
func (t *talker) pace(a *answer) string {
	s := t.timings(a)
	text := fmt.Sprintf("%d tokens, %.1f tokens/s; %d of %d prompt tokens from the cache", len(a.tokens), s.DecodeTPS, a.cached, a.prompt)
	if a.forgotten > 0 {
		text += fmt.Sprintf("; the oldest %d messages were dropped", a.forgotten)
	}
	return text
}

// templateFlags are the flags about chat templates.
type templateFlags struct{ file, think, tools string }

func (f *templateFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.file, "template", "", "chat template: a file, or one of "+strings.Join(chat.Builtins(), ", ")+" (default: the model's own)")
	addToolsFlag(flags, &f.tools)
	flags.StringVar(&f.think, "think", "", "the template's switch for thinking: on or off (default: the template's)")
}

// Values of --tools.
const (
	toolsTemplate = "template"
	toolsPrompt   = "prompt"
)

func addToolsFlag(flags *pflag.FlagSet, to *string) {
	flags.StringVar(to, "tools", toolsTemplate, "for tools that the chat template has no place for: template refuses them, prompt writes them into the system text")
}

func checkTools(value string) error {
	if value != toolsTemplate && value != toolsPrompt {
		return usagef("--tools %s: want %s or %s", value, toolsTemplate, toolsPrompt)
	}
	return nil
}

func (f *templateFlags) check() error {
	if err := checkTools(f.tools); err != nil {
		return err
	}
	if f.think != "" && f.think != "on" && f.think != "off" {
		return usagef("--think %s: want on or off", f.think)
	}
	return nil
}

// variables returns the template variables that switch thinking.
func (f *templateFlags) variables() map[string]json.RawMessage {
	if f.think == "" {
		return nil
	}
	value := json.RawMessage(strconv.FormatBool(f.think == "on"))
	return map[string]json.RawMessage{"enable_thinking": value, "thinking": value}
}

// of returns the templates for conversations without and with tools, from --template or the
// model.
func (f *templateFlags) of(m *smelt.Model) (plain, tools *chat.Template, err error) {
	if f.file == "" {
		if plain, err = m.ChatTemplate(false); err == nil {
			tools, err = m.ChatTemplate(true)
		}
		if errors.Is(err, chat.ErrNoTemplate) {
			err = fmt.Errorf("%w; --template sets one, by file or by one of these names", err)
		}
		return plain, tools, err
	}
	t, err := m.Tokenizer()
	if err != nil {
		return nil, nil, err
	}
	source, ok := chat.Builtin(f.file)
	if !ok {
		raw, err := readNamed(f.file, maxRules)
		if err != nil {
			return nil, nil, fmt.Errorf("--template: %w", err)
		}
		source = string(raw)
	}
	if plain, err = chat.NewTemplate(source, t); err != nil {
		return nil, nil, fmt.Errorf("--template %s: %w", f.file, err)
	}
	return plain, plain, nil
}

// asker returns an asker with the templates of the flags; it writes notes for the user to notes.
func (f *templateFlags) asker(m *smelt.Model, notes io.Writer) (*asker, error) {
	plain, tools, err := f.of(m)
	if err != nil {
		return nil, err
	}
	return &asker{plain: plain, tools: tools, toolsInPrompt: f.tools == toolsPrompt, variables: f.variables(), notes: notes}, nil
}
