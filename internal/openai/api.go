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
	"time"
)

// API are the endpoints. Its fields say where models come from and who may ask.
type API struct {
	// Find returns the model of a name, which stays usable until the request of that context has
	// ended, or an error for the client; "" is the name where a request has none.
	Find func(ctx context.Context, name string) (*Model, error)
	// List are the models, in order; Describe is one of them, by its name.
	List     func() []Info
	Describe func(name string) (Info, error)
	// Admit lets so many sequences of a model in, or returns an error for the client; what it
	// returns else is called when they have ended. nil: all.
	Admit func(m *Model, sequences int) (release func(), err error)

	MaxBody  int64         // bytes of a request; 0: 32 MiB
	Ping     time.Duration // after so long without a token a stream gets a sign of life; 0: 10 s
	Patience time.Duration // with a client that does not read what it asked for; 0: 30 s
	Timeout  time.Duration // of a request; 0: none
}

// Bounds where an API does not say.
const (
	DefaultMaxBody  = 32 << 20
	DefaultPatience = 30 * time.Second
)

// bounded serves a request within bounds on its size and time.
func (a *API) bounded(w http.ResponseWriter, r *http.Request, serve func(*API, http.ResponseWriter, *http.Request) error) {
	if err := a.receive(w, r); err != nil {
		Fail(w, r, err)
		return
	}
	if a.Timeout > 0 {
		ctx, cancel := context.WithTimeout(r.Context(), a.Timeout)
		defer cancel()
		r = r.WithContext(ctx)
	}
	if err := serve(a, w, r); err != nil {
		if r.Context().Err() != nil { // which is why
			err = context.Cause(r.Context())
		}
		Fail(w, r, err)
	}
}

// receive reads the body, for which a client has as long as for reading an answer.
func (a *API) receive(w http.ResponseWriter, r *http.Request) error {
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(or(a.Patience, DefaultPatience))) // as for writes, see stream
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, or(a.MaxBody, DefaultMaxBody)))
	if errors.Is(err, os.ErrDeadlineExceeded) { // what is left of it is not waited for either
		w.Header().Set("Connection", "close")
		return &Error{Status: http.StatusRequestTimeout, Type: timedOut, Code: "request_timeout", Message: "the request's body did not come"}
	}
	_ = control.SetReadDeadline(time.Time{})
	var large *http.MaxBytesError
	switch {
	case err != nil && !errors.As(err, &large):
		return invalid("", "the request's body: %v", err)
	case err != nil:
		return err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return nil
}

func or[T int64 | time.Duration](v, otherwise T) T {
	if v == 0 {
		return otherwise
	}
	return v
}

// begin reads a request and finds the model that it names, which shall be able to answer, or
// need not.
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

// admit lets a question's sequences in.
func (a *API) admit(m *Model, sequences int) (release func(), err error) {
	if a.Admit == nil {
		return func() {}, nil
	}
	return a.Admit(m, sequences)
}

// newID names an answer.
func newID(prefix string) string {
	var b [12]byte
	_, _ = rand.Read(b[:]) // it never fails
	return prefix + hex.EncodeToString(b[:])
}

// form writes the answers to a question as one protocol has them.
type form interface {
	// begin is called once, before anything of a stream.
	begin(s *stream)
	// add is called for each event of a stream, in the answer's order.
	add(s *stream, e *event)
	// ping is called where nothing came for a while.
	ping(s *stream)
	// finish ends a stream, after the last event.
	finish(s *stream)
	// fail tells of an error in a stream that has begun.
	fail(s *stream, e *Error)
	// whole is the answer to who wants no stream.
	whole(answers []event) any
}

// answer asks a question and writes what comes of it. An error is one that nothing was
// written before.
func (a *API) answer(w http.ResponseWriter, r *http.Request, q *question, streamed bool, f form) error {
	release, err := a.admit(q.model, len(q.prompts)*q.answers)
	if err != nil {
		return err
	}
	defer release()
	ctx, cancel := context.WithCancel(r.Context())
	events := q.ask(ctx)
	defer func() {
		cancel()
		for range events { // until nobody asks the engine any more
		}
	}()
	if streamed {
		return a.stream(w, r, events, f)
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
	reply(w, http.StatusOK, f.whole(all))
	return nil
}

// stream passes events on as they come. Until the first has come the answer's status is open.
func (a *API) stream(w http.ResponseWriter, r *http.Request, events <-chan event, f form) error {
	s := newStream(w, or(a.Patience, DefaultPatience))
	every := or(a.Ping, 10*time.Second)
	quiet := time.NewTimer(every)
	defer quiet.Stop()
	begin := func() {
		if !s.begun {
			f.begin(s)
		}
	}
	for s.err == nil {
		select {
		case e, more := <-events:
			switch {
			case !more && r.Context().Err() != nil:
				return a.broken(s, f, context.Cause(r.Context()))
			case !more:
				begin()
				f.finish(s)
				return nil
			case e.err != nil:
				return a.broken(s, f, e.err)
			}
			begin()
			f.add(s, &e)
			quiet.Reset(every)
		case <-quiet.C:
			begin()
			f.ping(s)
			quiet.Reset(every)
		}
	}
	return nil // the client is gone
}

// broken tells of an error, in the stream where that has begun.
func (a *API) broken(s *stream, f form, err error) error {
	if !s.begun {
		return err
	}
	f.fail(s, errorOf(err))
	return nil
}
