package smelt_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/chat"
	"github.com/smelt-ml/smelt/internal/fixture"
)

// TestForcedCalls has a model that knows nothing of tools call them, in the forms of many families,
// at a temperature at which it says anything: every answer is a call whose arguments match the
// tool's schema.
func TestForcedCalls(t *testing.T) {
	l := tinyQwen(t).Loaded()
	e := fixture.Engine(t, l, smelt.EngineOptions{Sequences: 8})
	tok, err := l.Tokenizer()
	require.NoError(t, err)
	v, err := l.Vocabulary()
	require.NoError(t, err)
	const parameters = `{"type": "object", "properties": {"city": {"enum": ["Oslo", "Köln"], "type": "string"}, "days": {"type": "integer", "minimum": 1, "maximum": 99},
		"at": {"type": "object", "properties": {"x": {"enum": [0, -1.5, 2e3, null]}, "y": {"type": "boolean"}}, "required": ["y"], "additionalProperties": false}},
		"required": ["days", "at"], "additionalProperties": false}`
	c := chat.Conversation{
		Messages: []chat.Message{{Role: "user", Content: "Will it rain?"}}, Answer: true, ToolChoice: chat.ToolChoice{Required: true},
		Tools: []json.RawMessage{json.RawMessage(`{"name": "get_weather", "parameters": ` + parameters + `}`), json.RawMessage(`{"name": "now"}`)},
	}
	parsed, err := jsonschema.UnmarshalJSON(strings.NewReader(parameters))
	require.NoError(t, err)
	compiler := jsonschema.NewCompiler()
	require.NoError(t, compiler.AddResource("weather.json", parsed))
	schema, err := compiler.Compile("weather.json")
	require.NoError(t, err)

	made, whole, tools := 0, 0, map[string]int{}
	for _, mark := range []string{ // one of each kind of templates
		"", "<function=", "<|start_header_id|>", "[INST]", "[ARGS]", "<|channel|>", "<|tool_call>call:", "<start_of_turn>", "<|tool_list_start|>", "<|start_of_role|>",
		"function<｜tool▁sep｜>", "<｜tool▁calls▁begin｜>", "｜DSML｜", "<|tool_calls_section_begin|>", "</arg_key>\n<arg_value>", "<arg_key>",
	} {
		prompt := "{{ tools[0].function.name }}{% for m in messages %}{{ m.content }}{% endfor %}"
		if mark == "<|channel|>" {
			prompt += "<|start|>assistant"
		}
		template, err := chat.NewTemplate(prompt+"{# "+mark+" #}", tok)
		require.NoError(t, err)
		var wait sync.WaitGroup
		messages, tokens := make([]chat.Message, 16), make([]string, 16)
		problems := make([]error, 16)
		for i := range messages {
			wait.Go(func() {
				c := c
				c.OneCall = i%4 > 0
				p, err := template.Render(c)
				if err != nil {
					problems[i] = err
					return
				}
				k, err := template.Constraint(t.Context(), v, c, p, nil)
				if err != nil {
					problems[i] = err
					return
				}
				parser := template.NewParser(c, p)
				sampling := smelt.Sampling{Temperature: 1.5, Seed: uint64(i + 1)}
				if i == 0 {
					sampling = smelt.Sampling{}
				}
				for token, err := range e.Generate(t.Context(), smelt.Request{Tokens: p.Tokens(), Generation: smelt.Generation{N: 200, Constraint: k, Sampling: sampling}}) {
					if err != nil {
						problems[i] = err
						return
					}
					parser.Token(token.ID)
					tokens[i] += token.Text
					if token.Finish == smelt.FinishLength {
						problems[i] = errLength
					}
				}
				parser.End()
				messages[i] = parser.Message()
			})
		}
		wait.Wait()
		for i, m := range messages {
			name := fmt.Sprintf("%q, %d: %q", mark, i, tokens[i])
			made++
			if problems[i] != errLength { // else there are calls without end
				require.NoError(t, problems[i], name)
				require.NotEmpty(t, m.ToolCalls, name)
				require.Empty(t, strings.TrimSpace(m.Content), name)
				whole++
			}
			for _, call := range m.ToolCalls {
				tools[call.Name]++
				arguments, err := jsonschema.UnmarshalJSON(strings.NewReader(call.Arguments))
				require.NoError(t, err, name)
				if call.Name == "get_weather" {
					require.NoError(t, schema.Validate(arguments), name)
				} else {
					require.Equal(t, "now", call.Name, name)
					require.Equal(t, map[string]any{}, arguments, name)
				}
			}
		}
	}
	t.Log(made, whole, tools)
	require.Greater(t, 4*whole, 3*made)
	require.Len(t, tools, 2)
}

var errLength = errors.New("the answer is cut off")
