package chat

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/smelt-ml/smelt/constrain"
)

// ToolChoice selects whether an answer calls tools. The zero value leaves the choice to the model.
type ToolChoice struct {
	None     bool   // no calls
	Required bool   // at least one call
	Name     string // exactly one call, of this tool
}

// forced reports whether the answer must contain a call.
func (c ToolChoice) forced() bool { return c.Required || c.Name != "" }

// UnmarshalJSON reads "none", "auto", "required", or {"type": "function", "function": {"name"}}.
func (c *ToolChoice) UnmarshalJSON(raw []byte) error {
	*c = ToolChoice{}
	var word string
	if json.Unmarshal(raw, &word) == nil {
		switch word {
		case "", "auto": // "" is null
		case "none":
			c.None = true
		case "required":
			c.Required = true
		default:
			return fmt.Errorf("tool_choice %q: want none, auto, required or a function", word)
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
		return fmt.Errorf("tool_choice: %w", err)
	}
	if named.Type != "function" || named.Function.Name == "" {
		return errors.New(`tool_choice: want none, auto, required or {"type": "function", "function": {"name": …}}`)
	}
	c.Name = named.Function.Name
	return nil
}

// ErrNotKept is wrapped where the arguments of calls cannot be constrained to the tools' schemas
// and the request allows that: tool_choice forces no call and no tool is strict. Callers may then
// generate without a constraint.
var ErrNotKept = errors.New("the arguments of calls cannot be constrained to the tools' schemas")

// Constraint returns the constraint on an answer; nil if any answer is allowed. A tool call, once
// begun or if the conversation forces one, follows the template's notation and the tool's schema;
// an answer without a call matches schema, unless that is nil. Reasoning before the answer is
// unconstrained. Constraint fails with ctx's cause when ctx ends.
func (t *Template) Constraint(ctx context.Context, v *constrain.Vocabulary, c Conversation, prompt Prompt, schema json.RawMessage) (*constrain.Constraint, error) {
	if schema == nil && (len(c.Tools) == 0 || c.ToolChoice.None) && !c.ToolChoice.forced() {
		return nil, nil
	}
	at := t.NewParser(c, prompt).place
	answered := t.format.think[1] != "" && strings.HasSuffix(strings.TrimRight(prompt.String(), space), t.format.think[1])
	key := fmt.Sprintf("%p %v %v %v %v %q %q", v, at, answered, c.ToolChoice, c.OneCall, c.Tools, schema)
	t.mu.Lock()
	k, ok := t.constraints[key]
	t.mu.Unlock()
	if ok {
		return k, nil
	}
	form, err := t.answerForm(&c, at, answered, schema)
	if err == nil && form != nil { // beside other conversations, since it can take long
		k, err = v.Form(ctx, *form)
	}
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		if schema == nil && !c.insists() {
			err = fmt.Errorf("%w: %w", ErrNotKept, err)
		}
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.constraints) >= maxConstraints {
		clear(t.constraints)
	}
	t.constraints[key] = k
	return k, nil
}

const maxConstraints = 32 // constraints cached per template, for conversations that need the same one

// insists reports whether arguments must match their schema: a call is forced, or a tool is strict.
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

// answerForm returns the form of the model's output from place at on; nil allows any text.
func (t *Template) answerForm(c *Conversation, at place, answered bool, schema json.RawMessage) (*constrain.Form, error) {
	w := &writer{Format: &t.format, controls: t.controls, tools: toolsOf(c.Tools)}
	may := len(w.tools) > 0 && !c.ToolChoice.None
	forced, only := c.ToolChoice.forced(), c.ToolChoice.Name
	switch {
	case only != "" && w.tools[only] == nil:
		return nil, fmt.Errorf("tool_choice names the tool %s, which is not among the tools", only)
	case forced && !may:
		return nil, errors.New("tool_choice requires a tool call, but there are no tools")
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
	case t.format.channels != nil && at == inHead:
		form = w.inChannels(may, calls, forced, schema != nil, answer)
	case t.format.channels != nil && forced:
		return nil, errors.New("tool_choice requires a tool call, but the prompt has already begun an answer")
	case t.format.channels != nil && schema != nil:
		form = answer
	case t.format.channels != nil:
		return nil, nil
	case forced:
		form = constrain.Sequence(w.thought(at, answered, t.source), calls)
	case schema != nil && may:
		form = constrain.Sequence(w.thought(at, answered, t.source), constrain.OneOf(calls, answer))
	case schema != nil:
		form = constrain.Sequence(w.thought(at, answered, t.source), answer)
	default:
		form = w.begun(at, calls, w.sorted(""))
	}
	return &form, nil
}

// thought returns the form of the reasoning before an answer: empty if the template has no
// reasoning, or if the prompt already contains its end.
func (w *writer) thought(at place, answered bool, source string) constrain.Form {
	open := w.think[0]
	switch {
	case at == inReasoning:
		return constrain.Sequence(w.thoughts(""), blank)
	case open != "" && strings.Contains(source, open) && !answered:
		return constrain.Optional(constrain.Sequence(w.thoughts(open), blank))
	}
	return constrain.Form{}
}

// begun returns the form of any answer in which every call that begins is one of calls, or a bare
// one of these tools.
func (w *writer) begun(at place, calls constrain.Form, names []string) constrain.Form {
	open := w.think[0]
	mark := w.mark(w.writing.open + w.writing.each)
	bare := w.mark(cmp.Or(w.writing.bare, w.writing.each))
	if bare == mark {
		bare = ""
	}
	text := w.free(open, mark, bare)
	var parts []constrain.Form // alternate with free text
	if open != "" {
		parts = append(parts, w.thoughts(open))
	}
	for _, skip := range w.skip { // free text may lack the control tokens in them
		parts = append(parts, w.literal(skip))
	}
	var whole []constrain.Form // alternatives for the last message
	if mark != "" {
		parts = append(parts, calls)
		if bare != "" {
			parts = append(parts, w.bare(names))
		}
	} else {
		begin, _, _ := strings.Cut(w.writing.each, "@")
		for _, lines := range blanks {
			for _, name := range slices.Sorted(maps.Keys(w.tools)) {
				text.Begins = append(text.Begins, lines+strings.ReplaceAll(begin, "$", quotedName(name)))
			}
		}
		whole = append(whole, constrain.Sequence(blank, calls))
	}
	whole = append(whole, text.Form())
	if open != "" { // reasoning may be cut off
		whole = append(whole, constrain.Sequence(text.Form(), w.reasoning(open)))
	}
	form := constrain.OneOf(whole...)
	if parts != nil {
		form = constrain.Sequence(constrain.Many(constrain.Sequence(text.Form(), constrain.OneOf(parts...)), 0), form)
	}
	if at == inReasoning {
		form = constrain.OneOf(constrain.Sequence(w.thoughts(""), form), w.reasoning(""))
	}
	return form
}

// mark returns the mark that begins a call in a notation; "" if a call is a whole message.
func (w *writer) mark(notation string) string {
	for _, c := range w.Format.calls {
		if c.open != "" && strings.HasPrefix(notation, c.open) {
			return c.open
		}
	}
	return ""
}

// inChannels returns the form of an answer whose messages each stand in a channel.
func (w *writer) inChannels(may bool, calls constrain.Form, forced, kept bool, answer constrain.Form) constrain.Form {
	c := w.channels
	text := w.free(c.ends...).Form()
	open := func(channel string) constrain.Form { return w.literal(strings.Replace(c.head, "$", channel, 1)) }
	message := func(channel string) constrain.Form { // with the start of the next message
		return constrain.Sequence(open(channel), text, w.literal(c.ends[0]+startMark+"assistant"))
	}
	before, ends := []constrain.Form{message(c.thought)}, []constrain.Form{}
	if may {
		ends = append(ends, calls)
	}
	switch {
	case forced:
	case kept:
		ends = append(ends, constrain.Sequence(open(c.answer), answer))
	default:
		before = append(before, message(c.aside))
		for _, channel := range slices.Compact([]string{c.answer, c.aside, c.thought}) { // the last message may be cut off
			ends = append(ends, constrain.Sequence(open(channel), text))
		}
	}
	return constrain.Sequence(constrain.Many(constrain.OneOf(before...), 0), constrain.OneOf(ends...))
}
