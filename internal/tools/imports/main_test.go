package main

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/testfiles"
)

func TestDrawing(t *testing.T) {
	want, err := draw(testfiles.Root(t))
	require.NoError(t, err)
	got, err := os.ReadFile(testfiles.Path(t, "docs/imports.dot"))
	require.NoError(t, err)
	require.Equal(t, string(want), string(got), "the drawing is old: run make imports")
}

func TestRoom(t *testing.T) {
	for pkg, want := range map[string]string{
		module: "smelt", module + "/ir": "ir", module + "/ir/dtype": "ir/dtype", module + "/models/gguf": "models",
		module + "/internal/tools/peer": "internal/tools", module + "/lower/plan": "lower/plan",
	} {
		got, ours := room(pkg)
		require.True(t, ours)
		require.Equal(t, want, got)
	}
	_, ours := room("fmt")
	require.False(t, ours)
}
