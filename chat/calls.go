package chat

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// tools maps the name of each tool that may be called to its declaration.
type tools map[string]*declaration

// declaration is a parsed tool declaration.
type declaration struct {
	name       string
	strict     bool            // calls must match the schema, else Constraint fails
	parameters json.RawMessage // a JSON Schema; nil without one
	properties map[string]json.RawMessage
}

func toolsOf(declared []json.RawMessage) tools {
	all := tools{}
	for _, raw := range declared {
		raw, err := tool(raw)
		if err != nil {
			continue // Render returns the error
		}
		var t struct {
			Function struct {
				Name       string
				Strict     bool
				Parameters json.RawMessage
			}
		}
		if json.Unmarshal(raw, &t) != nil {
			continue
		}
		d := &declaration{name: t.Function.Name, strict: t.Function.Strict}
		var schema struct{ Properties map[string]json.RawMessage }
		if p := t.Function.Parameters; len(p) > 0 && string(p) != "null" {
			d.parameters = p
			if json.Unmarshal(p, &schema) == nil {
				d.properties = schema.Properties
			}
		}
		all[d.name] = d
	}
	return all
}

// kinds returns the JSON types that the schema gives an argument, nil for any; declared reports
// whether the schema has the argument.
func (t tools) kinds(tool, argument string) (kinds []string, declared bool) {
	d := t[tool]
	if d == nil {
		return nil, false
	}
	raw, declared := d.properties[argument]
	return kindsOf(raw), declared
}

// kindsOf returns the JSON types that a schema allows; nil for any.
func kindsOf(raw json.RawMessage) (kinds []string) {
	var schema struct {
		Type         any
		Const        json.RawMessage
		Enum         []json.RawMessage
		AnyOf, OneOf []json.RawMessage
	}
	if json.Unmarshal(raw, &schema) != nil {
		return nil
	}
	switch typ := schema.Type.(type) {
	case string:
		return []string{typ}
	case []any:
		for _, one := range typ {
			kinds = append(kinds, fmt.Sprint(one))
		}
		return kinds
	}
	values := schema.Enum
	if schema.Const != nil {
		values = append(values, schema.Const)
	}
	for _, value := range values {
		kinds = append(kinds, kindOf(value))
	}
	for _, one := range append(schema.AnyOf, schema.OneOf...) {
		more := kindsOf(one)
		if more == nil {
			return nil
		}
		kinds = append(kinds, more...)
	}
	return kinds
}

// kindOf returns the type of a JSON value.
func kindOf(value json.RawMessage) string {
	switch value[0] {
	case '"':
		return "string"
	case '{':
		return "object"
	case '[':
		return "array"
	case 't', 'f':
		return "boolean"
	case 'n':
		return "null"
	}
	return "number"
}

// onlyText reports whether these types are string alone.
func onlyText(kinds []string) bool {
	return kinds != nil && !slices.ContainsFunc(kinds, func(k string) bool { return k != "string" })
}

func isText(schema json.RawMessage) bool { return onlyText(kindsOf(schema)) }

// jsonValue decodes the JSON value at the beginning of text, behind white space. The value's first
// byte must be one of opens, unless opens is empty; n is the number of bytes read.
func jsonValue(text string, opens string) (raw json.RawMessage, n int, v verdict) {
	skip := spaces(text)
	if skip == len(text) {
		return nil, 0, more
	}
	if opens != "" && strings.IndexByte(opens, text[skip]) < 0 {
		return nil, 0, never
	}
	d := json.NewDecoder(strings.NewReader(text[skip:]))
	switch err := d.Decode(&raw); {
	case err == nil:
		return raw, skip + int(d.InputOffset()), found
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return nil, 0, more
	}
	return nil, 0, never
}

// jsonCalls reads {"name", "arguments"}, or a list of such objects.
func jsonCalls(text string, _ tools, end bool) ([]ToolCall, int, verdict) {
	if !mayBeCall(text) {
		return nil, 0, never
	}
	return objects(text, end, jsonCall)
}

// keyedCalls reads {NAME: ARGUMENTS}, or a list of such objects.
func keyedCalls(text string, _ tools, end bool) ([]ToolCall, int, verdict) {
	return objects(text, end, func(raw json.RawMessage) (ToolCall, bool) {
		keys, values, err := object(raw)
		if err != nil || len(keys) != 1 {
			return ToolCall{}, false
		}
		return ToolCall{Name: keys[0], Arguments: argumentsText(values[keys[0]])}, keys[0] != ""
	})
}

// objects reads a call written as an object, or a list of such objects.
func objects(text string, end bool, one func(json.RawMessage) (ToolCall, bool)) ([]ToolCall, int, verdict) {
	raw, n, v := jsonValue(text, "{[")
	if v == never { // Python's notation, as templates that write a call without tojson teach it
		l := newLiterals(text)
		if raw, n, v = json.RawMessage(l.value()), l.at, l.v; v == never || !json.Valid(raw) && v == found {
			return nil, 0, never
		}
	}
	if v == more && end { // the complete calls of a list that is cut off
		if raw = completeItems(text); raw != nil {
			n, v = len(text), found
		}
	}
	if v == more {
		return nil, 0, more
	}
	list := []json.RawMessage{raw}
	if raw[0] == '[' {
		if json.Unmarshal(raw, &list) != nil || len(list) == 0 {
			return nil, 0, never
		}
	}
	var calls []ToolCall
	for _, raw := range list {
		call, ok := one(raw)
		if !ok {
			return nil, 0, never
		}
		calls = append(calls, call)
	}
	return calls, n, found
}

// completeItems returns the complete items of a JSON list that is cut off; nil if there is none.
func completeItems(text string) json.RawMessage {
	d := json.NewDecoder(strings.NewReader(text))
	if token, err := d.Token(); err != nil || token != json.Delim('[') {
		return nil
	}
	var list []string
	for d.More() {
		var item json.RawMessage
		if d.Decode(&item) != nil {
			break
		}
		list = append(list, string(item))
	}
	if list == nil {
		return nil
	}
	return json.RawMessage("[" + strings.Join(list, ", ") + "]")
}

// callMembers are the members that the object of a call can begin with. An object with any other
// first member is an answer in JSON, which is streamed without waiting for its end.
var callMembers = []string{"name", "type", "function", "id", "arguments", "parameters", "tool_name", "tool_call_id"}

func mayBeCall(text string) bool {
	rest := strings.TrimLeft(text, space)
	rest = strings.TrimLeft(strings.TrimPrefix(rest, "["), space)
	if rest == "" {
		return true
	}
	rest, object := strings.CutPrefix(rest, "{")
	rest = strings.TrimLeft(rest, space)
	if !object || rest == "" {
		return object
	}
	mark := rest[:1]
	quoted := mark == `"` || mark == "'"
	name, _, _ := strings.Cut(rest[1:], mark)
	return quoted && slices.ContainsFunc(callMembers, func(member string) bool { return strings.HasPrefix(member, name) })
}

func jsonCall(raw json.RawMessage) (ToolCall, bool) {
	var c struct {
		ID         string          `json:"id"`
		Name       string          `json:"name"`
		ToolCallID string          `json:"tool_call_id"`
		ToolName   string          `json:"tool_name"`
		Function   json.RawMessage `json:"function"`
		Arguments  json.RawMessage `json:"arguments"`
		Parameters json.RawMessage `json:"parameters"`
	}
	if json.Unmarshal(raw, &c) != nil {
		return ToolCall{}, false
	}
	if c.Name == "" {
		c.Name = c.ToolName
	}
	if c.Name == "" && len(c.Function) > 0 {
		switch c.Function[0] {
		case '{':
			return jsonCall(c.Function)
		case '"':
			_ = json.Unmarshal(c.Function, &c.Name) // the first byte is a quote, so this is a string
		}
	}
	arguments := c.Arguments
	if arguments == nil {
		arguments = c.Parameters
	}
	return ToolCall{ID: cmp.Or(c.ID, c.ToolCallID), Name: c.Name, Arguments: argumentsText(arguments)}, c.Name != ""
}

// argumentsText returns arguments as they were written; of a JSON string it returns the content.
func argumentsText(raw json.RawMessage) string {
	var text string
	switch {
	case len(raw) == 0 || string(raw) == "null":
		return "{}"
	case raw[0] == '"' && json.Unmarshal(raw, &text) == nil:
		return argumentsOf(text)
	}
	return string(raw)
}

// argumentsOf returns the arguments that a text has: none if it is empty or null.
func argumentsOf(text string) string {
	if trimmed := strings.Trim(text, space); trimmed == "" || trimmed == "null" {
		return "{}"
	}
	return text
}

// mistralCalls reads a list of calls as JSON, or NAME[CALL_ID]ID[ARGS]{…}, in which the marks are
// optional.
func mistralCalls(text string, tools tools, end bool) ([]ToolCall, int, verdict) {
	if calls, n, v := jsonCalls(text, tools, end); v != never {
		return calls, n, v
	}
	s := &scanner{text: text, v: found}
	call := ToolCall{Name: s.word(inName)}
	if s.optional("[CALL_ID]") {
		call.ID = s.word(inName)
	}
	s.optional("[ARGS]")
	call.Arguments = s.object()
	return []ToolCall{call}, s.at, s.v
}

// deepseekCall reads function<｜tool▁sep｜>NAME with arguments in a ```json block, or
// NAME<｜tool▁sep｜> with bare arguments.
func deepseekCall(text string, _ tools, _ bool) ([]ToolCall, int, verdict) {
	const separator, fence, open = "<｜tool▁sep｜>", "```", "```json"
	s := &scanner{text: text, v: found}
	call := ToolCall{Name: s.word(inName)}
	s.expect(separator)
	if call.Name == "function" && s.peek() != '{' {
		call.Name = s.word(inName)
		s.expect(open)
		call.Arguments = s.object()
		s.expect(fence)
	} else {
		call.Arguments = s.object()
	}
	return []ToolCall{call}, s.at, s.v
}

// kimiCall reads functions.NAME:NUMBER<|tool_call_argument_begin|> and arguments. The text before
// the mark is the call's ID.
func kimiCall(text string, _ tools, _ bool) ([]ToolCall, int, verdict) {
	s := &scanner{text: text, v: found}
	call := ToolCall{ID: s.word(func(c rune) bool { return inName(c) || c == ':' })}
	s.expect("<|tool_call_argument_begin|>")
	call.Arguments = s.object()
	call.Name, _, _ = strings.Cut(strings.TrimPrefix(call.ID, "functions."), ":")
	return []ToolCall{call}, s.at, s.v
}

// solarCall reads ID<|tool_call:name|>NAME<|tool_call:args|> and arguments.
func solarCall(text string, _ tools, _ bool) ([]ToolCall, int, verdict) {
	s := &scanner{text: text, v: found}
	call := ToolCall{ID: s.word(inName)}
	s.expect("<|tool_call:name|>")
	call.Name = s.word(inName)
	s.expect("<|tool_call:args|>")
	call.Arguments = s.object()
	return []ToolCall{call}, s.at, s.v
}

// functionaryCall reads NAME> and arguments.
func functionaryCall(text string, _ tools, _ bool) ([]ToolCall, int, verdict) {
	s := &scanner{text: text, v: found}
	call := ToolCall{Name: s.word(inName)}
	s.expect(">")
	call.Arguments = s.object()
	return []ToolCall{call}, s.at, s.v
}

// objectWriter writes a JSON object.
type objectWriter struct{ b bytes.Buffer }

func (w *objectWriter) key(name string) {
	if w.b.Len() > 0 {
		w.b.WriteString(", ")
	}
	w.text(name)
	w.b.WriteString(": ")
}

func (w *objectWriter) raw(value string) { w.b.WriteString(value) }

func (w *objectWriter) text(value string) {
	raw, _ := marshal(value) // a string always marshals
	w.b.Write(raw)
}

func (w *objectWriter) done() string { return "{" + w.b.String() + "}" }

// scanner reads a text from its beginning. v stays found until a read fails; later reads do
// nothing.
type scanner struct {
	text string
	at   int
	v    verdict
}

func (s *scanner) stop(v verdict) string {
	if s.v == found {
		s.v = v
	}
	return ""
}

// peek skips white space and returns the next byte, or 0 at the end of the text.
func (s *scanner) peek() byte {
	if s.v != found {
		return 0
	}
	s.at += spaces(s.text[s.at:])
	if s.at == len(s.text) {
		s.stop(more)
		return 0
	}
	return s.text[s.at]
}

// optional skips white space, consumes mark if it is next, and reports whether it was.
func (s *scanner) optional(mark string) bool { return s.peek() != 0 && s.next(mark) }

// next consumes mark if it is next, and reports whether it was.
func (s *scanner) next(mark string) bool {
	if s.v != found {
		return false
	}
	switch begins(s.text[s.at:], mark) {
	case found:
		s.at += len(mark)
		return true
	case more:
		s.stop(more)
	}
	return false
}

// until returns the text before mark and consumes both.
func (s *scanner) until(mark string) string {
	if s.v != found {
		return ""
	}
	before, _, ok := strings.Cut(s.text[s.at:], mark)
	if !ok {
		return s.stop(more)
	}
	s.at += len(before) + len(mark)
	return before
}

func (s *scanner) expect(mark string) {
	if !s.optional(mark) {
		s.stop(never)
	}
}

// inName reports whether c may be part of a name.
func inName(c rune) bool {
	return unicode.IsLetter(c) || unicode.IsNumber(c) || strings.ContainsRune("_.-", c)
}

// word returns the longest run of at least one character for which in holds.
func (s *scanner) word(in func(rune) bool) string {
	if s.peek() == 0 {
		return ""
	}
	rest := s.text[s.at:]
	n := strings.IndexFunc(rest, func(c rune) bool { return !in(c) })
	switch {
	case n < 0 || !utf8.FullRuneInString(rest[n:]): // the word may continue
		return s.stop(more)
	case n == 0:
		return s.stop(never)
	}
	s.at += n
	return rest[:n]
}

// object reads a JSON object.
func (s *scanner) object() string {
	if s.v != found {
		return ""
	}
	raw, n, v := jsonValue(s.text[s.at:], "{")
	s.at += n
	if v != found {
		return s.stop(v)
	}
	return string(raw)
}

// literals translates values in a notation like Python's into JSON.
type literals struct {
	scanner
	depth int
	quote string // a string delimiter besides ' and ", without escapes
}

func newLiterals(text string) *literals { return &literals{scanner: scanner{text: text, v: found}} }

const maxLiterals = 1000 // nesting depth of lists and objects

// name reads a name that does not begin with a digit, a minus or a dot.
func (l *literals) name() string {
	if c := l.peek(); c == '-' || c == '.' || c >= '0' && c <= '9' {
		return l.stop(never)
	}
	return l.word(inName)
}

var words = map[string]string{"true": "true", "false": "false", "none": "null", "null": "null"}

// value returns the next value as JSON.
func (l *literals) value() string {
	if l.depth++; l.depth > maxLiterals {
		return l.stop(never)
	}
	defer func() { l.depth-- }()
	c := l.peek()
	switch {
	case l.v != found:
		return ""
	case l.isQuote(c):
		return l.quoted()
	case l.v != found: // an incomplete quotation mark
		return ""
	case c == '[' || c == '(':
		l.at++
		end := map[byte]byte{'[': ']', '(': ')'}[c]
		return "[" + l.items(end, l.value) + "]"
	case c == '{':
		l.at++
		return "{" + l.items('}', func() string {
			key := l.key()
			l.expect(":")
			return key + ": " + l.value()
		}) + "}"
	case c == '-' || c >= '0' && c <= '9':
		rest := strings.TrimLeft(l.text[l.at:], "+-.eE0123456789")
		if rest == "" { // the number may continue
			return l.stop(more)
		}
		n := l.text[l.at : len(l.text)-len(rest)]
		if !json.Valid([]byte(n)) {
			return l.stop(never)
		}
		l.at += len(n)
		return n
	}
	word := l.name()
	if l.v != found {
		return ""
	}
	value, ok := words[strings.ToLower(word)]
	if !ok {
		return l.stop(never)
	}
	return value
}

// isQuote reports whether a string begins at the current byte, which is c.
func (l *literals) isQuote(c byte) bool {
	if l.v != found || c == '"' || c == '\'' {
		return l.v == found
	}
	v := never
	if l.quote != "" {
		v = begins(l.text[l.at:], l.quote)
	}
	if v == more {
		l.stop(more)
	}
	return v == found
}

// key returns an object's key as JSON; its quotes are optional.
func (l *literals) key() string {
	if l.isQuote(l.peek()) {
		return l.quoted()
	}
	name, _ := marshal(l.name())
	return string(name)
}

// items reads comma-separated items up to the byte end and joins the results of each.
func (l *literals) items(end byte, each func() string) string {
	var list []string
	for l.peek() != end && l.v == found {
		list = append(list, each())
		if l.peek() == ',' {
			l.at++
		} else if l.v == found && l.peek() != end {
			l.stop(never)
		}
	}
	if l.v == found {
		l.at++
	}
	return strings.Join(list, ", ")
}

var literalEscapes = map[byte]string{'n': "\n", 't': "\t", 'r': "\r", '\\': `\`, '\'': "'", '"': `"`, '\n': "", '/': "/", 'b': "\b", 'f': "\f"}

// escaped decodes x and 2 hexadecimal digits, u and 4, or U and 8; n is the number of bytes read, 0
// for none of these.
func escaped(text string) (r rune, n int) {
	n = 1 + map[byte]int{'x': 2, 'u': 4, 'U': 8}[text[0]]
	if n == 1 || n > len(text) {
		return 0, 0
	}
	v, err := strconv.ParseUint(text[1:n], 16, 32)
	if err != nil || v > unicode.MaxRune {
		return 0, 0
	}
	return rune(v), n
}

func (l *literals) quoted() string {
	out := &objectWriter{}
	rest := l.text[l.at:]
	if l.quote != "" && strings.HasPrefix(rest, l.quote) {
		text, _, ok := strings.Cut(rest[len(l.quote):], l.quote)
		if !ok {
			return l.stop(more)
		}
		l.at += len(text) + 2*len(l.quote)
		out.text(text)
		return out.b.String()
	}
	mark := rest[:1]
	if v := begins(rest, strings.Repeat(mark, 3)); v == more && rest != mark && len(rest) < 3 {
		return l.stop(more)
	} else if v == found {
		mark = strings.Repeat(mark, 3)
	}
	var b strings.Builder
	for i := len(mark); i < len(rest); i++ {
		if strings.HasPrefix(rest[i:], mark) {
			l.at += i + len(mark)
			out.text(b.String())
			return out.b.String()
		}
		if rest[i] != '\\' {
			b.WriteByte(rest[i])
			continue
		}
		if i++; i == len(rest) {
			break
		}
		if s, ok := literalEscapes[rest[i]]; ok {
			b.WriteString(s)
			continue
		}
		r, n := escaped(rest[i:])
		if high := r; n > 0 && utf16.IsSurrogate(r) { // half a surrogate pair
			r = utf8.RuneError
			if low := rest[i+n:]; strings.HasPrefix(low, `\u`) {
				second, m := escaped(low[1:])
				r = utf16.DecodeRune(high, second)
				n += 1 + m
			}
		}
		if n > 0 && r != utf8.RuneError {
			b.WriteRune(r)
			i += n - 1
			continue
		}
		b.WriteString(rest[i-1 : i+1])
	}
	return l.stop(more)
}

// call reads NAME(KEY=VALUE, …).
func (l *literals) call() ToolCall {
	name := l.name()
	l.expect("(")
	arguments := l.items(')', func() string {
		key, _ := marshal(l.name())
		l.expect("=")
		return string(key) + ": " + l.value()
	})
	return ToolCall{Name: name, Arguments: "{" + arguments + "}"}
}

// pythonList reads [NAME(KEY=VALUE, …), …].
func pythonList(text string, _ tools, end bool) ([]ToolCall, int, verdict) {
	l := newLiterals(text)
	l.expect("[")
	var calls []ToolCall
	l.items(']', func() string {
		if call := l.call(); l.v == found {
			calls = append(calls, call)
		}
		return ""
	})
	switch {
	case l.v == found && len(calls) == 0:
		l.v = never
	case l.v == more && end && calls != nil: // the complete calls of a list that is cut off
		return calls, len(text), found
	}
	return calls, l.at, l.v
}

// pythonCode reads one call, bare, printed or through a method: NAME(…), print(NAME(…)),
// NAME.call(…).
func pythonCode(text string, tools tools, end bool) ([]ToolCall, int, verdict) {
	if calls, n, v := pythonList(text, tools, end); v != never {
		return calls, n, v
	}
	l := newLiterals(text)
	printed := l.optional("print(")
	call := l.call()
	if printed {
		l.expect(")")
	}
	call.Name = strings.TrimSuffix(call.Name, ".call")
	return []ToolCall{call}, l.at, l.v
}

// gemmaCall reads NAME{KEY:VALUE, …}, with strings delimited by <|"|>.
func gemmaCall(text string, _ tools, _ bool) ([]ToolCall, int, verdict) {
	l := newLiterals(text)
	l.quote = `<|"|>`
	name := l.name()
	if l.peek() != '{' {
		l.stop(never)
	}
	arguments := l.value()
	return []ToolCall{{Name: name, Arguments: arguments}}, l.at, l.v
}
