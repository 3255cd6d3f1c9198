package chat

import (
	"encoding/json"
	"slices"
	"strings"
)

// tags is a notation of calls in which each argument stands between tags.
type tags struct {
	nameEnd     string // behind the tool's name; "" where white space or a tag ends the name
	key, keyEnd string
	text, json  string // before a text value, and before a JSON value; equal where the schema decides which it is
	valueEnd    string
	end         string
	ownLines    bool // drop a value's first and last line end
}

var (
	// <function=NAME><parameter=KEY>VALUE</parameter></function>
	functionTags = &tags{nameEnd: ">", key: "<parameter=", keyEnd: ">", valueEnd: "</parameter>", end: "</function>", ownLines: true}
	// NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value></tool_call>
	glmTags = &tags{key: "<arg_key>", keyEnd: "</arg_key>", text: "<arg_value>", json: "<arg_value>", valueEnd: "</arg_value>", end: "</tool_call>"}
	// <｜DSML｜invoke name="NAME"><｜DSML｜parameter name="KEY" string="true">VALUE</｜DSML｜parameter></｜DSML｜invoke>
	dsmlTags = &tags{nameEnd: `">`, key: `<｜DSML｜parameter name="`, keyEnd: `" string="`, text: `true">`, json: `false">`,
		valueEnd: "</｜DSML｜parameter>", end: "</｜DSML｜invoke>"}
)

// functionCall parses <function=NAME> and the tags behind it.
func functionCall(text string, tools tools, end bool) ([]ToolCall, int, verdict) {
	s := &scanner{text: text, v: found}
	s.expect("<function=")
	if s.v != found {
		return nil, 0, s.v
	}
	calls, n, v := functionTags.read(text[s.at:], tools, end)
	return calls, s.at + n, v
}

// read parses the text behind the mark that precedes a tool's name.
func (t *tags) read(text string, tools tools, end bool) ([]ToolCall, int, verdict) {
	s := &scanner{text: text, v: found}
	s.at = strings.IndexAny(text, space+`<>"`)
	switch s.at {
	case -1:
		return nil, 0, more
	case 0:
		return nil, 0, never
	}
	name := text[:s.at]
	if v := begins(text[s.at:], t.nameEnd); v != found {
		return nil, 0, v
	}
	s.at += len(t.nameEnd)
	object := &objectWriter{}
	for !s.optional(t.end) && s.v == found {
		s.expect(t.key)
		key := s.until(t.keyEnd)
		object.key(key)
		kinds, declared := tools.kinds(name, key)
		isText := onlyText(kinds)
		switch {
		case t.text != t.json:
			if isText = s.optional(t.text); !isText {
				s.expect(t.json)
			}
			kinds = nil // the mark decides
		case t.text != "":
			s.expect(t.text)
		}
		if !isText {
			if raw, ok := t.value(s, kinds, declared, end); ok {
				object.raw(raw)
				continue
			}
		}
		value := s.until(t.valueEnd)
		if t.ownLines {
			value = strings.TrimSuffix(strings.TrimPrefix(value, "\n"), "\n")
		}
		object.text(value)
	}
	return []ToolCall{{Name: name, Arguments: object.done()}}, s.at, s.v
}

// value parses a value and the valueEnd behind it; a string in the value may contain valueEnd. The
// value is JSON, or of a declared argument in Python's notation. ok is false where the text is no
// such value, or is a text by the kinds that the argument may have.
func (t *tags) value(s *scanner, kinds []string, declared, end bool) (raw string, ok bool) {
	if s.v != found {
		return "", false
	}
	text := s.text[s.at:]
	value, n, v := jsonValue(text, "")
	if v == never && declared {
		l := newLiterals(text)
		value, n, v = json.RawMessage(l.value()), l.at, l.v
		if v == found && !json.Valid(value) {
			v = never
		}
	}
	if v == found {
		n += spaces(text[n:])
		v = begins(text[n:], t.valueEnd)
	}
	switch {
	case v == found:
		kind := kindOf(value)
		allowed := slices.ContainsFunc(kinds, func(k string) bool { return k == kind || k == "integer" && kind == "number" })
		if !allowed && slices.Contains(kinds, "string") {
			return "", false
		}
		s.at += n + len(t.valueEnd)
		return string(value), true
	case v == more && !end:
		s.stop(more)
	}
	return "", false
}
