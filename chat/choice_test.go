package chat_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/chat"
	"github.com/smelt-ml/smelt/constrain"
	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/models/tokenizer"
)

// families have a mark of each format's templates, the end of a prompt, and texts that a random
// walk would not reach by chance, with spaces as ␣.
var families = []struct{ format, mark, prompt, hints string }{
	{"hermes", "<think>", "<|im_start|>assistant\n", "<think> </think> <tool_call>"},
	{"hermes", "", "<|im_start|>assistant\n<think>\n", "</think> <tool_call> <think>"},
	{"hermes", "", "", "<tool_call> </tool_call>"},
	{"qwen3-coder", "<function=", "", "\n</parameter> <tool_call> </parameter> <function="},
	{"seed-oss", "<seed:tool_call><seed:think>", "", "</parameter> <seed:tool_call> <seed:think> </seed:think> <function="},
	{"llama3", "<|start_header_id|>", "", `{"name":␣"list_all",␣"parameters":␣`},
	{"mistral", "[TOOL_CALLS]", "", "[TOOL_CALLS]"},
	{"mistral-v11", "[ARGS] [THINK]", "[/INST]", "[TOOL_CALLS] [THINK] [/THINK]"},
	{"gpt-oss", "<|channel|>", "<|start|>assistant", "<|channel|> analysis final commentary <|message|> <|end|> <|start|>"},
	{"gemma4", "<|tool_call>call:", "", `<|"|> <|tool_call>`},
	{"gemma", "<start_of_turn>", "", "```tool_code\n"},
	{"lfm2", "<|tool_list_start|>", "", "<|tool_call_start|>"},
	{"granite", "<|start_of_role|>", "", "<|tool_call|>"},
	{"command-r7b", "<|START_ACTION|><|START_THINKING|>", "<|START_THINKING|>", "<|END_THINKING|> <|START_ACTION|>"},
	{"deepseek-v3", "function<｜tool▁sep｜>", "<｜Assistant｜><think>\n", "</think> <｜tool▁calls▁begin｜> <｜tool▁call▁begin｜>"},
	{"deepseek-v3.1", "<｜tool▁calls▁begin｜>", "<｜Assistant｜><think></think>", "<｜tool▁calls▁begin｜> <｜tool▁calls▁end｜> <｜tool▁call▁begin｜>"},
	{"deepseek-v3.2", "｜DSML｜", "", "<｜DSML｜function_calls> </｜DSML｜parameter> </｜DSML｜function_calls> <｜DSML｜invoke␣name=\""},
	{"deepseek-v4", "dsml_token + 'tool_calls>", "", "<｜DSML｜tool_calls> </｜DSML｜parameter> <｜DSML｜invoke␣name=\""},
	{"kimi", "<|tool_calls_section_begin|>", "", "<|tool_calls_section_begin|> <|tool_call_begin|>"},
	{"glm-4.5", "</arg_key>\n<arg_value>", "", "\n</arg_value> <tool_call> </arg_value>"},
	{"glm-4.7", "<arg_key>", "<|assistant|><think>", "</arg_value> <tool_call> </think>"},
	{"firefunction", "functools[", "", "functools["},
	{"functionary-v3.1", "<{start_tag}={function_name}>", "", "<function="},
	{"command-r-plus", "Action:\\n```json", "", "Action:\n```json\n"},
	{"hunyuan", "HYTK = ':opensource'", "<think:opensource>", "</think:opensource> <tool_calls:opensource> <tool_call:opensource> </arg_value:opensource>"},
	{"minimax-m2", "<minimax:tool_call>", "<think>\n", "</think> <minimax:tool_call> <invoke␣name=\" </parameter>"},
	{"apriel", "<tool_calls>[", "Here are my reasoning steps:\n", "[BEGIN␣FINAL␣RESPONSE] <tool_calls>"},
	{"minimax-m1", "<tool_calls>", "", "<tool_calls>"},
	{"nemotron-v2", "<TOOLCALL>", "<think>\n", "</think> <TOOLCALL>"},
	{"apertus", "<|tools_prefix|>", "", "<|tools_prefix|>"},
	{"gigachat-3.1", "<|function_call|>", "", "<|function_call|>"},
	{"gigachat-3", "<|message_sep|>", "", "<|message_sep|>\n\nfunction␣call<|role_sep|>\n"},
	{"solar-open", "<|tool_call:begin|>", "<|begin|>assistant<|think|>", "<|end|><|begin|>assistant <|content|> <|tool_calls|>"},
	{"minicpm5", "<function name=\"", "<think>\n", "</think> <function␣name=\" <![CDATA[ ]]> </param>"},
	{"kimi-k3", "'<|open|>'", "<|open|>think<|sep|>", "<|close|>think<|sep|> <|open|>response<|sep|> <|open|>tools<|sep|> <|open|>call␣tool=\" <|close|>argument<|sep|>"},
	{"muse-glimmer", "# Valid recipients:", "<|start|>assistant", "␣to=self<|message|> ␣to=user<|message|> <|eom|> <|start|>assistant </atem:parameter> ␣to=now<|message|><atem:function_calls>"},
}

// callable are tools whose arguments can be written in every format.
var callable = []json.RawMessage{
	json.RawMessage(`{"type": "function", "function": {"name": "get_weather", "strict": true, "parameters": {"type": "object",
		"properties": {"city": {"type": "string", "description": "where"}, "days": {"type": "integer", "minimum": 1, "maximum": 14}, "unit": {"type": "string", "enum": ["C", "F"]},
			"at": {"$ref": "#/$defs/point"}, "parts": {"type": "array", "items": {"enum": ["rain", 7, null]}, "minItems": 1, "maxItems": 3}},
		"required": ["days", "unit"], "additionalProperties": false, "$defs": {"point": {"type": "object", "properties": {"x": {"type": "number"}, "of": {"type": ["string", "null"], "maxLength": 5}}, "required": ["x"], "additionalProperties": false}}}}}`),
	json.RawMessage(`{"name": "search.web", "parameters": {"properties": {"query": {"type": "string"}, "exact": {"type": "boolean"}}, "required": ["query"]}}`),
	json.RawMessage(`{"name": "list_all", "parameters": {"type": "object", "properties": {"page": {"type": "integer"}, "all": {"const": true}}}}`),
	json.RawMessage(`{"name": "now"}`),
}

// schemasOf compiles the tools' schemas, by name.
func schemasOf(t testing.TB, tools []json.RawMessage) map[string]*jsonschema.Schema {
	all := map[string]*jsonschema.Schema{}
	for _, raw := range tools {
		var tool struct {
			Function *struct {
				Name       string
				Parameters any
			}
			Name       string
			Parameters any
		}
		require.NoError(t, json.Unmarshal(raw, &tool))
		if f := tool.Function; f != nil {
			tool.Name, tool.Parameters = f.Name, f.Parameters
		}
		if tool.Parameters == nil {
			tool.Parameters = map[string]any{"maxProperties": 0.0, "type": "object"}
		}
		c := jsonschema.NewCompiler()
		require.NoError(t, c.AddResource("tool.json", tool.Parameters))
		schema, err := c.Compile("tool.json")
		require.NoError(t, err)
		all[tool.Name] = schema
	}
	return all
}

// matches reports why a call is none of these tools.
func matches(schemas map[string]*jsonschema.Schema, call chat.ToolCall) error {
	schema := schemas[call.Name]
	if schema == nil {
		return fmt.Errorf("there is no tool %q", call.Name)
	}
	arguments, err := jsonschema.UnmarshalJSON(strings.NewReader(call.Arguments))
	if err != nil {
		return err
	}
	if _, is := arguments.(map[string]any); !is {
		return fmt.Errorf("%s is no object", call.Arguments)
	}
	return schema.Validate(arguments)
}

// stroll chooses tokens at random among those that may follow, and now and then a hint. It ends
// where the text may end, one time in length, or after so many tokens at most.
func stroll(t testing.TB, r *rand.Rand, tok *tokenizer.Tokenizer, c *constrain.Constraint, hints []string, length, most int) (ids []int32, ended bool) {
	s, mask := c.Start(), make([]uint64, c.Words())
	for len(ids) < most {
		if s.CanStop() && r.IntN(length) == 0 {
			return ids, true
		}
		if r.IntN(6) == 0 {
			hint := tok.Encode(strings.ReplaceAll(hints[r.IntN(len(hints))], "␣", " "), true)
			for _, id := range hint {
				ok, err := s.Accept(id)
				require.NoError(t, err)
				if !ok {
					break
				}
				ids = append(ids, id)
			}
			continue
		}
		require.NoError(t, s.Mask(mask))
		for _, end := range tok.StopIDs() {
			mask[end>>6] &^= 1 << (end & 63)
		}
		var allowed []int32
		for i, w := range mask {
			for ; w != 0; w &= w - 1 {
				allowed = append(allowed, int32(i*64+bits.TrailingZeros64(w)))
			}
		}
		if len(allowed) == 0 {
			require.True(t, s.CanStop(), "a dead end behind %q", tok.Decode(ids[max(0, len(ids)-300):], true))
			return ids, true
		}
		id := allowed[r.IntN(len(allowed))]
		ok, err := s.Accept(id)
		require.NoError(t, err)
		require.True(t, ok, "token %d is in the mask and not accepted", id)
		ids = append(ids, id)
	}
	return ids, s.CanStop()
}

// asked is a prompt of a family's, with a vocabulary in which its marks are control tokens, or
// text.
func asked(t testing.TB, family int, marks bool, c chat.Conversation) (*chat.Template, chat.Prompt, *tokenizer.Tokenizer, *constrain.Vocabulary) {
	f := families[family]
	list := []string{"<s>", "</s>"}
	if marks {
		list = append(list, chat.Marks(f.format)...)
		list = append(list, "<|calls|>", "<|flush|>") // end answers of Solar, whose <|end|> then does not
	}
	tok := vocabulary(t, list...)
	v, err := constrain.New(tok.Texts(), tok.StopIDs())
	require.NoError(t, err)
	template, err := chat.NewTemplate("{{ '"+strings.ReplaceAll(f.prompt, "\n", `\n`)+"' }}{# "+f.mark+" #}", tok)
	require.NoError(t, err)
	require.Equal(t, f.format, template.Format().String())
	c.ToolsInPrompt = true
	prompt, err := template.Render(c)
	require.NoError(t, err)
	return template, prompt, tok, v
}

// TestForcedCalls: whatever follows the masks of a call that must be made is read as calls of the
// tools, with arguments that match their schemas.
func TestForcedCalls(t *testing.T) {
	schemas := schemasOf(t, callable)
	for family, f := range families {
		t.Run(fmt.Sprint(f.format, family), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(uint64(family), 1))
			ended, several := 0, 0
			called := map[string]int{}
			rounds := testfiles.Rounds("models", 24, 40)
			for i := range rounds {
				c := chat.Conversation{Messages: []chat.Message{{Role: "user", Content: "x"}}, Tools: callable, Answer: true, OneCall: i%4 == 1}
				if c.ToolChoice.Required = i%3 > 0; i%3 == 0 {
					c.ToolChoice.Name = []string{"get_weather", "search.web", "list_all", "now"}[i/3%4]
				}
				template, prompt, tok, v := asked(t, family, i%2 == 0, c)
				k, err := template.Constraint(t.Context(), v, c, prompt, nil)
				require.NoError(t, err)
				ids, whole := stroll(t, r, tok, k, strings.Split(f.hints, " "), 8, 3000)
				if !whole {
					continue
				}
				ended++
				p := template.NewParser(c, prompt)
				for _, id := range ids {
					p.Token(id)
				}
				p.End()
				said, m := string(tok.Decode(ids, true)), p.Message()
				require.NotEmpty(t, m.ToolCalls, "%q", said)
				require.Empty(t, strings.TrimSpace(m.Content), "%q", said)
				if len(m.ToolCalls) > 1 {
					require.False(t, c.OneCall || c.ToolChoice.Name != "", "%q", said)
					several++
				}
				for _, call := range m.ToolCalls {
					require.NoError(t, matches(schemas, call), "%q: %+v", said, call)
					if c.ToolChoice.Name != "" {
						require.Equal(t, c.ToolChoice.Name, call.Name)
					}
					called[call.Name]++
				}
			}
			require.Greater(t, ended, rounds/2)
			require.Len(t, called, len(callable))
			t.Log(ended, several, called)
		})
	}
}

// TestBegunCalls: what a model says by itself is free, but a call that it begins is one of the
// tools'.
func TestBegunCalls(t *testing.T) {
	schemas := schemasOf(t, callable)
	for family, f := range families {
		t.Run(fmt.Sprint(f.format, family), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(uint64(family), 2))
			c := chat.Conversation{Messages: []chat.Message{{Role: "user", Content: "x"}}, Tools: callable, Answer: true}
			calls, spoken := 0, 0
			for i := range testfiles.Rounds("models", 24, 40) {
				template, prompt, tok, v := asked(t, family, i%2 == 0, c)
				k, err := template.Constraint(t.Context(), v, c, prompt, nil)
				require.NoError(t, err)
				ids, whole := stroll(t, r, tok, k, strings.Split(f.hints, " "), 24, 1500)
				if !whole {
					continue
				}
				p := template.NewParser(c, prompt)
				for _, id := range ids {
					p.Token(id)
				}
				p.End()
				for _, call := range p.Message().ToolCalls {
					require.NoError(t, matches(schemas, call), "%q: %+v", tok.Decode(ids, true), call)
					calls++
				}
				if p.Message().Content != "" {
					spoken++
				}
			}
			require.Positive(t, calls)
			require.Positive(t, spoken)
			t.Log(calls, spoken)
		})
	}
}

// TestKeptAnswers: an answer that is kept to a schema matches it, whatever was thought before; with
// tools it may be a call as well.
func TestKeptAnswers(t *testing.T) {
	const source = `{"type": "object", "properties": {"n": {"type": "integer"}, "of": {"type": "string", "maxLength": 4}}, "required": ["n"], "additionalProperties": false}`
	calls := schemasOf(t, callable)
	answers := schemasOf(t, []json.RawMessage{json.RawMessage(`{"name": "answer", "parameters": ` + source + `}`)})
	for family, f := range families {
		t.Run(fmt.Sprint(f.format, family), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(uint64(family), 3))
			called, answered := 0, 0
			for i := range 24 {
				c := chat.Conversation{Messages: []chat.Message{{Role: "user", Content: "x"}}, Answer: true}
				if i%3 > 0 {
					c.Tools = callable
				}
				template, prompt, tok, v := asked(t, family, i%2 == 0, c)
				k, err := template.Constraint(t.Context(), v, c, prompt, json.RawMessage(source))
				require.NoError(t, err)
				ids, whole := stroll(t, r, tok, k, strings.Split(f.hints, " "), 8, 1500)
				if !whole {
					continue
				}
				p := template.NewParser(c, prompt)
				for _, id := range ids {
					p.Token(id)
				}
				p.End()
				m := p.Message()
				for _, call := range m.ToolCalls {
					require.NoError(t, matches(calls, call), "%q: %+v", tok.Decode(ids, true), call)
				}
				called += len(m.ToolCalls)
				if len(m.ToolCalls) == 0 {
					require.NoError(t, matches(answers, chat.ToolCall{Name: "answer", Arguments: m.Content}), "%q", tok.Decode(ids, true))
					answered++
				}
			}
			require.Positive(t, called)
			require.Positive(t, answered)
		})
	}
}

// TestNotKept: what cannot be kept is refused, by the tool's name and the keyword.
func TestNotKept(t *testing.T) {
	ask := func(family int, choice, tool string) error {
		c := chat.Conversation{Messages: []chat.Message{{Role: "user", Content: "x"}}, Answer: true}
		require.NoError(t, json.Unmarshal([]byte(choice), &c.ToolChoice))
		if tool != "" {
			c.Tools = []json.RawMessage{json.RawMessage(tool)}
		}
		template, prompt, _, v := asked(t, family, false, c)
		k, err := template.Constraint(t.Context(), v, c, prompt, nil)
		require.True(t, (k == nil) == (err != nil) || c.ToolChoice.None || tool == "")
		return err
	}
	const odd = `{"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "string", "pattern": "^a"}, "b": {"type": "array", "uniqueItems": true}}}}`
	const coder, hermes = 3, 0
	muse := len(families) - 1
	require.ErrorIs(t, ask(hermes, `"auto"`, odd), chat.ErrNotKept)
	require.NoError(t, ask(hermes, `"none"`, odd))
	require.NoError(t, ask(hermes, `null`, ""))
	for _, c := range []struct {
		family             int
		choice, tool, want string
	}{
		{hermes, `"required"`, odd, "tool f: schema at #/properties/b/uniqueItems"},
		{coder, `"required"`, odd, "tool f: parameter a: the model's call format cannot express the keyword pattern"},
		{coder, `"required"`, `{"name": "f", "parameters": {"allOf": []}}`, "tool f: parameters: the model's call format cannot express the keyword allOf"},
		{coder, `"required"`, `{"name": "f", "parameters": {"properties": {"a b": {}}}}`, `tool f: parameter "a b": the model's call format cannot express its name`},
		{coder, `"required"`, `{"name": "f", "parameters": {"required": ["a"]}}`, `tool f: parameters: "a" is required, but not among the properties`},
		{coder, `"required"`, `{"name": "a b"}`, "tool a b: the model's call format cannot express its name"},
		{muse, `"required"`, `{"name": "self"}`, "tool self: the model's call format cannot express its name"},
		{hermes, `"required"`, `{"name": "f", "parameters": {"type": "array"}}`, `tool f: parameters of type "array"`},
		{hermes, `"required"`, `{"name": "f", "parameters": 1}`, "tool f: parameters: want a JSON object"},
		{hermes, `"required"`, "", "tool_choice requires a tool call, but there are no tools"},
		{hermes, `{"type": "function", "function": {"name": "g"}}`, odd, "tool_choice names the tool g, which is not among the tools"},
		{hermes, `"auto"`, `{"type": "function", "function": {"name": "f", "strict": true, "parameters": {"properties": {"b": {"type": "array", "items": {"type": "object"}, "uniqueItems": true}}}}}`, "tool f: schema at #/properties/b/uniqueItems"},
	} {
		err := ask(c.family, c.choice, c.tool)
		require.ErrorContains(t, err, c.want)
		require.NotErrorIs(t, err, chat.ErrNotKept)
	}
	for raw, want := range map[string]string{`"maybe"`: `"maybe": want none`, `{"type": "function"}`: "want none", `{"type": "function", "function": {"name": "f"}, "x": 1}`: `unknown field "x"`} {
		var c chat.ToolChoice
		require.ErrorContains(t, json.Unmarshal([]byte(raw), &c), want)
	}
}

// TestConstraintOfManyParameters: a tool of very many parameters is not constrained, in a notation of
// JSON or of members, and that is found in time linear in their number.
func TestConstraintOfManyParameters(t *testing.T) {
	var properties []string
	for i := range 30_000 {
		properties = append(properties, fmt.Sprintf(`"p%d":{"type":"string"}`, i))
	}
	c := chat.Conversation{
		Messages: []chat.Message{{Role: "user", Content: "x"}}, Answer: true,
		Tools: []json.RawMessage{json.RawMessage(`{"name":"f","parameters":{"type":"object","properties":{` + strings.Join(properties, ",") + `}}}`)},
	}
	const coder, hermes = 3, 0
	for _, family := range []int{coder, hermes} {
		template, prompt, _, v := asked(t, family, false, c)
		_, err := template.Constraint(t.Context(), v, c, prompt, nil)
		require.ErrorIs(t, err, chat.ErrNotKept)
	}
}

// TestConstraintEnds: a constraint whose client has gone is not compiled, and not kept as an error.
func TestConstraintEnds(t *testing.T) {
	gone := errors.New("the client has gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	c := chat.Conversation{Messages: []chat.Message{{Role: "user", Content: "x"}}, Answer: true}
	template, prompt, _, v := asked(t, 0, false, c)
	schema := json.RawMessage(`{"type":"object","required":["a"]}`)
	_, err := template.Constraint(ctx, v, c, prompt, schema)
	require.ErrorIs(t, err, gone)
	k, err := template.Constraint(t.Context(), v, c, prompt, schema)
	require.NoError(t, err)
	require.NotNil(t, k)
}

// TestBareCalls: a call without the marks around calls, or in a message of its own, is kept to the
// tool's schema too.
func TestBareCalls(t *testing.T) {
	const days, rest = "<parameter=days>\n3\n</parameter>\n", "<parameter=unit>\nC\n</parameter>\n</function>"
	for _, test := range []struct{ format, kept, lost string }{
		{"qwen3-coder", "Sure.\n<function=get_weather>\n" + days + rest + "\n</tool_call>", "Sure.\n<function=get_weather>\n<parameter=days>\n99"},
		{"qwen3-coder", "<function=now>\n</function> Ok.<tool_call>\n<function=now>\n</function>\n</tool_call>", "<function=then>"},
		{"seed-oss", "<function=list_all>\n</function>", "<function=list_all>\n<parameter=page>\nx"},
		{"deepseek-v3.1", "<｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜>", "<｜tool▁call▁begin｜>now<｜tool▁sep｜>{\"a"},
		{"kimi", "<|tool_call_begin|>functions.now:0<|tool_call_argument_begin|>{}<|tool_call_end|>", "<|tool_call_begin|>functions.then"},
		{"deepseek-v3.2", "<｜DSML｜invoke name=\"now\">\n</｜DSML｜invoke>", "<｜DSML｜invoke name=\"then"},
		{"muse-glimmer", " to=self<|message|>hm<|eom|><|start|>assistant to=user<|message|>Ok.<|eom|><|start|>assistant to=now<|message|><atem:function_calls>\n<atem:invoke name=\"now\">\n</atem:invoke>\n</atem:function_calls><|eom|><|start|>assistant to=list_all<|message|><atem:function_calls>\n<atem:invoke name=\"list_all\">\n<atem:parameter name=\"page\">3</atem:parameter>\n</atem:invoke>\n</atem:function_calls>", " to=list_all<|message|><atem:function_calls>\n<atem:invoke name=\"list_all\">\n<atem:parameter name=\"page\">x"},
	} {
		family := slices.IndexFunc(families, func(f struct{ format, mark, prompt, hints string }) bool { return f.format == test.format })
		for _, marks := range []bool{false, true} {
			c := chat.Conversation{Messages: []chat.Message{{Role: "user", Content: "x"}}, Tools: callable, Answer: true}
			template, prompt, tok, v := asked(t, family, marks, c)
			k, err := template.Constraint(t.Context(), v, c, prompt, nil)
			require.NoError(t, err)
			taken := func(text string) bool {
				s := k.Start()
				for _, id := range tok.Encode(text, true) {
					ok, err := s.Accept(id)
					require.NoError(t, err)
					if !ok {
						return false
					}
				}
				return true
			}
			require.True(t, taken(test.kept), "%s %v", test.format, marks)
			require.False(t, taken(test.lost), "%s %v", test.format, marks)
		}
	}
}
