package chat_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/chat"
	"github.com/smelt-ml/smelt/internal/testfiles"
)

// publicTemplates returns the sources of all templates at hand, by name.
func publicTemplates(t testing.TB) map[string]string {
	all := map[string]string{}
	for _, name := range chat.Builtins() {
		all[name], _ = chat.Builtin(name)
	}
	for _, pattern := range []string{"templates/*.jinja", "mistral-common/chat_templates/*.jinja"} {
		files, err := filepath.Glob(filepath.Join(testfiles.Shared(t, "data/chat"), pattern))
		require.NoError(t, err)
		for _, file := range files {
			source, err := os.ReadFile(file)
			require.NoError(t, err)
			all[filepath.Base(file)] = string(source)
		}
	}
	require.Greater(t, len(all), 80)
	delete(all, "fireworks-ai-llama-3-firefunction-v2.jinja") // wants variables of its own
	delete(all, "MiroThinker.jinja")                          // sets members of messages, which is an error in Jinja2 too
	return all
}

// answers are messages that parsers make: those of spoken, and every mixture of their parts.
func answers(t testing.TB) []chat.Message {
	tok := vocabulary(t, "<s>", "</s>")
	conversation := chat.Conversation{Messages: []chat.Message{{Role: "user", Content: "x"}}, Tools: declared, ToolsInPrompt: true, Answer: true}
	var list []chat.Message
	for _, c := range spoken {
		template, err := chat.NewTemplate("{{ '"+c.prompt+"' }}{# "+c.mark+" #}", tok)
		require.NoError(t, err)
		prompt, err := template.Render(conversation)
		require.NoError(t, err)
		_, m := heard(t, template, conversation, prompt, []string{c.text})
		list = append(list, m)
	}
	calls := []chat.ToolCall{{ID: "call00001", Name: "get", Arguments: `{"city": "Bonn", "days": 3, "x": [true, null, 1.5]}`}, {ID: "functions.now:1", Name: "now", Arguments: "{}"}, {ID: "call00003", Name: "get", Arguments: `{"city`}, {ID: "call00004", Name: "now", Arguments: ""}}
	for _, content := range []string{"", "I will look."} {
		for _, reasoning := range []string{"", "hm"} {
			for n := range len(calls) + 1 {
				list = append(list, chat.Message{Role: "assistant", Content: content, Reasoning: reasoning, ToolCalls: calls[:n]})
			}
		}
	}
	return list
}

// TestTakenBack sends every answer that the parsers make, with results of its calls, back through
// every template: each is taken, and no call or result of it is lost.
func TestTakenBack(t *testing.T) {
	tok := vocabulary(t, controls...)
	list := answers(t)
	for name, source := range publicTemplates(t) {
		template, err := chat.NewTemplate(source, tok)
		require.NoError(t, err)
		for _, answer := range list {
			c := chat.Conversation{Tools: declared, ToolsInPrompt: true, Answer: true, Messages: []chat.Message{{Role: "user", Content: "x"}, answer}}
			for i, call := range answer.ToolCalls {
				c.Messages = append(c.Messages, chat.Message{Role: "tool", ToolCallID: call.ID, Content: fmt.Sprintf("result%d", i)})
			}
			if len(answer.ToolCalls) == 0 {
				c.Messages = append(c.Messages, chat.Message{Role: "user", Content: "on"})
			}
			prompt, err := template.Render(c)
			if err != nil {
				t.Errorf("%s: %v of %+v", name, err, answer)
				break
			}
			text := prompt.String()
			for i, call := range answer.ToolCalls {
				if !strings.Contains(text, call.Name) || !strings.Contains(text, fmt.Sprintf("result%d", i)) || strings.Contains(call.Arguments, "Bonn") && !strings.Contains(text, "Bonn") {
					t.Errorf("%s: call %d or its result is lost of %+v: %q", name, i, answer, text)
				}
			}
		}
	}
}

// TestRoles sends a developer's text, system texts in the middle and unknown roles through every
// template: what is said reaches the model or is refused.
func TestRoles(t *testing.T) {
	tok := vocabulary(t, controls...)
	for name, source := range publicTemplates(t) {
		template, err := chat.NewTemplate(source, tok)
		require.NoError(t, err)
		render := func(messages ...chat.Message) (string, error) {
			prompt, err := template.Render(chat.Conversation{Messages: messages, Answer: true})
			return prompt.String(), err
		}
		user, answer := chat.Message{Role: "user", Content: "hi"}, chat.Message{Role: "assistant", Content: "yes"}
		for _, messages := range [][]chat.Message{
			{{Role: "developer", Content: "be nice"}, user},
			{{Role: "system", Content: "s"}, {Role: "developer", Content: "be nice"}, user},
			{user, answer, {Role: "system", Content: "be nice"}, user},
			{{Role: "system", Content: "s"}, user, answer, {Role: "developer", Content: "be nice"}, user},
			{user, answer, {Role: "system", Content: "be nice"}},
		} {
			text, err := render(messages...)
			if err != nil || !strings.Contains(text, "be nice") {
				t.Errorf("%s: %v of %v: %q", name, err, messages, text)
			}
		}
		if text, err := render(user, chat.Message{Role: "critic", Content: "be nice"}); err == nil && !strings.Contains(text, "be nice") {
			t.Errorf("%s: a critic's text is lost: %q", name, text)
		}
		if !strings.Contains(source, "developer") {
			system, err := render(chat.Message{Role: "system", Content: "be nice"}, user)
			require.NoError(t, err, name)
			developer, err := render(chat.Message{Role: "developer", Content: "be nice"}, user)
			require.NoError(t, err, name)
			require.Equal(t, system, developer, name)
		}
	}
}

// TestToolsHaveAPlace: tools without a place are refused by name, or become system text; they may
// lack a description and parameters.
func TestToolsHaveAPlace(t *testing.T) {
	tok := vocabulary(t, controls...)
	refused := 0
	for name, source := range publicTemplates(t) {
		template, err := chat.NewTemplate(source, tok)
		require.NoError(t, err)
		for _, tool := range []string{
			`{"name": "weather_report", "parameters": {"type": "object", "properties": {"at": {"type": "string", "description": "where"}}, "required": ["at"]}, "description": "d"}`,
			`{"type": "function", "function": {"name": "weather_report", "description": null, "parameters": {"type": "object", "properties": {"at": {"type": "string", "description": null}}}}}`,
			`{"type": "function", "function": {"name": "weather_report", "parameters": null, "strict": null}}`,
			`{"name": "weather_report"}`,
			`{"name": "weather_report", "parameters": {"type": "object"}}`,
		} {
			c := chat.Conversation{Messages: []chat.Message{{Role: "user", Content: "x"}}, Tools: []json.RawMessage{json.RawMessage(tool)}, Answer: true}
			prompt, err := template.Render(c)
			if err != nil {
				refused++
				if require.ErrorIs(t, err, chat.ErrNoPlace, "%s: %s", name, tool); !strings.Contains(err.Error(), "weather_report") {
					t.Errorf("%s: %v", name, err)
				}
				c.ToolsInPrompt = true
				prompt, err = template.Render(c)
			}
			if err != nil || !strings.Contains(prompt.String(), "weather_report") {
				t.Errorf("%s: %v of %s: %q", name, err, tool, prompt)
			} else if strings.Contains(tool, "null") && strings.Contains(prompt.String(), "None") && !strings.Contains(source, "None") {
				t.Errorf("%s: None of %s: %q", name, tool, prompt)
			}
		}
	}
	require.Positive(t, refused)
}

// TestEmptyArguments: a call with no arguments is rendered alike however it is written.
func TestEmptyArguments(t *testing.T) {
	tok := vocabulary(t, controls...)
	for name, source := range publicTemplates(t) {
		template, err := chat.NewTemplate(source, tok)
		require.NoError(t, err)
		var first string
		for i, arguments := range []string{`"{}"`, `""`, `" "`, `null`, `"null"`, `{}`} {
			var call chat.ToolCall
			require.NoError(t, json.Unmarshal([]byte(`{"id": "call00001", "function": {"name": "now", "arguments": `+arguments+`}}`), &call))
			prompt, err := template.Render(chat.Conversation{ToolsInPrompt: true, Tools: declared, Answer: true, Messages: []chat.Message{
				{Role: "user", Content: "x"}, {Role: "assistant", ToolCalls: []chat.ToolCall{call}}, {Role: "tool", ToolCallID: "call00001", Content: "5"}}})
			require.NoError(t, err, name)
			if i == 0 {
				first = prompt.String()
			}
			require.Equal(t, first, prompt.String(), "%s: %s", name, arguments)
		}
	}
}

// muteBesideCalls are the templates that write no text beside calls, in Jinja2 too, or refuse it.
var muteBesideCalls = []string{
	"CohereForAI-c4ai-command-r7b-12-2024-tool_use.jinja", "Cohere2MoE.jinja",
	"meta-llama-Llama-3.1-8B-Instruct.jinja", "meta-llama-Llama-3.2-3B-Instruct.jinja", "meta-llama-Llama-3.3-70B-Instruct.jinja",
	"Mistral-Small-3.2-24B-Instruct-2506.jinja", "mistralai-Mistral-Nemo-Instruct-2407.jinja",
	"NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use.jinja", "NousResearch-Hermes-3-Llama-3.1-8B-tool_use.jinja",
	"v2.jinja", "v2_spm.jinja", "v3.jinja", "v3_spm.jinja", "v3_image.jinja", "v3_image_spm.jinja",
}

// TestTextBesideCalls: a text beside a call reaches the model, unless its template has no place for it.
func TestTextBesideCalls(t *testing.T) {
	tok := vocabulary(t, controls...)
	var mute []string
	for name, source := range publicTemplates(t) {
		template, err := chat.NewTemplate(source, tok)
		require.NoError(t, err)
		prompt, err := template.Render(chat.Conversation{Tools: declared, ToolsInPrompt: true, Answer: true, Messages: []chat.Message{
			{Role: "user", Content: "x"},
			{Role: "assistant", Content: "beside it", ToolCalls: []chat.ToolCall{{ID: "call00001", Name: "now", Arguments: "{}"}}},
			{Role: "tool", ToolCallID: "call00001", Content: "noon"},
		}})
		require.NoError(t, err, name)
		if !strings.Contains(prompt.String(), "beside it") {
			mute = append(mute, name)
		}
	}
	require.ElementsMatch(t, muteBesideCalls, mute)
}
