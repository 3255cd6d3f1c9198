//go:build fakemetal && linux

package apple

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWarnings compiles the bridge and the fake with every warning, by gcc and, where
// it is installed, by clang, which knows more about Objective-C.
func TestWarnings(t *testing.T) {
	var files []string
	for _, pattern := range []string{"*.m", "../internal/fakemetal/*.m"} {
		found, err := filepath.Glob(pattern)
		require.NoError(t, err)
		require.NotEmpty(t, found)
		files = append(files, found...)
	}
	runtime, err := exec.Command("gcc", "-print-file-name=include").Output()
	require.NoError(t, err)
	for _, row := range [][]string{
		{"gcc", "-std=gnu17", "-O1", "-S", "-o", "/dev/null"},
		{"clang-19", "-std=gnu17", "-fobjc-runtime=gcc", "-fsyntax-only", "-idirafter", string(runtime[:len(runtime)-1])},
	} {
		if _, err := exec.LookPath(row[0]); err != nil {
			t.Logf("without %s", row[0])
			continue
		}
		for _, file := range files {
			args := append(row[1:], "-Wall", "-Wextra", "-Werror", "-I../internal/fakemetal/include", "-I../..", file)
			out, err := exec.Command(row[0], args...).CombinedOutput()
			require.NoError(t, err, "%s %s\n%s", row[0], file, out)
		}
	}
}
