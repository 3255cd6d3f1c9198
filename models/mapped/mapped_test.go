package mapped

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	for _, want := range []string{"", "x", "some bytes"} {
		require.NoError(t, os.WriteFile(path, []byte(want), 0o600))
		f, err := Open(path)
		require.NoError(t, err)
		require.Equal(t, want, string(f.Bytes()))
		require.NoError(t, f.Close())
		require.Empty(t, f.Bytes())
		require.NoError(t, f.Close())
	}
}

func TestOpenRefuses(t *testing.T) {
	_, err := Open(filepath.Join(t.TempDir(), "absent"))
	require.ErrorIs(t, err, os.ErrNotExist)
	dir := t.TempDir()
	_, err = Open(dir)
	require.ErrorContains(t, err, dir)
	require.ErrorContains(t, err, "not a regular file")
}
