package chat_test

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/chat"
	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/models/tokenizer"
)

// controls are the control tokens of many models; the first two begin and end a text.
var controls = strings.Fields(`<s> </s> <|im_start|> <|im_end|> <|im_system|> <|im_user|> <|im_assistant|> <|im_middle|> <|endoftext|>
	<|start_header_id|> <|end_header_id|> <|eot_id|> <|eom_id|> <|begin_of_text|> <|python_tag|> [INST] [/INST] [SYSTEM_PROMPT] [/SYSTEM_PROMPT]
	[TOOL_CALLS] [TOOL_RESULTS] [/TOOL_RESULTS] [AVAILABLE_TOOLS] [/AVAILABLE_TOOLS] [ARGS] [TOOL_CONTENT] <start_of_turn> <end_of_turn> <|turn> <turn|>
	<|user|> <|assistant|> <|system|> <|end|> <|start|> <|channel|> <|message|> <|call|> <|return|> <|start_of_role|> <|end_of_role|> <|end_of_text|>
	<|START_OF_TURN_TOKEN|> <|END_OF_TURN_TOKEN|> <|USER_TOKEN|> <|CHATBOT_TOKEN|> <|SYSTEM_TOKEN|> [gMASK] <sop> <|observation|> <｜User｜> <｜Assistant｜>
	<｜begin▁of▁sentence｜> <｜end▁of▁sentence｜> [|user|] [|assistant|] [|endofturn|] [|system|] <seed:bos> <seed:eos> <|"|> <bos> <eos>`)

// neutral makes every control token a text like any other, character by character.
var neutral = strings.NewReplacer("<", "‹", ">", "›", "|", "¦", "[", "⁅", "]", "⁆", "｜", "¦")

// said is a text of control tokens, their pieces and ends, words and white space.
func said(r *rand.Rand) string {
	var b strings.Builder
	for range 1 + r.IntN(6) {
		token := controls[r.IntN(len(controls))]
		cut := r.IntN(len(token) + 1)
		for cut < len(token) && token[cut]&0xc0 == 0x80 { // within a character
			cut++
		}
		b.WriteString([]string{token, token, token[:cut], token[cut:], " ", "\n", "system\nobey", "ü🙂", "\u2028", `"\`, "a"}[r.IntN(11)])
	}
	return b.String()
}

// quotation is a conversation; texts go through change.
func quotation(r *rand.Rand, change func(string) string) chat.Conversation {
	text := func() string { return change(said(r)) }
	c := chat.Conversation{Answer: r.IntN(4) > 0}
	if r.IntN(2) == 0 {
		c.Messages = append(c.Messages, chat.Message{Role: "system", Content: text()})
	}
	if r.IntN(3) == 0 {
		tool, _ := json.Marshal(map[string]any{"type": "function", "function": map[string]any{"name": text(), "description": text(),
			"parameters": map[string]any{"type": "object", "properties": map[string]any{text(): map[string]any{"type": "string", "description": text(), "enum": []string{text()}}}}}})
		c.Tools = append(c.Tools, tool)
	}
	for range 1 + r.IntN(3) {
		c.Messages = append(c.Messages, chat.Message{Role: "user", Content: text(), Name: text()})
		answer := chat.Message{Role: "assistant", Content: text()}
		switch r.IntN(4) {
		case 0:
			answer.Reasoning = text()
		case 1:
			arguments, _ := json.Marshal(map[string]any{text(): text(), "n": 1})
			answer.ToolCalls = []chat.ToolCall{{ID: "123456789", Name: text(), Arguments: string(arguments)}}
			c.Messages = append(c.Messages, answer)
			answer = chat.Message{Role: "tool", Content: text(), ToolCallID: "123456789", Name: text()}
		case 2:
			if r.IntN(4) == 0 {
				answer.Role = text()
			}
		}
		c.Messages = append(c.Messages, answer)
	}
	if r.IntN(3) == 0 {
		document, _ := json.Marshal(map[string]string{"title": text(), "text": text()})
		c.Documents = append(c.Documents, document)
	}
	if r.IntN(8) == 0 {
		value, _ := json.Marshal(text())
		c.Variables = map[string]json.RawMessage{"date_string": value, "model_identity": value}
	}
	return c
}

// TestQuoted checks that quoted text adds no control token to a prompt and removes none:
// conversations made of control tokens have those that the same conversations have with the tokens
// made unspellable.
func TestQuoted(t *testing.T) {
	tok := vocabulary(t, controls...)
	var templates []*chat.Template
	add := func(source string) {
		template, err := chat.NewTemplate(source, tok)
		require.NoError(t, err)
		templates = append(templates, template)
	}
	for _, name := range chat.Builtins() {
		source, _ := chat.Builtin(name)
		add(source)
	}
	public, _ := filepath.Glob(filepath.Join(testfiles.Root(t), "../shared/data/chat/templates/*.jinja"))
	for _, file := range public {
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		add(string(source))
	}
	is := func(ids []int32) []int32 {
		var list []int32
		for _, id := range ids {
			if tok.Type(id) == tokenizer.Control {
				list = append(list, id)
			}
		}
		return list
	}
	rendered, spelt, rounds := 0, 0, testfiles.Rounds("models", 2000, 10_000)
	for seed := 0; rendered < rounds; seed++ {
		require.Less(t, seed, 6*rounds)
		template := templates[seed%len(templates)]
		a, err := template.Render(quotation(rand.New(rand.NewPCG(uint64(seed), 1)), func(s string) string { return s }))
		b, other := template.Render(quotation(rand.New(rand.NewPCG(uint64(seed), 1)), neutral.Replace))
		if err != nil || other != nil {
			continue
		}
		rendered++
		ids := a.Tokens()
		require.Equal(t, is(b.Tokens()), is(ids), "seed %d: %q", seed, a)
		require.Equal(t, a.String(), string(tok.Decode(ids, true)), "seed %d", seed)
		// A search for control tokens in the text would have found more.
		if len(is(tok.Encode(a.String(), true))) > len(is(ids)) {
			spelt++
		}
	}
	require.Greater(t, spelt, rounds/2)
}

// TestBuiltins renders a conversation with each template, and looks it up by each of its families
// with a vocabulary that has its tokens.
func TestBuiltins(t *testing.T) {
	tok := vocabulary(t, controls...)
	for family, want := range map[string]string{
		"qwen2": "chatml", "qwen3": "chatml", "gemma3": "gemma", "phi3": "phi3", "granite": "granite", "cohere2": "command-r", "glm4": "glm4", "exaone4": "exaone4",
	} {
		name, source, err := chat.ForFamily(family, tok)
		require.NoError(t, err)
		require.Equal(t, want, name, family)
		template, err := chat.NewTemplate(source, tok)
		require.NoError(t, err)
		prompt, err := template.Render(chat.Conversation{Answer: true, Messages: []chat.Message{
			{Role: "system", Content: "SYSTEM"}, {Role: "user", Content: "USER"}, {Role: "assistant", Content: "ANSWER"}, {Role: "user", Content: "MORE"},
		}})
		require.NoError(t, err, name)
		at := 0
		for _, part := range []string{"SYSTEM", "USER", "ANSWER", "MORE"} {
			i := strings.Index(prompt.String()[at:], part)
			require.GreaterOrEqual(t, i, 0, "%s: %q", name, prompt)
			at += i
		}
	}
	for controls, want := range map[string]string{"<s> </s> <|start_header_id|> <|end_header_id|> <|eot_id|>": "llama3", "<s> </s> [INST] [/INST]": "mistral", "<s> </s> <|user|> <|assistant|> <|end|>": "phi3"} {
		family := "llama"
		if want == "phi3" {
			family = want
		}
		name, _, err := chat.ForFamily(family, vocabulary(t, strings.Fields(controls)...))
		require.NoError(t, err)
		require.Equal(t, want, name)
	}
	for _, family := range []string{"llama", "mpt", ""} {
		_, _, err := chat.ForFamily(family, vocabulary(t, "<s>", "</s>"))
		require.ErrorIs(t, err, chat.ErrNoTemplate)
	}
}

func TestMessages(t *testing.T) {
	for raw, want := range map[string]string{
		`{"role": "user", "content": "a<b"}`: `{"role":"user","content":"a<b"}`,
		`{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}`:                                                                             `{"role":"user","content":"ab"}`,
		`{"role": "assistant", "content": null, "reasoning_content": "r", "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"a\": 1}"}}]}`: `{"role":"assistant","content":"","reasoning":"r","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{\"a\": 1}"}}]}`,
		`{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {"a":1}}}, {"function": {"name": "g"}}]}`:                                                   `{"role":"assistant","content":"","tool_calls":[{"type":"function","function":{"name":"f","arguments":"{\"a\":1}"}},{"type":"function","function":{"name":"g","arguments":"{}"}}]}`,
		`{"role": "assistant", "content": null, "refusal": "No.", "annotations": [], "audio": null, "function_call": null, "parsed": null}`:                                       `{"role":"assistant","content":"No."}`,
		`{"role": "assistant", "content": "a", "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}", "parsed_arguments": {}}}]}`:            `{"role":"assistant","content":"a","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}]}`,
	} {
		var m chat.Message
		require.NoError(t, json.Unmarshal([]byte(raw), &m), raw)
		out, err := m.MarshalJSON()
		require.NoError(t, err)
		require.Equal(t, want, string(out))
	}
	for raw, want := range map[string]string{
		`{"content": "a"}`:                                                                "without a role",
		`{"role": "user", "content": 1}`:                                                  "content",
		`{"role": "user", "content": [{"type": "image_url"}]}`:                            `content of type "image_url"`,
		`{"role": "user", "texts": "a"}`:                                                  `unknown field "texts"`,
		`{"role": "assistant", "tool_calls": [{}]}`:                                       "without function.name",
		`{"role": "assistant", "tool_calls": [{"type": "x", "function": {"name": "f"}}]}`: `type "x"`,
	} {
		var m chat.Message
		require.ErrorContains(t, json.Unmarshal([]byte(raw), &m), want, raw)
	}
}
