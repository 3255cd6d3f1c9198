package smelt_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/internal/fixture"
	"github.com/smelt-ml/smelt/internal/tiny"
	"github.com/smelt-ml/smelt/models/mapped"
)

// TestCutDraft: a draft that is cut short ends requests with an error that names its file, though
// it runs on the engine's device.
func TestCutDraft(t *testing.T) {
	smelt.GuessEagerly(t)
	data, err := os.ReadFile(tiny.GGUF(t, "tiny-qwen3", "Q4_0"))
	require.NoError(t, err)
	load := func() (*smelt.Loaded, string) {
		path := filepath.Join(t.TempDir(), "tiny.gguf")
		require.NoError(t, os.WriteFile(path, data, 0o600))
		l, err := smelt.Load(path, smelt.Options{Context: 128, Device: smelt.Device{Name: "cpu"}})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, l.Close()) })
		return l, path
	}
	target, _ := load()
	draft, path := load()
	e := fixture.Engine(t, target, smelt.EngineOptions{Sequences: 2, Draft: draft})
	ask := func() error {
		return collect(e.Generate(t.Context(), smelt.Request{Prompt: onceUpon, Generation: smelt.Generation{N: 12, IgnoreStop: true}})).err
	}
	require.NoError(t, ask())
	require.NoError(t, os.Truncate(path, 1<<16))
	err = ask()
	require.ErrorIs(t, err, mapped.ErrCut)
	require.ErrorContains(t, err, path)
}
