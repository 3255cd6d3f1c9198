package chat

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Roles are the roles that templates know. Any other role is passed to the template as foreign
// text.
var Roles = []string{"system", "developer", "user", "assistant", "tool", "function", "ipython", "environment", "model"}

// Message is one message of a conversation, in the form of OpenAI's API.
type Message struct {
	Role    string
	Content string // text parts are concatenated
	// Reasoning is the text of the model's reasoning before the answer.
	Reasoning  string
	ToolCalls  []ToolCall
	ToolCallID string // the call that a tool's message answers
	Name       string // the tool that answers, or the speaker
}

// ToolCall is a model's call of a tool.
type ToolCall struct {
	ID   string
	Name string
	// Arguments is JSON: an object, unless the model wrote something else.
	Arguments string
}

// Conversation is the input of Template.Render.
type Conversation struct {
	Messages []Message
	// Tools are declarations, each a JSON object with type and function.
	Tools []json.RawMessage
	// ToolChoice selects whether the answer calls tools; OneCall limits it to one call.
	ToolChoice ToolChoice
	OneCall    bool
	// Documents are JSON objects, which the template shows to the model as sources.
	Documents []json.RawMessage
	// ToolsInPrompt writes tools, calls and results that the template has no place for into the
	// system text and the messages. Without it Render fails with ErrNoPlace.
	ToolsInPrompt bool
	// Variables are further variables of the template, such as enable_thinking.
	Variables map[string]json.RawMessage
	// Answer ends the prompt with the beginning of an assistant's message.
	Answer bool
}

type messageJSON struct {
	Role             string          `json:"role"`
	Content          json.RawMessage `json:"content"`
	Reasoning        string          `json:"reasoning,omitempty"`
	ReasoningContent string          `json:"reasoning_content,omitempty"`
	ToolCalls        []ToolCall      `json:"tool_calls,omitempty"`
	ToolCallID       string          `json:"tool_call_id,omitempty"`
	Name             string          `json:"name,omitempty"`
	Refusal          string          `json:"refusal,omitempty"` // stands in for the content
	answered
}

// answered holds members of an answer that clients send back with a message, and that add nothing
// to it.
type answered struct {
	Annotations  []json.RawMessage `json:"annotations,omitempty"`
	Audio        *struct{}         `json:"audio,omitempty"`         // always null
	FunctionCall *struct{}         `json:"function_call,omitempty"` // always null
	Parsed       json.RawMessage   `json:"parsed,omitempty"`
}

// ErrContent is wrapped where a message has content other than text.
var ErrContent = errors.New("want text")

// strict decodes JSON and fails on unknown members.
func strict(raw []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	return d.Decode(v)
}

// UnmarshalJSON reads a message whose content is a string, a list of text parts, or null. Unknown
// members are errors.
func (m *Message) UnmarshalJSON(raw []byte) error {
	var j messageJSON
	if err := strict(raw, &j); err != nil {
		return err
	}
	if j.Role == "" {
		return errors.New("message without a role")
	}
	content, err := contentOf(j.Content)
	if err != nil {
		return err
	}
	if j.Reasoning == "" {
		j.Reasoning = j.ReasoningContent
	}
	if content == "" {
		content = j.Refusal
	}
	*m = Message{j.Role, content, j.Reasoning, j.ToolCalls, j.ToolCallID, j.Name}
	return nil
}

func contentOf(raw json.RawMessage) (string, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return "", nil
	}
	if raw[0] == '"' {
		var text string
		err := json.Unmarshal(raw, &text)
		return text, err
	}
	var parts []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if err := json.Unmarshal(raw, &parts); err != nil {
		return "", fmt.Errorf("content: %w", err)
	}
	var b strings.Builder
	for _, p := range parts {
		if p.Type != "text" {
			return "", fmt.Errorf("%w: content of type %q", ErrContent, p.Type)
		}
		b.WriteString(p.Text)
	}
	return b.String(), nil
}

// MarshalJSON writes role and content, and the other members that are not empty.
func (m Message) MarshalJSON() ([]byte, error) {
	content, err := marshal(m.Content)
	if err != nil {
		return nil, err
	}
	return marshal(messageJSON{Role: m.Role, Content: content, Reasoning: m.Reasoning, ToolCalls: m.ToolCalls, ToolCallID: m.ToolCallID, Name: m.Name})
}

// marshal encodes v as JSON without escaping <, > and &.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

type callJSON struct {
	ID       string       `json:"id,omitempty"`
	Type     string       `json:"type"`
	Index    *int         `json:"index,omitempty"` // position of the call in a stream
	Function functionJSON `json:"function"`
}

type functionJSON struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
	Parsed    json.RawMessage `json:"parsed_arguments,omitempty"` // sent back by clients, adds nothing
}

// UnmarshalJSON reads a call whose arguments are JSON or, as in OpenAI's API, a string that holds
// JSON.
func (c *ToolCall) UnmarshalJSON(raw []byte) error {
	var j callJSON
	if err := strict(raw, &j); err != nil {
		return err
	}
	if j.Type != "" && j.Type != "function" {
		return fmt.Errorf("tool call of type %q: want function", j.Type)
	}
	if j.Function.Name == "" {
		return errors.New("tool call without function.name")
	}
	*c = ToolCall{ID: j.ID, Name: j.Function.Name, Arguments: argumentsText(j.Function.Arguments)}
	return nil
}

// MarshalJSON writes a call in OpenAI's form, with the arguments as a string.
func (c ToolCall) MarshalJSON() ([]byte, error) {
	arguments, err := marshal(c.Arguments)
	if err != nil {
		return nil, err
	}
	return marshal(callJSON{ID: c.ID, Type: "function", Function: functionJSON{Name: c.Name, Arguments: arguments}})
}

// tool returns a declaration as {"type": "function", "function": {…}}, wrapping a bare function.
// A description that is null is absent.
func tool(raw json.RawMessage) (json.RawMessage, error) {
	raw = withoutNull(raw)
	var known struct {
		Name     *string         `json:"name"`
		Function json.RawMessage `json:"function"`
	}
	if err := json.Unmarshal(raw, &known); err != nil {
		return nil, fmt.Errorf("tool: %w", err)
	}
	if known.Function != nil {
		var f struct {
			Name string `json:"name"`
		}
		if err := json.Unmarshal(known.Function, &f); err != nil || f.Name == "" {
			return nil, errors.Join(errors.New("tool without function.name"), err)
		}
		return raw, nil
	}
	if known.Name == nil {
		return nil, errors.New("tool without function")
	}
	return json.RawMessage(`{"type": "function", "function": ` + string(raw) + `}`), nil
}

// withoutNull returns a declaration without those members of objects that are null and describe a
// tool or a value.
func withoutNull(raw json.RawMessage) json.RawMessage {
	if !bytes.Contains(raw, []byte("null")) {
		return raw
	}
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) == nil && list != nil {
		for i := range list {
			list[i] = withoutNull(list[i])
		}
		out, _ := marshal(list) // was parsed as JSON
		return out
	}
	keys, values, err := object(raw)
	if err != nil {
		return raw
	}
	w := &objectWriter{}
	for _, key := range keys {
		value := values[key]
		described := slices.Contains([]string{"title", "description", "parameters", "strict"}, key)
		if string(value) == "null" && described {
			continue
		}
		if !slices.Contains([]string{"default", "const", "enum", "examples"}, key) {
			value = withoutNull(value)
		}
		w.key(key)
		w.raw(string(value))
	}
	return json.RawMessage(w.done())
}
