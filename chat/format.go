package chat

import "strings"

// Format is the notation in which a kind of model writes reasoning and tool calls.
type Format struct {
	name string
	// in holds strings that identify the format: a template that contains one has this format.
	in []string
	// think holds the marks before and after reasoning; "" if the format has none.
	think [2]string
	calls []callForm
	// within: a call ends reasoning that has no mark behind it. Without it, a call in reasoning is
	// a part of it.
	within bool
	// skip holds marks without a meaning, which stand around the answer or the calls.
	skip []string
	// channels: every message has a head that names its channel or recipient; nil without heads.
	channels *channels
	// writing is the notation in which a constraint makes the model write calls.
	writing writing
	// unread: calls are written in a way that no reader here knows, so conversations with tools are refused.
	unread bool
	// controls are the marks that can be control tokens; the parser skips all other control tokens.
	controls []string
}

// channels are the heads of messages. A text for a recipient that is no person is a call.
type channels struct {
	head                   string   // $ stands for the name of one of these channels:
	thought, aside, answer string   // reasoning, a text before the end of the turn, and the answer
	people                 []string // recipients that are no tools
	ends                   []string // marks behind a text; the first one where the turn goes on
}

// callForm is one notation of calls.
type callForm struct {
	open  string // mark before the calls; "" if they are a whole message
	read  reader
	close string // mark behind the calls; "" if there is none
}

// closed returns the form of calls between two marks.
func closed(open string, read reader, close string) callForm {
	return callForm{open, before(read, close), close}
}

// A reader parses calls at the beginning of a text and returns the number n of bytes that they
// take; end reports whether the text is complete. Unless end is set, a verdict of found holds for
// every continuation of the text, so that the result does not depend on how the text was split.
type reader func(text string, tools tools, end bool) (calls []ToolCall, n int, v verdict)

type verdict uint8

const (
	more  verdict = iota // may become calls
	found                // are calls
	never                // cannot become calls
)

var (
	thinkTags      = [2]string{"<think>", "</think>"}
	hermesControls = []string{"<think>", "</think>", "<tool_call>", "</tool_call>"}

	mistralCall     = []callForm{{open: "[TOOL_CALLS]", read: mistralCalls}}
	mistralThink    = [2]string{"[THINK]", "[/THINK]"}
	mistralControls = []string{"[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "[THINK]", "[/THINK]"}

	toolCalls = []callForm{closed("<tool_calls>", jsonCalls, "</tool_calls>")}

	glmCall     = []callForm{{"<tool_call>", glmTags.read, glmTags.end}}
	glmControls = append([]string{"<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"}, hermesControls...)

	deepseekCalls = []callForm{{open: "<｜tool▁calls▁begin｜>", read: nothing}, {open: "<｜tool▁calls▁end｜>", read: nothing},
		closed("<｜tool▁call▁begin｜>", deepseekCall, "<｜tool▁call▁end｜>")}
	deepseekControls = []string{"<think>", "</think>", "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>",
		"<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>"}

	gptChannels = &channels{head: "<|channel|>$<|message|>", thought: "analysis", aside: "commentary", answer: "final",
		people: []string{"assistant"}, ends: []string{"<|end|>", "<|call|>", "<|return|>", startMark}}
	museChannels = &channels{head: " to=$<|message|>", thought: "self", aside: "user", answer: "user",
		people: []string{"self", "user"}, ends: []string{"<|eom|>", "<|eot|>", startMark}}

	dsmlCall     = callForm{`<｜DSML｜invoke name="`, dsmlTags.read, dsmlTags.end}
	dsmlControls = []string{"<think>", "</think>", "｜DSML｜"}
)

// hermes is the format of templates without a mark of another.
var hermes = Format{name: "hermes", in: []string{`'<tool_call>\n{"name": "'`}, think: thinkTags, calls: []callForm{closed("<tool_call>", jsonCalls, "</tool_call>")},
	writing: writing{each: "<tool_call>\n{\"name\": \"$\", \"arguments\": @}\n</tool_call>", between: "\n"}, controls: hermesControls}

// formats are tried in this order.
var formats = []Format{
	{name: "gpt-oss", in: []string{"<|channel|>"}, channels: gptChannels,
		writing:  writing{each: " to=functions.$<|channel|>commentary json<|message|>@", or: "<|channel|>commentary to=functions.$ <|constrain|>json<|message|>@", alone: true},
		controls: append([]string{channelMark, messageMark, "<|constrain|>"}, gptChannels.ends...)},
	{name: "gemma4", in: []string{"<|tool_call>call:"}, think: [2]string{"<|channel>thought", "<channel|>"}, skip: []string{"<channel|>"},
		calls:    []callForm{closed("<|tool_call>call:", gemmaCall, "<tool_call|>")},
		writing:  writing{each: "<|tool_call>call:${@}<tool_call|>", members: &members{text: `$:<|"|>@<|"|>`, json: "$:@", until: `<|"|>`, between: ","}},
		controls: []string{"<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>", `<|"|>`}},
	{name: "gemma", in: []string{"<start_of_turn>"}, think: thinkTags,
		calls:   []callForm{closed("```tool_code\n", pythonCode, "```"), {read: wholly(pythonList)}},
		writing: writing{each: "```tool_code\n$(@)\n```", members: pythonMembers, alone: true}},
	{name: "mistral-v11", in: []string{"[ARGS]"}, think: mistralThink, calls: mistralCall,
		writing: writing{each: "[TOOL_CALLS]$[ARGS]@"}, controls: mistralControls},
	{name: "mistral", in: []string{"[TOOL_CALLS]", "[INST]"}, think: mistralThink, calls: mistralCall,
		writing: writing{open: "[TOOL_CALLS][", each: `{"name": "$", "arguments": @}`, between: ", ", close: "]"}, controls: mistralControls},
	{name: "firefunction", in: []string{"functools["},
		calls:   []callForm{{open: "functools", read: jsonCalls}},
		writing: writing{open: "functools[", each: `{"name": "$", "arguments": @}`, between: ", ", close: "]"}},
	{name: "muse-glimmer", in: []string{"# Valid recipients:"}, channels: museChannels,
		calls:    []callForm{closed("<atem:function_calls>", preceded(`<atem:invoke name="`, atemTags.read), "</atem:function_calls>")},
		writing:  writing{each: museChannels.head + "<atem:function_calls>\n" + atemTags.each(`<atem:invoke name="`, "\">\n") + "\n</atem:function_calls>", members: atemTags.members("", "", "\n"), between: "<|eom|><|start|>assistant"},
		controls: append([]string{messageMark, "<atem:function_calls>", "<atem:invoke", "<atem:parameter", "</atem:parameter>", "</atem:invoke>", "</atem:function_calls>"}, museChannels.ends...)},
	{name: "minimax-m3", in: []string{"<mm:think>"}, think: [2]string{"<mm:think>", "</mm:think>"}, unread: true, controls: []string{"<mm:think>", "</mm:think>"}},
	{name: "functionary-v3.1", in: []string{"<{start_tag}={function_name}>"},
		calls:   []callForm{closed("<function=", functionaryCall, "</function>")},
		writing: writing{each: "<function=$>@</function>"}},
	{name: "llama3", in: []string{"<|start_header_id|>"}, think: thinkTags,
		calls:    []callForm{{open: "<|python_tag|>", read: wholly(either(jsonCalls, pythonCode))}, {read: wholly(jsonCalls)}, {read: wholly(pythonList)}},
		writing:  writing{each: `{"name": "$", "parameters": @}`, alone: true},
		controls: []string{"<|python_tag|>", "<think>", "</think>"}},
	{name: "lfm2", in: []string{"<|tool_list_start|>", "<|tool_call_start|>", "List of tools: ["}, think: thinkTags,
		calls:    []callForm{closed("<|tool_call_start|>", pythonList, "<|tool_call_end|>"), {read: wholly(pythonList)}},
		writing:  writing{open: "<|tool_call_start|>[", each: "$(@)", members: pythonMembers, between: ", ", close: "]<|tool_call_end|>"},
		controls: []string{"<|tool_call_start|>", "<|tool_call_end|>", "<think>", "</think>"}},
	hermes, // before granite, since Granite 4 writes calls so
	{name: "granite", in: []string{"<|start_of_role|>"}, think: thinkTags,
		calls:    []callForm{{open: "<|tool_call|>", read: jsonCalls}, {open: "<tool_call>", read: jsonCalls}},
		writing:  writing{open: "<|tool_call|>[", each: `{"name": "$", "arguments": @}`, between: ", ", close: "]"},
		controls: []string{"<|tool_call|>", "<tool_call>", "<think>", "</think>"}},
	{name: "command-r7b", in: []string{"<|START_ACTION|>"}, think: [2]string{"<|START_THINKING|>", "<|END_THINKING|>"},
		skip:     []string{"<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"},
		calls:    []callForm{closed("<|START_ACTION|>", jsonCalls, "<|END_ACTION|>")},
		writing:  writing{open: "<|START_ACTION|>[\n    ", each: `{"tool_call_id": "#", "tool_name": "$", "parameters": @}`, between: ",\n    ", close: "\n]<|END_ACTION|>"},
		controls: []string{"<|START_ACTION|>", "<|END_ACTION|>", "<|START_THINKING|>", "<|END_THINKING|>"}},
	{name: "command-r-plus", in: []string{"Action:\\n```json"},
		calls:   []callForm{closed("Action:\n```json\n", jsonCalls, "```")},
		writing: writing{open: "Action:\n```json\n[\n    ", each: `{"tool_name": "$", "parameters": @}`, between: ",\n    ", close: "\n]\n```"}},
	{name: "deepseek-v4", in: []string{"dsml_token + 'tool_calls>"}, think: thinkTags, within: true,
		calls:   []callForm{{open: "<｜DSML｜tool_calls>", read: nothing}, {open: "</｜DSML｜tool_calls>", read: nothing}, dsmlCall},
		writing: writing{open: "<｜DSML｜tool_calls>\n", each: dsmlTags.each("<｜DSML｜invoke name=\"", "\">\n"), members: dsmlTags.members("", "", "\n"), close: "</｜DSML｜tool_calls>"}, controls: dsmlControls},
	{name: "deepseek-v3.2", in: []string{"｜DSML｜"}, think: thinkTags, within: true,
		calls:   []callForm{{open: "<｜DSML｜function_calls>", read: nothing}, {open: "</｜DSML｜function_calls>", read: nothing}, dsmlCall},
		writing: writing{open: "<｜DSML｜function_calls>\n", each: dsmlTags.each("<｜DSML｜invoke name=\"", "\">\n"), members: dsmlTags.members("", "", "\n"), close: "</｜DSML｜function_calls>"}, controls: dsmlControls},
	{name: "deepseek-v3", in: []string{"'type'] + '<｜tool▁sep｜>", "function<｜tool▁sep｜>"}, think: thinkTags, calls: deepseekCalls,
		writing: writing{open: "<｜tool▁calls▁begin｜>", each: "<｜tool▁call▁begin｜>function<｜tool▁sep｜>$\n```json\n@\n```<｜tool▁call▁end｜>", between: "\n", close: "<｜tool▁calls▁end｜>"}, controls: deepseekControls},
	{name: "deepseek-v3.1", in: []string{"<｜tool▁calls▁begin｜>"}, think: thinkTags, calls: deepseekCalls,
		writing: writing{open: "<｜tool▁calls▁begin｜>", each: "<｜tool▁call▁begin｜>$<｜tool▁sep｜>@<｜tool▁call▁end｜>", close: "<｜tool▁calls▁end｜>"}, controls: deepseekControls},
	{name: "kimi", in: []string{"<|tool_calls_section_begin|>"}, think: thinkTags, within: true,
		calls:    []callForm{{open: "<|tool_calls_section_begin|>", read: nothing}, {open: "<|tool_calls_section_end|>", read: nothing}, {"<|tool_call_begin|>", followed(kimiCall, "<|tool_call_end|>"), "<|tool_call_end|>"}},
		writing:  writing{open: "<|tool_calls_section_begin|>", each: "<|tool_call_begin|>functions.$:#<|tool_call_argument_begin|>@<|tool_call_end|>", close: "<|tool_calls_section_end|>"},
		controls: []string{"<think>", "</think>", "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"}},
	{name: "glm-4.5", in: []string{"</arg_key>\n<arg_value>"}, think: thinkTags, calls: glmCall, within: true,
		writing: writing{each: glmTags.each("<tool_call>", "\n"), members: glmTags.members("\n", "", "\n"), between: "\n"}, controls: glmControls},
	{name: "glm-4.7", in: []string{"<arg_key>"}, think: thinkTags, calls: glmCall, within: true, skip: []string{"<|role_end|>"},
		writing: writing{each: glmTags.each("<tool_call>", ""), members: glmTags.members("", "", "")}, controls: glmControls},
	{name: "seed-oss", in: []string{"<seed:tool_call>"}, think: [2]string{"<seed:think>", "</seed:think>"},
		calls:    []callForm{closed("<seed:tool_call>", preceded("<function=", seedTags.read), "</seed:tool_call>"), {"<function=", followed(seedTags.read, "</seed:tool_call>"), seedTags.end}},
		writing:  writing{each: seedTags.each("<seed:tool_call>\n<function=", ">\n") + "\n</seed:tool_call>", bare: seedTags.each("<function=", ">\n"), members: seedTags.members("", "", "\n"), between: "\n"},
		controls: []string{"<seed:think>", "</seed:think>", "<seed:tool_call>", "</seed:tool_call>"}},
	{name: "qwen3-coder", in: []string{"<function="}, think: thinkTags, within: true,
		calls:   []callForm{closed("<tool_call>", preceded("<function=", functionTags.read), "</tool_call>"), {"<function=", followed(functionTags.read, "</tool_call>"), functionTags.end}},
		writing: writing{each: functionTags.each("<tool_call>\n<function=", ">\n") + "\n</tool_call>", bare: functionTags.each("<function=", ">\n"), members: functionTags.members("", "\n", "\n"), between: "\n"}, controls: hermesControls},
	{name: "hunyuan", in: []string{"HYTK = ':opensource'", "<tool_sep:opensource>"}, think: [2]string{"<think:opensource>", "</think:opensource>"},
		calls: []callForm{{open: "<tool_calls:opensource>", read: nothing}, {open: "</tool_calls:opensource>", read: nothing},
			{"<tool_call:opensource>", hunyuanTags.read, hunyuanTags.end}},
		writing: writing{open: "<tool_calls:opensource>\n", each: hunyuanTags.each("<tool_call:opensource>", hunyuanTags.nameEnd+"\n"), members: hunyuanTags.members("\n", "", "\n"), between: "\n", close: "\n</tool_calls:opensource>"},
		controls: []string{"<think:opensource>", "</think:opensource>", "<tool_calls:opensource>", "</tool_calls:opensource>", "<tool_call:opensource>", "</tool_call:opensource>",
			"<tool_sep:opensource>", "<arg_key:opensource>", "</arg_key:opensource>", "<arg_value:opensource>", "</arg_value:opensource>"}},
	{name: "minimax-m2", in: []string{"<minimax:tool_call>"}, think: thinkTags,
		calls:    []callForm{{open: "<minimax:tool_call>", read: nothing}, {open: "</minimax:tool_call>", read: nothing}, {`<invoke name="`, minimaxTags.read, minimaxTags.end}},
		writing:  writing{open: "<minimax:tool_call>\n", each: minimaxTags.each(`<invoke name="`, "\">\n"), members: minimaxTags.members("", "", "\n"), between: "\n", close: "\n</minimax:tool_call>"},
		controls: []string{"<think>", "</think>", "<minimax:tool_call>", "</minimax:tool_call>"}},
	{name: "apriel", in: []string{"<tool_calls>["}, think: [2]string{"Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]"}, skip: []string{"[END FINAL RESPONSE]"},
		calls:    toolCalls,
		writing:  writing{open: "<tool_calls>[", each: `{"name": "$", "arguments": @}`, between: ", ", close: "]</tool_calls>"},
		controls: []string{"[BEGIN FINAL RESPONSE]", "[END FINAL RESPONSE]", "<tool_calls>", "</tool_calls>"}},
	{name: "minimax-m1", in: []string{"<tool_calls>"}, think: thinkTags, calls: toolCalls,
		writing:  writing{open: "<tool_calls>\n", each: `{"name": "$", "arguments": @}`, between: "\n", close: "\n</tool_calls>"},
		controls: []string{"<think>", "</think>", "<tool_calls>", "</tool_calls>"}},
	{name: "nemotron-v2", in: []string{"<TOOLCALL>"}, think: thinkTags,
		calls:    []callForm{closed("<TOOLCALL>", jsonCalls, "</TOOLCALL>")},
		writing:  writing{open: "<TOOLCALL>[", each: `{"name": "$", "arguments": @}`, between: ", ", close: "]</TOOLCALL>"},
		controls: []string{"<think>", "</think>", "<TOOLCALL>", "</TOOLCALL>"}},
	{name: "apertus", in: []string{"<|tools_prefix|>"}, think: [2]string{"<|inner_prefix|>", "<|inner_suffix|>"},
		calls:    []callForm{closed("<|tools_prefix|>", keyedCalls, "<|tools_suffix|>")},
		writing:  writing{open: "<|tools_prefix|>[", each: `{"$": @}`, between: ", ", close: "]<|tools_suffix|>"},
		controls: []string{"<|inner_prefix|>", "<|inner_suffix|>", "<|tools_prefix|>", "<|tools_suffix|>"}},
	{name: "gigachat-3.1", in: []string{"<|function_call|>"},
		calls:    []callForm{{open: "<|function_call|>", read: jsonCalls}},
		writing:  writing{each: `<|function_call|>{"name": "$", "arguments": @}`, alone: true},
		controls: []string{"<|function_call|>"}},
	{name: "gigachat-3", in: []string{"<|message_sep|>"},
		calls:    []callForm{{open: "<|message_sep|>\n\nfunction call<|role_sep|>\n", read: jsonCalls}},
		writing:  writing{each: "<|message_sep|>\n\nfunction call<|role_sep|>\n{\"name\": \"$\", \"arguments\": @}", alone: true},
		controls: []string{"<|message_sep|>", "<|role_sep|>"}},
	{name: "solar-open", in: []string{"<|tool_call:begin|>"}, think: [2]string{"<|think|>", "<|end|><|begin|>assistant"},
		skip:    []string{"<|begin|>assistant", "<|content|>", "<|end|>", "<|calls|>"},
		calls:   []callForm{{open: "<|tool_calls|>", read: nothing}, closed("<|tool_call:begin|>", solarCall, "<|tool_call:end|>")},
		writing: writing{open: "<|tool_calls|>", each: "<|tool_call:begin|>#<|tool_call:name|>$<|tool_call:args|>@<|tool_call:end|>"},
		controls: []string{"<|think|>", "<|begin|>", "<|content|>", "<|end|>", "<|tool_calls|>",
			"<|tool_call:begin|>", "<|tool_call:name|>", "<|tool_call:args|>", "<|tool_call:end|>"}},
	{name: "minicpm5", in: []string{`<function name="`}, think: thinkTags,
		calls:    []callForm{{`<function name="`, minicpmTags.read, minicpmTags.end}},
		writing:  writing{each: minicpmTags.each(`<function name="`, `">`), members: minicpmTags.members("", "", ""), between: "\n"},
		controls: []string{"<think>", "</think>"}},
	{name: "kimi-k3", in: []string{"'<|open|>'"}, think: [2]string{"<|open|>think<|sep|>", "<|close|>think<|sep|>"}, within: true,
		skip: []string{"<|open|>response<|sep|>", "<|close|>response<|sep|>", "<|close|>message<|sep|>"},
		calls: []callForm{{open: "<|open|>tools<|sep|>", read: nothing}, {open: "<|close|>tools<|sep|>", read: nothing},
			{`<|open|>call tool="`, kimiTags.read, kimiTags.end}},
		writing:  writing{open: "<|open|>tools<|sep|>", each: kimiTags.each(`<|open|>call tool="`, `" index="#"<|sep|>`), members: kimiTags.members("", "", ""), close: "<|close|>tools<|sep|>"},
		controls: []string{"<|open|>", "<|close|>", "<|sep|>"}},
}

func (f Format) String() string { return f.name }

// opens returns the marks before calls.
func (f Format) opens() []string {
	var marks []string
	for _, c := range f.calls {
		if c.open != "" {
			marks = append(marks, c.open)
		}
	}
	return marks
}

// formatOf returns the format of a template by the marks in its source.
func formatOf(source string) Format {
	for _, f := range formats {
		for _, mark := range f.in {
			if strings.Contains(source, mark) {
				return f
			}
		}
	}
	return hermes
}

const space = " \t\r\n"

func spaces(s string) int { return len(s) - len(strings.TrimLeft(s, space)) }

// begins reports whether text begins with want: found, never, or more if text is a prefix of want.
func begins(text, want string) verdict {
	switch {
	case strings.HasPrefix(text, want):
		return found
	case strings.HasPrefix(want, text):
		return more
	}
	return never
}

// before returns a reader of one or more calls followed by mark. At the end of a message the mark
// may be missing, since it can be a token that ends the message, and a call that is cut off does
// not count.
func before(read reader, mark string) reader {
	return func(text string, tools tools, end bool) ([]ToolCall, int, verdict) {
		var all []ToolCall
		for at := 0; ; {
			calls, n, v := read(text[at:], tools, end)
			switch {
			case v == more && end && all != nil:
				return all, len(text), found
			case v != found:
				return nil, 0, v
			}
			all = append(all, calls...)
			at += n
			at += spaces(text[at:])
			switch v := begins(text[at:], mark); {
			case v == found:
				return all, at + len(mark), found
			case v == more && end:
				return all, len(text), found
			case v == more:
				return nil, 0, more
			}
		}
	}
}

// preceded returns a reader of mark and the calls behind it.
func preceded(mark string, read reader) reader {
	return func(text string, tools tools, end bool) ([]ToolCall, int, verdict) {
		s := &scanner{text: text, v: found}
		s.expect(mark)
		if s.v != found {
			return nil, 0, s.v
		}
		calls, n, v := read(text[s.at:], tools, end)
		return calls, s.at + n, v
	}
}

// followed returns a reader of calls, and of mark behind them if it is there.
func followed(read reader, mark string) reader {
	return func(text string, tools tools, end bool) ([]ToolCall, int, verdict) {
		calls, n, v := read(text, tools, end)
		if v != found {
			return nil, 0, v
		}
		at := n + spaces(text[n:])
		switch v := begins(text[at:], mark); {
		case v == found:
			n = at + len(mark)
		case v == more && !end:
			return nil, 0, more
		}
		return calls, n, found
	}
}

// wholly returns a reader of a message that consists of calls, optionally separated by semicolons.
func wholly(read reader) reader {
	return func(text string, tools tools, end bool) ([]ToolCall, int, verdict) {
		var all []ToolCall
		at := spaces(text)
		for {
			calls, n, v := read(text[at:], tools, end)
			switch {
			case v == more && end && all != nil: // a call that is cut off does not count
				return all, len(text), found
			case v != found:
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

// nothing reads zero bytes and no call, so that the parser skips the mark before it.
func nothing(string, tools, bool) ([]ToolCall, int, verdict) { return nil, 0, found }

// either returns a reader that tries b where a finds never.
func either(a, b reader) reader {
	return func(text string, tools tools, end bool) ([]ToolCall, int, verdict) {
		if calls, n, v := a(text, tools, end); v != never {
			return calls, n, v
		}
		return b(text, tools, end)
	}
}
