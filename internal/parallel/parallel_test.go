package parallel

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt"
)

// TestClock times two steps of three sequences among steps that do not count.
func TestClock(t *testing.T) {
	var c Clock
	measured := 0
	c.begin(3, 2, func() { measured++ })
	ours := smelt.EngineStep{Sequences: 3, Tokens: 3, Rows: 3}
	for i, event := range []struct {
		what     string
		does     func()
		running  bool // whether the clock runs after the call
		measured int
	}{
		{"a step of those before", func() { c.Stepped(ours) }, false, 0},
		{"a prompt", func() { c.Stepped(smelt.EngineStep{Sequences: 1, Tokens: 128, Rows: 1}) }, false, 0},
		{"its token", func() { c.FirstToken(0) }, false, 0},
		{"two prompts beside its next", func() { c.Stepped(smelt.EngineStep{Sequences: 3, Tokens: 257, Rows: 3}) }, false, 0},
		{"a token", func() { c.FirstToken(0) }, false, 0},
		{"a step before the last token is taken", func() { c.Stepped(ours) }, false, 0},
		{"the last token", func() { c.FirstToken(0) }, false, 0},
		{"what starts the clock", func() { c.Stepped(ours) }, true, 0},
		{"the first step", func() { c.Stepped(ours) }, true, 0},
		{"a guess", func() { c.Stepped(smelt.EngineStep{Sequences: 3, Tokens: 4, Rows: 4}) }, true, 0},
		{"the second step", func() { c.Stepped(ours) }, true, 1},
		{"what is under way then", func() { c.Stepped(ours) }, true, 1},
	} {
		event.does()
		require.Equal(t, event.running, !c.start.IsZero(), "%d: %s", i, event.what)
		require.Equal(t, event.measured, measured, "%d: %s", i, event.what)
	}
	require.Positive(t, c.end())
}
