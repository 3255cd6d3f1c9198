//go:build unix

package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/internal/tiny"
)

// TestEndlessFiles has a device without an end, a length without bytes, and a pipe that nobody
// writes to, in the place of each file that is read whole: an error that names the file, at once.
func TestEndlessFiles(t *testing.T) {
	model := testfiles.Model(t, "tiny-qwen3/gguf/tiny-qwen3-F16.gguf")
	folder := filepath.Join(t.TempDir(), "hf")
	require.NoError(t, os.CopyFS(folder, os.DirFS(tiny.Folder(t, "tiny-qwen3"))))
	file := filepath.Join(t.TempDir(), "endless")
	oneToken := []string{"run", folder, "-p", "a", "-n", "1"}
	for _, c := range []struct {
		path  string
		args  []string
		pipes bool // a pipe is read too
	}{
		{filepath.Join(folder, "config.json"), oneToken, false},
		{filepath.Join(folder, "generation_config.json"), oneToken, false},
		{filepath.Join(folder, "tokenizer.json"), oneToken, false},
		{filepath.Join(folder, "tokenizer_config.json"), oneToken, false},
		{filepath.Join(folder, "model.safetensors"), oneToken, false},
		{filepath.Join(folder, "chat_template.jinja"), []string{"chat", folder, "--json"}, false},
		{filepath.Join(folder, "chat_template.json"), []string{"chat", folder, "--json"}, false},
		{file, []string{"run", model, "-p", "a", "-n", "1", "--schema", file}, true},
		{file, []string{"run", model, "-p", "a", "-n", "1", "--grammar", file}, true},
		{file, []string{"chat", model, "--json", "--template", file}, true},
		{file, []string{"perplexity", model, "--file", file}, true},
		{file, []string{"serve", model, "--api-key-file", file}, true},
	} {
		before, _ := os.ReadFile(c.path)
		for what, create := range map[string]func() error{
			"a device": func() error { return os.Symlink("/dev/zero", c.path) },
			"a length": func() error {
				f, err := os.Create(c.path)
				require.NoError(t, err)
				return f.Truncate(1 << 40)
			},
			"a pipe": func() error { return unix.Mkfifo(c.path, 0o600) },
		} {
			if c.pipes && what == "a pipe" {
				continue
			}
			os.Remove(c.path)
			require.NoError(t, create())
			var problems strings.Builder
			status := run(t.Context(), c.args, strings.NewReader(`[{"role": "user", "content": "a"}]`), io.Discard, &problems)
			require.NotZero(t, status, "%s for %s", what, c.path)
			require.Contains(t, problems.String(), filepath.Base(c.path), what)
		}
		os.Remove(c.path)
		if before != nil {
			require.NoError(t, os.WriteFile(c.path, before, 0o600))
		}
	}
}
