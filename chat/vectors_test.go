package chat_test

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/chat"
	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/models/tokenizer"
)

// vocabulary has a token for each byte, and control tokens; the first two are BOS and EOS, where
// they are not "".
func vocabulary(t testing.TB, controls ...string) *tokenizer.Tokenizer {
	s, err := tokenizer.Placeholder(258 + len(controls))
	require.NoError(t, err)
	s.EOS = tokenizer.None
	for i, text := range controls {
		if text == "" {
			continue
		}
		id := int32(258 + i)
		s.Tokens[id], s.Types[id] = text, tokenizer.Control
		switch i {
		case 0:
			s.BOS = id
		case 1:
			s.EOS = id
		}
	}
	tok, err := tokenizer.New(s)
	require.NoError(t, err)
	return tok
}

// likeVectors are the templates that are built in, by the vectors whose texts they give.
var likeVectors = map[string]string{
	"teknium/OpenHermes-2.5-Mistral-7B": "chatml", "Llama-3": "llama3", "google/gemma-7b-it": "gemma", "phi-4": "phi4",
	"ChatGLM4": "glm4", "ibm-granite/granite-3.0-8b-instruct": "granite", "CohereForAI/c4ai-command-r-plus": "command-r",
}

// TestVectors renders the templates that llama.cpp tests its own with, on its conversation.
func TestVectors(t *testing.T) {
	raw, err := os.ReadFile(testfiles.Shared(t, "data/chat/llama_cpp_chat_template_vectors.json"))
	require.NoError(t, err)
	var vectors struct {
		Messages []chat.Message
		Cases    []struct {
			Name      string
			Template  string `json:"template_str"`
			Want      string `json:"expected_output_jinja"`
			Other     string `json:"expected_output"`
			BOS       string `json:"bos_token"`
			EOS       string `json:"eos_token"`
			Supported bool   `json:"supported_with_jinja"`
		}
	}
	require.NoError(t, json.Unmarshal(raw, &vectors))
	require.Len(t, vectors.Cases, 33)
	compared := 0
	for _, c := range vectors.Cases {
		t.Run(c.Name, func(t *testing.T) {
			template, err := chat.NewTemplate(c.Template, vocabulary(t, c.BOS, c.EOS))
			require.NoError(t, err)
			prompt, err := template.Render(chat.Conversation{Messages: vectors.Messages, Answer: true})
			if !c.Supported {
				require.Error(t, err)
				return
			}
			require.NoError(t, err)
			want := c.Want
			if want == "" {
				want = c.Other
			}
			require.Equal(t, want, prompt.String())
			name, ok := likeVectors[c.Name]
			if !ok {
				return
			}
			compared++
			source, _ := chat.Builtin(name)
			template, err = chat.NewTemplate(source, vocabulary(t, c.BOS, c.EOS))
			require.NoError(t, err)
			prompt, err = template.Render(chat.Conversation{Messages: vectors.Messages, Answer: true})
			require.NoError(t, err)
			require.Equal(t, want, prompt.String(), name)
		})
	}
	require.Len(t, likeVectors, compared)
}

// TestBuiltinsPublic compares templates that are built in with public ones.
func TestBuiltinsPublic(t *testing.T) {
	tok := vocabulary(t, controls...)
	for name, file := range map[string]string{
		"chatml": "Qwen-Qwen3-0.6B", "gemma": "google-gemma-2-2b-it", "phi3": "microsoft-Phi-3.5-mini-instruct", "granite": "ibm-granite-granite-3.3-2B-Instruct",
	} {
		raw, err := os.ReadFile(testfiles.Shared(t, "data/chat/templates/"+file+".jinja"))
		require.NoError(t, err)
		source, ok := chat.Builtin(name)
		require.True(t, ok)
		var texts [2]string
		for i, source := range []string{source, string(raw)} {
			template, err := chat.NewTemplate(source, tok)
			require.NoError(t, err)
			prompt, err := template.Render(chat.Conversation{Answer: true, Messages: []chat.Message{
				{Role: "system", Content: "SYSTEM"}, {Role: "user", Content: "USER"}, {Role: "assistant", Content: "ANSWER"}, {Role: "user", Content: "MORE"},
			}})
			require.NoError(t, err)
			texts[i] = prompt.String()
		}
		require.Equal(t, texts[1], texts[0], name)
	}
}
