package openai

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

// API serves the HTTP endpoints of [Endpoints].
type API struct {
	// Find returns the model of a name, "" if the request has none, or an error for the client. The
	// model stays usable until the request of the context has ended.
	Find func(ctx context.Context, name string) (*Model, error)
	// List returns the models, in order; Describe returns one of them by its name.
	List     func() []Info
	Describe func(name string) (Info, error)
	// Admit reserves places for n sequences of a model, or returns an error for the client; release
	// returns the places. nil: no limit.
	Admit func(m *Model, sequences int) (release func(), err error)

	MaxBody  int64         // maximum size of a request in bytes; 0: 32 MiB
	Ping     time.Duration // interval without a token after which a stream gets a comment; 0: 10 s
	Patience time.Duration // timeout of a client that does not read; 0: 30 s
	Timeout  time.Duration // timeout of a request; 0: none

	room    *semaphore.Weighted // for bodies and what is made of them, until they are encoded: MaxBody bytes
	newRoom sync.Once
}

// Defaults of API's fields.
const (
	DefaultMaxBody  = 32 << 20
	DefaultPatience = 30 * time.Second
)

// bounded serves a request with limits on its size and time.
func (a *API) bounded(w http.ResponseWriter, r *http.Request, e *Endpoint) {
	share := int64(1)
	if e.unbounded {
		share = unboundedShare
	}
	if err := a.receive(w, r, share); err != nil {
		Fail(w, r, err)
		return
	}
	defer r.Body.Close()
	if a.Timeout > 0 {
		ctx, cancel := context.WithTimeout(r.Context(), a.Timeout)
		defer cancel()
		r = r.WithContext(ctx)
	}
	if err := e.serve(a, w, r); err != nil {
		if r.Context().Err() != nil { // the cause of the error
			err = context.Cause(r.Context())
		}
		Fail(w, r, err)
	}
}

// body is a request's body that has been read. Close makes room for others.
type body struct {
	text    []byte
	release func()
}

func (b *body) Read([]byte) (int, error) { return 0, io.EOF } // text is read already

func (b *body) Close() error {
	b.release()
	return nil
}

// small is the size of bodies that need no room: all connections together have few bytes of them.
const small = 64 << 10

// unboundedShare is the room that a byte takes where a text of any length is encoded.
const unboundedShare = 8

// receive reads the body, with the timeout Patience. Large bodies wait for room, share bytes of it a
// byte, so that those that are read and encoded at one time take no more memory than one.
func (a *API) receive(w http.ResponseWriter, r *http.Request, share int64) error {
	room := or(a.MaxBody, DefaultMaxBody)
	a.newRoom.Do(func() { a.room = semaphore.NewWeighted(room) })
	most := room / share
	in := http.MaxBytesReader(w, r.Body, most)
	if r.ContentLength > most {
		return &http.MaxBytesError{Limit: most}
	}
	text, err := a.readBody(w, io.LimitReader(in, small), nil)
	release := func() {}
	if err == nil && len(text) == small {
		n := r.ContentLength
		if n < 0 {
			n = most
		}
		n *= share
		ctx, cancel := context.WithTimeout(r.Context(), or(a.Patience, DefaultPatience))
		defer cancel()
		if a.room.Acquire(ctx, n) != nil {
			w.Header().Set("Connection", "close") // the rest is not read
			return Overloaded(time.Second)
		}
		release = sync.OnceFunc(func() { a.room.Release(n) })
		text, err = a.readBody(w, in, append(make([]byte, 0, max(r.ContentLength+bytes.MinRead, small)), text...))
	}
	if err != nil {
		release()
		return err
	}
	r.Body = &body{text, release}
	return nil
}

// readBody appends what in has to text.
func (a *API) readBody(w http.ResponseWriter, in io.Reader, text []byte) ([]byte, error) {
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(or(a.Patience, DefaultPatience))) // like writes, see stream
	to := bytes.NewBuffer(text)
	_, err := to.ReadFrom(in)
	if errors.Is(err, os.ErrDeadlineExceeded) { // the rest is not awaited either
		w.Header().Set("Connection", "close")
		return nil, &Error{Status: http.StatusRequestTimeout, Type: timedOut, Code: "request_timeout", Message: "the request's body did not come"}
	}
	_ = control.SetReadDeadline(time.Time{})
	var large *http.MaxBytesError
	switch {
	case err != nil && !errors.As(err, &large):
		return nil, invalid("", "the request's body: %v", err)
	case err != nil:
		return nil, err
	}
	return to.Bytes(), nil
}

func or[T int64 | time.Duration](v, otherwise T) T {
	if v == 0 {
		return otherwise
	}
	return v
}

// begin parses a request and finds its model. If answers is set, the model must have an engine.
func (a *API) begin(r *http.Request, answers bool) (*params, *Model, error) {
	p, err := readParams(r)
	if err != nil {
		return nil, nil, err
	}
	var name string
	p.read("model", &name)
	if p.err != nil {
		return nil, nil, p.err
	}
	m, err := a.Find(r.Context(), name)
	if err == nil && answers {
		err = m.answers()
	}
	return p, m, err
}

// admit reserves places for a question's sequences.
func (a *API) admit(m *Model, sequences int) (release func(), err error) {
	if a.Admit == nil {
		return func() {}, nil
	}
	return a.Admit(m, sequences)
}

// newID returns a random id with a prefix.
func newID(prefix string) string {
	var b [12]byte
	_, _ = rand.Read(b[:]) // never fails
	return prefix + hex.EncodeToString(b[:])
}

// encoder writes the answers to a question in one protocol.
type encoder interface {
	// begin is called once, before the first event of a stream.
	begin(s *stream)
	// add is called for each event of a stream, in the order of each answer.
	add(s *stream, e *event)
	// ping is called when no event has come for a while.
	ping(s *stream)
	// finish ends a stream, after the last event.
	finish(s *stream)
	// fail reports an error in a stream that has begun.
	fail(s *stream, e *Error)
	// whole returns the body of an answer that is not streamed.
	whole(answers []event) any
}

// answer generates the answers to a question and writes them. It returns an error only if nothing
// has been written.
func (a *API) answer(w http.ResponseWriter, r *http.Request, q *question, streamed bool, to encoder) error {
	release, err := a.admit(q.model, len(q.prompts)*q.answers)
	if err != nil {
		return err
	}
	defer release()
	r.Body.Close() // what is left of it is tokens
	ctx, cancel := context.WithCancel(r.Context())
	events := q.ask(ctx)
	defer func() {
		cancel()
		for range events { // until the engine's last sequence has ended
		}
	}()
	if streamed {
		return a.stream(w, r, events, to)
	}
	all := make([]event, len(q.prompts)*q.answers)
	for e := range events {
		if e.err != nil {
			return e.err
		}
		to := &all[e.index]
		to.index = e.index
		to.join(e.Delta)
		to.tokens = append(to.tokens, e.tokens...)
		if e.finish != "" {
			to.finish, to.stop, to.usage = e.finish, e.stop, e.usage
		}
	}
	if err := r.Context().Err(); err != nil {
		return err
	}
	reply(w, http.StatusOK, to.whole(all))
	return nil
}

// stream writes events as they come. The status is sent with the first, so an earlier error can
// still set it.
func (a *API) stream(w http.ResponseWriter, r *http.Request, events <-chan event, to encoder) error {
	s := newStream(w, or(a.Patience, DefaultPatience))
	every := or(a.Ping, 10*time.Second)
	quiet := time.NewTimer(every)
	defer quiet.Stop()
	begin := func() {
		if !s.begun {
			to.begin(s)
		}
	}
	for s.err == nil {
		select {
		case e, more := <-events:
			switch {
			case !more && r.Context().Err() != nil:
				return a.broken(s, to, context.Cause(r.Context()))
			case !more:
				begin()
				to.finish(s)
				return nil
			case e.err != nil:
				return a.broken(s, to, e.err)
			}
			begin()
			to.add(s, &e)
			quiet.Reset(every)
		case <-quiet.C:
			begin()
			to.ping(s)
			quiet.Reset(every)
		}
	}
	return nil // the client has disconnected
}

// broken reports an error within the stream if that has begun, and returns it otherwise.
func (a *API) broken(s *stream, to encoder, err error) error {
	if !s.begun {
		return err
	}
	to.fail(s, errorOf(err))
	return nil
}
