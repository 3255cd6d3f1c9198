package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/internal/tiny"
)

const pulledCommit = "89abcdef0123456789abcdef0123456789abcdef"

// hubOf starts a server of repositories, whose files lie in folders here, and has the
// environment say that it is the hub. Files come no faster than a megabyte in each pace.
func hubOf(t *testing.T, pace time.Duration, repos map[string][]string) *httptest.Server {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for repo, files := range repos {
			if r.URL.Path == "/api/models/"+repo+"/revision/main" {
				var listed []string
				for _, file := range files {
					data, err := os.ReadFile(file)
					if err != nil {
						t.Error(err)
					}
					sum := sha256.Sum256(data)
					listed = append(listed, fmt.Sprintf(`{"rfilename": %q, "lfs": {"sha256": %q, "size": %d}}`, filepath.Base(file), hex.EncodeToString(sum[:]), len(data)))
				}
				fmt.Fprintf(w, `{"sha": %q, "siblings": [%s]}`, pulledCommit, strings.Join(listed, ", "))
				return
			}
			for _, file := range files {
				if r.URL.Path == "/"+repo+"/resolve/"+pulledCommit+"/"+filepath.Base(file) || r.URL.Path == "/files/"+filepath.Base(file) {
					http.ServeFile(&paced{w, pace}, r, file)
					return
				}
			}
		}
		http.NotFound(w, r)
	}))
	t.Cleanup(server.Close)
	t.Setenv("HF_ENDPOINT", server.URL)
	t.Setenv("HF_HUB_CACHE", filepath.Join(t.TempDir(), "hub"))
	t.Setenv("HF_TOKEN", "")
	t.Setenv("HF_TOKEN_PATH", filepath.Join(t.TempDir(), "none"))
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("HF_HUB_OFFLINE", "")
	return server
}

type paced struct {
	http.ResponseWriter
	pace time.Duration
}

func (w *paced) Write(p []byte) (int, error) {
	time.Sleep(w.pace * time.Duration(len(p)) / (1 << 20))
	return w.ResponseWriter.Write(p)
}

// TestPulledNames: a name is MODEL for every verb that takes one, once it was fetched, and then
// no server is asked.
func TestPulledNames(t *testing.T) {
	q4 := testfiles.Model(t, "tiny-qwen3/gguf/tiny-qwen3-Q4_0.gguf")
	f16 := testfiles.Model(t, "tiny-qwen3/gguf/tiny-qwen3-F16.gguf")
	folder, err := filepath.Glob(filepath.Join(tiny.Folder(t, "tiny-qwen3"), "*"))
	require.NoError(t, err)
	server := hubOf(t, 0, map[string][]string{"tiny/quants": {q4, f16}, "tiny/folder": folder})
	dir := t.TempDir()
	t.Chdir(dir)
	require.NoError(t, os.WriteFile("text.txt", []byte(strings.Repeat("Once upon a time there was a little fox. ", 20)), 0o600))
	require.NoError(t, os.WriteFile("in.jsonl", []byte(`{"prompt": "Once", "n": 2}`+"\n"), 0o600))

	status, _, problems := call(t, "run", "tiny/quants:q4_0", "-p", "Once")
	require.Equal(t, exitFailure, status)
	require.Contains(t, problems, "there is no such file, and the model tiny/quants:q4_0 is not in the cache: smelt pull tiny/quants:q4_0 fetches it")
	status, out, problems := call(t, "pull", "tiny/quants:q4_0")
	require.Zero(t, status, problems)
	require.FileExists(t, strings.TrimSuffix(out, "\n"))
	require.Regexp(t, `smelt: tiny-qwen3-Q4_0\.gguf: ([\d.]+ [KM]iB) of `, problems)
	status, out, problems = call(t, "pull", "hf.co/tiny/folder")
	require.Zero(t, status, problems)
	require.DirExists(t, strings.TrimSuffix(out, "\n"))
	address := server.URL + "/files/" + filepath.Base(q4)
	status, out, problems = call(t, "pull", address)
	require.Zero(t, status, problems)
	require.Equal(t, filepath.Base(q4), filepath.Base(strings.TrimSuffix(out, "\n")))
	server.Close()

	for _, model := range []string{"tiny/quants", "tiny/quants:Q4_0", "hf:tiny/quants/tiny-qwen3-Q4_0.gguf", "tiny/folder", address} {
		status, out, problems := call(t, "run", model, "-p", "Once upon", "-n", "4")
		require.Zero(t, status, "%s: %s", model, problems)
		require.NotEmpty(t, out)
	}
	for _, args := range [][]string{
		{"batch", "M", "--in", "in.jsonl", "--out", "-", "--draft", "M"},
		{"dot", "M"},
		{"explain", "M"},
		{"compile", "M", "-o", "m.plan", "--target", "cpu"},
		{"run", "m.plan", "--weights", "M", "-p", "Once", "-n", "2"},
		{"bench", "M", "-p", "4", "-n", "2", "-r", "1"},
		{"logits", "M", "--tokens", "1,2", "-o", "l.npy"},
		{"embed", "M", "--tokens", "1,2", "-o", "e.npy"},
		{"perplexity", "M", "--file", "text.txt", "--window", "32"},
		{"verify", "M"},
		{"tokenize", "M"},
		{"constrain", "M", "--regex", "a"},
		{"inspect", "M"},
		{"inspect", "tiny/folder"},
		{"quantize", "M", "q.gguf", "--type", "q8_0"},
	} {
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "M", "tiny/quants:Q4_0")
		}
		status, _, problems := call(t, args...)
		require.Zero(t, status, "%v: %s", args, problems)
	}
	status, _, problems = call(t, "inspect", "tiny/quants:F16")
	require.Equal(t, exitFailure, status)
	require.Contains(t, problems, "smelt pull tiny/quants:F16 fetches it")
	for _, name := range []string{"quants", "hf:quants", "tiny/../x"} {
		status, _, problems = call(t, "pull", name)
		require.Equal(t, exitUsage, status, problems)
		require.Contains(t, problems, "not a model's name")
	}
	status, _, problems = call(t, "inspect", "hf:quants")
	require.Equal(t, exitFailure, status)
	require.Contains(t, problems, "not a model's name")
}

// TestPullInterrupted: Ctrl-C leaves what the next pull goes on with.
func TestPullInterrupted(t *testing.T) {
	model := testfiles.Model(t, "tiny-qwen3/gguf/tiny-qwen3-F16.gguf")
	server := hubOf(t, 200*time.Millisecond, map[string][]string{"tiny/quants": {model}})
	self, err := os.Executable()
	require.NoError(t, err)
	smelt := filepath.Join(t.TempDir(), "smelt") // TestMain goes by the name
	require.NoError(t, os.Symlink(self, smelt))
	cmd := exec.Command(smelt, "pull", "tiny/quants")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	require.NoError(t, cmd.Start())
	partial := func() int64 {
		files, err := filepath.Glob(filepath.Join(os.Getenv("HF_HUB_CACHE"), "models--tiny--quants", "blobs", "*.incomplete"))
		require.NoError(t, err)
		if len(files) != 1 {
			return 0
		}
		info, err := os.Stat(files[0])
		require.NoError(t, err)
		return info.Size()
	}
	require.Eventually(t, func() bool { return partial() > 0 }, 20*time.Second, 5*time.Millisecond)
	require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
	var exit *exec.ExitError
	require.ErrorAs(t, cmd.Wait(), &exit)
	require.Equal(t, exitStopped, exit.ExitCode(), stderr.String())
	kept := partial()
	require.Positive(t, kept)

	var ranges []string
	handler := server.Config.Handler
	server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/resolve/") {
			ranges = append(ranges, r.Header.Get("Range"))
		}
		handler.ServeHTTP(w, r)
	})
	status, out, problems := call(t, "pull", "tiny/quants")
	require.Zero(t, status, problems)
	require.Equal(t, []string{fmt.Sprintf("bytes=%d-", kept)}, ranges)
	got, err := os.ReadFile(strings.TrimSuffix(out, "\n"))
	require.NoError(t, err)
	want, err := os.ReadFile(model)
	require.NoError(t, err)
	require.True(t, bytes.Equal(want, got))
}
