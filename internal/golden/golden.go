// Package golden compares the output of a test with a file that a person has reviewed. Run the
// test with -update to write the file anew, and read the diff.
package golden

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write golden files instead of comparing with them")

// Check fails the test unless the file holds exactly got.
func Check(t testing.TB, path, got string) {
	t.Helper()
	if *update {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err, "run the test with -update to make the file")
	require.Equal(t, string(want), got, "%s differs; run the test with -update if the change is meant", path)
}

// CheckLine fails the test unless the first line that begins with prefix in a document continues
// with got.
func CheckLine(t testing.TB, path, prefix, got string) {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	lines := strings.Split(string(text), "\n")
	at := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, prefix) })
	require.GreaterOrEqual(t, at, 0, "%s has no line that begins with %q", path, prefix)
	if *update {
		lines[at] = prefix + got
		require.NoError(t, os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o644))
	}
	require.Equal(t, prefix+got, lines[at], "%s differs; run the test with -update if the change is meant", path)
}
