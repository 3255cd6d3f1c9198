package mapped

import (
	"os"
	"path/filepath"
	"strings"
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

func TestReadFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	require.NoError(t, os.WriteFile(path, []byte("some bytes"), 0o600))
	data, err := ReadFile(path, 10)
	require.NoError(t, err)
	require.Equal(t, "some bytes", string(data))
	_, err = ReadFile(path, 9)
	require.EqualError(t, err, path+": more than 9 bytes")

	require.NoError(t, os.Truncate(path, 1<<40))
	_, err = ReadFile(path, 1<<30)
	require.ErrorContains(t, err, "more than")
	_, err = ReadFile(filepath.Join(dir, "absent"), 9)
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = ReadFile(dir, 9)
	require.ErrorContains(t, err, "not a regular file")

	data, err = ReadAll(strings.NewReader("abc"), "it", 3)
	require.NoError(t, err)
	require.Equal(t, "abc", string(data))
	_, err = ReadAll(strings.NewReader("abcd"), "it", 3)
	require.EqualError(t, err, "it: more than 3 bytes")
}
