package chat

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Roles are who may say something. A role that is not among them is passed on as text that
// somebody wrote.
var Roles = []string{"system", "developer", "user", "assistant", "tool", "function", "ipython", "environment", "model"}

// Message is what one side says, in the form of OpenAI's API.
type Message struct {
	Role    string
	Content string // parts of text are joined
	// Reasoning is what the model thought before it answered.
	Reasoning  string
	ToolCalls  []ToolCall
	ToolCallID string // of the call that a tool answers
	Name       string // of the tool that answers, or of a speaker
}

// ToolCall is a call that a model makes.
type ToolCall struct {
	ID   string
	Name string
	// Arguments are JSON: an object, unless the model wrote something else.
	Arguments string
}

// Conversation is what a prompt is made of.
type Conversation struct {
	Messages []Message
	// Tools are declarations, each a JSON object with type and function.
	Tools []json.RawMessage
	// ToolChoice says whether the answer calls them; OneCall, that it makes no more than one.
	ToolChoice ToolChoice
	OneCall    bool
	// Documents are JSON objects that the answer may draw on.
	Documents []json.RawMessage
	// Variables are further ones that the template knows: enable_thinking, reasoning_effort.
	Variables map[string]json.RawMessage
	// Answer asks for the beginning of an answer behind the last message.
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
	Refusal          string          `json:"refusal,omitempty"` // what an assistant said instead of its content
	answered
}

// answered are members that clients send back with an answer, as they got it or made of it, and
// that say nothing more.
type answered struct {
	Annotations  []json.RawMessage `json:"annotations,omitempty"`
	Audio        *struct{}         `json:"audio,omitempty"`         // null
	FunctionCall *struct{}         `json:"function_call,omitempty"` // null
	Parsed       json.RawMessage   `json:"parsed,omitempty"`
}

// ErrContent is wrapped where a message has what is no text.
var ErrContent = errors.New("only text can be said")

// strict decodes JSON whose members are all known.
func strict(raw []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	return d.Decode(v)
}

// UnmarshalJSON reads a message; its content is a text, a list of parts of text, or null.
func (m *Message) UnmarshalJSON(raw []byte) error {
	var j messageJSON
	if err := strict(raw, &j); err != nil {
		return err
	}
	if j.Role == "" {
		return errors.New("a message has no role")
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

// MarshalJSON writes a message with the members role and content, and others that are not
// empty.
func (m Message) MarshalJSON() ([]byte, error) {
	content, err := marshal(m.Content)
	if err != nil {
		return nil, err
	}
	return marshal(messageJSON{Role: m.Role, Content: content, Reasoning: m.Reasoning, ToolCalls: m.ToolCalls, ToolCallID: m.ToolCallID, Name: m.Name})
}

// marshal leaves <, > and & as they are.
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
	Index    *int         `json:"index,omitempty"` // of a call in a stream
	Function functionJSON `json:"function"`
}

type functionJSON struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
	Parsed    json.RawMessage `json:"parsed_arguments,omitempty"` // as in answered
}

// UnmarshalJSON reads a call, whose arguments are JSON or, as OpenAI has them, a text that is
// JSON.
func (c *ToolCall) UnmarshalJSON(raw []byte) error {
	var j callJSON
	if err := strict(raw, &j); err != nil {
		return err
	}
	if j.Type != "" && j.Type != "function" {
		return fmt.Errorf("a tool call of type %q: want function", j.Type)
	}
	if j.Function.Name == "" {
		return errors.New("a tool call has no function.name")
	}
	*c = ToolCall{ID: j.ID, Name: j.Function.Name, Arguments: string(j.Function.Arguments)}
	switch {
	case len(j.Function.Arguments) == 0 || string(j.Function.Arguments) == "null":
		c.Arguments = "{}"
	case j.Function.Arguments[0] == '"':
		return json.Unmarshal(j.Function.Arguments, &c.Arguments)
	}
	return nil
}

// MarshalJSON writes a call in OpenAI's form, arguments as a text.
func (c ToolCall) MarshalJSON() ([]byte, error) {
	arguments, err := marshal(c.Arguments)
	if err != nil {
		return nil, err
	}
	return marshal(callJSON{ID: c.ID, Type: "function", Function: functionJSON{Name: c.Name, Arguments: arguments}})
}

// tool brings a declaration into the form with type and function.
func tool(raw json.RawMessage) (json.RawMessage, error) {
	var known struct {
		Name     *string         `json:"name"`
		Function json.RawMessage `json:"function"`
	}
	if err := json.Unmarshal(raw, &known); err != nil {
		return nil, fmt.Errorf("a tool: %w", err)
	}
	if known.Function != nil {
		var f struct {
			Name string `json:"name"`
		}
		if err := json.Unmarshal(known.Function, &f); err != nil || f.Name == "" {
			return nil, errors.Join(errors.New("a tool has no function.name"), err)
		}
		return raw, nil
	}
	if known.Name == nil {
		return nil, errors.New("a tool has no function")
	}
	return json.RawMessage(`{"type": "function", "function": ` + string(raw) + `}`), nil
}
