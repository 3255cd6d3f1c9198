//go:build unix

package main

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/testfiles"
)

// TestCut: a model's file is cut short under run and under serve. The one fails, the other answers
// that it cannot, again and again, and both name the file.
func TestCut(t *testing.T) {
	const said = "the file was cut short"
	copied := func() string {
		data, err := os.ReadFile(testfiles.Model(t, "tiny-qwen3/gguf/tiny-qwen3-F16.gguf"))
		require.NoError(t, err)
		path := filepath.Join(t.TempDir(), "tiny.gguf")
		require.NoError(t, os.WriteFile(path, data, 0o600))
		return path
	}
	self, err := os.Executable()
	require.NoError(t, err)
	smelt := filepath.Join(t.TempDir(), "smelt") // TestMain goes by the name
	require.NoError(t, os.Symlink(self, smelt))

	path := copied()
	run := exec.Command(smelt, "run", path, "-p", "Once upon a time", "-n", "1000000", "--device", "cpu")
	var stderr bytes.Buffer
	run.Stderr = &stderr
	out, err := run.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, run.Start())
	t.Cleanup(func() { _ = run.Process.Kill() })
	_, err = out.Read(make([]byte, 1))
	require.NoError(t, err)
	require.NoError(t, os.Truncate(path, 1<<16))
	_, err = io.Copy(io.Discard, out)
	require.NoError(t, err)
	require.Error(t, run.Wait())
	require.Equal(t, exitFailure, run.ProcessState.ExitCode(), stderr.String())
	require.Contains(t, stderr.String(), path+": "+said)

	path = copied()
	s := startServer(t, path, "--ctx", "512")
	const body = `{"prompt": "Once upon a time", "max_tokens": 8}`
	status, text, err := s.post("/v1/completions", "", body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status, text)
	require.NoError(t, os.Truncate(path, 1<<16))
	for range 3 {
		status, text, err = s.post("/v1/completions", "", body)
		require.NoError(t, err)
		require.Equal(t, http.StatusInternalServerError, status, text)
		require.Contains(t, text, path+": "+said)
		require.Contains(t, text, `"weights_cut"`)
	}
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, s.cmd.Wait(), s.stderr.String())
}
