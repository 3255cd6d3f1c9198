package openai

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/chat"
	"github.com/smelt-ml/smelt/internal/testfiles"
)

// Clients learn which switches for thinking a model's template has, and nothing where it has none.
func TestThinking(t *testing.T) {
	file, err := smelt.Open(testfiles.Model(t, "tiny-qwen3/gguf/tiny-qwen3-Q4_0.gguf"), "")
	require.NoError(t, err)
	defer file.Close()
	tok, err := file.Tokenizer()
	require.NoError(t, err)
	for source, want := range map[string][]string{
		"{{ messages[0].content }}":                                     nil,
		"{% if enable_thinking %}x{% endif %}{{ messages[0].content }}": {"enable_thinking"},
		"{{ reasoning_effort }}{{ enable_thinking }}":                   {"enable_thinking", "reasoning_effort"},
	} {
		m := &Model{}
		m.plain, err = chat.NewTemplate(source, tok)
		require.NoError(t, err)
		require.Equal(t, want, m.thinking(), source)
		m.templateErr = chat.ErrNoTemplate
		require.Empty(t, m.thinking())
	}
	raw, err := json.Marshal(Info{})
	require.NoError(t, err)
	require.NotContains(t, string(raw), "template_variables")
}
