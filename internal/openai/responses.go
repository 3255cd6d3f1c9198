package openai

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/smelt-ml/smelt/chat"
)

// responses serves POST /v1/responses, without storing them:
// https://platform.openai.com/docs/api-reference/responses.
func (a *API) responses(w http.ResponseWriter, r *http.Request) error {
	p, m, err := a.begin(r, true)
	if err != nil {
		return err
	}
	q := &question{model: m, answers: 1}
	f := &responseForm{model: m}
	c := conversation{q: q, bounded: true}
	f.said.Parallel = true
	p.read("instructions", &f.said.Instructions)
	p.read("parallel_tool_calls", &f.said.Parallel)
	c.OneCall, q.single = !f.said.Parallel, !f.said.Parallel
	if f.said.Instructions != nil {
		c.Messages = append(c.Messages, chat.Message{Role: "system", Content: *f.said.Instructions})
	}
	c.input(p)
	c.flatTools(p, &f.said)
	var reasoning struct {
		Effort   *string `json:"effort"`
		Summary  *string `json:"summary"`
		Generate *string `json:"generate_summary"`
	}
	if p.read("reasoning", &reasoning); reasoning.Effort != nil {
		c.effort(p, "reasoning.effort", *reasoning.Effort)
	}
	f.said.Reasoning.Effort = reasoning.Effort
	q.sampling(p)
	f.said.Temperature, f.said.TopP = q.generation.Sampling.Temperature, 1
	if top := q.generation.Sampling.TopP; top == leastTopP {
		f.said.TopP = 0
	} else if top > 0 {
		f.said.TopP = top
	}
	if p.set("max_output_tokens", Length, &q.generation) {
		most := max(q.generation.N, 0)
		f.said.MaxOutput = &most
	}
	var text struct {
		Format struct {
			Type        string          `json:"type"`
			Name        string          `json:"name"`
			Description string          `json:"description"`
			Schema      json.RawMessage `json:"schema"`
			Strict      *bool           `json:"strict"`
		} `json:"format"`
		Verbosity *string `json:"verbosity"`
	}
	p.read("text", &text)
	if text.Verbosity != nil && *text.Verbosity != "medium" {
		p.fail(refused("text.verbosity", "no model has this setting"))
	}
	var streamed bool
	p.read("stream", &streamed)
	p.ignore("stream_options")
	p.only("store", "nothing is kept here", `false`)
	p.only("background", "answers are not kept for later", `false`)
	p.only("previous_response_id", "nothing is kept here: send the conversation as input")
	p.only("conversation", "nothing is kept here: send the conversation as input")
	p.only("truncation", "no turns are left out", `"disabled"`)
	p.only("include", "nothing further is said of an answer", `[]`)
	p.only("top_logprobs", "likelihoods are part of chat completions", `0`)
	p.only("max_tool_calls", "tools are called by the client")
	if err := p.done(); err != nil {
		return err
	}
	if err := c.format("text.format", text.Format.Type, text.Format.Schema); err != nil {
		return err
	}
	f.said.Text.Format = map[string]any{"type": "text"}
	if text.Format.Type != "" {
		f.said.Text.Format["type"] = text.Format.Type
		if text.Format.Schema != nil {
			f.said.Text.Format["name"], f.said.Text.Format["schema"], f.said.Text.Format["strict"] = text.Format.Name, text.Format.Schema, true
		}
	}
	if err := c.render(r.Context()); err != nil {
		return err
	}
	f.said.ID, f.said.Object, f.said.Created, f.said.Model = newID("resp_"), "response", time.Now().Unix(), m.ID
	f.said.Truncation, f.said.Metadata, f.said.Output = "disabled", map[string]string{}, []*item{}
	return a.answer(w, r, q, streamed, f)
}

// input reads a text, or a list of messages, calls and results.
func (c *conversation) input(p *params) {
	raw, ok := p.take("input")
	if !ok {
		p.fail(invalid("input", "input is missing"))
		return
	}
	var text string
	if raw[0] == '"' && json.Unmarshal(raw, &text) == nil {
		c.Messages = append(c.Messages, chat.Message{Role: "user", Content: text})
		return
	}
	var list []struct {
		Type      string          `json:"type"`
		Role      string          `json:"role"`
		Content   json.RawMessage `json:"content"`
		CallID    string          `json:"call_id"`
		Name      string          `json:"name"`
		Arguments string          `json:"arguments"`
		Output    json.RawMessage `json:"output"`
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		p.fail(invalid("input", "input: %s", explained(err)))
		return
	}
	names := map[string]string{}
	thought := ""
	for i, one := range list {
		switch one.Type {
		case "", "message":
			said, ok := parts(one.Content, "text", "input_text", "output_text")
			if !ok || one.Role == "" {
				p.fail(invalid("input", "item %d of input: want a role, and content that is text", i))
				return
			}
			c.Messages = append(c.Messages, chat.Message{Role: one.Role, Content: said, Reasoning: thought})
			thought = ""
		case "function_call":
			call := chat.ToolCall{ID: one.CallID, Name: one.Name, Arguments: one.Arguments}
			names[one.CallID] = one.Name
			if n := len(c.Messages); n > 0 && c.Messages[n-1].Role == "assistant" { // the calls of one turn belong to one message
				c.Messages[n-1].ToolCalls = append(c.Messages[n-1].ToolCalls, call)
			} else {
				c.Messages = append(c.Messages, chat.Message{Role: "assistant", Reasoning: thought, ToolCalls: []chat.ToolCall{call}})
				thought = ""
			}
		case "function_call_output":
			said, ok := parts(one.Output, "text", "input_text", "output_text")
			if !ok {
				p.fail(invalid("input", "item %d of input: want output that is text", i))
				return
			}
			c.Messages = append(c.Messages, chat.Message{Role: "tool", Content: said, ToolCallID: one.CallID, Name: names[one.CallID]})
		case "reasoning": // of the message or call behind it
			said, ok := parts(one.Content, "reasoning_text")
			if !ok {
				p.fail(invalid("input", "item %d of input: want reasoning_text", i))
				return
			}
			thought += said
		default:
			p.fail(invalid("input", "item %d of input has the type %q: want message, function_call or function_call_output", i, one.Type))
			return
		}
	}
}

// parts joins a text, which can be a list of parts of the given types.
func parts(raw json.RawMessage, types ...string) (string, bool) {
	if len(raw) == 0 || string(raw) == "null" {
		return "", true
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text, true
	}
	var list []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if json.Unmarshal(raw, &list) != nil {
		return "", false
	}
	var b strings.Builder
	for _, one := range list {
		known := false
		for _, t := range types {
			known = known || one.Type == t
		}
		if !known {
			return "", false
		}
		b.WriteString(one.Text)
	}
	return b.String(), true
}

// flatTools reads tool declarations whose members stand beside their type, as in this protocol.
func (c *conversation) flatTools(p *params, said *response) {
	said.Tools, said.Choice = []json.RawMessage{}, "auto"
	p.read("tools", &said.Tools)
	p.read("tool_choice", &said.Choice)
	for i, raw := range said.Tools {
		var t struct {
			Type string `json:"type"`
			Name string `json:"name"`
		}
		if json.Unmarshal(raw, &t) != nil || t.Type != "function" || t.Name == "" {
			p.fail(invalid("tools", "tool %d has the type %q and the name %q: want function, and a name", i, t.Type, t.Name))
			return
		}
		var members map[string]json.RawMessage
		_ = json.Unmarshal(raw, &members) // was already parsed as JSON
		delete(members, "type")
		function, err := encode(members)
		if err != nil {
			p.fail(invalid("tools", "tool %d: %v", i, err))
			return
		}
		c.Tools = append(c.Tools, json.RawMessage(`{"type":"function","function":`+string(function)+`}`))
	}
	switch choice := said.Choice.(type) {
	case string:
		c.ToolChoice = chat.ToolChoice{None: choice == "none", Required: choice == "required"}
		if choice != "auto" && choice != "none" && choice != "required" {
			p.fail(invalid("tool_choice", "tool_choice is %q: want none, auto, required or a function", choice))
		}
	case map[string]any:
		c.ToolChoice.Name, _ = choice["name"].(string)
		if choice["type"] != "function" || c.ToolChoice.Name == "" {
			p.fail(refused("tool_choice", `want none, auto, required or {"type": "function", "name": …}`))
		}
	}
}

// response is the response object.
type response struct {
	ID           string            `json:"id"`
	Object       string            `json:"object"`
	Created      int64             `json:"created_at"`
	Status       string            `json:"status"`
	Error        *responseError    `json:"error"`
	Incomplete   *incomplete       `json:"incomplete_details"`
	Instructions *string           `json:"instructions"`
	MaxOutput    *int              `json:"max_output_tokens"`
	Model        string            `json:"model"`
	Output       []*item           `json:"output"`
	Parallel     bool              `json:"parallel_tool_calls"`
	Previous     *string           `json:"previous_response_id"`
	Reasoning    reasoning         `json:"reasoning"`
	Store        bool              `json:"store"`
	Temperature  float64           `json:"temperature"`
	Text         responseText      `json:"text"`
	Choice       any               `json:"tool_choice"`
	Tools        []json.RawMessage `json:"tools"`
	TopP         float64           `json:"top_p"`
	Truncation   string            `json:"truncation"`
	Usage        *responseUsage    `json:"usage"`
	User         *string           `json:"user"`
	Metadata     map[string]string `json:"metadata"`
}

type responseText struct {
	Format map[string]any `json:"format"`
}

type reasoning struct {
	Effort  *string `json:"effort"`
	Summary *string `json:"summary"`
}

type incomplete struct {
	Reason string `json:"reason"`
}

type responseError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

type responseUsage struct {
	Input  int `json:"input_tokens"`
	Inputs struct {
		Cached int `json:"cached_tokens"`
	} `json:"input_tokens_details"`
	Output  int `json:"output_tokens"`
	Outputs struct {
		Reasoning int `json:"reasoning_tokens"`
	} `json:"output_tokens_details"`
	Total int `json:"total_tokens"`
}

// item is an item of a response's output: reasoning, a message or a call.
type item struct {
	ID        string    `json:"id"`
	Type      string    `json:"type"`
	Status    string    `json:"status,omitempty"`
	Role      string    `json:"role,omitempty"`
	Content   *[]part   `json:"content,omitempty"`
	Summary   *[]string `json:"summary,omitempty"` // of reasoning; always empty
	CallID    string    `json:"call_id,omitempty"`
	Name      string    `json:"name,omitempty"`
	Arguments *string   `json:"arguments,omitempty"`
}

type part struct {
	Type        string `json:"type"`
	Text        string `json:"text"`
	Annotations *[]any `json:"annotations,omitempty"`
	Logprobs    *[]any `json:"logprobs,omitempty"`
}

func newPart(kind string) part {
	if kind == "reasoning" {
		return part{Type: "reasoning_text"}
	}
	return part{Type: "output_text", Annotations: &[]any{}, Logprobs: &[]any{}}
}

// responseForm encodes an answer as a response and its stream events. Items are built as the answer
// arrives, streamed or not.
type responseForm struct {
	model  *Model
	said   response
	number int
	open   *item // the last item while it grows
}

// responseEvent is an event of a stream.
type responseEvent struct {
	Type      string    `json:"type"`
	Number    int       `json:"sequence_number"`
	Response  *response `json:"response,omitempty"`
	Output    *int      `json:"output_index,omitempty"`
	Item      *item     `json:"item,omitempty"`
	ItemID    string    `json:"item_id,omitempty"`
	Content   *int      `json:"content_index,omitempty"`
	Part      *part     `json:"part,omitempty"`
	Delta     *string   `json:"delta,omitempty"`
	Text      *string   `json:"text,omitempty"`
	Name      string    `json:"name,omitempty"`
	Arguments *string   `json:"arguments,omitempty"`
	Logprobs  *[]any    `json:"logprobs,omitempty"`
	Code      string    `json:"code,omitempty"`
	Message   string    `json:"message,omitempty"`
}

// emit sends an event if the answer is streamed.
func (f *responseForm) emit(s *stream, e responseEvent) {
	if s == nil {
		return
	}
	e.Number = f.number
	f.number++
	s.send(e.Type, e)
}

func (f *responseForm) at() *int { n := len(f.said.Output) - 1; return &n }

var first = 0

// text appends to the open item, after opening a new one if its type differs.
func (f *responseForm) text(s *stream, kind, text string) {
	if text == "" {
		return
	}
	if f.open == nil || f.open.Type != kind {
		f.close(s)
		f.open = &item{ID: newID(map[string]string{"message": "msg_", "reasoning": "rs_"}[kind]), Type: kind, Status: "in_progress", Content: &[]part{}}
		if kind == "message" {
			f.open.Role = "assistant"
		} else {
			f.open.Summary = &[]string{}
		}
		f.said.Output = append(f.said.Output, f.open)
		f.emit(s, responseEvent{Type: "response.output_item.added", Output: f.at(), Item: f.open})
		fresh := newPart(kind)
		f.emit(s, responseEvent{Type: "response.content_part.added", ItemID: f.open.ID, Output: f.at(), Content: &first, Part: &fresh})
		*f.open.Content = append(*f.open.Content, fresh)
	}
	(*f.open.Content)[0].Text += text
	e := responseEvent{Type: "response.output_text.delta", ItemID: f.open.ID, Output: f.at(), Content: &first, Delta: &text, Logprobs: &[]any{}}
	if kind == "reasoning" {
		e.Type, e.Logprobs = "response.reasoning_text.delta", nil
	}
	f.emit(s, e)
}

// close completes the open item.
func (f *responseForm) close(s *stream) {
	if f.open == nil {
		return
	}
	it, whole := f.open, (*f.open.Content)[0]
	f.open = nil
	it.Status = "completed"
	e := responseEvent{Type: "response.output_text.done", ItemID: it.ID, Output: f.at(), Content: &first, Text: &whole.Text, Logprobs: &[]any{}}
	if it.Type == "reasoning" {
		e.Type, e.Logprobs = "response.reasoning_text.done", nil
	}
	f.emit(s, e)
	f.emit(s, responseEvent{Type: "response.content_part.done", ItemID: it.ID, Output: f.at(), Content: &first, Part: &whole})
	f.emit(s, responseEvent{Type: "response.output_item.done", Output: f.at(), Item: it})
}

func (f *responseForm) call(s *stream, c chat.ToolCall) {
	f.close(s)
	none := ""
	it := &item{ID: newID("fc_"), Type: "function_call", Status: "in_progress", CallID: c.ID, Name: c.Name, Arguments: &none}
	f.said.Output = append(f.said.Output, it)
	f.emit(s, responseEvent{Type: "response.output_item.added", Output: f.at(), Item: it})
	f.emit(s, responseEvent{Type: "response.function_call_arguments.delta", ItemID: it.ID, Output: f.at(), Delta: &c.Arguments})
	f.emit(s, responseEvent{Type: "response.function_call_arguments.done", ItemID: it.ID, Output: f.at(), Name: c.Name, Arguments: &c.Arguments})
	it.Status, it.Arguments = "completed", &c.Arguments
	f.emit(s, responseEvent{Type: "response.output_item.done", Output: f.at(), Item: it})
}

func (f *responseForm) begin(s *stream) {
	f.said.Status = "in_progress"
	f.emit(s, responseEvent{Type: "response.created", Response: &f.said})
	f.emit(s, responseEvent{Type: "response.in_progress", Response: &f.said})
}

func (f *responseForm) add(s *stream, e *event) {
	f.text(s, "reasoning", e.Reasoning)
	f.text(s, "message", e.Content)
	for _, c := range e.ToolCalls {
		f.call(s, c)
	}
	if e.finish == "" {
		return
	}
	if len(f.said.Output) == 0 { // an empty answer has one message too
		f.open = &item{ID: newID("msg_"), Type: "message", Role: "assistant", Content: &[]part{newPart("message")}}
		f.said.Output = append(f.said.Output, f.open)
		f.emit(s, responseEvent{Type: "response.output_item.added", Output: f.at(), Item: f.open})
		f.emit(s, responseEvent{Type: "response.content_part.added", ItemID: f.open.ID, Output: f.at(), Content: &first, Part: &(*f.open.Content)[0]})
	}
	last := f.open
	f.close(s)
	f.said.Status = "completed"
	if e.finish == finishLength {
		f.said.Status, f.said.Incomplete = "incomplete", &incomplete{"max_output_tokens"}
		if last != nil {
			last.Status = "incomplete"
		}
	}
	u := &responseUsage{Input: e.usage.prompt, Output: e.usage.generated, Total: e.usage.prompt + e.usage.generated}
	u.Inputs.Cached, u.Outputs.Reasoning = e.usage.cached, e.usage.reasoning
	f.said.Usage = u
}

func (f *responseForm) finish(s *stream) {
	f.emit(s, responseEvent{Type: "response." + f.said.Status, Response: &f.said})
}

func (f *responseForm) whole(answers []event) any {
	f.add(nil, &answers[0])
	return &f.said
}

func (f *responseForm) ping(s *stream) { s.write(comment) }

func (f *responseForm) fail(s *stream, e *Error) {
	f.said.Status, f.said.Error = "failed", &responseError{e.Type, e.Message}
	f.emit(s, responseEvent{Type: "error", Code: e.Type, Message: e.Message})
	f.emit(s, responseEvent{Type: "response.failed", Response: &f.said})
}
