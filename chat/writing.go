package chat

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/smelt-ml/smelt/constrain"
)

// writing is how calls are written: $ stands for a tool's name, # for a number, @ for the
// arguments.
type writing struct {
	open, each, between, close string
	or                         string   // another way to write each
	members                    *members // where the arguments are no JSON object
	alone                      bool     // a message has one call, and begins with it where there is no mark
}

// members are how arguments are written one by one: $ stands for the key, @ for the value.
type members struct {
	text    string // of a string that is written as it is; "" where it is JSON too
	json    string
	until   string // what ends such a string
	between string
}

var pythonMembers = &members{json: "$=@", between: ", "}

// each is a call in this notation, from its mark to the one that ends it.
func (t *tags) each(mark, behindName string) string { return mark + "$" + behindName + "@" + t.end }

// members has texts between a key and its value, on both sides of the value, and behind it.
func (t *tags) members(between, around, behind string) *members {
	write := func(open string) string {
		return t.key + "$" + t.keyEnd + between + open + around + "@" + around + t.valueEnd + behind
	}
	return &members{text: write(t.text), json: write(t.json), until: t.valueEnd}
}

// written is how JSON stands in calls: as Python writes it, or without spaces, and nothing else,
// since a model that has lost its way would go on with white space for ever.
var written = constrain.Options{OneSpace: true}

// writer makes forms of what a model says.
type writer struct {
	*Format
	controls map[string]int32 // those of the format that are control tokens here
	tools    tools
}

// literal is a text in which control tokens stand by their texts.
func (w *writer) literal(text string) constrain.Form {
	var parts []constrain.Form
	for text != "" {
		at, mark := len(text), ""
		for m := range w.controls {
			if i := strings.Index(text, m); i >= 0 && (i < at || i == at && len(m) > len(mark)) {
				at, mark = i, m
			}
		}
		if at > 0 {
			parts = append(parts, constrain.Literal(text[:at]))
		}
		if mark != "" {
			parts = append(parts, constrain.Token(w.controls[mark]))
		}
		text = text[at+len(mark):]
	}
	return constrain.Sequence(parts...)
}

// free is any text without these marks, or without the control token that is part of one.
func (w *writer) free(marks ...string) constrain.Free {
	f := constrain.Free{Tokens: true}
next:
	for _, m := range marks {
		for control, id := range w.controls {
			if strings.Contains(m, control) {
				f.WithoutTokens = append(f.WithoutTokens, id)
				continue next
			}
		}
		if m != "" {
			f.Without = append(f.Without, m)
		}
	}
	return f
}

// between is a text that stands between two marks.
func (w *writer) between(open, close string) constrain.Form {
	return constrain.Sequence(w.literal(open), w.free(close).Form(), w.literal(close))
}

var (
	blanks = []string{"", "\n", "\n\n"} // line ends before an answer
	blank  = constrain.OneOf(constrain.Literal(blanks[0]), constrain.Literal(blanks[1]), constrain.Literal(blanks[2]))
	number = func() constrain.Form {
		var digits []constrain.Form
		for d := range 10 {
			digits = append(digits, constrain.Literal(fmt.Sprint(d)))
		}
		return constrain.Many(constrain.OneOf(digits...), 1)
	}()
)

// fill puts forms in the places of a text: $ is a name, that in quotes as JSON.
func (w *writer) fill(text, name string, arguments constrain.Form) constrain.Form {
	var parts []constrain.Form
	for text != "" {
		at := strings.IndexAny(text, "$@#")
		if at < 0 {
			parts = append(parts, w.literal(text))
			break
		}
		before, place := text[:at], text[at]
		text = text[at+1:]
		switch place {
		case '@':
			parts = append(parts, w.literal(before), arguments)
		case '#':
			parts = append(parts, w.literal(before), number)
		case '$':
			word := name
			if strings.HasSuffix(before, `"`) {
				word = quotedName(name)
			}
			parts = append(parts, w.literal(before), constrain.Literal(word))
		}
	}
	return constrain.Sequence(parts...)
}

// quotedName is how a name stands in a JSON string.
func quotedName(name string) string {
	quoted, _ := marshal(name) // a string always is one in JSON
	return string(quoted[1 : len(quoted)-1])
}

// plain reports whether a name can be written without quotes in every notation.
func plain(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(c rune) bool { return !inName(c) }) && (name[0] == '_' || name[0] >= 0x80 || unicode.IsLetter(rune(name[0])))
}

// call is a call of a tool, without what stands around and between calls.
func (w *writer) call(d *declaration) (constrain.Form, error) {
	if inJSON := strings.Contains(w.writing.each, `: "$"`); !inJSON && !plain(d.name) {
		return constrain.Form{}, errors.New("its name cannot be written in the form of this model's calls")
	}
	arguments, err := w.arguments(d)
	form := w.fill(w.writing.each, d.name, arguments)
	if w.writing.or != "" {
		form = constrain.OneOf(form, w.fill(w.writing.or, d.name, arguments))
	}
	return form, err
}

func (w *writer) arguments(d *declaration) (constrain.Form, error) {
	schema, err := objectSchema(d.parameters)
	if err != nil {
		return constrain.Form{}, err
	}
	if w.writing.members == nil {
		return constrain.Schema("tool "+d.name, schema, "", written), nil
	}
	return w.membersOf(d, schema)
}

// objectSchema is a tool's schema, for objects alone: of a tool that says nothing, an empty one.
func objectSchema(raw json.RawMessage) ([]byte, error) {
	if raw == nil {
		return []byte(`{"type": "object", "maxProperties": 0}`), nil
	}
	keys, values, err := object(raw)
	if err != nil {
		return nil, fmt.Errorf("its parameters: %w", err)
	}
	if slices.Contains(keys, "type") {
		if string(values["type"]) != `"object"` {
			return nil, fmt.Errorf("its parameters are of the type %s: want object", values["type"])
		}
		return raw, nil
	}
	rest := bytes.TrimSpace(raw)[1:]
	if len(keys) > 0 {
		rest = append([]byte(", "), rest...)
	}
	return append([]byte(`{"type": "object"`), rest...), nil
}

// object reads a JSON object in its order.
func object(raw json.RawMessage) (keys []string, values map[string]json.RawMessage, err error) {
	if err := json.Unmarshal(raw, &values); err != nil || values == nil {
		return nil, nil, errors.Join(errors.New("want a JSON object"), err)
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	_, _ = d.Token() // it is an object, as Unmarshal has found
	for d.More() {
		key, _ := d.Token()
		var value json.RawMessage
		_ = d.Decode(&value)
		if name, ok := key.(string); ok && !slices.Contains(keys, name) {
			keys = append(keys, name)
		}
	}
	return keys, values, nil
}

// annotations say nothing about a value.
var annotations = []string{"title", "description", "default", "examples", "example", "$comment", "deprecated", "readOnly", "writeOnly"}

func unknownKeyword(raw json.RawMessage, known ...string) (string, error) {
	keys, _, err := object(raw)
	for _, k := range keys {
		if !slices.Contains(annotations, k) && !slices.Contains(known, k) {
			return k, nil
		}
	}
	return "", err
}

// membersOf are arguments that are written one by one, in the schema's order.
func (w *writer) membersOf(d *declaration, schema []byte) (constrain.Form, error) {
	none := constrain.Form{}
	odd, err := unknownKeyword(schema, "type", "properties", "required", "additionalProperties", "$defs", "definitions", "$schema", "$id", "maxProperties")
	if err != nil {
		return none, err
	}
	var s struct {
		Properties    json.RawMessage
		Required      []string
		MaxProperties *int
	}
	if err := json.Unmarshal(schema, &s); err != nil {
		return none, fmt.Errorf("its parameters: %w", err)
	}
	var names []string
	var properties map[string]json.RawMessage
	if s.Properties != nil {
		if names, properties, err = object(s.Properties); err != nil {
			return none, fmt.Errorf("its parameters: properties: %w", err)
		}
	}
	if s.MaxProperties != nil && *s.MaxProperties < len(names) {
		odd = "maxProperties"
	}
	if odd != "" {
		return none, fmt.Errorf("its parameters: %s cannot be kept in the form of this model's calls", odd)
	}
	for _, r := range s.Required {
		if _, ok := properties[r]; !ok {
			return none, fmt.Errorf("its parameters: %q is required, and no property", r)
		}
	}
	m := w.writing.members
	var each []constrain.Form
	for _, name := range names {
		if !plain(name) {
			return none, fmt.Errorf("its parameter %q cannot be written in the form of this model's calls", name)
		}
		if string(properties[name]) == "false" {
			return none, fmt.Errorf("its parameter %s cannot have a value", name)
		}
		var value constrain.Form
		pattern := m.json
		if m.text != "" && isText(properties[name]) {
			pattern = m.text
			if value, err = w.text(properties[name], m.until); err != nil {
				return none, fmt.Errorf("its parameter %s: %w", name, err)
			}
		} else {
			value = constrain.Schema("tool "+d.name, schema, "/properties/"+strings.NewReplacer("~", "~0", "/", "~1").Replace(name), written)
		}
		each = append(each, w.fill(pattern, name, value))
	}
	required := make([]bool, len(names))
	for i, name := range names {
		required[i] = slices.Contains(s.Required, name)
	}
	return list(each, required, w.literal(m.between)), nil
}

// text is a string by its schema, written as it is up to a mark.
func (w *writer) text(schema json.RawMessage, until string) (constrain.Form, error) {
	if odd, err := unknownKeyword(schema, "type", "enum", "const"); err != nil || odd != "" {
		return constrain.Form{}, errors.Join(fmt.Errorf("%s cannot be kept in the form of this model's calls", odd), err)
	}
	var s struct {
		Enum  []any
		Const any
	}
	if err := json.Unmarshal(schema, &s); err != nil {
		return constrain.Form{}, err
	}
	values := s.Enum
	if s.Const != nil && (s.Enum == nil || slices.Contains(s.Enum, s.Const)) {
		values = []any{s.Const}
	}
	if values == nil {
		return constrain.Free{Without: []string{until}}.Form(), nil
	}
	var words []constrain.Form
	for _, v := range values {
		if word, ok := v.(string); ok && !strings.Contains(word, until) {
			words = append(words, constrain.Literal(word))
		}
	}
	return constrain.OneOf(words...), nil
}

// list is forms in their order with a separator between them, of which some may be left out.
func list(each []constrain.Form, required []bool, between constrain.Form) constrain.Form {
	leading := func(from int) constrain.Form { // those behind another
		var parts []constrain.Form
		for i := from; i < len(each); i++ {
			part := constrain.Sequence(between, each[i])
			if !required[i] {
				part = constrain.Optional(part)
			}
			parts = append(parts, part)
		}
		return constrain.Sequence(parts...)
	}
	var first []constrain.Form
	for i := range each {
		first = append(first, constrain.Sequence(each[i], leading(i+1)))
		if required[i] {
			return constrain.OneOf(first...)
		}
	}
	return constrain.OneOf(append(first, constrain.Form{})...)
}

// calls are one call or more, of these tools.
func (w *writer) calls(names []string, alone bool) (constrain.Form, error) {
	var each []constrain.Form
	for _, name := range names {
		call, err := w.call(w.tools[name])
		if err != nil {
			return constrain.Form{}, fmt.Errorf("tool %s: %w", name, err)
		}
		each = append(each, call)
	}
	form := constrain.OneOf(each...)
	if !alone && !w.writing.alone {
		form = constrain.Sequence(form, constrain.Many(constrain.Sequence(w.literal(w.writing.between), form), 0))
	}
	return constrain.Sequence(w.literal(w.writing.open), form, w.literal(w.writing.close)), nil
}

// sorted are the names of the tools that may be called: one where it must be that.
func (w *writer) sorted(only string) []string {
	if only != "" {
		return []string{only}
	}
	return slices.Sorted(maps.Keys(w.tools))
}
