package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/testfiles"
)

// users are clients that ask the same over and over, every other time for a stream. They may
// come again as clients of OpenAI's API do: where nobody listens, where the connection ended
// before an answer began, and where the status is 503, after as long as that says.
type users struct {
	t         *testing.T
	url       string
	want      string      // what each whole answer says
	comeAgain bool        // else what is not answered is lost
	mayCut    atomic.Bool // streams that have begun may be cut

	whole, refused, later, reset, cut atomic.Int64

	stop context.CancelFunc
	all  sync.WaitGroup
}

const asked = `{"prompt": "Once upon a time", "temperature": 0, "max_tokens": 40, "ignore_eos": true, "stream": %v}`

// newUsers has so many begin to ask.
func newUsers(t *testing.T, url string, n int, comeAgain bool) *users {
	u := &users{t: t, url: url, comeAgain: comeAgain}
	text, again, err := u.ask(http.DefaultClient, false)
	require.NoError(t, err)
	require.Zero(t, again)
	u.want = text
	ctx, stop := context.WithCancel(t.Context())
	u.stop = stop
	t.Cleanup(stop)
	for range n {
		u.all.Go(func() {
			client := &http.Client{Transport: &http.Transport{}} // a process of its own has connections of its own
			defer client.CloseIdleConnections()
			for i := 0; ctx.Err() == nil && !t.Failed(); i++ {
				u.once(client, i%2 == 0)
			}
		})
	}
	return u
}

// end waits until each has its answer.
func (u *users) end() {
	u.stop()
	u.all.Wait()
	u.t.Logf("%d whole answers; nobody listened %d times, the server was stopping %d times, connections ended before an answer %d times and in a stream %d times",
		u.whole.Load(), u.refused.Load(), u.later.Load(), u.reset.Load(), u.cut.Load())
}

// once asks until there is an answer, for a minute.
func (u *users) once(client *http.Client, streamed bool) {
	for began := time.Now(); time.Since(began) < time.Minute; {
		text, again, err := u.ask(client, streamed)
		switch {
		case errors.Is(err, errCut) && u.mayCut.Load():
			u.cut.Add(1)
			return
		case err != nil:
			u.t.Error(err)
			return
		case again > 0:
			time.Sleep(again)
			continue
		case text != u.want:
			u.t.Errorf("%q\nwhere it was %q", text, u.want)
			return
		}
		u.whole.Add(1)
		return
	}
	u.t.Error("no answer in a minute")
}

// errCut is wrapped where a stream had begun and has no end.
var errCut = errors.New("the stream was cut")

// ask returns an answer's text, or after which time to ask again. An error is an answer that
// was lost.
func (u *users) ask(client *http.Client, streamed bool) (text string, again time.Duration, err error) {
	answer, err := client.Post(u.url+"/v1/completions", "application/json", strings.NewReader(fmt.Sprintf(asked, streamed)))
	switch {
	case err != nil && !u.comeAgain:
		return "", 0, err
	case errors.Is(err, syscall.ECONNREFUSED):
		u.refused.Add(1)
		return "", 20 * time.Millisecond, nil
	case err != nil:
		u.reset.Add(1)
		return "", 20 * time.Millisecond, nil
	}
	defer answer.Body.Close()
	whole, err := io.ReadAll(answer.Body)
	switch {
	case err != nil && streamed && answer.StatusCode == http.StatusOK:
		return "", 0, fmt.Errorf("%w after %d bytes: %w", errCut, len(whole), err)
	case err != nil:
		return "", 0, fmt.Errorf("after %d bytes of an answer: %w", len(whole), err)
	case answer.StatusCode == http.StatusServiceUnavailable && u.comeAgain:
		u.later.Add(1)
		seconds, err := strconv.Atoi(answer.Header.Get("Retry-After"))
		return "", time.Duration(seconds) * time.Second, err
	case answer.StatusCode != http.StatusOK:
		return "", 0, fmt.Errorf("%s: %s", answer.Status, whole)
	}
	text, err = said(whole, streamed)
	return text, 0, err
}

// more waits until each has had an answer or two.
func (u *users) more(n int) {
	had := u.whole.Load()
	require.Eventually(u.t, func() bool { return u.t.Failed() || u.whole.Load() >= had+int64(2*n) }, time.Minute, time.Millisecond)
}

// said is the text of an answer, which must be there to its end.
func said(answer []byte, streamed bool) (text string, err error) {
	type completion struct {
		Choices []struct {
			Text   string
			Finish string `json:"finish_reason"`
		}
	}
	pieces := [][]byte{answer}
	if streamed {
		events, whole := bytes.CutSuffix(answer, []byte("data: [DONE]\n\n"))
		if !whole {
			return "", fmt.Errorf("a stream without an end: %s", answer)
		}
		pieces = bytes.Split(bytes.TrimSpace(bytes.TrimPrefix(events, []byte("data: "))), []byte("\n\ndata: "))
	}
	finish := ""
	for _, piece := range pieces {
		var c completion
		if err := json.Unmarshal(piece, &c); err != nil || len(c.Choices) != 1 {
			return "", fmt.Errorf("%s: %w", piece, err)
		}
		text += c.Choices[0].Text
		finish = c.Choices[0].Finish
	}
	if finish != "length" {
		return "", fmt.Errorf("an answer that ended with %q: %s", finish, answer)
	}
	return text, nil
}

// stopped waits for a server's end, which was asked for, and returns how many answers of status
// 200 it says that it gave to what was posted.
func (s *serving) stopped(t *testing.T) (answered int64) {
	_, err := io.ReadAll(s.stdout)
	require.NoError(t, err)
	require.NoError(t, s.cmd.Wait(), s.stderr.String())
	require.NotContains(t, s.stderr.String(), "broken off")
	for line := range strings.Lines(s.stderr.String()) {
		if strings.Contains(line, "method=POST") && strings.Contains(line, "status=200") {
			answered++
		}
	}
	return answered
}

// TestRestart: a server ends while many ask, and another takes over its address. What a server
// has begun to read it answers, and nobody who comes again goes without an answer.
func TestRestart(t *testing.T) {
	clients, restarts := 64, 1
	if testfiles.Full("models") {
		restarts = 5
	}
	model := testfiles.Model(t, "tiny-qwen3/gguf/tiny-qwen3-Q4_0.gguf")
	start := func(address string) *serving {
		return startServer(t, model, "--addr", address, "--parallel", "8", "--ctx", "512", "--log")
	}
	server := start("127.0.0.1:0")
	address := strings.TrimPrefix(server.url, "http://")
	u := newUsers(t, server.url, clients, true)
	answered := int64(-1) // what was asked before they began
	for range restarts {
		u.more(clients)
		require.NoError(t, server.cmd.Process.Signal(syscall.SIGTERM))
		require.Eventually(t, func() bool { return !listens(address) }, time.Minute, time.Millisecond)
		next := start(address) // while the other still answers
		answered += server.stopped(t)
		server = next
	}
	u.more(clients)
	u.end()
	require.NoError(t, server.cmd.Process.Signal(syscall.SIGTERM))
	answered += server.stopped(t)
	require.Equal(t, answered, u.whole.Load(), "answers that were given, and that came")
	require.Positive(t, u.refused.Load()+u.later.Load())
}

func listens(address string) bool {
	c, err := net.Dial("tcp", address)
	if err == nil {
		c.Close()
	}
	return err == nil
}

// long takes seconds, where the machine does nothing else.
const long = `{"prompt": "Once upon a time", "max_tokens": 8000, "ignore_eos": true, "stream": %v}`

// TestStopBreaksOff: when a server's time is over, those whose answers have not begun are told
// to come again, and streams end with an error.
func TestStopBreaksOff(t *testing.T) {
	model := testfiles.Model(t, "tiny-qwen3/gguf/tiny-qwen3-Q4_0.gguf")
	s := startServer(t, model, "--parallel", "1", "--ctx", "8192", "--drain", "100ms")
	stream, err := http.Post(s.url+"/v1/completions", "application/json", strings.NewReader(fmt.Sprintf(long, true)))
	require.NoError(t, err) // it has begun
	defer stream.Body.Close()
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			answer, err := http.Post(s.url+"/v1/completions", "application/json", strings.NewReader(fmt.Sprintf(long, i%2 == 0)))
			if err != nil {
				t.Error(err)
				return
			}
			defer answer.Body.Close()
			text, err := io.ReadAll(answer.Body)
			if err != nil || answer.StatusCode != http.StatusServiceUnavailable || answer.Header.Get("Retry-After") == "" {
				t.Errorf("%s %v: %s", answer.Status, err, text)
			}
		})
	}
	require.Eventually(t, func() bool {
		return strings.Contains(s.metrics(t), `vllm:num_requests_waiting{model_name="tiny-qwen3-Q4_0"} 8`)
	}, time.Minute, time.Millisecond)
	began := time.Now()
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGTERM))
	all.Wait()
	text, err := io.ReadAll(stream.Body)
	require.NoError(t, err)
	events := strings.Split(strings.TrimSpace(string(text)), "\n\n")
	require.Contains(t, events[len(events)-1], `"code":"shutting_down"`)
	require.NoError(t, s.cmd.Wait(), s.stderr.String())
	require.Contains(t, s.stderr.String(), "some requests were broken off")
	require.Less(t, time.Since(began), 5*time.Second) // a tenth, on a machine that does nothing else
}

// TestStopAtOnce: a second signal ends a server at once, whatever is under way.
func TestStopAtOnce(t *testing.T) {
	model := testfiles.Model(t, "tiny-qwen3/gguf/tiny-qwen3-Q4_0.gguf")
	s := startServer(t, model, "--ctx", "8192", "--drain", "1h")
	stream, err := http.Post(s.url+"/v1/completions", "application/json", strings.NewReader(fmt.Sprintf(long, true)))
	require.NoError(t, err) // it has begun
	defer stream.Body.Close()
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGTERM))
	require.Eventually(t, func() bool { return !listens(strings.TrimPrefix(s.url, "http://")) }, time.Minute, time.Millisecond)
	began := time.Now()
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGTERM))
	var ended *exec.ExitError
	require.ErrorAs(t, s.cmd.Wait(), &ended)
	require.Equal(t, syscall.SIGTERM, ended.Sys().(syscall.WaitStatus).Signal())
	require.Less(t, time.Since(began), time.Second)
	_, err = io.ReadAll(stream.Body)
	require.Error(t, err, "it was under way")
}

func (s *serving) metrics(t *testing.T) string {
	answer, err := http.Get(s.url + "/metrics")
	require.NoError(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return string(text)
}
