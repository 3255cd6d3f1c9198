package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/smelt-ml/smelt/constrain"
)

// ToolChoice says whether an answer calls tools. The zero value leaves it to the model.
type ToolChoice struct {
	None     bool   // nothing is a call
	Required bool   // one call or more
	Name     string // one call, of this tool
}

// forced reports whether there must be a call.
func (c ToolChoice) forced() bool { return c.Required || c.Name != "" }

// UnmarshalJSON reads "none", "auto", "required", or {"type": "function", "function": {"name"}}.
func (c *ToolChoice) UnmarshalJSON(raw []byte) error {
	*c = ToolChoice{}
	var word string
	if json.Unmarshal(raw, &word) == nil {
		switch word {
		case "", "auto": // null too
		case "none":
			c.None = true
		case "required":
			c.Required = true
		default:
			return fmt.Errorf("a tool choice of %q: want none, auto, required or a function", word)
		}
		return nil
	}
	var named struct {
		Type     string `json:"type"`
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	}
	if err := strict(raw, &named); err != nil {
		return fmt.Errorf("a tool choice: %w", err)
	}
	if named.Type != "function" || named.Function.Name == "" {
		return errors.New(`a tool choice: want none, auto, required or {"type": "function", "function": {"name": …}}`)
	}
	c.Name = named.Function.Name
	return nil
}

// ErrNotKept is wrapped where the arguments of calls cannot be kept to the tools' schemas and
// nobody insists on it: the model may call tools, need not, and none of them is strict.
var ErrNotKept = errors.New("the arguments of calls are not kept to the tools' schemas")

// Constraint is what keeps an answer to what was asked for; nil where that is nothing. A call
// that has begun, or that the conversation asks for, is written as the model's template writes
// calls, with arguments that match the tool's schema. An answer that is no call matches a schema,
// if there is one. What the model thinks before is free.
func (t *Template) Constraint(v *constrain.Vocabulary, c Conversation, prompt Prompt, schema json.RawMessage) (*constrain.Constraint, error) {
	if schema == nil && (len(c.Tools) == 0 || c.ToolChoice.None) && !c.ToolChoice.forced() {
		return nil, nil
	}
	at := t.NewParser(c, prompt).place
	answered := t.format.think[1] != "" && strings.HasSuffix(strings.TrimRight(prompt.String(), space), t.format.think[1])
	key := fmt.Sprintf("%p %v %v %v %v %q %q", v, at, answered, c.ToolChoice, c.OneCall, c.Tools, schema)
	t.mu.Lock()
	defer t.mu.Unlock()
	if k, ok := t.constraints[key]; ok {
		return k, nil
	}
	form, err := t.answerForm(&c, at, answered, schema)
	var k *constrain.Constraint
	if err == nil && form != nil {
		k, err = v.Form(*form)
	}
	if err != nil {
		if schema == nil && !c.insists() {
			err = fmt.Errorf("%w: %w", ErrNotKept, err)
		}
		return nil, err
	}
	if len(t.constraints) >= maxConstraints {
		clear(t.constraints)
	}
	t.constraints[key] = k
	return k, nil
}

const maxConstraints = 32 // that a template keeps, for conversations that ask for the same

// insists reports whether arguments that are not kept to their schema would not do.
func (c *Conversation) insists() bool {
	if c.ToolChoice.forced() {
		return true
	}
	for _, d := range toolsOf(c.Tools) {
		if d.strict {
			return true
		}
	}
	return false
}

// answerForm is the form of what the model says at a place; nil for any.
func (t *Template) answerForm(c *Conversation, at place, answered bool, schema json.RawMessage) (*constrain.Form, error) {
	w := &writer{Format: &t.format, controls: t.controls, tools: toolsOf(c.Tools)}
	may := len(w.tools) > 0 && !c.ToolChoice.None
	forced, only := c.ToolChoice.forced(), c.ToolChoice.Name
	switch {
	case only != "" && w.tools[only] == nil:
		return nil, fmt.Errorf("the tool %s is to be called, and is not among the tools", only)
	case forced && !may:
		return nil, errors.New("a tool is to be called, and there are none")
	}
	var answer, calls constrain.Form
	if schema != nil {
		answer = constrain.Schema(`"schema"`, schema, "", constrain.Options{NoWhitespace: true})
	}
	if may {
		var err error
		if calls, err = w.calls(w.sorted(only), c.OneCall || only != ""); err != nil {
			return nil, err
		}
	}
	var form constrain.Form
	switch {
	case t.format.channels && at == inHead:
		form = w.inChannels(may, calls, forced, schema != nil, answer)
	case t.format.channels && forced:
		return nil, errors.New("a tool is to be called, and the prompt has begun an answer")
	case t.format.channels && schema != nil:
		form = answer
	case t.format.channels:
		return nil, nil
	case forced:
		form = constrain.Sequence(w.thought(at, answered, t.source), calls)
	case schema != nil && may:
		form = constrain.Sequence(w.thought(at, answered, t.source), constrain.OneOf(calls, answer))
	case schema != nil:
		form = constrain.Sequence(w.thought(at, answered, t.source), answer)
	default:
		form = w.begun(at, calls)
	}
	return &form, nil
}

// thought is what the model thinks before it answers: nothing, where the template has no place
// for it or the prompt has been there.
func (w *writer) thought(at place, answered bool, source string) constrain.Form {
	open, close := w.think[0], w.think[1]
	switch {
	case at == inReasoning:
		return constrain.Sequence(w.between("", close), blank)
	case open != "" && strings.Contains(source, open) && !answered:
		return constrain.Optional(constrain.Sequence(w.between(open, close), blank))
	}
	return constrain.Form{}
}

// begun is any answer in which each call that begins is one that is wanted.
func (w *writer) begun(at place, calls constrain.Form) constrain.Form {
	open, close := w.think[0], w.think[1]
	mark := w.mark()
	text := w.free(open, mark)
	var parts []constrain.Form // that stand between texts
	if open != "" {
		parts = append(parts, w.between(open, close))
	}
	var whole []constrain.Form // messages, or the rest of one
	if mark != "" {
		parts = append(parts, calls)
	} else {
		begin, _, _ := strings.Cut(w.writing.each, "@")
		for _, lines := range blanks {
			for name := range w.tools {
				text.Begins = append(text.Begins, lines+strings.ReplaceAll(begin, "$", quotedName(name)))
			}
		}
		whole = append(whole, constrain.Sequence(blank, calls))
	}
	whole = append(whole, text.Form())
	if open != "" { // what the model thinks may be cut short
		whole = append(whole, constrain.Sequence(text.Form(), w.literal(open), w.free(close).Form()))
	}
	form := constrain.OneOf(whole...)
	if parts != nil {
		form = constrain.Sequence(constrain.Many(constrain.Sequence(text.Form(), constrain.OneOf(parts...)), 0), form)
	}
	if at == inReasoning {
		form = constrain.OneOf(constrain.Sequence(w.between("", close), form), w.free(close).Form())
	}
	return form
}

// mark is what calls begin with; "" where they are a message by themselves.
func (w *writer) mark() string {
	for _, c := range w.Format.calls {
		if c.open != "" && strings.HasPrefix(w.writing.open+w.writing.each, c.open) {
			return c.open
		}
	}
	return ""
}

// inChannels is an answer of messages in channels.
func (w *writer) inChannels(may bool, calls constrain.Form, forced, kept bool, answer constrain.Form) constrain.Form {
	text := w.free(endMarks...).Form()
	open := func(channel string) constrain.Form { return w.literal(channelMark + channel + messageMark) }
	message := func(channel string) constrain.Form { // and the beginning of the next
		return constrain.Sequence(open(channel), text, w.literal("<|end|>"+startMark+"assistant"))
	}
	before, ends := []constrain.Form{message("analysis")}, []constrain.Form{}
	if may {
		ends = append(ends, calls)
	}
	switch {
	case forced:
	case kept:
		ends = append(ends, constrain.Sequence(open("final"), answer))
	default:
		before = append(before, message("commentary"))
		for _, channel := range []string{"final", "commentary", "analysis"} { // one may be cut short
			ends = append(ends, constrain.Sequence(open(channel), text))
		}
	}
	return constrain.Sequence(constrain.Many(constrain.OneOf(before...), 0), constrain.OneOf(ends...))
}
