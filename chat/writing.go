package chat

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/smelt-ml/smelt/constrain"
)

// writing is the notation in which calls are written: $ stands for the tool's name, # for a number,
// @ for the arguments.
type writing struct {
	open, each, between, close string
	or                         string   // an alternative to each
	bare                       string   // a call outside of open and close, which models write too; each if ""
	members                    *members // notation of the arguments if they are no JSON object
	alone                      bool     // one call per message; without a mark, the message begins with the call
}

// members is the notation of arguments that are written one by one: $ stands for the key, @ for the
// value, % for the name of the value's JSON type.
type members struct {
	text    string // for a string without quotes; "" if strings are written as JSON
	json    string
	until   string    // mark that ends an unquoted string
	wrap    [2]string // marks that may stand around an unquoted string, which then contains until; "" if there are none
	between string
}

var pythonMembers = &members{json: "$=@", between: ", "}

// each returns the notation of one call, from its mark to its end tag.
func (t *tags) each(mark, behindName string) string { return mark + "$" + behindName + "@" + t.end }

// members returns the notation of arguments with the given texts between key and value, on both
// sides of the value, and behind it.
func (t *tags) members(between, around, behind string) *members {
	write := func(open string) string {
		return t.key + "$" + t.keyEnd + between + open + around + "@" + around + t.valueEnd + behind
	}
	label := ""
	if t.labels {
		label = "%"
	}
	return &members{text: write(t.text), json: write(label + t.json), until: t.valueEnd, wrap: t.wrap}
}

// written allows JSON in calls only as Python writes it or without spaces. With free white space a
// model that has lost its way can generate spaces without end.
var written = constrain.Options{OneSpace: true}

// writer builds forms of a model's output.
type writer struct {
	*Format
	controls map[string]int32 // the format's marks that are control tokens of this vocabulary
	tools    tools
}

// literal returns the form of a text; marks in it become their control tokens.
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

// free returns the form of any text without these marks; a mark that contains a control token is
// excluded by that token.
func (w *writer) free(marks ...string) constrain.Free {
	f := constrain.Free{Tokens: true}
next:
	for _, m := range marks {
		for _, control := range slices.Sorted(maps.Keys(w.controls)) {
			if strings.Contains(m, control) {
				f.WithoutTokens = append(f.WithoutTokens, w.controls[control])
				continue next
			}
		}
		if m != "" {
			f.Without = append(f.Without, m)
		}
	}
	return f
}

// reasoning returns the form of reasoning behind the mark open, without the mark that ends it. It
// contains no mark that would end it otherwise.
func (w *writer) reasoning(open string) constrain.Form {
	marks := []string{w.think[1]}
	if w.within {
		for _, m := range append(w.opens(), w.skip...) {
			for _, control := range w.Format.controls { // one exclusion for all marks that begin with it
				if strings.HasPrefix(m, control) {
					m = control
				}
			}
			if !slices.Contains(marks, m) {
				marks = append(marks, m)
			}
		}
	}
	return constrain.Sequence(w.literal(open), w.free(marks...).Form())
}

// thoughts returns the form of reasoning behind the mark open, with the mark that ends it.
func (w *writer) thoughts(open string) constrain.Form {
	return constrain.Sequence(w.reasoning(open), w.literal(w.think[1]))
}

var (
	blanks = []string{"", "\n", "\n\n"} // line ends allowed before an answer
	blank  = constrain.OneOf(constrain.Literal(blanks[0]), constrain.Literal(blanks[1]), constrain.Literal(blanks[2]))
	number = func() constrain.Form {
		var digits []constrain.Form
		for d := range 10 {
			digits = append(digits, constrain.Literal(fmt.Sprint(d)))
		}
		return constrain.Many(constrain.OneOf(digits...), 1)
	}()
)

// fill returns the form of a notation with its placeholders filled; behind a quotation mark, name
// is escaped as JSON.
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

// quotedName returns a name as it stands inside a JSON string.
func quotedName(name string) string {
	quoted, _ := marshal(name) // a string always marshals
	return string(quoted[1 : len(quoted)-1])
}

// plain reports whether every notation can write a name without quotes.
func plain(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(c rune) bool { return !inName(c) }) && (name[0] == '_' || name[0] >= 0x80 || unicode.IsLetter(rune(name[0])))
}

// call returns the form of one call of a tool, without the texts around and between calls.
func (w *writer) call(d *declaration) (constrain.Form, error) {
	c := w.channels
	toPerson := c != nil && strings.HasPrefix(w.writing.each, c.head) && slices.Contains(c.people, d.name)
	if inJSON := strings.Contains(w.writing.each, `: "$"`); toPerson || !inJSON && !plain(d.name) {
		return constrain.Form{}, errors.New("the model's call format cannot express its name")
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

// objectSchema returns a tool's schema restricted to objects; a tool without a schema takes no
// arguments.
func objectSchema(raw json.RawMessage) ([]byte, error) {
	if raw == nil {
		return []byte(`{"type": "object", "maxProperties": 0}`), nil
	}
	keys, values, err := object(raw)
	if err != nil {
		return nil, fmt.Errorf("parameters: %w", err)
	}
	if slices.Contains(keys, "type") {
		if string(values["type"]) != `"object"` {
			return nil, fmt.Errorf("parameters of type %s: want object", values["type"])
		}
		return raw, nil
	}
	rest := bytes.TrimSpace(raw)[1:]
	if len(keys) > 0 {
		rest = append([]byte(", "), rest...)
	}
	return append([]byte(`{"type": "object"`), rest...), nil
}

// object decodes a JSON object and returns its keys in order.
func object(raw json.RawMessage) (keys []string, values map[string]json.RawMessage, err error) {
	if err := json.Unmarshal(raw, &values); err != nil || values == nil {
		return nil, nil, errors.Join(errors.New("want a JSON object"), err)
	}
	seen := make(map[string]bool, len(values))
	d := json.NewDecoder(bytes.NewReader(raw))
	_, _ = d.Token() // cannot fail: Unmarshal has read an object
	for d.More() {
		key, _ := d.Token()
		var value json.RawMessage
		_ = d.Decode(&value)
		if name, ok := key.(string); ok && !seen[name] {
			seen[name] = true
			keys = append(keys, name)
		}
	}
	return keys, values, nil
}

// annotations are the keywords that do not restrict a value.
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

const maxMembers = 400 // properties of a tool; the form has a part for each pair of them

// membersOf returns the form of arguments that are written one by one, in the schema's order.
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
		return none, fmt.Errorf("parameters: %w", err)
	}
	var names []string
	var properties map[string]json.RawMessage
	if s.Properties != nil {
		if names, properties, err = object(s.Properties); err != nil {
			return none, fmt.Errorf("parameters: properties: %w", err)
		}
	}
	if s.MaxProperties != nil && *s.MaxProperties < len(names) {
		odd = "maxProperties"
	}
	if odd != "" {
		return none, fmt.Errorf("parameters: the model's call format cannot express the keyword %s", odd)
	}
	for _, r := range s.Required {
		if _, ok := properties[r]; !ok {
			return none, fmt.Errorf("parameters: %q is required, but not among the properties", r)
		}
	}
	if len(names) > maxMembers {
		return none, fmt.Errorf("parameters: %d properties, more than the %d that the model's call format is constrained for", len(names), maxMembers)
	}
	m := w.writing.members
	var each []constrain.Form
	for _, name := range names {
		if !plain(name) {
			return none, fmt.Errorf("parameter %q: the model's call format cannot express its name", name)
		}
		if string(properties[name]) == "false" {
			return none, fmt.Errorf("parameter %s: the schema false allows no value", name)
		}
		var value constrain.Form
		pattern := m.json
		if m.text != "" && isText(properties[name]) {
			pattern = m.text
			if value, err = w.text(properties[name]); err != nil {
				return none, fmt.Errorf("parameter %s: %w", name, err)
			}
		} else {
			value = constrain.Schema("tool "+d.name, schema, "/properties/"+strings.NewReplacer("~", "~0", "/", "~1").Replace(name), written)
		}
		if strings.Contains(pattern, "%") {
			each = append(each, w.labelled(pattern, name, kindsOf(properties[name]), value))
			continue
		}
		each = append(each, w.fill(pattern, name, value))
	}
	required := make([]bool, len(names))
	for i, name := range names {
		required[i] = slices.Contains(s.Required, name)
	}
	return list(each, required, w.literal(m.between)), nil
}

// labelled returns the form of an argument behind the name of its type, which is one of kinds. A
// string among them is written as JSON, with the name of another type.
func (w *writer) labelled(pattern, name string, kinds []string, value constrain.Form) constrain.Form {
	before, behind, _ := strings.Cut(pattern, "%")
	var labels []constrain.Form
	for _, label := range []string{"number", "boolean", "null", "object", "array"} {
		if kinds == nil || slices.Contains(kinds, label) || slices.Contains(kinds, "string") || label == "number" && slices.Contains(kinds, "integer") {
			labels = append(labels, constrain.Literal(label))
		}
	}
	return constrain.Sequence(w.fill(before, name, value), constrain.OneOf(labels...), w.fill(behind, name, value))
}

// text returns the form of a string by its schema, written without quotes up to a mark.
func (w *writer) text(schema json.RawMessage) (constrain.Form, error) {
	until, wrap := w.writing.members.until, w.writing.members.wrap
	if odd, err := unknownKeyword(schema, "type", "enum", "const"); err != nil || odd != "" {
		return constrain.Form{}, errors.Join(fmt.Errorf("the model's call format cannot express the keyword %s", odd), err)
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
	switch {
	case values == nil && wrap[0] == "":
		return constrain.Free{Without: []string{until}}.Form(), nil
	case values == nil:
		wrapped := constrain.Sequence(constrain.Literal(wrap[0]), constrain.Free{Without: wrap[1:]}.Form(), constrain.Literal(wrap[1]))
		return constrain.OneOf(constrain.Free{Without: []string{until, wrap[0]}}.Form(), wrapped), nil
	}
	var words []constrain.Form
	for _, v := range values {
		if word, ok := v.(string); ok && !strings.Contains(word, until) {
			words = append(words, constrain.Literal(word))
		}
	}
	return constrain.OneOf(words...), nil
}

// list returns the form of a list in a fixed order with separators; items that are not required may
// be missing.
func list(each []constrain.Form, required []bool, between constrain.Form) constrain.Form {
	leading := func(from int) constrain.Form { // items behind a first one
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

// calls returns the form of one or more calls of these tools; of exactly one if alone is set.
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

// bare returns the form of one bare call. [writer.calls] has found that the tools can be written.
func (w *writer) bare(names []string) constrain.Form {
	var each []constrain.Form
	for _, name := range names {
		arguments, _ := w.arguments(w.tools[name])
		each = append(each, w.fill(cmp.Or(w.writing.bare, w.writing.each), name, arguments))
	}
	return constrain.OneOf(each...)
}

// sorted returns the names of the tools that may be called, in order; only that one if only is set.
func (w *writer) sorted(only string) []string {
	if only != "" {
		return []string{only}
	}
	return slices.Sorted(maps.Keys(w.tools))
}
