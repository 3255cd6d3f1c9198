package chat_test

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/chat"
)

// spoken are outputs of models of each format; the format's templates contain mark.
var spoken = []struct {
	format, mark, prompt, text string
	want                       string // reasoning | content | name arguments; …
	ids                        []string
}{
	{format: "hermes", text: "Hello, world! \n", want: "|Hello, world! \n|"},
	{format: "hermes", text: "<think>\nhm <b>\n\n</think>\n\n 4 < 5 <tool", want: "hm <b>|4 < 5 <tool|"},
	{format: "hermes", text: "  <think></think> ", want: "||"},
	{format: "hermes", prompt: "<|im_start|>assistant\n<think>\n", text: "two\nand two\n</think>\n4", want: "two\nand two|4|"},
	{format: "hermes", prompt: "<think>", text: " never ends ", want: "never ends||"},
	{format: "hermes", text: "Let me see.\n<tool_call>\n{\"name\": \"get\", \"arguments\": {\"city\": \"Köln </tool_call> <think>\"}}\n</tool_call>\n<tool_call>{\"name\":\"now\",\"arguments\":{}}</tool_call>\n",
		want: `|Let me see.|get {"city": "Köln </tool_call> <think>"}; now {}`},
	{format: "hermes", text: "<think>\nI need it.\n</think>\n\n<tool_call>\n{\"name\": \"get\", \"arguments\": \"{\\\"city\\\": 1}\"}\n</tool_call> and then", want: `I need it.|and then|get {"city": 1}`},
	{format: "hermes", text: "<tool_call>\n{\"name\": \"get\", \"arguments\": {}}", want: `||get {}`},
	{format: "hermes", text: "<tool_call>not json</tool_call>", want: `|<tool_call>not json</tool_call>|`},
	{format: "hermes", text: "<tool_call>{\"name\": \"get\", \"arg", want: `|<tool_call>{"name": "get", "arg|`},
	{format: "hermes", text: "<tool_call>{\"other\": 1}</tool_call>", want: `|<tool_call>{"other": 1}</tool_call>|`},
	{format: "hermes", text: "<tool_call>{\"name\": 1}</tool_call>", want: `|<tool_call>{"name": 1}</tool_call>|`},

	{format: "qwen3-coder", mark: "<function=", text: "<tool_call>\n<function=get>\n<parameter=city>\n42\n</parameter>\n<parameter=days>\n3\n</parameter>\n<parameter=free>\na \"b\"\n\n</parameter>\n</function>\n</tool_call>",
		want: `||get {"city": "42", "days": 3, "free": "a \"b\"\n"}`},
	{format: "qwen3-coder", mark: "<function=", text: "Sure.\n<function=now>\n</function>", want: `|Sure.|now {}`},
	{format: "qwen3-coder", mark: "<function=", text: "<function= x> <tool_call>y", want: `|<function= x> <tool_call>y|`},

	{format: "llama3", mark: "<|start_header_id|>", text: "\n\n{\"name\": \"get\", \"parameters\": {\"city\": \"a\"}}", want: `||get {"city": "a"}`},
	{format: "llama3", mark: "<|start_header_id|>", text: "<|python_tag|>{\"type\": \"function\", \"name\": \"get\", \"parameters\": {}}; {\"name\": \"now\", \"parameters\": {}}", want: `||get {}; now {}`},
	{format: "llama3", mark: "<|start_header_id|>", text: "<|python_tag|>brave_search.call(query=\"who?\", n=2.5)", want: `||brave_search {"query": "who?", "n": 2.5}`},
	{format: "llama3", mark: "<|start_header_id|>", text: "[get(city='Köln', days=[1, -2], x={'a': True, \"b\": None}), now()]", want: `||get {"city": "Köln", "days": [1, -2], "x": {"a": true, "b": null}}; now {}`},
	{format: "llama3", mark: "<|start_header_id|>", text: "{\"answer\": \"JSON that was asked for\"}", want: `|{"answer": "JSON that was asked for"}|`},
	{format: "llama3", mark: "<|start_header_id|>", text: "{\"name\": \"no call\"", want: `|{"name": "no call"|`},
	{format: "llama3", mark: "<|start_header_id|>", text: "[1] is a list", want: `|[1] is a list|`},
	{format: "llama3", mark: "<|start_header_id|>", text: "{\"name\": \"get\", \"parameters\": {}} is how it is written", want: `|{"name": "get", "parameters": {}} is how it is written|`},
	{format: "llama3", mark: "<|start_header_id|>", text: "It is {\"name\": \"get\", \"parameters\": {}}", want: `|It is {"name": "get", "parameters": {}}|`},

	{format: "mistral", mark: "[TOOL_CALLS]", text: "[TOOL_CALLS] [{\"name\": \"get\", \"arguments\": {\"city\": \"]\"}, \"id\": \"abcdefghi\"}, {\"name\": \"now\", \"arguments\": {}}]", want: `||get {"city": "]"}; now {}`, ids: []string{"abcdefghi"}},
	{format: "mistral-v11", mark: "[ARGS]", text: "[THINK]hm[/THINK]Ok.[TOOL_CALLS]get[CALL_ID]abcdefghi[ARGS]{\"city\": \"a\"}[TOOL_CALLS]now[ARGS]{}", want: `hm|Ok.|get {"city": "a"}; now {}`, ids: []string{"abcdefghi"}},
	{format: "mistral", mark: "[TOOL_CALLS]", text: "[TOOL_CALLS]get{\"city\": \"a\"}", want: `||get {"city": "a"}`},
	{format: "mistral", mark: "[TOOL_CALLS]", text: "[TOOL_CALLS] [1, 2]", want: `|[TOOL_CALLS] [1, 2]|`},
	{format: "mistral", mark: "[TOOL_CALLS]", text: "[TOOL_CALLS] what?", want: `|[TOOL_CALLS] what?|`},

	{format: "gpt-oss", mark: "<|channel|>", prompt: "<|start|>assistant", text: "<|channel|>analysis<|message|>think <b> \n<|end|><|start|>assistant<|channel|>final<|message|>Hello\n<|return|>", want: "think <b>|Hello|"},
	{format: "gpt-oss", mark: "<|channel|>", prompt: "<|start|>assistant", text: "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>commentary<|message|>I will look.<|end|><|start|>assistant<|channel|>commentary to=functions.get <|constrain|>json<|message|>{\"city\": \"a\"}<|call|>", want: `a|I will look.|get {"city": "a"}`},
	{format: "gpt-oss", mark: "<|channel|>", prompt: "<|start|>assistant", text: " to=functions.now<|channel|>commentary json<|message|>{}", want: `||now {}`},
	{format: "gpt-oss", mark: "<|channel|>", prompt: "<|start|>assistant", text: " to=functions.get<|channel|>commentary json<|message|>{\"city\": \"<|start|>\"} <|call|>", want: `||get {"city": "<|start|>"}`},
	{format: "gpt-oss", mark: "<|channel|>", prompt: "<|start|>assistant", text: " to=functions.get<|channel|>commentary json<|message|>{\"city<|call|>", want: `||get {"city`},
	{format: "gpt-oss", mark: "<|channel|>", prompt: "<|start|>assistant<|channel|>final<|message|>", text: "Hi <|en", want: `|Hi <|en|`},

	{format: "muse-glimmer", mark: "# Valid recipients:", prompt: "<|start|>assistant", text: " to=self<|message|>I think.<|eom|><|start|>assistant to=self<|message|> More.<|eom|><|start|>assistant to=user<|message|>Let me look.<|eom|><|start|>assistant to=get<|message|><atem:function_calls>\n<atem:invoke name=\"get\">\n<atem:parameter name=\"city\">Köln <|eom|></atem:parameter>\n<atem:parameter name=\"days\">3</atem:parameter>\n</atem:invoke>\n</atem:function_calls><|eom|><|start|>assistant to=now<|message|><atem:function_calls>\n<atem:invoke name=\"now\">\n</atem:invoke>\n</atem:function_calls><|eot|>", want: `I think.More.|Let me look.|get {"city": "Köln <|eom|>", "days": 3}; now {}`},
	{format: "muse-glimmer", mark: "# Valid recipients:", prompt: "<|start|>assistant", text: " to=self<|message|>I think", want: `I think||`},
	{format: "muse-glimmer", mark: "# Valid recipients:", prompt: "<|start|>assistant", text: " to=self<|message|>I think.<|eom|>", want: `I think.||`},
	{format: "muse-glimmer", mark: "# Valid recipients:", prompt: "<|start|>assistant", text: "<|message|>Hi <Link to=\"/about\"> <|eo", want: `|Hi <Link to="/about"> <|eo|`},
	{format: "muse-glimmer", mark: "# Valid recipients:", prompt: "<|start|>assistant", text: " to=user<|message|><atem:function_calls><atem:invoke name=\"now\"></atem:invoke></atem:function_calls><|eot|>", want: `|<atem:function_calls><atem:invoke name="now"></atem:invoke></atem:function_calls>|`},
	{format: "muse-glimmer", mark: "# Valid recipients:", prompt: "<|start|>assistant", text: " to=now<|message|><atem:function_calls>\n<atem:invoke name=\"now\">\n</atem:invoke>\n</atem:function_calls>\nDone.<|eot|>", want: `|Done.|now {}`},
	{format: "muse-glimmer", mark: "# Valid recipients:", prompt: "<|start|>assistant", text: " to=now<|message|>It is no call.<|eom|><|start|>assistant to=user<|message|> Hi", want: `|It is no call. Hi|`},
	{format: "muse-glimmer", mark: "# Valid recipients:", prompt: "<|start|>assistant", text: " to=now<|message|><atem:function_calls>\n<atem:invoke name=\"now\">\n<|eom|><|start|>assistant to=user<|message|> Hi", want: "|<atem:function_calls>\n<atem:invoke name=\"now\"> Hi|"},
	{format: "muse-glimmer", mark: "# Valid recipients:", prompt: "<|start|>assistant", text: " to=now<|message|><atem:function_calls>\n<atem:invoke name=\"now\">\n</atem:invoke>\n<atem:invoke name=\"get\">\n<atem:parameter name=\"city\">K", want: `||now {}`},

	{format: "gemma4", mark: "<|tool_call>call:", text: "<|channel>thought\nhm\n<channel|>Ok <|tool_call>call:get{city:<|\"|>Kö}ln<|\"|>,days:3,x:[true,null,{<|\"|>a<|\"|>:-1.5}]}<tool_call|><|tool_call>call:now{}<tool_call|>", want: `hm|Ok|get {"city": "Kö}ln", "days": 3, "x": [true, null, {"a": -1.5}]}; now {}`},
	{format: "gemma4", mark: "<|tool_call>call:", text: "<|tool_call>call:get[1]<tool_call|>", want: `|<|tool_call>call:get[1]<tool_call|>|`},
	{format: "gemma", mark: "<start_of_turn>", text: "I look.\n```tool_code\nprint(get(city=\"a\"))\n```", want: `|I look.|get {"city": "a"}`},
	{format: "gemma", mark: "<start_of_turn>", text: "```python\nprint(1)\n```", want: "|```python\nprint(1)\n```|"},
	{format: "gemma", mark: "<start_of_turn>", text: "[now()]", want: "||now {}"},
	{format: "lfm2", mark: "<|tool_list_start|>", text: "<|tool_call_start|>[get(city=\"a\\n\\u00e9\", t='''b'c''')]<|tool_call_end|>Looking.", want: `|Looking.|get {"city": "a\né", "t": "b'c"}`},
	{format: "lfm2", mark: "<|tool_list_start|>", text: "<|tool_call_start|>[get(city=\"\\ud83d\\ude00\\ud83d\", größe=1)]<|tool_call_end|>", want: `||get {"city": "😀\\ud83d", "größe": 1}`},
	{format: "mistral", mark: "[TOOL_CALLS]", text: "[TOOL_CALLS]get[ARGS][1]", want: `|[TOOL_CALLS]get[ARGS][1]|`},
	{format: "glm-4.5", mark: "</arg_key>\n<arg_value>", text: "\n<think>hm</think>\nOk.\n<tool_call>get\n<arg_key>city</arg_key>\n<arg_value>42</arg_value>\n<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n<arg_key>more</arg_key>\n<arg_value>{\"a\": \"</arg_value>\"}</arg_value>\n</tool_call>\n<tool_call>now\n</tool_call>",
		want: `hm|Ok.|get {"city": "42", "days": 3, "more": {"a": "</arg_value>"}}; now {}`},
	{format: "glm-4.7", mark: "<arg_key>", prompt: "<|assistant|><think>", text: "hm</think><tool_call>get<arg_key>city</arg_key><arg_value> \n\"a</arg_value><arg_key>days</arg_key><arg_value>[3</arg_value></tool_call>", want: `hm||get {"city": " \n\"a", "days": "[3"}`},
	{format: "glm-4.7", mark: "<arg_key>", text: "<tool_call>now</tool_call><tool_call>{\"name\": 1}</tool_call>", want: `|<tool_call>{"name": 1}</tool_call>|now {}`},
	{format: "deepseek-v3", mark: "function<｜tool▁sep｜>", prompt: "<｜Assistant｜><think>\n", text: "hm\n</think>\n\nOk.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get\n```json\n{\"city\": \"```\"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
		want: "hm|Ok.|get {\"city\": \"```\"}; now {}"},
	{format: "deepseek-v3.1", mark: "<｜tool▁calls▁begin｜>", text: "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get<｜tool▁sep｜>{\"city\": \"a\"}<｜tool▁call▁end｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>", want: `||get {"city": "a"}; function {}`},
	{format: "deepseek-v3.1", mark: "<｜tool▁calls▁begin｜>", text: "<｜tool▁call▁begin｜>get of it", want: `|<｜tool▁call▁begin｜>get of it|`},
	{format: "deepseek-v3.2", mark: "｜DSML｜", text: "I look.\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"get\">\n<｜DSML｜parameter name=\"city\" string=\"true\">7</｜DSML｜parameter>\n<｜DSML｜parameter name=\"free\" string=\"false\">[7, \"</｜DSML｜parameter>\"]</｜DSML｜parameter>\n</｜DSML｜invoke>\n<｜DSML｜invoke name=\"now\">\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
		want: `|I look.|get {"city": "7", "free": [7, "</｜DSML｜parameter>"]}; now {}`},
	{format: "deepseek-v4", mark: "dsml_token + 'tool_calls>", text: "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"now\">\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>", want: `||now {}`},
	{format: "deepseek-v3.2", mark: "｜DSML｜", text: "<｜DSML｜invoke name=\"now\"><｜DSML｜parameter name=\"a\" string=\"maybe\">", want: `|<｜DSML｜invoke name="now"><｜DSML｜parameter name="a" string="maybe">|`},
	{format: "kimi", mark: "<|tool_calls_section_begin|>", text: "Ok.<|tool_calls_section_begin|><|tool_call_begin|>functions.get:0<|tool_call_argument_begin|>{\"city\": \"a\"}<|tool_call_end|><|tool_call_begin|>functions.now:1<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
		want: `|Ok.|get {"city": "a"}; now {}`, ids: []string{"functions.get:0", "functions.now:1"}},
	{format: "command-r7b", mark: "<|START_ACTION|>", text: "<|START_THINKING|>hm<|END_THINKING|><|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"get\", \"parameters\": {\"city\": \"a\"}},\n    {\"tool_call_id\": \"1\", \"tool_name\": \"now\", \"parameters\": {}}\n]<|END_ACTION|>", want: `hm||get {"city": "a"}; now {}`, ids: []string{"0", "1"}},
	{format: "seed-oss", mark: "<seed:tool_call>", text: "<seed:think>hm</seed:think>\n<seed:tool_call>\n<function=get>\n<parameter=city>a\nb</parameter>\n<parameter=days>3</parameter>\n</function>\n</seed:tool_call>", want: `hm||get {"city": "a\nb", "days": 3}`},
	{format: "qwen3-coder", mark: "<function=", text: "<tool_call>\n<function=get>\n<parameter=free>\n{\"a\": \"</parameter>\"}\n</parameter>\n<parameter=days>\n[1, \n</parameter>\n</function>\n</tool_call>", want: `||get {"free": {"a": "</parameter>"}, "days": "[1, "}`},
	// Several calls between two marks, marks that are missing, Python's notation, calls that are cut off.
	{format: "hermes", text: "<tool_call>\n{\"name\": \"get\", \"arguments\": {\"city\": \"a\"}}\n{\"name\": \"now\"}\n</tool_call>", want: `||get {"city": "a"}; now {}`},
	{format: "hermes", text: "<tool_call>{'name': 'get', 'arguments': {'city': 'it\\'s', 'x': [True, None, 1.5]}}</tool_call>", want: `||get {"city": "it's", "x": [true, null, 1.5]}`},
	{format: "hermes", text: "<tool_call>{\"name\": \"now\"}</tool_call><tool_call>{\"name\": \"ge", want: `|<tool_call>{"name": "ge|now {}`},
	{format: "hermes", text: "<tool_call>{\"name\": \"now\", \"arguments\": \"\"}\n{\"name\": \"ge", want: `||now {}`},
	{format: "qwen3-coder", mark: "<function=", text: "<tool_call>\n<function=now>\n</function>\n<function=get>\n<parameter=days>\nTrue\n</parameter>\n</function>\n</tool_call>", want: `||now {}; get {"days": true}`},
	{format: "qwen3-coder", mark: "<function=", text: "Ok.\n<function=now>\n</function>\n</tool_call>\nDone.", want: `|Ok.Done.|now {}`},
	{format: "qwen3-coder", mark: "<function=", text: "<tool_call>\n<function=now>\n</function>\n<function=get>\n<parameter=days>\n3", want: `||now {}`},
	{format: "qwen3-coder", mark: "<function=", text: "<tool_call>\n<function=get>\n<parameter=city>\nTrue\n</parameter>\n<parameter=days>\n['a', FALSE, {'b': None}]\n</parameter>\n<parameter=free>\nNone\n</parameter>\n</function>\n</tool_call>",
		want: `||get {"city": "True", "days": ["a", false, {"b": null}], "free": "None"}`},
	{format: "mistral", mark: "[TOOL_CALLS]", text: "[TOOL_CALLS] [{\"name\": \"get\", \"arguments\": {\"city\": \"]\"}}, {\"name\": \"now\", \"argum", want: `||get {"city": "]"}`},
	{format: "llama3", mark: "<|start_header_id|>", text: "{\"name\": \"now\", \"parameters\": {}}; {\"name\": \"ge", want: `||now {}`},
	{format: "lfm2", mark: "<|tool_list_start|>", text: "<|tool_call_start|>[now(), get(city=\"a", want: `||now {}`},
	{format: "gpt-oss", mark: "<|channel|>", prompt: "<|start|>assistant", text: "<|channel|>commentary to=functions.now<|message|><|call|>", want: `||now {}`},
	{format: "gpt-oss", mark: "<|channel|>", prompt: "<|start|>assistant", text: "<|channel|>commentary to=functions.now<|message|>{}", want: `||now {}`},
	{format: "gpt-oss", mark: "<|channel|>", prompt: "<|start|>assistant", text: "<|channel|>commentary to=functions.get<|message|>{\"ci", want: `|{"ci|`},
	// Formats that testdata/answers.json lacks.
	{format: "hunyuan", mark: "HYTK = ':opensource'", prompt: "<think:opensource>", text: "hm</think:opensource>Ok.<tool_calls:opensource>\n<tool_call:opensource>get<tool_sep:opensource>\n<arg_key:opensource>city</arg_key:opensource>\n<arg_value:opensource>a\n</arg_value:opensource>\n<arg_key:opensource>days</arg_key:opensource>\n<arg_value:opensource>3</arg_value:opensource>\n</tool_call:opensource>\n<tool_call:opensource>now<tool_sep:opensource>\n</tool_call:opensource>\n</tool_calls:opensource>",
		want: `hm|Ok.|get {"city": "a\n", "days": 3}; now {}`},
	{format: "solar-open", mark: "<|tool_call:begin|>", prompt: "<|begin|>assistant", text: "<|think|>hm<|end|><|begin|>assistant<|tool_calls|><|tool_call:begin|>a1b2c3d4e5<|tool_call:name|>get<|tool_call:args|>{\"city\": \"a\"}<|tool_call:end|><|tool_call:begin|>b1b2c3d4e5<|tool_call:name|>now<|tool_call:args|>{}<|tool_call:end|><|calls|>",
		want: `hm||get {"city": "a"}; now {}`, ids: []string{"a1b2c3d4e5", "b1b2c3d4e5"}},
	{format: "solar-open", mark: "<|tool_call:begin|>", prompt: "<|begin|>assistant", text: "<|content|>Hello<|end|>", want: `|Hello|`},
	{format: "minimax-m1", mark: "<tool_calls>", text: "<think>hm</think>\n<tool_calls>\n{\"name\": \"get\", \"arguments\": {\"city\": \"a\"}}\n{\"name\": \"now\", \"arguments\": {}}\n</tool_calls>", want: `hm||get {"city": "a"}; now {}`},
	{format: "minicpm5", mark: "<function name=\"", text: "<function name=\"get\"><param name=\"city\"> <a></param><param name=\"days\">3</param></function>", want: `||get {"city": " <a>", "days": 3}`},
	{format: "qwen3-coder", mark: "<function=", prompt: "<think>\n", text: "the tag <tool_call> is\n</think>\nOk.", want: `the tag <tool_call> is|Ok.|`},

	{format: "granite", mark: "<|start_of_role|>", text: "<|tool_call|>[{\"name\": \"get\", \"arguments\": {\"city\": \"a\"}}]", want: `||get {"city": "a"}`},
}

// declared are the tools that may be called.
var declared = []json.RawMessage{
	json.RawMessage(`{"type": "function", "function": {"name": "get", "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}}}`),
	json.RawMessage(`{"name": "now"}`),
}

// heard returns the parse of a text in pieces, in the notation of spoken.
func heard(t testing.TB, template *chat.Template, c chat.Conversation, prompt chat.Prompt, pieces []string) (string, chat.Message) {
	p := template.NewParser(c, prompt)
	var all chat.Message
	add := func(d chat.Delta) {
		all.Reasoning += d.Reasoning
		all.Content += d.Content
		all.ToolCalls = append(all.ToolCalls, d.ToolCalls...)
	}
	for _, piece := range pieces {
		add(p.Add(piece))
	}
	add(p.End())
	all.Role = "assistant"
	require.Equal(t, all, p.Message())
	var calls []string
	for _, c := range all.ToolCalls {
		calls = append(calls, c.Name+" "+c.Arguments)
	}
	return all.Reasoning + "|" + all.Content + "|" + strings.Join(calls, "; "), all
}

// TestParser feeds each text as a whole, byte by byte, in two parts split at each position, and in
// random pieces.
func TestParser(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	tok := vocabulary(t, "<s>", "</s>")
	for _, c := range spoken {
		source := "{{ '" + c.prompt + "' }}{# " + c.mark + " #}"
		template, err := chat.NewTemplate(source, tok)
		require.NoError(t, err)
		require.Equal(t, c.format, template.Format().String())
		conversation := chat.Conversation{Messages: []chat.Message{{Role: "user", Content: "x"}}, Tools: declared, ToolsInPrompt: true, Answer: true}
		prompt, err := template.Render(conversation)
		require.NoError(t, err)
		got, whole := heard(t, template, conversation, prompt, []string{c.text})
		require.Equal(t, c.want, got, c.text)
		ids := map[string]bool{}
		for i, call := range whole.ToolCalls {
			require.False(t, ids[call.ID], "%q is the ID of two calls", call.ID)
			ids[call.ID] = true
			if i < len(c.ids) {
				require.Equal(t, c.ids[i], call.ID)
			} else {
				require.Regexp(t, "^[0-9A-Za-z]{9}$", call.ID)
			}
		}
		if len(whole.ToolCalls) > 0 { // an ID that the conversation has is not given again
			taken := conversation
			taken.Messages = append(taken.Messages, chat.Message{Role: "assistant", ToolCalls: whole.ToolCalls})
			_, next := heard(t, template, taken, prompt, []string{c.text})
			for _, call := range next.ToolCalls {
				require.False(t, ids[call.ID], "%q is in the conversation", call.ID)
			}
		}
		for i := range len(c.text) + 1 {
			_, m := heard(t, template, conversation, prompt, []string{c.text[:i], c.text[i:]})
			require.Equal(t, whole, m, "cut at %d of %q", i, c.text)
		}
		_, m := heard(t, template, conversation, prompt, strings.Split(c.text, ""))
		require.Equal(t, whole, m, "byte by byte: %q", c.text)
		for range 20 {
			var pieces []string
			for rest := c.text; rest != ""; {
				n := 1 + r.IntN(min(len(rest), 9))
				pieces, rest = append(pieces, rest[:n]), rest[n:]
			}
			_, m := heard(t, template, conversation, prompt, pieces)
			require.Equal(t, whole, m, "%q", pieces)
		}
		// Without tools nothing is a call.
		conversation.Tools = nil
		_, m = heard(t, template, conversation, prompt, []string{c.text})
		require.Empty(t, m.ToolCalls, c.text)
	}
}

// FuzzParser checks for any text that the parse does not depend on the pieces.
func FuzzParser(f *testing.F) {
	for i, c := range spoken {
		f.Add(uint8(i), c.text, uint16(len(c.text)/2))
	}
	tok := vocabulary(f, "<s>", "</s>")
	f.Fuzz(func(t *testing.T, which uint8, text string, cut uint16) {
		c := spoken[int(which)%len(spoken)]
		template, err := chat.NewTemplate("{{ '"+c.prompt+"' }}{# "+c.mark+" #}", tok)
		require.NoError(t, err)
		conversation := chat.Conversation{Messages: []chat.Message{{Role: "user", Content: "x"}}, Tools: declared, ToolsInPrompt: true, Answer: true}
		prompt, err := template.Render(conversation)
		require.NoError(t, err)
		_, whole := heard(t, template, conversation, prompt, []string{text})
		at := int(cut) % (len(text) + 1)
		_, parts := heard(t, template, conversation, prompt, []string{text[:at], text[at:]})
		require.Equal(t, whole, parts)
	})
}

// TestLongCalls checks that the time to parse a call grows linearly with its length.
func TestLongCalls(t *testing.T) {
	tok := vocabulary(t, "<s>", "</s>")
	long := strings.Repeat(`if (a < b) { return \"x\"; }\n`, 20_000)
	for mark, text := range map[string]string{
		"":                     "<tool_call>\n{\"name\": \"get\", \"arguments\": {\"city\": \"" + long + "\"}}\n</tool_call>",
		"<function=":           "<tool_call>\n<function=get>\n<parameter=days>\n[\"" + long + "\"]\n</parameter>\n</function>\n</tool_call>",
		"<|start_header_id|>":  "{\"name\": \"get\", \"parameters\": {\"city\": \"" + long + "\"}}",
		"<|channel|>":          "<|start|>assistant to=functions.get<|channel|>commentary json<|message|>{\"city\": \"" + long + "\"}<|call|>",
		"# Valid recipients:":  "<|start|>assistant to=get<|message|><atem:function_calls>\n<atem:invoke name=\"get\">\n<atem:parameter name=\"city\">" + long + "</atem:parameter>\n</atem:invoke>\n</atem:function_calls><|eot|>",
		"<|tool_list_start|>":  "<|tool_call_start|>[get(city=\"" + long + "\")]<|tool_call_end|>",
		"[ARGS]":               "[TOOL_CALLS]get[ARGS]{\"city\": \"" + long + "\"}",
		"<｜tool▁calls▁begin｜>": "<｜tool▁call▁begin｜>get<｜tool▁sep｜>{\"city\": \"" + long + "\"}<｜tool▁call▁end｜>",
	} {
		template, err := chat.NewTemplate("{# "+mark+" #}", tok)
		require.NoError(t, err)
		c := chat.Conversation{Messages: []chat.Message{{Role: "user", Content: "x"}}, Tools: declared, ToolsInPrompt: true, Answer: true}
		prompt, err := template.Render(c)
		require.NoError(t, err)
		p := template.NewParser(c, prompt)
		start := time.Now()
		for i := 0; i < len(text); i += 4 {
			p.Add(text[i:min(i+4, len(text))])
		}
		p.End()
		require.Len(t, p.Message().ToolCalls, 1, mark)
		require.Less(t, time.Since(start), 5*time.Second, mark)
	}
}
