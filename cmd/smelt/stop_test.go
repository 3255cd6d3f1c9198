package main

import (
	"errors"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/serve"
)

// TestStopTaken: a server whose connections are all taken, silent or between requests, ends with
// status 0.
func TestStopTaken(t *testing.T) {
	s := startServer(t, testfiles.Model(t, "tiny-qwen3/gguf/tiny-qwen3-Q4_0.gguf"), "--max-connections", "2", "--ctx", "64", "--drain", "1s")
	for i := range 4 {
		c, err := net.Dial("tcp", s.url[len("http://"):])
		require.NoError(t, err)
		defer c.Close()
		if i%2 == 0 {
			_, err = io.WriteString(c, "GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
			require.NoError(t, err)
			_, err = c.Read(make([]byte, 1))
			require.NoError(t, err)
		}
	}
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, s.cmd.Wait(), s.stderr.String())
}

// lateListener accepts until well after it is closed, and fails to be closed twice.
type lateListener struct {
	net.Listener
	closed atomic.Bool
}

func (l *lateListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	time.Sleep(100 * time.Millisecond)
	return c, err
}

func (l *lateListener) Close() error {
	if l.closed.Swap(true) {
		return errors.New("closed twice")
	}
	return l.Listener.Close()
}

// TestStopLate: a listener that is slow to end is waited for, so that the end is no error.
func TestStopLate(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	late := &lateListener{Listener: l}
	server, h, served := serve.New(serve.Options{}), &http.Server{}, make(chan error, 1)
	go func() { served <- h.Serve(late) }()
	c, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	f := serveFlags{drain: time.Second}
	_, err = f.stop(t.Context(), server, h, late, served)
	require.NoError(t, err)
}
