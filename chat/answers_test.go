package chat_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/chat"
	"github.com/smelt-ml/smelt/internal/testfiles"
)

// answer is an output of a model and what llama.cpp's test-chat.cpp reads in it.
type answer struct {
	Template, Format string
	Prompt           string // its end, behind the user's text
	Thinking         *bool
	Tools            []string
	Text             string
	Reasoning        string
	Content          string // without the white space around it
	Calls            []struct {
		Name, ID  string
		Arguments json.RawMessage
	}
}

// heldAnswers returns those of testdata/answers.json. It lacks what llama.cpp tests of answers that go on,
// are cut off or are not split, and what smelt reads in another way: a fence around JSON belongs to
// the answer, and so do calls without declared tools; the prompt's words before reasoning do not
// belong to it.
func heldAnswers(t *testing.T) (list []answer, tools map[string]json.RawMessage) {
	raw, err := os.ReadFile("testdata/answers.json")
	require.NoError(t, err)
	var all struct {
		Tools   map[string]json.RawMessage
		Answers []answer
	}
	require.NoError(t, json.Unmarshal(raw, &all))
	require.Greater(t, len(all.Answers), 300)
	return all.Answers, all.Tools
}

func (a *answer) conversation(t *testing.T, tools map[string]json.RawMessage) chat.Conversation {
	c := chat.Conversation{Messages: []chat.Message{{Role: "user", Content: "Hey there!"}}, ToolsInPrompt: true, Answer: true}
	for _, name := range a.Tools {
		tool, err := json.Marshal(map[string]any{"name": name, "description": "d", "parameters": tools[name]})
		require.NoError(t, err)
		c.Tools = append(c.Tools, tool)
	}
	return c
}

// TestAnswers reads each answer as a whole and byte by byte.
func TestAnswers(t *testing.T) {
	tok := vocabulary(t, "<s>", "</s>")
	list, tools := heldAnswers(t)
	for _, a := range list {
		template, err := chat.NewTemplate("{{ prompt }}{# "+chat.Mark(a.Format)+" #}", tok)
		require.NoError(t, err)
		require.Equal(t, a.Format, template.Format().String())
		c := a.conversation(t, tools)
		prompt, err := json.Marshal(a.Prompt)
		require.NoError(t, err)
		c.Variables = map[string]json.RawMessage{"prompt": prompt}
		rendered, err := template.Render(c)
		require.NoError(t, err)
		require.Equal(t, a.Prompt, rendered.String())
		_, m := heard(t, template, c, rendered, []string{a.Text})
		_, pieces := heard(t, template, c, rendered, strings.Split(a.Text, ""))
		require.Equal(t, m, pieces, a.Text)
		require.Equal(t, a.Reasoning, strings.TrimSpace(m.Reasoning), a.Text)
		require.Equal(t, a.Content, strings.TrimSpace(m.Content), a.Text)
		require.Len(t, m.ToolCalls, len(a.Calls), a.Text)
		for i, call := range m.ToolCalls {
			require.Equal(t, a.Calls[i].Name, call.Name, a.Text)
			require.JSONEq(t, string(a.Calls[i].Arguments), call.Arguments, a.Text)
			if id := a.Calls[i].ID; id != "" {
				require.Equal(t, id, call.ID, a.Text)
			}
		}
	}
}

// TestAnswersTemplates checks that the answers' templates have their formats and end prompts as
// the answers say.
func TestAnswersTemplates(t *testing.T) {
	folder := testfiles.LlamaCpp(t, "models/templates")
	tok := vocabulary(t, "<s>", "</s>")
	list, tools := heldAnswers(t)
	for _, a := range list {
		source, err := os.ReadFile(filepath.Join(folder, a.Template+".jinja"))
		require.NoError(t, err)
		template, err := chat.NewTemplate(string(source), tok)
		require.NoError(t, err)
		require.Equal(t, a.Format, template.Format().String(), a.Template)
		c := a.conversation(t, tools)
		think := json.RawMessage("true")
		if a.Thinking != nil && !*a.Thinking {
			think = json.RawMessage("false")
		}
		c.Variables = map[string]json.RawMessage{"enable_thinking": think, "thinking": think, "functions": json.RawMessage(`""`), "datetime": json.RawMessage(`""`)}
		prompt, err := template.Render(c)
		require.NoError(t, err, a.Template)
		require.True(t, strings.HasSuffix(prompt.String(), a.Prompt), "%s: %q", a.Template, prompt)
	}
}

// Tools are refused where no reader knows how the model calls them; texts without tools are not.
func TestUnread(t *testing.T) {
	tok := vocabulary(t, "<s>", "</s>")
	const format = "minimax-m3"
	template, err := chat.NewTemplate("{{ messages[0].content }}{{ tools }}{# "+chat.Mark(format)+" #}", tok)
	require.NoError(t, err)
	require.Equal(t, format, template.Format().String())
	c := chat.Conversation{Messages: []chat.Message{{Role: "user", Content: "Hey there!"}}, ToolsInPrompt: true, Answer: true}
	_, err = template.Render(c)
	require.NoError(t, err)
	c.Tools = []json.RawMessage{json.RawMessage(`{"name": "f", "parameters": {}}`)}
	_, err = template.Render(c)
	require.ErrorIs(t, err, chat.ErrNoPlace)
	require.ErrorContains(t, err, format)
	c.ToolChoice.None = true
	_, err = template.Render(c)
	require.NoError(t, err)
}
