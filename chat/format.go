package chat

import "strings"

// Format is how a kind of models writes reasoning and tool calls.
type Format struct {
	name string
	// in are marks of which one stands in the templates of such models.
	in []string
	// think are what reasoning stands between.
	think [2]string
	calls []callForm
	// channels: everything stands in channels, each with a head.
	channels bool
	// controls are the marks that may be control tokens; others say nothing.
	controls []string
}

// callForm is a way to write calls.
type callForm struct {
	open string // begins calls; "" where they are a message by themselves
	read reader
}

// A reader looks for calls at the beginning of a text; end says that nothing follows. n is how
// much of the text they take. What it finds in a text it finds in the same place of any text
// that goes on from it, unless end was set: so that the pieces in which a text comes do not
// matter.
type reader func(text string, tools tools, end bool) (calls []ToolCall, n int, v verdict)

type verdict uint8

const (
	more  verdict = iota // what is there may become calls
	found                // calls
	never                // it is something else, whatever follows
)

var (
	thinkTags      = [2]string{"<think>", "</think>"}
	hermesControls = []string{"<think>", "</think>", "<tool_call>", "</tool_call>"}
)

// formats are tried in this order; the last is for all others.
var formats = []Format{
	{name: "gpt-oss", in: []string{"<|channel|>"}, channels: true,
		controls: append([]string{channelMark, messageMark, "<|constrain|>"}, endMarks...)},
	{name: "gemma4", in: []string{"<|tool_call>call:"}, think: [2]string{"<|channel>thought", "<channel|>"},
		calls:    []callForm{{"<|tool_call>call:", closed(gemmaCall, "<tool_call|>")}},
		controls: []string{"<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>", `<|"|>`}},
	{name: "gemma", in: []string{"<start_of_turn>"}, think: thinkTags,
		calls: []callForm{{"```tool_code\n", closed(pythonCode, "```")}, {"", wholly(pythonList)}}},
	{name: "mistral", in: []string{"[TOOL_CALLS]", "[INST]"}, think: [2]string{"[THINK]", "[/THINK]"},
		calls:    []callForm{{"[TOOL_CALLS]", mistralCalls}},
		controls: []string{"[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "[THINK]", "[/THINK]"}},
	{name: "llama3", in: []string{"<|start_header_id|>"}, think: thinkTags,
		calls:    []callForm{{"<|python_tag|>", wholly(either(jsonCalls, pythonCode))}, {"", wholly(jsonCalls)}, {"", wholly(pythonList)}},
		controls: []string{"<|python_tag|>", "<think>", "</think>"}},
	{name: "lfm2", in: []string{"<|tool_list_start|>", "<|tool_call_start|>"}, think: thinkTags,
		calls:    []callForm{{"<|tool_call_start|>", closed(pythonList, "<|tool_call_end|>")}, {"", wholly(pythonList)}},
		controls: []string{"<|tool_call_start|>", "<|tool_call_end|>", "<think>", "</think>"}},
	{name: "granite", in: []string{"<|start_of_role|>"}, think: thinkTags,
		calls:    []callForm{{"<|tool_call|>", jsonCalls}, {"<tool_call>", jsonCalls}},
		controls: []string{"<|tool_call|>", "<tool_call>", "<think>", "</think>"}},
	{name: "qwen3-coder", in: []string{"<function="}, think: thinkTags,
		calls: []callForm{{"<tool_call>", closed(taggedCall, "</tool_call>")}, {"<function=", untagged}}, controls: hermesControls},
	{name: "hermes", think: thinkTags,
		calls: []callForm{{"<tool_call>", closed(jsonCalls, "</tool_call>")}}, controls: hermesControls},
}

func (f Format) String() string { return f.name }

// formatOf finds out by a template's source how its model writes.
func formatOf(source string) Format {
	for _, f := range formats {
		for _, mark := range f.in {
			if strings.Contains(source, mark) {
				return f
			}
		}
	}
	return formats[len(formats)-1]
}

const space = " \t\r\n"

func spaces(s string) int { return len(s) - len(strings.TrimLeft(s, space)) }

// begins compares the beginning of a text with what is wanted there: more where the text is
// too short to say.
func begins(text, want string) verdict {
	switch {
	case strings.HasPrefix(text, want):
		return found
	case strings.HasPrefix(want, text):
		return more
	}
	return never
}

// closed reads calls that an end mark follows. At the end of a message it may be missing,
// where it is a token that ends the message.
func closed(read reader, mark string) reader {
	return func(text string, tools tools, end bool) ([]ToolCall, int, verdict) {
		calls, n, v := read(text, tools, end)
		if v != found {
			return nil, 0, v
		}
		n += spaces(text[n:])
		switch v := begins(text[n:], mark); {
		case v == found:
			return calls, n + len(mark), found
		case v == more && end:
			return calls, len(text), found
		default:
			return nil, 0, v
		}
	}
}

// wholly reads calls that a message consists of, perhaps with semicolons between.
func wholly(read reader) reader {
	return func(text string, tools tools, end bool) ([]ToolCall, int, verdict) {
		var all []ToolCall
		at := spaces(text)
		for {
			calls, n, v := read(text[at:], tools, end)
			if v != found {
				return nil, 0, v
			}
			all = append(all, calls...)
			at += n
			at += len(text[at:]) - len(strings.TrimLeft(text[at:], space+";"))
			if at == len(text) {
				if end {
					return all, at, found
				}
				return nil, 0, more
			}
		}
	}
}

// either is what one of two readers finds.
func either(a, b reader) reader {
	return func(text string, tools tools, end bool) ([]ToolCall, int, verdict) {
		if calls, n, v := a(text, tools, end); v != never {
			return calls, n, v
		}
		return b(text, tools, end)
	}
}
