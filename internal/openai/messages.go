package openai

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/smelt-ml/smelt/chat"
)

// messages serves POST /v1/messages: https://docs.anthropic.com/en/api/messages.
func (a *API) messages(w http.ResponseWriter, r *http.Request) error {
	p, m, err := a.begin(r, true)
	if err != nil {
		return err
	}
	q := &question{model: m, answers: 1}
	f := &messageForm{model: m, id: newID("msg_")}
	if !p.set("max_tokens", Length, &q.generation) {
		p.fail(invalid("max_tokens", "max_tokens is missing"))
	}
	c := conversation{q: q, bounded: true}
	c.blocks(p)
	var by struct {
		User string `json:"user_id"`
	}
	p.read("metadata", &by)
	if stops, ok := p.take("stop_sequences"); ok {
		p.members["stop"] = stops
	}
	q.sampling(p)
	if m.SaltByUser {
		q.salt = by.User
	}
	var streamed bool
	p.read("stream", &streamed)
	if err := p.done(); err != nil {
		return err
	}
	if err := c.render(r.Context()); err != nil {
		return err
	}
	f.prompt = len(q.prompts[0].tokens)
	return a.answer(w, r, q, streamed, f)
}

// countTokens serves POST /v1/messages/count_tokens: the number of tokens of the rendered prompt.
func (a *API) countTokens(w http.ResponseWriter, r *http.Request) error {
	p, m, err := a.begin(r, true)
	if err != nil {
		return err
	}
	c := conversation{q: &question{model: m}}
	c.blocks(p)
	if err := p.done(); err != nil {
		return err
	}
	if err := c.render(r.Context()); err != nil {
		return err
	}
	reply(w, http.StatusOK, map[string]int{"input_tokens": len(c.q.prompts[0].tokens)})
	return nil
}

// block is a content block of this protocol.
type block struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	Thinking  string          `json:"thinking"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	ToolUseID string          `json:"tool_use_id"`
	Content   json.RawMessage `json:"content"`
}

// blocks reads system, messages, tools and thinking.
func (c *conversation) blocks(p *params) {
	if raw, ok := p.take("system"); ok {
		text, ok := parts(raw, "text")
		if !ok {
			p.fail(invalid("system", "system: want a string, or text blocks"))
			return
		}
		c.Messages = append(c.Messages, chat.Message{Role: "system", Content: text})
	}
	var list []struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
	}
	p.read("messages", &list)
	names := map[string]string{}
	for i, one := range list {
		if one.Role != "user" && one.Role != "assistant" {
			p.fail(invalid("messages", "message %d has the role %q: want user or assistant", i, one.Role))
			return
		}
		var text string
		if json.Unmarshal(one.Content, &text) == nil {
			c.Messages = append(c.Messages, chat.Message{Role: one.Role, Content: text})
			continue
		}
		var said []block
		if err := json.Unmarshal(one.Content, &said); err != nil {
			p.fail(invalid("messages", "message %d: want a string, or content blocks", i))
			return
		}
		message := chat.Message{Role: one.Role}
		spoken := false
		for _, b := range said {
			switch b.Type {
			case "text":
				message.Content += b.Text
				spoken = true
			case "thinking":
				message.Reasoning += b.Thinking
				spoken = true
			case "redacted_thinking":
			case "tool_use":
				names[b.ID] = b.Name
				message.ToolCalls = append(message.ToolCalls, chat.ToolCall{ID: b.ID, Name: b.Name, Arguments: string(b.Input)})
				spoken = true
			case "tool_result": // templates take a result as a message
				result, ok := parts(b.Content, "text")
				if !ok {
					p.fail(invalid("messages", "message %d: want a tool_result of text", i))
					return
				}
				c.Messages = append(c.Messages, chat.Message{Role: "tool", Content: result, ToolCallID: b.ToolUseID, Name: names[b.ToolUseID]})
			default:
				p.fail(invalid("messages", "message %d has a block of type %q: want text, tool_use or tool_result", i, b.Type))
				return
			}
		}
		if spoken {
			c.Messages = append(c.Messages, message)
		}
	}
	c.anthropicTools(p)
	var thinking struct {
		Type   string `json:"type"`
		Budget int    `json:"budget_tokens"` // not enforced, therefore refused
	}
	if p.read("thinking", &thinking) {
		switch {
		case thinking.Budget != 0:
			p.fail(refused("thinking.budget_tokens", "a budget for thinking is not supported"))
		case thinking.Type == "disabled":
			c.effort(p, "thinking", "none")
		case thinking.Type == "enabled", thinking.Type == "adaptive":
			c.effort(p, "thinking", "medium")
		default:
			p.fail(invalid("thinking", "thinking has the type %q: want enabled, adaptive or disabled", thinking.Type))
		}
	}
}

func (c *conversation) anthropicTools(p *params) {
	var tools []struct {
		Type        string          `json:"type"`
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Schema      json.RawMessage `json:"input_schema"`
		Cache       json.RawMessage `json:"cache_control"`
	}
	p.read("tools", &tools)
	for i, t := range tools {
		if t.Type != "" && t.Type != "custom" || t.Name == "" {
			p.fail(invalid("tools", "tool %d has the type %q and the name %q: want custom, and a name", i, t.Type, t.Name))
			return
		}
		if len(t.Schema) == 0 {
			t.Schema = json.RawMessage(`{"type":"object"}`)
		}
		function := map[string]any{"name": t.Name, "parameters": t.Schema}
		if t.Description != "" {
			function["description"] = t.Description
		}
		raw, err := encode(map[string]any{"type": "function", "function": function})
		if err != nil {
			p.fail(invalid("tools", "tool %d: %v", i, err))
			return
		}
		c.Tools = append(c.Tools, raw)
	}
	var choice struct {
		Type   string `json:"type"`
		Name   string `json:"name"`
		Single bool   `json:"disable_parallel_tool_use"`
	}
	p.read("tool_choice", &choice)
	c.OneCall, c.q.single = choice.Single, choice.Single
	switch choice.Type {
	case "", "auto":
	case "none":
		c.ToolChoice.None = true
	case "any":
		c.ToolChoice.Required = true
	case "tool":
		c.ToolChoice.Name = choice.Name
	default:
		p.fail(invalid("tool_choice", "tool_choice has the type %q: want auto, any, tool or none", choice.Type))
	}
}

// messageForm encodes an answer as a message and its stream events.
type messageForm struct {
	model  *Model
	id     string
	prompt int

	kind string // type of the open block
	at   int    // index of the open block
	end  event
}

type messageUsage struct {
	Input   int `json:"input_tokens"`
	Created int `json:"cache_creation_input_tokens"`
	Cached  int `json:"cache_read_input_tokens"`
	Output  int `json:"output_tokens"`
}

// used returns the usage with cached tokens counted separately, as this protocol does.
func (u usage) used() messageUsage {
	return messageUsage{Input: u.prompt - u.cached, Cached: u.cached, Output: u.generated}
}

type said struct {
	ID       string       `json:"id"`
	Type     string       `json:"type"`
	Role     string       `json:"role"`
	Model    string       `json:"model"`
	Content  []any        `json:"content"`
	Reason   *string      `json:"stop_reason"`
	Sequence *string      `json:"stop_sequence"`
	Usage    messageUsage `json:"usage"`
}

func (f *messageForm) message() *said {
	return &said{ID: f.id, Type: "message", Role: "assistant", Model: f.model.ID, Content: []any{}}
}

// reason returns the stop_reason of an answer.
func (e *event) reason() *string {
	reason := map[string]string{finishStop: "end_turn", finishLength: "max_tokens", finishTools: "tool_use"}[e.finish]
	if e.stop != "" && e.finish == finishStop {
		reason = "stop_sequence"
	}
	return &reason
}

func used(c chat.ToolCall) map[string]any {
	input := json.RawMessage(c.Arguments)
	if !json.Valid(input) || !strings.HasPrefix(strings.TrimSpace(c.Arguments), "{") {
		input, _ = encode(map[string]string{"text": c.Arguments}) // a string always marshals
	}
	return map[string]any{"type": "tool_use", "id": c.ID, "name": c.Name, "input": input}
}

func (f *messageForm) whole(answers []event) any {
	e := &answers[0]
	m := f.message()
	if e.Reasoning != "" {
		m.Content = append(m.Content, map[string]string{"type": "thinking", "thinking": e.Reasoning, "signature": ""})
	}
	if e.Content != "" {
		m.Content = append(m.Content, map[string]string{"type": "text", "text": e.Content})
	}
	for _, c := range e.ToolCalls {
		m.Content = append(m.Content, used(c))
	}
	m.Reason, m.Sequence, m.Usage = e.reason(), orNull(e.stop), e.usage.used()
	return m
}

func (f *messageForm) emit(s *stream, kind string, more map[string]any) {
	v := map[string]any{"type": kind}
	for name, value := range more {
		v[name] = value
	}
	s.send(kind, v)
}

func (f *messageForm) begin(s *stream) {
	m := f.message()
	m.Usage = messageUsage{Input: f.prompt}
	f.emit(s, "message_start", map[string]any{"message": m})
}

// text appends to the open block, after opening a new one if its type differs.
func (f *messageForm) text(s *stream, kind, member, text string) {
	if text == "" {
		return
	}
	if f.kind != kind {
		f.close(s)
		f.kind = kind
		fresh := map[string]string{"type": kind, member: ""}
		if kind == "thinking" {
			fresh["signature"] = ""
		}
		f.emit(s, "content_block_start", map[string]any{"index": f.at, "content_block": fresh})
	}
	f.emit(s, "content_block_delta", map[string]any{"index": f.at, "delta": map[string]string{"type": kind + "_delta", member: text}})
}

func (f *messageForm) close(s *stream) {
	if f.kind == "" {
		return
	}
	f.emit(s, "content_block_stop", map[string]any{"index": f.at})
	f.kind = ""
	f.at++
}

func (f *messageForm) add(s *stream, e *event) {
	f.text(s, "thinking", "thinking", e.Reasoning)
	f.text(s, "text", "text", e.Content)
	for _, c := range e.ToolCalls {
		f.close(s)
		call := used(c)
		input := string(call["input"].(json.RawMessage))
		call["input"] = map[string]any{}
		f.kind = "tool_use"
		f.emit(s, "content_block_start", map[string]any{"index": f.at, "content_block": call})
		f.emit(s, "content_block_delta", map[string]any{"index": f.at, "delta": map[string]string{"type": "input_json_delta", "partial_json": input}})
		f.close(s)
	}
	if e.finish != "" {
		f.end = *e
	}
}

func (f *messageForm) finish(s *stream) {
	f.close(s)
	f.emit(s, "message_delta", map[string]any{"delta": map[string]any{"stop_reason": f.end.reason(), "stop_sequence": orNull(f.end.stop)}, "usage": f.end.usage.used()})
	f.emit(s, "message_stop", nil)
}

func (f *messageForm) ping(s *stream) { f.emit(s, "ping", nil) }

func (f *messageForm) fail(s *stream, e *Error) { s.send("error", anthropicError(e)) }

// anthropicTypes maps status codes to this protocol's error types.
var anthropicTypes = map[int]string{
	http.StatusUnauthorized: "authentication_error", http.StatusNotFound: "not_found_error", http.StatusRequestEntityTooLarge: "request_too_large",
	http.StatusTooManyRequests: "rate_limit_error", http.StatusInternalServerError: "api_error", http.StatusServiceUnavailable: "overloaded_error",
	http.StatusGatewayTimeout: "timeout_error",
}

func anthropicError(e *Error) any {
	kind, ok := anthropicTypes[e.Status]
	if !ok {
		kind = "invalid_request_error"
	}
	return map[string]any{"type": "error", "error": map[string]string{"type": kind, "message": e.Message}}
}
