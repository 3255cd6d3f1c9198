package chat

import (
	"encoding/json"
	"slices"
	"strings"
)

// tags is a notation of calls in which each argument stands between tags.
type tags struct {
	nameEnd     string // behind the tool's name; "" where white space or a tag ends the name
	behindName  string // ends what else stands behind the name; "" if nothing does
	key, keyEnd string
	text, json  string // before a text value, and before a JSON value; equal where the schema decides which it is
	labels      bool   // the name of the value's JSON type stands before json
	valueEnd    string
	wrap        [2]string // marks around a text value that contains others; "" if there are none
	end         string
	ownLines    bool // drop a value's first and last line end
}

var (
	// <function=NAME><parameter=KEY>VALUE</parameter></function>
	functionTags = &tags{nameEnd: ">", key: "<parameter=", keyEnd: ">", valueEnd: "</parameter>", end: "</function>", ownLines: true}
	seedTags     = &tags{nameEnd: ">", key: "<parameter=", keyEnd: ">", valueEnd: "</parameter>", end: "</function>"}
	// NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value></tool_call>
	glmTags = &tags{key: "<arg_key>", keyEnd: "</arg_key>", text: "<arg_value>", json: "<arg_value>", valueEnd: "</arg_value>", end: "</tool_call>"}
	// NAME<tool_sep:opensource><arg_key:opensource>KEY</arg_key:opensource><arg_value:opensource>VALUE</arg_value:opensource></tool_call:opensource>
	hunyuanTags = &tags{nameEnd: "<tool_sep:opensource>", key: "<arg_key:opensource>", keyEnd: "</arg_key:opensource>",
		text: "<arg_value:opensource>", json: "<arg_value:opensource>", valueEnd: "</arg_value:opensource>", end: "</tool_call:opensource>"}
	// <invoke name="NAME"><parameter name="KEY">VALUE</parameter></invoke>
	minimaxTags = &tags{nameEnd: `">`, key: `<parameter name="`, keyEnd: `">`, valueEnd: "</parameter>", end: "</invoke>"}
	// <atem:invoke name="NAME"><atem:parameter name="KEY">VALUE</atem:parameter></atem:invoke>
	atemTags = &tags{nameEnd: `">`, key: `<atem:parameter name="`, keyEnd: `">`, valueEnd: "</atem:parameter>", end: "</atem:invoke>"}
	// <function name="NAME"><param name="KEY"><![CDATA[VALUE]]></param></function>
	minicpmTags = &tags{nameEnd: `">`, key: `<param name="`, keyEnd: `">`, valueEnd: "</param>", wrap: [2]string{"<![CDATA[", "]]>"}, end: "</function>"}
	// <|open|>call tool="NAME" index="1"<|sep|><|open|>argument key="KEY" type="string"<|sep|>VALUE<|close|>argument<|sep|><|close|>call<|sep|>
	kimiTags = &tags{nameEnd: `"`, behindName: "<|sep|>", key: `<|open|>argument key="`, keyEnd: `" type="`, text: `string"<|sep|>`, json: `"<|sep|>`, labels: true,
		valueEnd: "<|close|>argument<|sep|>", end: "<|close|>call<|sep|>"}
	// <｜DSML｜invoke name="NAME"><｜DSML｜parameter name="KEY" string="true">VALUE</｜DSML｜parameter></｜DSML｜invoke>
	dsmlTags = &tags{nameEnd: `">`, key: `<｜DSML｜parameter name="`, keyEnd: `" string="`, text: `true">`, json: `false">`,
		valueEnd: "</｜DSML｜parameter>", end: "</｜DSML｜invoke>"}
)

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
	if t.behindName != "" {
		s.until(t.behindName)
	}
	object := &objectWriter{}
	for !s.optional(t.end) && s.v == found {
		s.expect(t.key)
		key := s.until(t.keyEnd)
		object.key(key)
		kinds, declared := tools.kinds(name, key)
		isText := onlyText(kinds)
		switch {
		case t.text != t.json:
			isText = s.optional(t.text)
			switch {
			case t.labels && !isText:
				s.until(t.json)
			case !isText:
				s.expect(t.json)
			}
			kinds = nil // the mark decides
		case t.text != "":
			s.expect(t.text)
		}
		if t.wrap[0] != "" && s.next(t.wrap[0]) {
			object.text(s.until(t.wrap[1]))
			s.expect(t.valueEnd)
			continue
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
