package openai

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/smelt-ml/smelt/chat"
)

// chat serves POST /v1/chat/completions: https://platform.openai.com/docs/api-reference/chat.
func (a *API) chat(w http.ResponseWriter, r *http.Request) error {
	p, m, err := a.begin(r, true)
	if err != nil {
		return err
	}
	q := &question{model: m}
	f := &chatForm{model: m, id: newID("chatcmpl-"), created: time.Now().Unix()}
	c := conversation{q: q, bounded: true}
	p.read("messages", &c.Messages)
	c.tools(p)
	c.reasoning(p)
	q.sampling(p)
	q.count(p)
	p.set("max_tokens", Length, &q.generation)
	p.set("max_completion_tokens", Length, &q.generation)
	var logprobs, streamed bool
	var top int
	p.read("logprobs", &logprobs)
	if p.whole("top_logprobs", &top, 0, 20) && !logprobs {
		p.fail(invalid("top_logprobs", "top_logprobs requires logprobs: true"))
	}
	if logprobs {
		q.generation.Logprobs, f.logprobs, f.top = max(top, 1), true, top
	}
	p.read("stream", &streamed)
	f.usage = p.streamOptions(streamed)
	var format struct {
		Type   string `json:"type"`
		Schema struct {
			Name        string          `json:"name"`
			Description string          `json:"description"`
			Schema      json.RawMessage `json:"schema"`
			Strict      *bool           `json:"strict"`
		} `json:"json_schema"`
	}
	p.read("response_format", &format)
	p.only("store", "nothing is kept here", `false`)
	p.only("modalities", "answers are text", `["text"]`)
	p.only("verbosity", "no model here has such a setting", `"medium"`)
	if err := p.done(); err != nil {
		return err
	}
	if err := c.format("response_format", format.Type, format.Schema.Schema); err != nil {
		return err
	}
	if err := c.render(r.Context()); err != nil {
		return err
	}
	return a.answer(w, r, q, streamed, f)
}

// conversation is a question whose prompt is rendered from messages.
type conversation struct {
	chat.Conversation
	q           *question
	schema      json.RawMessage // schema of the answer; nil for none
	formatParam string          // name of the parameter that has the schema
	bounded     bool            // a prompt beyond the context is an error
}

// tools reads tools, tool_choice and parallel_tool_calls.
func (c *conversation) tools(p *params) {
	p.read("tools", &c.Tools)
	p.read("tool_choice", &c.ToolChoice)
	parallel := true
	p.read("parallel_tool_calls", &parallel)
	c.OneCall, c.q.single = !parallel, !parallel
	p.only("functions", "its successor tools is honoured", `[]`)
	p.only("function_call", "its successor tool_choice is honoured", `"auto"`, `"none"`)
}

// format sets the schema that a parameter's format requires of answers.
func (c *conversation) format(param, kind string, schema json.RawMessage) error {
	c.formatParam = param
	switch kind {
	case "text", "":
	case "json_object":
		c.schema = json.RawMessage(`{"type":"object"}`)
	case "json_schema":
		if c.schema = schema; len(schema) == 0 {
			return invalid(param, "%s: a json_schema without a schema", param)
		}
	default:
		return invalid(param, "%s has the type %q: want text, json_object or json_schema", param, kind)
	}
	return nil
}

// reasoning reads the reasoning parameters and sets the template's variables.
func (c *conversation) reasoning(p *params) {
	p.read("chat_template_kwargs", &c.Variables)
	var effort string
	if p.read("reasoning_effort", &effort) {
		c.effort(p, "reasoning_effort", effort)
	}
}

func (c *conversation) effort(p *params, param, effort string) {
	if c.Variables == nil {
		c.Variables = map[string]json.RawMessage{}
	}
	switch effort {
	case "none":
		c.Variables["enable_thinking"] = json.RawMessage("false")
	case "minimal", "low", "medium", "high", "xhigh":
		c.Variables["enable_thinking"] = json.RawMessage("true")
		c.Variables["reasoning_effort"] = json.RawMessage(`"` + effort + `"`)
	default:
		p.fail(invalid(param, "%s is %q: want none, minimal, low, medium, high or xhigh", param, effort))
	}
}

// render renders the conversation to the prompt and compiles its constraint.
func (c *conversation) render(ctx context.Context) error {
	if len(c.Messages) == 0 {
		return invalid("messages", "messages is missing or empty")
	}
	t, err := c.q.model.template(len(c.Tools) > 0)
	if err != nil {
		return err
	}
	c.Answer, c.ToolsInPrompt = true, c.q.model.ToolsInPrompt
	rendered, err := t.RenderContext(ctx, c.Conversation)
	if errors.Is(err, chat.ErrNoPlace) {
		if len(c.Tools) > 0 {
			return invalid("tools", "%v; a server with --tools prompt writes it into the system text", err)
		}
		return invalid("messages", "%v", err)
	}
	if err != nil {
		e := errorOf(err)
		if e.Status >= http.StatusInternalServerError { // the template raised an exception
			e = invalid("messages", "%v", err)
		}
		return e
	}
	if c.bounded {
		if err := c.q.model.Engine.Fits(rendered.String()); err != nil {
			return err
		}
	}
	parser := func() *chat.Parser { return t.NewParser(c.Conversation, rendered) }
	v, err := c.q.model.Engine.Loaded().Vocabulary()
	if err != nil {
		return err
	}
	switch c.q.generation.Constraint, err = t.Constraint(ctx, v, c.Conversation, rendered, c.schema); {
	case errors.Is(err, chat.ErrNotKept): // no constraint: the request allows that
	case err != nil && c.schema != nil:
		return invalid(c.formatParam, "%s: %v", c.formatParam, err)
	case err != nil:
		return invalid("tools", "tools: %v", err)
	}
	c.q.prompts = []prompt{{tokens: rendered.Tokens(), parser: parser}}
	return nil
}

// chatForm encodes answers as chat completions.
type chatForm struct {
	model    *Model
	id       string
	created  int64
	logprobs bool
	top      int
	usage    bool // at the end of a stream
	spent    map[int]usage
	spoken   map[int]int // tool calls of each answer
}

type chatMessage struct {
	Role      string     `json:"role"`
	Content   *string    `json:"content"`
	Refusal   *string    `json:"refusal"`
	Reasoning string     `json:"reasoning_content,omitempty"`
	ToolCalls []chatCall `json:"tool_calls,omitempty"`
}

type chatDelta struct {
	Role      string     `json:"role,omitempty"`
	Content   *string    `json:"content,omitempty"`
	Refusal   *nothing   `json:"refusal,omitempty"`
	Reasoning string     `json:"reasoning_content,omitempty"`
	ToolCalls []chatCall `json:"tool_calls,omitempty"`
}

// nothing is a member whose value is null.
type nothing struct{}

func (nothing) MarshalJSON() ([]byte, error) { return []byte("null"), nil }

type chatCall struct {
	Index    *int   `json:"index,omitempty"` // only in a stream
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

type chatChoice struct {
	Index    int           `json:"index"`
	Message  *chatMessage  `json:"message,omitempty"`
	Delta    *chatDelta    `json:"delta,omitempty"`
	Logprobs *chatLogprobs `json:"logprobs"`
	Finish   *string       `json:"finish_reason"`
}

type chatCompletion struct {
	ID          string       `json:"id"`
	Object      string       `json:"object"`
	Created     int64        `json:"created"`
	Model       string       `json:"model"`
	Tier        string       `json:"service_tier,omitempty"`
	Fingerprint string       `json:"system_fingerprint"`
	Choices     []chatChoice `json:"choices"`
	Usage       *chatUsage   `json:"usage,omitempty"`
}

type chatLogprobs struct {
	Content []chatLogprob `json:"content"`
	Refusal *nothing      `json:"refusal"`
}

type chatLogprob struct {
	tokenLogprob
	Top []tokenLogprob `json:"top_logprobs"`
}

type tokenLogprob struct {
	Token   string  `json:"token"`
	Logprob float32 `json:"logprob"`
	Bytes   []int   `json:"bytes"`
}

type chatUsage struct {
	Prompt  int `json:"prompt_tokens"`
	Answer  int `json:"completion_tokens"`
	Total   int `json:"total_tokens"`
	Prompts struct {
		Cached int `json:"cached_tokens"`
		Audio  int `json:"audio_tokens"`
	} `json:"prompt_tokens_details"`
	Answers struct {
		Reasoning int `json:"reasoning_tokens"`
		Audio     int `json:"audio_tokens"`
		Accepted  int `json:"accepted_prediction_tokens"`
		Rejected  int `json:"rejected_prediction_tokens"`
	} `json:"completion_tokens_details"`
}

// usageOf sums the usage of the answers to one prompt, and counts the prompt once.
func usageOf(answers []usage) *chatUsage {
	u := &chatUsage{}
	for i, a := range answers {
		if i == 0 {
			u.Prompt, u.Prompts.Cached = a.prompt, a.cached
		}
		u.Prompts.Cached = min(u.Prompts.Cached, a.cached) // the first answer computed the prompt
		u.Answer += a.generated
		u.Answers.Reasoning += a.reasoning
	}
	u.Total = u.Prompt + u.Answer
	return u
}

func (m *Model) logprob(id int32, logprob float32) tokenLogprob {
	text := m.bytesOf(id)
	t := tokenLogprob{Token: shown(text), Logprob: logprob, Bytes: make([]int, len(text))}
	for i, b := range text {
		t.Bytes[i] = int(b)
	}
	return t
}

func (f *chatForm) scores(tokens []scored) *chatLogprobs {
	if !f.logprobs {
		return nil
	}
	l := &chatLogprobs{Content: []chatLogprob{}}
	for _, t := range tokens {
		one := chatLogprob{f.model.logprob(t.ID, t.Logprob), []tokenLogprob{}}
		for _, a := range t.Top[:min(f.top, len(t.Top))] {
			one.Top = append(one.Top, f.model.logprob(a.ID, a.Logprob))
		}
		l.Content = append(l.Content, one)
	}
	return l
}

func callOf(c chat.ToolCall) (out chatCall) {
	out.ID, out.Type = c.ID, "function"
	out.Function.Name, out.Function.Arguments = c.Name, c.Arguments
	return out
}

func (f *chatForm) completion(object string, choices ...chatChoice) chatCompletion {
	return chatCompletion{ID: f.id, Object: object, Created: f.created, Model: f.model.ID, Fingerprint: f.model.fingerprint, Choices: choices}
}

func (f *chatForm) whole(answers []event) any {
	c := f.completion("chat.completion")
	spent := []usage{}
	for i := range answers {
		e := &answers[i]
		message := &chatMessage{Role: "assistant", Content: &e.Content, Reasoning: e.Reasoning}
		for _, call := range e.ToolCalls {
			message.ToolCalls = append(message.ToolCalls, callOf(call))
		}
		if e.Content == "" && len(e.ToolCalls) > 0 {
			message.Content = nil
		}
		c.Choices = append(c.Choices, chatChoice{Index: e.index, Message: message, Logprobs: f.scores(e.tokens), Finish: &e.finish})
		spent = append(spent, e.usage)
	}
	c.Usage = usageOf(spent)
	return c
}

const chunk = "chat.completion.chunk"

func (f *chatForm) begin(s *stream) {
	f.spent, f.spoken = map[int]usage{}, map[int]int{}
}

// add sends a chunk for an event: the first of an answer has the role, the last only the
// finish_reason.
func (f *chatForm) add(s *stream, e *event) {
	if _, begun := f.spoken[e.index]; !begun {
		f.spoken[e.index] = 0
		none := ""
		s.send("", f.completion(chunk, chatChoice{Index: e.index, Delta: &chatDelta{Role: "assistant", Content: &none, Refusal: &nothing{}}}))
	}
	if !e.empty() {
		d := &chatDelta{Reasoning: e.Reasoning}
		if e.Content != "" {
			d.Content = &e.Content
		}
		for _, call := range e.ToolCalls {
			c, at := callOf(call), f.spoken[e.index]
			c.Index = &at
			f.spoken[e.index]++
			d.ToolCalls = append(d.ToolCalls, c)
		}
		s.send("", f.completion(chunk, chatChoice{Index: e.index, Delta: d, Logprobs: f.scores(e.tokens)}))
	}
	if e.finish != "" {
		f.spent[e.index] = e.usage
		s.send("", f.completion(chunk, chatChoice{Index: e.index, Delta: &chatDelta{}, Finish: &e.finish}))
	}
}

// comment is a line of an event stream that clients ignore.
var comment = []byte(": ping\n\n")

func (f *chatForm) ping(s *stream) { s.write(comment) }

func (f *chatForm) finish(s *stream) {
	if f.usage {
		last := f.completion(chunk)
		last.Choices = []chatChoice{}
		spent := []usage{}
		for i := range len(f.spent) {
			spent = append(spent, f.spent[i])
		}
		last.Usage = usageOf(spent)
		s.send("", last)
	}
	s.write(doneMark)
}

var doneMark = []byte("data: [DONE]\n\n")

func (f *chatForm) fail(s *stream, e *Error) { sendError(s, e) }

func sendError(s *stream, e *Error) {
	s.send("", struct {
		Error *Error `json:"error"`
	}{e})
}
