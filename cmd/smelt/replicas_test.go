package main

import (
	"bytes"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/testfiles"
)

// proxy starts HAProxy with the configuration that deploy/ has, and returns its address once
// it answers. Where it is not installed the test is skipped, unless make deployed runs it.
func proxy(t *testing.T, replicas ...*serving) (url string) {
	path, err := exec.LookPath("haproxy")
	if err != nil && !testfiles.Full("deployed") {
		t.Skip("haproxy is not installed; make deployed does so")
	}
	require.NoError(t, err)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := free.Addr().String()
	require.NoError(t, free.Close())
	cmd := exec.Command(path, "-db", "-f", filepath.Join(testfiles.Root(t), "deploy", "haproxy.cfg"))
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.Env = append(os.Environ(), "SMELT_BIND="+address,
		"SMELT_A="+strings.TrimPrefix(replicas[0].url, "http://"), "SMELT_B="+strings.TrimPrefix(replicas[1].url, "http://"))
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
		if t.Failed() {
			t.Logf("haproxy: %s", said.String())
		}
	})
	require.Eventually(t, func() bool { return listens(address) }, time.Minute, 10*time.Millisecond)
	return "http://" + address
}

// TestReplicas: of two replicas behind a proxy one is killed while many ask, who do not come
// again: no request is lost whose answer had not begun to stream. Then both are restarted in
// turn, which loses nothing at all.
func TestReplicas(t *testing.T) {
	const clients = 64
	model := testfiles.Model(t, "tiny-qwen3/gguf/tiny-qwen3-Q4_0.gguf")
	start := func(address string) *serving {
		return startServer(t, model, "--addr", address, "--parallel", "4", "--threads", "1", "--ctx", "512", "--name", "story", "--log")
	}
	replicas := []*serving{start("127.0.0.1:0"), start("127.0.0.1:0")}
	u := newUsers(t, proxy(t, replicas...), clients, false)
	u.more(clients)

	u.mayCut.Store(true)
	busy(t, replicas[0])
	require.NoError(t, replicas[0].cmd.Process.Kill())
	require.Error(t, replicas[0].cmd.Wait())
	u.more(clients)
	u.mayCut.Store(false)
	require.LessOrEqual(t, u.cut.Load(), int64(8), "those that the one that was killed ran, and those whose ends were on their way")

	for i, r := range append(replicas, replicas[0]) { // the first one is back when the second goes
		i %= len(replicas)
		if r = replicas[i]; r.cmd.ProcessState == nil {
			busy(t, r)
			require.NoError(t, r.cmd.Process.Signal(syscall.SIGTERM))
			r.stopped(t)
		}
		replicas[i] = start(strings.TrimPrefix(r.url, "http://"))
		busy(t, replicas[i]) // the proxy has found that it is ready
		u.more(clients)
	}
	u.end()
}

// busy waits until a replica answers as many as it can at once.
func busy(t *testing.T, s *serving) {
	require.Eventually(t, func() bool {
		return t.Failed() || strings.Contains(s.metrics(t), `vllm:num_requests_running{model_name="story"} 4`)
	}, time.Minute, time.Millisecond)
}

// TestProxyStreams: what a replica streams passes through the proxy as it comes.
func TestProxyStreams(t *testing.T) {
	model := testfiles.Model(t, "tiny-qwen3/gguf/tiny-qwen3-Q4_0.gguf")
	s := startServer(t, model, "--ctx", "8192")
	url := proxy(t, s, s)
	answer, err := http.Post(url+"/v1/completions", "application/json", strings.NewReader(`{"prompt": "Once upon a time", "max_tokens": 8000, "ignore_eos": true, "stream": true}`))
	require.NoError(t, err)
	defer answer.Body.Close()
	n, err := answer.Body.Read(make([]byte, 1<<20))
	require.NoError(t, err)
	require.Less(t, n, 100_000, "it came at once")
	require.Contains(t, s.metrics(t), `vllm:num_requests_running{model_name="tiny-qwen3-Q4_0"} 1`)
}
