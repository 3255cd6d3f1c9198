package chat

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/smelt-ml/smelt/chat/jinja"
)

// ErrNoPlace is wrapped where a template would drop a part of the conversation.
var ErrNoPlace = errors.New("the chat template has no place for it")

// sought is the text whose place in a rendering is looked for.
const sought = "aplacetolookfor"

// seekers are conversations that contain sought, by the part of a conversation that it stands for.
var seekers = map[string]Conversation{
	"system":    {Messages: []Message{{Role: "system", Content: sought}, {Role: "user", Content: "x"}}},
	"later":     {Messages: []Message{{Role: "system", Content: "s"}, {Role: "user", Content: "x"}, {Role: "assistant", Content: "y"}, {Role: "system", Content: sought}, {Role: "user", Content: "z"}}},
	"developer": {Messages: []Message{{Role: "developer", Content: sought}, {Role: "user", Content: "x"}}},
	"tools":     {Messages: []Message{{Role: "user", Content: "x"}}, Tools: []json.RawMessage{toolNamed(sought)}},
	"documents": {Messages: []Message{{Role: "user", Content: "x"}}, Documents: []json.RawMessage{json.RawMessage(`{"title": "t", "text": "` + sought + `"}`)}},
	"calls":     {Messages: []Message{{Role: "user", Content: "x"}, calls(sought), result("y")}, Tools: []json.RawMessage{toolNamed("f")}},
	"beside":    {Messages: []Message{{Role: "user", Content: "x"}, beside(calls(sought)), result("y")}, Tools: []json.RawMessage{toolNamed("f")}},
	"results":   {Messages: []Message{{Role: "user", Content: "x"}, calls("f"), result(sought)}, Tools: []json.RawMessage{toolNamed("f")}},
}

func toolNamed(name string) json.RawMessage {
	return json.RawMessage(`{"type": "function", "function": {"name": "` + name + `", "description": "d", "parameters": {"type": "object", "properties": {"a": {"type": "string", "description": "d"}}, "required": ["a"]}}}`)
}

func calls(name string) Message {
	return Message{Role: "assistant", ToolCalls: []ToolCall{{ID: "call00001", Name: name, Arguments: `{"a": "b"}`}}}
}

// beside returns calls beside a text.
func beside(m Message) Message {
	m.Content = "t"
	return m
}

func result(text string) Message {
	return Message{Role: "tool", Content: text, ToolCallID: "call00001", Name: "f"}
}

// presence is what a template makes of a part of a conversation.
type presence uint8

const (
	kept presence = iota
	dropped
	failed // the template refuses the conversation
)

// has reports whether the template has a place for a part of conversations.
func (t *Template) has(part string) bool { return t.presence(part) == kept }

// lacks reports whether a conversation has a part that the template has no place for. A template
// that refuses the part gives a better error than we can, unless the part can be moved.
func (t *Template) lacks(part string, present bool, c *Conversation) bool {
	if !present {
		return false
	}
	p := t.presence(part)
	return p == dropped || p == failed && c.ToolsInPrompt
}

func (t *Template) presence(part string) presence {
	t.mu.Lock()
	defer t.mu.Unlock()
	p, known := t.places[part]
	if !known {
		p = t.seek(seekers[part])
		if part == "calls" && p != kept {
			t.emptyIsNone.Store(true)
			again := t.seek(seekers[part])
			t.emptyIsNone.Store(again == kept)
			if again == kept {
				p = kept
			}
		}
		if part == "developer" && !strings.Contains(t.source, part) { // it writes every role's name, and knows this one no better
			p = dropped
		}
		t.places[part] = p
	}
	return p
}

// seek returns what becomes of sought in the rendering of a conversation.
func (t *Template) seek(c Conversation) presence {
	c.Answer = true
	p, err := t.attempt(context.Background(), c)
	switch {
	case err != nil:
		return failed
	case strings.Contains(p.String(), sought):
		return kept
	}
	return dropped
}

// fitted returns the conversation with what the template has no place for moved to where it has
// one, or an error that wraps ErrNoPlace.
func (t *Template) fitted(c Conversation) (Conversation, error) {
	c.Messages = slices.Clone(c.Messages)
	var called, answered []string
	for i := range c.Messages {
		m := &c.Messages[i]
		switch m.Role {
		case "system", "user", "assistant":
		case "developer":
			if i > 0 || !t.has("developer") { // templates that know the role take it first
				m.Role = "system"
			}
		case "tool":
			answered = append(answered, cmp.Or(m.Name, m.ToolCallID))
		default:
			other := Conversation{Messages: []Message{{Role: "user", Content: "x"}, {Role: m.Role, Content: sought}}}
			if t.seek(other) == dropped {
				return c, fmt.Errorf("%w: the role %q", ErrNoPlace, m.Role)
			}
		}
		for _, call := range m.ToolCalls {
			called = append(called, call.Name)
		}
	}
	if len(c.Documents) > 0 && t.presence("documents") == dropped {
		return c, fmt.Errorf("%w: documents", ErrNoPlace)
	}
	if t.format.unread && len(c.Tools) > 0 && !c.ToolChoice.None {
		return c, fmt.Errorf("%w: tools, since calls in the form of %s are not read", ErrNoPlace, t.format)
	}
	if t.lacks("tools", len(c.Tools) > 0 && !c.ToolChoice.None, &c) {
		text, name, err := t.explained(c.Tools)
		switch {
		case err != nil:
			return c, err
		case !c.ToolsInPrompt:
			return c, fmt.Errorf("%w: the tool %s", ErrNoPlace, name)
		}
		if c.Messages[0].Role == "system" {
			c.Messages[0].Content += "\n\n" + text
		} else {
			c.Messages = slices.Insert(c.Messages, 0, Message{Role: "system", Content: text})
		}
		c.Tools = nil
	}
	if t.lacks("calls", called != nil, &c) {
		if !c.ToolsInPrompt {
			return c, fmt.Errorf("%w: the call of %s", ErrNoPlace, called[0])
		}
		for i := range c.Messages {
			m := &c.Messages[i]
			if len(m.ToolCalls) > 0 {
				m.Content = strings.TrimLeft(m.Content+"\n"+t.format.writing.calls(m.ToolCalls), "\n")
				m.ToolCalls = nil
			}
		}
		c.Messages = asked(c.Messages)
	}
	if called != nil && slices.ContainsFunc(c.Messages, isBeside) && !t.has("beside") {
		c.Messages = apart(c.Messages)
	}
	if t.lacks("results", answered != nil, &c) {
		if !c.ToolsInPrompt {
			return c, fmt.Errorf("%w: the result of the tool %s", ErrNoPlace, answered[0])
		}
		c.Messages = asked(c.Messages)
	}
	switch {
	case !slices.ContainsFunc(c.Messages, isSystem):
	case !t.has("system"):
		c.Messages = folded(c.Messages, 0)
	case slices.ContainsFunc(c.Messages[1:], isSystem) && !t.has("later"):
		c.Messages = folded(joined(c.Messages), 1)
	}
	return c, nil
}

func isSystem(m Message) bool { return m.Role == "system" }

// isBeside reports whether a message has calls beside a text.
func isBeside(m Message) bool { return m.Content != "" && len(m.ToolCalls) > 0 }

// apart puts the text beside calls into a message of its own before them.
func apart(list []Message) []Message {
	var out []Message
	for _, m := range list {
		if isBeside(m) {
			out = append(out, Message{Role: m.Role, Content: m.Content})
			m.Content = ""
		}
		out = append(out, m)
	}
	return out
}

// joined joins system messages that follow one another.
func joined(list []Message) []Message {
	var out []Message
	for _, m := range list {
		if last := len(out) - 1; last >= 0 && isSystem(m) && isSystem(out[last]) {
			out[last].Content += "\n\n" + m.Content
			continue
		}
		out = append(out, m)
	}
	return out
}

// folded prepends the text of system messages, from the message at index from on, to the next user
// message.
func folded(list []Message, from int) []Message {
	out := slices.Clone(list[:from])
	var waiting []string
	for _, m := range list[from:] {
		switch {
		case isSystem(m):
			waiting = append(waiting, m.Content)
			continue
		case m.Role == "user" && waiting != nil:
			m.Content = strings.Join(append(waiting, m.Content), "\n")
			waiting = nil
		}
		out = append(out, m)
	}
	if waiting != nil {
		out = append(out, Message{Role: "user", Content: strings.Join(waiting, "\n")})
	}
	return out
}

// explained returns the text that declares tools to a model and shows it how to call them, and the
// name of the first.
func (t *Template) explained(declared []json.RawMessage) (text, first string, err error) {
	var b strings.Builder
	b.WriteString("These tools can be called:\n")
	for i, raw := range declared {
		if raw, err = tool(raw); err != nil {
			return "", "", err
		}
		var one struct{ Function json.RawMessage }
		var named struct{ Name string }
		if err := errors.Join(json.Unmarshal(raw, &one), json.Unmarshal(one.Function, &named)); err != nil {
			return "", "", fmt.Errorf("tool: %w", err)
		}
		if i == 0 {
			first = named.Name
		}
		var line bytes.Buffer
		_ = json.Compact(&line, one.Function) // was already parsed as JSON
		b.Write(line.Bytes())
		b.WriteByte('\n')
	}
	b.WriteString("\nTo call one, write its name and arguments so:\n")
	b.WriteString(t.format.writing.calls([]ToolCall{{Name: "NAME", Arguments: `{"KEY": "VALUE"}`}}))
	b.WriteString("\nThe next message has its result.")
	return b.String(), first, nil
}

// asked makes results of tools the user's messages, joined with the user's text behind them.
func asked(list []Message) []Message {
	var out []Message
	joins := false // the last message has results
	for _, m := range list {
		isResult := m.Role == "tool"
		if isResult {
			m = Message{Role: "user", Content: "<tool_response>\n" + m.Content + "\n</tool_response>"}
		}
		if joins && m.Role == "user" {
			out[len(out)-1].Content += "\n" + m.Content
			joins = isResult
			continue
		}
		joins = isResult
		out = append(out, m)
	}
	return out
}

// calls returns calls in the notation.
func (w *writing) calls(list []ToolCall) string {
	var b strings.Builder
	b.WriteString(w.open)
	for i, c := range list {
		if i > 0 {
			b.WriteString(w.between)
			if w.alone {
				b.WriteByte('\n')
			}
		}
		arguments := c.object()
		if w.members != nil {
			arguments = w.members.write(arguments)
		}
		name := c.Name
		if strings.Contains(w.each, `"$"`) {
			name = quotedName(name)
		}
		b.WriteString(strings.NewReplacer("$", name, "@", arguments, "#", fmt.Sprint(i)).Replace(w.each))
	}
	b.WriteString(w.close)
	return b.String()
}

// write returns the members of a JSON object one by one.
func (m *members) write(arguments string) string {
	keys, values, _ := object(json.RawMessage(arguments)) // object has made it one
	var list []string
	for _, key := range keys {
		value, pattern := string(values[key]), m.json
		var text string
		if m.text != "" && json.Unmarshal(values[key], &text) == nil && value != "null" {
			value, pattern = text, m.text
		}
		list = append(list, strings.NewReplacer("$", key, "@", value, "%", kindOf(values[key])).Replace(pattern))
	}
	return strings.Join(list, m.between)
}

// object returns the arguments as a JSON object; other arguments become its member "text".
func (c *ToolCall) object() string {
	text := argumentsOf(c.Arguments)
	if _, _, err := object(json.RawMessage(text)); err == nil {
		return text
	}
	raw, _ := marshal(map[string]string{"text": text}) // strings always marshal
	return string(raw)
}

// changes are applied one after the other while a template refuses a conversation. Each reports
// whether it changed the conversation.
var changes = []func(*Conversation) bool{
	func(c *Conversation) bool { // arguments are objects
		return eachMessage(c, func(m *Message) (changed bool) {
			for k := range m.ToolCalls {
				object := m.ToolCalls[k].object()
				changed = changed || object != m.ToolCalls[k].Arguments
				m.ToolCalls[k].Arguments = object
			}
			return changed
		})
	},
	func(c *Conversation) bool {
		n := len(c.Messages)
		c.Messages = singly(c.Messages)
		return n != len(c.Messages)
	},
	func(c *Conversation) bool {
		identified(c.Messages)
		return slices.ContainsFunc(c.Messages, func(m Message) bool { return len(m.ToolCalls) > 0 })
	},
	func(c *Conversation) bool { // tools have a description and parameters
		for i, raw := range c.Tools {
			c.Tools[i] = complete(raw)
		}
		return len(c.Tools) > 0
	},
	func(c *Conversation) bool { // a message with calls has reasoning or a text, not both
		return eachMessage(c, func(m *Message) bool {
			if len(m.ToolCalls) == 0 || m.Content == "" || m.Reasoning == "" {
				return false
			}
			m.Content, m.Reasoning = "", m.Reasoning+"\n\n"+m.Content
			return true
		})
	},
	func(c *Conversation) bool { // there is no text beside calls
		n := len(c.Messages)
		var out []Message
		for i, m := range c.Messages {
			if len(m.ToolCalls) > 0 {
				m.Content = ""
			}
			if i+1 == n || m.Role != "assistant" || m.ToolCalls != nil || c.Messages[i+1].ToolCalls == nil {
				out = append(out, m)
			}
		}
		changed := len(out) < n || slices.ContainsFunc(c.Messages, isBeside)
		c.Messages = out
		return changed
	},
	func(c *Conversation) bool { // an answer is not empty
		return eachMessage(c, func(m *Message) bool {
			empty := m.Role == "assistant" && m.Content == "" && len(m.ToolCalls) == 0
			if empty {
				m.Content = " "
			}
			return empty
		})
	},
}

func eachMessage(c *Conversation, change func(*Message) bool) (changed bool) {
	for i := range c.Messages {
		changed = change(&c.Messages[i]) || changed
	}
	return changed
}

// attempt renders a conversation, and changes it as long as the template refuses it.
func (t *Template) attempt(ctx context.Context, c Conversation) (Prompt, error) {
	c.Messages, c.Tools = slices.Clone(c.Messages), slices.Clone(c.Tools)
	for i := range c.Messages {
		c.Messages[i].ToolCalls = slices.Clone(c.Messages[i].ToolCalls)
	}
	if t.format.writing.alone {
		c.Messages = singly(c.Messages)
	}
	p, err := t.render(ctx, c, false)
	if err == nil || errors.Is(err, jinja.ErrLimit) || ctx.Err() != nil {
		return p, err
	}
	called := slices.ContainsFunc(c.Messages, func(m Message) bool { return len(m.ToolCalls) > 0 })
	for i := -1; i < len(changes); i++ {
		if i >= 0 && !changes[i](&c) {
			continue
		}
		if i >= 0 {
			if p, again := t.render(ctx, c, false); again == nil {
				return p, nil
			}
		}
		if called { // some templates take the arguments of calls as texts
			if p, again := t.render(ctx, c, true); again == nil {
				return p, nil
			}
		}
	}
	return p, err
}

// singly returns the messages with one call in each, and the results of a call behind it.
func singly(list []Message) []Message {
	var out []Message
	for i := 0; i < len(list); i++ {
		m := list[i]
		out = append(out, m)
		if len(m.ToolCalls) < 2 {
			continue
		}
		out = out[:len(out)-1]
		results := list[i+1:]
		if end := slices.IndexFunc(results, func(m Message) bool { return m.Role != "tool" }); end >= 0 {
			results = results[:end]
		}
		i += len(results)
		taken := make([]bool, len(results))
		for k, call := range m.ToolCalls {
			one := Message{Role: m.Role, ToolCalls: []ToolCall{call}}
			if k == 0 {
				one.Content, one.Reasoning = m.Content, m.Reasoning
			}
			out = append(out, one)
			for r, result := range results {
				last := k == len(m.ToolCalls)-1
				if !taken[r] && (last || result.ToolCallID == call.ID && call.ID != "" || result.ToolCallID == "" && r == k) {
					taken[r] = true
					out = append(out, result)
				}
			}
		}
	}
	return out
}

// identified gives calls and their results identities of nine letters and digits, which Mistral's
// templates require, and results the names of their tools.
func identified(list []Message) {
	const length = 9
	ids := map[string]string{}
	short := func(id string) string {
		plain := len(id) == length && strings.IndexFunc(id, func(c rune) bool {
			return (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z')
		}) < 0
		if !plain && ids[id] == "" {
			ids[id] = fmt.Sprintf("%0*d", length, len(ids)+1)
		}
		if plain {
			return id
		}
		return ids[id]
	}
	names := map[string]string{}
	var open []ToolCall // calls without a result
	for i := range list {
		m := &list[i]
		for k := range m.ToolCalls {
			call := &m.ToolCalls[k]
			if call.ID == "" {
				call.ID = fmt.Sprintf("call %d %d", i, k)
			}
			call.ID = short(call.ID)
			names[call.ID] = call.Name
			open = append(open, *call)
		}
		if m.Role != "tool" {
			continue
		}
		if m.ToolCallID == "" && len(open) > 0 {
			m.ToolCallID = open[0].ID
		}
		m.ToolCallID = short(m.ToolCallID)
		open = slices.DeleteFunc(open, func(c ToolCall) bool { return c.ID == m.ToolCallID })
		if m.Name == "" {
			m.Name = names[m.ToolCallID]
		}
	}
}

// complete returns a tool's declaration with a description and parameters.
func complete(raw json.RawMessage) json.RawMessage {
	wrapped, err := tool(raw)
	if err != nil {
		return raw
	}
	var t struct{ Type, Function json.RawMessage }
	if json.Unmarshal(wrapped, &t) != nil {
		return raw
	}
	_, members, err := object(t.Function)
	if err != nil {
		return raw
	}
	fill := func(members map[string]json.RawMessage, name, value string) {
		if members[name] == nil {
			members[name] = json.RawMessage(value)
		}
	}
	fill(members, "description", `""`)
	fill(members, "parameters", `{"type": "object", "properties": {}}`)
	if _, schema, err := object(members["parameters"]); err == nil {
		fill(schema, "properties", `{}`)
		if keys, properties, err := object(schema["properties"]); err == nil {
			w := &objectWriter{} // in their order
			for _, key := range keys {
				if _, one, err := object(properties[key]); err == nil {
					fill(one, "description", `""`)
					properties[key], _ = marshal(one) // its members are JSON
				}
				w.key(key)
				w.raw(string(properties[key]))
			}
			schema["properties"] = json.RawMessage(w.done())
		}
		members["parameters"], _ = marshal(schema) // its members are JSON
	}
	out, err := marshal(map[string]any{"type": "function", "function": members})
	if err != nil {
		return raw
	}
	return out
}
