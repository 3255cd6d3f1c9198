package serve

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// connected serves what the handlers answer, beside the server's own endpoints, on a listener with
// a bound on its connections.
func connected(t *testing.T, o Options, most int, handlers map[string]http.HandlerFunc) (dial func() *client) {
	s := New(o)
	for pattern, handle := range handlers {
		s.mux.HandleFunc(pattern, handle)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	h := &http.Server{}
	served := make(chan error, 1)
	open := s.Connect(h, l, most)
	go func() { served <- h.Serve(open) }()
	t.Cleanup(func() {
		require.NoError(t, open.Close())
		require.NoError(t, open.Close(), "twice")
		require.ErrorIs(t, <-served, net.ErrClosed)
		require.NoError(t, h.Close())
	})
	return func() *client {
		c, err := net.Dial("tcp", l.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { c.Close() })
		require.NoError(t, c.SetDeadline(time.Now().Add(20*time.Second)))
		return &client{t, c.(*net.TCPConn), bufio.NewReader(c)}
	}
}

type client struct {
	t *testing.T
	*net.TCPConn
	in *bufio.Reader
}

func (c *client) send(format string, args ...any) {
	_, err := fmt.Fprintf(c, strings.ReplaceAll(format, "\n", "\r\n"), args...)
	require.NoError(c.t, err)
}

// answer reads an answer, and those before it that are no last ones.
func (c *client) answer() (status int, body string) {
	for {
		r, err := http.ReadResponse(c.in, nil)
		require.NoError(c.t, err)
		text, err := io.ReadAll(r.Body)
		require.NoError(c.t, err)
		if r.StatusCode >= 200 {
			return r.StatusCode, string(text)
		}
	}
}

const head = " HTTP/1.1\nHost: x\nContent-Type: application/json\n"

// Idle connections make room for new ones; where all are busy, /health is answered still.
func TestRoom(t *testing.T) {
	begun, release := make(chan bool, 9), make(chan bool)
	dial := connected(t, Options{Keys: []string{"key"}}, 2, map[string]http.HandlerFunc{"GET /slow": func(w http.ResponseWriter, r *http.Request) {
		begun <- true
		<-release
	}})
	for range 9 { // more than may be open
		c := dial()
		c.send("GET /health" + head + "\n")
		status, _ := c.answer()
		require.Equal(t, 200, status)
	}
	var busy []*client
	for range 2 {
		c := dial()
		c.send("GET /slow" + head + "Authorization: bearer key\n\n")
		select {
		case <-begun:
		case <-t.Context().Done():
		case <-time.After(10 * time.Second):
			t.Fatal("no room")
		}
		busy = append(busy, c)
	}
	for range spare + 9 { // silent ones are closed, one by one
		dial()
	}
	time.Sleep(silence)
	for path, want := range map[string]int{"/health": 200, "/ready": 503, "/metrics": 503, "/slow": 503} {
		c := dial()
		c.send("GET " + path + head + "Authorization: BEARER key\n\n")
		status, text := c.answer()
		require.Equal(t, want, status, path)
		if path == "/slow" || path == "/metrics" {
			require.Contains(t, text, "too_many_connections")
			_, err := c.in.ReadByte()
			require.ErrorIs(t, err, io.EOF)
		}
	}
	close(release)
	for _, c := range busy {
		status, _ := c.answer()
		require.Equal(t, 200, status, "those that are busy are not disturbed")
	}
	c := dial()
	c.send("GET /slow" + head + "Authorization: Basic key\n\n")
	status, _ := c.answer()
	require.Equal(t, 401, status)
}

// A client that has closed its side for writing gets its answer; one that is gone cancels its
// request.
func TestHalfClosed(t *testing.T) {
	begun, ended := make(chan bool, 1), make(chan error, 1)
	dial := connected(t, Options{}, 9, map[string]http.HandlerFunc{"POST /echo": func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		if err == nil {
			begun <- true
			select {
			case <-r.Context().Done():
				err = r.Context().Err()
			case <-time.After(300 * time.Millisecond):
				_, err = w.Write(text)
			}
		}
		ended <- err
	}})
	const question = "POST /echo" + head + "Content-Length: 2\n\nhi"
	c := dial()
	c.send(question)
	require.NoError(t, c.CloseWrite())
	<-begun
	status, text := c.answer()
	require.Equal(t, 200, status)
	require.Equal(t, "hi", text)
	require.NoError(t, <-ended)
	_, err := c.in.ReadByte()
	require.ErrorIs(t, err, io.EOF)

	c = dial()
	c.send(question)
	<-begun
	began := time.Now()
	require.NoError(t, c.Close())
	require.ErrorIs(t, <-ended, context.Canceled)
	require.Less(t, time.Since(began), 250*time.Millisecond)

	c = dial() // what was not sent does not come
	c.send("POST /echo" + head + "Content-Length: 9\n\nhi")
	require.NoError(t, c.CloseWrite())
	require.ErrorIs(t, <-ended, io.ErrUnexpectedEOF)
}

// A request with two lengths is refused, wherever the second stands, and ends its connection.
func TestTwoLengths(t *testing.T) {
	asked := 0
	dial := connected(t, Options{}, 9, map[string]http.HandlerFunc{"POST /echo": func(w http.ResponseWriter, r *http.Request) {
		asked++
		text, _ := io.ReadAll(r.Body)
		_, _ = w.Write(text)
	}})
	const chunks = "2\nhi\n0\n\n"
	c := dial()
	for range 3 {
		c.send("POST /echo" + head + "Transfer-Encoding: chunked\n\n" + chunks)
		status, text := c.answer()
		require.Equal(t, 200, status)
		require.Equal(t, "hi", text)
		c.send("POST /echo" + head + "Content-Length: 2\n\nhi")
		status, _ = c.answer()
		require.Equal(t, 200, status)
	}
	asked = 0
	for _, lengths := range []string{"Transfer-Encoding: chunked\nContent-Length: 8\n", "content-length: 8\nX: y\nTransfer-Encoding: chunked\n"} {
		for before := range 2 {
			c := dial()
			for range before {
				c.send("GET /health" + head + "\n")
				c.answer()
			}
			c.send("POST /echo" + head + lengths + "\n" + chunks)
			status, text := c.answer()
			require.Equal(t, 400, status)
			require.Contains(t, text, "both Transfer-Encoding and Content-Length")
			_, err := c.in.ReadByte()
			require.ErrorIs(t, err, io.EOF)
		}
	}
	require.Zero(t, asked)
}

// One question is answered once, for all that ask it at one time or later, an error too.
func TestGraphOnce(t *testing.T) {
	var g graphs
	var drawn atomic.Int32
	var all sync.WaitGroup
	for i := range 300 {
		all.Go(func() {
			of := graphOf{phase: []string{"decode", "prefill", "wrong"}[i%3]}
			text, err := g.get(of, func() ([]byte, error) {
				drawn.Add(1)
				time.Sleep(10 * time.Millisecond)
				if of.phase == "wrong" {
					return nil, errors.New("no such phase")
				}
				return []byte(of.phase), nil
			})
			require.Equal(t, of.phase == "wrong", err != nil)
			require.True(t, err != nil || string(text) == of.phase)
		})
	}
	all.Wait()
	require.EqualValues(t, 3, drawn.Load())
	for i := range 3 * keptGraphs {
		_, err := g.get(graphOf{model: fmt.Sprint(i)}, func() ([]byte, error) { return nil, nil })
		require.NoError(t, err)
		require.LessOrEqual(t, len(g.kept), keptGraphs)
	}
}
