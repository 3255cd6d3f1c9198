package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-zeromq/zmq4"
	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/testfiles"
)

// serving is a server in a process of its own.
type serving struct {
	cmd    *exec.Cmd
	url    string
	stdout *bufio.Reader
	stderr bytes.Buffer
}

// startServer returns a server that is ready.
func startServer(t *testing.T, args ...string) *serving {
	self, err := os.Executable()
	require.NoError(t, err)
	smelt := filepath.Join(t.TempDir(), "smelt") // TestMain goes by the name
	require.NoError(t, os.Symlink(self, smelt))
	s := &serving{cmd: exec.Command(smelt, append([]string{"serve", "--addr", "127.0.0.1:0", "--device", "cpu"}, args...)...)}
	s.cmd.Stderr = &s.stderr
	s.cmd.Env = append(os.Environ(), "SMELT_TUNED=off")
	out, err := s.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, s.cmd.Start())
	t.Cleanup(func() { _ = s.cmd.Process.Kill() }) // it may have ended
	s.stdout = bufio.NewReader(out)
	line, err := s.stdout.ReadString('\n')
	require.NoError(t, err, "%s", s.stderr.String())
	s.url = strings.TrimSuffix(line, "\n")
	return s
}

func (s *serving) post(path, key, body string) (int, string, error) {
	r, err := http.NewRequest("POST", s.url+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+key)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(text), err
}

// TestServe: the address is all of standard output; a signal lets what has begun come to its
// end, after which the exit status is 0.
func TestServe(t *testing.T) {
	model := testfiles.Model(t, "tiny-qwen3/gguf/tiny-qwen3-Q4_0.gguf")
	keys := filepath.Join(t.TempDir(), "keys")
	require.NoError(t, os.WriteFile(keys, []byte("# of the test\n\nsecret\n"), 0o600))
	for _, signal := range []os.Signal{syscall.SIGTERM, os.Interrupt} {
		s := startServer(t, model, "--api-key-file", keys, "--name", "story", "--parallel", "2", "--ctx", "512")
		status, _, err := s.post("/v1/completions", "wrong", "{}")
		require.NoError(t, err)
		require.Equal(t, http.StatusUnauthorized, status)
		status, text, err := s.post("/v1/completions", "secret", `{"model": "story", "prompt": "Once", "max_tokens": 3}`)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, status, text)

		r, err := http.NewRequest("POST", s.url+"/v1/completions", strings.NewReader(`{"prompt": "Once upon a time", "max_tokens": 480, "ignore_eos": true, "stream": true}`))
		require.NoError(t, err)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("X-Api-Key", "secret")
		answer, err := http.DefaultClient.Do(r) // it has begun
		require.NoError(t, err)
		require.NoError(t, s.cmd.Process.Signal(signal))
		whole, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		answer.Body.Close()
		require.True(t, strings.HasSuffix(string(whole), "data: [DONE]\n\n"))
		rest, err := io.ReadAll(s.stdout)
		require.NoError(t, err)
		require.Empty(t, rest, "one line of standard output")
		require.NoError(t, s.cmd.Wait(), s.stderr.String())
		require.Contains(t, s.stderr.String(), "smelt: stopping")
	}
}

// TestServeMemory: two models within a bound that holds one are both served.
func TestServeMemory(t *testing.T) {
	qwen := testfiles.Model(t, "tiny-qwen3/gguf/tiny-qwen3-Q4_0.gguf")
	llama := testfiles.Model(t, "tiny-llama/gguf/tiny-llama-Q4_0.gguf")
	s := startServer(t, qwen, llama, "--name", "qwen", "--name", "llama", "--parallel", "2", "--ctx", "256", "--cache-bytes", "2000000", "--memory", "9000000")
	for range 2 {
		for _, model := range []string{"qwen", "llama"} {
			status, text, err := s.post("/v1/completions", "", `{"model": "`+model+`", "prompt": "Once", "max_tokens": 3}`)
			require.NoError(t, err)
			require.Equal(t, http.StatusOK, status, text)
		}
	}
	answer, err := http.Get(s.url + "/metrics")
	require.NoError(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.Regexp(t, `smelt_model_loads_total\{model_name="qwen"\} 3\n`, string(text))
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, s.cmd.Wait(), s.stderr.String())
}

// TestCacheEvents: what a server's cache holds is told at the address of --cache-events.
func TestCacheEvents(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	endpoint := "tcp://" + free.Addr().String()
	require.NoError(t, free.Close())
	s := startServer(t, testfiles.Model(t, "tiny-qwen3/gguf/tiny-qwen3-Q4_0.gguf"), "--cache-events", endpoint, "--name", "story", "--ctx", "512")
	routers := zmq4.NewSub(t.Context())
	defer routers.Close()
	require.NoError(t, routers.Dial(endpoint))
	require.NoError(t, routers.SetOption(zmq4.OptionSubscribe, "kv@"))
	messages := make(chan zmq4.Msg, 1)
	go func() {
		if m, err := routers.Recv(); err == nil { // the test may have ended
			messages <- m
		}
	}()
	for i := 0; i < 500; i++ { // until the subscription has arrived
		status, text, err := s.post("/v1/completions", "", fmt.Sprintf(`{"prompt": "%d %s", "max_tokens": 1}`, i, strings.Repeat("once upon a time ", 30)))
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, status, text)
		select {
		case m := <-messages:
			require.Len(t, m.Frames, 3)
			require.Regexp(t, "^kv@.*@story$", string(m.Frames[0]))
			require.Contains(t, string(m.Frames[2]), "BlockStored")
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
	t.Fatal("nothing was told")
}
