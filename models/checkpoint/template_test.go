package checkpoint

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFolderTemplates finds templates wherever folders have them.
func TestFolderTemplates(t *testing.T) {
	for _, c := range []struct {
		files                map[string]string
		plain, tools, failed string
	}{
		{files: map[string]string{}},
		{files: map[string]string{"tokenizer_config.json": `{"chat_template": null}`}},
		{files: map[string]string{"tokenizer_config.json": `{"chat_template": "a\nb"}`}, plain: "a\nb", tools: "a\nb"},
		{files: map[string]string{"tokenizer_config.json": `{"chat_template": [{"name": "default", "template": "a"}, {"name": "tool_use", "template": "b"}]}`}, plain: "a", tools: "b"},
		{files: map[string]string{"chat_template.jinja": "c", "tokenizer_config.json": `{"chat_template": "a"}`}, plain: "c", tools: "c"},
		{files: map[string]string{"chat_template.json": `{"chat_template": "d"}`}, plain: "d", tools: "d"},
		{files: map[string]string{"chat_template.jinja": "c", "additional_chat_templates/tool_use.jinja": "e"}, plain: "c", tools: "e"},
		{files: map[string]string{"tokenizer_config.json": `{"chat_template": 3}`}, failed: "tokenizer_config.json: chat_template"},
		{files: map[string]string{"tokenizer_config.json": `{`}, failed: "tokenizer_config.json: chat_template"},
	} {
		dir := t.TempDir()
		for name, text := range c.files {
			require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
		}
		m := &Checkpoint{template: hfTemplate(dir)}
		plain, err := m.ChatTemplate(false)
		if c.failed != "" {
			require.ErrorContains(t, err, c.failed)
			continue
		}
		require.NoError(t, err)
		tools, err := m.ChatTemplate(true)
		require.NoError(t, err)
		require.Equal(t, []string{c.plain, c.tools}, []string{plain, tools}, c.files)
	}
	text, err := (&Checkpoint{}).ChatTemplate(true)
	require.NoError(t, err)
	require.Empty(t, text)
}
