package serve

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"regexp"
	"slices"
	"sync"
	"time"
)

// Connect has h serve s on the connections of a listener, and returns the listener to pass to
// [http.Server.Serve]. At most most connections are open; a new one replaces the one that is idle
// for longest. Where none is idle it gets 503, except from /health and /ready.
//
// A client that has closed its side for writing still gets its answer, and a request with both
// Transfer-Encoding and Content-Length is refused, since a proxy in front may read it as two.
// Without Connect, the first is taken for a disconnected client, and the second has no length.
func (s *Server) Connect(h *http.Server, l net.Listener, most int) net.Listener {
	h.Handler = s
	h.ConnContext = func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) }
	h.ConnState = func(c net.Conn, state http.ConnState) {
		if c, ok := c.(*conn); ok {
			c.of.note(c, state)
		}
	}
	return &connections{Listener: l, most: most}
}

// connections are the open connections of a listener.
type connections struct {
	net.Listener
	most  int
	close sync.Once

	mu   sync.Mutex
	open []*conn // the longest in its state first
}

// conn is an open connection.
type conn struct {
	net.Conn
	of    *connections
	state http.ConnState // guarded by of.mu, as are since and extra
	since time.Time
	extra bool // beyond the maximum

	mu     sync.Mutex
	head   []byte // read since the last request
	asked  bool   // a request is being served: what is read is its body
	begun  bool   // its answer has been written to
	closed bool   // the client has closed its side
}

type connKey struct{}

// silence is the time after which a connection without a request counts as idle.
const silence = time.Second

// spare is the number of connections beyond the maximum, which are open until their first request.
const spare = 64

// Accept accepts a connection, and closes idle ones to make room for it.
func (l *connections) Accept() (net.Conn, error) {
	for {
		accepted, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &conn{Conn: accepted, of: l, since: time.Now()}
		if l.admit(c) {
			return c, nil
		}
		accepted.Close()
	}
}

func (l *connections) admit(c *conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.makeRoom(l.most - 1)
	if len(l.open) >= l.most+spare {
		return false
	}
	c.extra = len(l.open) >= l.most
	l.open = append(l.open, c)
	return true
}

// makeRoom closes idle connections beyond n open ones.
func (l *connections) makeRoom(n int) {
	over := len(l.open) - n
	l.open = slices.DeleteFunc(l.open, func(c *conn) bool {
		idle := c.state == http.StateIdle || c.state == http.StateNew && time.Since(c.since) > silence
		if over <= 0 || !idle {
			return false
		}
		over--
		c.Conn.Close()
		return true
	})
}

// note moves a connection that changes its state behind the others.
func (l *connections) note(c *conn, state http.ConnState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.open, c); i >= 0 && state != c.state {
		l.open = append(slices.Delete(l.open, i, i+1), c)
		c.state, c.since = state, time.Now()
	}
}

func (l *connections) forget(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = slices.DeleteFunc(l.open, func(other *conn) bool { return other == c })
}

// crowded reports whether a connection is one too many for its request. Others have a moment to
// become idle.
func (l *connections) crowded(c *conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for began := time.Now(); c.extra && time.Since(began) < silence; {
		if l.makeRoom(l.most); len(l.open) <= l.most {
			c.extra = false
			break
		}
		l.mu.Unlock()
		time.Sleep(20 * time.Millisecond)
		l.mu.Lock()
	}
	return c.extra
}

// Close closes the listener; its connections stay open. Further calls do nothing.
func (l *connections) Close() (err error) {
	l.close.Do(func() { err = l.Listener.Close() })
	return err
}

func (c *conn) Close() error {
	c.of.forget(c)
	return c.Conn.Close()
}

// maxHead bounds what is kept of a request's head: http.Server's bound, and what it reads ahead.
const maxHead = 64<<10 + 8<<10

func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.asked && len(c.head)+n <= maxHead {
		c.head = append(c.head, p[:n]...)
	}
	c.closed = c.closed || errors.Is(err, io.EOF)
	return n, err
}

var goOn = []byte("HTTP/1.1 100 ")

func (c *conn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.begun = c.begun || !bytes.HasPrefix(p, goOn)
	return c.Conn.Write(p)
}

var lengthLine = regexp.MustCompile(`(?i)\ncontent-length[ \t]*:`)

// begin begins a request, and reports whether it has one length only. Of a request whose head was
// read with the body before it nothing is known, so that its length must not be chunked.
func (c *conn) begin(r *http.Request) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	head := c.head
	c.head, c.asked, c.begun = nil, true, false
	if len(r.TransferEncoding) == 0 {
		return true
	}
	head, _, _ = bytes.Cut(head, []byte("\r\n\r\n"))
	return bytes.HasPrefix(bytes.TrimLeft(head, "\r\n"), []byte(r.Method+" ")) && !lengthLine.Match(head)
}

func (c *conn) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = false
}

// probe is sent to a client that has closed its side, since only an answer to it shows whether the
// other side is closed too.
var probe = []byte("HTTP/1.1 102 Processing\r\n\r\n")

// gone returns when a client that has closed its side has closed the other too, or when ctx ends.
// An answer that has begun finds that out itself, by its next writes.
func (c *conn) gone(ctx context.Context, r *http.Request) {
	c.mu.Lock()
	closed := c.closed
	var err error
	if closed && !c.begun && r.ProtoAtLeast(1, 1) {
		_, err = c.Conn.Write(probe)
	}
	c.mu.Unlock()
	wait := time.NewTicker(20 * time.Millisecond)
	defer wait.Stop()
	for closed && err == nil {
		select {
		case <-ctx.Done():
			return
		case <-wait.C:
			_, err = c.Conn.Write(nil) // fails once the client has refused the probe
		}
	}
}
