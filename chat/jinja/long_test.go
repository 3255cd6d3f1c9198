package jinja_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/chat/jinja"
)

// TestLongTalk: a conversation of 400 messages is within the bounds of every public template that
// takes a short one.
func TestLongTalk(t *testing.T) {
	talk := func(turns int) []byte {
		var messages []map[string]any
		for i := range turns {
			messages = append(messages, map[string]any{"role": "user", "content": fmt.Sprintf("question %d", i)},
				map[string]any{"role": "assistant", "content": strings.Repeat("answer ", 20)})
		}
		messages = append(messages, map[string]any{"role": "user", "content": "last"})
		raw, err := json.Marshal(map[string]any{"messages": messages, "add_generation_prompt": true, "bos_token": "<s>", "eos_token": "</s>"})
		require.NoError(t, err)
		return raw
	}
	short, long := talk(1), talk(200)
	taken := 0
	for _, name := range publicTemplates(t) {
		template, err := jinja.Parse(publicTemplate(t, name))
		require.NoError(t, err)
		if _, err = template.Render(variables(t, short, jinja.Marked), jinja.Options{Now: moment}); err != nil {
			require.NotErrorIs(t, err, jinja.ErrLimit, name)
			continue
		}
		taken++
		_, err = template.Render(variables(t, long, jinja.Marked), jinja.Options{Now: moment})
		require.NoError(t, err, name)
	}
	require.Greater(t, taken, 75)
}
