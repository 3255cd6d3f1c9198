package chat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/smelt-ml/smelt/chat/jinja"
	"github.com/smelt-ml/smelt/constrain"
	"github.com/smelt-ml/smelt/models/tokenizer"
)

// Template renders prompts for one model. It is safe for concurrent use.
type Template struct {
	source    string
	template  *jinja.Template
	tokenizer *tokenizer.Tokenizer
	special   map[string]string // texts of bos_token, eos_token, …
	format    Format
	controls  map[string]int32 // the format's marks that are control tokens of this vocabulary
	now       func() time.Time

	mu          sync.Mutex
	constraints map[string]*constrain.Constraint // cache, by the request's parameters
	places      map[string]presence              // of the keys of seekers
	emptyIsNone atomic.Bool                      // calls need a content that is none, not an empty one
}

// NewTemplate parses a Jinja template for a model's vocabulary.
func NewTemplate(source string, t *tokenizer.Tokenizer) (*Template, error) {
	parsed, err := jinja.Parse(source)
	if err != nil {
		return nil, fmt.Errorf("chat template: %w", err)
	}
	s := t.Spec()
	special := map[string]string{}
	for name, id := range map[string]int32{"bos_token": s.BOS, "eos_token": s.EOS, "unk_token": s.UNK, "pad_token": s.PAD} {
		special[name] = ""
		if id != tokenizer.None {
			special[name] = string(t.Piece(id))
		}
	}
	source = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(source) // as Jinja2 reads it
	out := &Template{source: source, places: map[string]presence{}, template: parsed, tokenizer: t, special: special, format: formatOf(source), controls: map[string]int32{}, now: time.Now, constraints: map[string]*constrain.Constraint{}}
	for _, mark := range out.format.controls {
		if id, ok := control(t, mark); ok {
			out.controls[mark] = id
		}
	}
	return out, nil
}

// Format returns the notation of reasoning and tool calls of the template's model.
func (t *Template) Format() Format { return t.format }

// Source returns the template's text.
func (t *Template) Source() string { return t.source }

// Prompt is a rendered conversation.
type Prompt struct {
	text   jinja.Text
	tokens func() []int32
}

func (p Prompt) String() string { return p.text.String() }

// Quoted returns the byte ranges of the prompt that come from users, tools and documents. The
// tokenizer encodes no control tokens in them.
func (p Prompt) Quoted() []tokenizer.Range {
	ranges := make([]tokenizer.Range, len(p.text.Marks()))
	for i, m := range p.text.Marks() {
		ranges[i] = tokenizer.Range(m)
	}
	return ranges
}

// Tokens returns the prompt's token ids, with one start token first if the model has one.
func (p Prompt) Tokens() []int32 { return p.tokens() }

func (t *Template) prompt(text jinja.Text) Prompt {
	p := Prompt{text: text}
	p.tokens = sync.OnceValue(func() []int32 {
		return t.tokenizer.Open(t.tokenizer.EncodeQuoted(text.String(), p.Quoted()))
	})
	return p
}

// Render renders a conversation. What the template has no place for is moved to where it has one:
// a developer's text becomes a system text, and a system text is put before the next user message.
func (t *Template) Render(c Conversation) (Prompt, error) {
	return t.RenderContext(context.Background(), c)
}

// RenderContext is Render that fails with ctx's cause when ctx ends.
func (t *Template) RenderContext(ctx context.Context, c Conversation) (Prompt, error) {
	if len(c.Messages) == 0 {
		return Prompt{}, errors.New("conversation without messages")
	}
	c, err := t.fitted(c)
	if err != nil {
		return Prompt{}, err
	}
	return t.attempt(ctx, c)
}

func (t *Template) render(ctx context.Context, c Conversation, argumentsAsText bool) (Prompt, error) {
	v := &jinja.Dict{}
	set := func(name string, value jinja.Value) { v.Set(jinja.Plain(name), value) }
	for name, text := range t.special {
		set(name, jinja.Plain(text))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Variables)) {
		value, err := jinja.FromJSON(c.Variables[name], jinja.Marked)
		if err != nil {
			return Prompt{}, fmt.Errorf("chat template: variable %s: %w", name, err)
		}
		set(name, value)
	}
	messages := &jinja.List{}
	for i := range c.Messages {
		messages.Items = append(messages.Items, c.Messages[i].value(argumentsAsText, t.emptyIsNone.Load()))
	}
	set("messages", messages)
	set("add_generation_prompt", jinja.Bool(c.Answer))
	for _, given := range []struct {
		name string
		raws []json.RawMessage
	}{{"tools", c.Tools}, {"documents", c.Documents}} {
		name, raws := given.name, given.raws
		if len(raws) == 0 {
			continue
		}
		list := &jinja.List{}
		for _, raw := range raws {
			if name == "tools" {
				var err error
				if raw, err = tool(raw); err != nil {
					return Prompt{}, err
				}
			}
			value, err := jinja.FromJSON(raw, jinja.Marked)
			if err != nil {
				return Prompt{}, fmt.Errorf("%s: %w", name, err)
			}
			list.Items = append(list.Items, value)
		}
		set(name, list)
	}
	text, err := t.template.Render(v, jinja.Options{Context: ctx, Now: t.now()})
	if err != nil {
		return Prompt{}, fmt.Errorf("chat template: %w", err)
	}
	return t.prompt(text), nil
}

// value returns the message as the object that templates read.
func (m *Message) value(argumentsAsText, emptyIsNone bool) jinja.Value {
	d := &jinja.Dict{}
	set := func(name string, v jinja.Value) { d.Set(jinja.Plain(name), v) }
	said := func(name, text string) {
		if text != "" {
			set(name, jinja.Marked(text))
		}
	}
	role := jinja.Marked(m.Role)
	if slices.Contains(Roles, m.Role) {
		role = jinja.Plain(m.Role)
	}
	set("role", role)
	set("content", jinja.Marked(m.Content))
	if emptyIsNone && m.Content == "" && len(m.ToolCalls) > 0 {
		set("content", jinja.None{})
	}
	// Templates have three names for the reasoning.
	for _, name := range []string{"reasoning_content", "thinking", "reasoning"} {
		said(name, m.Reasoning)
	}
	said("name", m.Name)
	said("tool_call_id", m.ToolCallID)
	if len(m.ToolCalls) > 0 {
		calls := &jinja.List{}
		for _, c := range m.ToolCalls {
			calls.Items = append(calls.Items, c.value(argumentsAsText))
		}
		set("tool_calls", calls)
	}
	return d
}

func (c *ToolCall) value(argumentsAsText bool) jinja.Value {
	text := argumentsOf(c.Arguments)
	var arguments jinja.Value = jinja.Marked(text)
	if v, err := jinja.FromJSON([]byte(text), jinja.Marked); err == nil && !argumentsAsText {
		if object, ok := v.(*jinja.Dict); ok {
			arguments = object
		}
	}
	function, call := &jinja.Dict{}, &jinja.Dict{}
	function.Set(jinja.Plain("name"), jinja.Marked(c.Name))
	function.Set(jinja.Plain("arguments"), arguments)
	if c.ID != "" {
		call.Set(jinja.Plain("id"), jinja.Marked(c.ID))
	}
	call.Set(jinja.Plain("type"), jinja.Plain("function"))
	call.Set(jinja.Plain("function"), function)
	return call
}
